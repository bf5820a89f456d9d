# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
"""Sums and means over all elements or positions: programs leave float64 sums of their parts, one more adds those up. Of
few, one program does both.

Which elements a part has depends on the shape, and of many elements on how far they begin from a vector's bounds, as views do that start
one element in: the same call gives the same bits.
"""

from __future__ import annotations

import triton
import triton.language as tl

from openaclnn.engines.gpu.kernels.sums import await_sums, is_counted, let_next_start


@triton.jit
def store_result(out, total, divisor, COMPUTE: tl.constexpr):
    """A sum over all, or their mean."""
    tl.store(out, (total / divisor).to(tl.float32).to(COMPUTE))


@triton.jit
def store_sum(
    sums, part, total, count, ALONE: tl.constexpr, MEAN: tl.constexpr, COMPUTE: tl.constexpr
):
    """A part's sum into its place or, of the only part (ALONE), the result into `sums`, which is the output."""
    if not ALONE:
        tl.store(sums + part, total)
    elif MEAN:
        store_result(sums, total, count.to(tl.float64), COMPUTE)
    else:
        store_result(sums, total, 1.0, COMPUTE)


@triton.jit(do_not_specialize=[2, 3])
def finish_reduction(
    sums, out, parts, divisor, OVERLAPPED: tl.constexpr, COMPUTE: tl.constexpr, BLOCK: tl.constexpr
):
    lanes = tl.arange(0, BLOCK)
    await_sums(OVERLAPPED)
    total = tl.sum(tl.load(sums + lanes, lanes < parts, other=0))
    store_result(out, total, divisor.to(tl.float64), COMPUTE)


@triton.jit
def fill_one(out, number):
    tl.store(out, number)


@triton.jit(do_not_specialize=list(range(5, 22)))
def nll_losses(
    target, values, weight, out, sums,
    count, second_size, third_size, target_first, target_second, target_third,
    values_first, values_second, values_third, out_first, out_second, out_third,
    class_stride, weight_stride, classes, ignore_index, parts,
    OVERLAPPED: tl.constexpr, ALONE: tl.constexpr, EACH: tl.constexpr, MEAN: tl.constexpr, COMPUTE: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """One part of the sums of losses and of weights, and each position's loss where that is asked for; of the only part (ALONE),
    the loss and, in the place of sums, the total weight."""
    let_next_start(OVERLAPPED)
    part = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    losses = tl.zeros([BLOCK], tl.float64)
    total = tl.zeros([BLOCK], tl.float64)
    for start in range(part.to(tl.int64) * BLOCK, count, parts * BLOCK):
        position = start + lanes
        inside = position < count
        line = position // third_size
        third = position - line * third_size
        first = line // second_size
        second = line - first * second_size
        place = first * target_first + second * target_second + third * target_third
        indices = tl.load(target + place, inside, other=0).to(tl.int64)
        counted = inside & is_counted(indices, classes, ignore_index)
        place = first * values_first + second * values_second + third * values_third
        own = tl.load(values + place + indices * class_stride, counted, other=0).to(tl.float64)
        factor = tl.load(weight + indices * weight_stride, counted, other=0).to(tl.float64)
        loss = tl.where(counted, -(factor * own), 0.0)
        losses += loss
        total += factor
        if EACH:
            place = first * out_first + second * out_second + third * out_third
            tl.store(out + place, loss.to(tl.float32), inside)
    if ALONE:
        store_nll(out, sums, tl.sum(losses), tl.sum(total), EACH, MEAN, COMPUTE)
    else:
        tl.store(sums + part, tl.sum(losses))
        tl.store(sums + parts + part, tl.sum(total))


@triton.jit
def store_nll(
    out, total, loss, weight, EACH: tl.constexpr, MEAN: tl.constexpr, COMPUTE: tl.constexpr
):
    """The total weight and, unless each position's loss was asked for, the sum of all or their mean."""
    if not EACH:
        if MEAN:
            store_result(out, loss, weight, COMPUTE)
        else:
            store_result(out, loss, 1.0, COMPUTE)
    store_result(total, weight, 1.0, COMPUTE)


@triton.jit(do_not_specialize=[3])
def finish_nll(
    sums, out, total, parts,
    OVERLAPPED: tl.constexpr, EACH: tl.constexpr, MEAN: tl.constexpr, COMPUTE: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    lanes = tl.arange(0, BLOCK)
    await_sums(OVERLAPPED)
    loss = tl.sum(tl.load(sums + lanes, lanes < parts, other=0))
    weight = tl.sum(tl.load(sums + parts + lanes, lanes < parts, other=0))
    store_nll(out, total, loss, weight, EACH, MEAN, COMPUTE)
