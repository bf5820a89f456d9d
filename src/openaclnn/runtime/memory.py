"""Allocations, tracked by address, so that no copy or kernel accesses memory beyond them; and pointer arguments, which are addresses,
tracked or not, or Python buffers.
"""

from __future__ import annotations

import ctypes
import itertools
import operator
import threading
import time
import weakref
from bisect import bisect_right, insort
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from openaclnn.core.forks import hold_over_forks
from openaclnn.core.products import current_product
from openaclnn.core.status import AclError
from openaclnn.core.tensor import Tensor
from openaclnn.runtime.device import Device, host
from openaclnn.runtime.errors import UINT64, is_null, refuse


@dataclass(eq=False, slots=True, weakref_slot=True)
class Allocation:
    """A block of `size` bytes (padding included) from `address`. A reference to it keeps the memory alive."""

    address: int
    size: int
    kind: str  # "device" or "host"
    device: str  # the name of the device that has the memory
    device_id: int = 0
    owner: object = field(default=None, repr=False)
    alive: bool = True  # until it is freed
    counted: bool = False  # among the bytes in use

    @property
    def end(self) -> int:
        return self.address + self.size


listeners: list[Callable[[], None]] = []
"""Functions that are called when memory is released or a descriptor changes, so that caches drop what they know of it."""


_notices = itertools.count(1)
_last_notice = [0]


def notices() -> int:
    """The number of the last `notify`; unchanged if there was none."""
    return _last_notice[0]


def notify(number: int = 0) -> None:
    """Call all listeners: an address or a descriptor has changed its meaning. An interrupt or a lack of memory does not prevent that. `number` is the
    notice's number if it was drawn before."""
    _last_notice[0] = number or next(_notices)
    interrupt: BaseException | None = None
    while True:
        try:
            for listener in listeners:
                listener()
            break
        except MemoryError:
            time.sleep(0.001)
        except BaseException as error:
            interrupt = error
    if interrupt is not None:
        raise interrupt


class AllocationTable:
    """Blocks ordered by address; any address inside a block finds it in O(log n).

    A garbage collection may run a finaliser that frees memory while this thread is in the table:
    the lock is re-entrant, and each change of the list is a single atomic call.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._blocks: dict[int, Allocation] = {}
        self._used: dict[str, int] = {}
        self._changes = 0
        self.lock = threading.RLock()

    def add(self, block: Allocation) -> None:
        with self.lock:
            self._changes += 1
            self._blocks[block.address] = block
            try:
                insort(self._starts, block.address)
            except MemoryError:
                del self._blocks[block.address]
                raise

    def find(self, address: int) -> Allocation | None:
        # A block with the address is the answer even if the table changed meanwhile, since blocks never change.
        starts = self._starts
        try:
            block = self._blocks[starts[bisect_right(starts, address) - 1]]
        except LookupError:
            return self._find_locked(address)
        if 0 <= address - block.address < block.size:
            return block
        return self._find_locked(address)

    def _find_locked(self, address: int) -> Allocation | None:
        """`find`, repeated under the lock until the table did not change meanwhile."""
        with self.lock:
            changes = -1
            block = None
            while changes != self._changes:
                changes = self._changes
                index = bisect_right(self._starts, address)
                nearest = self._starts[index - 1 : index]
                block = self._blocks.get(nearest[0]) if nearest else None
        return block if block is not None and address < block.end else None

    def remove(self, block: Allocation) -> bool:
        """Remove a block; False where another thread removed it before. What needs memory comes first, and interrupts are raised at the end, so that the
        block is removed wholly or not at all."""
        notice = next(_notices)
        with self.lock:
            if self._blocks.get(block.address) is not block:
                return False
            self._changes += 1
            self.uncount(block)
            block.alive = False
            del self._blocks[block.address]
            try:
                self._starts.remove(block.address)
            finally:
                notify(notice)
        return True

    def take_back(self, block: Allocation) -> None:
        """Undo the addition of a block that was not given to anybody, however far the addition came."""
        while True:
            try:
                self.uncount(block)
                self.remove(block)
                return
            except MemoryError:
                time.sleep(0.001)

    def blocks(self) -> list[Allocation]:
        with self.lock:
            return list(self._blocks.values())

    def count(self, block: Allocation, capacity: int) -> bool:
        """Count a block's bytes as used unless the capacity does not allow it."""
        with self.lock:
            used = self._used.get(block.device, 0) + block.size
            if used > capacity:
                return False
            self._used[block.device] = used
            block.counted = True
            return True

    def uncount(self, block: Allocation) -> None:
        with self.lock:
            if block.counted:
                used = self._used[block.device] - block.size
                block.counted = False
                self._used[block.device] = used

    def used(self, device: str) -> int:
        """How much memory of a device is allocated."""
        with self.lock:
            return self._used.get(device, 0)


