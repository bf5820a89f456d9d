"""The functions of C's names for memory: allocation, copies and fills with their checks in the documented order, and conversions of numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from openaclnn.core.dtypes import dtype_of_code
from openaclnn.core.status import AclError
from openaclnn.runtime import memory
from openaclnn.runtime.context import current_stream, required_context, synchronize
from openaclnn.runtime.device import ALIGNMENT, Device, device_named, host, selected_device
from openaclnn.runtime.enums import MallocPolicy, MemAttr, MemcpyKind
from openaclnn.runtime.errors import INT32, UINT64, integer, refuse, returns_status, returns_value
from openaclnn.runtime.memory import Pointer, address, pointer

__all__ = [
    "aclDataTypeSize", "aclFloat16ToFloat", "aclFloatToFloat16", "aclrtFree", "aclrtFreeHost", "aclrtFreeWithDevSync",
    "aclrtGetMemInfo", "aclrtMalloc", "aclrtMallocAlign32", "aclrtMallocCached", "aclrtMallocHost", "aclrtMallocWithCfg",
    "aclrtMemcpy", "aclrtMemcpyAsync", "aclrtMemset", "aclrtMemsetAsync",
]  # fmt: skip

_PARAM = AclError.ACL_ERROR_RT_PARAM_INVALID
_UNPADDED = (MallocPolicy.ACL_MEM_MALLOC_HUGE1G_ONLY, MallocPolicy.ACL_MEM_MALLOC_HUGE1G_ONLY_P2P)


def _allocate(size: Any, policy: Any, *, pad: bool = True) -> int:
    wanted = integer(size, "size", (1, UINT64[1]))
    pages = integer(policy, "policy", INT32) & 0xFF  # the flags above change nothing here
    padded = memory.padded_size(wanted, pad=pad and pages not in _UNPADDED)
    context = required_context()
    return memory.allocate(context.device, padded, context.device_id).address


@returns_value(0)
def aclrtMalloc(size: Any, policy: Any = 0) -> int:
    """Device memory, 64-byte aligned: the size plus 32 bytes, rounded up to 32. Programs must not rely on its contents."""
    return _allocate(size, policy)


@returns_value(0)
def aclrtMallocAlign32(size: Any, policy: Any = 0) -> int:
    """Device memory rounded up to 32 bytes, without padding."""
    return _allocate(size, policy, pad=False)


@returns_value(0)
def aclrtMallocCached(size: Any, policy: Any = 0) -> int:
    """Device memory with a cache, which makes no difference here."""
    return _allocate(size, policy)


@returns_value(0)
def aclrtMallocWithCfg(size: Any, policy: Any = 0, cfg: Any = None) -> int:
    """Device memory with extra attributes, which make no difference here."""
    return _allocate(size, policy)


@returns_status
def aclrtFree(devPtr: Any) -> None:
    """Free device memory; does not wait for tasks."""
    memory.release(address(devPtr, "devPtr"), "devPtr", "device")


@returns_status
def aclrtFreeWithDevSync(devPtr: Any) -> None:
    """Wait for the device, then free device memory."""
    start = address(devPtr, "devPtr")
    try:
        synchronize(-1)
    finally:  # the memory is freed even if a failed task is reported
        memory.release(start, "devPtr", "device")


@returns_value(0)
def aclrtMallocHost(size: Any) -> int:
    """Page-locked host memory: copies from and to it are asynchronous."""
    wanted = integer(size, "size", (1, UINT64[1] - ALIGNMENT))
    return memory.allocate(selected_device(), wanted, kind="host").address


@returns_status
def aclrtFreeHost(hostPtr: Any) -> None:
    """Free memory of `aclrtMallocHost`."""
    memory.release(address(hostPtr, "hostPtr"), "hostPtr", "host")


SIDES: dict[int, tuple[bool, bool]] = {
    MemcpyKind.ACL_MEMCPY_HOST_TO_HOST: (False, False),
    MemcpyKind.ACL_MEMCPY_HOST_TO_DEVICE: (False, True),
    MemcpyKind.ACL_MEMCPY_DEVICE_TO_HOST: (True, False),
    MemcpyKind.ACL_MEMCPY_DEVICE_TO_DEVICE: (True, True),
    MemcpyKind.ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE: (False, True),
}
"""By kind of copy, whether source and destination are device memory. DEFAULT has no entry."""


class Transfer:
    """A checked copy or fill, ready to run; it keeps the memory of both sides alive."""

    def __init__(self, work: Callable[[], None], source: Pointer | None, target: Pointer) -> None:
        self._work = work
        self.source = source
        self.target = target

    def __call__(self) -> None:
        self._work()

    @property
    def pageable(self) -> bool:
        """Whether a side is host memory that is not page-locked, which the device cannot access."""
        sides = (self.source, self.target)
        return any(side is not None and side.block is None for side in sides)


def _plan_copy(dst: Any, destMax: Any, src: Any, count: Any, kind: Any) -> Transfer | None:
    """Check a copy in the order the interface documents; None where there is nothing to do."""
    bytes_wanted = integer(count, "count", UINT64)
    if bytes_wanted == 0:
        return None
    target, source = pointer(dst, "dst"), pointer(src, "src")
    known = integer(kind, "kind", (0, MemcpyKind.ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE))
    room = integer(destMax, "destMax", UINT64)
    if bytes_wanted > room:
        raise refuse(_PARAM, "count", f"at most destMax = {room}", bytes_wanted)
    if target.address == source.address:
        return None
    sides = (source.on_device, target.on_device)
    if SIDES.get(known, sides) != sides:
        got = f"{_side(source)} to {_side(target)}"
        raise refuse(_PARAM, "kind", f"pointers that fit {MemcpyKind(known).name}", got)
    target.check_room("dst", bytes_wanted, write=True)
    source.check_room("src", bytes_wanted, write=False)
    device = _device_of(target if target.on_device else source)
    return Transfer(
        partial(device.copy, target.address, source.address, bytes_wanted), source, target
    )


def plan_fill(devPtr: Any, maxCount: Any, value: Any, count: Any) -> Transfer | None:
    """Check a fill; only memory of the runtime may be filled."""
    bytes_wanted = integer(count, "count", UINT64)
    if bytes_wanted == 0:
        return None
    target = pointer(devPtr, "devPtr")
    byte = integer(value, "value", (-(2**31), 2**32 - 1)) & 0xFF
    room = integer(maxCount, "maxCount", UINT64)
    if bytes_wanted > room:
        raise refuse(_PARAM, "count", f"at most maxCount = {room}", bytes_wanted)
    if target.block is None:
        expected = "memory of aclrtMalloc or aclrtMallocHost"
        raise refuse(_PARAM, "devPtr", expected, f"{target.address:#x}, which is not")
    target.check_room("devPtr", bytes_wanted, write=True)
    device = _device_of(target)
    return Transfer(partial(device.fill, target.address, byte, bytes_wanted), None, target)


def _device_of(side: Pointer) -> Device:
    return device_named(side.block.device) if side.block is not None else host


def _side(side: Pointer) -> str:
    where = "device" if side.on_device else "host"
    return f"{where} memory at {side.address:#x}"


@returns_status
def aclrtMemcpy(dst: Any, destMax: Any, src: Any, count: Any, kind: Any) -> None:
    """Copy at once; host sides may be addresses, NumPy arrays or other buffers."""
    transfer = _plan_copy(dst, destMax, src, count, kind)
    if transfer is not None:
        transfer()


@returns_status
def aclrtMemcpyAsync(
    dst: Any, destMax: Any, src: Any, count: Any, kind: Any, stream: Any = None
) -> None:
    """Copy in the stream's order; returns at once unless a side is pageable host memory."""
    transfer = _plan_copy(dst, destMax, src, count, kind)
    if transfer is None:
        return
    _check_asynchronous(transfer)
    _queue(transfer, stream)


