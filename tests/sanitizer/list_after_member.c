/* double-destroy: a list whose tensor was destroyed before destroys it again. */
#include "program.h"

void program(bool faulty)
{
    aclrtStream stream = begin();
    const aclTensor *tensor = vector(NULL, 0, ACL_FLOAT);
    aclTensorList *list = aclCreateTensorList(&tensor, 1);
    if (faulty) MUST(aclDestroyTensor(tensor));
    SHOULD(aclDestroyTensorList(list));
    finish(stream);
}
