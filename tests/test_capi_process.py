"""The library inside a C program: its signals, forks, threads, stacks and Pythons are the program's own."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from openaclnn.capi.build import find_toolchain
from test_capi_tools import CACHE, ROOT, compile_program, installed

SECONDS = 120  # for programs that take two: what hangs, fails

START = """
#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "aclnnop/aclnn_elu_backward.h"
#include "aclnnop/aclnn_l1_loss_backward.h"
#include "support.h"

static const int64_t SMALL = 16, LARGE = 1 << 20;

/* The gradient of ELU over n ones, which are ones again; 0 where all went well. */
static inline int elu(aclrtStream stream, int64_t n)
{
    float one = 1, *values = malloc(n * sizeof(float));
    void *data = NULL;
    uint64_t size = 0;
    aclOpExecutor *executor = NULL;
    int wrong = 0;
    for (int64_t i = 0; i < n; i++) values[i] = 1;
    aclTensor *gradient = tensor(values, n * sizeof(float), ACL_FLOAT, &n, 1);
    aclTensor *self = tensor(values, n * sizeof(float), ACL_FLOAT, &n, 1);
    memset(values, 0, n * sizeof(float));
    aclTensor *out = tensor(values, n * sizeof(float), ACL_FLOAT, &n, 1);
    aclScalar *scalar = aclCreateScalar(&one, ACL_FLOAT);
    CHECK(aclnnEluBackwardGetWorkspaceSize(
        gradient, scalar, scalar, scalar, false, self, out, &size, &executor));
    CHECK(aclnnEluBackward(NULL, 0, executor, stream));
    CHECK(aclrtSynchronizeStream(stream));
    CHECK(aclGetRawTensorAddr(out, &data));
    CHECK(aclrtMemcpy(
        values, n * sizeof(float), data, n * sizeof(float), ACL_MEMCPY_DEVICE_TO_HOST));
    for (int64_t i = 0; i < n; i++) wrong += values[i] != 1;
    CHECK(aclDestroyScalar(scalar));
    release(gradient), release(self), release(out);
    free(values);
    return wrong;
}

/* The gradient of L1 over a transposed matrix, whose tiles are copied. */
static inline void turned(aclrtStream stream)
{
    const int64_t side = 300, shape[2] = {side, side}, strides[2] = {1, side};
    float *values = calloc(side * side, sizeof(float));
    uint64_t size = 0;
    aclOpExecutor *executor = NULL;
    void *data = to_device(values, side * side * sizeof(float));
    aclTensor *self = tensor(values, side * side * sizeof(float), ACL_FLOAT, shape, 2);
    aclTensor *out = tensor(values, side * side * sizeof(float), ACL_FLOAT, shape, 2);
    aclTensor *other =
        aclCreateTensor(shape, 2, ACL_FLOAT, strides, 0, ACL_FORMAT_ND, shape, 2, data);
    CHECK(aclnnL1LossBackwardGetWorkspaceSize(self, self, other, 0, out, &size, &executor));
    CHECK(aclnnL1LossBackward(NULL, 0, executor, stream));
    CHECK(aclrtSynchronizeStream(stream));
    release(self), release(out), release(other);
    free(values);
}

/* The same in a thread that has nothing yet. */
static inline void *both(void *unused)
{
    aclrtStream stream = NULL;
    (void)unused;
    CHECK(aclrtSetDevice(0));
    CHECK(aclrtCreateStream(&stream));
    if (elu(stream, SMALL) || elu(stream, LARGE)) exit(7);
    turned(stream);
    CHECK(aclrtDestroyStream(stream));
    return NULL;
}