@returns_status
def aclrtMemset(devPtr: Any, maxCount: Any, value: Any, count: Any) -> None:
    """Fill device or page-locked memory with a byte."""
    transfer = plan_fill(devPtr, maxCount, value, count)
    if transfer is not None:
        transfer()


@returns_status
def aclrtMemsetAsync(
    devPtr: Any, maxCount: Any, value: Any, count: Any, stream: Any = None
) -> None:
    """Fill in the stream's order."""
    transfer = plan_fill(devPtr, maxCount, value, count)
    if transfer is not None:
        _queue(transfer, stream)


def _check_asynchronous(transfer: Transfer) -> None:
    source, target = transfer.source, transfer.target
    if source is None:
        return
    if not source.on_device and not target.on_device:
        code = AclError.ACL_ERROR_RT_FEATURE_NOT_SUPPORT
        raise refuse(code, "kind", "a device on one side", "host to host")
    if source.on_device and target.on_device:
        for argument, side in (("dst", target), ("src", source)):
            if side.address % ALIGNMENT:
                code = AclError.ACL_ERROR_RT_ADDR_UNALIGNED
                expected = f"a multiple of {ALIGNMENT}"
                raise refuse(code, argument, expected, f"{side.address:#x}")


def _queue(transfer: Transfer, handle: Any) -> None:
    stream = current_stream(handle)
    stream.submit(transfer)
    if transfer.pageable:
        stream.wait()


@returns_value((0, 0))
def aclrtGetMemInfo(attr: Any) -> tuple[int, int]:
    """Free and total bytes of the device's memory, of whatever kind is asked for."""
    integer(attr, "attr", (0, max(MemAttr)))
    device = required_context().device
    total = device.capacity()
    return max(total - memory.used_bytes(device.name), 0), total


def _number(convert: Callable[[Any], Any], value: Any) -> Any:
    try:
        return convert(value)
    except (TypeError, ValueError, OverflowError):
        return None


def aclFloat16ToFloat(value: Any) -> float:
    """The FLOAT value of FLOAT16 bits; saturating: Inf gives 65536, NaN 98304."""
    bits = _number(int, value)
    if bits is None:
        return 0.0
    number = float(np.uint16(bits & 0xFFFF).view(np.float16))
    if math.isnan(number):
        return 98304.0
    return math.copysign(65536.0, number) if math.isinf(number) else number


_LARGEST_HALF = 65504.0


def aclFloatToFloat16(value: Any) -> int:
    """The FLOAT16 bits of a FLOAT, rounded to nearest even; saturating: Inf, NaN and too large numbers give 65504."""
    number = _number(float, value)
    if number is None:
        return 0
    with np.errstate(over="ignore"):
        single = float(np.float32(number))
    if math.isnan(single):
        single = _LARGEST_HALF
    # Between 65504 and 65520 rounding would go down anyway, above it would give Inf.
    clipped = min(max(single, -_LARGEST_HALF), _LARGEST_HALF)
    return int(np.float16(clipped).view(np.uint16))


def aclDataTypeSize(dataType: Any) -> int:
    """The bytes of one element; 0 for an unknown type and where a byte holds several elements."""
    code = _number(int, dataType)
    return 0 if code is None else dtype_of_code(code).itemsize
