/* executor-never-run: nothing releases an executor that phase two does not get. */
#include "program.h"

void faulty(void)
{
    aclrtStream stream = begin();
    Elu call = elu();
    elu_plan(&call);
    elu_end(&call);
    finish(stream);
}

void sound(void)
{
    aclrtStream stream = begin();
    Elu call = elu();
    elu_plan(&call);
    MUST(aclDestroyAclOpExecutor(call.executor));
    elu_end(&call);
    finish(stream);
}
