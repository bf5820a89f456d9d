"""The calls that faults are injected into. A scene's `work()` makes them and gives what they gave; `close()` ends what a fault left behind."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import openaclnn
from openaclnn import acl, aclnn
from openaclnn.engines.cpu.launching import pool
from openaclnn.engines.machine import cache
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.host import machine
from openaclnn.engines.machine.values import Value
from openaclnn.repeat import phases
from openaclnn.repeat.cache import no_fast_path
from openaclnn.runtime.memory import used_bytes

__all__ = ["SCENES", "Refused", "Scene"]

GUARD = 0xA5


class Refused(Exception):  # noqa: N818
    """A status that is not success, and its message."""

    def __init__(self, function: str, status: int) -> None:
        super().__init__(function, status, aclnn.aclGetRecentErrMsg())
        self.status = status


def checked(function: Any, *arguments: Any) -> Any:
    """A function of the interface; its value, or Refused."""
    answer = function(*arguments)
    status, *values = answer if isinstance(answer, tuple) else (answer,)
    if status:
        raise Refused(function.__name__, status)
    return values[0] if len(values) == 1 else tuple(values)


class Scene:
    """Arrays between guard bytes, and calls over them."""

    name = ""

    def __init__(self) -> None:
        self.buffers: list[Any] = []
        self.before: list[bytes] = []
        rng = np.random.default_rng(7)
        self.x = self.placed(rng.standard_normal((6, 37)).astype(np.float32))
        self.target = self.placed(rng.integers(0, 37, 6))
        self.weight = self.placed(rng.random(37).astype(np.float32))

    def placed(self, array: Any) -> Any:
        """The array's values between guards."""
        buffer = np.full(array.nbytes + 128, GUARD, np.uint8)
        view = buffer[64:-64].view(array.dtype).reshape(array.shape)
        view[...] = array
        self.buffers.append(buffer)
        self.before.append(buffer.tobytes())
        return view

    def stray(self, outputs: tuple[Any, ...] = ()) -> bool:
        """Whether anything was written but the outputs."""
        for buffer, before in zip(self.buffers, self.before, strict=True):
            now = np.frombuffer(buffer.tobytes(), np.uint8).copy()
            if any(np.may_share_memory(buffer, output) for output in outputs):
                now[64:-64] = np.frombuffer(before, np.uint8)[64:-64]
            if now.tobytes() != before:
                return True
        return False

    outputs: tuple[Any, ...] = ()

    def start(self) -> None:
        """Before each process that suffers a fault."""

    def work(self) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        """End what is left of an interrupted `work`."""


class FastPath(Scene):
    """Plain calls that cache entries serve: elementwise, a loss, rows, several results."""

    name = "fast"

    def work(self) -> Any:
        x, target = self.x, self.target
        first = openaclnn.elu(x)
        loss = openaclnn.smooth_l1_loss(x, first)
        rows = openaclnn.log_softmax(x)
        several = openaclnn.nll_loss(rows, target, self.weight)
        return [result.tobytes() for result in (first, loss, rows, *several)]


class SlowPath(Scene):
    """The same calls as if for the first time in the process; the machine code is there."""

    name = "slow"

    def work(self) -> Any:
        for function in (openaclnn.elu, openaclnn.log_softmax, openaclnn.nll_loss):
            function.cache.forget()
        x, target = self.x, self.target
        first, rows = openaclnn.elu(x), openaclnn.log_softmax(x)
        several = openaclnn.nll_loss(rows, target, self.weight)
        return [result.tobytes() for result in (first, rows, *several)]


class FirstCalls(Scene):
    """The first calls in a process, plain and of two phases over arrays, and what follows them on the fast path; the machine code is there."""

    name = "first"

    def work(self) -> Any:
        opened = phases.phase_cache(openaclnn.find_operator("elu"))
        for road in (openaclnn.elu.cache, opened):
            road.forget()
            road.call = road._builtin = no_fast_path
            road._control = None
        results = [openaclnn.elu(self.x) for _ in range(2)]
        for _ in range(3):
            out = np.zeros_like(self.x)
            size, executor = checked(aclnn.aclnnEluGetWorkspaceSize, self.x, 1.0, 1.0, 1.0, out)
            checked(aclnn.aclnnElu, None, size, executor, None)
            checked(acl.aclrtSynchronizeStream, None)
            results.append(out)
        return [result.tobytes() for result in results]

    def close(self) -> None:
        """A task that was cut short is told by the stream's next synchronisation."""
        acl.aclrtSynchronizeStream(None)


