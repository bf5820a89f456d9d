# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
"""Cross entropy from few logits: a program has whole rows, so that it does what `logits` does in three launches,
and reads each logit once.
"""

from __future__ import annotations

import triton
import triton.language as tl

from openaclnn.engines.gpu.kernels.logits import (
    NOTHING,
    beside_infinity,
    is_endless,
    joined_lanes,
    row_ends,
    smoothed,
    spread_of,
    store_rows,
    weight_of,
    weights_at,
)
from openaclnn.engines.gpu.kernels.sums import is_counted, let_next_start

ANY_STEP = tl.constexpr(2)  # a stride known at run time only


@triton.jit
def _at(values, lanes, place):
    """The value that each row has at a place, or 0 where that is in no lane."""
    return tl.sum(tl.where(lanes == place, values, 0.0), 1)


@triton.jit(do_not_specialize=list(range(10, 24)))
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
