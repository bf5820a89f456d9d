/* executor-reused: phase two releases an executor that is not repeatable. */
#include "program.h"

void program(bool faulty)
{
    aclrtStream stream = begin();
    Elu call = elu();
    elu_run(&call, stream);
    if (!faulty) elu_plan(&call);
    SHOULD(aclnnEluBackward(call.workspace, call.size, call.executor, stream));
    MUST(aclrtSynchronizeStream(stream));
    elu_end(&call);
    finish(stream);
}
