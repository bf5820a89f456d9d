/* destroyed-late: a context takes its streams with it. */
#include "program.h"

void program(bool faulty)
{
    aclrtStream stream = begin(), inner = NULL;
    aclrtContext context = NULL, main = NULL;
    MUST(aclrtGetCurrentContext(&main));
    MUST(aclrtCreateContext(&context, 0));
    MUST(aclrtCreateStream(&inner));
    if (!faulty) MUST(aclrtDestroyStream(inner));
    MUST(aclrtDestroyContext(context));
    MUST(aclrtSetCurrentContext(main));
    if (faulty) IGNORE(aclrtDestroyStream(inner));
    finish(stream);
}
