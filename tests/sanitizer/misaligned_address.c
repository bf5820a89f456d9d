/* misaligned-address: a view that begins later has an offset, its address stays aligned. */
#include "program.h"

void program(bool faulty)
{
    const size_t bytes = faulty ? 4 : 0;
    const int64_t offset = faulty ? 0 : 1;
    const float values[5] = {1, 2, 3, 4, 5};
    const int64_t shape = 4, storage = 5;
    aclrtStream stream = begin();
    Elu call = elu();
    MUST(aclDestroyTensor(call.self));
    MUST(aclrtFree(call.memory[1]));
    call.memory[1] = device_copy(values, sizeof values);
    call.self = aclCreateTensor(&shape, 1, ACL_FLOAT, NULL, offset, ACL_FORMAT_ND, &storage, 1, (char *)call.memory[1] + bytes);
    elu_run(&call, stream);
    MUST(aclrtSynchronizeStream(stream));
    elu_end(&call);
    finish(stream);
}
