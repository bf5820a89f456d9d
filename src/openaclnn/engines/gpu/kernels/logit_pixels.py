# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
"""Cross entropy from logits of pixels: a pixel in each lane, whose classes come one after another.

See `operators/logits.py` for the formulas. Planes of classes are read once, four at a time: its row formula would hold all classes of a pixel, or read them twice.
"""

from __future__ import annotations

import triton
import triton.language as tl

from openaclnn.engines.gpu.kernels.logits import (
    NOTHING,
    PART,
    _joined_four,
    _log1p,
    finite,
    moved,
    spread_of,
    store_sums,
)
from openaclnn.engines.gpu.kernels.sums import is_counted, let_next_start


@triton.jit
def _block(pixels, seconds, blocks, PIXELS_UNIT: tl.constexpr, BLOCK: tl.constexpr):
    """Which of the two outer axes a program is at, where its pixels begin, and which of its lanes have one."""
    program = tl.program_id(0)
    line = program // blocks
    start = (program % blocks).to(tl.int64) * BLOCK
    inside = tl.arange(0, BLOCK) < pixels.to(tl.int64) * PIXELS_UNIT - start
    return (line // seconds).to(tl.int64), (line % seconds).to(tl.int64), start, inside


@triton.jit
def _pixels(
    pointer, first, second, start, first_stride, second_stride, pixel_stride,
    DENSE: tl.constexpr, UNIT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Pointers to an operand's elements at a program's pixels."""
    line = pointer + (first * first_stride + second * second_stride) * UNIT
    if DENSE:
        places = line + start + tl.arange(0, BLOCK)
    else:
        places = line + (start + tl.arange(0, BLOCK)) * (pixel_stride * UNIT)
    return places


@triton.jit
def _plane(planes, label, classes, class_step, inside):
    """A class of all pixels."""
    there = inside & (label + tl.zeros([1], tl.int32) < classes)
    return tl.load(planes + label * class_step, there, other=NOTHING).to(tl.float32)


@triton.jit
def _weight(weight, label, classes, weight_stride):
    """Of a class; that of the last one beyond."""
    if weight is None:
        factor = tl.full([], 1.0, tl.float32)
    else:
        factor = tl.load(weight + tl.minimum(label, classes - 1).to(tl.int64) * weight_stride)
    return factor


@triton.jit
def _smoothed(spread, weights, values, shift, weight, label, classes, weight_stride):
    """What label smoothing sums: weight * (x - shift), a part of it, and the weights."""
    factor = _weight(weight, label, classes, weight_stride)
    there = label + tl.zeros([1], tl.int32) < classes
    factor = tl.where(there, factor, 0.0)
    return spread + spread_of(values, factor, there, shift), weights + factor.to(tl.float64)


@triton.jit
def _added(spread, lost, more):
    """A sum, and what it has lost so far: beside one class far from the others, each of those would be less than a unit of it."""
    total = spread + more
    return total, lost + (more - (total - spread))


@triton.jit
def pixel_losses(
    target, x, weight, out, tops, rests, sums,
    pixels, seconds, blocks, classes, target_first, target_second, target_pixel, x_first, x_second, x_pixel, x_class,
    out_first, out_second, out_pixel, top_first, top_second, top_pixel, rest_first, rest_second, rest_pixel,
    weight_stride, ignore_index, smoothing, zloss_scale,
    OVERLAPPED: tl.constexpr, EACH: tl.constexpr, SMOOTHED: tl.constexpr, SQUARED: tl.constexpr,
    DENSE: tl.constexpr, UNIT: tl.constexpr, PIXELS_UNIT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A block of pixels: their numbers are written, and their losses or the sums of those."""
    let_next_start(OVERLAPPED)
    first, second, start, inside = _block(pixels, seconds, blocks, PIXELS_UNIT, BLOCK)
    planes = _pixels(x, first, second, start, x_first, x_second, x_pixel, DENSE, UNIT, BLOCK)
    step = x_class.to(tl.int64) * UNIT
    high = tl.full([BLOCK], NOTHING, tl.float32)
    others = tl.zeros([BLOCK], tl.float32)
    spread = tl.zeros([BLOCK], tl.float32)
    lost = tl.zeros([BLOCK], tl.float32)
    weights = tl.zeros([1], tl.float64)
    for label in range(0, classes, 4):
        a = _plane(planes, label, classes, step, inside)
        b = _plane(planes, label + 1, classes, step, inside)
        c = _plane(planes, label + 2, classes, step, inside)
        d = _plane(planes, label + 3, classes, step, inside)
        before = high
        high, others = _joined_four(high, others, a, b, c, d)
        if SMOOTHED:
            shift = finite(high)
            more = moved(weights.to(tl.float32), before, shift)
            more, weights = _smoothed(
                more, weights, a, shift, weight, label, classes, weight_stride
            )
            more, weights = _smoothed(
                more, weights, b, shift, weight, label + 1, classes, weight_stride
            )
            more, weights = _smoothed(
                more, weights, c, shift, weight, label + 2, classes, weight_stride
            )
            more, weights = _smoothed(
                more, weights, d, shift, weight, label + 3, classes, weight_stride
            )
            spread, lost = _added(spread, lost, more)
    count = classes.to(tl.int64)
    places = _pixels(
        target, first, second, start, target_first, target_second, target_pixel, DENSE, UNIT, BLOCK
    )
    indices = tl.load(places, inside, other=0).to(tl.int64)
    counted = inside & is_counted(indices, count, ignore_index)
    picked = tl.load(planes + indices * step, counted, other=0).to(tl.float64)
    own_weight = tl.full([BLOCK], 1.0, tl.float64)
    if weight is not None:
        own_weight = tl.load(weight + indices * weight_stride, counted, other=0).to(tl.float64)
    rest = _log1p(others.to(tl.float64)) + (high - high).to(tl.float64)
    top = tl.where(rest != rest, rest, high.to(tl.float64))
    places = _pixels(
        tops, first, second, start, top_first, top_second, top_pixel, DENSE, UNIT, BLOCK
    )
    tl.store(places, top.to(tl.float32), inside)
    places = _pixels(
        rests, first, second, start, rest_first, rest_second, rest_pixel, DENSE, UNIT, BLOCK
    )
    tl.store(places, rest.to(tl.float32), inside)

    loss = -(own_weight * ((picked - top) - rest))
    if SMOOTHED:
        share = tl.full([BLOCK], smoothing, tl.float64)
        spread += tl.where(tl.abs(spread) < float("inf"), lost, 0.0)
        whole = rest * weights - spread.to(tl.float64) / PART
        loss = loss * (1.0 - share) + share / count.to(tl.float64) * whole
    loss = tl.where(counted, loss, 0.0)
    square = tl.zeros([BLOCK], tl.float64)
    if SQUARED:
        lse = top + rest
        square = tl.where(counted, tl.full([BLOCK], zloss_scale, tl.float64) * lse * lse, 0.0)
    if EACH:
        places = _pixels(
            out, first, second, start, out_first, out_second, out_pixel, DENSE, UNIT, BLOCK
        )
        tl.store(places, (loss + square).to(tl.float32), inside)
    else:
        store_sums(sums, loss, square, own_weight, counted)
