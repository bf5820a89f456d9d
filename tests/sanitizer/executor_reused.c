/* executor-reused: phase two releases an executor that is not repeatable. */
#include "program.h"

void faulty(void)
{
    aclrtStream stream = begin();
    Elu call = elu();
    aclOpExecutor *executor = elu_executor(call);
    MUST(aclnnEluBackward(NULL, 0, executor, stream));
    IGNORE(aclnnEluBackward(NULL, 0, executor, stream));
    MUST(aclrtSynchronizeStream(stream));
    elu_end(call);
    finish(stream);
}

void sound(void)
{
    aclrtStream stream = begin();
    Elu call = elu();
    MUST(aclnnEluBackward(NULL, 0, elu_executor(call), stream));
    MUST(aclnnEluBackward(NULL, 0, elu_executor(call), stream));
    MUST(aclrtSynchronizeStream(stream));
    elu_end(call);
    finish(stream);
}
