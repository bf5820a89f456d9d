/* leak, leak: what the program's end should end as well, as a static object's destructor does in C++, is left. */
#include "program.h"

static aclrtStream kept;
static void *memory;

__attribute__((destructor)) static void end(void)
{
    if (kept != NULL) {
        MUST(aclrtFree(memory));
        finish(kept);
    }
}

void program(bool faulty)
{
    kept = begin();
    MUST(aclrtMalloc(&memory, 64, ACL_MEM_MALLOC_HUGE_FIRST));
    if (faulty) kept = NULL;
}
