/* double-free: memory is freed twice. */
#include "program.h"


static void times_freed(int times)
{
    aclrtStream stream = begin();
    void *data = NULL;
    MUST(aclrtMalloc(&data, 64, ACL_MEM_MALLOC_HUGE_FIRST));
    for (int i = 0; i < times; i++) IGNORE(aclrtFree(data));
    finish(stream);
}

void faulty(void)
{
    times_freed(2);
}

void sound(void)
{
    times_freed(1);
}
