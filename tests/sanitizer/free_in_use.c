/* free-in-use: an input is freed before the stream that reads it was synchronised. */
#include "program.h"

void program(bool faulty)
{
    const float values[4] = {1, 2, 3, 4};
    aclrtStream stream = begin();
    Elu call = elu();
    elu_run(&call, stream);
    if (faulty) MUST(aclrtFree(call.memory[1]));
    MUST(aclrtSynchronizeStream(stream));
    if (faulty) {
        call.memory[1] = device_copy(values, sizeof values);
        MUST(aclSetRawTensorAddr(call.self, call.memory[1]));
    }
    elu_run(&call, stream);
    MUST(aclrtFreeWithDevSync(call.memory[1])); /* which waits */
    MUST(aclrtMalloc(&call.memory[1], 16, ACL_MEM_MALLOC_HUGE_FIRST));
    elu_end(&call);
    finish(stream);
}
