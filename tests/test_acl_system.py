"""Versions, capabilities, peers, time limits, overflow, and callbacks on streams."""

import os
import threading

import numpy as np
import pytest

import openaclnn
from openaclnn import acl
from openaclnn.core import results


@pytest.fixture(autouse=True)
def device():
    acl.aclInit(None)
    acl.aclrtSetDevice(0)
    acl.aclGetRecentErrMsg()
    yield
    acl.aclrtSetOpWaitTimeout(0)
    acl.aclFinalize()
    acl.aclGetRecentErrMsg()


def test_versions():
    status, version = acl.aclrtGetVersion()
    assert (status, len(version)) == (0, 3)
    assert acl.aclsysGetVersionStr("runtime") == (0, openaclnn.__version__)
    assert acl.aclsysGetVersionStr(b"openaclnn") == (0, openaclnn.__version__)
    for wrong in (None, "abacus", 3, b"\xff"):
        assert acl.aclsysGetVersionStr(wrong) == (100000, "")
        assert "pkgName: expected one of cann, " in acl.aclGetRecentErrMsg()


def test_capabilities():
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert acl.aclGetDeviceCapability(0, acl.ACL_DEVICE_INFO_AI_CORE_NUM) == (0, cores)
    assert acl.aclGetDeviceCapability(0, acl.ACL_DEVICE_INFO_VECTOR_CORE_NUM) == (0, cores)
    status, size = acl.aclGetDeviceCapability(0, acl.ACL_DEVICE_INFO_L2_SIZE)
    assert status == 0
    assert size == results.cache_sizes().get(2, 0)
    assert acl.aclGetDeviceCapability(1, 0) == (107001, 0)
    assert acl.aclGetDeviceCapability(0, acl.ACL_DEVICE_INFO_UNDEFINED) == (100000, 0)


@pytest.mark.parametrize(
    ("told", "sizes", "last"),
    [
        ((("1", "48K"), ("1", "32K"), ("2", "1024K"), ("3", "8M\n")), {1: 48 << 10, 2: 1 << 20, 3: 8 << 20}, 8 << 20),
        ((("2\n", "2048K"), ("3", "307200K")), {2: 2 << 20, 3: 300 << 20}, 150 << 20),
        ((("2", "1M"), ("3", "36608K")), {2: 1 << 20, 3: 36608 << 10}, 32 << 20),
        ((("", "1K"), ("1", ""), ("2", "none"), ("3", "7X"), ("4", "-K")), {}, 32 << 20),
        ((), {}, 32 << 20),
    ],
)  # fmt: skip
def test_caches_are_those_that_linux_tells(told, sizes, last, tmp_path, monkeypatch):
    """And a call counts on half of a large one."""
    for number, (level, size) in enumerate(told):
        folder = tmp_path / f"index{number}"
        folder.mkdir()
        (folder / "level").write_text(level)
        (folder / "size").write_text(size)
    monkeypatch.setattr(results, "_CACHES", tmp_path)
    assert results.cache_sizes() == sizes
    assert acl.aclGetDeviceCapability(0, acl.ACL_DEVICE_INFO_L2_SIZE) == (0, sizes.get(2, 0))
    host = pytest.importorskip("openaclnn.engines.machine.host")
    assert host.last_cache.__wrapped__() == last


def test_a_lone_device_has_no_peer():
    assert acl.aclrtDeviceCanAccessPeer(0, 0) == (0, 0)
    assert acl.aclrtDeviceCanAccessPeer(0, 1) == (107001, 0)
    for function in (
        lambda i: acl.aclrtDeviceEnablePeerAccess(i, 0),
        acl.aclrtDeviceDisablePeerAccess,
    ):
        assert function(0) == 107000
        assert "another device than the current one" in acl.aclGetRecentErrMsg()
        assert function(7) == 107001


