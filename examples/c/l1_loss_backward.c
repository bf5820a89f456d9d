/* aclnnL1LossBackward in C: broadcasting with a 0-d gradient, and descriptors that end before the work does.
 *
 *   cc l1_loss_backward.c $(openaclnn-config --cflags --libs) -o l1_loss_backward && ./l1_loss_backward */
#include "aclnnop/aclnn_l1_loss_backward.h"
#include "support.h"

int main(void)
{
    const int64_t column[2] = {2, 1}, row[2] = {1, 3}, full[2] = {2, 3};
    const float gradient[1] = {6}, inputs[2] = {1, 4}, targets[3] = {2, 4, 0}, zeros[6] = {0};
    const int64_t none = 0, mean = 1;
    const int64_t reductions[2] = {none, mean};
    const char *const names[2] = {"none", "mean"};
    uint64_t size = 0;
    aclOpExecutor *executor = NULL;

    aclrtStream stream = start();
    void *gradientData = to_device(gradient, sizeof gradient);
    aclTensor *self = tensor(inputs, sizeof inputs, ACL_FLOAT, column, 2);
    aclTensor *target = tensor(targets, sizeof targets, ACL_FLOAT, row, 2);
    aclTensor *gradInput = tensor(zeros, sizeof zeros, ACL_FLOAT, full, 2);
    for (int i = 0; i < 2; i++) {
        /* Null dimensions with a count of 0: one element. */
        aclTensor *gradOutput =
            aclCreateTensor(NULL, 0, ACL_FLOAT, NULL, 0, ACL_FORMAT_ND, NULL, 0, gradientData);
        CHECK(aclnnL1LossBackwardGetWorkspaceSize(
            gradOutput, self, target, reductions[i], gradInput, &size, &executor));
        CHECK(aclnnL1LossBackward(workspace_of(size), size, executor, stream));
        CHECK(aclDestroyTensor(gradOutput)); /* phase two has taken what it needs */
        CHECK(aclrtSynchronizeStream(stream));
        print_floats(names[i], gradInput, 6);
    }
    CHECK(aclrtFree(gradientData));
    release(self);
    release(target);
    release(gradInput);
    finish(stream);
    return 0;
}
