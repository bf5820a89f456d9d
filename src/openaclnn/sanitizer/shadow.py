"""What is known of each byte of memory: the allocation it belongs to, with its history, and whether anybody has written it.

Bytes are kept as spans, sorted and apart, and not one by one: a dense tensor is a single span of any size, a strided view has one for
each run of bytes that it touches.
"""

from __future__ import annotations

import weakref
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from openaclnn.calls.executor import Executor
from openaclnn.core.call import Call as Bound, bind_arguments
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import UINT8
from openaclnn.core.interop import view_memory
from openaclnn.core.plan import Plan
from openaclnn.core.products import current_product
from openaclnn.core.status import AclnnError
from openaclnn.core.tensor import Tensor, array_address, extent
from openaclnn.runtime.device import device_named, host
from openaclnn.runtime.memory import find_allocation
from openaclnn.sanitizer.events import Call

_Bounds = np.ndarray[Any, np.dtype[np.int64]]
_NONE: _Bounds = np.empty(0, np.int64)

MOST_RUNS = 1 << 22
"""Runs of bytes of a strided view up to which it is followed exactly."""
MOST_FREED = 1 << 14
"""Freed allocations that are kept in mind: the newest."""
QUARANTINE = 256 << 20
"""Bytes of freed memory that are held back, so that no other allocation gets their addresses."""


