/* leak, leak, leak, leak, leak, leak, leak, leak: one of everything is left. */
#include "program.h"

void program(bool faulty)
{
    const float number = 1;
    const int64_t integer = 1;
    aclrtStream stream = begin(), other = NULL;
    aclrtEvent event = NULL;
    aclrtContext context = NULL, main = NULL;
    void *data = NULL, *host = NULL;
    MUST(aclrtCreateStream(&other));
    MUST(aclrtCreateEvent(&event));
    MUST(aclrtMalloc(&data, 64, ACL_MEM_MALLOC_HUGE_FIRST));
    MUST(aclrtMallocHost(&host, 64));
    MUST(aclrtGetCurrentContext(&main));
    MUST(aclrtCreateContext(&context, 0));
    aclTensor *tensor = vector(NULL, 0, ACL_FLOAT);
    aclScalar *scalar = aclCreateScalar((void *)&number, ACL_FLOAT);
    aclIntArray *array = aclCreateIntArray(&integer, 1);
    if (!faulty) {
        MUST(aclDestroyIntArray(array));
        MUST(aclDestroyScalar(scalar));
        MUST(aclDestroyTensor(tensor));
        MUST(aclrtDestroyContext(context));
    }
    MUST(aclrtSetCurrentContext(main));
    if (!faulty) {
        MUST(aclrtFreeHost(host));
        MUST(aclrtFree(data));
        MUST(aclrtDestroyEvent(event));
        MUST(aclrtDestroyStream(other));
    }
    finish(stream);
}
