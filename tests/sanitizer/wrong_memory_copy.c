/* wrong-memory: a copy from the host whose source is on the device. */
#include "program.h"


static void copy_as(aclrtMemcpyKind kind)
{
    const float values[4] = {1, 2, 3, 4};
    aclrtStream stream = begin();
    void *from = device_copy(values, sizeof values), *to = device_copy(values, sizeof values);
    IGNORE(aclrtMemcpy(to, sizeof values, from, sizeof values, kind));
    MUST(aclrtFree(from));
    MUST(aclrtFree(to));
    finish(stream);
}

void faulty(void)
{
    copy_as(ACL_MEMCPY_HOST_TO_DEVICE);
}

void sound(void)
{
    copy_as(ACL_MEMCPY_DEVICE_TO_DEVICE);
}
