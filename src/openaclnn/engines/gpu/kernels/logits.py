# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
"""Cross entropy from logits: rows are read once, then finished, then added up; see `operators/logits.py`. For
aclnnCrossEntropyLoss (WHOLE) they are read once more for their log-probabilities. Of few logits a program has whole rows, so that it does
all of that in one launch, and reads each logit once.

A lane keeps its largest logit and the sum of exp(x - largest) over its others: of two numbers the smaller goes into the sum.
So the largest one's own 1 is never added, beside which the digits of small ones would be lost. One power is computed
for each logit, and one more for four to lower what was summed before.

Label smoothing sums weight * (x - largest), where nothing cancels, whichever class is far from the others: a lane its own
differences, which are moved where its largest rises, and where lanes and parts of a row are joined.
"""

from __future__ import annotations

import triton
import triton.language as tl

from openaclnn.engines.gpu.formulas.words import LOG2_E, maximum, minimum
from openaclnn.engines.gpu.kernels.sums import await_sums, is_counted, let_next_start

NOTHING = tl.constexpr(float("-inf"))
PART = tl.constexpr(2.0**-20)
"""Of a difference is summed in FLOAT, where the sum of whole ones may be infinite."""


@triton.jit
def _power(x):
    return tl.exp2(x * LOG2_E)


@triton.jit
def finite(top):
    """What is subtracted before powers: where all are minus infinity, any finite number gives 0."""
    return tl.where(top == NOTHING, 0.0, top)


@triton.jit
def _joined(top, others, more):
    """One more logit for each lane."""
    high, low = maximum(top, more), minimum(top, more)
    shift = finite(high)
    return high, others * _power(top - shift) + _power(low - shift)


@triton.jit
def _joined_four(top, others, first, second, third, fourth):
    a, high = minimum(top, first), maximum(top, first)
    b, high = minimum(high, second), maximum(high, second)
    c, high = minimum(high, third), maximum(high, third)
    d, high = minimum(high, fourth), maximum(high, fourth)
    shift = finite(high)
    powers = (_power(a - shift) + _power(b - shift)) + (_power(c - shift) + _power(d - shift))
    return high, others * _power(top - shift) + powers


@triton.jit
def weights_at(weight, at, inside, weight_stride, WEIGHT_STEP: tl.constexpr):
    """Of a block of classes; 1 without weights."""
    if weight is None:
        factors = tl.full([1, 1], 1.0, tl.float32)
    elif WEIGHT_STEP == 1:
        factors = tl.load(weight + at, inside, other=0)
    else:
        factors = tl.load(weight + at.to(tl.int64) * weight_stride, inside, other=0)
    return factors


@triton.jit
def below(values, shift):
    """A part of values - shift, which is finite where both are."""
    return tl.fma(values, PART, -(shift * PART))


@triton.jit
def spread_of(values, factors, inside, shift):
    """What label smoothing sums: weight * (x - shift), a part of it."""
    return tl.where(inside, below(values, shift) * factors, 0.0)


@triton.jit
def moved(weights, top, shift):
    """By how much a sum of weight * (x - top) changes if it is of x - shift, a part of it; below all numbers nothing was summed."""
    return tl.where(top == NOTHING, 0.0, below(top, shift) * weights)


