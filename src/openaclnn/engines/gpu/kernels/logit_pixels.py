# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
"""Cross entropy from logits of pixels, and its gradient: a pixel in each lane, whose classes come one after another.

See `operators/logits.py` for the formulas. Planes of classes are read once each way, four at a time.
"""

from __future__ import annotations

import triton
import triton.language as tl

from openaclnn.engines.gpu.formulas.words import hardware_exp
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
from openaclnn.engines.gpu.kernels.rows import _less_one
from openaclnn.engines.gpu.kernels.sums import (
    await_sums,
    is_counted,
    let_next_start,
    read_sum,
    times_weights,
)


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
        own = tl.full([], 1.0, tl.float32)
    else:
        own = tl.load(weight + tl.minimum(label, classes - 1).to(tl.int64) * weight_stride)
    return own


@triton.jit
def _smoothed(spread, weights, values, shift, weight, label, classes, weight_stride):
    """What label smoothing sums: weight * (x - shift), a part of it, and the weights."""
    own = _weight(weight, label, classes, weight_stride)
    there = label + tl.zeros([1], tl.int32) < classes
    own = tl.where(there, own, 0.0)
    return spread + spread_of(values, own, there, shift), weights + own.to(tl.float64)


@triton.jit
def _added(spread, lost, more):
    """A sum, and what it has lost so far: beside one class far from the others, each of those would be less than a unit of it."""
    total = spread + more
    return total, lost + (more - (total - spread))


@triton.jit(do_not_specialize=list(range(7, 29)))
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


@triton.jit
def _write(
    outs, values, label, classes, out_step, inside, indices, counted, shift, factor, exact, smooth, weight,
    weight_stride, SMOOTHED: tl.constexpr, PRECISE: tl.constexpr,
):  # fmt: skip
    """The gradient of a class of all pixels."""
    result = hardware_exp(values - shift, PRECISE) * factor
    if SMOOTHED:
        result -= smooth * _weight(weight, label, classes, weight_stride)
    result = tl.where(indices == label, exact, result)
    # A pixel that does not count has no gradient, whatever is in it.
    result = tl.where(counted, result, 0.0)
    there = inside & (label + tl.zeros([1], tl.int32) < classes)
    tl.store(outs + label * out_step, result, there)


@triton.jit(do_not_specialize=list(range(8, 34)))
def pixel_gradients(
    target, gradient, x, top, rest, weight, sums, out,
    pixels, seconds, blocks, classes, target_first, target_second, target_pixel,
    gradient_first, gradient_second, gradient_pixel, x_first, x_second, x_pixel, x_class,
    top_first, top_second, top_pixel, rest_first, rest_second, rest_pixel, out_first, out_second, out_pixel, out_class,
    weight_stride, ignore_index, kept, smoothing, zloss_scale,
    OVERLAPPED: tl.constexpr, ONE_GRADIENT: tl.constexpr, MEAN: tl.constexpr, SMOOTHED: tl.constexpr,
    PRECISE: tl.constexpr, SQUARED: tl.constexpr, PARTS: tl.constexpr, DENSE: tl.constexpr,
    UNIT: tl.constexpr, PIXELS_UNIT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A block of pixels, all classes. What lies at the targets is read before anything is written: x and out may be one memory."""
    first, second, start, inside = _block(pixels, seconds, blocks, PIXELS_UNIT, BLOCK)
    planes = _pixels(x, first, second, start, x_first, x_second, x_pixel, DENSE, UNIT, BLOCK)
    outs = _pixels(out, first, second, start, out_first, out_second, out_pixel, DENSE, UNIT, BLOCK)
    step, out_step = x_class.to(tl.int64) * UNIT, out_class.to(tl.int64) * UNIT
    places = _pixels(
        target, first, second, start, target_first, target_second, target_pixel, DENSE, UNIT, BLOCK
    )
    indices = tl.load(places, inside, other=0).to(tl.int64)
    counted = inside & is_counted(indices, classes, ignore_index)
    places = _pixels(
        top, first, second, start, top_first, top_second, top_pixel, DENSE, UNIT, BLOCK
    )
    shift = tl.load(places, inside, other=0)
    places = _pixels(
        rest, first, second, start, rest_first, rest_second, rest_pixel, DENSE, UNIT, BLOCK
    )
    own_rest = tl.load(places, inside, other=0)
    if ONE_GRADIENT:
        own = tl.load(gradient).to(tl.float32) + tl.zeros([BLOCK], tl.float32)
    else:
        places = _pixels(
            gradient, first, second, start, gradient_first, gradient_second, gradient_pixel, DENSE, UNIT, BLOCK
        )  # fmt: skip
        own = tl.load(places, inside, other=0).to(tl.float32)
    there = tl.load(planes + indices * step, counted, other=0).to(tl.float64)
    target_weight = tl.full([BLOCK], 1.0, tl.float32)
    if weight is not None:
        target_weight = tl.load(weight + indices * weight_stride, counted, other=0)
    await_sums(OVERLAPPED)
    share = own
    if MEAN:
        share = tl.div_rn(own, read_sum(sums, 0, PARTS))
    nll = share * kept * target_weight
    factor = nll
    more = tl.zeros([BLOCK], tl.float32)
    smooth = more
    if SMOOTHED:
        smooth = tl.div_rn(share * smoothing, classes.to(tl.float32))
        if weight is None:
            more = smooth * classes.to(tl.float32)
        else:  # as FLOAT the sum may be infinite, and 0 times it NaN
            more = times_weights(smooth, sums, True, PARTS)
    if SQUARED:
        zloss = share
        if weight is not None:
            zloss = own
            if MEAN:
                zloss = tl.div_rn(own, read_sum(sums, 1, PARTS))
        more += zloss_scale * (shift + own_rest) * zloss
    factor = (nll + more) * hardware_exp(-own_rest, True)
    # p - 1 at the target loses digits as p nears 1, so that one element is made in float64.
    there = (there - shift.to(tl.float64)) - own_rest.to(tl.float64)
    power = tl.exp(there)
    precise = _less_one(there, power) * nll.to(tl.float64) + power * more.to(tl.float64)
    if SMOOTHED:
        precise -= smooth.to(tl.float64) * target_weight.to(tl.float64)
    exact = precise.to(tl.float32)
    labels = tl.where(counted, indices, -1).to(tl.int32)
    for label in range(0, classes, 4):
        a = _plane(planes, label, classes, step, inside)
        b = _plane(planes, label + 1, classes, step, inside)
        c = _plane(planes, label + 2, classes, step, inside)
        d = _plane(planes, label + 3, classes, step, inside)
        _write(
            outs, a, label, classes, out_step, inside, labels, counted, shift, factor, exact, smooth, weight,
            weight_stride, SMOOTHED, PRECISE,
        )  # fmt: skip
        _write(
            outs, b, label + 1, classes, out_step, inside, labels, counted, shift, factor, exact, smooth, weight,
            weight_stride, SMOOTHED, PRECISE,
        )  # fmt: skip
        _write(
            outs, c, label + 2, classes, out_step, inside, labels, counted, shift, factor, exact, smooth, weight,
            weight_stride, SMOOTHED, PRECISE,
        )  # fmt: skip
        _write(
            outs, d, label + 3, classes, out_step, inside, labels, counted, shift, factor, exact, smooth, weight,
            weight_stride, SMOOTHED, PRECISE,
        )  # fmt: skip
