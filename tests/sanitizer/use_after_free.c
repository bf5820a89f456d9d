/* use-after-free: phase two runs over memory that is gone. */
#include "program.h"

void program(bool faulty)
{
    aclrtStream stream = begin();
    Elu call = elu();
    elu_plan(&call);
    if (faulty) MUST(aclrtFree(call.memory[1]));
    IGNORE(aclnnEluBackward(call.workspace, call.size, call.executor, stream));
    MUST(aclrtSynchronizeStream(stream));
    if (faulty) MUST(aclrtMalloc(&call.memory[1], 16, ACL_MEM_MALLOC_HUGE_FIRST));
    elu_end(&call);
    finish(stream);
}
