/* double-destroy: a list destroys its tensors. */
#include "program.h"

void faulty(void)
{
    aclrtStream stream = begin();
    const aclTensor *tensor = vector(NULL, 0, ACL_FLOAT);
    aclTensorList *list = aclCreateTensorList(&tensor, 1);
    MUST(aclDestroyTensorList(list));
    IGNORE(aclDestroyTensor(tensor));
    finish(stream);
}

void sound(void)
{
    aclrtStream stream = begin();
    const aclTensor *tensor = vector(NULL, 0, ACL_FLOAT);
    aclTensorList *list = aclCreateTensorList(&tensor, 1);
    MUST(aclDestroyTensorList(list));
    finish(stream);
}
