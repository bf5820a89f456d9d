/* use-after-free: results are copied from memory that is gone. */
#include "program.h"

void program(bool faulty)
{
    float values[4] = {1, 2, 3, 4};
    aclrtStream stream = begin();
    void *data = device_copy(values, sizeof values);
    if (faulty) MUST(aclrtFree(data));
    IGNORE(aclrtMemcpy(values, sizeof values, data, sizeof values, ACL_MEMCPY_DEVICE_TO_HOST));
    if (!faulty) MUST(aclrtFree(data));
    finish(stream);
}
