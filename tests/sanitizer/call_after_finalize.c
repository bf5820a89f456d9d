/* call-after-finalize: a descriptor is destroyed when the runtime has ended. */
#include "program.h"

void faulty(void)
{
    aclrtStream stream = begin();
    aclTensor *tensor = vector(NULL, 0, ACL_FLOAT);
    finish(stream);
    IGNORE(aclDestroyTensor(tensor));
}

void sound(void)
{
    aclrtStream stream = begin();
    aclTensor *tensor = vector(NULL, 0, ACL_FLOAT);
    MUST(aclDestroyTensor(tensor));
    finish(stream);
    IGNORE(aclGetRecentErrMsg());
}
