/* unordered-read: nobody looks whether the event is complete; the sound one asks until it is. */
#include "program.h"

void program(bool faulty)
{
    float values[4];
    aclrtStream stream = begin();
    aclrtEvent event = NULL;
    Elu call = elu();
    MUST(aclrtCreateEventExWithFlag(&event, ACL_EVENT_SYNC));
    elu_run(&call, stream);
    MUST(aclrtRecordEvent(event, stream));
    aclrtEventRecordedStatus status = faulty ? ACL_EVENT_RECORDED_STATUS_COMPLETE : ACL_EVENT_RECORDED_STATUS_NOT_READY;
    while (status == ACL_EVENT_RECORDED_STATUS_NOT_READY) MUST(aclrtQueryEventStatus(event, &status));
    MUST(aclrtMemcpy(values, sizeof values, call.memory[2], sizeof values, ACL_MEMCPY_DEVICE_TO_HOST));
    MUST(aclrtSynchronizeEvent(event));
    MUST(aclrtDestroyEvent(event));
    elu_end(&call);
    finish(stream);
}