static inline const char *message(void)
{
    const char *text = aclGetRecentErrMsg();
    return text != NULL ? text : "none";
}
"""


def build(folder: Path, body: str, *flags: str) -> Path:
    (folder / "program.c").write_text(START + body)
    return compile_program(
        folder / "program.c", folder / "program", f"-I{ROOT}/examples/c", "-std=gnu11", *flags
    )


def run(
    program: Path,
    *before: str,
    status: int = 0,
    cache: Path | None = None,
    arguments: tuple[str, ...] = (),
) -> str:
    """Its output, if it ends in time, with this status; kernels that another program has compiled are there, unless it is told
    where to keep them."""
    environment = {"OPENACLNN_NUM_THREADS": "2", "OPENACLNN_CACHE_DIR": str(cache or CACHE)}
    done = subprocess.run(
        [*before, str(program), *arguments], capture_output=True, text=True, timeout=SECONDS,
        cwd=program.parent, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    assert done.stderr == ""
    return done.stdout.strip()


# --- signals ------------------------------------------------------------------------------------------------

SIGNALS = """
int main(void)
{
    struct sigaction before[65], after;
    for (int i = 1; i < 65; i++) sigaction(i, NULL, &before[i]);
    aclrtStream stream = start();
    if (elu(stream, SMALL) || elu(stream, LARGE)) return 7;
    for (int i = 1; i < 65; i++) {
        sigaction(i, NULL, &after);
        if (after.sa_handler != before[i].sa_handler) printf("%d ", i);
    }
    printf("untouched\\n");
    fflush(stdout);
    kill(getpid(), SIGINT);
    for (int i = 0; i < 1000; i++) CHECK(aclrtSetDevice(0));
    return 0;
}
"""


def test_signals_are_the_programs(tmp_path: Path) -> None:
    """No disposition changes, and an interrupt ends a program that has none of its own."""
    assert run(build(tmp_path, SIGNALS), status=-signal.SIGINT) == "untouched"


EXCEPTIONS = """
import ctypes, sys
from openaclnn import acl
from openaclnn.capi import bridge

def raising(kind):
    def function(*arguments):
        raise kind("on the way")
    return function

names = ("aclrtSetDevice", "aclrtResetDevice", "aclrtSynchronizeDevice", "aclFinalize", "aclrtSetCurrentContext")
kinds = (KeyboardInterrupt, SystemExit, MemoryError, GeneratorExit, RecursionError)
for name, kind in zip(names, kinds):
    setattr(acl, name, raising(kind))
library = ctypes.CDLL(sys.argv[1])
library.aclGetRecentErrMsg.restype = ctypes.c_char_p
assert library.aclInit(None) == 0
for late in (False, True):
    if late:  # the failure fails too: what nobody can catch
        def fail(name, error):
            raise MemoryError
        bridge.fail_inside = fail
    for name, kind in zip(names, kinds):
        try:
            status = None
            status = getattr(library, name)(0)
            came = None
        except KeyboardInterrupt:
            came = "again"
        text = (library.aclGetRecentErrMsg() or b"").decode()
        assert came or status not in (0, None), (name, status)
        assert came == ("again" if kind is KeyboardInterrupt and not late else None), (kind, came)
        if not late:
            assert f"{name}: call: expected to finish, got {kind.__name__}" in text, text
print("done")
"""


def test_no_exception_is_a_success() -> None:
    """Whatever is raised inside, C sees a status; an interrupt is raised again where Python called C."""
    done = subprocess.run(
        [sys.executable, "-c", EXCEPTIONS, str(installed().library())],
        capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip()) == (0, "done"), done.stderr


# --- forks --------------------------------------------------------------------------------------------------

FORKS = """
static volatile int stop;

static void *busy(void *unused)
{
    (void)unused;
    while (!stop) both(NULL);
    return NULL;
}

static int child_works(aclrtStream stream)
{
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        alarm(60);
        if (elu(stream, SMALL) || elu(stream, LARGE)) _exit(7);
        if (pthread_create(&thread, NULL, both, NULL) || pthread_join(thread, NULL)) _exit(8);
        pid_t grandchild = fork();
        if (grandchild == 0) _exit(elu(stream, LARGE) != 0);
        if (waitpid(grandchild, &status, 0) != grandchild || status != 0) _exit(9);
        _exit(0);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

int main(void)
{
    pthread_t threads[2];
    int good = 0;
    aclrtStream stream = start();
    if (elu(stream, LARGE)) return 7;
    printf("%d ", child_works(stream));
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, busy, NULL);
    for (int i = 0; i < 5; i++) {
        usleep(2000 * i);
        good += child_works(stream);
    }
    stop = 1;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    printf("%d %d\\n", good, elu(stream, LARGE));
    finish(stream);
    return 0;
}
"""


def test_a_child_works(tmp_path: Path) -> None:
    """After a large operator, whose threads are the parent's, and while other threads are inside."""
    assert run(build(tmp_path, FORKS)) == "1 5 0"


