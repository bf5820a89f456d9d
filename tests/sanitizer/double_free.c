/* double-free: memory is freed twice. */
#include "program.h"

void program(bool faulty)
{
    const int times = faulty ? 2 : 1;
    aclrtStream stream = begin();
    void *data = NULL;
    MUST(aclrtMalloc(&data, 64, ACL_MEM_MALLOC_HUGE_FIRST));
    for (int i = 0; i < times; i++) IGNORE(aclrtFree(data));
    finish(stream);
}
