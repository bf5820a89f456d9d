/* unordered-write: two streams are given one workspace. */
#include "program.h"

static void share(bool apart)
{
    aclrtStream stream = begin(), second = NULL;
    Elu calls[2] = {elu(), elu()};
    MUST(aclrtCreateStream(&second));
    elu_run(&calls[0], stream);
    if (!apart) calls[1].workspace = calls[0].workspace;
    elu_run(&calls[1], second);
    MUST(aclrtSynchronizeDevice());
    if (!apart) calls[1].workspace = NULL;
    for (int i = 0; i < 2; i++) elu_end(&calls[i]);
    MUST(aclrtDestroyStream(second));
    finish(stream);
}

void faulty(void)
{
    share(false);
}

void sound(void)
{
    share(true);
}
