/* The attack through C: every exported function with live, stale, foreign, null and garbage handles, in any order, by
 * one thread (with forks and signals) and then by eight. Everything must return a documented status; calls that are
 * sound must be right. attack_table.h is written by table.py.
 *
 *     attack SEED STEPS [FORKS]
 *
 * With ATTACK_INPUT it is a library: what is drawn comes from bytes that a fuzzer wrote (tests/faults/surface.py). */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attack_table.h"

enum { ROOM = 4096, KEPT = 64, ALLOCATIONS = 16, THREADS = 8, AXES = 9 };

typedef struct {
    void *address;
    int host;
} Allocation;

/* One attacker: its random numbers, its memory, and room for arguments. */
typedef struct {
    uint64_t state;
    Allocation allocations[ALLOCATIONS];
    uintptr_t handles[AXES];
    int64_t numbers[AXES];
    char results[8][64];
    unsigned next;
    long right, called;
#ifdef ATTACK_INPUT
    const uint8_t *data, *end;
#endif
} Draw;

typedef struct {
    const char *name;
    int64_t (*call)(Draw *);
    int resets; /* takes others' memory away in the middle of their work: not beside other threads */
} Function;

static uint64_t draw(Draw *d) {
#ifdef ATTACK_INPUT
    if (d->end - d->data < 2) return 0;
    uint64_t number = d->data[0] | (uint64_t)d->data[1] << 8;
    d->data += 2;
    if (number < 0xE000) return number;
    d->state = number; /* few are large */
#endif
    d->state += 0x9E3779B97F4A7C15u;
    uint64_t z = d->state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uintptr_t live[KINDS][KEPT], stale[KINDS][KEPT];
static char host[ROOM + 64];

static void keep(int kind, uintptr_t handle) {
    static unsigned next;
    pthread_mutex_lock(&lock);
    live[kind][next++ % KEPT] = handle;
    pthread_mutex_unlock(&lock);
}

static void retire(int kind, uintptr_t handle) {
    static unsigned next;
    pthread_mutex_lock(&lock);
    stale[kind][next++ % KEPT] = handle;
    for (int i = 0; i < KEPT; i++)
        if (live[kind][i] == handle) live[kind][i] = 0;
    pthread_mutex_unlock(&lock);
}

static uintptr_t draw_handle(Draw *d, int kind) {
    uint64_t way = draw(d) % 20, place = draw(d) % KEPT, other = draw(d) % KINDS, garbage = draw(d);
    pthread_mutex_lock(&lock);
    uintptr_t found = 0;
    if (way < 13) {
        for (unsigned i = 0; i < KEPT && !found; i++) found = live[kind][(place + i) % KEPT];
    } else if (way < 15) {
        found = stale[kind][place];
    } else if (way < 17) {
        found = live[other][place];
    } else if (way < 19) {
        found = (uintptr_t)(way == 17 ? garbage : garbage % 4096);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static void *draw_handles(Draw *d, int kind) {
    for (int i = 0; i < AXES; i++) d->handles[i] = draw_handle(d, kind);
    return draw(d) % 8 ? d->handles : NULL;
}

static void *draw_result(Draw *d) {
    return draw(d) % 12 ? d->results[d->next++ % 8] : NULL;
}

static const char *draw_text(Draw *d) {
    static const char *const TEXTS[] = { "mean", "none", "sum", "avg", "", "/nowhere.json", NULL };
    return TEXTS[draw(d) % 7];
}

static int64_t draw_integer(Draw *d) {
    static const int64_t ODD[] = { 0, 1, -1, 2, 3, 7, 100, -100, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN };
    return draw(d) % 4 ? ODD[draw(d) % 12] : (int64_t)draw(d);
}

static int draw_small(Draw *d) { return (int)(draw(d) % 40) - 3; }

static double draw_real(Draw *d) {
    static const double ODD[] = { 0.0, 1.0, -1.0, 0.1, 1e300, -1e-300, 0.5, 2.0 };
    return ODD[draw(d) % 8];
}

static uint64_t draw_count(Draw *d) { return draw(d) % 10 ? draw(d) % (AXES + 1) : UINT64_MAX - draw(d) % 3; }

static size_t draw_size(Draw *d) { return draw(d) % 20 ? draw(d) % ROOM : (size_t)1 << 62; }

static void *draw_numbers(Draw *d) {
    for (int i = 0; i < AXES; i++) d->numbers[i] = draw(d) % 16 ? (int64_t)(draw(d) % 4) : draw_integer(d);
    return draw(d) % 10 ? d->numbers : NULL;
}

/* Memory of at least ROOM bytes that is there: ours, or the library's. */
static void *draw_buffer(Draw *d) {
    Allocation *found = &d->allocations[draw(d) % ALLOCATIONS];
    uint64_t way = draw(d) % 8;
    return way == 0 ? NULL : way < 5 && found->address ? found->address : host;
}

/* An address that the library must look up before it reads there. */
static void *draw_address(Draw *d) { return draw(d) % 6 ? draw_buffer(d) : (void *)(uintptr_t)draw(d); }

static void release(Draw *d, int index) {
    Allocation *own = &d->allocations[index];
    if (own->address) (own->host ? aclrtFreeHost : aclrtFree)(own->address);
    own->address = NULL;
}

/* What is smaller than ROOM is no buffer to copy from: it goes back at once. */
static void keep_memory(Draw *d, void *address, int is_host) {
    int index = (int)(draw(d) % ALLOCATIONS);
    void *larger = NULL;
    (is_host ? aclrtFreeHost : aclrtFree)(address);
    int64_t status = is_host ? aclrtMallocHost(&larger, ROOM) : aclrtMalloc(&larger, ROOM, ACL_MEM_MALLOC_HUGE_FIRST);
    if (status == 0) {
        release(d, index);
        d->allocations[index] = (Allocation){ larger, is_host };
    }
}

#define ATTACK_CALLS
#include "attack_table.h"

static int beside_others;
#ifdef ATTACK_INPUT
static char told[2048];
#endif

static void fault(const char *what, const char *name, long long status) {
    const char *message = aclGetRecentErrMsg();
#ifdef ATTACK_INPUT
    snprintf(told, sizeof told, "%s: %s: %lld: %s\n", what, name, status, message ? message : "");
#else
    fprintf(stderr, "%s: %s: %lld: %s\n", what, name, status, message ? message : "");
    exit(1);
#endif
}

static void step(Draw *d) {
    size_t which = (size_t)(draw(d) % (sizeof FUNCTIONS / sizeof *FUNCTIONS));
    if (beside_others && FUNCTIONS[which].resets) return;
    int64_t status = FUNCTIONS[which].call(d);
    int known = 0;
    for (size_t i = 0; i < sizeof STATUSES / sizeof *STATUSES; i++) known |= STATUSES[i] == status;
    if (!known) fault("no documented status", FUNCTIONS[which].name, status);
    if (status == 500000 || status == 561000) fault("a fault inside", FUNCTIONS[which].name, status);
    if (draw(d) % 16 == 0) release(d, (int)(draw(d) % ALLOCATIONS));
    d->called++;
}

/* A sound call, from memory to memory, and its result. */
static void sound(Draw *d) {
    int64_t size = 1 + (int64_t)(draw(d) % 200), one = 1;
    size_t bytes = (size_t)size * sizeof(float);
    float given[3][200], result[200];
    void *memory[4] = { NULL };
    aclTensor *tensors[4];
    for (int t = 0; t < 4; t++) {
        if (aclrtMalloc(&memory[t], bytes, ACL_MEM_MALLOC_HUGE_FIRST)) return; /* there may be no device just now */
        for (int64_t i = 0; t < 3 && i < size; i++) given[t][i] = (float)((int)(draw(d) % 9) - 4);
        if (t < 3) aclrtMemcpy(memory[t], bytes, given[t], bytes, ACL_MEMCPY_HOST_TO_DEVICE);
        tensors[t] = aclCreateTensor(&size, 1, ACL_FLOAT, &one, 0, ACL_FORMAT_ND, &size, 1, memory[t]);
    }
    uint64_t workspace = 0;
    aclOpExecutor *executor = NULL;
    aclrtStream stream = NULL;
    int64_t status = aclrtCreateStream(&stream);
    if (!status) status = aclnnL1LossBackwardGetWorkspaceSize(
        tensors[0], tensors[1], tensors[2], 0, tensors[3], &workspace, &executor);
    if (!status) status = aclnnL1LossBackward(NULL, workspace, executor, stream);
    if (!status) status = aclrtSynchronizeStream(stream);
    if (!status) status = aclrtMemcpy(result, bytes, memory[3], bytes, ACL_MEMCPY_DEVICE_TO_HOST);
    if (!status) {
        for (int64_t i = 0; i < size; i++) {
            float sign = (float)((given[1][i] > given[2][i]) - (given[1][i] < given[2][i]));
            if (result[i] != sign * given[0][i]) fault("a wrong result", "aclnnL1LossBackward", i);
        }
        d->right++;
    }
    aclrtDestroyStream(stream);
    for (int t = 0; t < 4; t++) {
        aclDestroyTensor(tensors[t]);
        aclrtFree(memory[t]);
    }
}

#ifdef ATTACK_INPUT
#include "input.h"
#else
static void steps(Draw *d, long count) {
    for (long i = 0; i < count; i++) {
        if (draw(d) % 12 == 0) aclrtSetDevice(0);
        if (draw(d) % 12 == 0) sound(d);
        step(d);
    }
}

static void forked(Draw *d) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGALRM, SIG_DFL);
        alarm(60);
        d->state ^= 77;
        steps(d, 5);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (status) fault("a forked child", "fork", status);
}

static volatile sig_atomic_t signals;

static void count_signal(int number) {
    (void)number;
    signals++;
}

static long count;

static void *attacker(void *given) {
    steps(given, count);
    return NULL;
}

int main(int arguments, char **values) {
    uint64_t seed = arguments > 1 ? strtoull(values[1], NULL, 10) : 1;
    count = arguments > 2 ? strtol(values[2], NULL, 10) : 500;
    long forks = arguments > 3 ? strtol(values[3], NULL, 10) : 1;
    static Draw draws[THREADS + 1];
    for (int t = 0; t <= THREADS; t++) draws[t].state = seed + 1000003u * (unsigned)t;
    Draw *d = &draws[THREADS];
    steps(d, 20); /* before aclInit */
    if (aclInit(NULL)) fault("start", "aclInit", 0);
    struct sigaction action = { .sa_handler = count_signal };
    struct itimerval often = { { 0, 900 }, { 0, 900 } }, never = { { 0, 0 }, { 0, 0 } };
    sigaction(SIGALRM, &action, NULL);
    for (long i = 0; i < count; i++) {
        if (i % 16 == 0) setitimer(ITIMER_REAL, i % 32 ? &never : &often, NULL);
        steps(d, 1);
        if (forks && i % 100 == 50) {
            setitimer(ITIMER_REAL, &never, NULL);
            forked(d);
        }
        if (i % 200 == 199) {
            aclFinalize();
            aclInit(NULL);
        }
    }
    setitimer(ITIMER_REAL, &never, NULL);
    beside_others = 1;
    pthread_t threads[THREADS];
    for (int t = 0; t < THREADS; t++) pthread_create(&threads[t], NULL, attacker, &draws[t]);
    for (int t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
    long called = 0, right = 0;
    for (int t = 0; t <= THREADS; t++) {
        called += draws[t].called;
        right += draws[t].right;
        for (int i = 0; i < ALLOCATIONS; i++) release(&draws[t], i);
    }
    aclFinalize();
    printf("calls=%ld\tright=%ld\tsignals=%d\n", called, right, (int)signals);
    return 0;
}
#endif
