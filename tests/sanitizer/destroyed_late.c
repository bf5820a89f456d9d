/* destroyed-late: the reset of the device takes the stream away. */
#include "program.h"

void program(bool faulty)
{
    aclrtStream stream = begin();
    if (!faulty) MUST(aclrtDestroyStream(stream));
    MUST(aclrtResetDevice(0));
    if (faulty) IGNORE(aclrtDestroyStream(stream));
    MUST(aclFinalize());
}
