/* Faults of a process in a window around one call: preloaded, it stands before the C library's functions.

The events of the chosen kinds are counted, in whatever thread they happen, and the n-th of them fails, or forty from the n-th on. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum { ROW = 40 }; /* failures, where they come in a row: some loops of the interpreter end only with the first success */
enum { MEMORY = 1, PAGES = 2, THREADS = 4, DISK = 8, SIGNALS = 16 };
static atomic_int kinds, persistent, signal_number;
static atomic_long events, failing = -1;
static atomic_long clock_offset;

static int fails(int kind)
{
    if (!(kinds & kind))
        return 0;
    long event = events++;
    return event >= failing && event < failing + (persistent ? ROW : 1) && failing >= 0;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

static void *none(void) { errno = ENOMEM; return NULL; }
void *malloc(size_t size) { return fails(MEMORY) ? none() : __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return fails(MEMORY) ? none() : __libc_calloc(count, size); }
void *realloc(void *place, size_t size) { return fails(MEMORY) ? none() : __libc_realloc(place, size); }
void *aligned_alloc(size_t step, size_t size) { return fails(MEMORY) ? none() : __libc_memalign(step, size); }
int posix_memalign(void **place, size_t step, size_t size)
{
    if (fails(MEMORY))
        return ENOMEM;
    *place = __libc_memalign(step, size);
    return *place ? 0 : ENOMEM;
}

void *mmap(void *place, size_t size, int protection, int flags, int file, off_t offset)
{
    if (fails(PAGES)) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return (void *)syscall(SYS_mmap, place, size, protection, flags, file, offset);
}
void *mmap64(void *place, size_t size, int protection, int flags, int file, off_t offset)
{
    return mmap(place, size, protection, flags, file, offset);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument)
{
    return fails(THREADS) ? EAGAIN : NEXT(pthread_create)(thread, attributes, start, argument);
}

static int full(void) { errno = ENOSPC; return -1; }
/* Half of what is written comes to the disk before it is full. */
ssize_t write(int file, const void *data, size_t size)
{
    if (file > 2 && fails(DISK)) {
        if (size > 1 && syscall(SYS_write, file, data, size / 2) < 0)
            return -1;
        return full();
    }
    return syscall(SYS_write, file, data, size);
}
static int opened(int folder, const char *path, int flags, mode_t mode)
{
    if ((flags & (O_WRONLY | O_RDWR)) && fails(DISK))
        return full();
    return (int)syscall(SYS_openat, folder, path, flags, mode);
}
#define MODE(flags) \
    mode_t mode = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); }
int open(const char *path, int flags, ...) { MODE(flags) return opened(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags) return opened(AT_FDCWD, path, flags, mode); }
int openat(int folder, const char *path, int flags, ...) { MODE(flags) return opened(folder, path, flags, mode); }
int openat64(int folder, const char *path, int flags, ...) { MODE(flags) return opened(folder, path, flags, mode); }
int rename(const char *from, const char *to) { return fails(DISK) ? full() : NEXT(rename)(from, to); }
int renameat(int a, const char *from, int b, const char *to) { return fails(DISK) ? full() : NEXT(renameat)(a, from, b, to); }
int mkdir(const char *path, mode_t mode) { return fails(DISK) ? full() : NEXT(mkdir)(path, mode); }
int fsync(int file) { return fails(DISK) ? full() : NEXT(fsync)(file); }

/* The clock of the day jumps; the one that only goes forward does not. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
    int status = (int)syscall(SYS_clock_gettime, clock, now);
    if (clock == CLOCK_REALTIME)
        now->tv_sec += clock_offset;
    return status;
}
void faults_clock(long seconds) { clock_offset = seconds; }

/* Python's side, by the few functions of its stable interface that are needed. */
typedef struct _object PyObject;
typedef int (*Tracer)(PyObject *, PyObject *, int, PyObject *);
extern PyObject *PyObject_CallNoArgs(PyObject *);
extern int PyObject_SetAttrString(PyObject *, const char *, PyObject *);
extern void PyEval_SetTrace(Tracer, PyObject *) __attribute__((weak));
extern int PyErr_SetInterruptEx(int) __attribute__((weak));
extern PyObject _Py_TrueStruct __attribute__((weak));

/* A signal that arrives before the n-th instruction of the interpreter, handled where the interpreter next looks for one. */
static int trace(PyObject *self, PyObject *frame, int what, PyObject *argument)
{
    if (what == 0)
        PyObject_SetAttrString(frame, "f_trace_opcodes", &_Py_TrueStruct);
    if (what == 7 && fails(SIGNALS)) {
        if (signal_number == SIGKILL)
            kill(getpid(), SIGKILL);
        PyErr_SetInterruptEx(signal_number);
    }
    return 0;
}

/* Call `work()` with a fault. */
PyObject *faults_call(PyObject *work, int chosen, long number, int lasting, int sent)
{
    events = 0;
    failing = number;
    persistent = lasting;
    signal_number = sent;
    if (chosen & SIGNALS)
        PyEval_SetTrace(trace, NULL);
    kinds = chosen;
    PyObject *result = PyObject_CallNoArgs(work);
    kinds = 0;
    if (chosen & SIGNALS)
        PyEval_SetTrace(NULL, NULL);
    return result;
}
long faults_events(void) { return events; }

/* Where a crash came from, as the names of libraries: not every library stands a lack of memory. */
static void crashed(int number)
{
    void *places[48];
    kinds = 0;
    int count = backtrace(places, 48);
    backtrace_symbols_fd(places, count, 2);
    raise(number);
}
void faults_tell_crashes(void)
{
    void *places[4];
    backtrace(places, 4); /* loads what it needs now */
    static char room[1 << 20];
    stack_t stack = {.ss_sp = room, .ss_size = sizeof room};
    sigaltstack(&stack, NULL);
    struct sigaction action = {.sa_handler = crashed, .sa_flags = SA_ONSTACK | SA_RESETHAND};
    int numbers[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGALRM};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaction(numbers[i], &action, NULL);
}
