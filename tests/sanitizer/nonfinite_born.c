/* nonfinite-born: the product of two finite numbers is too large for FLOAT. */
#include "program.h"

void program(bool faulty)
{
    float scale = faulty ? 1e9f : 2;
    const float values[4] = {1e30f, 2e30f, 3e30f, 4e30f};
    aclrtStream stream = begin();
    Elu call = elu();
    MUST(aclDestroyScalar(call.one));
    call.one = aclCreateScalar(&scale, ACL_FLOAT);
    for (int i = 0; i < 2; i++) {
        MUST(aclrtMemcpy(call.memory[i], sizeof values, values, sizeof values, ACL_MEMCPY_HOST_TO_DEVICE));
    }
    elu_run(&call, stream);
    MUST(aclrtSynchronizeStream(stream));
    elu_end(&call);
    finish(stream);
}
