# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
"""The sums over all targets that `mean` divides by, and over all classes' weights.

They run in float64, in an order that depends on the shape alone, so that the same call gives the same
bits. Where the device can, the kernel that needs a sum starts while it is made (OVERLAPPED): it reads
its other inputs, and waits only then. That took the cost of `mean` from 3.5 to 1.4 us.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import triton
import triton.language as tl

from openaclnn.core.plan import Plan, collapse
from openaclnn.engines.gpu import scratch
from openaclnn.engines.gpu.launch import Family, Launch, Sizes, Slot, next_power_of_two
from openaclnn.engines.gpu.operands import INT32_LIMIT, operand_of, pointer_type, slots_of
from openaclnn.engines.gpu.queues import SizedRunner, queue_of

try:
    from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
except ImportError:  # a Triton that cannot overlap launches; see `launch._overlapping`
    gdc_launch_dependents = gdc_wait = None

FLOAT64_BYTES = 8
SUMS = 3  # the counted targets' weights, their number, all classes' weights


@triton.jit
def is_counted(indices, classes, ignore_index):
    return (indices != ignore_index) & (indices >= 0) & (indices < classes)


@triton.jit(do_not_specialize=list(range(3, 13)))
def add_up(
    target, weight, sums,
    count, second_size, third_size, first_stride, second_stride, third_stride,
    weight_stride, classes, ignore_index, parts,
    OVERLAPPED: tl.constexpr, AXES: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One part of each of the three sums; part p takes every block whose number is p modulo `parts`."""
    if OVERLAPPED:
        gdc_launch_dependents()
    part = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    start = part * BLOCK
    number = tl.zeros([BLOCK], tl.int32)
    if WIDE:
        start = start.to(tl.int64)
        number = number.to(tl.int64)
    total = tl.zeros([BLOCK], tl.float64)
    for first in range(start, count, parts * BLOCK):
        position = first + lanes
        inside = position < count
        offset = position.to(tl.int64) * third_stride
        if AXES > 1:
            row = position // third_size
            offset = (position - row * third_size).to(tl.int64) * third_stride
            if AXES > 2:
                image = row // second_size
                row = row - image * second_size
                offset += image.to(tl.int64) * first_stride
            offset += row.to(tl.int64) * second_stride
        indices = tl.load(target + offset, inside, other=0).to(tl.int64)
        counted = inside & is_counted(indices, classes, ignore_index)
        number += counted.to(number.dtype)
        if weight is not None:
            total += tl.load(weight + indices * weight_stride, counted, other=0).to(tl.float64)
    counted_here = tl.sum(number).to(tl.float64)
    tl.store(sums + parts + part, counted_here)
    if weight is None:  # and nobody reads the third sum
        tl.store(sums + part, counted_here)
    else:
        everything = tl.zeros([BLOCK], tl.float64)
        for first in range(part * BLOCK, classes, parts * BLOCK):
            place = (first + lanes).to(tl.int64)
            own = tl.load(weight + place * weight_stride, place < classes, other=0)
            everything += own.to(tl.float64)
        tl.store(sums + part, tl.sum(total))
        tl.store(sums + 2 * parts + part, tl.sum(everything))


@triton.jit
def finish_sums(parts, sums, OVERLAPPED: tl.constexpr, PARTS: tl.constexpr):
    """Each sum's parts into one number."""
    if OVERLAPPED:
        gdc_launch_dependents()
        gdc_wait()
    which = tl.program_id(0)
    tl.store(sums + which, tl.sum(tl.load(parts + which * PARTS + tl.arange(0, PARTS))))


@triton.jit
def await_sums(OVERLAPPED: tl.constexpr):
    """To be called before sums are read, and before anything is written."""
    if OVERLAPPED:
        gdc_wait()


@triton.jit
def read_sum(sums, WHICH: tl.constexpr, PARTS: tl.constexpr):
    return tl.sum(tl.load(sums + WHICH * PARTS + tl.arange(0, PARTS))).to(tl.float32)


# Up to this many positions the kernel that needs a sum adds up a few parts itself; beyond, the sum is
# shared out among more programs, and a launch of its own (1-2 us) finishes it.
FEW_POSITIONS = 1 << 17
FEW_PARTS, MANY_PARTS = 16, 1024
SUM_BLOCK = 1024


class Sums(NamedTuple):
    """Launches that make the sums, where they lie, in how many parts, and the bytes of scratch it takes."""

    launches: list[Launch]
    slot: Slot | None
    parts: int
    scratch: int