_table = AllocationTable()
hold_over_forks(_table.lock)

find_allocation = _table.find
used_bytes = _table.used


def reference(address: int) -> weakref.ref[Allocation] | None:
    """A weak reference to the device memory that has an address; None if there is none."""
    block = find_allocation(address) if address else None
    return None if block is None or block.kind != "device" else weakref.ref(block)


def look_at(tensor: Tensor, address: int) -> None:
    """Make a tensor's descriptor describe an address. If tracked memory is there, the descriptor takes its device."""
    tensor.base, tensor.owner, tensor.raw, tensor.writable = address, None, True, True
    tensor.block = weak = reference(address)
    block = None if weak is None else weak()
    if block is not None:
        tensor.device = block.device


def padded_size(size: int, *, pad: bool = True) -> int:
    """The bytes that `aclrtMalloc` allocates: the size rounded up to 32 bytes, and 32 more on chips that pad."""
    # The 950 family reads whole blocks without reading beyond the end, and needs no padding.
    padding = 32 if pad and current_product().tag != "950" else 0
    total = size + 32 + padding - 1
    if total > UINT64[1]:
        raise refuse(
            AclError.ACL_ERROR_INVALID_PARAM, "size", "a size whose padding fits in 64 bits", size
        )
    return total // 32 * 32


def allocate(device: Device, size: int, device_id: int = 0, kind: str = "device") -> Allocation:
    """Exactly `size` bytes of device memory, or of page-locked "host" memory, which it can copy from and to asynchronously."""
    place = device if kind == "device" else host
    capacity = place.capacity()
    block = Allocation(0, size, kind, place.name, device_id)
    try:
        # Linux overcommits memory, and kills the process that uses too much: refuse before that.
        if not _table.count(block, capacity):
            left = max(capacity - _table.used(place.name), 0)
            raise _out_of_memory(size, f"{left} of {capacity} bytes left on {place.name}")
        give = device.allocate if kind == "device" else device.allocate_host
        block.address, block.owner = give(size)
        _table.add(block)
    except BaseException as error:
        _table.take_back(block)
        if isinstance(error, MemoryError):
            raise _out_of_memory(size, str(error) or "none left") from None
        raise
    return block


def _out_of_memory(size: int, got: str) -> Exception:
    return refuse(AclError.ACL_ERROR_RT_MEMORY_ALLOCATION, "size", f"{size} bytes free", got)


def release(address: int, argument: str, kind: str) -> None:
    """Free the block that starts at `address`; other addresses are refused."""
    block = _table.find(address)
    code = AclError.ACL_ERROR_RT_PARAM_INVALID
    expected = f"the address of a live {kind} allocation"
    if block is None:
        raise refuse(code, argument, expected, f"{address:#x}, unknown or already freed")
    if block.address != address:
        inside = f"{address:#x}, which is {address - block.address} bytes into {block.address:#x}"
        raise refuse(code, argument, expected, inside)
    if block.kind != kind:
        raise refuse(code, argument, expected, f"{address:#x}, which is {block.kind} memory")
    if not _table.remove(block):
        raise refuse(code, argument, expected, f"{address:#x}, already freed")


def release_device(device: str, device_id: int) -> None:
    """Free all memory of a device, as its reset does."""
    for block in _table.blocks():
        if block.kind == "device" and (block.device, block.device_id) == (device, device_id):
            _table.remove(block)


_LOWEST_ADDRESS = 65536
"""Linux maps no memory below this, so that a smaller number is no address."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """An address, how many bytes may be accessed from it (None: unknown), and the objects that keep the memory alive."""

    address: int
    room: int | None
    block: Allocation | None
    owner: object = None
    writable: bool = True

    @property
    def on_device(self) -> bool:
        return self.block is not None and self.block.kind == "device"

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
    start: int = array.ctypes.data
    # The array may be a view of tracked memory, whose kind then counts.
    block = find_allocation(start)
    return Pointer(start, array.nbytes, block, (owner, array), bool(array.flags.writeable))


def _scattered(argument: str) -> Exception:
    code = AclError.ACL_ERROR_RT_PARAM_INVALID
    return refuse(code, argument, "a contiguous buffer", "one with gaps")
