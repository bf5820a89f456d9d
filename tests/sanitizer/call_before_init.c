/* call-before-init: the device is set before the runtime is there. */
#include "program.h"

void faulty(void)
{
    IGNORE(aclrtSetDevice(0));
    MUST(aclInit(NULL));
    MUST(aclrtResetDevice(0));
    MUST(aclFinalize());
}

void sound(void)
{
    int32_t major, minor, patch;
    MUST(aclrtGetVersion(&major, &minor, &patch));
    MUST(aclInit(NULL));
    MUST(aclrtSetDevice(0));
    MUST(aclrtResetDevice(0));
    MUST(aclFinalize());
}
