// aclnnNLLLoss2dBackward in C++: an ignored class, mean over the weights that count.
//
//   g++ nll_loss2d_backward.cpp $(openaclnn-config --cflags --libs) -o nll_loss2d_backward
#include <vector>

#include "aclnnop/aclnn_nll_loss2d_backward.h"
#include "support.h"

int main() {
    const int64_t image[] = {1, 3, 2, 2}, labels[] = {1, 2, 2}, classes[] = {3}, single[] = {1};
    const std::vector<float> inputs(12, 0.0f), weights = {0.5f, 1, 2}, total = {1.5f}, gradient = {3};
    const std::vector<int64_t> targets = {0, 2, 1, 2};

    aclrtStream stream = start();
    aclTensor *gradOutput = tensor(gradient.data(), 4, ACL_FLOAT, single, 1);
    aclTensor *self = tensor(inputs.data(), 48, ACL_FLOAT, image, 4);
    aclTensor *target = tensor(targets.data(), 32, ACL_INT64, labels, 3);
    aclTensor *weight = tensor(weights.data(), 12, ACL_FLOAT, classes, 1);
    aclTensor *totalWeight = tensor(total.data(), 4, ACL_FLOAT, single, 1);
    aclTensor *out = tensor(inputs.data(), 48, ACL_FLOAT, image, 4);

    const int64_t mean = 1, ignoreIndex = 2;
    uint64_t size = 0;
    aclOpExecutor *executor = nullptr;
    CHECK(aclnnNLLLoss2dBackwardGetWorkspaceSize(
        gradOutput, self, target, weight, mean, ignoreIndex, totalWeight, out, &size, &executor));
    CHECK(aclnnNLLLoss2dBackward(workspace_of(size), size, executor, stream));
    CHECK(aclrtSynchronizeStream(stream));
    print_floats("by class", out, 12);

    for (aclTensor *each : {gradOutput, self, target, weight, totalWeight, out}) release(each);
    finish(stream);
    return 0;
}
