"""The caller's floating-point mode: flushed subnormals and other roundings change no bit, for any size and thread."""

from __future__ import annotations

import ctypes
import platform
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import openaclnn
from conftest import run_python
from openaclnn import acl, aclnn
from openaclnn.core import rounding

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux's C library")

X86 = platform.machine() == "x86_64"
ROUNDINGS = (0x400, 0x800, 0xC00) if X86 else (0x400000, 0x800000, 0xC00000)
SIZES = (1, 1000, 1 << 17)
LIBC = ctypes.CDLL(None)


@contextmanager
def flushed() -> Iterator[None]:
    torch = pytest.importorskip("torch")
    if not torch.set_flush_denormal(True):
        pytest.skip("this CPU has no such mode")
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


@contextmanager
def rounded(mode: int) -> Iterator[None]:
    assert LIBC.fesetround(mode) == 0
    try:
        yield
        assert LIBC.fegetround() == mode
    finally:
        LIBC.fesetround(0)


MODES: dict[str, Callable[[], Any]] = {"flushed": flushed} | {
    f"rounded-{number}": (lambda mode=mode: rounded(mode)) for number, mode in enumerate(ROUNDINGS)
}


@pytest.fixture(autouse=True)
def restore() -> Iterator[None]:
    before = openaclnn.get_num_threads()
    yield
    assert rounding.is_standard()
    openaclnn.set_num_threads(before)


def problems(size: int, dtype: Any) -> list[Callable[[float], Any]]:
    """Calls by a number that needs rounding; half of the results are subnormal."""
    rng = np.random.default_rng(size)
    tiny = np.where(np.arange(size) % 2, 2.0**-126 if dtype is np.float32 else 2.0**-14, 1.0)
    gradient = (tiny * rng.uniform(0.5, 1, size)).astype(dtype)
    x, y = (rng.uniform(-3, 3, size).astype(dtype) for _ in range(2))
    rows, classes = max(size // 8, 1), 8
    scores = rng.uniform(-9, 0, (rows, classes)).astype(dtype)
    target = rng.integers(0, classes, rows)
    weight = rng.uniform(0.1, 1, classes).astype(np.float32)
    one = np.full(1, 2.0**-20, dtype)
    return [
        lambda n: openaclnn.elu_backward(gradient, x, alpha=n, scale=0.1, input_scale=0.3),
        lambda n: openaclnn.smooth_l1_loss_backward(gradient, x, y, beta=n),
        lambda n: openaclnn.l1_loss_backward(one, x, y, reduction="mean"),
        lambda n: openaclnn.cross_entropy_loss_grad(
            one[0], scores, target, weight=weight, label_smoothing=n
        ),
    ]  # fmt: skip


numbers = iter(range(10**6))  # each a value that no call before has seen


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("engine", ["cpu", "numpy"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.in_turns
def test_plain_calls(engine: str, dtype: Any, mode: str) -> None:
    for size in (
        SIZES if engine == "cpu" else SIZES[:2]
    ):  # NumPy's arithmetic knows no threads of ours
        for threads in (1, 2) if size == SIZES[-1] else (1,):
            openaclnn.set_num_threads(threads)
            for call in problems(size, dtype):
                number = 0.7 + next(numbers) / 3e5
                with openaclnn.use_engine(engine):
                    with MODES[mode]():
                        first = [call(number).tobytes() for _ in range(3)]
                        assert not rounding.is_standard()
                    expected = call(number).tobytes()
                assert set(first) == {expected}, (size, threads)


@pytest.mark.parametrize("mode", MODES)
def test_the_fast_path(mode: str) -> None:
    """Kinds that are known already, with the size and the numbers changing from call to call."""
    rng = np.random.default_rng(3)
    x = rng.uniform(-3, 3, 4096).astype(np.float32)
    small = (2.0**-126 * rng.uniform(0.5, 1, 4096)).astype(np.float32)
    openaclnn.l1_loss_backward(small, x, -x, reduction="mean")
    for size in (1, 3, 7, 1000, 4096):
        arrays = small[:size], x[:size], -x[:size]
        number = 0.1 + next(numbers) / 3e5
        calls = [
            lambda arrays=arrays, n=number: openaclnn.smooth_l1_loss_backward(*arrays, beta=n),
            lambda arrays=arrays: openaclnn.l1_loss_backward(*arrays, reduction="mean"),
            lambda arrays=arrays: openaclnn.elu_backward(*arrays[:2]),
        ]
        for call in calls:
            with MODES[mode]():
                first = [call().tobytes() for _ in range(3)]
            assert set(first) == {call().tobytes()}, size


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("engine", ["cpu", "numpy"])
@pytest.mark.parametrize("size", SIZES)
def test_two_phases(engine: str, mode: str, size: int) -> None:
    """Also in a stream's thread, which begins in the mode of the one that created it."""
    rng = np.random.default_rng(5)
    x = rng.uniform(-3, 3, size).astype(np.float32)
    gradient = (2.0**-126 * rng.uniform(0.5, 1, size)).astype(np.float32)
    number = 0.7 + next(numbers) / 3e5

    def both() -> bytes:
        out = np.zeros_like(x)
        status, workspace, executor = aclnn.aclnnSmoothL1LossBackwardGetWorkspaceSize(
            gradient, x, -x, 1, number, out
        )
        assert status == 0, acl.aclGetRecentErrMsg()
        stream = acl.aclrtCreateStream()[1]
        gate = threading.Event()
        stream.submit(gate.wait)  # so that the kernel is queued
        assert aclnn.aclnnSmoothL1LossBackward(None, workspace, executor, stream) == 0
        gate.set()
        assert acl.aclrtSynchronizeStream(stream) == 0
        assert acl.aclrtDestroyStream(stream) == 0
        return out.tobytes()

    assert acl.aclrtSetDevice(0) == 0
    with openaclnn.use_engine(engine):
        with MODES[mode]():
            first = both()
        assert first == both()
    assert acl.aclrtResetDevice(0) == 0


def test_workers_begin_as_we_promise() -> None:
    """The threads of the pool are made by whoever first needs them, in any mode: each has a process that has made none."""
    code = f"""
import ctypes, os
import numpy as np, openaclnn
openaclnn.set_num_threads(2)
x = np.linspace(-3, 3, 1 << 20).astype(np.float32)
tiny = np.full_like(x, 2.0**-126)
libc = ctypes.CDLL(None)

def look(mode):
    if mode is None:
        import torch
        torch.set_flush_denormal(True)
    else:
        libc.fesetround(mode)
    first = openaclnn.elu_backward(tiny, x, alpha=0.7)
    if mode is None:
        torch.set_flush_denormal(False)
    else:
        libc.fesetround(0)
    again = openaclnn.elu_backward(tiny, x, alpha=0.7)
    return first.tobytes() == again.tobytes() and (first[: 1 << 19] != 0).all()

for mode in (None, *{ROUNDINGS!r}):
    child = os.fork()
    if not child:
        os._exit(0 if look(mode) else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), end=" ")
"""
    pytest.importorskip("torch")
    done = run_python(code)
    assert done.stdout.split() == ["0"] * 4, done.stderr


def test_the_mode_is_told_by_computing() -> None:
    assert rounding.is_standard()
    for mode in MODES.values():
        with mode():
            assert not rounding.is_standard()
            with rounding.standard():
                assert rounding.is_standard()
            assert not rounding.is_standard()
