/* destroyed-late: the reset of the device takes its memory away. */
#include "program.h"

void faulty(void)
{
    aclrtStream stream = begin();
    void *data = NULL;
    MUST(aclrtMalloc(&data, 64, ACL_MEM_MALLOC_HUGE_FIRST));
    MUST(aclrtDestroyStream(stream));
    MUST(aclrtResetDevice(0));
    IGNORE(aclrtFree(data));
    MUST(aclFinalize());
}

void sound(void)
{
    aclrtStream stream = begin();
    void *data = NULL;
    MUST(aclrtMalloc(&data, 64, ACL_MEM_MALLOC_HUGE_FIRST));
    MUST(aclrtFree(data));
    finish(stream);
}