FIRST_CALLS = """
static void *first(void *stream)
{
    if (aclrtSetDevice(0)) return stream;
    return (void *)(long)elu(stream, SMALL);
}

int main(int count, char **words)
{
    pthread_t thread;
    void *failed;
    int status = -1;
    aclrtStream stream = start();
    pthread_create(&thread, NULL, first, stream);
    usleep(count > 1 ? 1000 * atoi(words[1]) : 0);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        _exit(elu(stream, SMALL));
    }
    waitpid(child, &status, 0);
    pthread_join(thread, &failed);
    printf("%d %d\\n", status, failed != NULL);
    finish(stream);
    return 0;
}
"""


def test_a_child_works_whose_parent_makes_its_first_call(tmp_path: Path) -> None:
    program = build(tmp_path, FIRST_CALLS)
    for delay in (10, 150):
        cache = tmp_path / str(delay)
        assert run(program, cache=cache, arguments=(str(delay),)) == "0 0"


RAW = """
import ctypes, os, sys
library, libc, raw = ctypes.CDLL(sys.argv[1]), ctypes.CDLL(None), ctypes.PyDLL(None)
library.aclGetRecentErrMsg.restype = ctypes.c_char_p
assert library.aclInit(None) == 0
for fork in (os.fork, libc.fork, raw.fork):  # Python's, C's, and one behind Python's back
    child = fork()
    if child == 0:
        status = library.aclrtSetDevice(0)
        text = (library.aclGetRecentErrMsg() or b"").decode()
        print(status, "in the middle of Python code" in text, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    assert library.aclrtSetDevice(0) == 0
"""


def test_who_forks() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", RAW, str(installed().library())],
        capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["0 False", "0 False", "500000 True"], done.stderr


CLOSED = """
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **names)
{
    for (int i = 0; i < 2 && count > 1; i++) {
        void *library = dlopen(names[1], RTLD_NOW | RTLD_LOCAL);
        int32_t (*set)(int32_t);
        *(void **)&set = dlsym(library, "aclrtSetDevice");
        printf("%d ", (int)set(0));
        fflush(stdout);
        dlclose(library);
        if (fork() == 0) _exit(0);
        wait(NULL);
    }
    printf("done\\n");
    return 0;
}
"""


def test_a_library_that_is_closed(tmp_path: Path) -> None:
    """What Python, and every later fork, calls in it stays."""
    (tmp_path / "closed.c").write_text(CLOSED)
    program = str(tmp_path / "closed")
    subprocess.run(["cc", str(tmp_path / "closed.c"), "-ldl", "-o", program], check=True)
    done = subprocess.run(
        [program, str(installed().library())], capture_output=True, text=True, timeout=SECONDS,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "0 0 done\n"), done.stderr


# --- contexts -----------------------------------------------------------------------------------------------

CONTEXTS = """
static void *without(void *stream)
{
    float one = 1;
    uint64_t size = 0;
    aclOpExecutor *executor = NULL;
    aclScalar *scalar = aclCreateScalar(&one, ACL_FLOAT);
    const int64_t none = 0;
    aclTensor *empty = aclCreateTensor(&none, 1, ACL_FLOAT, NULL, 0, ACL_FORMAT_ND, &none, 1, NULL);
    aclrtStreamStatus status;
    for (int i = 0; i < 2; i++, stream = NULL) {
        CHECK(aclnnEluBackwardGetWorkspaceSize(
            empty, scalar, scalar, scalar, false, empty, empty, &size, &executor));
        printf("%d ", (int)aclnnEluBackward(NULL, 0, executor, stream));
        printf("%d ", (int)aclrtSynchronizeStream(stream));
        printf("%d ", (int)aclrtStreamQuery(stream, &status));
        printf("%d ", (int)aclrtDestroyStream(stream));
    }
    printf("%d\\n", strstr(message(), "expected a thread that called aclrtSetDevice") != NULL);
    return NULL;
}

int main(void)
{
    pthread_t thread;
    aclrtStream stream = start();
    pthread_create(&thread, NULL, without, stream);
    pthread_join(thread, NULL);
    finish(stream);
    return 0;
}
"""


