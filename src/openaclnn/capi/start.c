/* Starts the Python that built this library, unless the process has one already. Part of the core
 * library, compiled behind what cffi generates; the OPENACLNN_* macros come from build.py. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static int openaclnn_state; /* 0 not tried yet, 1 running, -1 failed for good */
static pthread_once_t openaclnn_once = PTHREAD_ONCE_INIT;

/* Memory that a C++ caller may delete[] and a C caller may free. */
static void *openaclnn_new(size_t size)
{
    void *(*allocate)(size_t) = NULL;
    /* std::terminate tells a C++ program; sanitizers bring a new[] of their own to C programs too. */
    if (dlsym(RTLD_DEFAULT, "_ZSt9terminatev") != NULL) {
        *(void **)&allocate = dlsym(RTLD_DEFAULT, "_Znam");
    }
    return allocate != NULL ? allocate(size) : malloc(size);
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

static void openaclnn_start_once(void)
{
    PyGILState_STATE gil;
    int failed;

    if (!Py_IsInitialized() && openaclnn_boot() != 0) {
        __atomic_store_n(&openaclnn_state, -1, __ATOMIC_RELEASE);
        return;
    }
    gil = PyGILState_Ensure();
    failed = PyRun_SimpleString(OPENACLNN_FIND_PACKAGES);
    /* Before Python 3.12 cffi locks its start with the version tag of this type and aborts where somebody
     * (PyTorch, say) has made the interpreter give it one. Taken back, and nobody can give it anew while
     * we hold the GIL, which cffi does not need to be free since Python runs already. */
    PyType_Modified(&PyCapsule_Type);
    failed = failed != 0 || cffi_start_python() != 0;
    PyGILState_Release(gil);
    __atomic_store_n(&openaclnn_state, failed ? -1 : 1, __ATOMIC_RELEASE);
}

/* 0 when Python is there and connected. Many threads may come at once; the first one does the work. */
CFFI_DLLEXPORT int openaclnn_start(void)
{
    int state = __atomic_load_n(&openaclnn_state, __ATOMIC_ACQUIRE);
    if (state == 0) {
        /* A caller that holds the GIL must let it go while it waits for the thread that starts us. */
        PyThreadState *held = NULL;
        if (Py_IsInitialized() && PyGILState_Check()) {
            held = PyEval_SaveThread();
        }
        pthread_once(&openaclnn_once, openaclnn_start_once);
        if (held != NULL) {
            PyEval_RestoreThread(held);
        }
        state = __atomic_load_n(&openaclnn_state, __ATOMIC_ACQUIRE);
    }
    return state > 0 && Py_IsInitialized() ? 0 : -1; /* no calls once the interpreter is gone */
}
