/* A repeatable executor: phase one once, phase two as often as wanted, with other memory each time.
 *
 *   cc repeatable_executor.c $(openaclnn-config --cflags --libs) -o repeatable_executor */
#include "aclnnop/aclnn_smooth_l1_loss_backward.h"
#include "support.h"

int main(void)
{
    const int64_t shape[1] = {3};
    const float ones[3] = {1, 1, 1}, zeros[3] = {0, 0, 0};
    const float batches[3][3] = {{-2, 0.5f, 2}, {0.25f, -0.25f, 0}, {9, -9, 0.75f}};
    void *inputs[3], *results[3];
    float values[3];
    uint64_t size = 0;
    aclOpExecutor *executor = NULL;

    aclrtStream stream = start();
    for (int i = 0; i < 3; i++) {
        inputs[i] = to_device(batches[i], sizeof batches[i]);
        results[i] = to_device(zeros, sizeof zeros);
    }
    aclTensor *gradOut = tensor(ones, sizeof ones, ACL_FLOAT, shape, 1);
    aclTensor *target = tensor(zeros, sizeof zeros, ACL_FLOAT, shape, 1);
    aclTensor *self =
        aclCreateTensor(shape, 1, ACL_FLOAT, NULL, 0, ACL_FORMAT_ND, shape, 1, inputs[0]);
    aclTensor *gradInput =
        aclCreateTensor(shape, 1, ACL_FLOAT, NULL, 0, ACL_FORMAT_ND, shape, 1, results[0]);

    CHECK(aclnnSmoothL1LossBackwardGetWorkspaceSize(
        gradOut, self, target, 0, 1.0f, gradInput, &size, &executor));
    CHECK(aclSetAclOpExecutorRepeatable(executor));
    void *workspace = workspace_of(size);
    for (int i = 0; i < 3; i++) {
        CHECK(aclSetInputTensorAddr(executor, 1, self, inputs[i]));
        CHECK(AclSetOutputTensorAddr(executor, 0, gradInput, results[i])); /* the other spelling */
        CHECK(aclnnSmoothL1LossBackward(workspace, size, executor, stream));
    }
    CHECK(aclrtSynchronizeStream(stream));
    CHECK(aclDestroyAclOpExecutor(executor));

    for (int i = 0; i < 3; i++) {
        CHECK(aclrtMemcpy(values, sizeof values, results[i], sizeof values, ACL_MEMCPY_DEVICE_TO_HOST));
        printf("batch %d: %g %g %g\n", i, (double)values[0], (double)values[1], (double)values[2]);
        CHECK(aclrtFree(inputs[i]));
        CHECK(aclrtFree(results[i]));
    }
    CHECK(aclDestroyTensor(self));
    CHECK(aclDestroyTensor(gradInput));
    release(gradOut);
    release(target);
    finish(stream);
    return 0;
}
