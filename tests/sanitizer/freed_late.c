/* destroyed-late: the reset of the device takes its memory away. */
#include "program.h"

void program(bool faulty)
{
    aclrtStream stream = begin();
    void *data = NULL;
    MUST(aclrtMalloc(&data, 64, ACL_MEM_MALLOC_HUGE_FIRST));
    if (!faulty) MUST(aclrtFree(data));
    MUST(aclrtDestroyStream(stream));
    MUST(aclrtResetDevice(0));
    if (faulty) IGNORE(aclrtFree(data));
    MUST(aclFinalize());
}
