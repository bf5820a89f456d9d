/* double-destroy: phase two has released the executor already. */
#include "program.h"

void faulty(void)
{
    aclrtStream stream = begin();
    Elu call = elu();
    elu_run(&call, stream);
    IGNORE(aclDestroyAclOpExecutor(call.executor));
    MUST(aclrtSynchronizeStream(stream));
    elu_end(&call);
    finish(stream);
}

void sound(void)
{
    aclrtStream stream = begin();
    Elu call = elu();
    elu_plan(&call);
    MUST(aclSetAclOpExecutorRepeatable(call.executor));
    MUST(aclnnEluBackward(call.workspace, call.size, call.executor, stream));
    MUST(aclrtSynchronizeStream(stream));
    MUST(aclDestroyAclOpExecutor(call.executor));
    elu_end(&call);
    finish(stream);
}
