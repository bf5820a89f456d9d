/* free-in-use: the workspace is freed before the stream was synchronised. */
#include "program.h"


static void workspace_freed(bool early)
{
    aclrtStream stream = begin();
    Elu call = elu();
    elu_run(&call, stream);
    if (!early) MUST(aclrtSynchronizeStream(stream));
    MUST(aclrtFree(call.workspace));
    call.workspace = NULL;
    MUST(aclrtSynchronizeStream(stream));
    elu_end(&call);
    finish(stream);
}

void faulty(void)
{
    workspace_freed(true);
}

void sound(void)
{
    workspace_freed(false);
}
