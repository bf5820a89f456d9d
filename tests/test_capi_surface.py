"""What C programs see beyond the examples: callbacks, versions, logs, C names in messages, sanitizers."""

from __future__ import annotations

import re
import subprocess

import pytest

import openaclnn
from conftest import run_python
from openaclnn import acl
from openaclnn.core import status
from test_capi_tools import compile_program, run_program


def run(tmp_path, text, *extra, suffix=".c", **environment):
    source = tmp_path / f"program{suffix}"
    source.write_text(text)
    return run_program(compile_program(source, tmp_path / "program", *extra), **environment)


CALLBACKS = """
#include "acl/acl.h"
#include <pthread.h>
#include <stdio.h>
static volatile int stopping;
static void *work(void *context) {
    if (aclrtSetCurrentContext(context) != 0) return NULL;
    while (!stopping) aclrtProcessReport(20);
    return NULL;
}
static void note(void *data) {
    aclrtContext context = NULL;
    printf("%d %d\\n", *(int *)data, aclrtGetCurrentContext(&context)); /* may call the runtime */
}
int main(void) {
    pthread_t thread;
    aclrtContext context;
    aclrtStream stream;
    int numbers[3] = {1, 2, 3};
    if (aclInit(NULL) || aclrtSetDevice(0) || aclrtGetCurrentContext(&context)) return 1;
    if (aclrtCreateStream(&stream) || pthread_create(&thread, NULL, work, context)) return 2;
    if (aclrtSubscribeReport((uint64_t)thread, stream)) return 3;
    for (int i = 0; i < 3; i++) {
        if (aclrtLaunchCallback(note, &numbers[i], ACL_CALLBACK_BLOCK, stream)) return 4;
    }
    if (aclrtSynchronizeStream(stream)) return 5;
    puts("synchronized");
    if (aclrtUnSubscribeReport((uint64_t)thread, stream)) return 6;
    stopping = 1;
    pthread_join(thread, NULL);
    return aclFinalize();
}
"""


def test_callbacks_from_c(tmp_path):
    output = run(tmp_path, CALLBACKS, "-std=gnu11")
    assert output.split("\n") == ["1 0", "2 0", "3 0", "synchronized", ""]


SYSTEM = """
#include "acl/acl.h"
#include <stdio.h>
#include <string.h>
int main(void) {
    int32_t major = -1, minor = -1, patch = -1, peer = -1;
    int64_t cores = -1;
    char version[128], runtime[] = "runtime", abacus[] = "abacus";
    memset(version, 'x', sizeof version);
    if (aclInit(NULL) || aclrtSetDevice(0)) return 1;
    if (aclrtGetVersion(&major, &minor, &patch) || aclsysGetVersionStr(runtime, version)) return 2;
    if (aclsysGetVersionStr(abacus, version) == 0 || aclsysGetVersionStr(runtime, NULL) == 0) return 3;
    if (aclGetDeviceCapability(0, ACL_DEVICE_INFO_AI_CORE_NUM, &cores) || cores < 1) return 4;
    if (aclrtDeviceCanAccessPeer(&peer, 0, 0) || aclrtSetOpWaitTimeout(3)) return 5;
    printf("%d.%d %s %d\\n", major, minor < 0 || patch < 0, version, peer);
    return aclFinalize();
}
"""


def test_versions_and_capabilities_from_c(tmp_path):
    assert run(tmp_path, SYSTEM).split() == ["1.0", openaclnn.__version__, "0"]


STATUS_ONLY = r"""
#include "acl/acl.h"
#include "aclnnop/aclnn_elu_backward.h"
#include <stdio.h>
int main(void) {
    uint64_t size;
    aclOpExecutor *executor;
    aclScalar *one;
    float value = 1;
    aclInit(NULL);
    one = aclCreateScalar(&value, ACL_FLOAT);
    printf("ERROR: %d\n", aclnnEluBackwardGetWorkspaceSize(NULL, one, one, one, true, NULL, NULL, &size, &executor));
    printf("ERROR: %d\n", aclrtFree(NULL));
    puts("end");
    aclDestroyScalar(one);
    return aclFinalize();
}
"""

