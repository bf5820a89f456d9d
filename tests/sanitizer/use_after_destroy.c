/* use-after-destroy: an event is recorded that is not there any more. */
#include "program.h"

void faulty(void)
{
    aclrtStream stream = begin();
    aclrtEvent event = NULL;
    MUST(aclrtCreateEvent(&event));
    MUST(aclrtDestroyEvent(event));
    IGNORE(aclrtRecordEvent(event, stream));
    finish(stream);
}

void sound(void)
{
    aclrtStream stream = begin();
    aclrtEvent event = NULL;
    MUST(aclrtCreateEvent(&event));
    MUST(aclrtRecordEvent(event, stream));
    MUST(aclrtDestroyEvent(event));
    finish(stream);
}
