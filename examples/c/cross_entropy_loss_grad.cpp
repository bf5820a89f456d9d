// aclnnCrossEntropyLossGrad in C++: optional tensors left out, a reduction named by a string.
//
//   g++ cross_entropy_loss_grad.cpp $(openaclnn-config --cflags --libs) -o cross_entropy_loss_grad
#include <cmath>
#include <vector>

#include "aclnnop/aclnn_cross_entropy_loss_grad.h"
#include "support.h"

int main() {
    const int64_t rows[] = {3}, matrix[] = {3, 3};
    const std::vector<std::vector<float>> logits = {{1, 2, 3}, {1, 1, 1}, {0, 5, -5}};
    std::vector<float> logProbs;
    for (const auto &row : logits) {
        float sum = 0;
        for (float value : row) sum += std::exp(value);
        for (float value : row) logProbs.push_back(value - std::log(sum));
    }
    const std::vector<int64_t> targets = {2, 0, 1};
    const std::vector<float> gradient = {2}, zeros(9, 0.0f);

    aclrtStream stream = start();
    aclTensor *gradLoss = tensor(gradient.data(), 4, ACL_FLOAT, nullptr, 0);
    aclTensor *logProb = tensor(logProbs.data(), 36, ACL_FLOAT, matrix, 2);
    aclTensor *target = tensor(targets.data(), 24, ACL_INT64, rows, 1);
    aclTensor *out = tensor(zeros.data(), 36, ACL_FLOAT, matrix, 2);

    char reduction[] = "mean";
    uint64_t size = 0;
    aclOpExecutor *executor = nullptr;
    CHECK(aclnnCrossEntropyLossGradGetWorkspaceSize(
        gradLoss, logProb, target, nullptr, nullptr, nullptr, reduction, -100, 0.0, 0.0, out, &size,
        &executor));
    CHECK(aclnnCrossEntropyLossGrad(workspace_of(size), size, executor, stream));
    CHECK(aclrtSynchronizeStream(stream));
    print_floats("gradient", out, 9);

    for (aclTensor *each : {gradLoss, logProb, target, out}) release(each);
    finish(stream);
    return 0;
}
