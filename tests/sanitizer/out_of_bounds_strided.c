/* out-of-bounds: the last row of a strided view lies behind the memory. */
#include "program.h"


static void rows_apart(int64_t stride)
{
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

void faulty(void)
{
    rows_apart(7);
}

void sound(void)
{
    rows_apart(6);
}
