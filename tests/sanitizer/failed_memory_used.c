/* failed-result-used: there is no so much memory, and the tensor looks at null. */
#include "program.h"

void program(bool faulty)
{
    aclrtStream stream = begin();
    Elu call = elu();
    MUST(aclDestroyTensor(call.gradInput));
    MUST(aclrtFree(call.memory[2]));
    call.memory[2] = NULL;
    SHOULD(aclrtMalloc(&call.memory[2], faulty ? (size_t)1 << 62 : 16, ACL_MEM_MALLOC_HUGE_FIRST));
    call.gradInput = vector(call.memory[2], 4, ACL_FLOAT);
    elu_plan(&call);
    SHOULD(aclnnEluBackward(call.workspace, call.size, call.executor, stream));
    MUST(aclrtSynchronizeStream(stream));
    if (faulty) MUST(aclrtMalloc(&call.memory[2], 64, ACL_MEM_MALLOC_HUGE_FIRST));
    elu_end(&call);
    finish(stream);
}
