/* Starts the Python that built this library, unless the process has one already. Part of the core
 * library, compiled behind what cffi generates; the OPENACLNN_* macros come from build.py. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* All but the first two are for good. */
enum { NOT_TRIED, RUNNING, FAILED, OTHER_PYTHON, ENDED, FORKED };
static int openaclnn_state;
static pthread_mutex_t openaclnn_starting = PTHREAD_MUTEX_INITIALIZER;
static pthread_t openaclnn_starter; /* who starts, while somebody does */
static int openaclnn_has_starter;
static int openaclnn_is_c; /* a C program, without a Python of its own */

/* LLVM's compiler and the imports need more than the threads of some programs have. */
#define OPENACLNN_STACK ((size_t)16 << 20)
#define OPENACLNN_TEXT_(x) #x
#define OPENACLNN_TEXT(x) OPENACLNN_TEXT_(x)
#define OPENACLNN_PYTHON OPENACLNN_TEXT(PY_MAJOR_VERSION) "." OPENACLNN_TEXT(PY_MINOR_VERSION)

/* In fork.c: */
static void openaclnn_before_fork(void);
static void openaclnn_in_parent(void);
static void openaclnn_in_child(void);
static int openaclnn_hear_of_forks(void);

static void openaclnn_set_state(int state)
{
    __atomic_store_n(&openaclnn_state, state, __ATOMIC_RELEASE);
}

/* Whether this thread holds the interpreter's lock. PyGILState_Check says yes to everybody as soon as
 * there are subinterpreters; two pointers, compared, do not lie. */
static int openaclnn_holds_lock(void)
{
    PyThreadState *own = PyGILState_GetThisThreadState();
    return own != NULL && own == _PyThreadState_UncheckedGet();
}

/* Whether this thread is in a subinterpreter, where none of our code is. */
static int openaclnn_in_subinterpreter(void)
{
    PyThreadState *own = PyGILState_GetThisThreadState(), *current = _PyThreadState_UncheckedGet();

    if (own != NULL && PyThreadState_GetInterpreter(own) != PyInterpreterState_Main()) {
        return 1;
    }
#if PY_VERSION_HEX < 0x030C0000
    /* The current one is the process's: this thread's only where it holds the lock. */
    return current != own && current != NULL && PyInterpreterState_Head() != PyInterpreterState_Main()
           && current->thread_id == PyThread_get_thread_ident();
#else
    return current != own && current != NULL;
#endif
}

