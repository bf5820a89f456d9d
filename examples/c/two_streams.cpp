// Two streams: one computes, the other waits for its event before it reads the result and goes on.
// Phase two of the second call runs on a thread of its own.
//
//   g++ two_streams.cpp $(openaclnn-config --cflags --libs) -pthread -o two_streams && ./two_streams
#include <thread>
#include <vector>

#include "aclnnop/aclnn_elu_backward.h"
#include "support.h"

int main() {
    const int64_t shape[] = {4};
    const std::vector<float> gradient = {1, 2, 3, 4}, input = {1, 1, 1, 1}, zeros(4, 0.0f);
    float oneValue = 1, tenValue = 10;

    aclrtStream first = start();
    aclrtStream second = nullptr;
    aclrtContext context = nullptr;
    aclrtEvent done = nullptr;
    CHECK(aclrtCreateStream(&second));
    CHECK(aclrtGetCurrentContext(&context));
    CHECK(aclrtCreateEventWithFlag(&done, ACL_EVENT_SYNC));

    aclTensor *gradOutput = tensor(gradient.data(), 16, ACL_FLOAT, shape, 1);
    aclTensor *self = tensor(input.data(), 16, ACL_FLOAT, shape, 1);
    aclTensor *middle = tensor(zeros.data(), 16, ACL_FLOAT, shape, 1);
    aclTensor *last = tensor(zeros.data(), 16, ACL_FLOAT, shape, 1);
    aclScalar *one = aclCreateScalar(&oneValue, ACL_FLOAT);
    aclScalar *ten = aclCreateScalar(&tenValue, ACL_FLOAT);

    uint64_t size = 0, size_again = 0;
    aclOpExecutor *times_ten = nullptr, *again = nullptr;
    CHECK(aclnnEluBackwardGetWorkspaceSize(
        gradOutput, one, ten, one, false, self, middle, &size, &times_ten));
    CHECK(aclnnEluBackwardGetWorkspaceSize(middle, one, ten, one, false, self, last, &size_again, &again));

    CHECK(aclrtStreamWaitEvent(second, done));  // before the record: the wait is for the record to come
    std::thread other([&] {
        CHECK(aclrtSetCurrentContext(context));
        CHECK(aclnnEluBackward(workspace_of(size_again), size_again, again, second));
    });
    other.join();
    CHECK(aclnnEluBackward(workspace_of(size), size, times_ten, first));
    CHECK(aclrtRecordEvent(done, first));
    CHECK(aclrtSynchronizeStream(second));
    print_floats("after the first stream", middle, 4);
    print_floats("after the second stream", last, 4);

    CHECK(aclrtDestroyEvent(done));
    CHECK(aclDestroyScalar(one));
    CHECK(aclDestroyScalar(ten));
    for (aclTensor *each : {gradOutput, self, middle, last}) release(each);
    CHECK(aclrtDestroyStream(second));
    finish(first);
    return 0;
}
