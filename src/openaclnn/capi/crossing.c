/* The way in and out: every function that programs call passes here, once each way. */

/* The bits that say how floating-point numbers are computed, and what they are in IEEE 754's own mode. */
#if defined(__x86_64__)
#include <xmmintrin.h>
#define OPENACLNN_MODE_BITS 0xFFC0u
#define OPENACLNN_STANDARD 0x1F80u
static uint64_t openaclnn_mode(void)
{
    return _mm_getcsr();
}
static void openaclnn_set_mode(uint64_t mode)
{
    _mm_setcsr((unsigned)mode);
}
#elif defined(__aarch64__)
#define OPENACLNN_MODE_BITS 0xFFFFFFFFu
#define OPENACLNN_STANDARD 0u
static uint64_t openaclnn_mode(void)
{
    uint64_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
}
static void openaclnn_set_mode(uint64_t mode)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(mode));
}
#else
#define OPENACLNN_MODE_BITS 0u
#define OPENACLNN_STANDARD 0u
static uint64_t openaclnn_mode(void)
{
    return 0;
}
static void openaclnn_set_mode(uint64_t mode)
{
    (void)mode;
}
#endif

/* What a call finds, and leaves as it found it. */
struct openaclnn_visit {
    uint64_t mode;
    int cancel;
    int cancel_type;
};

/* This thread's last call that could not enter: why, and the message made of it. */
static __thread char openaclnn_reason[256], openaclnn_message[1024];
static __thread uintptr_t openaclnn_stack_low, openaclnn_stack_high;
static __thread int openaclnn_interrupt;

/* What the largest kernel and Python's way to it need, and some more; compiling has a stack of its own. */
#define OPENACLNN_LEAST_STACK ((uintptr_t)96 << 10)

/* Bytes of stack left below a frame; plenty on a stack that is not the thread's own. */
static uintptr_t openaclnn_stack_left(uintptr_t here)
{
    if (openaclnn_stack_high == 0) {
        pthread_attr_t own;
        void *low = NULL;
        size_t size = 0;
        if (pthread_getattr_np(pthread_self(), &own) == 0) {
            pthread_attr_getstack(&own, &low, &size);
            pthread_attr_destroy(&own);
        }
        openaclnn_stack_low = (uintptr_t)low;
        openaclnn_stack_high = low == NULL ? 1 : (uintptr_t)low + size;
        openaclnn_watch_thread(); /* seen for the first time */
    }
    return here > openaclnn_stack_low && here < openaclnn_stack_high ? here - openaclnn_stack_low
                                                                     : UINTPTR_MAX;
}

static int openaclnn_hindered(const char *why)
{
    snprintf(openaclnn_reason, sizeof openaclnn_reason, "%s", why);
    return -1;
}

static int openaclnn_no_stack(uintptr_t left)
{
    char text[sizeof openaclnn_reason];

    snprintf(text, sizeof text, "expected %d KiB of stack, got a thread with %d KiB left",
             (int)(OPENACLNN_LEAST_STACK >> 10), (int)(left >> 10));
    return openaclnn_hindered(text);
}

static int openaclnn_no_python(int state)
{
    char text[sizeof openaclnn_reason];

    switch (state) {
    case OTHER_PYTHON:
        snprintf(text, sizeof text,
                 "expected Python " OPENACLNN_PYTHON ", for which this library was built, got a process "
                 "that has Python %.*s", (int)strcspn(Py_GetVersion(), " "), Py_GetVersion());
        return openaclnn_hindered(text);
    case FAILED:
        return openaclnn_hindered("expected a Python that starts, got " OPENACLNN_EXECUTABLE
                                  ", which did not; standard error has the reason");
    case FORKED:
        return openaclnn_hindered("expected a fork that Python knows of, got a child of one in the "
                                  "middle of Python code");
    default:
        return openaclnn_hindered("expected a running Python, got one that has ended");
    }
}

static int openaclnn_admitted(void)
{
    int state = __atomic_load_n(&openaclnn_state, __ATOMIC_ACQUIRE);
    uintptr_t left = openaclnn_stack_left((uintptr_t)__builtin_frame_address(0));

    if (left < OPENACLNN_LEAST_STACK) {
        return openaclnn_no_stack(left);
    }
    if (state == NOT_TRIED) {
        state = openaclnn_start();
    }
    if (state != RUNNING || !Py_IsInitialized()) {
        return openaclnn_no_python(state);
    }
    if (openaclnn_in_subinterpreter()) {
        return openaclnn_hindered("expected a call from the main interpreter, got one from another");
    }
    return 0;
}

CFFI_DLLEXPORT void openaclnn_leave(const struct openaclnn_visit *visit)
{
    if ((visit->mode & OPENACLNN_MODE_BITS) != OPENACLNN_STANDARD) {
        openaclnn_set_mode(visit->mode);
    }
    if (openaclnn_interrupt) {
        openaclnn_interrupt = 0;
        PyErr_SetInterrupt();
    }
    pthread_setcancelstate(visit->cancel, NULL);
    pthread_setcanceltype(visit->cancel_type, NULL);
}

/* Raise KeyboardInterrupt again in whoever called C from Python, after this call. */
static void openaclnn_interrupt_later(void)
{
    openaclnn_interrupt = 1;
}

/* 0 where the call may go on, and then leaves. */
CFFI_DLLEXPORT int openaclnn_enter(struct openaclnn_visit *visit)
{
    int failed;

    /* A thread that were cancelled inside would take the interpreter's lock with it. The C library's signal
     * may be on its way to one that may be cancelled anywhere; when it comes, glibc asks for the type alone. */
    pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &visit->cancel_type);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &visit->cancel);
    visit->mode = openaclnn_mode();
    if ((visit->mode & OPENACLNN_MODE_BITS) != OPENACLNN_STANDARD) {
        openaclnn_set_mode(OPENACLNN_STANDARD);
    }
    failed = openaclnn_admitted();
    if (failed) {
        openaclnn_leave(visit);
    }
    return failed;
}

/* Make this thread's recent message of the reason why a call could not enter. */
CFFI_DLLEXPORT void openaclnn_refuse(const char *function, const char *status)
{
    struct timespec now;
    struct tm local;
    char date[32];

    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &local);
    strftime(date, sizeof date, "%Y-%m-%d-%H:%M:%S", &local);
    snprintf(openaclnn_message, sizeof openaclnn_message, "[PID: %d] %s.%03d %s: process: %s [%s]",
             (int)getpid(), date, (int)(now.tv_nsec / 1000000), function, openaclnn_reason, status);
}

/* That message, once; NULL where there is none. */
CFFI_DLLEXPORT const char *openaclnn_refused(void)
{
    static __thread char given[sizeof openaclnn_message];

    if (openaclnn_message[0] == '\0') {
        return NULL;
    }
    memcpy(given, openaclnn_message, sizeof given);
    openaclnn_message[0] = '\0';
    return given;
}
