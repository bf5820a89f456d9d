/* free-in-use: the workspace is freed before the stream was synchronised. */
#include "program.h"

void program(bool faulty)
{
    aclrtStream stream = begin();
    Elu call = elu();
    elu_run(&call, stream);
    if (!faulty) MUST(aclrtSynchronizeStream(stream));
    MUST(aclrtFree(call.workspace));
    call.workspace = NULL;
    MUST(aclrtSynchronizeStream(stream));
    elu_end(&call);
    finish(stream);
}
