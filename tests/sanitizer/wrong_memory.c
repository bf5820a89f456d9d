/* wrong-memory: a tensor over memory of the host. */
#include "program.h"

void program(bool faulty)
{
    static float values[4] = {1, 2, 3, 4};
    aclrtStream stream = begin();
    Elu call = elu();
    MUST(aclDestroyTensor(call.self));
    call.self = vector(faulty ? (void *)values : call.memory[1], 4, ACL_FLOAT);
    if (faulty) {
        IGNORE(aclnnEluBackwardGetWorkspaceSize(call.gradOutput, call.one, call.one, call.one, false, call.self,
                                                call.gradInput, &call.size, &call.executor));
    } else {
        elu_run(&call, stream);
        MUST(aclrtSynchronizeStream(stream));
    }
    elu_end(&call);
    finish(stream);
}
