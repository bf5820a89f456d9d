/* executor-reused: phase two releases an executor that is not repeatable. */
#include "program.h"

void faulty(void)
{
    aclrtStream stream = begin();
    Elu call = elu();
    elu_run(&call, stream);
    IGNORE(aclnnEluBackward(call.workspace, call.size, call.executor, stream));
    MUST(aclrtSynchronizeStream(stream));
    elu_end(&call);
    finish(stream);
}

void sound(void)
{
    aclrtStream stream = begin();
    Elu call = elu();
    elu_run(&call, stream);
    elu_run(&call, stream);
    MUST(aclrtSynchronizeStream(stream));
    elu_end(&call);
    finish(stream);
}