class Spans:
    """A set of addresses, as sorted spans `[start, stop)` that neither overlap nor touch."""

    __slots__ = ("starts", "stops")

    def __init__(self, starts: _Bounds = _NONE, stops: _Bounds = _NONE) -> None:
        self.starts = starts
        self.stops = stops

    @classmethod
    def between(cls, start: int, stop: int) -> Spans:
        if start >= stop:
            return cls()
        return cls(np.array([start], np.int64), np.array([stop], np.int64))

    @classmethod
    def of_runs(cls, starts: _Bounds, length: int) -> Spans:
        """Runs of one length, in any order; they may overlap."""
        starts = np.unique(starts)
        apart = np.diff(starts) > length
        first, last = np.concatenate(([True], apart)), np.concatenate((apart, [True]))
        return cls(starts[first], starts[last] + length)

    def __bool__(self) -> bool:
        return self.starts.size > 0

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Spans)
            and np.array_equal(self.starts, other.starts)
            and np.array_equal(self.stops, other.stops)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Spans({list(zip(self.starts.tolist(), self.stops.tolist(), strict=True))})"

    @property
    def low(self) -> int:
        return int(self.starts[0])

    @property
    def high(self) -> int:
        return int(self.stops[-1])

    @property
    def size(self) -> int:
        """How many bytes there are."""
        return int((self.stops - self.starts).sum())

    def moved(self, distance: int) -> Spans:
        return Spans(self.starts + distance, self.stops + distance)

    def holds(self, points: _Bounds) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Whether each of some addresses is in it."""
        place = np.searchsorted(self.starts, points, "right") - 1
        return (place >= 0) & (points < self.stops[np.maximum(place, 0)])

    def __or__(self, other: Spans) -> Spans:
        if not other or (self and self._is_around(other)) or self == other:
            return self
        if not self or other._is_around(self):
            return other
        return self._combined(other, np.logical_or)

    def __and__(self, other: Spans) -> Spans:
        if not self or not other or self.high <= other.low or other.high <= self.low:
            return Spans()
        if self._is_around(other):
            return other
        if other._is_around(self) or self == other:
            return self
        return self._combined(other, np.logical_and)

    def __sub__(self, other: Spans) -> Spans:
        if not self or not other or self.high <= other.low or other.high <= self.low:
            return self
        if other._is_around(self) or self == other:
            return Spans()
        return self._combined(other, lambda mine, theirs: mine & ~theirs)

    def _is_around(self, other: Spans) -> bool:
        """Whether one span holds all of the other set, as with dense tensors."""
        return self.starts.size == 1 and self.low <= other.low and other.high <= self.high

    def _combined(self, other: Spans, rule: Callable[[Any, Any], Any]) -> Spans:
        """Between two neighbouring bounds of both, all bytes are alike: the rule says which of these are wanted."""
        bounds = np.unique(np.concatenate((self.starts, self.stops, other.starts, other.stops)))
        wanted = rule(self.holds(bounds), other.holds(bounds))
        before = np.concatenate(([False], wanted[:-1]))
        return Spans(bounds[wanted & ~before], bounds[before & ~wanted])


def spans_of(tensor: Tensor, at_most: bool = False) -> Spans:
    """Exactly the bytes of a view; of one with too many runs none are sure to be in it, and at most those from the lowest to the highest are."""
    itemsize = tensor.dtype.itemsize
    if tensor.empty or not itemsize:
        return Spans()
    low, run = tensor.address, itemsize
    axes = []
    for size, stride in zip(tensor.shape, tensor.strides, strict=True):
        if size > 1 and stride:
            low += min(stride, 0) * (size - 1) * itemsize
            axes.append((abs(stride) * itemsize, size))
    axes.sort()
    while axes and axes[0][0] <= run:  # what touches is one run
        step, size = axes.pop(0)
        run += step * (size - 1)
    if not axes:
        return Spans.between(low, low + run)
    runs = 1
    for _, size in axes:
        runs *= size
    if runs > MOST_RUNS:
        high = low + run + sum(step * (size - 1) for step, size in axes)
        return Spans.between(low, high) if at_most else Spans()
    starts = np.array([low], np.int64)
    for step, size in axes:
        starts = np.add.outer(np.arange(size, dtype=np.int64) * step, starts).ravel()
    return Spans.of_runs(starts, run)


@dataclass(eq=False)
class Block:
    """One allocation: `asked` bytes from `start`, of `padded` that are there."""

    start: int
    asked: int
    padded: int
    kind: str  # "device" or "host"
    allocated_by: Any  # the call
    freed: Any = None  # the call, once it is
    written: Spans = field(default_factory=Spans)  # by anybody
    computed: Spans = field(default_factory=Spans)  # by operators
    uploaded: Any = None  # the copy from the host that filled it whole, and nothing else did
    keep: Any = field(default=None, repr=False)  # what the address stays taken with

    @property
    def stop(self) -> int:
        return self.start + self.asked

    @property
    def end(self) -> int:
        """Behind the padding."""
        return self.start + self.padded

    def place(self, address: int) -> str:
        """An address as people say it."""
        return f"byte {address - self.start} of the {self.asked} asked for"


class _Table:
    """Blocks that lie apart, by address."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self.blocks: OrderedDict[int, Block] = OrderedDict()  # as they came

    def add(self, block: Block) -> None:
        self.blocks[block.start] = block
        insort(self._starts, block.start)

    def remove(self, block: Block) -> bool:
        """False where it is not there."""
        if self.blocks.get(block.start) is not block:
            return False
        del self.blocks[block.start]
        del self._starts[bisect_right(self._starts, block.start) - 1]
        return True

    def find(self, address: int) -> Block | None:
        index = bisect_right(self._starts, address)
        block = self.blocks[self._starts[index - 1]] if index else None
        return block if block is not None and address < block.end else None

    def overlapping(self, block: Block) -> list[Block]:
        first = self.find(block.start)
        behind = self._starts[
            bisect_right(self._starts, block.start) : bisect_left(self._starts, block.end)
        ]
        return [*([] if first is None else [first]), *(self.blocks[start] for start in behind)]


