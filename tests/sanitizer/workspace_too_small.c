/* workspace-too-small: the memory is smaller than phase one asked for. */
#include "program.h"

void program(bool faulty)
{
    aclrtStream stream = begin();
    Elu call = elu();
    MUST(aclrtMalloc(&call.workspace, faulty ? 64 : 1 << 20, ACL_MEM_MALLOC_HUGE_FIRST)); /* "enough for everything" */
    elu_run(&call, stream);
    MUST(aclrtSynchronizeStream(stream));
    elu_end(&call);
    finish(stream);
}
