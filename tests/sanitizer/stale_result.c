/* stale-result, stale-result: a FLOAT16 result read as FLOAT from memory that was cleared: half of what is read are zeros that nobody computed. */
#include "program.h"

void program(bool faulty)
{
    float values[4];
    uint16_t narrow[8];
    aclrtStream stream = begin();
    for (int copied = 0; copied < 2; copied++) { /* cleared by a copy of zeros, or on the device */
        Elu call = elu();
        MUST(aclDestroyTensor(call.gradInput));
        if (copied) {
            memset(values, 0, sizeof values);
            MUST(aclrtMemcpy(call.memory[2], sizeof values, values, sizeof values, ACL_MEMCPY_HOST_TO_DEVICE));
        } else {
            MUST(aclrtMemset(call.memory[2], sizeof values, 0, sizeof values));
        }
        call.gradInput = vector(call.memory[2], 4, ACL_FLOAT16);
        elu_run(&call, stream);
        MUST(aclrtSynchronizeStream(stream));
        if (faulty && copied) {
            MUST(aclrtMemcpy(values, sizeof values, call.memory[2], sizeof values, ACL_MEMCPY_DEVICE_TO_HOST));
        } else if (faulty) {
            MUST(aclrtMemcpy(values, sizeof values, call.memory[2], sizeof values, ACL_MEMCPY_DEVICE_TO_HOST));
        } else { /* as many as there are */
            MUST(aclrtMemcpy(narrow, sizeof narrow, call.memory[2], 4 * sizeof *narrow, ACL_MEMCPY_DEVICE_TO_HOST));
        }
        elu_end(&call);
    }
    finish(stream);
}
