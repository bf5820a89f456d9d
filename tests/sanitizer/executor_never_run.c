/* executor-never-run: nothing releases an executor that phase two does not get. */
#include "program.h"

void program(bool faulty)
{
    aclrtStream stream = begin();
    Elu call = elu();
    elu_plan(&call);
    if (!faulty) MUST(aclDestroyAclOpExecutor(call.executor));
    elu_end(&call);
    finish(stream);
}
