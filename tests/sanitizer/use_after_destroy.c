/* use-after-destroy: an event is recorded that is not there any more. */
#include "program.h"

void program(bool faulty)
{
    aclrtStream stream = begin();
    aclrtEvent event = NULL;
    MUST(aclrtCreateEvent(&event));
    if (!faulty) MUST(aclrtRecordEvent(event, stream));
    MUST(aclrtDestroyEvent(event));
    if (faulty) IGNORE(aclrtRecordEvent(event, stream));
    finish(stream);
}
