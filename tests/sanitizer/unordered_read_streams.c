/* unordered-read: a second stream reads what the first one writes, and waits for an event that was recorded before that. */
#include "program.h"

void program(bool faulty)
{
    float values[4];
    aclrtStream stream = begin(), second = NULL;
    aclrtEvent event = NULL;
    Elu call = elu();
    MUST(aclrtCreateStream(&second));
    MUST(aclrtCreateEvent(&event));
    if (faulty) MUST(aclrtRecordEvent(event, stream));
    elu_run(&call, stream);
    if (!faulty) MUST(aclrtRecordEvent(event, stream));
    MUST(aclrtStreamWaitEvent(second, event));
    MUST(aclrtMemcpyAsync(values, sizeof values, call.memory[2], sizeof values, ACL_MEMCPY_DEVICE_TO_HOST, second));
    MUST(aclrtSynchronizeStream(second));
    MUST(aclrtSynchronizeStream(stream));
    MUST(aclrtDestroyEvent(event));
    MUST(aclrtDestroyStream(second));
    elu_end(&call);
    finish(stream);
}