class Shadow:
    """All allocations, live and freed, by address."""

    def __init__(self) -> None:
        self._live, self._freed = _Table(), _Table()
        self._held = 0  # bytes of freed ones

    def allocate(self, block: Block) -> None:
        """Take a new allocation in; what was freed at its addresses before is history."""
        for old in self._freed.overlapping(block):
            self._release(old)
            self._freed.remove(old)
        self._live.add(block)

    def free(self, block: Block, call: Any) -> None:
        """Keep a block in mind as freed, and its addresses from others while there is room."""
        if not self._live.remove(block):
            return
        block.freed = call
        self._freed.add(block)
        self._held += block.padded if block.keep is not None else 0
        if len(self._freed.blocks) > MOST_FREED:
            oldest = next(iter(self._freed.blocks.values()))
            self._release(oldest)
            self._freed.remove(oldest)
        for old in self._freed.blocks.values():
            if self._held <= QUARANTINE:
                break
            self._release(old)

    def _release(self, block: Block) -> None:
        if block.keep is not None:
            block.keep = None
            self._held -= block.padded

    def find(self, address: int) -> Block | None:
        """The live allocation that an address lies in, its padding included."""
        return self._live.find(address)

    def find_freed(self, address: int) -> Block | None:
        """The allocation that an address lay in until it was freed."""
        return self._freed.find(address)

    def blocks(self) -> list[Block]:
        """The live ones."""
        return list(self._live.blocks.values())


# What an operator's run reads and writes: the plan of the very call, and copies of its tensors, which the program may change meanwhile.


@dataclass(frozen=True, eq=False)
class Work:
    """A call of an operator as it was checked and planned; tensors by the names of their parameters."""

    operator: Operator
    bound: Bound
    plan: Plan
    reads: dict[str, Tensor]
    writes: dict[str, Tensor]

    @property
    def tensors(self) -> dict[str, Tensor]:
        return self.reads | self.writes


_known: weakref.WeakKeyDictionary[Executor, Work] = weakref.WeakKeyDictionary()


def work_of(executor: Any) -> Work | None:
    """What an executor runs; None where there is nothing to run, or it is none."""
    if not isinstance(executor, Executor):
        return None
    work = _known.get(executor)
    if work is None:
        operator = executor.operator
        try:
            bound = bind_arguments(operator, executor.described(), current_product())
            plan = operator.plan(bound)
        except AclnnError:  # descriptors that were destroyed, which is told elsewhere
            return None
        operands = () if plan.empty else (plan.inputs, plan.outputs)
        tensors = [
            {each.parameter: bound.tensor(each.parameter) for each in side} for side in operands
        ]
        _known[executor] = work = Work(operator, bound, plan, *(tensors or ({}, {})))
    return work


def tensors_of(call: Call) -> dict[str, Tensor]:
    """The descriptors among a call's arguments."""
    return {name: each for name, each in call.arguments.items() if isinstance(each, Tensor)}


def snapshot(tensor: Tensor) -> Tensor:
    """A copy of a descriptor, which keeps the memory that it has now."""
    owner = find_allocation(tensor.base) if tensor.raw else tensor.owner
    return Tensor(
        tensor.shape, tensor.dtype, tensor.strides, tensor.offset, tensor.format, tensor.storage_shape, tensor.base,
        owner=owner, device=tensor.device, raw=tensor.raw, writable=tensor.writable,
    )  # fmt: skip


def read_bytes(address: int, count: int, device: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Memory of a device, as bytes on the host."""
    if device == host.name:
        return view_memory(Tensor((count,), UINT8, base=address))
    copied = np.empty(count, np.uint8)
    device_named(device).copy(array_address(copied), address, count)
    return copied


def values(tensor: Tensor) -> np.ndarray[Any, Any]:
    """A tensor's values: where they lie on the host, else a copy of them. NumPy has 32 axes at least: with more, those of one element are
    left out."""
    if tensor.rank > 32:
        axes = zip(tensor.shape, tensor.strides, strict=True)
        shape, strides = zip(*[axis for axis in axes if axis[0] != 1] or [(1, 1)], strict=True)
        address, owner = tensor.address, tensor.owner
        tensor = Tensor.view(shape, tensor.dtype, strides, address, owner, tensor.device)
    if tensor.device == host.name:
        return view_memory(tensor)
    low, high = extent(tensor)
    copied = read_bytes(tensor.address + low, high - low, tensor.device)
    there = Tensor(tensor.shape, tensor.dtype, tensor.strides, base=array_address(copied) - low, owner=copied)  # fmt: skip
    view = view_memory(there)
    return view if view.size == 0 else view.copy()
