/* misaligned-address: a view that begins later has an offset, its address stays aligned. */
#include "program.h"


static void second_of_five(size_t bytes, int64_t offset)
{
    const float values[5] = {1, 2, 3, 4, 5};
    const int64_t shape = 4, storage = 5;
    aclrtStream stream = begin();
    Elu call = elu();
    MUST(aclDestroyTensor(call.self));
    MUST(aclrtFree(call.memory[1]));
    call.memory[1] = device_copy(values, sizeof values);
    call.self = aclCreateTensor(&shape, 1, ACL_FLOAT, NULL, offset, ACL_FORMAT_ND, &storage, 1, (char *)call.memory[1] + bytes);
    elu_run(&call, stream);
    MUST(aclrtSynchronizeStream(stream));
    elu_end(&call);
    finish(stream);
}

void faulty(void)
{
    second_of_five(4, 0);
}

void sound(void)
{
    second_of_five(0, 1);
}
