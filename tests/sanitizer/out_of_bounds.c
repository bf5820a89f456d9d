/* out-of-bounds: the view has one element more than was asked for, which the padding hides. */
#include "program.h"

void program(bool faulty)
{
    const size_t bytes = faulty ? 16 : 20;
    const float values[5] = {1, 2, 3, 4, 5};
    aclrtStream stream = begin();
    Elu call = elu();
    MUST(aclDestroyTensor(call.gradOutput));
    MUST(aclDestroyTensor(call.self));
    MUST(aclDestroyTensor(call.gradInput));
    for (int i = 0; i < 3; i++) MUST(aclrtFree(call.memory[i]));
    call.memory[0] = device_copy(values, 20);
    call.memory[1] = device_copy(values, 20);
    call.memory[2] = device_copy(values, bytes);
    call.gradOutput = vector(call.memory[0], 5, ACL_FLOAT);
    call.self = vector(call.memory[1], 5, ACL_FLOAT);
    call.gradInput = vector(call.memory[2], 5, ACL_FLOAT);
    elu_run(&call, stream);
    MUST(aclrtSynchronizeStream(stream));
    elu_end(&call);
    finish(stream);
}
