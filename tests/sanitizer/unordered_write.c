/* unordered-write: an input is overwritten before the stream that reads it was synchronised. */
#include "program.h"

void program(bool faulty)
{
    const float values[4] = {4, 3, 2, 1};
    aclrtStream stream = begin();
    Elu call = elu();
    elu_run(&call, stream);
    if (!faulty) MUST(aclrtSynchronizeDevice());
    MUST(aclrtMemcpy(call.memory[1], sizeof values, values, sizeof values, ACL_MEMCPY_HOST_TO_DEVICE));
    MUST(aclrtSynchronizeStream(stream));
    elu_end(&call);
    finish(stream);
}
