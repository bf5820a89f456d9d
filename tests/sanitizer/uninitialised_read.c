/* uninitialised-read: an input that was allocated, and never written. */
#include "program.h"

void program(bool faulty)
{
    aclrtStream stream = begin();
    Elu call = elu();
    MUST(aclrtFree(call.memory[1]));
    MUST(aclrtMalloc(&call.memory[1], 16, ACL_MEM_MALLOC_HUGE_FIRST));
    MUST(aclSetRawTensorAddr(call.self, call.memory[1]));
    if (!faulty) MUST(aclrtMemsetAsync(call.memory[1], 16, 0, 16, stream));
    elu_run(&call, stream);
    MUST(aclrtSynchronizeStream(stream));
    elu_end(&call);
    finish(stream);
}
