/* executor-of-another-operator: the executor of one operator goes to phase two of another. */
#include "aclnnop/aclnn_elu.h"
#include "program.h"

void program(bool faulty)
{
    aclrtStream stream = begin();
    Elu call = elu();
    elu_plan(&call);
    if (faulty) IGNORE(aclnnElu(call.workspace, call.size, call.executor, stream));
    else MUST(aclnnEluBackward(call.workspace, call.size, call.executor, stream));
    MUST(aclrtSynchronizeStream(stream));
    elu_end(&call);
    finish(stream);
}