class InPlace(Scene):
    """A call over the caller's arrays, refused or whole."""

    name = "out"

    def __init__(self) -> None:
        super().__init__()
        self.out = self.placed(np.zeros_like(self.x))
        self.outputs = (self.out,)

    def work(self) -> Any:
        openaclnn.elu.cache.forget()
        openaclnn.elu(self.x, out=self.out)
        openaclnn.elu(self.x, alpha=2.0, out=self.out)
        return self.out.tobytes()


class TwoPhases(Scene):
    """Descriptors over device memory, both phases, a stream of its own, the result copied back."""

    name = "phases"

    def __init__(self) -> None:
        super().__init__()
        self.host = self.placed(np.zeros_like(self.x))
        self.outputs = (self.host,)
        self.blocks: list[int] = []
        self.handles: list[tuple[Any, Any]] = []

    def memory(self, size: int) -> int:
        address: int = checked(acl.aclrtMalloc, size, 0)
        self.blocks.append(address)
        return address

    def work(self) -> Any:
        x, shape, strides = self.x, self.x.shape, (self.x.shape[1], 1)
        checked(acl.aclrtSetDevice, 0)
        stream = checked(acl.aclrtCreateStream)
        self.handles.append((acl.aclrtDestroyStream, stream))
        event = checked(acl.aclrtCreateEvent)
        self.handles.append((acl.aclrtDestroyEvent, event))
        source, target = self.memory(x.nbytes), self.memory(x.nbytes)
        checked(acl.aclrtMemcpy, source, x.nbytes, x, x.nbytes, acl.ACL_MEMCPY_HOST_TO_DEVICE)
        tensors = []
        for address in (source, target):
            tensor = acl.aclCreateTensor(shape, acl.ACL_FLOAT, strides, 0, 2, shape, address)
            if tensor is None:
                raise Refused("aclCreateTensor", acl.aclrtGetLastError(0))
            tensors.append(tensor)
            self.handles.append((acl.aclDestroyTensor, tensor))
        size, executor = checked(
            aclnn.aclnnEluGetWorkspaceSize, tensors[0], 1.0, 1.0, 1.0, tensors[1]
        )
        checked(aclnn.aclnnElu, None, size, executor, stream)
        checked(acl.aclrtRecordEvent, event, stream)
        size, executor = checked(aclnn.aclnnInplaceEluGetWorkspaceSize, tensors[1], 1.0, 1.0, 1.0)
        checked(aclnn.aclnnInplaceElu, None, size, executor, stream)
        checked(
            acl.aclrtMemcpyAsync,
            self.host,
            x.nbytes,
            target,
            x.nbytes,
            acl.ACL_MEMCPY_DEVICE_TO_HOST,
            stream,
        )
        checked(acl.aclrtSynchronizeStream, stream)
        checked(acl.aclrtSynchronizeEvent, event)
        held = self.host.tobytes()
        self.close()
        return held

    def close(self) -> None:
        """What cannot be ended is kept for the next time, when it may be gone already."""
        try:
            while self.handles:
                checked(*self.handles[-1])
                self.handles.pop()
            while self.blocks:
                checked(acl.aclrtFree, self.blocks[-1])
                self.blocks.pop()
        except Refused as error:
            if error.status not in (107017, 107000, 161002) or not self.failed:
                self.failed = True
                raise
            self.failed = False
            (self.handles or self.blocks).pop()
            self.close()

    failed = False


