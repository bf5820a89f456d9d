"""The rules on memory and on order: where views lie, what is freed, what nobody has written, and what is used at the same time.

Work on streams is entered into an `Order`, in which nothing is done before something says so: the finding does not depend on how fast
anything was.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from openaclnn.calls.guard import check_overlap, lies_apart
from openaclnn.core.dtypes import BFLOAT16, FLOAT16, DType
from openaclnn.core.interface import Kind
from openaclnn.core.status import AclnnError
from openaclnn.core.tensor import Tensor, extent
from openaclnn.repeat.phases import extents_of
from openaclnn.runtime import AclFailure, find_allocation
from openaclnn.runtime.api_memory import SIDES
from openaclnn.runtime.device import ALIGNMENT
from openaclnn.runtime.memory import Pointer, address, pointer
from openaclnn.sanitizer.events import Call, Handler, Rules
from openaclnn.sanitizer.findings import Finding
from openaclnn.sanitizer.order import (
    ENDS,
    Access,
    Moment,
    Timeline,
    number_of,
    waited,
)
from openaclnn.sanitizer.shadow import (
    Block,
    Shadow,
    Spans,
    Work,
    read_bytes,
    spans_of,
    tensors_of,
    work_of,
)

_DESCRIPTOR_ALIGNMENT = 32
"""Of the address that aclCreateTensor is given, by its document."""


@dataclass(frozen=True, eq=False)
class _Use:
    """Bytes that a call reads or writes, for what is said of them."""

    call: Call
    argument: str
    stream: str  # "" for the host
    freeing: bool = False

    @property
    def where(self) -> str:
        return f" on {self.stream}" if self.stream else ""


@dataclass(frozen=True, eq=False)
class _Part:
    """Bytes of a block that an operator reads or writes; `filled` are those that have a value then."""

    name: str
    block: Block
    spans: Spans
    write: bool = False
    filled: Spans = field(default_factory=Spans)


class MemoryRules(Rules):
    """Memory from its allocation on, and the order of all that happens to it."""

    def __init__(self, time: Timeline) -> None:
        super().__init__()
        self.shadow = Shadow()
        self.time, self.order = time, time.order
        self._mistyped: set[Block] = set()

    # Memory comes and goes.

    def _allocate(self, call: Call) -> Iterator[None]:
        yield
        if call.status == 0 and call.result:
            kind = "host" if call.name == "aclrtMallocHost" else "device"
            held = find_allocation(call.result)
            asked = int(call.arguments["size"])
            padded = asked if held is None else held.size
            self.shadow.allocate(Block(call.result, asked, padded, kind, call, keep=held))

    def _block(self, place: int) -> Block | None:
        """The live block at an address; memory from before the sanitizer began counts as written."""
        block = self.shadow.find(place)
        if block is None:
            held = find_allocation(place)
            if held is not None:
                block = Block(held.address, held.size, held.size, held.kind, None, keep=held)
                block.written = Spans.between(block.start, block.stop)
                self.shadow.allocate(block)
        return block

    def _free(self, call: Call) -> Iterator[None]:
        name, kind = ("hostPtr", "host") if call.name == "aclrtFreeHost" else ("devPtr", "device")
        try:
            place = address(call.arguments.get(name), name)
        except AclFailure:
            return
        block = self._block(place)
        if block is None or block.start != place or block.kind != kind:
            self._tell_wrong_free(call, name, kind, place, block)
            return
        use = _Use(call, name, "", freeing=True)
        whole = Spans.between(block.start, block.end)
        points = self.time.points() if call.name == "aclrtFreeWithDevSync" else []
        if not points:
            self._enter(self.order.host_moment(), block, whole, True, use)
        yield
        if points and waited(call):
            self.time.join(points)
            self._enter(self.order.host_moment(), block, whole, True, use)
        self._drop_if_gone(block, call)

    def _tell_wrong_free(
        self, call: Call, name: str, kind: str, place: int, block: Block | None
    ) -> None:
        if block is not None:
            inside = f"{place - block.start} bytes into an allocation"
            what = inside if block.start != place else f"{block.kind} memory"
            message = f"{what}, which {call.name} cannot free"
            self._tell("wrong-memory", call, name, message, block)
            return
        freed = self.shadow.find_freed(place)
        if freed is None or freed.start != place:
            message = f"{place:#x} was not allocated by {_ALLOCATOR[kind]}"
            self._tell("wrong-memory", call, name, message)
        elif freed.freed.name.startswith("aclrtFree"):  # else the end of the device took it
            what = f"{freed.asked} bytes that were freed before"
            self._tell("double-free", call, name, what, freed)

    def _drop_if_gone(self, block: Block, call: Call) -> None:
        if block.keep is None or not block.keep.alive:
            self.shadow.free(block, call)
            self.order.forget(block)

    def _end(self, call: Call) -> Iterator[None]:
        """Memory may be gone: that which a device had."""
        yield
        for block in self.shadow.blocks():
            if block.keep is not None:
                self._drop_if_gone(block, call)

    # Copies and fills.

    def _side(self, call: Call, name: str, count: int, wanted: str) -> Pointer | None:
        """A side of a copy as the runtime sees it; what is wrong with it is told."""
        try:
            side = pointer(call.arguments.get(name), name)
        except AclFailure:
            return None
        return side if self._check_range(call, name, side.address, count, wanted) else None

    def _check_range(self, call: Call, name: str, place: int, count: int, wanted: str) -> bool:
        """Whether bytes lie in memory of the wanted kind ("" for any)."""
        block = self._block(place)
        if block is None:
            freed = self.shadow.find_freed(place)
            # Memory that is held back no more may be anybody's.
            if freed is not None and (wanted == "device" or freed.keep is not None):
                self._tell("use-after-free", call, name, f"{count} bytes of freed memory", freed)
                return False
            if wanted == "device":
                message = f"{place:#x} is in no device memory, where device memory is meant"
                self._tell("wrong-memory", call, name, message)
                return False
            return True
        if wanted and block.kind != wanted:
            message = f"{block.kind} memory, where {wanted} memory is meant"
            self._tell("wrong-memory", call, name, message, block)
            return False
        if place + count > block.stop and name != "workspace":  # which has a rule of its own
            where = f"from byte {place - block.start} on, of an allocation of {block.asked}"
            self._tell("out-of-bounds", call, name, f"{count} bytes {where}", block)
        return True

    def _copy(self, call: Call) -> Iterator[None]:
        arguments = call.arguments
        count, kind = number_of(arguments.get("count")), number_of(arguments.get("kind"))
        if not count:
            return
        on_device = None if kind is None else SIDES.get(kind)
        wanted = ("", "") if on_device is None else [_KINDS[side] for side in on_device]
        source, target = self._side(call, "src", count, wanted[0]), self._side(call, "dst", count, wanted[1])  # fmt: skip
        if source is None or target is None or source.address == target.address:
            return
        stream = self.time.stream(call) if "stream" in arguments else None
        if "stream" in arguments and source.on_device and target.on_device:
            for name, side in (("src", source), ("dst", target)):
                if side.address % ALIGNMENT:
                    self._tell("misaligned-address", call, name, f"{side.address:#x} is no multiple of {ALIGNMENT}, as copies on the device need")  # fmt: skip
        yield
        if call.status != 0:
            return
        origin = self._block(source.address) if source.block is not None else None
        goal = self._block(target.address) if target.block is not None else None

        def work(moment: Moment) -> None:
            use = self.time.name(stream)
            if origin is not None:
                spans = self._inside(origin, source.address, count)
                self._enter(moment, origin, spans, False, _Use(call, "src", use))
                if goal is None or goal.kind == "host":
                    self._check_written(call, "src", origin, spans, "copied to the host")
                    self._check_stale(call, origin, spans)
            if goal is not None:
                spans = self._inside(goal, target.address, count)
                self._enter(moment, goal, spans, True, _Use(call, "dst", use))
                self._write_copy(call, goal, spans, origin, target.address - source.address)

        self.time.run(stream, work)
        if stream is not None and None in (
            source.block,
            target.block,
        ):  # not page-locked: the call waits
            self.order.join(self.order.record(stream))

    def _write_copy(
        self, call: Call, goal: Block, spans: Spans, origin: Block | None, distance: int
    ) -> None:
        """What was not written at the source is not written at the destination either."""
        whole = Spans.between(goal.start, goal.stop)
        fresh = not (whole - spans) and "stream" not in call.arguments
        goal.uploaded = call if fresh and (origin is None or origin.kind == "host") else None
        goal.computed -= spans
        goal.written |= spans
        if origin is not None and origin.kind == "device":
            goal.written -= spans - origin.written.moved(distance)
            goal.computed |= spans & origin.computed.moved(distance)

    def _fill(self, call: Call) -> Iterator[None]:
        count = number_of(call.arguments.get("count"))
        if not count:
            return
        try:
            target = pointer(call.arguments.get("devPtr"), "devPtr")
        except AclFailure:
            return
        wanted = "" if self._block(target.address) is not None else "device"
        if not self._check_range(call, "devPtr", target.address, count, wanted):
            return
        stream = self.time.stream(call) if "stream" in call.arguments else None
        yield
        block = self._block(target.address)
        if call.status != 0 or block is None:
            return

        def work(moment: Moment) -> None:
            spans = self._inside(block, target.address, count)
            self._enter(moment, block, spans, True, _Use(call, "devPtr", self.time.name(stream)))
            block.written |= spans
            block.computed -= spans
            block.uploaded = None

        self.time.run(stream, work)

    @staticmethod
    def _inside(block: Block, place: int, count: int) -> Spans:
        return Spans.between(place, min(place + count, block.stop))

    # Operators.

    def _first_phase(self, call: Call) -> Iterator[None]:
        yield
        if call.status == 0:
            if isinstance(call.result, tuple):
                work_of(call.result[-1])  # planned while its descriptors live
            return
        # The call was refused; that it was for its memory is worth more than a status.
        outputs = {each.name for each in call.operator.parameters if each.kind is Kind.OUTPUT}
        for name, tensor in tensors_of(call).items():
            if tensor.alive and self._check_view(call, name, tensor) and name in outputs:
                self._check_apart(call, name, tensor)

    def _second_phase(self, call: Call) -> Iterator[None]:
        executor = call.arguments.get("executor")
        work = work_of(executor)
        if work is None or work.operator is not call.operator:
            return
        if executor.spent and not executor.repeatable:  # type: ignore[union-attr]
            return
        stream = self.time.stream(call)
        parts = self._parts(call, work)
        yield
        if stream is None or call.status != 0:
            return

        def run(moment: Moment) -> None:
            for part in sorted(parts, key=lambda each: each.write):
                use = _Use(call, part.name, self.time.name(stream))
                self._enter(moment, part.block, part.spans, part.write, use)
                if not part.write:
                    self._check_written(call, part.name, part.block, part.spans, "read")
                else:
                    part.block.written |= part.filled
                    part.block.computed |= part.filled
                    part.block.uploaded = None

        self.order.run(stream, run)

    def _parts(self, call: Call, work: Work) -> list[_Part]:
        """What phase two reads and writes; what is wrong with where it lies is told."""
        parts: list[_Part] = []
        sound = True
        for name, tensor in work.tensors.items():
            if not self._check_view(call, name, tensor):
                sound = False
                continue
            if not tensor.raw or tensor.empty:
                continue
            self._check_alignment(call, name, tensor)
            block = self._block(tensor.address)
            if block is None:
                continue
            self._check_type(call, name, tensor, block, output=name in work.writes)
            whole = Spans.between(block.start, block.stop)
            if name in work.reads:
                parts.append(_Part(name, block, spans_of(tensor) & whole))
            if name in work.writes:
                filled = spans_of(tensor, at_most=True) & whole
                parts.append(_Part(name, block, spans_of(tensor) & whole, True, filled))
        if sound and work.tensors:
            try:
                tensors = [work.bound.tensor(each.parameter) for each in work.plan.operands]
                check_overlap(work.plan, extents_of(work.plan), tensors, [each.address for each in tensors])  # fmt: skip
            except AclnnError as error:
                self._tell("overlapping-output", call, error.parameter, f"{error.got} instead of {error.expected}")  # fmt: skip
        size, place = number_of(call.arguments.get("workspaceSize")), number_of(call.arguments.get("workspace"))  # fmt: skip
        if size and place and self._check_range(call, "workspace", place, size, "device"):
            block = self._block(place)
            if block is not None:
                parts.append(_Part("workspace", block, self._inside(block, place, size), True))
        return parts

    def _check_view(self, call: Call, name: str, tensor: Tensor) -> bool:
        """Whether a tensor's memory is there; views of arrays look after themselves."""
        if not tensor.raw or not tensor.base or tensor.empty:
            return True
        low, high = (tensor.address + each for each in extent(tensor))
        block = self._block(tensor.base) or self._block(low)
        if block is None:
            return self._check_range(call, name, tensor.base, high - low, "device")
        if block.kind != "device":
            message = "host memory, where device memory is meant"
            self._tell("wrong-memory", call, name, message, block)
            return False
        if low < block.start or high > block.stop:
            view = f"shape {tensor.shape} of {tensor.dtype}"
            end = ", which is in its padding" if low >= block.start and high <= block.end else ""
            covered = f"the bytes {low - block.start} to {high - block.start}"
            message = f"{view} covers {covered} of an allocation of {block.asked}{end}"
            self._tell("out-of-bounds", call, name, message, block)
        return True

    def _check_apart(self, call: Call, name: str, tensor: Tensor) -> None:
        if not lies_apart(tensor):
            message = f"elements share memory: shape {tensor.shape}, strides {tensor.strides}"
            self._tell("overlapping-output", call, name, message, self._block(tensor.base))

    def _check_alignment(self, call: Call, name: str, tensor: Tensor) -> None:
        if tensor.base % _DESCRIPTOR_ALIGNMENT:
            self._tell(
                "misaligned-address", call, name,
                f"the address {tensor.base:#x} of its data is no multiple of {_DESCRIPTOR_ALIGNMENT} (an offset of elements may be any)",
                self._block(tensor.base),
            )  # fmt: skip

    def _check_type(
        self, call: Call, name: str, tensor: Tensor, block: Block, *, output: bool
    ) -> None:
        """Data of a wider type, described as a narrower one: the view has as many elements as were copied there, and half of their bytes. Zeros say
        nothing of their type, but an output of half of them may be read as the type of twice the size."""
        covered = tensor.size * tensor.dtype.itemsize
        if block.keep is None or not tensor.contiguous:
            return
        if tensor.address != block.start or covered * 2 != block.asked:
            return
        zeroed = output and tensor.dtype in (FLOAT16, BFLOAT16) and not block.computed
        if block.uploaded is None and (not zeroed or Spans.between(block.start, block.stop) - block.written):  # fmt: skip
            return
        data = read_bytes(block.start, min(block.asked, _LOOKED_AT), tensor.device)
        if zeroed and not data.any():
            self._mistyped.add(block)
        elif block.uploaded is not None and (wider := _wider_type(data, tensor.dtype)):
            self._mistyped.add(block)
            self._tell(
                "wrong-data-type", call, name,
                f"{tensor.size} elements of {tensor.dtype} are {covered} of the {block.asked} bytes copied there, whose values are those of "
                f"{tensor.size} elements of {wider}",
                block, ("filled", block.uploaded),
            )  # fmt: skip

    def _check_written(self, call: Call, name: str, block: Block, spans: Spans, verb: str) -> None:
        if block.kind == "host":  # which the program writes itself
            return
        missing = spans - block.written
        if missing:
            message = f"{missing.size} of {spans.size} bytes {verb} were never written"
            message += f", the first is {block.place(missing.low)}"
            self._tell("uninitialised-read", call, name, message, block)
            block.written |= missing  # told once

    def _check_stale(self, call: Call, block: Block, spans: Spans) -> None:
        """A result of which operators wrote a part alone, since it was, or may have been, described as another type."""
        if block not in self._mistyped:
            return
        stale = spans - block.computed
        if stale and stale.size < spans.size:
            self._tell(
                "stale-result", call, "src",
                f"{stale.size} of {spans.size} bytes were written by no operator: they are what was there before", block,
            )  # fmt: skip

    # The order of all that.

    def _enter(self, moment: Moment, block: Block, spans: Spans, write: bool, use: _Use) -> None:
        if not spans:
            return
        if block.freed is not None:  # before the stream came to work that was queued then
            did = "writes" if write else "reads"
            self._tell(
                "free-in-use", block.freed, "devPtr" if block.kind == "device" else "hostPtr",
                f"{spans.size} bytes are freed that {use.call.name} ({use.argument}) {did}{use.where}, and the host has not waited for that",
                block, (f"{_DONE[write]} by {use.call.name}", use.call),
            )  # fmt: skip
            return
        for other in self.order.enter(block, Access(moment, spans, write, use)):
            self._tell_clash(other, block, spans, write, use)

    def _tell_clash(
        self, other: Access, block: Block, spans: Spans, write: bool, use: _Use
    ) -> None:
        rule = "free-in-use" if use.freeing else "unordered-write" if write else "unordered-read"
        earlier: _Use = other.what
        done = "freed" if use.freeing else f"{_DONE[write]}{use.where}"
        did = "writes" if other.write else "reads"
        behind = (
            "nothing makes it wait for that" if use.stream else "the host has not waited for that"
        )
        shared = (spans & other.spans).size
        self._tell(
            rule, use.call, use.argument,
            f"{shared} bytes are {done} that {earlier.call.name} ({earlier.argument}) {did}{earlier.where}, and {behind}",
            block, (f"{_DONE[other.write]} by {earlier.call.name}", earlier.call),
        )  # fmt: skip

    def _tell(self, rule: str, call: Call, argument: str, message: str, block: Block | None = None, *others: tuple[str, Call]) -> None:  # fmt: skip
        history = list(others)
        if block is not None and block.allocated_by is not None:
            history.insert(0, ("allocated", block.allocated_by))
        if block is not None and block.freed is not None:
            history.append(("freed", block.freed))
        sites = [(word, each.site) for word, each in history]
        self.report(Finding(rule, call, argument, message, sites))

    HANDLERS: ClassVar[dict[str, Handler]] = {
        "phase 1": _first_phase,
        "phase 2": _second_phase,
        **dict.fromkeys(
            ("aclrtMalloc", "aclrtMallocAlign32", "aclrtMallocCached", "aclrtMallocWithCfg", "aclrtMallocHost"), _allocate
        ),
        **dict.fromkeys(("aclrtFree", "aclrtFreeHost", "aclrtFreeWithDevSync"), _free),
        **dict.fromkeys(("aclrtMemcpy", "aclrtMemcpyAsync"), _copy),
        **dict.fromkeys(("aclrtMemset", "aclrtMemsetAsync"), _fill),
        **dict.fromkeys(ENDS, _end),
    }  # fmt: skip


