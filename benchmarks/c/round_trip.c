/* What a call from C costs: phase one, phase two, a synchronised round trip, a repeatable executor.
 *
 *   cc -O2 benchmarks/c/round_trip.c $(openaclnn-config --cflags --libs) -o round_trip && ./round_trip
 *
 * Prints the median and the best of seven runs, in microseconds per call, on four elements of FLOAT; the round trips also
 * with a shape in every round that was not seen before, to 60 x 60, beside one of 30 x 30 that stays, and those of losses
 * with several outputs, of 4 classes and a new number of rows in every round, to 500. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "acl/acl.h"
#include "aclnnop/aclnn_cross_entropy_loss.h"
#include "aclnnop/aclnn_elu_backward.h"
#include "aclnnop/aclnn_nll_loss.h"

#define RUNS 7
#define ROUNDS 500
#define CLASSES 4
#define LOSS_RUNS 50 /* rounds of a measurement of losses; RUNS of them and the warm-up make fewer than ROUNDS */
#define SIDE 60 /* SIDE * SIDE shapes: more than a measurement of ROUNDS makes, warm-up included */
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
static aclTensor *shaped[SIDE * SIDE][3], *staying[3];
static int next_shape, next_rows;

/* A loss's arguments over some rows. */
enum { INPUT, TARGET, EACH_CLASS, LOSS, TOTAL, LIKE_INPUT, LIKE_TARGET, KINDS };
static aclTensor *rows[ROUNDS][KINDS];

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

static aclTensor *described(int64_t rows, int64_t columns, void *data)
{
    const int64_t shape[2] = {rows, columns};
    return aclCreateTensor(shape, 2, ACL_FLOAT, NULL, 0, ACL_FORMAT_ND, shape, 2, data);
}

/* Shapes in no order: 1009 shares no factor with their number. */
static void prepare_shapes(void)
{
    for (int which = 0; which < 3; which++) {
        const size_t size = SIDE * SIDE * sizeof(float);
        void *data = NULL;
        CHECK(aclrtMalloc(&data, size, ACL_MEM_MALLOC_HUGE_FIRST));
        CHECK(aclrtMemset(data, size, 0, size));
        for (int i = 0; i < SIDE * SIDE; i++) {
            int shape = (int)((int64_t)i * 1009 % (SIDE * SIDE));
            shaped[i][which] = described(1 + shape / SIDE, 1 + shape % SIDE, data);
        }
        staying[which] = described(SIDE / 2, SIDE / 2, data);
    }
}

static void *zeros(size_t size)
{
    void *data = NULL;
    CHECK(aclrtMalloc(&data, size, ACL_MEM_MALLOC_HUGE_FIRST));
    CHECK(aclrtMemset(data, size, 0, size));
    return data;
}

/* Numbers of rows in no order: 211 shares no factor with ROUNDS. */
static void prepare_rows(void)
{
    void *data[KINDS];
    for (int which = 0; which < KINDS; which++) data[which] = zeros(ROUNDS * CLASSES * sizeof(int64_t));
    for (int i = 0; i < ROUNDS; i++) {
        const int64_t sizes[2] = {1 + (int64_t)i * 211 % ROUNDS, CLASSES};
        const int axes[KINDS] = {2, 1, 1, 0, 0, 2, 1};
        for (int which = 0; which < KINDS; which++) {
            const int64_t *shape = which == EACH_CLASS ? sizes + 1 : sizes;
            const aclDataType dtype = which == TARGET ? ACL_INT64 : ACL_FLOAT;
            rows[i][which] = aclCreateTensor(
                shape, axes[which], dtype, NULL, 0, ACL_FORMAT_ND, shape, axes[which], data[which]);
        }
    }
}

static aclTensor *tensor(void)
{
    const float values[4] = {-2, -1, 0, 1};
    void *data = NULL;
    CHECK(aclrtMalloc(&data, sizeof values, ACL_MEM_MALLOC_HUGE_FIRST));
    CHECK(aclrtMemcpy(data, sizeof values, values, sizeof values, ACL_MEMCPY_HOST_TO_DEVICE));
    return described(2, 2, data);
}

static aclOpExecutor *phase_one_of(aclTensor *gradient, aclTensor *given, aclTensor *result)
{
    uint64_t size = 0;
    aclOpExecutor *executor = NULL;
    CHECK(aclnnEluBackwardGetWorkspaceSize(
        gradient, one, one, one, true, given, result, &size, &executor));
    return executor;
}

static aclOpExecutor *phase_one(void) { return phase_one_of(gradOutput, self, gradInput); }

static void nothing(void) { (void)aclDataTypeSize(ACL_FLOAT); }
static void only_phase_one(void) { CHECK(aclDestroyAclOpExecutor(phase_one())); }
static void synchronize(void) { CHECK(aclrtSynchronizeStream(stream)); }

static void round_trip(void)
{
    CHECK(aclnnEluBackward(NULL, 0, phase_one(), stream));
    CHECK(aclrtSynchronizeStream(stream));
}

static void round_trip_of(aclTensor **tensors)
{
    CHECK(aclnnEluBackward(NULL, 0, phase_one_of(tensors[0], tensors[1], tensors[2]), stream));
    CHECK(aclrtSynchronizeStream(stream));
}

static void same_shape(void) { round_trip_of(staying); }
static void new_shape(void) { round_trip_of(shaped[next_shape++]); }

static void nll(void)
{
    uint64_t size = 0;
    aclOpExecutor *executor = NULL;
    aclTensor **own = rows[next_rows++];
    CHECK(aclnnNLLLossGetWorkspaceSize(
        own[INPUT], own[TARGET], own[EACH_CLASS], 1, -100, own[LOSS], own[TOTAL], &size, &executor));
    CHECK(aclnnNLLLoss(NULL, size, executor, stream));
    CHECK(aclrtSynchronizeStream(stream));
}

static void cross_entropy(void)
{
    uint64_t size = 0;
    aclOpExecutor *executor = NULL;
    aclTensor **own = rows[next_rows++];
    CHECK(aclnnCrossEntropyLossGetWorkspaceSize(
        own[INPUT], own[TARGET], NULL, "mean", -100, 0, 1, true, own[LOSS], own[LIKE_INPUT], own[TOTAL],
        own[LIKE_TARGET], &size, &executor));
    CHECK(aclnnCrossEntropyLoss(NULL, size, executor, stream));
    CHECK(aclrtSynchronizeStream(stream));
}

static void measure_loss(const char *title, void (*body)(void))
{
    next_rows = 0;
    measure(title, body, LOSS_RUNS);
}

static void again(void) { CHECK(aclnnEluBackward(NULL, 0, repeatable, stream)); }

static void again_and_wait(void)
{
    again();
    CHECK(aclrtSynchronizeStream(stream));
}

static void descriptors(void)
{
    CHECK(aclDestroyTensor(described(2, 2, NULL)));
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
    prepare_shapes();
    prepare_rows();

    measure("a function that does nothing", nothing, 5000);
    measure("synchronise an idle stream", synchronize, 5000);
    measure("create and destroy a tensor", descriptors, 2000);
    measure("phase one (and destroy the executor)", only_phase_one, 2000);
    measure("phase one + phase two + synchronise", round_trip, 2000);
    measure("the same, 30 x 30", same_shape, ROUNDS);
    measure("the same, a new shape each round", new_shape, ROUNDS);
    measure_loss("NLL loss, a new number of rows each round", nll);
    measure_loss("cross entropy, the same", cross_entropy);
    measure("repeatable executor: phase two", again, 2000);
    measure("repeatable executor: phase two + synchronise", again_and_wait, 2000);
    return 0;
}
