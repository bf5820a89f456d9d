/* out-of-bounds: the last row of a strided view lies behind the memory. */
#include "program.h"

void program(bool faulty)
{
    const int64_t stride = faulty ? 7 : 6;
    const float values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    const int64_t shape[2] = {2, 2}, storage = 8, strides[2] = {stride, 1};
    aclrtStream stream = begin();
    Elu call = elu();
    MUST(aclDestroyTensor(call.gradOutput));
    MUST(aclDestroyTensor(call.self));
    MUST(aclDestroyTensor(call.gradInput));
    MUST(aclrtFree(call.memory[1]));
    call.memory[1] = device_copy(values, sizeof values);
    call.gradOutput = aclCreateTensor(shape, 2, ACL_FLOAT, NULL, 0, ACL_FORMAT_ND, shape, 2, call.memory[0]);
    call.self = aclCreateTensor(shape, 2, ACL_FLOAT, strides, 0, ACL_FORMAT_ND, &storage, 1, call.memory[1]);
    call.gradInput = aclCreateTensor(shape, 2, ACL_FLOAT, NULL, 0, ACL_FORMAT_ND, shape, 2, call.memory[2]);
    elu_run(&call, stream);
    MUST(aclrtSynchronizeStream(stream));
    elu_end(&call);
    finish(stream);
}
