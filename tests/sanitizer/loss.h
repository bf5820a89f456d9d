/* A call of aclnnCrossEntropyLossGrad over two rows of three classes. */
#pragma once
#include "aclnnop/aclnn_cross_entropy_loss_grad.h"
#include "program.h"

typedef struct {
    aclDataType type, target;      /* of gradLoss, logProb and out; of target */
    float weights[3];
    int64_t targets[2];
    size_t targetBytes;            /* that are copied */
    double labelSmoothing, scale;
} Loss;

static const Loss SOUND_LOSS = {ACL_FLOAT, ACL_INT64, {1, 1, 1}, {0, 2}, 16, 0, 0};

static inline void loss_run(Loss loss)
{
    float gradient = 0.1f, logProb[6] = {-0.2f, -0.3f, -0.4f, -0.5f, -0.6f, -0.7f}, out[6] = {-0.0091f, 0.0409f, 0.0409f, 1, 2, 3};
    const int64_t matrix[2] = {2, 3};
    char reduction[] = "mean";
    uint64_t size = 0;
    aclOpExecutor *executor = NULL;
    aclrtStream stream = begin();
    void *memory[6] = {
        device_copy(&gradient, 4), device_copy(logProb, 24), device_copy(loss.targets, loss.targetBytes),
        device_copy(loss.weights, 12), device_copy(out, 24), device_copy(out, 8),
    };
    aclTensor *tensors[6] = {
        aclCreateTensor(NULL, 0, loss.type, NULL, 0, ACL_FORMAT_ND, NULL, 0, memory[0]),
        aclCreateTensor(matrix, 2, loss.type, NULL, 0, ACL_FORMAT_ND, matrix, 2, memory[1]),
        vector(memory[2], 2, loss.target),
        vector(memory[3], 3, ACL_FLOAT),
        aclCreateTensor(matrix, 2, loss.type, NULL, 0, ACL_FORMAT_ND, matrix, 2, memory[4]),
        vector(memory[5], 2, ACL_FLOAT),
    };
    aclTensor *lse = loss.scale != 0 ? tensors[5] : NULL;
    MUST(aclnnCrossEntropyLossGradGetWorkspaceSize(tensors[0], tensors[1], tensors[2], tensors[3], NULL, lse, reduction, -100,
                                                   loss.labelSmoothing, loss.scale, tensors[4], &size, &executor));
    void *workspace = NULL;
    if (size > 0) MUST(aclrtMalloc(&workspace, size, ACL_MEM_MALLOC_HUGE_FIRST));
    MUST(aclnnCrossEntropyLossGrad(workspace, size, executor, stream));
    MUST(aclrtSynchronizeStream(stream));
    MUST(aclrtMemcpy(out, 24, memory[4], 24, ACL_MEMCPY_DEVICE_TO_HOST));
    for (int i = 0; i < 6; i++) {
        MUST(aclDestroyTensor(tensors[i]));
        MUST(aclrtFree(memory[i]));
    }
    if (workspace != NULL) MUST(aclrtFree(workspace));
    finish(stream);
}
