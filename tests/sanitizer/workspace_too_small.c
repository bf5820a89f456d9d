/* workspace-too-small: the memory is smaller than phase one asked for. */
#include "program.h"

void faulty(void)
{
    aclrtStream stream = begin();
    Elu call = elu();
    MUST(aclrtMalloc(&call.workspace, 64, ACL_MEM_MALLOC_HUGE_FIRST)); /* "enough for everything" */
    elu_run(&call, stream);
    MUST(aclrtSynchronizeStream(stream));
    elu_end(&call);
    finish(stream);
}

void sound(void)
{
    aclrtStream stream = begin();
    Elu call = elu();
    MUST(aclrtMalloc(&call.workspace, 1 << 20, ACL_MEM_MALLOC_HUGE_FIRST));
    elu_run(&call, stream);
    MUST(aclrtSynchronizeStream(stream));
    elu_end(&call);
    finish(stream);
}
