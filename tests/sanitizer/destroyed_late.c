/* destroyed-late: the reset of the device takes the stream away. */
#include "program.h"

void faulty(void)
{
    aclrtStream stream = begin();
    MUST(aclrtResetDevice(0));
    IGNORE(aclrtDestroyStream(stream));
    MUST(aclFinalize());
}

void sound(void)
{
    finish(begin());
}
