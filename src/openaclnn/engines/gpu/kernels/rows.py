# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
"""CrossEntropyLossGrad and the gradient from logits: blocks of classes of one row, or of a few short ones.

It computes in float32; see the reference in `operators/` for the formula. A target that is ignored or
out of range counts for nothing: masks keep it from every address.

The general form is the row formula (`launchers/gradients.py`). Cut into blocks of classes as here, it took 1.04 to 1.14 times as long in FLOAT from log-probabilities and
up to 1.04 from logits, in BFLOAT16 1.02 to 1.07 and, of rows that begin anywhere, 1.3 to 1.5; of transposed rows 1.6 and more (H200; 1,000 to 128,256 classes).
"""

from __future__ import annotations

import triton
import triton.language as tl

from openaclnn.engines.gpu.formulas.words import hardware_exp
from openaclnn.engines.gpu.kernels.sums import await_sums, is_counted, read_sum, times_weights

COUNTED = tl.constexpr(1024)  # rows that a program counts itself


@triton.jit
def _counted_rows(target, rows, target_stride, classes, ignore_index):
    """How many of a few targets count: their sum, if each weighs 1."""
    row = tl.arange(0, COUNTED)
    inside = row < rows
    indices = tl.load(target + row * target_stride, inside, other=0).to(tl.int64)
    counted = inside & is_counted(indices, classes, ignore_index)
    return tl.sum(counted.to(tl.int32)).to(tl.float32)


@triton.jit
def _rows(pointer, row, stride, STEP: tl.constexpr, UNIT: tl.constexpr):
    if STEP == 1:
        result = pointer + row
    else:
        result = pointer + row * stride * UNIT
    return result


@triton.jit
def _class_weights(
    weight, begin, lanes, inside, weight_stride, WEIGHT_STEP: tl.constexpr, SMOOTHED: tl.constexpr
):
    """What smoothing subtracts for each class, but for the row's factor."""
    weights = tl.full([1, 1], 1.0, tl.float32)
    if SMOOTHED:
        if weight is not None:
            if WEIGHT_STEP == 1:
                weights = tl.load(weight + begin + lanes, inside, other=0)
            else:
                weights = tl.load(weight + (begin + lanes) * weight_stride, inside, other=0)
    return weights


@triton.jit
def _gradients(
    values, at_target, exact, factor, infinite, smooth, weights, shift, counted,
    SMOOTHED: tl.constexpr, PRECISE: tl.constexpr, LOGITS: tl.constexpr,
):  # fmt: skip
    values = values.to(tl.float32)
    if LOGITS:
        values = values - shift[:, None]
    result = hardware_exp(values, PRECISE) * factor[:, None]
    if not LOGITS:
        result = tl.where(values > 709.78, infinite[:, None], result)
    if SMOOTHED:
        result -= smooth[:, None] * weights
    result = tl.where(at_target, exact[:, None], result)
    if LOGITS:  # a row that does not count has no gradient, whatever is in it
        result = tl.where(counted[:, None], result, 0.0)
    return result


@triton.jit
def _less_one(x, power):
    """exp(x) - 1 of float64, given exp(x): near 0 a series, since the difference has few digits."""
    near = x * (1.0 + x * (0.5 + x * (0.16666666666666666 + x * 0.041666666666666664)))
    return tl.where(tl.abs(x) < 1e-3, near, power - 1.0)


@triton.jit
def _places(rows, start, lanes, class_stride, STEP: tl.constexpr, UNIT: tl.constexpr):
    """Pointers to classes from `start` on."""
    if STEP == 1:
        places = rows[:, None] + start + lanes[None, :]
    else:
        at = start * class_stride * UNIT + lanes * (class_stride * UNIT)
        places = rows[:, None] + at[None, :]
    return places


