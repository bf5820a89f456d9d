"""Repeated phase two: the fast path gives what the slow path gives, and ends when something it relied on does."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest

import openaclnn
from conftest import device_tensor, read_back
from openaclnn import acl, aclnn
from openaclnn.runtime import context, memory
from openaclnn.runtime.device import Device

X = np.array([-1.0, 0.5, -2.0], np.float32)
EXPECTED = openaclnn.elu_backward(X, X)


def repeatable(x: Any, out: Any) -> Any:
    status, _, executor = aclnn.aclnnEluBackwardGetWorkspaceSize(x, 1.0, 1.0, 1.0, False, x, out)
    assert status == 0
    assert aclnn.aclSetAclOpExecutorRepeatable(executor) == 0
    return executor


def run(executor: Any, handle: Any = None) -> int:
    status: int = aclnn.aclnnEluBackward(None, 0, executor, handle)
    assert acl.aclrtSynchronizeStream(handle) == 0
    return status


def test_raw_memory_by_the_short_way(stream: Any) -> None:
    source, _ = device_tensor(X)
    out, address = device_tensor(np.zeros_like(X))
    executor = repeatable(source, out)
    for handle in (stream, None, stream):
        assert run(executor, handle) == 0
        assert executor.checked is not None
        np.testing.assert_array_equal(read_back(address, X), EXPECTED)
        assert acl.aclrtMemset(address, X.nbytes, 0, X.nbytes) == 0


def test_freed_memory_is_noticed_and_gone(stream: Any) -> None:
    source, source_address = device_tensor(X)
    out, _ = device_tensor(np.zeros_like(X))
    executor = repeatable(source, out)
    assert run(executor, stream) == run(executor, stream) == 0
    block = memory.find_allocation(source_address)
    assert block is not None
    owner = weakref.ref(block.owner)
    del block
    assert acl.aclrtFree(source_address) == 0
    assert owner() is None
    assert aclnn.aclnnEluBackward(None, 0, executor, stream) == 161002
    assert "device memory from aclrtMalloc" in aclnn.aclGetRecentErrMsg()


def test_another_executor_s_address_setter_is_noticed(stream: Any) -> None:
    source, _ = device_tensor(X)
    out, out_address = device_tensor(np.zeros_like(X))
    _, other_address = device_tensor(2 * X)
    first, second = repeatable(source, out), repeatable(source, out)
    assert run(first, stream) == run(second, stream) == 0
    assert aclnn.aclSetInputTensorAddr(second, 0, source, other_address) == 0
    assert run(first, stream) == 0
    np.testing.assert_array_equal(read_back(out_address, X), openaclnn.elu_backward(2 * X, 2 * X))


@pytest.mark.parametrize("repeated", [True, False])
@pytest.mark.parametrize("way", ["aclSetRawTensorAddr", "aclInitTensor"])
def test_a_descriptor_that_changes_is_noticed(stream: Any, way: str, repeated: bool) -> None:
    source, _ = device_tensor(X)
    out, _ = device_tensor(np.zeros_like(X))
    _, other_address = device_tensor(np.zeros_like(X))
    executor = repeatable(source, out)
    if repeated:
        assert run(executor, stream) == run(executor, stream) == 0

    def point(address: int) -> None:
        if way == "aclSetRawTensorAddr":
            assert acl.aclSetRawTensorAddr(out, address) == 0
        else:
            assert acl.aclInitTensor(out, (3,), acl.ACL_FLOAT, (1,), 0, 2, (3,), address) == 0

    point(other_address)
    assert run(executor, stream) == 0
    np.testing.assert_array_equal(read_back(other_address, X), EXPECTED)
    point(12345 * 64)
    assert aclnn.aclnnEluBackward(None, 0, executor, stream) == 161002
    assert "unknown memory" in aclnn.aclGetRecentErrMsg()


def test_streams_are_checked_every_time(stream: Any) -> None:
    out = np.zeros_like(X)
    executor = repeatable(X, out)
    assert run(executor, stream) == 0
    status, gone = acl.aclrtCreateStream()
    assert status == 0
    assert acl.aclrtDestroyStream(gone) == 0
    for bad in (gone, object(), "stream"):
        assert aclnn.aclnnEluBackward(None, 0, executor, bad) == 361001
    assert aclnn.aclnnL1LossBackward(None, 0, executor, stream) == 561103
    assert aclnn.aclnnEluBackward(None, 8, executor, stream) == 161001  # no workspace
    assert aclnn.aclDestroyAclOpExecutor(executor) == 0
    assert aclnn.aclnnEluBackward(None, 0, executor, stream) == 561103


def test_the_order_of_a_stream_is_kept(stream: Any) -> None:
    """A small kernel behind queued work waits its turn."""
    out = np.zeros_like(X)
    executor = repeatable(X, out)
    assert run(executor, stream) == 0
    go = threading.Event()
    seen: list[float] = []
    out[:] = 7
    stream.submit(lambda: (go.wait(), seen.append(float(out[0]))))
    assert aclnn.aclnnEluBackward(None, 0, executor, stream) == 0
    assert (out == 7).all()
    go.set()
    assert acl.aclrtSynchronizeStream(stream) == 0
    assert seen == [7.0]
    np.testing.assert_array_equal(out, EXPECTED)


class Pretend(Device):
    """A device with streams of its own, which notes what they are asked."""

    name = "pretend:0"

    def __init__(self) -> None:
        self.noted: list[Any] = []

    def enter(self) -> None:
        self.noted.append("enter")

    def open_stream(self) -> int:
        self.noted.append("open")
        return 41

    def is_done(self, stream: int) -> bool:
        return "drain" in self.noted

    def drain(self, stream: int) -> None:
        assert stream == 41
        self.noted.append("drain")

    def close_stream(self, stream: int) -> None:
        self.noted.append("close")


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Any:
    device = Pretend()
    acl.aclInit(None)
    acl.aclFinalize()
    monkeypatch.setattr(context, "selected_device", lambda: device)
    yield device
    acl.aclInit(None)
    acl.aclFinalize()


def test_a_device_with_streams_gets_launches_at_once(pretend: Pretend) -> None:
    """From the calling thread, whatever their size; synchronising waits for the device."""
    assert acl.aclrtSetDevice(0) == 0
    status, handle = acl.aclrtCreateStream()
    assert status == 0
    launched: list[int] = []
    assert handle.launch_now(lambda _, stream: launched.append(stream), ())
    assert launched == [41]
    assert pretend.noted == ["enter", "open"]
    assert handle._worker is None
    assert acl.aclrtSynchronizeStream(handle) == 0
    assert pretend.noted == ["enter", "open", "drain"]
    assert acl.aclrtDestroyStream(handle) == 0
    assert pretend.noted[-1] == "close"


def test_host_arrays_on_a_device_s_stream_wait_for_it(pretend: Pretend) -> None:
    out = np.zeros_like(X)
    executor = repeatable(X, out)
    assert acl.aclrtSetDevice(0) == 0
    status, handle = acl.aclrtCreateStream()
    assert status == 0
    handle.launch_now(lambda *_: 0, ())
    for _ in range(2):
        out[:] = 0
        assert run(executor, handle) == 0
        assert handle._worker is not None  # in its turn, behind what the device was given
        assert "drain" in pretend.noted
        np.testing.assert_array_equal(out, EXPECTED)


def test_memory_of_another_device_lives_until_its_task_ran(pretend: Pretend) -> None:
    """Whoever queued it may drop everything at once."""
    x, out = X.copy(), np.zeros_like(X)
    assert acl.aclrtSetDevice(0) == 0
    status, handle = acl.aclrtCreateStream()
    assert status == 0
    go = threading.Event()
    handle.submit(go.wait)
    executor = repeatable(x, out)
    status = aclnn.aclnnEluBackward(None, 0, executor, handle)
    alive = weakref.ref(x)
    del x, executor
    gc.collect()
    kept = alive() is not None
    go.set()
    assert (status, kept) == (0, True)
    assert acl.aclrtSynchronizeStream(handle) == 0
    # A collection does nothing where another thread is in the middle of one, which a busy machine may keep waiting.
    deadline = time.monotonic() + 30
    while alive() is not None and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.001)
    assert alive() is None
    np.testing.assert_array_equal(out, EXPECTED)


def test_a_launch_that_fails_shows_at_synchronisation(pretend: Pretend) -> None:
    def fail(*_: Any) -> int:
        raise RuntimeError("no such kernel")

    assert acl.aclrtSetDevice(0) == 0
    status, handle = acl.aclrtCreateStream()
    assert status == 0
    assert handle.launch_now(fail, ())
    assert acl.aclrtSynchronizeStream(handle) == 507015
    assert "no such kernel" in aclnn.aclGetRecentErrMsg()
    assert acl.aclrtSynchronizeStream(handle) == 0
