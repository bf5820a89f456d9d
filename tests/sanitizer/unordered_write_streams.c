/* unordered-write, unordered-write: two streams write the same result, and use the same workspace. */
#include "program.h"

void program(bool faulty)
{
    aclrtStream stream = begin(), second = NULL;
    aclrtEvent event = NULL;
    Elu call = elu();
    MUST(aclrtCreateStream(&second));
    MUST(aclrtCreateEventWithFlag(&event, ACL_EVENT_SYNC));
    if (!faulty) MUST(aclrtStreamWaitEvent(second, event)); /* for what is recorded only then */
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
