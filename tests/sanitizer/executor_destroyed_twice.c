/* double-destroy: phase two has released the executor already. */
#include "program.h"

void program(bool faulty)
{
    aclrtStream stream = begin();
    Elu call = elu();
    elu_plan(&call);
    if (!faulty) MUST(aclSetAclOpExecutorRepeatable(call.executor));
    MUST(aclnnEluBackward(call.workspace, call.size, call.executor, stream));
    SHOULD(aclDestroyAclOpExecutor(call.executor));
    MUST(aclrtSynchronizeStream(stream));
    elu_end(&call);
    finish(stream);
}
