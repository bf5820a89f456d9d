# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
"""The multi-label margin loss: a program has a row, whose labels it takes one after the other against chunks of its classes."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def margin_rows(
    x, target, loss, mask, classes, x_row, x_class, target_row, target_class, loss_row, mask_row, mask_class,
    CHUNK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    x += row * x_row
    target += row * target_row
    mask += row * mask_row
    lanes = tl.arange(0, CHUNK).to(tl.int64)
    # Labels stand before the first -1.
    labels = classes.to(tl.int64)
    for start in range(0, classes, CHUNK):
        c = lanes + start
        label = tl.load(target + c * target_class, c < classes, other=-1)
        labels = tl.minimum(labels, tl.min(tl.where(label == -1, c, classes.to(tl.int64))))
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
    whole = tl.sum(total) / classes.to(tl.float64)
    tl.store(loss + row * loss_row, whole.to(tl.float32).to(loss.dtype.element_ty))
