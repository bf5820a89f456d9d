/* Ten mistakes on purpose, and what the program is told about each. None of them ends it.
 *
 *   cc ten_mistakes.c $(openaclnn-config --cflags --libs) -o ten_mistakes && ./ten_mistakes */
#include <string.h>

#include "aclnnop/aclnn_elu_backward.h"
#include "support.h"

static void told(int number, int32_t code)
{
    const char *text = aclGetRecentErrMsg();
    const char *from = text != NULL ? strstr(text, "): ") : NULL; /* what follows pid, time and class */
    printf("%2d  %d  %s\n", number, (int)code, from != NULL ? from + 3 : "no message");
}

int main(void)
{
    const int64_t shape[2] = {2, 2}, other[1] = {4};
    const float values[4] = {0, 1, 2, 3};
    const char page[4096] = {0};
    float oneValue = 1;
    uint64_t size = 0;
    void *data = NULL;
    aclOpExecutor *executor = NULL;

    aclrtStream stream = start();
    aclTensor *gradOutput = tensor(values, sizeof values, ACL_FLOAT, shape, 2);
    aclTensor *self = tensor(values, sizeof values, ACL_FLOAT, shape, 2);
    aclTensor *flat = tensor(values, sizeof values, ACL_FLOAT, other, 1);
    aclTensor *gradInput = tensor(values, sizeof values, ACL_FLOAT, shape, 2);
    aclScalar *one = aclCreateScalar(&oneValue, ACL_FLOAT);
    const aclTensor *random = (const aclTensor *)(uintptr_t)0x123456789abcdef0u;

    told(1, aclrtMalloc(NULL, 64, ACL_MEM_MALLOC_HUGE_FIRST));
    told(2, aclrtMalloc(&data, SIZE_MAX, ACL_MEM_MALLOC_HUGE_FIRST));
    CHECK(aclrtMalloc(&data, 64, ACL_MEM_MALLOC_HUGE_FIRST));
    told(3, aclrtMemcpy(data, 4096, page, 4096, ACL_MEMCPY_HOST_TO_DEVICE));
    CHECK(aclrtFree(data));
    told(4, aclrtFree(data));
    told(5, aclnnEluBackwardGetWorkspaceSize(
                gradOutput, one, one, NULL, true, self, gradInput, &size, &executor));
    told(6, aclnnEluBackwardGetWorkspaceSize(
                gradOutput, one, one, one, true, flat, gradInput, &size, &executor));
    told(7, aclnnEluBackwardGetWorkspaceSize(
                random, one, one, one, true, self, gradInput, &size, &executor));
    CHECK(aclnnEluBackwardGetWorkspaceSize(
        gradOutput, one, one, one, true, self, gradInput, &size, &executor));
    CHECK(aclnnEluBackward(NULL, 0, executor, stream));
    told(8, aclnnEluBackward(NULL, 0, executor, stream));
    CHECK(aclDestroyTensor(flat));
    told(9, aclDestroyTensor(flat));
    CHECK(aclrtDestroyStream(stream));
    told(10, aclrtSynchronizeStream(stream));
    printf("still here\n");
    return 0;
}