def test_a_wait_for_an_event_ends_with_its_limit():
    first, second = (acl.aclrtCreateStream()[1] for _ in range(2))
    event = acl.aclrtCreateEvent()[1]
    gate = threading.Event()
    first.submit(gate.wait)
    assert acl.aclrtRecordEvent(event, first) == 0
    assert acl.aclrtSetOpWaitTimeout(1) == 0
    assert acl.aclrtStreamWaitEvent(second, event) == 0
    assert acl.aclrtSynchronizeStream(second) == acl.ACL_ERROR_RT_WAIT_TIMEOUT
    assert "completion within 1 s" in acl.aclGetRecentErrMsg()
    assert acl.aclrtSetOpWaitTimeout(0) == 0
    assert acl.aclrtStreamWaitEvent(second, event) == 0
    gate.set()
    assert acl.aclrtSynchronizeStream(second) == 0
    assert acl.aclrtSetOpExecuteTimeOut(5) == 0
    assert acl.aclrtSetOpExecuteTimeOutWithMs(5) == 0
    assert acl.aclrtSetOpWaitTimeout(-1) == 107000


def test_overflow_gives_infinities_and_no_status():
    stream = acl.aclrtCreateStream()[1]
    assert acl.aclrtGetDeviceSatMode() == (0, acl.ACL_RT_OVERFLOW_MODE_INFNAN)
    assert acl.aclrtSetDeviceSatMode(acl.ACL_RT_OVERFLOW_MODE_INFNAN) == 0
    assert acl.aclrtSetDeviceSatMode(acl.ACL_RT_OVERFLOW_MODE_SATURATION) == 207000
    assert acl.aclrtGetStreamOverflowSwitch(stream) == (0, 0)
    assert acl.aclrtSetStreamOverflowSwitch(stream, 1) == 0
    assert acl.aclrtGetStreamOverflowSwitch(stream) == (0, 1)
    assert acl.aclrtSetStreamOverflowSwitch(stream, 2) == 107000
    pointer = acl.aclrtMalloc(64)[1]
    assert acl.aclrtMemset(pointer, 64, 0xFF, 64) == 0
    assert acl.aclrtGetOverflowStatus(pointer, 64, stream) == 0
    assert acl.aclrtSynchronizeStream(stream) == 0
    status = np.ones(64, np.uint8)
    assert acl.aclrtMemcpy(status, 64, pointer, 64, acl.ACL_MEMCPY_DEVICE_TO_HOST) == 0
    assert not status.any()
    assert acl.aclrtGetOverflowStatus(pointer, 8, stream) == 107000
    assert acl.aclrtGetOverflowStatus(None, 64, stream) == 100000
    assert acl.aclrtResetOverflowStatus(stream) == 0


class Worker(threading.Thread):
    """A thread that runs callbacks until it is told to stop."""

    def __init__(self):
        super().__init__(daemon=True)
        self.statuses = []
        self.stopping = False
        self.start()

    def run(self):
        while not self.stopping:
            self.statuses.append(acl.aclrtProcessReport(20))


def test_callbacks_run_in_the_streams_order_on_the_subscribed_thread():
    stream, worker, seen = acl.aclrtCreateStream()[1], Worker(), []

    def note(data):
        seen.append((data, threading.get_ident()))

    assert acl.aclrtSubscribeReport(worker.ident, stream) == 0
    assert acl.aclrtSubscribeReport(worker.ident, stream) == acl.ACL_ERROR_RT_STREAM_SUBSCRIBE
    for index in range(5):
        stream.submit(lambda index=index: seen.append(index))
        assert acl.aclrtLaunchCallback(note, f"{index}", acl.ACL_CALLBACK_BLOCK, stream) == 0
    assert acl.aclrtSynchronizeStream(stream) == 0
    expected = [step for i in range(5) for step in (i, (f"{i}", worker.ident))]
    assert seen == expected
    assert acl.aclrtUnSubscribeReport(worker.ident + 1, stream) == acl.ACL_ERROR_RT_THREAD_SUBSCRIBE
    assert acl.aclrtUnSubscribeReport(worker.ident, stream) == 0
    assert acl.aclrtUnSubscribeReport(worker.ident, stream) == acl.ACL_ERROR_RT_STREAM_NO_CB_REG
    worker.stopping = True
    worker.join()
    known = {0, acl.ACL_ERROR_RT_REPORT_TIMEOUT, acl.ACL_ERROR_RT_THREAD_SUBSCRIBE}
    assert set(worker.statuses) <= known
    assert worker.statuses.count(0) == 5


