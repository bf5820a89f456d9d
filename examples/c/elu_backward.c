/* aclnnEluBackward in C: scalars of several types, the forward's input, then its output.
 *
 *   cc elu_backward.c $(openaclnn-config --cflags --libs) -o elu_backward && ./elu_backward */
#include "aclnnop/aclnn_elu_backward.h"
#include "support.h"

int main(void)
{
    const int64_t shape[1] = {4};
    const float gradient[4] = {1, 2, 3, 4};
    const float input[4] = {-2, -0.5f, 0, 1.5f};
    const float output[4] = {-1.8963617f, -0.66359765f, 0, 3};
    const float zeros[4] = {0, 0, 0, 0};
    aclFloat16 alphaValue = aclFloatToFloat16(1.5f);
    int64_t scaleValue = 2;
    double inputScaleValue = 0.5;
    uint64_t size = 0;
    aclOpExecutor *executor = NULL;

    aclrtStream stream = start();
    aclTensor *gradOutput = tensor(gradient, sizeof gradient, ACL_FLOAT, shape, 1);
    aclTensor *self = tensor(input, sizeof input, ACL_FLOAT, shape, 1);
    aclTensor *result = tensor(output, sizeof output, ACL_FLOAT, shape, 1);
    aclTensor *gradInput = tensor(zeros, sizeof zeros, ACL_FLOAT, shape, 1);
    aclScalar *alpha = aclCreateScalar(&alphaValue, ACL_FLOAT16);
    aclScalar *scale = aclCreateScalar(&scaleValue, ACL_INT64);
    aclScalar *inputScale = aclCreateScalar(&inputScaleValue, ACL_DOUBLE);

    CHECK(aclnnEluBackwardGetWorkspaceSize(
        gradOutput, alpha, scale, inputScale, false, self, gradInput, &size, &executor));
    CHECK(aclnnEluBackward(workspace_of(size), size, executor, stream));
    CHECK(aclrtSynchronizeStream(stream));
    print_floats("from the input", gradInput, 4);

    CHECK(aclnnEluBackwardGetWorkspaceSize(
        gradOutput, alpha, scale, inputScale, true, result, gradInput, &size, &executor));
    CHECK(aclnnEluBackward(workspace_of(size), size, executor, stream));
    CHECK(aclrtSynchronizeStream(stream));
    print_floats("from the output", gradInput, 4);

    CHECK(aclDestroyScalar(alpha));
    CHECK(aclDestroyScalar(scale));
    CHECK(aclDestroyScalar(inputScale));
    release(gradOutput);
    release(self);
    release(result);
    release(gradInput);
    finish(stream);
    return 0;
}
