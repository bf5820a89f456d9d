/* failed-result-used: phase one was refused, and phase two gets what it left in the variable. */
#include "program.h"

void faulty(void)
{
    aclrtStream stream = begin();
    Elu call = elu();
    IGNORE(aclnnEluBackwardGetWorkspaceSize(call.gradOutput, NULL, call.one, call.one, false, call.self,
                                            call.gradInput, &call.size, &call.executor));
    IGNORE(aclnnEluBackward(call.workspace, call.size, call.executor, stream));
    elu_end(&call);
    finish(stream);
}

void sound(void)
{
    aclrtStream stream = begin();
    Elu call = elu();
    if (aclnnEluBackwardGetWorkspaceSize(call.gradOutput, NULL, call.one, call.one, false, call.self,
                                         call.gradInput, &call.size, &call.executor) == 0) {
        exit(1);
    }
    elu_run(&call, stream);
    MUST(aclrtSynchronizeStream(stream));
    elu_end(&call);
    finish(stream);
}
