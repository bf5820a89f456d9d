/* out-of-bounds, uninitialised-read: a repeatable executor gets other addresses, of too little memory that nobody filled. */
#include "program.h"

void program(bool faulty)
{
    const size_t bytes = faulty ? 12 : 16;
    aclrtStream stream = begin();
    void *other[2] = {NULL, NULL};
    Elu call = elu();
    MUST(aclrtMalloc(&other[0], 16, ACL_MEM_MALLOC_HUGE_FIRST));
    MUST(aclrtMalloc(&other[1], bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    if (!faulty) MUST(aclrtMemset(other[0], 16, 0, 16));
    elu_plan(&call);
    MUST(aclSetAclOpExecutorRepeatable(call.executor));
    MUST(aclnnEluBackward(call.workspace, call.size, call.executor, stream));
    MUST(aclSetInputTensorAddr(call.executor, 0, call.gradOutput, other[0]));
    MUST(aclSetOutputTensorAddr(call.executor, 0, call.gradInput, other[1]));
    MUST(aclnnEluBackward(call.workspace, call.size, call.executor, stream));
    MUST(aclrtSynchronizeStream(stream));
    MUST(aclDestroyAclOpExecutor(call.executor));
    for (int i = 0; i < 2; i++) MUST(aclrtFree(other[i]));
    elu_end(&call);
    finish(stream);
}
