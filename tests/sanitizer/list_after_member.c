/* double-destroy: a list whose tensor was destroyed before destroys it again. */
#include "program.h"

void faulty(void)
{
    aclrtStream stream = begin();
    const aclTensor *tensor = vector(NULL, 0, ACL_FLOAT);
    aclTensorList *list = aclCreateTensorList(&tensor, 1);
    MUST(aclDestroyTensor(tensor));
    IGNORE(aclDestroyTensorList(list));
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
