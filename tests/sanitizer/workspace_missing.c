/* workspace-too-small: phase one asked for workspace, and phase two gets none. */
#include "program.h"

void faulty(void)
{
    aclrtStream stream = begin();
    Elu call = elu();
    elu_plan(&call);
    IGNORE(aclnnEluBackward(NULL, 0, call.executor, stream));
    MUST(aclrtSynchronizeStream(stream));
    elu_end(&call);
    finish(stream);
}

void sound(void)
{
    aclrtStream stream = begin();
    Elu call = elu();
    elu_plan(&call);
    MUST(aclnnEluBackward(call.workspace, call.size, call.executor, stream));
    MUST(aclrtSynchronizeStream(stream));
    elu_end(&call);
    finish(stream);
}
