"""What C programs see beyond the examples: callbacks, versions, logs, C names in messages, sanitizers."""

from __future__ import annotations

import openaclnn
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
