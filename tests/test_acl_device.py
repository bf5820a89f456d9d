"""Devices, contexts, determinism options."""

import threading

import pytest

from openaclnn import acl, runtime


@pytest.fixture(autouse=True)
def fresh():
    acl.aclInit(None)
    acl.aclFinalize()
    yield
    acl.aclInit(None)
    acl.aclFinalize()
    acl.aclGetRecentErrMsg()


def in_thread(function):
    results = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    return results[0]


def test_a_thread_without_context():
    assert acl.aclrtGetDevice() == (107002, 0)
    assert acl.aclrtGetCurrentContext() == (107002, None)
    assert acl.aclrtCreateStream() == (107002, None)
    assert acl.aclrtCreateEvent() == (107002, None)
    assert acl.aclrtMalloc(1) == (107002, 0)
    assert acl.aclrtGetMemInfo(acl.ACL_HBM_MEM) == (107002, (0, 0))
    assert acl.aclrtSynchronizeDevice() == 107002
    assert acl.aclrtCtxSetSysParamOpt(0, 1) == 107002
    assert acl.aclrtCtxGetSysParamOpt(0) == (107002, 0)
    assert "aclrtSetDevice" in acl.aclGetRecentErrMsg()


def test_plain_python_needs_no_setup():
    stream = runtime.current_stream(None)
    ran = []
    stream.submit(lambda: ran.append(1))
    assert acl.aclrtSynchronizeStream(None) == 0
    assert ran == [1]
    assert in_thread(lambda: runtime.current_stream(None)) is stream
    assert acl.aclrtGetDevice() == (107002, 0), "an implicit context binds nothing"
    assert acl.aclrtSetDevice(0) == 0
    assert runtime.current_stream(None) is stream


@pytest.mark.parametrize("device", [-1, 1, 2**40, "0", None, 0.0])
def test_invalid_device(device):
    assert acl.aclrtSetDevice(device) == 107001
    assert acl.aclrtResetDevice(device) == 107001
    assert acl.aclrtResetDeviceForce(device) == 107001
    assert acl.aclrtCreateContext(device) == (107001, None)


def test_queries():
    assert acl.aclrtGetDeviceCount() == (0, 1)
    assert acl.aclrtGetRunMode() == (0, acl.ACL_HOST)
    assert acl.aclrtSetDevice(0) == 0
    assert acl.aclrtGetDevice() == (0, 0)
    assert isinstance(acl.aclrtGetSocName(), str)


def test_set_device_is_counted_and_threads_share_the_default_context():
    assert acl.aclrtSetDevice(0) == 0
    status, context = acl.aclrtGetCurrentContext()
    assert status == 0

    def other():
        assert acl.aclrtGetDevice()[0] == 107002
        acl.aclrtSetDevice(0)
        return acl.aclrtGetCurrentContext()[1]

    assert in_thread(other) is context
    assert acl.aclrtResetDevice(0) == 0
    assert acl.aclrtGetDevice() == (0, 0), "the other thread's use keeps the device"
    assert acl.aclrtResetDevice(0) == 0
    assert acl.aclrtGetDevice() == (107002, 0)
    assert acl.aclrtResetDevice(0) == 107002


def test_force_resets_irrespective_of_the_count():
    for _ in range(3):
        assert acl.aclrtSetDevice(0) == 0
    _, stream = acl.aclrtCreateStream()
    _, event = acl.aclrtCreateEvent()
    _, pointer = acl.aclrtMalloc(8)
    _, pinned = acl.aclrtMallocHost(8)
    assert acl.aclrtResetDeviceForce(0) == 0
    assert acl.aclrtGetDevice()[0] == 107002
    assert acl.aclrtSetDevice(0) == 0
    assert acl.aclrtSynchronizeStream(stream) == 107017
    assert acl.aclrtSynchronizeEvent(event) == 107017
    assert acl.aclrtFree(pointer) == 107000
    assert acl.aclrtFreeHost(pinned) == 0, "host memory is not the device's"


def test_reset_waits_for_tasks():
    acl.aclrtSetDevice(0)
    go, ran = threading.Event(), []
    runtime.current_stream(None).submit(lambda: (go.wait(), ran.append(1)))
    threading.Timer(0.05, go.set).start()
    assert acl.aclrtResetDevice(0) == 0
    assert ran == [1]


