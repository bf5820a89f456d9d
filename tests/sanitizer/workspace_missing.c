/* workspace-too-small: phase one asked for workspace, and phase two gets none. */
#include "program.h"

void program(bool faulty)
{
    aclrtStream stream = begin();
    Elu call = elu();
    elu_plan(&call);
    SHOULD(aclnnEluBackward(faulty ? NULL : call.workspace, faulty ? 0 : call.size, call.executor, stream));
    MUST(aclrtSynchronizeStream(stream));
    elu_end(&call);
    finish(stream);
}