TOLD = "aclnnEluBackward: gradOutput: expected a tensor, got null [161001 ACLNN_ERR_PARAM_NULLPTR]"
FREED = "aclrtFree: devPtr: expected "


@pytest.fixture(scope="module")
def status_only(tmp_path_factory):
    folder = tmp_path_factory.mktemp("status")
    (folder / "program.c").write_text(STATUS_ONLY)
    return compile_program(folder / "program.c", folder / "program")


def test_the_log_on_stdout(status_only):
    """In the toolkit's form, between the program's own lines, though those are buffered."""
    lines = run_program(status_only, ASCEND_SLOG_PRINT_TO_STDOUT="1").splitlines()
    assert [lines[1], *lines[3:]] == ["ERROR: 161001", "ERROR: 100000", "end"]
    form = r"\[ERROR\] {}\(\d+,program\):\d{{4}}-\d\d-\d\d-\d\d:\d\d:\d\d\.\d{{3}}\.\d{{3}} \[openaclnn\]\d+ (.*)"
    operator, runtime = (
        re.fullmatch(form.format(m), lines[i]) for m, i in (("OP", 0), ("RUNTIME", 2))
    )
    assert operator[1] == TOLD
    assert runtime[1].startswith(FREED)


def test_no_log_where_none_is_wanted(status_only):
    wanted = {"ASCEND_SLOG_PRINT_TO_STDOUT": "1", "ASCEND_GLOBAL_LOG_LEVEL": "4"}
    output = run_program(status_only, **wanted)
    assert output.splitlines() == ["ERROR: 161001", "ERROR: 100000", "end"]


@pytest.mark.parametrize(
    ("prints", "level", "lines"),
    [(None, None, 0), ("0", None, 0), (None, "0", 0), ("1", "4", 0), *(("1", level, 1) for level in (None, "0", "3", "junk", ""))],
)  # fmt: skip
def test_levels_that_let_errors_through(monkeypatch, capfd, prints, level, lines):
    for name, value in {"SLOG_PRINT_TO_STDOUT": prints, "GLOBAL_LOG_LEVEL": level}.items():
        if value is not None:
            monkeypatch.setenv(f"ASCEND_{name}", value)
    status._wanted.cache_clear()
    try:
        assert acl.aclrtFree(None) == 100000
    finally:
        monkeypatch.undo()
        status._wanted.cache_clear()
    assert capfd.readouterr().out.count("[ERROR]") == lines


def test_refusals_explained_on_stderr(status_only):
    done = subprocess.run(
        [status_only], env={"OPENACLNN_EXPLAIN": "1"}, cwd="/", capture_output=True, text=True, check=True
    )  # fmt: skip
    assert done.stdout.splitlines() == ["ERROR: 161001", "ERROR: 100000", "end"]
    told, rule, freed = done.stderr.splitlines()
    check = openaclnn.find_operator("elu_backward").checks[1]
    assert told == f"openaclnn: {TOLD}"
    assert rule == f"  rule {check.number}: {check.rule}"
    assert freed.startswith(f"openaclnn: {FREED}")


def test_python_calls_are_told_as_well():
    code = (
        "from openaclnn import acl, aclnn\n"
        "print('before', end=' ')\n"
        "print(aclnn.aclnnEluBackwardGetWorkspaceSize(None, 1.0, 1.0, 1.0, True, None, None)[0])\n"
        "print(acl.aclrtFree(None))"
    )
    done = run_python(code, ASCEND_SLOG_PRINT_TO_STDOUT="1", OPENACLNN_EXPLAIN="1")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("before [ERROR] OP(")
    assert [lines[1], lines[3]] == ["161001", "100000"]
    assert done.stderr.splitlines()[0] == f"openaclnn: {TOLD}"
