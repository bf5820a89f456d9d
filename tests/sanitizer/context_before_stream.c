/* destroyed-late: a context takes its streams with it. */
#include "program.h"

void faulty(void)
{
    aclrtStream stream = begin(), inner = NULL;
    aclrtContext context = NULL, main = NULL;
    MUST(aclrtGetCurrentContext(&main));
    MUST(aclrtCreateContext(&context, 0));
    MUST(aclrtCreateStream(&inner));
    MUST(aclrtDestroyContext(context));
    MUST(aclrtSetCurrentContext(main));
    IGNORE(aclrtDestroyStream(inner));
    finish(stream);
}

void sound(void)
{
    aclrtStream stream = begin(), inner = NULL;
    aclrtContext context = NULL, main = NULL;
    MUST(aclrtGetCurrentContext(&main));
    MUST(aclrtCreateContext(&context, 0));
    MUST(aclrtCreateStream(&inner));
    MUST(aclrtDestroyStream(inner));
    MUST(aclrtDestroyContext(context));
    MUST(aclrtSetCurrentContext(main));
    finish(stream);
}
