"""Copies and fills: the checks of `aclrtMemcpy` and `aclrtMemset` in their order, then the work."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from openaclnn.core.status import AclError
from openaclnn.runtime.device import Device, device_named, host
from openaclnn.runtime.enums import MemcpyKind
from openaclnn.runtime.errors import UINT64, integer, refuse
from openaclnn.runtime.pointers import Pointer, pointer

__all__ = ["Transfer", "plan_copy", "plan_fill"]

# Which sides of a copy are device memory, (source, destination), by kind. DEFAULT has no entry.
_SIDES = {
    MemcpyKind.ACL_MEMCPY_HOST_TO_HOST: (False, False),
    MemcpyKind.ACL_MEMCPY_HOST_TO_DEVICE: (False, True),
    MemcpyKind.ACL_MEMCPY_DEVICE_TO_HOST: (True, False),
    MemcpyKind.ACL_MEMCPY_DEVICE_TO_DEVICE: (True, True),
    MemcpyKind.ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE: (False, True),
}


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
        """Whether a side is host memory that the device cannot reach on its own."""
        sides = (self.source, self.target)
        return any(side is not None and side.block is None for side in sides)


def plan_copy(dst: Any, destMax: Any, src: Any, count: Any, kind: Any) -> Transfer | None:
    """Check a copy in the order the interface documents; None where there is nothing to do."""
    invalid = AclError.ACL_ERROR_RT_PARAM_INVALID
    bytes_wanted = integer(count, "count", UINT64)
    if bytes_wanted == 0:
        return None
    target, source = pointer(dst, "dst"), pointer(src, "src")
    known = integer(kind, "kind", (0, MemcpyKind.ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE))
    room = integer(destMax, "destMax", UINT64)
    if bytes_wanted > room:
        raise refuse(invalid, "count", f"at most destMax = {room}", bytes_wanted)
    if target.address == source.address:
        return None
    sides = (source.on_device, target.on_device)
    if _SIDES.get(MemcpyKind(known), sides) != sides:
        got = f"{_side(source)} to {_side(target)}"
        raise refuse(invalid, "kind", f"pointers that fit {MemcpyKind(known).name}", got)
    target.check_room("dst", bytes_wanted, write=True)
    source.check_room("src", bytes_wanted, write=False)
    device = _device_of(target if target.on_device else source)
    return Transfer(
        partial(device.copy, target.address, source.address, bytes_wanted), source, target
    )


def plan_fill(devPtr: Any, maxCount: Any, value: Any, count: Any) -> Transfer | None:
    """Check a fill; only memory of the runtime may be filled."""
    invalid = AclError.ACL_ERROR_RT_PARAM_INVALID
    bytes_wanted = integer(count, "count", UINT64)
    if bytes_wanted == 0:
        return None
    target = pointer(devPtr, "devPtr")
    byte = integer(value, "value", (-(2**31), 2**32 - 1)) & 0xFF
    room = integer(maxCount, "maxCount", UINT64)
    if bytes_wanted > room:
        raise refuse(invalid, "count", f"at most maxCount = {room}", bytes_wanted)
    if target.block is None:
        expected = "memory of aclrtMalloc or aclrtMallocHost"
        raise refuse(invalid, "devPtr", expected, f"{target.address:#x}, which is not")
    target.check_room("devPtr", bytes_wanted, write=True)
    device = _device_of(target)
    return Transfer(partial(device.fill, target.address, byte, bytes_wanted), None, target)


def _device_of(side: Pointer) -> Device:
    return device_named(side.block.device) if side.block is not None else host


def _side(side: Pointer) -> str:
    where = "device" if side.on_device else "host"
    return f"{where} memory at {side.address:#x}"
