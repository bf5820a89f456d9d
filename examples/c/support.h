/* What the examples share: stop at the first failure and say why; device tensors from host values. */
#ifndef EXAMPLES_SUPPORT_H
#define EXAMPLES_SUPPORT_H

#include <stdio.h>
#include <stdlib.h>

#include "acl/acl.h"
#include "aclnn/acl_meta.h"

#define CHECK(call)                                                                              \
    do {                                                                                         \
        int32_t code_ = (call);                                                                  \
        if (code_ != 0) {                                                                        \
            const char *text_ = aclGetRecentErrMsg();                                            \
            fprintf(stderr, "%s gives %d\n%s\n", #call, (int)code_, text_ != NULL ? text_ : ""); \
            exit(1);                                                                             \
        }                                                                                        \
    } while (0)

static inline aclrtStream start(void)
{
    aclrtStream stream = NULL;
    CHECK(aclInit(NULL));
    CHECK(aclrtSetDevice(0));
    CHECK(aclrtCreateStream(&stream));
    return stream;
}

static void *workspaces[8];
static size_t workspaceCount;

/* Workspace for phase two, null where none is needed; finish frees it. */
static inline void *workspace_of(uint64_t size)
{
    void *data = NULL;
    if (size > 0) {
        CHECK(workspaceCount < sizeof workspaces / sizeof *workspaces ? ACL_SUCCESS : ACL_ERROR_BAD_ALLOC);
        CHECK(aclrtMalloc(&data, size, ACL_MEM_MALLOC_HUGE_FIRST));
        workspaces[workspaceCount++] = data;
    }
    return data;
}

static inline void finish(aclrtStream stream)
{
    CHECK(aclrtDestroyStream(stream));
    while (workspaceCount > 0) {
        CHECK(aclrtFree(workspaces[--workspaceCount]));
    }
    CHECK(aclrtResetDevice(0));
    CHECK(aclFinalize());
}

static inline void *to_device(const void *values, size_t bytes)
{
    void *data = NULL;
    CHECK(aclrtMalloc(&data, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    CHECK(aclrtMemcpy(data, bytes, values, bytes, ACL_MEMCPY_HOST_TO_DEVICE));
    return data;
}

/* A contiguous tensor; its memory is found again with aclGetRawTensorAddr. */
static inline aclTensor *tensor(
    const void *values, size_t bytes, aclDataType type, const int64_t *shape, uint64_t rank)
{
    void *data = to_device(values, bytes);
    aclTensor *made = aclCreateTensor(shape, rank, type, NULL, 0, ACL_FORMAT_ND, shape, rank, data);
    if (made == NULL) {
        CHECK(ACL_ERROR_BAD_ALLOC);
    }
    return made;
}

static inline void print_floats(const char *name, const aclTensor *from, size_t count)
{
    float *values = (float *)malloc(count * sizeof(float));
    void *data = NULL;
    size_t bytes = count * sizeof(float);
    CHECK(aclGetRawTensorAddr(from, &data));
    CHECK(aclrtMemcpy(values, bytes, data, bytes, ACL_MEMCPY_DEVICE_TO_HOST));
    printf("%s:", name);
    for (size_t i = 0; i < count; i++) {
        printf(" %g", (double)values[i]);
    }
    printf("\n");
    free(values);
}

static inline void release(aclTensor *tensor)
{
    void *data = NULL;
    CHECK(aclGetRawTensorAddr(tensor, &data));
    CHECK(aclDestroyTensor(tensor));
    CHECK(aclrtFree(data));
}

#endif
