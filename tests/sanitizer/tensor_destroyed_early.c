/* use-after-destroy: descriptors live until phase two has returned. */
#include "program.h"

void faulty(void)
{
    aclrtStream stream = begin();
    Elu call = elu();
    elu_plan(&call);
    MUST(aclDestroyTensor(call.self));
    IGNORE(aclnnEluBackward(call.workspace, call.size, call.executor, stream));
    MUST(aclrtSynchronizeStream(stream));
    call.self = NULL;
    elu_end(&call);
    finish(stream);
}

void sound(void)
{
    aclrtStream stream = begin();
    Elu call = elu();
    elu_run(&call, stream);
    MUST(aclDestroyTensor(call.self));
    MUST(aclrtSynchronizeStream(stream));
    call.self = NULL;
    elu_end(&call);
    finish(stream);
}
