/* unknown-handle: a pointer to memory is no stream. */
#include "program.h"

void program(bool faulty)
{
    aclrtStream stream = begin();
    int32_t number = 0;
    SHOULD(aclrtSynchronizeStream(faulty ? &number : NULL)); /* NULL is the default stream */
    finish(stream);
}
