/* unordered-read: the streams of one context are synchronised, and another's result is read. */
#include "program.h"

void program(bool faulty)
{
    float values[4];
    aclrtContext first = NULL, second = NULL;
    aclrtStream stream = begin(), other = NULL;
    Elu call = elu();
    MUST(aclrtGetCurrentContext(&first));
    MUST(aclrtCreateContext(&second, 0));
    MUST(aclrtCreateStream(&other));
    elu_run(&call, other);
    if (!faulty) MUST(aclrtSynchronizeDevice());
    MUST(aclrtSetCurrentContext(first));
    MUST(aclrtSynchronizeDevice());
    MUST(aclrtMemcpy(values, sizeof values, call.memory[2], sizeof values, ACL_MEMCPY_DEVICE_TO_HOST));
    MUST(aclrtSetCurrentContext(second));
    MUST(aclrtDestroyStream(other));
    MUST(aclrtDestroyContext(second));
    MUST(aclrtSetCurrentContext(first));
    elu_end(&call);
    finish(stream);
}
