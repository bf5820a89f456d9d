/* wrong-data-type, stale-result: FLOAT data described as FLOAT16: half of the result is what was there before. */
#include "program.h"

void program(bool faulty)
{
    const aclDataType type = faulty ? ACL_FLOAT16 : ACL_FLOAT;
    float values[4] = {0.1f, 0.2f, 0.3f, 0.4f};
    aclrtStream stream = begin();
    Elu call = elu();
    MUST(aclDestroyTensor(call.gradInput));
    MUST(aclrtMemcpy(call.memory[2], sizeof values, values, sizeof values, ACL_MEMCPY_HOST_TO_DEVICE));
    call.gradInput = vector(call.memory[2], 4, type);
    elu_run(&call, stream);
    MUST(aclrtSynchronizeStream(stream));
    MUST(aclrtMemcpy(values, sizeof values, call.memory[2], sizeof values, ACL_MEMCPY_DEVICE_TO_HOST));
    elu_end(&call);
    finish(stream);
}
