/* call-before-init: the device is set before the runtime is there. */
#include "program.h"

void program(bool faulty)
{
    int32_t major, minor, patch;
    if (faulty) {
        IGNORE(aclrtSetDevice(0));
    } else {
        MUST(aclrtGetVersion(&major, &minor, &patch));
    }
    MUST(aclInit(NULL));
    if (!faulty) MUST(aclrtSetDevice(0));
    MUST(aclrtResetDevice(0));
    MUST(aclFinalize());
}
