/* free-in-use: page-locked memory is freed while a copy to it is queued. */
#include "program.h"

void program(bool faulty)
{
    aclrtStream stream = begin();
    Elu call = elu();
    void *result = NULL;
    MUST(aclrtMallocHost(&result, 16));
    elu_run(&call, stream);
    MUST(aclrtMemcpyAsync(result, 16, call.memory[2], 16, ACL_MEMCPY_DEVICE_TO_HOST, stream));
    if (!faulty) MUST(aclrtSynchronizeStream(stream));
    MUST(aclrtFreeHost(result));
    MUST(aclrtSynchronizeStream(stream));
    elu_end(&call);
    finish(stream);
}
