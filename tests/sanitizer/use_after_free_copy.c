/* use-after-free: results are copied from memory that is gone. */
#include "program.h"


static void copied_back(bool late)
{
    float values[4] = {1, 2, 3, 4};
    aclrtStream stream = begin();
    void *data = device_copy(values, sizeof values);
    if (late) MUST(aclrtFree(data));
    IGNORE(aclrtMemcpy(values, sizeof values, data, sizeof values, ACL_MEMCPY_DEVICE_TO_HOST));
    if (!late) MUST(aclrtFree(data));
    finish(stream);
}

void faulty(void)
{
    copied_back(true);
}

void sound(void)
{
    copied_back(false);
}