class Life(TwoPhases):
    """The runtime from its beginning to its end, with work still queued there."""

    name = "life"

    def work(self) -> Any:
        checked(acl.aclInit, None)
        checked(acl.aclrtSetDevice, 0)
        first, second = checked(acl.aclrtCreateStream), checked(acl.aclrtCreateStream)
        event = checked(acl.aclrtCreateEventExWithFlag, acl.ACL_EVENT_SYNC)
        size = self.x.nbytes
        address = self.memory(2 * size)
        checked(acl.aclrtMemset, address, 2 * size, 0, 2 * size)
        checked(
            acl.aclrtMemcpyAsync, address, size, self.x, size, acl.ACL_MEMCPY_HOST_TO_DEVICE, first
        )
        checked(acl.aclrtRecordEvent, event, first)
        checked(acl.aclrtStreamWaitEvent, second, event)
        checked(
            acl.aclrtMemcpyAsync,
            self.host,
            size,
            address,
            size,
            acl.ACL_MEMCPY_DEVICE_TO_HOST,
            second,
        )
        checked(acl.aclrtResetDevice, 0)
        self.blocks.clear()
        checked(acl.aclFinalize)
        return self.host.tobytes()

    def close(self) -> None:
        self.blocks.clear()
        for _ in range(3):  # what an interrupt may have left half closed is closed by the next
            acl.aclrtResetDeviceForce(0)
            acl.aclFinalize()
        gc.collect()
        if used_bytes("cpu"):
            raise Refused("aclFinalize", used_bytes("cpu"))


class Large(Scene):
    """Kernels that several threads share, ours."""

    name = "large"

    def __init__(self) -> None:
        super().__init__()
        self.wide = np.random.default_rng(8).standard_normal(300_001).astype(np.float32)
        openaclnn.set_num_threads(3)
        openaclnn.use_threads_of("own")
        with openaclnn.use_engine(
            "cpu"
        ):  # the slow path, which a fork without workers takes: its code is there, too
            self.work()

    def work(self) -> Any:
        result = openaclnn.elu(self.wide)
        return result.tobytes(), openaclnn.smooth_l1_loss(self.wide, result).tobytes()


def _count(code: Code, arguments: Sequence[Value]) -> None:
    """A kernel: its index, to each unit."""
    block, start, stop = arguments
    seen = code.array(code.array(block, "i64").read(1), "u8")
    with code.loop(start, stop) as index:
        seen.write(index, seen.read(index) + 1)


_count.__module__ = "openaclnn.faults"  # as if it were ours: the list by names has it


class Kept(Scene):
    """Machine code that is written to the cache's folder, by a process that has none loaded. The compiler's work is remembered: it takes longest."""

    name = "cache"

    def __init__(self) -> None:
        super().__init__()
        self.compiled: dict[str, bytes] = {}
        compile_anew = cache._compile
        cache._compile = lambda source: self.compiled.get(source) or self.compiled.setdefault(source, compile_anew(source))  # fmt: skip
        self.folder = Path(tempfile.mkdtemp(prefix="faults-"))
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)
        os.environ["OPENACLNN_CACHE_DIR"] = str(self.folder / "below" / "cache")

    def start(self) -> None:
        """Nothing is there but what an earlier process left."""
        shutil.rmtree(self.folder / "below", ignore_errors=True)

    def work(self) -> Any:
        cache._addresses.pop(("faults.count", machine()), None)
        kernel = cache.compiled("faults.count", _count)
        seen = np.zeros(100, np.uint8)
        pool.launch(kernel, 100, 10**6, seen.ctypes.data)
        return seen.tobytes()

    def close(self) -> None:
        """What lies in the folder is whole, or has the name of something unfinished."""
        place = self.folder / "below" / "cache"
        for path in place.glob("*.o"):
            if cache._read(path) is None:
                raise Refused(f"{path.name} is damaged", 0)
        left = {path.suffix for path in place.glob("*")} - {".o", ".names", ".sources", ".part"}
        if left:
            raise Refused(f"files {left}", 0)


SCENES: dict[str, type[Scene]] = {
    scene.name: scene
    for scene in (FastPath, SlowPath, FirstCalls, InPlace, TwoPhases, Life, Large, Kept)
}