@triton.jit
def cross_entropy_loss_grad(
    target, gradient, log_prob, weight, lse, grad_zloss, top, rest, sums, out,
    rows, classes, class_blocks, target_stride, gradient_stride, lse_stride, grad_zloss_stride,
    top_stride, rest_stride, weight_stride, log_prob_row, log_prob_class, out_row, out_class, ignore_index,
    kept, smoothing, zloss_scale,
    OVERLAPPED: tl.constexpr, MEAN: tl.constexpr, SMOOTHED: tl.constexpr, PRECISE: tl.constexpr,
    SQUARED: tl.constexpr, PARTS: tl.constexpr, LOG_PROB_ROW: tl.constexpr, LOG_PROB_CLASS: tl.constexpr,
    OUT_ROW: tl.constexpr, OUT_CLASS: tl.constexpr, WEIGHT_STEP: tl.constexpr, UNIT: tl.constexpr,
    ROWS_UNIT: tl.constexpr, CLASSES_UNIT: tl.constexpr, WIDE: tl.constexpr,
    VECTOR: tl.constexpr, ROWS: tl.constexpr, CLASSES: tl.constexpr,
):  # fmt: skip
    """A block of classes of a few rows (one, where rows are long).

    With `top` and `rest`, logProb holds logits: log-probabilities are (x - top) - rest.
    VECTOR is 0, or rows may begin anywhere, but logProb's and out's as far from a multiple of VECTOR
    elements. Then a block begins at the last such multiple before the row's own, whole vectors
    within the row are moved as such, and the row's two edges by the element.
    """
    program = tl.program_id(0)
    row = (program // class_blocks).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    start = (program % class_blocks).to(tl.int64) * CLASSES
    inside = row < rows.to(tl.int64) * ROWS_UNIT
    count = classes.to(tl.int64) * CLASSES_UNIT
    lanes = tl.arange(0, CLASSES)
    log_prob_rows = _rows(log_prob, row, log_prob_row, LOG_PROB_ROW, UNIT)
    out_rows = _rows(out, row, out_row, OUT_ROW, UNIT)
    if VECTOR:
        ITEMSIZE: tl.constexpr = log_prob.dtype.element_ty.primitive_bitwidth // 8
        head = (log_prob_rows.to(tl.int64) % (VECTOR * ITEMSIZE)) // ITEMSIZE
        begin = start - head  # the class at lane 0
        low = tl.maximum(-begin, 0).to(tl.int32)  # the lanes of the row's own classes
        high = tl.minimum(count - begin, CLASSES).to(tl.int32)
        group = lanes // VECTOR * VECTOR
        mask = (group[None, :] >= low[:, None]) & (group[None, :] + VECTOR <= high[:, None])
        inside_classes = (lanes[None, :] >= low[:, None]) & (lanes[None, :] < high[:, None])
        mask = mask & inside[:, None]
        aligned = tl.multiple_of(log_prob_rows - head, VECTOR * ITEMSIZE)
        values = tl.load(aligned[:, None] + start + lanes[None, :], mask)
    else:
        begin = start + tl.zeros([ROWS], tl.int64)
        inside_classes = (start + lanes < count)[None, :]
        mask = inside[:, None] & inside_classes
        if WIDE:
            lanes = lanes.to(tl.int64)
        places = _places(log_prob_rows, start, lanes, log_prob_class, LOG_PROB_CLASS, UNIT)
        values = tl.load(places, mask)

    indices = tl.load(target + row * target_stride, inside, other=0).to(tl.int64)
    counted = inside & is_counted(indices, count, ignore_index)
    heeded = counted.to(tl.float32)
    own = tl.load(gradient + row * gradient_stride, inside, other=0).to(tl.float32)
    zloss = own
    LOGITS: tl.constexpr = top is not None
    shift = own
    if LOGITS:
        shift = tl.load(top + row * top_stride, inside, other=0)
        own_rest = tl.load(rest + row * rest_stride, inside, other=0)
        own_lse = shift + own_rest
    if lse is not None:
        own_lse = tl.load(lse + row * lse_stride, inside, other=0).to(tl.float32)
        if grad_zloss is not None:
            more = tl.load(grad_zloss + row * grad_zloss_stride, inside, other=0)
            zloss = zloss + more.to(tl.float32)
    target_weight = heeded
    await_sums(OVERLAPPED)
    if weight is not None:
        target_weight = tl.load(weight + indices * weight_stride, counted, other=0)
    # A division takes a tenth of a microsecond that nothing hides, once the sums are there.
    share = own
    if MEAN:
        if sums is None:  # there are no weights then
            total = _counted_rows(target, rows, target_stride, count, ignore_index)
        else:
            total = read_sum(sums, 0, PARTS)
        share = tl.div_rn(own, total)
    nll = share
    if SMOOTHED:
        nll = own * kept
        if MEAN:
            nll = tl.div_rn(nll, total)
    nll = nll * heeded * target_weight
    # Without smoothing this is 0, or NaN where the gradient or the total makes it so, as in the formula.
    smooth = share * smoothing
    if SMOOTHED:
        smooth = tl.div_rn(smooth, count.to(tl.float32))
    smooth = smooth * heeded
    if weight is None:
        spread = smooth * count.to(tl.float32)
    else:  # as FLOAT the sum may be infinite, and 0 times it NaN
        spread = times_weights(smooth, sums, SMOOTHED, PARTS)
    factor = nll + spread
    # Where exp is infinite in float64 too, each of the terms is multiplied by that, not their sum.
    infinite = nll * float("inf") + spread * float("inf")
    more = spread
    if SQUARED:
        if grad_zloss is None and weight is None:
            zloss = share  # all counted targets weigh 1: the two sums are the same
        elif MEAN:
            if sums is not None:
                total = read_sum(sums, 1, PARTS)
            zloss = tl.div_rn(zloss, total)
        square = zloss_scale * own_lse * heeded * zloss
        factor = factor + square
        infinite = infinite + square * float("inf")
        more = more + square

    # p - 1 at the target loses digits as p nears 1, so that one element is made in float64. It is
    # read here, by the program that writes it and before that, so logProb and out may be one memory.
    hit = counted & (indices >= begin) & (indices < begin + CLASSES)
    exact = tl.zeros([ROWS], tl.float32)
    if tl.max(hit.to(tl.int32), 0) > 0:
        if LOG_PROB_CLASS == 1:
            there = tl.load(log_prob_rows + indices, hit, other=0)
        else:
            there = tl.load(log_prob_rows + indices * log_prob_class * UNIT, hit, other=0)
        there = there.to(tl.float64)
        if LOGITS:
            there = (there - shift.to(tl.float64)) - own_rest.to(tl.float64)
        power = tl.exp(there)
        precise = _less_one(there, power) * nll.to(tl.float64) + power * more.to(tl.float64)
        if not LOGITS:
            precise += (nll - nll).to(tl.float64)  # NaN where it is infinite
        if SMOOTHED:
            precise -= smooth.to(tl.float64) * target_weight.to(tl.float64)
        precise = tl.where(there.to(tl.float32) > 709.78, (infinite - nll).to(tl.float64), precise)
        exact = precise.to(tl.float32)
    if LOGITS:
        factor = factor * hardware_exp(-own_rest, True)
    # Lane numbers are small, so the comparison over the whole block needs 32 bits only.
    hit_lane = tl.where(hit, indices - begin, -1).to(tl.int32)

    if VECTOR:
        if (start == 0) | (start + CLASSES >= count):
            # Up to VECTOR - 1 classes before the first whole vector, and as many after the last.
            side = tl.arange(0, 2 * VECTOR)[None, :]
            tail = high // VECTOR * VECTOR  # a multiple of CLASSES where the row goes on: no edge
            edge = tl.where(side < VECTOR, side, tail[:, None] + side - VECTOR)
            own_edge = (edge >= low[:, None]) & (edge < high[:, None]) & inside[:, None]
            own_edge = own_edge & tl.where(
                side < VECTOR, low[:, None] > 0, tail[:, None] >= low[:, None]
            )
            weights = _class_weights(
                weight, begin[:, None], edge, own_edge, weight_stride, WEIGHT_STEP, SMOOTHED
            )
            place = begin[:, None] + edge
            edges = tl.load(log_prob_rows[:, None] + place, own_edge)
            edges = _gradients(
                edges, edge == hit_lane[:, None], exact, factor, infinite, smooth, weights, shift, counted,
                SMOOTHED, PRECISE, LOGITS,
            )  # fmt: skip
            tl.store(out_rows[:, None] + place, edges, own_edge)

    weights = _class_weights(
        weight, begin[:, None], lanes[None, :], inside_classes, weight_stride, WEIGHT_STEP, SMOOTHED
    )
    at_target = tl.arange(0, CLASSES)[None, :] == hit_lane[:, None]
    values = _gradients(
        values, at_target, exact, factor, infinite, smooth, weights, shift, counted,
        SMOOTHED, PRECISE, LOGITS,
    )  # fmt: skip
    if VECTOR:
        aligned = tl.multiple_of(out_rows - head, VECTOR * ITEMSIZE)
        tl.store(aligned[:, None] + start + lanes[None, :], values, mask)
    else:
        tl.store(_places(out_rows, start, lanes, out_class, OUT_CLASS, UNIT), values, mask)
