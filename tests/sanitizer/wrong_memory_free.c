/* wrong-memory: page-locked memory of the host is freed as memory of the device. */
#include "program.h"


static void freed_by(aclError (*release)(void *))
{
    aclrtStream stream = begin();
    void *data = NULL;
    MUST(aclrtMallocHost(&data, 64));
    IGNORE(release(data));
    if (release != aclrtFreeHost) MUST(aclrtFreeHost(data));
    finish(stream);
}

void faulty(void)
{
    freed_by(aclrtFree);
}

void sound(void)
{
    freed_by(aclrtFreeHost);
}