NO_SUMS = Sums([], None, 1, 0)


def sum_launches(plan: Plan, weight: str) -> Sums:
    """What makes the sums that a plan needs."""
    target, weights = plan.inputs[plan.targets], operand_of(plan, weight)
    # Only the targets are walked, so axes merge that other operands may keep apart.
    merged, (steps,), (offset,) = collapse(plan.shape, [target.strides])
    missing = 3 - len(merged)
    shape, strides = (1,) * missing + merged, (0,) * missing + steps
    count = math.prod(shape)
    parts = _parts(count, plan.classes if weights else 0)
    step = weights.class_stride if weights else 0
    sizes = _add_sizes(
        count, shape[1:], strides, step, plan.classes, plan.numbers["ignore_index"], parts, len(merged)
    )  # fmt: skip
    add = Launch(_add_family(plan, weight, offset), *sizes)
    if parts <= FEW_PARTS:
        return Sums([add], _into(plan), parts, _scratch(parts))
    finished = _into(plan)._replace(shift=SUMS * parts * FLOAT64_BYTES)
    finish = Launch(_finish_family(plan, finished), *_finish_sizes(weights is not None))
    return Sums([add, finish], finished, 1, _scratch(parts))


def _parts(count: int, classes: int) -> int:
    longest = max(count, classes)
    if longest > FEW_POSITIONS:
        return MANY_PARTS
    return min(next_power_of_two(-(-longest // SUM_BLOCK)), FEW_PARTS)


def _scratch(parts: int) -> int:
    return SUMS * (parts + (parts > FEW_PARTS)) * FLOAT64_BYTES


def _into(plan: Plan) -> Slot:
    return Slot(len(plan.inputs) + 1, "float64")


def _add_family(plan: Plan, weight: str, offset: int = 0) -> Family:
    target = plan.inputs[plan.targets]
    shift = (target.offset + offset) * target.dtype.itemsize
    slots = (
        Slot(plan.targets, pointer_type(target), shift),
        *slots_of(plan, {weight: False}),
        _into(plan),
    )
    return Family(add_up, slots, overlapped=True)


def _finish_family(plan: Plan, finished: Slot) -> Family:
    return Family(finish_sums, (_into(plan), finished), overlapped=True, follows=True)


def _add_sizes(
    count: int, shape: tuple[int, ...], strides: tuple[int, ...],
    weight_stride: int, classes: int, ignore_index: int, parts: int, axes: int,
) -> Sizes:  # fmt: skip
    wide = count + (parts + 1) * SUM_BLOCK >= INT32_LIMIT
    numbers = count, *shape, *strides, weight_stride, classes, ignore_index, parts
    return parts, numbers, (axes, wide, SUM_BLOCK), 8


def _finish_sizes(weighted: bool) -> Sizes:
    return SUMS if weighted else SUMS - 1, (), (MANY_PARTS,), 4


Main = Callable[[Sequence[int], int, Sequence[int], int], None]
"""Queues a kernel: of addresses with those of the sums and a 0, a stream, the output's shape, and parts."""


def sums_slot(plan: Plan) -> Slot:
    """Where `sized_with_sums` has the sums: one address for their parts, another for what is to be read."""
    return Slot(len(plan.inputs) + 2, "float64")


def sized_with_sums(plan: Plan, weight: str, main: Main) -> SizedRunner:
    """`main` with sums of row-major targets, whatever the shape: positions, with the classes second."""
    finished = sums_slot(plan)
    add, finish = queue_of(_add_family(plan, weight)), queue_of(_finish_family(plan, finished))
    weighted = operand_of(plan, weight) is not None
    step, ignore_index = int(weighted), plan.numbers["ignore_index"]

    def run(addresses: Sequence[int], stream: int, shape: Sequence[int]) -> int:
        classes = shape[1]
        count = math.prod(shape) // classes
        parts = _parts(count, classes if weighted else 0)
        memory = scratch.allocate(_scratch(parts), stream)
        try:
            few = parts <= FEW_PARTS
            ready = memory if few else memory + SUMS * parts * FLOAT64_BYTES
            given = (*addresses, memory, ready, 0)
            sizes = _add_sizes(count, (1, count), (0, 0, 1), step, classes, ignore_index, parts, 1)
            add(given, stream, *sizes)
            if not few:
                finish(given, stream, *_finish_sizes(weighted))
            main(given, stream, shape, parts if few else 1)
        finally:
            scratch.release(memory)
        return 0

    return run
