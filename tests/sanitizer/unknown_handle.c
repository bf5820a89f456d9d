/* unknown-handle: a pointer to memory is no stream. */
#include "program.h"

void faulty(void)
{
    aclrtStream stream = begin();
    int32_t number = 0;
    IGNORE(aclrtSynchronizeStream(&number));
    finish(stream);
}

void sound(void)
{
    aclrtStream stream = begin();
    MUST(aclrtSynchronizeStream(NULL)); /* the default stream */
    finish(stream);
}
