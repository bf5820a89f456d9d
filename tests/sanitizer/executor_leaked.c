/* leak: a repeatable executor ends when it is destroyed. */
#include "program.h"

static void many_runs(Elu *call, aclrtStream stream)
{
    elu_plan(call);
    MUST(aclSetAclOpExecutorRepeatable(call->executor));
    for (int i = 0; i < 3; i++) MUST(aclnnEluBackward(call->workspace, call->size, call->executor, stream));
    MUST(aclrtSynchronizeStream(stream));
}

void faulty(void)
{
    aclrtStream stream = begin();
    Elu call = elu();
    many_runs(&call, stream);
    elu_end(&call);
    finish(stream);
}

void sound(void)
{
    aclrtStream stream = begin();
    Elu call = elu();
    many_runs(&call, stream);
    MUST(aclDestroyAclOpExecutor(call.executor));
    elu_end(&call);
    finish(stream);
}