def test_a_stream_goes_on_beside_a_callback_that_does_not_block():
    stream, ran = acl.aclrtCreateStream()[1], []
    thread = threading.get_ident()
    assert acl.aclrtSubscribeReport(thread, stream) == 0
    assert acl.aclrtLaunchCallback(ran.append, 7, acl.ACL_CALLBACK_NO_BLOCK, stream) == 0
    assert acl.aclrtSynchronizeStream(stream) == 0
    assert ran == []
    assert acl.aclrtProcessReport(-1) == 0
    assert ran == [7]
    assert acl.aclrtProcessReport(0) == acl.ACL_ERROR_RT_REPORT_TIMEOUT
    assert acl.aclrtProcessReport(-2) == 107000
    assert acl.aclrtUnSubscribeReport(thread, stream) == 0
    assert acl.aclrtProcessReport(-1) == acl.ACL_ERROR_RT_THREAD_SUBSCRIBE


def test_a_stream_does_not_wait_for_a_callback_that_nobody_will_run():
    stream, thread = acl.aclrtCreateStream()[1], threading.get_ident()
    assert acl.aclrtLaunchCallback(print, 0, 0, stream) == acl.ACL_ERROR_RT_STREAM_NO_CB_REG
    assert acl.aclrtSubscribeReport(thread, stream) == 0
    assert acl.aclrtLaunchCallback(None, 0, 0, stream) == 100000
    assert acl.aclrtLaunchCallback(print, 0, 2, stream) == 107000
    assert acl.aclrtLaunchCallback(print, 0, acl.ACL_CALLBACK_BLOCK, stream) == 0
    assert acl.aclrtSynchronizeStreamWithTimeout(stream, 50) == 507046
    assert acl.aclrtUnSubscribeReport(thread, stream) == 0
    assert acl.aclrtSynchronizeStream(stream) == 0


def test_the_end_of_a_stream_ends_its_subscription():
    """The system gives a thread's number to another one, which must not find what waited for the first."""
    thread, ran = threading.get_ident(), []
    first, second = (acl.aclrtCreateStream()[1] for _ in range(2))
    for stream in (first, second):
        assert acl.aclrtSubscribeReport(thread, stream) == 0
        assert acl.aclrtLaunchCallback(ran.append, 7, acl.ACL_CALLBACK_NO_BLOCK, stream) == 0
    assert acl.aclrtDestroyStream(first) == 0
    assert acl.aclrtProcessReport(-1) == 0
    assert acl.aclrtDestroyStream(second) == 0
    assert acl.aclrtProcessReport(-1) == acl.ACL_ERROR_RT_THREAD_SUBSCRIBE
    context, kept = acl.aclrtCreateContext(0)[1], acl.aclrtCreateStream()[1]
    assert acl.aclrtSubscribeReport(thread, kept) == 0
    assert acl.aclrtDestroyContext(context) == 0
    assert acl.aclrtProcessReport(0) == acl.ACL_ERROR_RT_THREAD_SUBSCRIBE
    assert ran == [7]


def test_a_child_has_no_subscriptions():
    stream, thread = acl.aclrtCreateStream()[1], threading.get_ident()
    assert acl.aclrtSubscribeReport(thread, stream) == 0
    child = os.fork()
    if child == 0:
        os._exit(acl.aclrtProcessReport(-1) == acl.ACL_ERROR_RT_THREAD_SUBSCRIBE)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert acl.aclrtUnSubscribeReport(thread, stream) == 0
