"""What a pointer argument stands for: an address, tracked or not, or a Python buffer."""

from __future__ import annotations

import ctypes
import operator
from dataclasses import dataclass
from typing import Any

import numpy as np

from openaclnn.core.status import AclError
from openaclnn.runtime.errors import is_null, refuse
from openaclnn.runtime.memory import Allocation, find_allocation

__all__ = ["Pointer", "address", "pointer"]

_LOWEST_ADDRESS = 65536
"""Linux maps nothing below: a smaller address is a number that strayed in."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """An address, the bytes that may be touched from it (None: unknown), what keeps it alive."""

    address: int
    room: int | None
    block: Allocation | None
    owner: object = None
    writable: bool = True

    @property
    def on_device(self) -> bool:
        return self.block is not None and self.block.kind == "device"

    @property
    def pinned(self) -> bool:
        return self.block is not None and self.block.kind == "host"

    def check_room(self, argument: str, count: int, *, write: bool) -> None:
        """Refuse an access that leaves the memory, or writes where only reading is allowed."""
        code = AclError.ACL_ERROR_RT_PARAM_INVALID
        if write and not self.writable:
            raise refuse(code, argument, "a writable buffer", "a read-only one")
        if self.room is not None and count > self.room:
            got = f"{self.room} bytes from {self.address:#x}"
            raise refuse(code, argument, f"at least {count} bytes", got)


def address(value: Any, argument: str) -> int:
    """The address of a device pointer argument; null is refused."""
    if isinstance(value, (ctypes.c_void_p, ctypes._Pointer)):
        value = ctypes.cast(value, ctypes.c_void_p).value
    if is_null(value):
        raise refuse(AclError.ACL_ERROR_INVALID_PARAM, argument, "a pointer", "null")
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if not 0 < number < 2**64:
        raise refuse(AclError.ACL_ERROR_INVALID_PARAM, argument, "an address", repr(value))
    return number


def pointer(value: Any, argument: str) -> Pointer:
    """The pointer for an address, or for a NumPy array or other buffer in host memory."""
    if isinstance(value, np.ndarray):
        return _of_array(value, argument, value)
    if not isinstance(value, (int, ctypes.c_void_p, ctypes._Pointer)):
        try:
            view = memoryview(value)
        except TypeError:
            pass  # not a buffer; perhaps still an integer
        else:
            if not isinstance(value, np.integer):
                return _of_buffer(view, argument, value)
    number = address(value, argument)
    block = find_allocation(number)
    if block is not None:
        return Pointer(number, block.end - number, block)
    if number < _LOWEST_ADDRESS:
        code = AclError.ACL_ERROR_RT_PARAM_INVALID
        raise refuse(code, argument, "an address", f"{number:#x}, where no memory can be")
    return Pointer(number, None, None)


def _of_buffer(view: memoryview, argument: str, owner: object) -> Pointer:
    if view.nbytes == 0:
        return Pointer(_LOWEST_ADDRESS, 0, None)
    if not view.contiguous:
        raise _scattered(argument)
    return _of_array(np.frombuffer(view, np.uint8), argument, owner)


def _of_array(array: np.ndarray[Any, Any], argument: str, owner: object) -> Pointer:
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        raise _scattered(argument)
    start: int = array.__array_interface__["data"][0]
    # An array may itself look at tracked memory, which then decides on which side it is.
    block = find_allocation(start)
    return Pointer(start, array.nbytes, block, (owner, array), bool(array.flags.writeable))


def _scattered(argument: str) -> Exception:
    code = AclError.ACL_ERROR_RT_PARAM_INVALID
    return refuse(code, argument, "a contiguous buffer", "one with gaps")
