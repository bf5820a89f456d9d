/* overlapping-output: the output begins one element behind the input; exactly in place would do. */
#include "program.h"

void program(bool faulty)
{
    const int64_t offset = faulty ? 1 : 0;
    const float values[5] = {1, 2, 3, 4, 5};
    const int64_t shape = 4, storage = 5;
    aclrtStream stream = begin();
    Elu call = elu();
    void *both = device_copy(values, sizeof values);
    MUST(aclDestroyTensor(call.self));
    MUST(aclDestroyTensor(call.gradInput));
    call.self = vector(both, 4, ACL_FLOAT);
    call.gradInput = aclCreateTensor(&shape, 1, ACL_FLOAT, NULL, offset, ACL_FORMAT_ND, &storage, 1, both);
    elu_plan(&call);
    IGNORE(aclnnEluBackward(call.workspace, call.size, call.executor, stream));
    MUST(aclrtSynchronizeStream(stream));
    elu_end(&call);
    MUST(aclrtFree(both));
    finish(stream);
}