@triton.jit
def _seen(head, lanes, reach, CLASSES: tl.constexpr):
    """How many classes each lane has read, of so many and those at the row's ends."""
    return head + (tl.maximum(reach + CLASSES - 1 - lanes, 0) // CLASSES).to(tl.float32)


@triton.jit
def _read(
    rows, at, lead, limit, inside_rows, class_stride, weight, weight_stride,
    CLASS_STEP: tl.constexpr, WEIGHT_STEP: tl.constexpr,
):  # fmt: skip
    """A block of logits, the weights of their classes, and which of them there are."""
    inside = inside_rows & (at < limit)
    if CLASS_STEP == 1:
        values = tl.load(rows + at, inside, other=NOTHING).to(tl.float32)
    else:
        values = tl.load(rows + at.to(tl.int64) * class_stride, inside, other=NOTHING)
        values = values.to(tl.float32)
    factors = weights_at(weight, lead + at, inside, weight_stride, WEIGHT_STEP)
    return values, factors, inside


@triton.jit
def joined_lanes(top, others, lanes):
    """The largest logit of each row, and what the others add."""
    known = tl.where(top != top, NOTHING, top)  # NaN is among the others
    highest = tl.max(known, 1)
    lowered = _power(top - finite(highest)[:, None])
    largest = tl.argmax(known, 1)[:, None] == lanes
    return highest, tl.sum(others * lowered + tl.where(largest, 0.0, lowered), 1)


@triton.jit
def logit_sums(
    x, weight, parts,
    rows, classes, row_stride, class_stride, weight_stride, splits, span,
    OVERLAPPED: tl.constexpr, SMOOTHED: tl.constexpr, CLASS_STEP: tl.constexpr, WEIGHT_STEP: tl.constexpr,
    UNIT: tl.constexpr, VECTOR: tl.constexpr, TURNS: tl.constexpr, ROWS: tl.constexpr, CLASSES: tl.constexpr,
):  # fmt: skip
    """One of `splits` parts of a row, of so many spans, or a few short rows: the largest logit, what the others add, and sums for smoothing.

    VECTOR is 0, or there is one row, which begins anywhere: what lies before its first whole vector and after its last
    is read by the element.
    """
    let_next_start(OVERLAPPED)
    program = tl.program_id(0)
    part = program % splits
    row = (program // splits).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside_rows = (row < rows)[:, None]
    row_pointers = x + row * (row_stride * UNIT)
    SPAN: tl.constexpr = CLASSES * TURNS
    begin = part * span * SPAN  # a multiple, as the compiler sees
    lanes = tl.arange(0, CLASSES)[None, :]
    top = tl.full([ROWS, CLASSES], NOTHING, tl.float32)
    others = tl.zeros([ROWS, CLASSES], tl.float32)
    spread = tl.zeros([ROWS, CLASSES], tl.float32)
    # Without weights, how many classes lie at the row's ends: of the others each lane has as many.
    weights = tl.zeros([ROWS, CLASSES], tl.float32)
    count = classes * UNIT
    lead = tl.zeros([ROWS, 1], tl.int32)  # classes before the first whole vector
    begins = row_pointers[:, None]
    if VECTOR:
        ITEMSIZE: tl.constexpr = x.dtype.element_ty.primitive_bitwidth // 8
        head = ((row_pointers.to(tl.int64) % (VECTOR * ITEMSIZE)) // ITEMSIZE).to(tl.int32)
        lead = ((VECTOR - head) % VECTOR)[:, None]
        body = (count - lead) // VECTOR * VECTOR
        at = tl.where(lanes < lead, lanes, body + lanes)
        there = lanes < tl.where(part == 0, count - body, 0)
        top = tl.load(begins + at, there, other=NOTHING).to(tl.float32)
        if SMOOTHED:
            own_weights = weights_at(weight, at, there, weight_stride, WEIGHT_STEP)
            spread = spread_of(top, own_weights, there, finite(top))
            weights += tl.where(there, own_weights, 0.0)
        begins = tl.multiple_of(row_pointers + (VECTOR - head) % VECTOR, VECTOR * ITEMSIZE)[:, None]
        end = tl.minimum(tl.max(body), begin + span * SPAN)
        limit = end // VECTOR * VECTOR
    else:
        end = tl.minimum(count, begin + span * SPAN)
        limit = end
    for start in range(begin, end, SPAN):
        at = start + lanes
        values, factor, inside = _read(
            begins, at, lead, limit, inside_rows, class_stride, weight, weight_stride, CLASS_STEP, WEIGHT_STEP
        )  # fmt: skip
        before = top
        if TURNS == 1:
            top, others = _joined(top, others, values)
        else:
            second, factor_2, inside_2 = _read(
                begins, at + CLASSES, lead, limit, inside_rows, class_stride, weight, weight_stride,
                CLASS_STEP, WEIGHT_STEP,
            )  # fmt: skip
            third, factor_3, inside_3 = _read(
                begins, at + 2 * CLASSES, lead, limit, inside_rows, class_stride, weight, weight_stride,
                CLASS_STEP, WEIGHT_STEP,
            )  # fmt: skip
            fourth, factor_4, inside_4 = _read(
                begins, at + 3 * CLASSES, lead, limit, inside_rows, class_stride, weight, weight_stride,
                CLASS_STEP, WEIGHT_STEP,
            )  # fmt: skip
            top, others = _joined_four(top, others, values, second, third, fourth)
        if SMOOTHED:
            shift = finite(top)
            more = spread_of(values, factor, inside, shift)
            known = weights
            if weight is None:
                known += ((start - begin) // CLASSES).to(tl.float32)
            if TURNS > 1:
                more += spread_of(second, factor_2, inside_2, shift)
                more += spread_of(third, factor_3, inside_3, shift)
                more += spread_of(fourth, factor_4, inside_4, shift)
            spread += moved(known, before, shift) + more
            if weight is not None:
                if TURNS > 1:
                    factor = (factor + factor_2) + (factor_3 + factor_4)
                weights += factor
    highest, total = joined_lanes(top, others, lanes)
    place = row * splits + part
    number = rows.to(tl.int64) * splits
    tl.store(parts + place, highest, row < rows)
    tl.store(parts + number + place, total, row < rows)
    if SMOOTHED:
        if weight is None:
            weights = _seen(weights, lanes, limit - begin, CLASSES)
        spread += moved(weights, top, finite(highest)[:, None])
        tl.store(parts + 2 * number + place, tl.sum(spread, 1), row < rows)
        tl.store(parts + 3 * number + place, tl.sum(weights, 1), row < rows)


@triton.jit
def _log1p(x):
    """Of float64 from 0 on; what the sum with 1 loses is put back."""
    above = 1.0 + x
    kept = above - 1.0
    lost = tl.where(kept == x, 0.0, (x - kept) / above)
    return tl.where(above == 1.0, x, tl.log(above) + lost)


@triton.jit
def is_endless(value):
    """Whether a logit is infinite, or NaN."""
    return ((value == float("inf")) | (value != value)).to(tl.int32)


@triton.jit
def beside_infinity(others, high, endless):
    """What the formula has beside an infinite logit: nothing, or NaN where there are several such, or NaN."""
    return tl.where(high == float("inf"), tl.where(endless > 1, float("nan"), 0.0), others)


@triton.jit
def _infinite_others(pointers, others, high, classes, class_stride, inside):
    endless = tl.zeros(high.shape, tl.int32)
    for _ in range(classes):
        endless += is_endless(tl.load(pointers, inside, other=0).to(tl.float32))
        pointers += class_stride
    return beside_infinity(others, high, endless)


@triton.jit
def row_ends(high, others, count, WHOLE: tl.constexpr):
    """A row's largest logit, and the logarithm of what all add beside it: as float64."""
    if WHOLE:
        others = tl.where((high == NOTHING) & (count > 1), float("nan"), others)
        rest = _log1p(others.to(tl.float64))
        top = high.to(tl.float64)
    else:
        rest = _log1p(others.to(tl.float64)) + (high - high).to(tl.float64)
        top = tl.where(rest != rest, rest, high.to(tl.float64))
    return top, rest


@triton.jit
def weight_of(weight, indices, counted, weight_stride):
    own_weight = tl.full(indices.shape, 1.0, tl.float64)
    if weight is not None:
        own_weight = tl.load(weight + indices * weight_stride, counted, other=0).to(tl.float64)
    return own_weight


@triton.jit
def smoothed(loss, top, rest, spread, weights, count, smoothing):
    """The loss with some of every class's: `spread` sums weight * (x - top), a part of it, `weights` the weights."""
    share = tl.full(loss.shape, smoothing, tl.float64)
    spread = (rest + (top - top)) * weights - spread / PART
    return loss * (1.0 - share) + share / count.to(tl.float64) * spread


@triton.jit
def store_sums(sums, loss, square, own_weight, counted):
    """Of a program's losses, as `logit_loss` adds them up."""
    place = sums + tl.program_id(0) * 4
    tl.store(place, tl.sum(loss))
    tl.store(place + 1, tl.sum(square))
    tl.store(place + 2, tl.sum(tl.where(counted, own_weight, 0.0)))
    tl.store(place + 3, tl.sum(counted.to(tl.int32)).to(tl.float64))


@triton.jit
def store_rows(
    out, tops, rests, squares, lses, sums, row, inside, out_stride, top_stride, rest_stride, square_stride, lse_stride,
    loss, top, rest, own_weight, counted, zloss_scale, EACH: tl.constexpr, SQUARED: tl.constexpr,
):  # fmt: skip
    """What is known of rows, and their losses or the sums of these."""
    if tops is not None:
        tl.store(tops + row * top_stride, top.to(tl.float32), inside)
        tl.store(rests + row * rest_stride, rest.to(tl.float32), inside)
    loss = tl.where(counted, loss, 0.0)
    lse = top + rest
    square = tl.zeros(loss.shape, tl.float64)
    if SQUARED:
        square = tl.where(counted, tl.full(loss.shape, zloss_scale, tl.float64) * lse * lse, 0.0)
    if lses is not None:
        tl.store(lses + row * lse_stride, lse.to(tl.float32), inside)
    if EACH:
        tl.store(out + row * out_stride, (loss + square).to(tl.float32), inside)
        if squares is not None:
            tl.store(squares + row * square_stride, square.to(tl.float32), inside)
    else:
        store_sums(sums, loss, square, own_weight, counted)


@triton.jit
def logit_losses(
    target, x, weight, parts, out, tops, rests, squares, lses, sums,
    rows, classes, row_stride, class_stride, target_stride, weight_stride, out_stride, top_stride, rest_stride,
    square_stride, lse_stride, splits, ignore_index, smoothing, zloss_scale,
    OVERLAPPED: tl.constexpr, WHOLE: tl.constexpr, EACH: tl.constexpr, SMOOTHED: tl.constexpr,
    SQUARED: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """A row in each lane: its parts are joined, its numbers and its loss written, or the sums of a block of rows."""
    let_next_start(OVERLAPPED)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = row < rows
    count = classes.to(tl.int64)
    indices = tl.load(target + row * target_stride, inside, other=0).to(tl.int64)
    counted = inside & is_counted(indices, count, ignore_index)
    row_pointers = x + row * row_stride
    picked = tl.load(row_pointers + indices * class_stride, counted, other=0).to(tl.float64)
    own_weight = weight_of(weight, indices, counted, weight_stride)
    await_sums(OVERLAPPED)
    number = rows.to(tl.int64) * splits
    place = parts + row * splits
    high = tl.load(place, inside, other=0)
    others = tl.load(place + number, inside, other=0)
    for part in range(1, splits):
        more = tl.load(place + part, inside, other=NOTHING)
        above, low = maximum(high, more), minimum(high, more)
        shift = finite(above)
        others = others * _power(high - shift) + _power(low - shift)
        others += tl.load(place + number + part, inside, other=0) * _power(more - shift)
        high = above
    if WHOLE:
        if tl.max((high == float("inf")).to(tl.int32), 0) > 0:
            others = _infinite_others(row_pointers, others, high, classes, class_stride, inside)
    top, rest = row_ends(high, others, count, WHOLE)
    loss = -(own_weight * ((picked - top) - rest))
    if SMOOTHED:
        spread = tl.zeros([ROWS], tl.float64)
        weights = tl.zeros([ROWS], tl.float64)
        for part in range(splits):
            more = tl.load(place + part, inside, other=0).to(tl.float64)
            some = tl.load(place + 3 * number + part, inside, other=0).to(tl.float64)
            spread += tl.load(place + 2 * number + part, inside, other=0).to(tl.float64)
            spread += moved(some, more, finite(high).to(tl.float64))
            weights += some
        if weight is None:
            weights = tl.full([ROWS], 1.0, tl.float64) * count.to(tl.float64)
        loss = smoothed(loss, top, rest, spread, weights, count, smoothing)
    store_rows(
        out, tops, rests, squares, lses, sums, row, inside, out_stride, top_stride, rest_stride, square_stride, lse_stride,
        loss, top, rest, own_weight, counted, zloss_scale, EACH, SQUARED,
    )  # fmt: skip


@triton.jit
def logit_loss(
    sums, out, square_out, count,
    OVERLAPPED: tl.constexpr, MEAN: tl.constexpr, SQUARED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The loss of all, from the sums of blocks of rows."""
    let_next_start(OVERLAPPED)
    lanes = tl.arange(0, BLOCK)
    loss = tl.zeros([BLOCK], tl.float64)
    square = tl.zeros([BLOCK], tl.float64)
    weight = tl.zeros([BLOCK], tl.float64)
    counted = tl.zeros([BLOCK], tl.float64)
    await_sums(OVERLAPPED)
    for start in range(0, count, BLOCK):
        inside = start + lanes < count
        place = sums + (start + lanes) * 4
        loss += tl.load(place, inside, other=0)
        weight += tl.load(place + 2, inside, other=0)
        square += tl.load(place + 1, inside, other=0)
        counted += tl.load(place + 3, inside, other=0)
    result = tl.sum(loss)
    squares = tl.sum(square)
    if MEAN:
        result = result / tl.sum(weight)
        squares = squares / tl.sum(counted)
    if SQUARED:
        result += squares
    tl.store(out, result.to(tl.float32))
    if square_out is not None:
        tl.store(square_out, squares.to(tl.float32))


@triton.jit
def log_probabilities(
    x, tops, rests, out,
    rows, classes, class_blocks, row_stride, class_stride, out_row, out_class,
    OVERLAPPED: tl.constexpr, CLASS_STEP: tl.constexpr, OUT_STEP: tl.constexpr, UNIT: tl.constexpr,
    ROWS: tl.constexpr, CLASSES: tl.constexpr,
):  # fmt: skip
    """(x - top) - rest of a block of classes of a few rows."""
    program = tl.program_id(0)
    row = (program // class_blocks).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    at = (program % class_blocks) * CLASSES + tl.arange(0, CLASSES)[None, :]
    inside = (row < rows)[:, None] & (at < classes * UNIT)
    if CLASS_STEP == 1:
        places = (x + row * (row_stride * UNIT))[:, None] + at
    else:
        places = (x + row * (row_stride * UNIT))[:, None] + at.to(tl.int64) * class_stride
    values = tl.load(places, inside).to(tl.float32)
    await_sums(OVERLAPPED)
    top = tl.load(tops + row, row < rows, other=0)[:, None]
    rest = tl.load(rests + row, row < rows, other=0)[:, None]
    if OUT_STEP == 1:
        places = (out + row * (out_row * UNIT))[:, None] + at
    else:
        places = (out + row * (out_row * UNIT))[:, None] + at.to(tl.int64) * out_class
    tl.store(places, (values - top) - rest, inside)


ANY_STEP = tl.constexpr(2)  # a stride known at run time only


@triton.jit
def _at(values, lanes, place):
    """The value that each row has at a place, or 0 where that is in no lane."""
    return tl.sum(tl.where(lanes == place, values, 0.0), 1)


@triton.jit
def short_rows(
    target, x, weight, out, tops, rests, squares, lses, sums, log_prob,
    rows, classes, row_stride, class_stride, target_stride, weight_stride, out_stride, top_stride, rest_stride,
    square_stride, lse_stride, log_prob_row, log_prob_class, ignore_index, smoothing, zloss_scale,
    OVERLAPPED: tl.constexpr, WHOLE: tl.constexpr, EACH: tl.constexpr, SMOOTHED: tl.constexpr,
    SQUARED: tl.constexpr, ROWS: tl.constexpr, CLASSES: tl.constexpr,
):  # fmt: skip
    """A few rows of up to CLASSES classes: their numbers and losses, or the sums of these, and log-probabilities (WHOLE)."""
    let_next_start(OVERLAPPED)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = row < rows
    count = classes.to(tl.int64)
    lanes = tl.arange(0, CLASSES)[None, :]
    here = inside[:, None] & (lanes < classes)
    places = (x + row * row_stride)[:, None] + lanes.to(tl.int64) * class_stride
    values = tl.load(places, here, other=NOTHING).to(tl.float32)
    indices = tl.load(target + row * target_stride, inside, other=0).to(tl.int64)
    counted = inside & is_counted(indices, count, ignore_index)
    own_lane = tl.where(counted, indices, -1).to(tl.int32)
    picked = _at(values, lanes, own_lane[:, None]).to(tl.float64)
    own_weight = weight_of(weight, indices, counted, weight_stride)

    nothing = tl.zeros([ROWS, CLASSES], tl.float32)
    high, others = joined_lanes(values, nothing, lanes)
    if WHOLE:
        others = beside_infinity(others, high, tl.sum(is_endless(values), 1))
    top, rest = row_ends(high, others, count, WHOLE)
    loss = -(own_weight * ((picked - top) - rest))
    if SMOOTHED:
        factors = weights_at(weight, lanes, here, weight_stride, ANY_STEP)
        if weight is None:
            total = tl.full([ROWS], 1.0, tl.float64) * count.to(tl.float64)
        else:
            total = tl.sum(factors, 1).to(tl.float64)
        spread = tl.sum(spread_of(values, factors, here, high[:, None]), 1).to(tl.float64)
        loss = smoothed(loss, top, rest, spread, total, count, smoothing)
    store_rows(
        out, tops, rests, squares, lses, sums, row, inside, out_stride, top_stride, rest_stride, square_stride, lse_stride,
        loss, top, rest, own_weight, counted, zloss_scale, EACH, SQUARED,
    )  # fmt: skip
    if WHOLE:
        places = (log_prob + row * log_prob_row)[:, None] + lanes.to(tl.int64) * log_prob_class
        written = (values - top.to(tl.float32)[:, None]) - rest.to(tl.float32)[:, None]
        tl.store(places, written, here)
