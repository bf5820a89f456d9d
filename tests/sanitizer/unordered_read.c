/* unordered-read: results are copied before the stream was synchronised. */
#include "program.h"

void program(bool faulty)
{
    float values[4];
    aclrtStream stream = begin();
    Elu call = elu();
    elu_run(&call, stream);
    if (!faulty) MUST(aclrtSynchronizeStream(stream));
    MUST(aclrtMemcpy(values, sizeof values, call.memory[2], sizeof values, ACL_MEMCPY_DEVICE_TO_HOST));
    MUST(aclrtSynchronizeStream(stream));
    elu_end(&call);
    finish(stream);
}
