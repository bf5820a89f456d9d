/* leak: a repeatable executor ends when it is destroyed. */
#include "program.h"

void program(bool faulty)
{
    aclrtStream stream = begin();
    Elu call = elu();
    elu_plan(&call);
    MUST(aclSetAclOpExecutorRepeatable(call.executor));
    for (int i = 0; i < 3; i++) MUST(aclnnEluBackward(call.workspace, call.size, call.executor, stream));
    MUST(aclrtSynchronizeStream(stream));
    if (!faulty) MUST(aclDestroyAclOpExecutor(call.executor));
    elu_end(&call);
    finish(stream);
}
