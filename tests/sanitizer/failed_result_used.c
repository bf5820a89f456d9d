/* failed-result-used: phase one was refused, and phase two gets what it left in the variable. */
#include "program.h"

void program(bool faulty)
{
    aclrtStream stream = begin();
    Elu call = elu();
    if (aclnnEluBackwardGetWorkspaceSize(call.gradOutput, NULL, call.one, call.one, false, call.self,
                                         call.gradInput, &call.size, &call.executor) == 0) {
        exit(1);
    }
    if (!faulty) elu_plan(&call);
    SHOULD(aclnnEluBackward(call.workspace, call.size, call.executor, stream));
    MUST(aclrtSynchronizeStream(stream));
    elu_end(&call);
    finish(stream);
}
