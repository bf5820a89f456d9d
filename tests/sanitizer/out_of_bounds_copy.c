/* out-of-bounds: a copy writes into the padding. */
#include "program.h"

void program(bool faulty)
{
    const size_t bytes = faulty ? 20 : 16;
    const float values[5] = {1, 2, 3, 4, 5};
    aclrtStream stream = begin();
    void *data = NULL;
    MUST(aclrtMalloc(&data, 16, ACL_MEM_MALLOC_HUGE_FIRST));
    MUST(aclrtMemcpy(data, bytes, values, bytes, ACL_MEMCPY_HOST_TO_DEVICE));
    MUST(aclrtFree(data));
    finish(stream);
}
