/* uninitialised-read: half of what is copied to the host was never written, and came here by a copy. */
#include "program.h"

void program(bool faulty)
{
    const size_t written = faulty ? 8 : 16;
    float values[4] = {1, 2, 3, 4};
    void *first = NULL, *second = NULL;
    aclrtStream stream = begin();
    MUST(aclrtMalloc(&first, 16, ACL_MEM_MALLOC_HUGE_FIRST));
    MUST(aclrtMalloc(&second, 16, ACL_MEM_MALLOC_HUGE_FIRST));
    MUST(aclrtMemcpy(first, 16, values, written, ACL_MEMCPY_HOST_TO_DEVICE));
    MUST(aclrtMemcpyAsync(second, 16, first, 16, ACL_MEMCPY_DEVICE_TO_DEVICE, stream));
    MUST(aclrtMemcpyAsync(values, 16, second, 16, ACL_MEMCPY_DEVICE_TO_HOST, stream));
    MUST(aclrtFree(first));
    MUST(aclrtFree(second));
    finish(stream);
}
