/* What a call from C costs: phase one, phase two, a synchronised round trip, a repeatable executor.
 *
 *   cc -O2 benchmarks/c/round_trip.c $(openaclnn-config --cflags --libs) -o round_trip && ./round_trip
 *
 * Prints the median and the best of seven runs, in microseconds per call, on four elements of FLOAT. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "acl/acl.h"
#include "aclnnop/aclnn_elu_backward.h"

#define RUNS 7
#define CHECK(call)                                                                     \
    do {                                                                                \
        int code_ = (int)(call);                                                        \
        if (code_ != 0) {                                                               \
            const char *text_ = aclGetRecentErrMsg();                                   \
            fprintf(stderr, "%s gives %d: %s\n", #call, code_, text_ ? text_ : "");     \
            exit(1);                                                                    \
        }                                                                               \
    } while (0)

static aclrtStream stream;
static aclTensor *gradOutput, *self, *gradInput;
static aclScalar *one;
static aclOpExecutor *repeatable;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int ascending(const void *a, const void *b)
{
    double d = *(const double *)a - *(const double *)b;
    return (d > 0) - (d < 0);
}

static void measure(const char *title, void (*body)(void), int count)
{
    double times[RUNS];
    for (int i = 0; i < count / 10; i++) body();
    for (int run = 0; run < RUNS; run++) {
        double start = now();
        for (int i = 0; i < count; i++) body();
        times[run] = (now() - start) / count;
        CHECK(aclrtSynchronizeStream(stream));
    }
    qsort(times, RUNS, sizeof times[0], ascending);
    printf("%-44s median %7.1f us   best %7.1f us\n", title, times[RUNS / 2], times[0]);
}

static aclTensor *tensor(void)
{
    const int64_t shape[2] = {2, 2};
    const float values[4] = {-2, -1, 0, 1};
    void *data = NULL;
    CHECK(aclrtMalloc(&data, sizeof values, ACL_MEM_MALLOC_HUGE_FIRST));
    CHECK(aclrtMemcpy(data, sizeof values, values, sizeof values, ACL_MEMCPY_HOST_TO_DEVICE));
    return aclCreateTensor(shape, 2, ACL_FLOAT, NULL, 0, ACL_FORMAT_ND, shape, 2, data);
}

static aclOpExecutor *phase_one(void)
{
    uint64_t size = 0;
    aclOpExecutor *executor = NULL;
    CHECK(aclnnEluBackwardGetWorkspaceSize(
        gradOutput, one, one, one, true, self, gradInput, &size, &executor));
    return executor;
}

static void nothing(void) { (void)aclDataTypeSize(ACL_FLOAT); }
static void only_phase_one(void) { CHECK(aclDestroyAclOpExecutor(phase_one())); }
static void synchronize(void) { CHECK(aclrtSynchronizeStream(stream)); }

static void round_trip(void)
{
    CHECK(aclnnEluBackward(NULL, 0, phase_one(), stream));
    CHECK(aclrtSynchronizeStream(stream));
}

static void again(void) { CHECK(aclnnEluBackward(NULL, 0, repeatable, stream)); }

static void again_and_wait(void)
{
    again();
    CHECK(aclrtSynchronizeStream(stream));
}

static void descriptors(void)
{
    const int64_t shape[2] = {2, 2};
    CHECK(aclDestroyTensor(
        aclCreateTensor(shape, 2, ACL_FLOAT, NULL, 0, ACL_FORMAT_ND, shape, 2, NULL)));
}

int main(void)
{
    const float value = 1;
    float copy = value;
    CHECK(aclInit(NULL));
    CHECK(aclrtSetDevice(0));
    CHECK(aclrtCreateStream(&stream));
    gradOutput = tensor();
    self = tensor();
    gradInput = tensor();
    one = aclCreateScalar(&copy, ACL_FLOAT);
    repeatable = phase_one();
    CHECK(aclSetAclOpExecutorRepeatable(repeatable));

    measure("a function that does nothing", nothing, 5000);
    measure("synchronise an idle stream", synchronize, 5000);
    measure("create and destroy a tensor", descriptors, 2000);
    measure("phase one (and destroy the executor)", only_phase_one, 2000);
    measure("phase one + phase two + synchronise", round_trip, 2000);
    measure("repeatable executor: phase two", again, 2000);
    measure("repeatable executor: phase two + synchronise", again_and_wait, 2000);
    return 0;
}
