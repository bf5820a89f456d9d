/* overlapping-output: every element of the output has the same memory. */
#include "program.h"

void program(bool faulty)
{
    const int64_t stride = faulty ? 0 : 1;
    const int64_t shape = 4;
    aclrtStream stream = begin();
    Elu call = elu();
    MUST(aclDestroyTensor(call.gradInput));
    call.gradInput = aclCreateTensor(&shape, 1, ACL_FLOAT, &stride, 0, ACL_FORMAT_ND, &shape, 1, call.memory[2]);
    if (stride == 0) {
        IGNORE(aclnnEluBackwardGetWorkspaceSize(call.gradOutput, call.one, call.one, call.one, false, call.self,
                                                call.gradInput, &call.size, &call.executor));
    } else {
        elu_run(&call, stream);
        MUST(aclrtSynchronizeStream(stream));
    }
    elu_end(&call);
    finish(stream);
}