def test_a_thread_without_a_context_uses_no_stream(tmp_path: Path) -> None:
    """Neither one of another context nor a default one: it has none."""
    no_context = "361001 107002 107002"
    expected = f"{no_context} 107002 {no_context} 100000 1"
    assert run(build(tmp_path, CONTEXTS)) == expected


# --- the end ------------------------------------------------------------------------------------------------

ENDS = """
static void *compiles(void *unused)
{
    both(NULL);
    return unused;
}

int main(int count, char **milliseconds)
{
    pthread_t thread;
    start();
    pthread_create(&thread, NULL, compiles, NULL);
    usleep(1000 * atoi(milliseconds[count - 1]));
    return 5;
}
"""


def test_a_program_may_end_while_a_thread_compiles(tmp_path: Path) -> None:
    """What exit() takes away from under LLVM, it takes when LLVM is done."""
    program = build(tmp_path, ENDS)
    for wait in (60, 110, 160, 220):
        cache = tmp_path / f"cold-{wait}"
        run(program, status=5, cache=cache, arguments=(str(wait),))


# --- other Pythons ------------------------------------------------------------------------------------------

OTHER = """
/* As the loader resolves them where the program, or what it links, brought a Python of its own. */
const char *Py_GetVersion(void) { return "3.4.10 (another one)"; }
int Py_IsInitialized(void) { abort(); }
void *PyGILState_GetThisThreadState(void) { abort(); }

int main(void)
{
    printf("%d ", (int)aclInit(NULL));
    printf("%s\\n", message());
    printf("%d ", (int)aclrtSetDevice(0));
    printf("%s\\n", message());
    printf("%d ", aclCreateTensorList(NULL, 0) == NULL);
    printf("%s\\n", message());
    printf("%s\\n", message());
    return 0;
}
"""


def test_another_python_is_left_alone(tmp_path: Path) -> None:
    lines = run(build(tmp_path, OTHER, "-rdynamic")).splitlines()
    built = ".".join(map(str, sys.version_info[:2]))
    reason = f"expected Python {built}, for which this library was built, got a process that has Python 3.4.10"
    assert lines[0].startswith("500000 [PID: ")
    assert lines[0].endswith(
        f"Runtime_Error(EE9999): aclInit: process: {reason} [500000 ACL_ERROR_INTERNAL_ERROR]"
    )
    for line, name in zip(lines[1:3], ("aclrtSetDevice", "aclCreateTensorList"), strict=True):
        assert f"{name}: process: {reason}" in line
    assert [line.split()[0] for line in lines] == ["500000", "500000", "1", "none"]


HOST = """
#include <Python.h>

static void try(const char *when)
{
    int32_t status = aclrtSetDevice(0);
    const char *text = message(), *process = strstr(text, "process: ");
    printf("%s: %d %s\\n", when, (int)status, process != NULL ? process : text);
}

int main(void)
{
    PyThreadState *first, *second;
    setvbuf(stdout, NULL, _IONBF, 0);
    Py_Initialize();
    try("first");
    first = PyThreadState_Get();
    second = Py_NewInterpreter();
    try("inside another");
    PyEval_SaveThread();
    try("inside another, unlocked");
    PyEval_RestoreThread(second);
    Py_EndInterpreter(second);
    PyThreadState_Swap(first);
    try("back");
    Py_FinalizeEx();
    try("ended");
    Py_Initialize();
    try("started again");
    PyRun_SimpleString("print('and works', flush=True)");
    return 0;
}
"""


def python_flags() -> list[str]:
    toolchain = find_toolchain()
    return [flag.replace("-I", "-isystem", 1) for flag in toolchain.includes] + list(toolchain.link)


