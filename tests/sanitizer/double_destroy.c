/* double-destroy: a list destroys its tensors. */
#include "program.h"

void program(bool faulty)
{
    aclrtStream stream = begin();
    const aclTensor *tensor = vector(NULL, 0, ACL_FLOAT);
    aclTensorList *list = aclCreateTensorList(&tensor, 1);
    MUST(aclDestroyTensorList(list));
    if (faulty) IGNORE(aclDestroyTensor(tensor));
    finish(stream);
}
