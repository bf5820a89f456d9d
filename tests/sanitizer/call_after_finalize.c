/* call-after-finalize: a descriptor is destroyed when the runtime has ended. */
#include "program.h"

void program(bool faulty)
{
    aclrtStream stream = begin();
    aclTensor *tensor = vector(NULL, 0, ACL_FLOAT);
    if (!faulty) MUST(aclDestroyTensor(tensor));
    finish(stream);
    if (faulty) IGNORE(aclDestroyTensor(tensor));
    else IGNORE(aclGetRecentErrMsg());
}
