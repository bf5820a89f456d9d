/* unordered-read: results are copied before the stream was synchronised. */
#include "program.h"


static void copied(bool early)
{
    float values[4];
    aclrtStream stream = begin();
    Elu call = elu();
    elu_run(&call, stream);
    if (!early) MUST(aclrtSynchronizeStream(stream));
    MUST(aclrtMemcpy(values, sizeof values, call.memory[2], sizeof values, ACL_MEMCPY_DEVICE_TO_HOST));
    MUST(aclrtSynchronizeStream(stream));
    elu_end(&call);
    finish(stream);
}

void faulty(void)
{
    copied(true);
}

void sound(void)
{
    copied(false);
}
