# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
"""Cross entropy from logits with its gradient, of rows and images of up to some thousand classes: a program holds all classes of its
positions in registers, so that logits are read once and the gradient is written once. `fused_backward.py` says which gradient.

A tile has three axes. Along the first lie classes that a thread holds itself: reducing them takes no exchange between threads, and as the
number of classes is a constexpr, nothing is computed beyond the last. Of the other two axes one has positions and one has classes (the last, if ALONG), so
that the last has what lies side by side in memory; rows of a few classes are dealt out, one to a thread.

Loss and gradient are made of the sum over all classes but the target's: nothing is taken from 1, so that near a loss of 0 no digits are lost.
Products and sums are contracted where it is written (`tl.fma`), since both kernels must give the same bits.
"""

from __future__ import annotations

import triton
import triton.language as tl

from openaclnn.engines.formulas import cross_entropy
from openaclnn.engines.gpu.formulas.words import LOG2_E, reciprocal
from openaclnn.engines.gpu.kernels.row_source import load_dealt, store_dealt
from openaclnn.engines.gpu.kernels.sums import (
    add_up,
    await_sums,
    is_counted,
    let_next_start,
    read_sum,
    read_wide_sum,
)

GRADIENT, SURE = tl.constexpr(0), tl.constexpr(1)
"""What is expected, FLOATs: the loss's gradient, 1 if it was the same twice."""
WEIGHTS, COUNTED, ALL_WEIGHTS, INFINITE_WEIGHTS = (tl.constexpr(which) for which in range(4))
"""The sums of `add_up`."""

LARGE = tl.constexpr(65536.0)
PART = tl.constexpr(cross_entropy.PART)
"""Of a difference is summed, where the sum of whole ones may be infinite."""


@triton.jit
def finite(top):
    """What is subtracted before powers: where all are minus infinity, any finite number gives 0."""
    return tl.where(top == float("-inf"), 0.0, top)


@triton.jit
def below(values, shift):
    """A part of values - shift, which is finite where both are."""
    return tl.fma(values, PART, -(shift * PART))


