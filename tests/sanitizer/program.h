/* What the programs of this folder share. Each file has a program(), which differs by the fault alone from what it is if it is not faulty. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "acl/acl.h"
#include "aclnn/acl_meta.h"
#include "aclnn/aclnn_base.h"
#include "aclnnop/aclnn_elu_backward.h"

/* A refused call ends no program: the faults are those that nobody looks at. */
#define IGNORE(call) ((void)(call))
/* What may be refused where the program is faulty. */
#define SHOULD(call) \
    do { \
        if (faulty) IGNORE(call); \
        else MUST(call); \
    } while (0)
#define MUST(call) \
    do { \
        if ((call) != 0) { \
            printf("%s:%d: %s\n", __FILE__, __LINE__, aclGetRecentErrMsg()); \
            exit(1); \
        } \
    } while (0)

static inline aclrtStream begin(void)
{
    aclrtStream stream = NULL;
    MUST(aclInit(NULL));
    MUST(aclrtSetDevice(0));
    MUST(aclrtCreateStream(&stream));
    return stream;
}

static inline void finish(aclrtStream stream)
{
    MUST(aclrtDestroyStream(stream));
    MUST(aclrtResetDevice(0));
    MUST(aclFinalize());
}

/* Device memory with a copy of `size` bytes in it. */
static inline void *device_copy(const void *values, size_t size)
{
    void *data = NULL;
    MUST(aclrtMalloc(&data, size, ACL_MEM_MALLOC_HUGE_FIRST));
    MUST(aclrtMemcpy(data, size, values, size, ACL_MEMCPY_HOST_TO_DEVICE));
    return data;
}

static inline aclTensor *vector(void *data, int64_t count, aclDataType type)
{
    return aclCreateTensor(&count, 1, type, NULL, 0, ACL_FORMAT_ND, &count, 1, data);
}

/* A call of aclnnEluBackward over four FLOAT numbers. */
typedef struct {
    void *memory[3], *workspace;
    aclTensor *gradOutput, *self, *gradInput;
    aclScalar *one;
    uint64_t size;
    aclOpExecutor *executor;
} Elu;

static inline Elu elu(void)
{
    const float values[4] = {1, -2, 3, -4}, one = 1;
    Elu call = {0};
    for (int i = 0; i < 3; i++) call.memory[i] = device_copy(values, sizeof values);
    call.gradOutput = vector(call.memory[0], 4, ACL_FLOAT);
    call.self = vector(call.memory[1], 4, ACL_FLOAT);
    call.gradInput = vector(call.memory[2], 4, ACL_FLOAT);
    call.one = aclCreateScalar((void *)&one, ACL_FLOAT);
    return call;
}

/* Phase one, and the workspace that it asks for. */
static inline void elu_plan(Elu *call)
{
    MUST(aclnnEluBackwardGetWorkspaceSize(call->gradOutput, call->one, call->one, call->one, false, call->self,
                                          call->gradInput, &call->size, &call->executor));
    if (call->size > 0 && call->workspace == NULL) {
        MUST(aclrtMalloc(&call->workspace, call->size, ACL_MEM_MALLOC_HUGE_FIRST));
    }
}

/* Both phases. */
static inline void elu_run(Elu *call, aclrtStream stream)
{
    elu_plan(call);
    MUST(aclnnEluBackward(call->workspace, call->size, call->executor, stream));
}

static inline void elu_end(Elu *call)
{
    MUST(aclDestroyTensor(call->gradOutput));
    MUST(aclDestroyTensor(call->self));
    MUST(aclDestroyTensor(call->gradInput));
    MUST(aclDestroyScalar(call->one));
    for (int i = 0; i < 3; i++) MUST(aclrtFree(call->memory[i]));
    if (call->workspace != NULL) MUST(aclrtFree(call->workspace));
}