def test_a_host_that_ends_python_or_has_several(tmp_path: Path) -> None:
    lines = run(build(tmp_path, HOST, *python_flags())).splitlines()
    another = "process: expected a call from the main interpreter, got one from another"
    ended = "process: expected a running Python, got one that has ended"
    status = "[500000 ACL_ERROR_INTERNAL_ERROR]"
    # A thread that let its interpreter go is the main one's to Python 3.11, and the other's to later ones.
    assert lines.pop(2).partition(": ")[2] in (f"500000 {another} {status}", "0 none")
    assert lines == [
        "first: 0 none", f"inside another: 500000 {another} {status}", "back: 0 none",
        f"ended: 500000 {ended} {status}", f"started again: 500000 {ended} {status}", "and works",
    ]  # fmt: skip


PATHS = """
#include <Python.h>

int main(void)
{
    Py_Initialize();
    PyRun_SimpleString(
        "import sys\\n"
        "sys.path[:] = [p for p in sys.path if not p.endswith('site-packages')]\\n"
        "sys.stderr = open('/dev/null', 'w')\\n"
        "sys.modules['openaclnn.capi.bridge'] = None\\n" /* cannot be imported */
        "before = list(sys.path)\\n"
        "names = set(globals())\\n");
    printf("%d ", (int)aclInit(NULL));
    printf("%s\\n", strstr(message(), "process: "));
    fflush(stdout);
    PyRun_SimpleString("print(sys.path == before, set(globals()) - names - {'names'}, flush=True)");
    return 0;
}
"""


def test_a_start_that_fails_leaves_the_path(tmp_path: Path) -> None:
    lines = run(build(tmp_path, PATHS, *python_flags())).splitlines()
    assert lines[0].startswith("500000 process: expected a Python that starts, got ")
    assert lines[1] == "True set()"


# --- threads ------------------------------------------------------------------------------------------------

CANCELLED = """
static int kind;
static volatile int entered;

static void *endless(void *unused)
{
    (void)unused;
    aclrtStream stream = NULL;
    pthread_setcanceltype(kind, NULL);
    CHECK(aclrtSetDevice(0));
    CHECK(aclrtCreateStream(&stream));
    for (;;) {
        entered = 1;
        for (int i = 0; i < 50; i++) CHECK(aclrtSynchronizeStream(stream));
        pthread_testcancel();
    }
    return NULL;
}

int main(void)
{
    const int kinds[] = {PTHREAD_CANCEL_DEFERRED, PTHREAD_CANCEL_ASYNCHRONOUS};
    int cancelled = 0;
    aclrtStream stream = start();
    for (int i = 0; i < 16; i++) {
        pthread_t thread;
        kind = kinds[i % 2];
        entered = 0;
        pthread_create(&thread, NULL, endless, NULL);
        while (!entered) usleep(100);
        usleep(337 * i);
        pthread_cancel(thread);
        cancelled += pthread_join(thread, NULL) == 0; /* it never returns by itself */
        if (elu(stream, SMALL)) return 7;
    }
    printf("%d\\n", cancelled);
    finish(stream);
    return 0;
}
"""


def test_a_cancelled_thread_leaves_first(tmp_path: Path) -> None:
    assert run(build(tmp_path, CANCELLED)) == "16"


STACKS = """
#include <alloca.h>

static void *little(void *unused)
{
    (void)unused;
    int32_t status = aclrtSetDevice(0);
    printf("%d %s\\n", (int)status, strstr(message(), "process: "));
    return NULL;
}

static size_t taken;

static void *deep(void *unused) /* the least stack that a C library gives may be 128 KiB */
{
    volatile char *below = alloca(taken);
    below[0] = 1;
    return little(unused);
}

static void on(size_t size, void *(*work)(void *))
{
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    if (pthread_attr_setstacksize(&attributes, size)) exit(7);
    if (pthread_create(&thread, &attributes, work, NULL) || pthread_join(thread, NULL)) exit(8);
}

static void *first(void *unused)
{
    (void)unused;
    CHECK(aclInit(NULL));
    return both(NULL);
}

int main(void)
{
    for (taken = 96 << 10; taken; taken = taken > 64 << 10 ? 64 << 10 : 0) on(128 << 10, deep);
    on(128 << 10, first);
    on(128 << 10, both);
    printf("done\\n");
    return 0;
}
"""


