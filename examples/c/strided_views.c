/* Strided views: a transposed input, and an output that is every second element of its memory.
 *
 *   cc strided_views.c $(openaclnn-config --cflags --libs) -o strided_views && ./strided_views */
#include "aclnnop/aclnn_l1_loss_backward.h"
#include "support.h"

int main(void)
{
    const int64_t view[2] = {2, 3}, storage[2] = {3, 2}, sparse[1] = {13};
    const int64_t transposed[2] = {1, 2}, every_second[2] = {6, 2};
    const float gradient[6] = {1, 2, 3, 4, 5, 6}; /* read as {1, 3, 5}, {2, 4, 6} */
    const float inputs[6] = {1, 1, 1, 1, 1, 1}, targets[6] = {0, 0, 0, 2, 2, 2};
    float memory[13];
    uint64_t size = 0, rank = 0;
    int64_t *strides = NULL;
    aclOpExecutor *executor = NULL;

    for (int i = 0; i < 13; i++) memory[i] = -7;
    aclrtStream stream = start();
    void *gradientData = to_device(gradient, sizeof gradient);
    void *resultData = to_device(memory, sizeof memory);
    aclTensor *gradOutput = aclCreateTensor(
        view, 2, ACL_FLOAT, transposed, 0, ACL_FORMAT_ND, storage, 2, gradientData);
    aclTensor *gradInput = aclCreateTensor(
        view, 2, ACL_FLOAT, every_second, 1, ACL_FORMAT_ND, sparse, 1, resultData);
    aclTensor *self = tensor(inputs, sizeof inputs, ACL_FLOAT, view, 2);
    aclTensor *target = tensor(targets, sizeof targets, ACL_FLOAT, view, 2);

    CHECK(aclnnL1LossBackwardGetWorkspaceSize(
        gradOutput, self, target, 0, gradInput, &size, &executor));
    CHECK(aclnnL1LossBackward(workspace_of(size), size, executor, stream));
    CHECK(aclrtSynchronizeStream(stream));
    print_floats("memory", gradInput, 13);

    CHECK(aclGetViewStrides(gradInput, &strides, &rank));
    printf("strides: %d %d of %d\n", (int)strides[0], (int)strides[1], (int)rank);
    free(strides);
    release(gradOutput);
    release(gradInput);
    release(self);
    release(target);
    finish(stream);
    return 0;
}
