/* unordered-read: a callback reads results of work behind it, unless the work waits for the callback. */
#include "program.h"
#include <pthread.h>

static void *callback_result;

static void in_callback(void *data)
{
    (void)data;
    float values[4];
    MUST(aclrtMemcpy(values, sizeof values, callback_result, sizeof values, ACL_MEMCPY_DEVICE_TO_HOST));
}

void program(bool faulty)
{
    const aclrtCallbackBlockType block = faulty ? ACL_CALLBACK_NO_BLOCK : ACL_CALLBACK_BLOCK;
    aclrtStream stream = begin();
    Elu call = elu();
    callback_result = call.memory[2];
    MUST(aclrtSubscribeReport((uint64_t)pthread_self(), stream));
    elu_run(&call, stream);
    MUST(aclrtLaunchCallback(in_callback, NULL, block, stream));
    elu_run(&call, stream);
    MUST(aclrtProcessReport(-1));
    MUST(aclrtSynchronizeStream(stream));
    MUST(aclrtUnSubscribeReport((uint64_t)pthread_self(), stream));
    elu_end(&call);
    finish(stream);
}
