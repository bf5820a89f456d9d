/* unordered-write: a pipeline over two buffers, on three streams, that computes before the last result was copied. */
#include "program.h"

enum { LOADED, COMPUTED, STORED, EVENTS };

void program(bool faulty)
{
    static const float values[4] = {1, -2, 3, -4};
    aclrtStream compute = begin(), up = NULL, down = NULL;
    aclrtEvent events[2][EVENTS];
    void *host[2] = {NULL, NULL};
    Elu calls[2] = {elu(), elu()};
    MUST(aclrtCreateStream(&up));
    MUST(aclrtCreateStream(&down));
    for (int i = 0; i < 2; i++) {
        MUST(aclrtMallocHost(&host[i], sizeof values));
        for (int j = 0; j < EVENTS; j++) MUST(aclrtCreateEventWithFlag(&events[i][j], ACL_EVENT_SYNC));
    }
    for (int step = 0; step < 6; step++) {
        Elu *call = &calls[step % 2];
        aclrtEvent *event = events[step % 2];
        if (step >= 2) MUST(aclrtStreamWaitEvent(up, event[COMPUTED]));
        MUST(aclrtMemcpyAsync(call->memory[0], sizeof values, values, sizeof values, ACL_MEMCPY_HOST_TO_DEVICE, up));
        MUST(aclrtRecordEvent(event[LOADED], up));
        MUST(aclrtStreamWaitEvent(compute, event[LOADED]));
        if (step >= 2 && !faulty) MUST(aclrtStreamWaitEvent(compute, event[STORED]));
        elu_run(call, compute);
        MUST(aclrtRecordEvent(event[COMPUTED], compute));
        MUST(aclrtStreamWaitEvent(down, event[COMPUTED]));
        MUST(aclrtMemcpyAsync(host[step % 2], sizeof values, call->memory[2], sizeof values, ACL_MEMCPY_DEVICE_TO_HOST, down));
        MUST(aclrtRecordEvent(event[STORED], down));
    }
    MUST(aclrtSynchronizeDevice());
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < EVENTS; j++) MUST(aclrtDestroyEvent(events[i][j]));
        MUST(aclrtFreeHost(host[i]));
        elu_end(&calls[i]);
    }
    MUST(aclrtDestroyStream(up));
    MUST(aclrtDestroyStream(down));
    finish(compute);
}
