/* wrong-memory: page-locked memory of the host is freed as memory of the device. */
#include "program.h"

void program(bool faulty)
{
    aclError (*release)(void *) = faulty ? aclrtFree : aclrtFreeHost;
    aclrtStream stream = begin();
    void *data = NULL;
    MUST(aclrtMallocHost(&data, 64));
    IGNORE(release(data));
    if (release != aclrtFreeHost) MUST(aclrtFreeHost(data));
    finish(stream);
}
