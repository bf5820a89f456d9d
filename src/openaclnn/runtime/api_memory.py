"""Memory under its C names: allocation, copies, fills, and the host's number helpers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from openaclnn.core.dtypes import dtype_of_code
from openaclnn.core.status import AclError
from openaclnn.runtime import context as contexts
from openaclnn.runtime import copies, half, memory
from openaclnn.runtime.api_device import synchronize
from openaclnn.runtime.copies import Transfer
from openaclnn.runtime.device import ALIGNMENT, selected
from openaclnn.runtime.enums import MallocPolicy, MemAttr
from openaclnn.runtime.errors import INT32, UINT64, integer, refuse, returns_status, returns_value
from openaclnn.runtime.pointers import address
from openaclnn.runtime.resources import current_stream

__all__ = [
    "aclDataTypeSize", "aclFloat16ToFloat", "aclFloatToFloat16", "aclrtFree",
    "aclrtFreeHost", "aclrtFreeWithDevSync", "aclrtGetMemInfo", "aclrtMalloc",
    "aclrtMallocAlign32", "aclrtMallocCached", "aclrtMallocHost", "aclrtMallocWithCfg",
    "aclrtMemcpy", "aclrtMemcpyAsync", "aclrtMemset", "aclrtMemsetAsync",
]  # fmt: skip

_UNPADDED = (MallocPolicy.ACL_MEM_MALLOC_HUGE1G_ONLY, MallocPolicy.ACL_MEM_MALLOC_HUGE1G_ONLY_P2P)


def _allocate(size: Any, policy: Any, *, pad: bool = True) -> int:
    wanted = integer(size, "size", (1, UINT64[1]))
    pages = integer(policy, "policy", INT32) & 0xFF  # the flags above change nothing here
    padded = memory.padded_size(wanted, pad=pad and pages not in _UNPADDED)
    context = contexts.required()
    return memory.allocate(context.device, padded, context.device_id).address


@returns_value(0)
def aclrtMalloc(size: Any, policy: Any = 0) -> int:
    """Device memory, 64-byte aligned, not zeroed; 32 bytes larger than asked, rounded to 32."""
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
    finally:  # a failed task is reported, but its memory goes all the same
        memory.release(start, "devPtr", "device")


@returns_value(0)
def aclrtMallocHost(size: Any) -> int:
    """Page-locked host memory: copies from and to it are asynchronous."""
    wanted = integer(size, "size", (1, UINT64[1] - ALIGNMENT))
    return memory.allocate_pinned(selected(), wanted).address


@returns_status
def aclrtFreeHost(hostPtr: Any) -> None:
    """Free memory of `aclrtMallocHost`."""
    memory.release(address(hostPtr, "hostPtr"), "hostPtr", "host")


@returns_status
def aclrtMemcpy(dst: Any, destMax: Any, src: Any, count: Any, kind: Any) -> None:
    """Copy at once; host sides may be addresses, NumPy arrays or other buffers."""
    transfer = copies.plan_copy(dst, destMax, src, count, kind)
    if transfer is not None:
        transfer()


@returns_status
def aclrtMemcpyAsync(
    dst: Any, destMax: Any, src: Any, count: Any, kind: Any, stream: Any = None
) -> None:
    """Copy in the stream's order; returns at once unless a side is pageable host memory."""
    transfer = copies.plan_copy(dst, destMax, src, count, kind)
    if transfer is None:
        return
    _check_asynchronous(transfer)
    _queue(transfer, stream)


@returns_status
def aclrtMemset(devPtr: Any, maxCount: Any, value: Any, count: Any) -> None:
    """Fill device or page-locked memory with a byte."""
    transfer = copies.plan_fill(devPtr, maxCount, value, count)
    if transfer is not None:
        transfer()


@returns_status
def aclrtMemsetAsync(
    devPtr: Any, maxCount: Any, value: Any, count: Any, stream: Any = None
) -> None:
    """Fill in the stream's order."""
    transfer = copies.plan_fill(devPtr, maxCount, value, count)
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
    device = contexts.required().device
    total = device.capacity()
    return max(total - memory.used_bytes(device.name), 0), total


def _number(convert: Callable[[Any], Any], value: Any) -> Any:
    try:
        return convert(value)
    except (TypeError, ValueError, OverflowError):
        return None


def aclFloat16ToFloat(value: Any) -> float:
    """The FLOAT of FLOAT16 bits; Inf gives 65536, NaN 98304 (saturating)."""
    bits = _number(int, value)
    return 0.0 if bits is None else half.bits_to_float(bits)


def aclFloatToFloat16(value: Any) -> int:
    """The FLOAT16 bits of a FLOAT; Inf, NaN and what is too large give 65504 (saturating)."""
    number = _number(float, value)
    return 0 if number is None else half.float_to_bits(number)


def aclDataTypeSize(dataType: Any) -> int:
    """The bytes of one element; 0 for an unknown type and where a byte holds several elements."""
    code = _number(int, dataType)
    return 0 if code is None else dtype_of_code(code).itemsize