def test_small_stacks(tmp_path: Path) -> None:
    """Everything for the first time in a thread of 128 KiB, with nothing in the cache of compiled code."""
    lines = run(build(tmp_path, STACKS), cache=tmp_path / "fresh").splitlines()
    refused = "500000 process: expected 96 KiB of stack, got a thread with "
    assert [line[: len(refused)] for line in lines] == [refused, refused, "done"]


ALL = "int main(void) { CHECK(aclInit(NULL)); both(NULL); return 0; }"


def test_a_process_with_small_stacks(tmp_path: Path) -> None:
    limited = ("sh", "-c", 'ulimit -s 128; exec "$0"')
    run(build(tmp_path, ALL), *limited, cache=tmp_path / "fresh")


FLUSHED = """
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif
#include <fenv.h>

static unsigned bits_of_all(aclrtStream stream, int64_t n, double alpha)
{
    float *values = malloc(n * sizeof(float)), scale = 0.1f;
    unsigned sum = 0, one;
    void *data = NULL;
    uint64_t size = 0;
    aclOpExecutor *executor = NULL;
    for (int64_t i = 0; i < n; i++) values[i] = -1 - (i % 977) / 1024.0f; /* exact */
    aclTensor *self = tensor(values, n * sizeof(float), ACL_FLOAT, &n, 1);
    for (int64_t i = 0; i < n; i++) values[i] = i % 2 ? 3e-38f : 0.3f;
    aclTensor *gradient = tensor(values, n * sizeof(float), ACL_FLOAT, &n, 1);
    aclTensor *out = tensor(values, n * sizeof(float), ACL_FLOAT, &n, 1);
    aclScalar *a = aclCreateScalar(&alpha, ACL_DOUBLE), *s = aclCreateScalar(&scale, ACL_FLOAT);
    CHECK(aclnnEluBackwardGetWorkspaceSize(gradient, a, s, s, false, self, out, &size, &executor));
    CHECK(aclnnEluBackward(NULL, 0, executor, stream));
    CHECK(aclrtSynchronizeStream(stream));
    CHECK(aclGetRawTensorAddr(out, &data));
    CHECK(aclrtMemcpy(
        values, n * sizeof(float), data, n * sizeof(float), ACL_MEMCPY_DEVICE_TO_HOST));
    for (int64_t i = 0; i < n; i++) {
        memcpy(&one, &values[i], sizeof one);
        sum = sum * 31 + one;
    }
    CHECK(aclDestroyScalar(a));
    CHECK(aclDestroyScalar(s));
    release(gradient), release(self), release(out);
    free(values);
    return sum;
}

int main(int count, char **roundings)
{
    const int64_t sizes[] = {1, 1000, 1 << 20};
    int rounding = count > 1 ? atoi(roundings[1]) ? FE_UPWARD : FE_TOWARDZERO : FE_TONEAREST;
    fesetround(rounding);
    aclrtStream stream = start();
    for (int i = 0; i < 3; i++) printf("%u ", bits_of_all(stream, sizes[i], 0.7));
    if (fegetround() != rounding) return 9;
#if defined(__x86_64__) && defined(__FAST_MATH__)
    if (!(_mm_getcsr() & 0x8000)) return 9;
#endif
    finish(stream);
    return 0;
}
"""


def test_the_programs_arithmetic_is_not_ours(tmp_path: Path) -> None:
    """Flushed subnormals and other roundings change no bit of a result, and are there again afterwards."""
    program = build(tmp_path, FLUSHED, "-lm")
    answers = [run(program, arguments=rounding) for rounding in ((), ("0",), ("1",))]
    answers.append(run(build(tmp_path, FLUSHED, "-ffast-math", "-lm")))
    assert len(set(answers)) == 1, answers
    assert len(set(answers[0].split())) == 3
