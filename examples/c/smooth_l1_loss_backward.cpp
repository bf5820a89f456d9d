// aclnnSmoothL1LossBackward in C++: three values of beta, FLOAT16 data.
//
//   g++ smooth_l1_loss_backward.cpp $(openaclnn-config --cflags --libs) -o smooth_l1_loss_backward
#include <cstdio>
#include <vector>

#include "aclnnop/aclnn_smooth_l1_loss_backward.h"
#include "support.h"

namespace {

aclTensor *halves(const std::vector<float> &values) {
    std::vector<aclFloat16> bits;
    for (float value : values) bits.push_back(aclFloatToFloat16(value));
    const int64_t shape[] = {static_cast<int64_t>(bits.size())};
    return tensor(bits.data(), bits.size() * sizeof(aclFloat16), ACL_FLOAT16, shape, 1);
}

void print_halves(const char *name, const aclTensor *from, size_t count) {
    std::vector<aclFloat16> bits(count);
    void *data = nullptr;
    CHECK(aclGetRawTensorAddr(from, &data));
    CHECK(aclrtMemcpy(bits.data(), count * 2, data, count * 2, ACL_MEMCPY_DEVICE_TO_HOST));
    std::printf("%s:", name);
    for (aclFloat16 value : bits) std::printf(" %g", static_cast<double>(aclFloat16ToFloat(value)));
    std::printf("\n");
}

}  // namespace

int main() {
    aclrtStream stream = start();
    aclTensor *gradOut = halves({1, 2, 3, 4, 5});
    aclTensor *self = halves({-3, -0.5f, 0, 0.5f, 2});
    aclTensor *target = halves({0, 0, 0, 0, 0});
    aclTensor *gradInput = halves({9, 9, 9, 9, 9});
    for (float beta : {0.5f, 2.0f, 0.0f}) {
        uint64_t size = 0;
        aclOpExecutor *executor = nullptr;
        CHECK(aclnnSmoothL1LossBackwardGetWorkspaceSize(
            gradOut, self, target, 0, beta, gradInput, &size, &executor));
        CHECK(aclnnSmoothL1LossBackward(workspace_of(size), size, executor, stream));
        CHECK(aclrtSynchronizeStream(stream));
        char name[32];
        std::snprintf(name, sizeof name, "beta %g", static_cast<double>(beta));
        print_halves(name, gradInput, 5);
    }
    for (aclTensor *each : {gradOut, self, target, gradInput}) release(each);
    finish(stream);
    return 0;
}
