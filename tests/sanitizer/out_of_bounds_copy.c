/* out-of-bounds: a copy writes into the padding. */
#include "program.h"


static void copy_of(size_t bytes)
{
    const float values[5] = {1, 2, 3, 4, 5};
    aclrtStream stream = begin();
    void *data = NULL;
    MUST(aclrtMalloc(&data, 16, ACL_MEM_MALLOC_HUGE_FIRST));
    MUST(aclrtMemcpy(data, bytes, values, bytes, ACL_MEMCPY_HOST_TO_DEVICE));
    MUST(aclrtFree(data));
    finish(stream);
}

void faulty(void)
{
    copy_of(20);
}

void sound(void)
{
    copy_of(16);
}
