/* use-after-destroy: descriptors live until phase two has returned. */
#include "program.h"

void program(bool faulty)
{
    aclrtStream stream = begin();
    Elu call = elu();
    elu_plan(&call);
    if (!faulty) MUST(aclnnEluBackward(call.workspace, call.size, call.executor, stream));
    MUST(aclDestroyTensor(call.self));
    if (faulty) IGNORE(aclnnEluBackward(call.workspace, call.size, call.executor, stream));
    MUST(aclrtSynchronizeStream(stream));
    call.self = NULL;
    elu_end(&call);
    finish(stream);
}