static int openaclnn_boot(void)
{
    PyPreConfig early;
    PyConfig config;
    PyStatus status;

    /* A program may have opened us with RTLD_LOCAL; extension modules need the interpreter's symbols. */
    if (OPENACLNN_LIBPYTHON[0] != '\0') {
        dlopen(OPENACLNN_LIBPYTHON, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
    }
    /* Isolated: no signal handlers, no locale change, and no PYTHON* variable of the caller's applies. */
    PyPreConfig_InitIsolatedConfig(&early);
    early.utf8_mode = 1;
    status = Py_PreInitialize(&early);
    if (!PyStatus_Exception(status)) {
        PyConfig_InitIsolatedConfig(&config);
        status = PyConfig_SetBytesString(&config, &config.program_name, OPENACLNN_EXECUTABLE);
        if (!PyStatus_Exception(status)) {
            status = PyConfig_SetBytesString(&config, &config.executable, OPENACLNN_EXECUTABLE);
        }
        if (!PyStatus_Exception(status)) {
            status = Py_InitializeFromConfig(&config);
        }
        PyConfig_Clear(&config);
    }
    if (PyStatus_Exception(status)) {
        fprintf(stderr, "openaclnn: cannot start %s: %s\n", OPENACLNN_EXECUTABLE,
                status.err_msg != NULL ? status.err_msg : "it exits at once");
        return -1;
    }
    PyEval_SaveThread();
    return 0;
}

static volatile sig_atomic_t openaclnn_interrupted;

static void openaclnn_remember(int number)
{
    (void)number;
    openaclnn_interrupted = 1;
}

/* The first import of _signal takes SIGINT where it finds the default, even if Python was started
 * without signal handlers. Here it finds a function, which it leaves alone, now and later. */
static void openaclnn_leave_signals_alone(void)
{
    struct sigaction before, during;
    PyObject *module;
    int alone = sigaction(SIGINT, NULL, &before) == 0 && !(before.sa_flags & SA_SIGINFO)
                && before.sa_handler == SIG_DFL;

    if (alone) {
        memset(&during, 0, sizeof during);
        during.sa_handler = openaclnn_remember;
        sigaction(SIGINT, &during, NULL);
    }
    module = PyImport_ImportModule("_signal");
    if (module == NULL) {
        PyErr_Clear(); /* whoever needs it will say so */
    }
    Py_XDECREF(module);
    if (alone) {
        sigaction(SIGINT, &before, NULL);
        if (openaclnn_interrupted) {
            kill(getpid(), SIGINT);
        }
    }
}

static void openaclnn_ended(void)
{
    openaclnn_set_state(ENDED); /* a Python that is started later knows nothing of us */
}

/* Run Python code, in names of its own: the program's __main__ is not ours. */
static int openaclnn_run(const char *code, PyObject *names)
{
    PyObject *done = names == NULL ? NULL : PyRun_String(code, Py_file_input, names, names);

    if (done == NULL) {
        PyErr_WriteUnraisable(NULL);
        return -1;
    }
    Py_DECREF(done);
    return 0;
}

static void *openaclnn_connect(void *failed)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *names = PyDict_New();

    openaclnn_leave_signals_alone();
    if (openaclnn_run(OPENACLNN_FIND_PACKAGES, names) != 0) {
        *(int *)failed = 1;
    } else {
#if PY_VERSION_HEX < 0x030C0000
        /* cffi locks its start with the version tag of this type and aborts where somebody (PyTorch, say)
         * has made the interpreter give it one. Taken back, and nobody can give it anew while we hold the
         * GIL, which cffi does not need to be free since Python runs already. Later Pythons assert that
         * nobody modifies a type of theirs, and cffi has another lock there. */
        PyType_Modified(&PyCapsule_Type);
#endif
        if (cffi_start_python() != 0 || Py_AtExit(openaclnn_ended) != 0
            || openaclnn_hear_of_forks() != 0) {
            *(int *)failed = 1;
            openaclnn_run("sys.path[:] = [path for path in sys.path if path not in added]\n", names);
        }
    }
    Py_XDECREF(names);
    PyGILState_Release(gil);
    return NULL;
}

/* On a thread with a stack of its own: what the imports need is more than the caller may have. */
static int openaclnn_connected(void)
{
    pthread_attr_t wide;
    pthread_t thread;
    int failed = 0, alone;

    pthread_attr_init(&wide);
    pthread_attr_setstacksize(&wide, OPENACLNN_STACK);
    alone = pthread_create(&thread, &wide, openaclnn_connect, &failed) == 0;
    pthread_attr_destroy(&wide);
    if (alone) {
        pthread_join(thread, NULL);
    } else {
        openaclnn_connect(&failed);
    }
    return !failed;
}

static int openaclnn_first_start(void)
{
    if (pthread_atfork(openaclnn_before_fork, openaclnn_in_parent, openaclnn_in_child) != 0) {
        return FAILED;
    }
    openaclnn_is_c = !Py_IsInitialized();
    return (!openaclnn_is_c || openaclnn_boot() == 0) && openaclnn_connected() ? RUNNING : FAILED;
}

static int openaclnn_in_c_program(void)
{
    return openaclnn_is_c;
}

/* The state after the first call. Many threads may come at once; one of them does the work. */
static int openaclnn_start(void)
{
    PyThreadState *held = NULL;

    /* Where the program brought a libpython of its own, that one answers, and nothing else of it is
     * touched where it is another version. */
    if (strncmp(Py_GetVersion(), OPENACLNN_PYTHON ".", strlen(OPENACLNN_PYTHON ".")) != 0) {
        openaclnn_set_state(OTHER_PYTHON);
        return OTHER_PYTHON;
    }
    /* A caller that holds the GIL must let it go while it waits for the thread that starts us. */
    if (Py_IsInitialized() && openaclnn_holds_lock()) {
        held = PyEval_SaveThread();
    }
    pthread_mutex_lock(&openaclnn_starting);
    if (openaclnn_state == NOT_TRIED) {
        openaclnn_starter = pthread_self();
        __atomic_store_n(&openaclnn_has_starter, 1, __ATOMIC_RELEASE);
        openaclnn_set_state(openaclnn_first_start());
        __atomic_store_n(&openaclnn_has_starter, 0, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&openaclnn_starting);
    if (held != NULL) {
        PyEval_RestoreThread(held);
    }
    return openaclnn_state;
}