_DONE = {False: "read", True: "written"}
_KINDS = {False: "host", True: "device"}
_ALLOCATOR = {"device": "aclrtMalloc", "host": "aclrtMallocHost"}
_LOOKED_AT = 1 << 16
"""Bytes whose values are looked at to tell what type they have."""


def _wider_type(data: np.ndarray[Any, np.dtype[np.uint8]], declared: DType) -> str:
    """The type of twice the size that bytes have the values of, "" where they may as well be the declared ones.

    The low half of a wider float is no number that anybody means: all are 0, or they differ from the others by dozens of powers of two. The
    high half of a wider integer is its sign.
    """
    itemsize = declared.itemsize
    if declared.kind == "integer" and itemsize in (1, 2, 4):
        halves = data.view(f"i{itemsize}")
        signs = np.where(halves[::2] < 0, -1, 0)
        return f"INT{itemsize * 16}" if np.array_equal(halves[1::2], signs) else ""
    if declared.kind != "floating" or itemsize not in (2, 4):
        return ""
    name, wide = ("FLOAT", "f4") if itemsize == 2 else ("DOUBLE", "f8")
    with np.errstate(all="ignore"):
        parts = data.view(declared.numpy).astype(np.float64)
        whole = data.view(wide).astype(np.float64)
    if not np.isfinite(whole).all() or not whole.any():
        return ""
    if not parts[::2].any():
        return name
    # FLOAT16 has 40 powers of two in all; and what it means by one is eight to whom reads it as FLOAT.
    apart = 4 if declared.name == "FLOAT16" else 24
    return name if _powers(parts) >= _powers(whole) + apart else ""


def _powers(numbers: np.ndarray[Any, Any]) -> float:
    """Over how many powers of two the magnitudes of numbers spread."""
    if not np.isfinite(numbers).all():
        return np.inf
    sizes = np.abs(numbers[numbers != 0])
    return float(np.log2(sizes.max()) - np.log2(sizes.min())) if sizes.size else 0.0
