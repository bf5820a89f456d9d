/* failed-result-used: there is no so much memory, and the tensor looks at null. */
#include "program.h"

static Elu without(size_t size)
{
    Elu call = elu();
    void *data = NULL;
    IGNORE(aclrtMalloc(&data, size, ACL_MEM_MALLOC_HUGE_FIRST));
    MUST(aclDestroyTensor(call.gradInput));
    call.gradInput = vector(data, 4, ACL_FLOAT);
    MUST(aclrtFree(call.memory[2]));
    call.memory[2] = data;
    return call;
}

void faulty(void)
{
    aclrtStream stream = begin();
    Elu call = without((size_t)1 << 62);
    elu_plan(&call);
    IGNORE(aclnnEluBackward(call.workspace, call.size, call.executor, stream));
    MUST(aclrtMalloc(&call.memory[2], 64, ACL_MEM_MALLOC_HUGE_FIRST));
    elu_end(&call);
    finish(stream);
}

void sound(void)
{
    aclrtStream stream = begin();
    Elu call = without(16);
    elu_run(&call, stream);
    MUST(aclrtSynchronizeStream(stream));
    elu_end(&call);
    finish(stream);
}
