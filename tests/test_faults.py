"""Faults in ourselves, in the short form: `make faults` injects each at every point."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from faults.inject import available, run_driver
from openaclnn import acl, aclnn
from openaclnn.core.trust import CODE_MARK
from openaclnn.engines.machine import cache
from openaclnn.runtime import AclFailure, context
from openaclnn.runtime import device as runtime_device
from openaclnn.runtime.device import CudaDevice
from openaclnn.runtime.memory import used_bytes


@pytest.mark.skipif(not available(), reason="faults.c stands before glibc, and reads the interpreter's steps as 3.11 counts them")  # fmt: skip
def test_every_fault_at_some_points() -> None:
    code, said = run_driver(["--most", "7"], 240)
    assert code == 0, said
    assert said.count(" / ") > 40
    for outcome in ("MemoryError: ", "KeyboardInterrupt: ", "Terminated: ", "status 200000: ", "status 207005: ", "killed: "):  # fmt: skip
        assert outcome in said


def test_the_compiler_fails_at_each_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call says so, the lock is free, and the next call compiles."""
    monkeypatch.setenv("OPENACLNN_CACHE_DIR", str(tmp_path))
    real, left = cache.llvm, [0]

    class Failing:
        def __getattr__(self, name: str) -> Any:
            function = getattr(real, name)
            if name not in ("parse_assembly", "create_pass_builder", "create_mcjit_compiler"):
                return function

            def call(*arguments: Any) -> Any:
                left[0] -= 1
                if left[0] == 0:
                    raise RuntimeError("LLVM says no")
                return function(*arguments)

            return call

    def emit(code: Any, arguments: Any) -> None:
        code.array(arguments[0], "i64").write(0, 7)

    monkeypatch.setattr(cache, "llvm", Failing())
    failures = 0
    for step in range(1, 8):
        left[0] = step
        try:
            assert cache.compiled(f"faults.step {step}", emit)
        except RuntimeError:
            failures += 1
        left[0] = 0
        assert cache.compiled(f"faults.step {step}", emit)
    assert 3 <= failures < 7


def test_every_damaged_byte_of_kept_code_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x.o"
    code = bytes(range(100, 164))
    cache._write(path, code)
    whole = path.read_bytes()
    assert cache._read(path) == code
    for place in range(len(whole)):
        path.write_bytes(
            whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :]
        )
        assert cache._read(path) is None
        path.write_bytes(whole[:place])
        assert cache._read(path) is None
    path.write_bytes(whole + b"\0")
    assert cache._read(path) is None
    names = tmp_path / "x.names"
    name = cache._digest("name").encode()
    for line in (name, name + b" ", b"\xff" * 81, name + b" " + name[:39], name + b" " + name.upper() + b"x"):  # fmt: skip
        names.write_bytes(CODE_MARK + line + b"\n")
        assert cache._LINE.findall(names.read_bytes()) == []


class Driver:
    """The part of CUDA's driver that the runtime calls, over ordinary memory. The n-th call fails with a code."""

    def __init__(self) -> None:
        self.calls, self.failing, self.code = 0, -1, 0
        self.memory: dict[int, Any] = {}
        self.streams: set[int] = set()

    def __getattr__(self, name: str) -> Any:
        action = object.__getattribute__(self, f"_{name}")

        def call(*arguments: Any) -> int:
            if name == "cuGetErrorString":
                return 0
            self.calls += 1
            if self.calls - 1 == self.failing and "Free" not in name and "Destroy" not in name:
                return self.code
            action(*arguments)
            return 0

        return call

    def _cuGetErrorString(self, code: int, text: Any) -> None: ...

    def _cuCtxSetCurrent(self, handle: Any) -> None: ...

    def _cuMemGetInfo_v2(self, free: Any, total: Any) -> None:
        total._obj.value = 1 << 30

    def _cuMemAlloc_v2(self, address: Any, size: Any) -> None:
        block = (ctypes.c_char * (size.value + 64))()
        address._obj.value = -(-ctypes.addressof(block) // 64) * 64
        self.memory[address._obj.value] = block

    def _cuMemFree_v2(self, address: Any) -> None:
        del self.memory[address.value]

    def _cuMemcpy(self, target: Any, source: Any, count: Any) -> None:
        ctypes.memmove(target.value, source.value, count.value)

    def _cuMemsetD8_v2(self, address: Any, value: Any, count: Any) -> None:
        ctypes.memset(address.value, value.value, count.value)

    def _cuStreamCreate(self, stream: Any, flags: int) -> None:
        stream._obj.value = 1 + len(self.streams)
        self.streams.add(stream._obj.value)

    def _cuStreamQuery(self, stream: Any) -> None: ...

    def _cuStreamSynchronize(self, stream: Any) -> None: ...

    def _cuStreamDestroy_v2(self, stream: Any) -> None:
        self.streams.discard(stream.value)


def test_the_cuda_driver_fails_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    for name in ("cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain"):
        monkeypatch.setattr(Driver, f"_{name}", lambda *_: None, raising=False)
    device = CudaDevice()
    monkeypatch.undo()
    acl.aclInit(None)
    acl.aclFinalize()
    monkeypatch.setattr(context, "selected", lambda: device)
    monkeypatch.setitem(runtime_device._devices, device.name, device)
    x = np.arange(50, dtype=np.float32)

    def program() -> tuple[list[int], bytes]:
        """Statuses of a program that goes on after failures, and what it read back."""
        out = np.zeros_like(x)
        statuses = [acl.aclrtSetDevice(0)]
        status, stream = acl.aclrtCreateStream()
        first, address = acl.aclrtMalloc(x.nbytes, 0)
        statuses += [status, first]
        if address:
            statuses += [
                acl.aclrtMemset(address, x.nbytes, 1, x.nbytes),
                acl.aclrtMemcpyAsync(address, x.nbytes, x, x.nbytes, acl.ACL_MEMCPY_HOST_TO_DEVICE, stream),
                acl.aclrtSynchronizeStream(stream),
                acl.aclrtMemcpy(out, x.nbytes, address, x.nbytes, acl.ACL_MEMCPY_DEVICE_TO_HOST),
            ]  # fmt: skip
            stream.native  # noqa: B018 - opens the device's own stream
            statuses += [acl.aclrtSynchronizeStream(stream), acl.aclrtFree(address)]
        statuses += [acl.aclrtDestroyStream(stream), acl.aclrtResetDevice(0)]
        return statuses, out.tobytes()

    sound, calls = program(), driver.calls
    assert sound == ([0] * 11, x.tobytes())
    expected = {2: {207001, 200000, 507015}, 700: {507015}, 999: {507015}}
    seen: set[int] = set()
    for code, known in expected.items():
        for number in range(calls):
            driver.calls, driver.failing, driver.code = 0, number, code
            device._entered.done = False
            try:
                statuses, _ = program()
            except (AclFailure, MemoryError) as error:  # of `stream.native` itself
                statuses = [200000 if isinstance(error, MemoryError) else 507015]
                acl.aclrtResetDeviceForce(0)
            seen |= {*statuses} - {0}
            assert {*statuses} <= known | {0}, (code, number, aclnn.aclGetRecentErrMsg())
            driver.failing = -1
            assert program() == sound
            assert used_bytes(device.name) == 0
            assert not driver.memory
            assert not driver.streams
    assert seen == {207001, 200000, 507015}
