/* unordered-write: two streams are given one workspace. */
#include "program.h"

void program(bool faulty)
{
    aclrtStream stream = begin(), second = NULL;
    Elu calls[2] = {elu(), elu()};
    MUST(aclrtCreateStream(&second));
    elu_run(&calls[0], stream);
    if (faulty) calls[1].workspace = calls[0].workspace;
    elu_run(&calls[1], second);
    MUST(aclrtSynchronizeDevice());
    if (faulty) calls[1].workspace = NULL;
    for (int i = 0; i < 2; i++) elu_end(&calls[i]);
    MUST(aclrtDestroyStream(second));
    finish(stream);
}
