/* unordered-write, unordered-write: two streams write the same result, and use the same workspace. */
#include "program.h"


static void written_twice(bool ordered)
{
    aclrtStream stream = begin(), second = NULL;
    aclrtEvent event = NULL;
    Elu call = elu();
    MUST(aclrtCreateStream(&second));
    MUST(aclrtCreateEventWithFlag(&event, ACL_EVENT_SYNC));
    if (ordered) MUST(aclrtStreamWaitEvent(second, event)); /* for what is recorded only then */
    elu_run(&call, stream);
    MUST(aclrtRecordEvent(event, stream));
    elu_run(&call, second);
    MUST(aclrtSynchronizeStream(second));
    MUST(aclrtSynchronizeStream(stream));
    MUST(aclrtDestroyEvent(event));
    MUST(aclrtDestroyStream(second));
    elu_end(&call);
    finish(stream);
}

void faulty(void)
{
    written_twice(false);
}

void sound(void)
{
    written_twice(true);
}