def test_reset_reports_what_nobody_synchronised():
    acl.aclrtSetDevice(0)
    runtime.current_stream(None).submit(lambda: 1 / 0)
    assert acl.aclrtResetDevice(0) == 507015
    assert "ZeroDivisionError" in acl.aclGetRecentErrMsg()
    assert acl.aclrtGetDevice()[0] == 107002


def test_contexts():
    acl.aclrtSetDevice(0)
    _, default = acl.aclrtGetCurrentContext()
    status, context = acl.aclrtCreateContext(0)
    assert status == 0
    assert acl.aclrtGetCurrentContext() == (0, context)
    assert acl.aclrtGetDevice() == (0, 0)
    _, stream = acl.aclrtCreateStream()
    assert acl.aclrtSetCurrentContext(default) == 0
    for refused in (
        acl.aclrtSynchronizeStream(stream),
        acl.aclrtDestroyStream(stream),
        acl.aclrtDestroyStreamForce(stream),
        acl.aclrtStreamQuery(stream)[0],
        acl.aclrtMemsetAsync(acl.aclrtMalloc(8)[1], 8, 0, 8, stream),
    ):
        assert refused == 107003
    with pytest.raises(runtime.AclFailure) as failure:
        runtime.current_stream(stream)
    assert failure.value.code == 107003
    assert in_thread(lambda: acl.aclrtSynchronizeStream(stream)) == 107003
    assert acl.aclrtDestroyContext(default) == 107000
    assert acl.aclrtDestroyContext(context) == 0
    assert acl.aclrtDestroyContext(context) == 107017
    assert acl.aclrtSetCurrentContext(context) == 107017
    assert acl.aclrtSynchronizeStream(stream) == 107017


def test_destroying_the_current_context_leaves_none():
    _, context = acl.aclrtCreateContext(0)
    assert acl.aclrtDestroyContext(context) == 0
    assert acl.aclrtGetCurrentContext() == (107002, None)


@pytest.mark.parametrize("function", [acl.aclrtDestroyContext, acl.aclrtSetCurrentContext])
def test_context_handles(function):
    assert function(None) == 100000
    assert function(0) == 100000
    for garbage in (1234, "context", object(), runtime.current_stream(None)):
        assert function(garbage) == 107017


def test_synchronize_device_waits_for_every_stream_and_reports():
    acl.aclrtSetDevice(0)
    go, ran = threading.Event(), []
    streams = [acl.aclrtCreateStream()[1] for _ in range(3)]
    for stream in [*streams, runtime.current_stream(None)]:
        stream.submit(lambda: (go.wait(), ran.append(1)))
    assert acl.aclrtSynchronizeDeviceWithTimeout(0) == 507046
    assert acl.aclrtSynchronizeDeviceWithTimeout(20) == 507046
    assert acl.aclrtSynchronizeDeviceWithTimeout(-2) == 107000
    assert acl.aclrtSynchronizeDeviceWithTimeout("soon") == 107000
    assert ran == []
    go.set()
    assert acl.aclrtSynchronizeDeviceWithTimeout(-1) == 0
    assert ran == [1] * 4
    streams[1].submit(lambda: 1 / 0)
    assert acl.aclrtSynchronizeDevice() == 507015
    assert acl.aclrtSynchronizeDevice() == 0


def test_system_parameters():
    acl.aclrtSetDevice(0)
    option = acl.ACL_OPT_DETERMINISTIC
    assert acl.aclrtGetSysParamOpt(option) == (107021, 0)
    assert acl.aclrtCtxGetSysParamOpt(option) == (107021, 0)
    assert acl.aclrtSetSysParamOpt(option, 1) == 0
    assert acl.aclrtGetSysParamOpt(option) == (0, 1)
    assert acl.aclrtCtxGetSysParamOpt(option) == (107021, 0)
    assert acl.aclrtCtxSetSysParamOpt(option, 3) == 0
    assert acl.aclrtCtxGetSysParamOpt(option) == (0, 3)
    assert acl.aclrtGetSysParamOpt(option) == (0, 1)
    for bad in ((-1, 0), (4, 0), (0, 4), (0, -1), (1, 2), ("0", 1), (0, None)):
        assert acl.aclrtSetSysParamOpt(*bad) == 107000
        assert acl.aclrtCtxSetSysParamOpt(*bad) == 107000
    assert acl.aclrtGetSysParamOpt(9) == (107000, 0)
