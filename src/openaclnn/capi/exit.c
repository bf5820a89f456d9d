/* The end of a program: exit() takes LLVM's data away while other threads may be compiling with it. */

/* Whether a thread is inside LLVM, and whether the process ends: engines/machine/process_exit.py knows the same. */
static int32_t openaclnn_ending[2];
#define OPENACLNN_EXIT_MILLISECONDS 5000

/* glibc's: thread-local objects of C++ end by it. */
extern int __cxa_thread_atexit_impl(void (*end)(void *), void *object, void *library) __attribute__((weak));
extern void *__dso_handle __attribute__((visibility("hidden")));

static int openaclnn_runs(void)
{
    return __atomic_load_n(&openaclnn_state, __ATOMIC_ACQUIRE) == RUNNING && Py_IsInitialized()
           && !Py_IsFinalizing();
}

/* Wait until nobody is inside, but not for long. */
static void openaclnn_wait_for_llvm(void)
{
    const struct timespec moment = {0, 1000000};
    PyThreadState *held = openaclnn_holds_lock() ? PyEval_SaveThread() : NULL; /* who is inside needs it */

    for (int i = 0; i < OPENACLNN_EXIT_MILLISECONDS; i++) {
        if (!__atomic_load_n(&openaclnn_ending[0], __ATOMIC_SEQ_CST)) {
            break;
        }
        nanosleep(&moment, NULL);
    }
    if (held != NULL) {
        PyEval_RestoreThread(held);
    }
}

static void openaclnn_at_exit(void)
{
    if (openaclnn_runs()) {
        __atomic_store_n(&openaclnn_ending[1], 1, __ATOMIC_SEQ_CST);
        openaclnn_wait_for_llvm();
    }
}

/* A thread's own end comes first in an exit() that it calls: before data that LLVM has made since it began, too. */
static void openaclnn_at_thread_end(void *unused)
{
    (void)unused;
    if (openaclnn_runs()) {
        openaclnn_wait_for_llvm();
        if (syscall(SYS_gettid) == getpid()) {
            atexit(openaclnn_at_exit); /* the main thread ends when the process does: this is the next to run */
        }
    }
}

static void openaclnn_watch_thread(void)
{
    if (__cxa_thread_atexit_impl != NULL) {
        __cxa_thread_atexit_impl(openaclnn_at_thread_end, NULL, &__dso_handle);
    }
}

static int32_t *openaclnn_ending_words(void)
{
    return openaclnn_ending;
}

/* For who goes inside: what is registered last runs first, before the end of all that LLVM has until now. */
static void openaclnn_watch_exit(void)
{
    atexit(openaclnn_at_exit);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* The very end of a program, behind the destructors of its static objects: who listens then is called. */
static void (*openaclnn_last_call)(void);

static void openaclnn_call_last(void (*function)(void))
{
    openaclnn_last_call = function;
}

__attribute__((destructor)) static void openaclnn_unload(void)
{
    if (openaclnn_last_call != NULL && openaclnn_runs()) {
        openaclnn_last_call();
    }
}
