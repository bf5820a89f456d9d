/* A fork() from C, which Python does not hear of: what os.fork does before and after it is done here, so
 * that the child has its interpreter, and what was registered with os.register_at_fork runs. */

/* What the forking thread found, for itself after the fork. */
enum { NOTHING_TO_DO, OURS_TO_DO, CHILD_IS_LOST };
static __thread int openaclnn_fork_way;
static __thread PyGILState_STATE openaclnn_fork_lock;
static __thread int openaclnn_python_forks; /* between os.fork's own hooks */

#if PY_VERSION_HEX < 0x030D0000
#define Py_IsFinalizing _Py_IsFinalizing
#endif

static void openaclnn_before_fork(void)
{
    int state, starting = __atomic_load_n(&openaclnn_has_starter, __ATOMIC_ACQUIRE);
    int held = Py_IsInitialized() && openaclnn_holds_lock();

    openaclnn_fork_way = NOTHING_TO_DO;
    if (starting && !held && !pthread_equal(openaclnn_starter, pthread_self())) {
        pthread_mutex_lock(&openaclnn_starting); /* half an interpreter is none */
        pthread_mutex_unlock(&openaclnn_starting);
        starting = 0;
    }
    state = __atomic_load_n(&openaclnn_state, __ATOMIC_ACQUIRE);
    if (starting) {
        openaclnn_fork_way = CHILD_IS_LOST;
    } else if (state == RUNNING && Py_IsInitialized() && !openaclnn_python_forks) {
        if (held || openaclnn_in_subinterpreter() || Py_IsFinalizing()) {
            openaclnn_fork_way = CHILD_IS_LOST; /* in the middle of Python: nobody can make it whole */
        } else {
            openaclnn_fork_lock = PyGILState_Ensure();
            PyOS_BeforeFork();
            openaclnn_fork_way = OURS_TO_DO;
        }
    }
}

static void openaclnn_in_parent(void)
{
    if (openaclnn_fork_way == OURS_TO_DO) {
        PyOS_AfterFork_Parent();
        PyGILState_Release(openaclnn_fork_lock);
    }
}

static void openaclnn_in_child(void)
{
    if (openaclnn_fork_way == OURS_TO_DO) {
        PyOS_AfterFork_Child();
        PyGILState_Release(openaclnn_fork_lock);
    } else if (openaclnn_fork_way == CHILD_IS_LOST) {
        openaclnn_set_state(FORKED);
    }
}

static PyObject *openaclnn_fork_begins(PyObject *self, PyObject *none)
{
    (void)self, (void)none;
    openaclnn_python_forks = 1;
    Py_RETURN_NONE;
}

static PyObject *openaclnn_fork_is_over(PyObject *self, PyObject *none)
{
    (void)self, (void)none;
    openaclnn_python_forks = 0;
    Py_RETURN_NONE;
}

static PyMethodDef openaclnn_fork_hooks[] = {
    {"fork_begins", openaclnn_fork_begins, METH_NOARGS, NULL},
    {"fork_is_over", openaclnn_fork_is_over, METH_NOARGS, NULL},
};

/* Let os.fork tell us that it does all this itself. */
static int openaclnn_hear_of_forks(void)
{
    PyObject *begins = PyCFunction_New(&openaclnn_fork_hooks[0], NULL);
    PyObject *over = PyCFunction_New(&openaclnn_fork_hooks[1], NULL);
    PyObject *os = PyImport_ImportModule("os"), *nothing = PyTuple_New(0), *done = NULL;
    PyObject *hooks = begins == NULL || over == NULL
                          ? NULL
                          : Py_BuildValue("{sOsOsO}", "before", begins, "after_in_parent", over,
                                          "after_in_child", over);
    PyObject *enter = os == NULL ? NULL : PyObject_GetAttrString(os, "register_at_fork");

    if (enter != NULL && nothing != NULL && hooks != NULL) {
        done = PyObject_Call(enter, nothing, hooks);
    }
    if (done == NULL) {
        PyErr_WriteUnraisable(NULL);
    }
    Py_XDECREF(begins), Py_XDECREF(over), Py_XDECREF(os), Py_XDECREF(nothing);
    Py_XDECREF(hooks), Py_XDECREF(enter), Py_XDECREF(done);
    return done != NULL ? 0 : -1;
}
