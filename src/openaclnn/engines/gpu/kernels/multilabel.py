# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
"""The multi-label margin loss: a program has a row, whose labels it takes one after the other against chunks of its classes, and then perhaps another. Where losses are added up it leaves
the sum of its own in float64."""

from __future__ import annotations

import triton
import triton.language as tl

from openaclnn.engines.gpu.kernels.sums import let_next_start


@triton.jit
def margin_rows(
    x, target, loss, mask, sums, rows, classes, x_row, x_class, target_row, target_class, loss_row, mask_row, mask_class,
    OVERLAPPED: tl.constexpr, SUMMED: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    let_next_start(OVERLAPPED)
    lanes = tl.arange(0, CHUNK).to(tl.int64)
    classes = classes.to(tl.int64)
    first, step = tl.program_id(0).to(tl.int64), tl.num_programs(0).to(tl.int64)
    whole = tl.zeros([], tl.float64)
    for row in range(first, rows.to(tl.int64), step):
        of_row = margin_row(
            x + row * x_row, target + row * target_row, mask + row * mask_row, classes, x_class, target_class, mask_class, lanes,
            CHUNK,
        )  # fmt: skip
        if SUMMED:
            whole += of_row
        else:
            tl.store(loss + row * loss_row, of_row.to(tl.float32).to(loss.dtype.element_ty))
    if SUMMED:
        tl.store(sums + first, whole)


@triton.jit
def margin_row(
    x, target, mask, classes, x_class, target_class, mask_class, lanes, CHUNK: tl.constexpr
):
    """A row's loss; its mask is written."""
    # Labels stand before the first -1.
    labels = classes
    for start in range(0, classes, CHUNK):
        c = lanes + start
        label = tl.load(target + c * target_class, c < classes, other=-1)
        labels = tl.minimum(labels, tl.min(tl.where(label == -1, c, classes)))
    total = tl.zeros([CHUNK], tl.float64)
    for start in range(0, classes, CHUNK):
        c = lanes + start
        value = tl.load(x + c * x_class, c < classes, other=0).to(tl.float32)
        is_label = tl.zeros([CHUNK], tl.int32)
        for place in range(labels):
            label = tl.load(target + place * target_class)
            is_label = is_label | (c == label).to(tl.int32)
        tl.store(
            mask + c * mask_class, is_label.to(tl.float32).to(mask.dtype.element_ty), c < classes
        )
        for place in range(labels):
            label = tl.load(target + place * target_class).to(tl.int64)
            known = (label >= 0) & (label < classes)
            below = 1.0 - tl.load(x + label * x_class, known, other=0).to(tl.float32)
            margin = below + value
            counted = known & (c < classes) & (is_label == 0) & (margin > 0)
            total += tl.where(counted, margin, 0.0).to(tl.float64)
    return tl.sum(total) / classes.to(tl.float64)
