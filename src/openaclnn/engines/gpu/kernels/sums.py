# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
"""The sums over all targets that `mean` divides by, and over all classes' weights.

They run in float64, in an order that depends on the shape alone, so that the same call gives the same
bits. Where the device can, the kernel that needs a sum starts while it is made (OVERLAPPED): it reads
its other inputs, and waits only then. That took the cost of `mean` from 3.5 to 1.4 us.
"""

from __future__ import annotations

import triton
import triton.language as tl

try:
    from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
except ImportError:  # a Triton that cannot overlap launches; see `launching/variants.py`
    gdc_launch_dependents = gdc_wait = None


FEW_PARTS = tl.constexpr(16)  # of a sum, which the kernel that needs it adds up itself


@triton.jit
def is_counted(indices, classes, ignore_index):
    return (indices != ignore_index) & (indices >= 0) & (indices < classes)


@triton.jit
def add_up(
    target, weight, sums,
    count, second_size, third_size, first_stride, second_stride, third_stride,
    weight_stride, classes, ignore_index, parts,
    OVERLAPPED: tl.constexpr, SUMS: tl.constexpr, AXES: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One part of each of the first so many sums: the counted targets' weights, their number, all classes' weights, infinity times
    each of these. Part p takes every block whose number is p modulo `parts`."""
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
    if weight is None:
        tl.store(sums + part, counted_here)
    else:
        tl.store(sums + part, tl.sum(total))
    if SUMS > 2:
        everything = tl.zeros([BLOCK], tl.float64)
        infinite = tl.zeros([BLOCK], tl.float64)
        for first in range(part * BLOCK, classes, parts * BLOCK):
            place = (first + lanes).to(tl.int64)
            inside = place < classes
            weights = tl.load(weight + place * weight_stride, inside, other=0).to(tl.float64)
            everything += weights
            infinite += tl.where(inside, weights * float("inf"), 0.0)
        tl.store(sums + 2 * parts + part, tl.sum(everything))
        if SUMS > 3:
            tl.store(sums + 3 * parts + part, tl.sum(infinite))


@triton.jit
def finish_sums(sums, OVERLAPPED: tl.constexpr, PARTS: tl.constexpr):
    """Each sum's parts into one number, which takes the first one's place."""
    if OVERLAPPED:
        gdc_launch_dependents()
        gdc_wait()
    place = sums + tl.program_id(0) * PARTS
    tl.store(place, tl.sum(tl.load(place + tl.arange(0, PARTS))))


@triton.jit
def let_next_start(OVERLAPPED: tl.constexpr):
    """The launch after this one may start; it waits where it must."""
    if OVERLAPPED:
        gdc_launch_dependents()


@triton.jit
def await_sums(OVERLAPPED: tl.constexpr):
    """To be called before sums are read, and before anything is written."""
    if OVERLAPPED:
        gdc_wait()


@triton.jit
def read_wide_sum(sums, WHICH: tl.constexpr, PARTS: tl.constexpr):
    if PARTS > FEW_PARTS:  # which `finish_sums` added up
        total = tl.load(sums + WHICH * PARTS)
    else:
        total = tl.sum(tl.load(sums + WHICH * PARTS + tl.arange(0, PARTS)))
    return total


@triton.jit
def read_sum(sums, WHICH: tl.constexpr, PARTS: tl.constexpr):
    return read_wide_sum(sums, WHICH, PARTS).to(tl.float32)


@triton.jit
def gather_sums(
    sums, gathered, count, programs,
    OVERLAPPED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The sums of many programs, one kind after the other, as those of few, each of some blocks in their order."""
    let_next_start(OVERLAPPED)
    which, first = tl.program_id(0) // programs, tl.program_id(0) % programs
    lanes = tl.arange(0, BLOCK)
    each = tl.zeros([BLOCK], tl.float64)
    await_sums(OVERLAPPED)
    for start in range(first * BLOCK, count, programs * BLOCK):
        each += tl.load(sums + which * count + start + lanes, start + lanes < count, other=0)
    tl.store(gathered + tl.program_id(0), tl.sum(each))


@triton.jit
def finish_loss(
    totals, sums, loss, square_out, count,
    OVERLAPPED: tl.constexpr, MEAN: tl.constexpr, SQUARED: tl.constexpr, WEIGHTED: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The loss from the sums of all programs: of losses; what a mean divides them by, if `totals` does not say it; of squares; and what a mean divides these by, if that is another.

    That it is a launch of its own, and no last program of those before, leaves nothing to counters and to the order of memory between programs.
    """
    lanes = tl.arange(0, BLOCK)
    losses = tl.zeros([BLOCK], tl.float64)
    weights = tl.zeros([BLOCK], tl.float64)
    squares = tl.zeros([BLOCK], tl.float64)
    counts = tl.zeros([BLOCK], tl.float64)
    COUNTS: tl.constexpr = MEAN and totals is None
    await_sums(OVERLAPPED)
    for start in range(0, count, BLOCK):
        place, inside = sums + start + lanes, start + lanes < count
        losses += tl.load(place, inside, other=0)
        if COUNTS:
            place += count
            weights += tl.load(place, inside, other=0)
        if SQUARED:
            squares += tl.load(place + count, inside, other=0)
            if COUNTS and WEIGHTED:
                counts += tl.load(place + 2 * count, inside, other=0)
    result, square = tl.sum(losses), tl.sum(squares)
    if MEAN:
        if totals is None:
            whole = tl.sum(weights)
            counted = tl.sum(counts) if WEIGHTED else whole
        else:
            whole = read_wide_sum(totals, 0, PARTS)
            counted = read_wide_sum(totals, 1, PARTS)
        result = result / whole
        square = square / counted
    if SQUARED:
        result += square
    tl.store(loss, result.to(tl.float32))
    if square_out is not None:
        tl.store(square_out, square.to(tl.float32))
