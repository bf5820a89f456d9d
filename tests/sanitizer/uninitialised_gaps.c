/* uninitialised-read: an operator writes every second element of a view, and the gaps are copied to the host. */
#include "program.h"

void program(bool faulty)
{
    const int64_t shape = 4, stride = 2, storage = 7;
    float values[7];
    aclrtStream stream = begin();
    Elu call = elu();
    MUST(aclDestroyTensor(call.gradInput));
    MUST(aclrtFree(call.memory[2]));
    MUST(aclrtMalloc(&call.memory[2], sizeof values, ACL_MEM_MALLOC_HUGE_FIRST));
    call.gradInput = aclCreateTensor(&shape, 1, ACL_FLOAT, &stride, 0, ACL_FORMAT_ND, &storage, 1, call.memory[2]);
    if (!faulty) MUST(aclrtMemset(call.memory[2], sizeof values, 0, sizeof values));
    elu_run(&call, stream);
    MUST(aclrtSynchronizeStream(stream));
    MUST(aclrtMemcpy(values, sizeof values, call.memory[2], sizeof values, ACL_MEMCPY_DEVICE_TO_HOST));
    elu_end(&call);
    finish(stream);
}