@triton.jit
def expect_step(
    target, weight, sums, memory, expected,
    count, second_size, third_size, first_stride, second_stride, third_stride, weight_stride, classes, ignore_index, parts,
    OVERLAPPED: tl.constexpr, SUMS: tl.constexpr, AXES: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """What the last backward pass left in memory, and parts of the sums."""
    let_next_start(OVERLAPPED)
    if tl.program_id(0) == 0:
        tl.store(expected + GRADIENT, tl.load(memory + GRADIENT))
        tl.store(expected + SURE, tl.load(memory + SURE))
    if SUMS > 0:
        add_up(
            target, weight, sums, count, second_size, third_size, first_stride, second_stride, third_stride, weight_stride, classes,
            ignore_index, parts, False, SUMS, AXES, WIDE, BLOCK,
        )  # fmt: skip


@triton.jit
def _share(gradient, sums, WHICH: tl.constexpr, MEAN: tl.constexpr, PARTS: tl.constexpr):
    """A position's share of the loss's gradient, by its weight or its number: a FLOAT, and what that lacks."""
    share, lacking = gradient, tl.full([], 0.0, tl.float32)
    if MEAN:
        total = read_wide_sum(sums, WHICH, PARTS)
        near = total.to(tl.float32)
        share = tl.div_rn(gradient, near)
        left = tl.fma(-share, (total - near).to(tl.float32), tl.fma(-share, near, gradient))
        lacking = tl.where(tl.abs(share) < float("inf"), left / near, 0.0)
    return share, lacking


@triton.jit
def _product(x, x_lacks, y, y_lacks):
    """The product of two numbers, and what it lacks: each is a FLOAT and what that lacks."""
    product = x * y
    lacking = tl.fma(x, y, -product) + tl.fma(x, y_lacks, x_lacks * y)
    near = product + lacking
    finite_product = tl.abs(product) < float("inf")
    lacking = tl.where(finite_product, lacking - (near - product), 0.0)
    return tl.where(finite_product, near, product), lacking


@triton.jit
def _sum(values, AXIS: tl.constexpr):
    return tl.sum(tl.sum(values, 0, keep_dims=True), AXIS, keep_dims=True)


@triton.jit
def _any(flags):
    return tl.max(tl.ravel(flags).to(tl.int32), 0) != 0


@triton.jit
def _quotient(x, y, inverse):
    """x / y, made better by its remainder, unless it is infinite."""
    quotient = x * inverse
    better = tl.fma(tl.fma(-quotient, y, x), inverse, quotient)
    return tl.where(tl.abs(quotient) == float("inf"), quotient, better)


@triton.jit
def _classes(ALONG: tl.constexpr, HELD: tl.constexpr, LANES: tl.constexpr):
    """The classes of a tile: which one each thread's begin with, and what a lane adds."""
    held = tl.arange(0, HELD)[:, None, None] * LANES
    if ALONG:
        lane = tl.arange(0, LANES)[None, None, :]
    else:
        lane = tl.arange(0, LANES)[None, :, None]
    return held, lane


@triton.jit
def _positions(
    tile, rows, inner, blocks, held, lane,
    C: tl.constexpr, BY_CLASS: tl.constexpr, ALONG: tl.constexpr, UNIT: tl.constexpr, FULL: tl.constexpr, POSITIONS: tl.constexpr,
):  # fmt: skip
    """The positions of a tile: the first one's number, how far the others are from it, and which of them there are; and of the tile's
    elements."""
    if ALONG:
        position = tl.arange(0, POSITIONS)[None, :, None]
    else:
        position = tl.arange(0, POSITIONS)[None, None, :]
    if BY_CLASS:
        start = tile.to(tl.int64) * POSITIONS
        inside = position < tl.minimum(rows - start, POSITIONS).to(tl.int32)
    else:
        begin = (tile % blocks) * POSITIONS
        start = (tile // blocks) * (inner.to(tl.int64) * UNIT) + begin
        inside = position < inner * UNIT - begin
    here = held + lane < C
    if FULL:
        inside = position < POSITIONS
    else:
        here = here & inside
    return start, position, inside, here


@triton.jit
def _places(
    tile, inner, blocks, held, lane, start, position,
    C: tl.constexpr, BY_CLASS: tl.constexpr, UNIT: tl.constexpr, POSITIONS: tl.constexpr,
):  # fmt: skip
    """Where a tile's elements begin, where they lie from there on, each position's first, and how far its classes are apart."""
    if BY_CLASS:
        first, offset, stride = start * C, position * C, 1
    else:
        stride = inner.to(tl.int64) * UNIT  # 64 bits, with which an address is one instruction
        first, offset = (tile // blocks) * (C * stride) + (tile % blocks) * POSITIONS, position
    return first, held * stride + (lane * stride + offset), offset, stride


@triton.jit
def _read(
    x, target, weight, tile, rows, inner, blocks, ignore_index, held, lane, start, position, inside, here,
    C: tl.constexpr, BY_CLASS: tl.constexpr, ALONG: tl.constexpr, UNIT: tl.constexpr, HELD: tl.constexpr, POSITIONS: tl.constexpr,
):  # fmt: skip
    """A tile's logits, and of each position, whether it counts, which class is its target's, that one's logit and weight."""
    first, at, offset, stride = _places(
        tile, inner, blocks, held, lane, start, position, C, BY_CLASS, UNIT, POSITIONS
    )
    if BY_CLASS and not ALONG:
        values = load_dealt(x + first, rows - start, here, True, False, HELD, 1, POSITIONS, C)
        values = values.to(tl.float32)
    else:
        values = tl.load(x + first + at, here, other=float("-inf")).to(tl.float32)
    indices = tl.load(target + start + position, inside, other=-1).to(tl.int64)
    counted = inside & is_counted(indices, C, ignore_index)
    label = tl.where(counted, indices, -1).to(tl.int32)
    hit = tl.load(x + first + offset + label * stride, counted, other=float("-inf")).to(tl.float32)
    own_weight = tl.full(hit.shape, 1.0, tl.float32)
    if weight is not None:
        own_weight = tl.load(weight + label, counted, other=0).to(tl.float32)
    return values, counted, label, hit, own_weight


@triton.jit
def _write(
    out, gradients, tile, rows, inner, blocks, held, lane, start, position, here,
    C: tl.constexpr, BY_CLASS: tl.constexpr, ALONG: tl.constexpr, UNIT: tl.constexpr, HELD: tl.constexpr, POSITIONS: tl.constexpr,
):  # fmt: skip
    """A tile's gradient."""
    first, at, _, _ = _places(
        tile, inner, blocks, held, lane, start, position, C, BY_CLASS, UNIT, POSITIONS
    )
    if BY_CLASS and not ALONG:
        gradients = gradients.to(out.dtype.element_ty)
        store_dealt(out + first, gradients, rows - start, False, HELD, 1, POSITIONS, C)
    else:
        tl.store(out + first + at, gradients, here)


@triton.jit
def _probabilities(values, label, hit, held, lane, C: tl.constexpr, ALONG: tl.constexpr):
    """Powers of all logits, the factor that they still want, the target's power, what all others add, and all; and one over that."""
    AXIS: tl.constexpr = 2 if ALONG else 1
    top = tl.max(tl.max(values, 0, keep_dims=True), AXIS, keep_dims=True)
    base = finite(top)
    # Of large logits first the differences: what a product has lost would be no factor then.
    large = tl.abs(base) > LARGE
    near, near_hit = base, hit
    if _any(large):
        values = tl.where(large, values - base, values)
        near, near_hit = tl.where(large, 0.0, base), tl.where(large, hit - base, hit)
    # exp(x - top) with one rounding, where a difference and a product would have two.
    shift = near * LOG2_E
    scale = tl.exp2(-tl.fma(near, LOG2_E, -shift))
    powers = tl.exp2(tl.fma(values, LOG2_E, -shift))
    # Beyond the last class -0 is added, which changes no sum: compilers know that, and leave it out.
    counting = tl.where(held == label - lane, 0.0, powers)
    others = _sum(tl.where(held + lane < C, counting, -0.0), AXIS) * scale
    power = tl.where(hit == top, 1.0, tl.exp2(tl.fma(near_hit, LOG2_E, -shift)) * scale)
    total = others + power
    return top, base, powers, scale, power, others, total, reciprocal(total)


@triton.jit
def _log_total(hit, top, power, others, inverse):
    """The logarithm of all, beside the largest logit: NaN where a row has no probabilities. What a sum with 1 loses is put back."""
    # Where another class is the largest, its 1 is among the others.
    beside = tl.where(hit == top, others, (others - 1.0) + power)
    above = 1.0 + beside
    return tl.fma(beside - (above - 1.0), inverse, tl.log(above)) + (top - top)


@triton.jit
def _weights(weight, held, lane, C: tl.constexpr):
    """Of all classes; 1 without weights."""
    if weight is None:
        factors = tl.full([1, 1, 1], 1.0, tl.float32)
    else:
        factors = tl.load(weight + (held + lane), held + lane < C, other=0).to(tl.float32)
    return factors


@triton.jit
def _gradients(
    share, share_lacks, square_share, sums, weight, counted, label, own_weight, held, lane,
    top, rest, powers, scale, power, others, total, inverse, kept, kept_lacks, smoothing, smoothing_lacks, zloss_scale,
    C: tl.constexpr, SMOOTHED: tl.constexpr, SQUARED: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """The gradient of a tile: p * (nll + more) - smooth * weight, and at the target less nll."""
    nll, nll_lacks = share, share_lacks
    if SMOOTHED:
        nll, nll_lacks = _product(nll, nll_lacks, kept, kept_lacks)
    if weight is not None:
        nll, nll_lacks = _product(nll, nll_lacks, own_weight, 0.0)
    nll, nll_lacks = tl.where(counted, nll, 0.0), tl.where(counted, nll_lacks, 0.0)
    more, at_once = tl.zeros(nll.shape, tl.float32), nll
    if SMOOTHED:
        smooth, _smooth_lacks = _product(share, share_lacks, smoothing, smoothing_lacks)
        smooth = tl.where(counted, smooth, 0.0)
        at_once = nll + tl.fma(smooth, own_weight, nll_lacks)
        if weight is None:
            more = smooth * C
        else:
            infinite = tl.abs(smooth) == float("inf")
            everything = read_sum(sums, ALL_WEIGHTS, PARTS)
            more = smooth * tl.where(infinite, read_sum(sums, INFINITE_WEIGHTS, PARTS), everything)
    if SQUARED:
        more += tl.where(counted, (zloss_scale * 2.0) * (top + rest) * square_share, 0.0)
    factor = _quotient(nll + more, total, inverse) + (top - top)
    if SMOOTHED or SQUARED:
        lacking = tl.fma(power, more, others * nll * -1.0)
        at_target = _quotient(lacking, total, inverse) + (top - top)
    else:
        at_target = others * (factor * -1.0)
    if SMOOTHED:
        at_target = tl.fma(smooth * -1.0, own_weight, at_target)
    # Where the others have more than the target, nothing is lost by taking all of it at once, rounded once.
    several = (power < others) & (tl.abs(at_once) < float("inf"))
    at_target = tl.where(several, tl.fma(power, factor, -at_once), at_target)
    by_power = factor * scale
    # Of a position that does not count all is 0, whatever is in it. That something would be NaN is rare.
    if _any((counted == 0) & (by_power != by_power)):
        powers = tl.where(counted, powers, 0.0)
        by_power = tl.where(counted, by_power, 0.0)
        # Another value for the compiler, which would keep a register for each comparison with the first one.
        label = tl.where(counted, label, -2)
    gradients = powers * by_power
    if SMOOTHED:
        gradients = tl.fma(smooth * -1.0, _weights(weight, held, lane, C), gradients)
    return tl.where(held == label - lane, at_target, gradients)


@triton.jit
def step_ahead(
    x, target, weight, expected, sums, loss, tile_sums, out,
    rows, inner, out_inner, blocks, tiles, ignore_index, kept, kept_lacks, smoothing, smoothing_lacks, zloss_scale,
    OVERLAPPED: tl.constexpr, MEAN: tl.constexpr, EACH: tl.constexpr, SMOOTHED: tl.constexpr, SQUARED: tl.constexpr,
    C: tl.constexpr, BY_CLASS: tl.constexpr, ALONG: tl.constexpr, UNIT: tl.constexpr, FULL: tl.constexpr,
    HELD: tl.constexpr, LANES: tl.constexpr, POSITIONS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """A tile's losses or their sum, and the gradient if one is expected.

    How many pixels an image has is told for the gradient once more: the compiler would keep all addresses in registers if it was the same.
    """
    let_next_start(OVERLAPPED)
    tile = tl.program_id(0)
    held, lane = _classes(ALONG, HELD, LANES)
    start, position, inside, here = _positions(
        tile, rows, inner, blocks, held, lane, C, BY_CLASS, ALONG, UNIT, FULL, POSITIONS
    )
    values, counted, label, hit, own_weight = _read(
        x, target, weight, tile, rows, inner, blocks, ignore_index, held, lane, start, position, inside, here, C, BY_CLASS, ALONG, UNIT,
        HELD, POSITIONS,
    )  # fmt: skip
    await_sums(OVERLAPPED)
    gradient, sure = tl.load(expected + GRADIENT), tl.load(expected + SURE)
    top, base, powers, scale, power, others, total, inverse = _probabilities(
        values, label, hit, held, lane, C, ALONG
    )
    rest = _log_total(hit, top, power, others, inverse)
    each = (rest + (base - hit)) * own_weight
    if SMOOTHED:
        AXIS: tl.constexpr = 2 if ALONG else 1
        # Of x - top a part is summed, as the sum of whole ones may be infinite.
        apart = below(values, base) * _weights(weight, held, lane, C)
        spread = _sum(tl.where(held + lane < C, apart, -0.0), AXIS)
        if weight is None:
            everything = rest * C
        else:
            everything = rest * read_sum(sums, ALL_WEIGHTS, PARTS)
        each = each * kept + (everything * smoothing - spread * (smoothing / PART))
    if SQUARED:
        whole = top.to(tl.float64) + rest
        square = tl.where(counted, whole * whole * zloss_scale, 0.0)
    if EACH:
        if SQUARED:
            each = (each + square).to(tl.float32)
        # Along one axis: of three, LLVM (in Triton 3.6) ends the process for 17, 19 or 21 classes of 16 bits.
        losses = tl.ravel(tl.where(counted, each, 0.0))
        tl.store(loss + start + tl.ravel(position), losses, tl.ravel(inside))
    else:
        each = tl.where(counted, each, 0.0).to(tl.float64)
        tl.store(tile_sums + tile, tl.sum(tl.ravel(each)))
        if SQUARED:
            tl.store(tile_sums + tiles + tile, tl.sum(tl.ravel(square)))
    if sure != 0:
        share, share_lacks = _share(gradient, sums, WEIGHTS, MEAN, PARTS)
        square_share, _square_lacks = _share(gradient, sums, COUNTED, MEAN and SQUARED, PARTS)
        gradients = _gradients(
            share, share_lacks, square_share, sums, weight, counted, label, own_weight, held, lane, top, rest, powers, scale, power, others, total,
            inverse, kept, kept_lacks, smoothing, smoothing_lacks, zloss_scale, C, SMOOTHED, SQUARED, PARTS,
        )  # fmt: skip
        _write(
            out, gradients, tile, rows, out_inner, blocks, held, lane, start, position, here, C, BY_CLASS, ALONG, UNIT, HELD, POSITIONS
        )  # fmt: skip


@triton.jit
def _bits(x):
    """The gradient of -0 is not that of 0."""
    return x.to(tl.int32, bitcast=True)


@triton.jit
def step_late(
    gradient, x, target, weight, expected, sums, memory, out,
    rows, inner, out_inner, blocks, tiles, ignore_index, kept, kept_lacks, smoothing, smoothing_lacks, zloss_scale, programs,
    MEAN: tl.constexpr, EACH: tl.constexpr, SMOOTHED: tl.constexpr, SQUARED: tl.constexpr,
    C: tl.constexpr, BY_CLASS: tl.constexpr, ALONG: tl.constexpr, UNIT: tl.constexpr, FULL: tl.constexpr,
    HELD: tl.constexpr, LANES: tl.constexpr, POSITIONS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Nothing where the gradient is the one that was expected, else the tile anew. What it was is remembered."""
    known, sure = tl.load(expected + GRADIENT), tl.load(expected + SURE)
    program = tl.program_id(0)
    first_given = tl.load(gradient).to(tl.float32)
    if program == 0:
        tl.store(memory + GRADIENT, first_given)
        tl.store(memory + SURE, (_bits(first_given) == _bits(known)).to(tl.float32))
    last = tiles
    share, share_lacks = _share(first_given, sums, WEIGHTS, MEAN, PARTS)
    square_share, _square_lacks = _share(first_given, sums, COUNTED, MEAN and SQUARED, PARTS)
    if not EACH:
        last = tl.where((_bits(first_given) == _bits(known)) & (sure != 0), 0, tiles)
    held, lane = _classes(ALONG, HELD, LANES)
    for number in range(program, last, programs):
        tile = tl.full([], number, tl.int32)  # which the interpreter has as an int
        start, position, inside, here = _positions(
            tile, rows, inner, blocks, held, lane, C, BY_CLASS, ALONG, UNIT, FULL, POSITIONS
        )
        late, nll_share, squares_share = True, share, square_share
        if EACH:
            nll_share = tl.load(gradient + start + position, inside, other=0).to(tl.float32)
            squares_share = nll_share
            late = _any(inside & (_bits(nll_share) != _bits(known))) | (sure == 0)
        if late:
            values, counted, label, hit, own_weight = _read(
                x, target, weight, tile, rows, inner, blocks, ignore_index, held, lane, start, position, inside, here, C, BY_CLASS, ALONG, UNIT,
                HELD, POSITIONS,
            )  # fmt: skip
            top, _, powers, scale, power, others, total, inverse = _probabilities(
                values, label, hit, held, lane, C, ALONG
            )
            rest = top
            if SQUARED:
                rest = _log_total(hit, top, power, others, inverse)
            gradients = _gradients(
                nll_share, share_lacks, squares_share, sums, weight, counted, label, own_weight, held, lane, top, rest, powers, scale, power,
                others, total, inverse, kept, kept_lacks, smoothing, smoothing_lacks, zloss_scale, C, SMOOTHED, SQUARED, PARTS,
            )  # fmt: skip
            _write(
                out, gradients, tile, rows, out_inner, blocks, held, lane, start, position, here, C, BY_CLASS, ALONG, UNIT, HELD, POSITIONS
            )  # fmt: skip
