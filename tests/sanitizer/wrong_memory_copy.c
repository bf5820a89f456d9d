/* wrong-memory: a copy from the host whose source is on the device. */
#include "program.h"

void program(bool faulty)
{
    const aclrtMemcpyKind kind = faulty ? ACL_MEMCPY_HOST_TO_DEVICE : ACL_MEMCPY_DEVICE_TO_DEVICE;
    const float values[4] = {1, 2, 3, 4};
    aclrtStream stream = begin();
    void *from = device_copy(values, sizeof values), *to = device_copy(values, sizeof values);
    IGNORE(aclrtMemcpy(to, sizeof values, from, sizeof values, kind));
    MUST(aclrtFree(from));
    MUST(aclrtFree(to));
    finish(stream);
}
