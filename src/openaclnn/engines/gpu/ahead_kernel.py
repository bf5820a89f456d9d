# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
"""Cross entropy from logits with its gradient in one go: a program holds a whole row in its registers, so that logits are
read once and the gradient is written once, where loss and gradient one after the other read logits twice.

The gradient is that for one gradient of the loss, which is not known yet: the one that the last backward pass was given.
`expect` notes it for all programs; where backward gets another, `gradient_late` writes the gradient anew, in the same steps.
"""

from __future__ import annotations

import triton
import triton.language as tl

from openaclnn.engines.gpu.logit_kernel import finite
from openaclnn.engines.gpu.sum_kernel import is_counted
from openaclnn.engines.gpu.words import LOG2_E

GRADIENT, SURE, COUNTED = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
"""What is expected, three FLOATs: the loss's gradient, 1 if it was the same twice, and how many rows count."""


@triton.jit(do_not_specialize=[3, 4, 5])
def expect(target, memory, expected, rows, classes, ignore_index, BLOCK: tl.constexpr):
    """What the last backward pass left in memory, and the number of rows that count."""
    lanes = tl.arange(0, BLOCK)
    counted = tl.zeros([BLOCK], tl.int32)
    for start in range(0, rows, BLOCK):
        row = start + lanes
        indices = tl.load(target + row, row < rows, other=0).to(tl.int64)
        counted += ((row < rows) & is_counted(indices, classes, ignore_index)).to(tl.int32)
    tl.store(expected + GRADIENT, tl.load(memory + GRADIENT))
    tl.store(expected + SURE, tl.load(memory + SURE))
    tl.store(expected + COUNTED, tl.sum(counted).to(tl.float32))


@triton.jit
def _places(count, HELD: tl.constexpr, LANES: tl.constexpr):
    """The classes that a program holds, and which of them there are."""
    at = tl.arange(0, HELD)[:, None] * LANES + tl.arange(0, LANES)[None, :]
    return at, at < count


@triton.jit
def _powers(values, top):
    """exp(x - top) but for a factor, which follows: with one rounding, where a difference and a product would have two."""
    shift = finite(top) * LOG2_E
    lost = tl.fma(finite(top), LOG2_E, -shift)
    return tl.exp2(tl.fma(values, LOG2_E, -shift)), tl.exp2(-lost)


@triton.jit
def _factor(gradient, total, top, others, MEAN: tl.constexpr):
    """What exp(x - top) is multiplied with. A row with NaN or an infinite largest logit has no probabilities."""
    share = gradient
    if MEAN:
        share = tl.div_rn(gradient, total)
    return tl.div_rn(share, 1.0 + others) + (top - top)


@triton.jit
def _write(powers, factor, at, mask, out, counted):
    """The gradient of a row but for its target."""
    if counted:
        tl.store(out + at, powers * factor, mask)
    else:  # whatever is in it
        tl.store(out + at, tl.zeros(at.shape, tl.float32), mask)


@triton.jit(do_not_specialize=[5, 6, 7])
def loss_ahead(
    x, target, expected, parts, out,
    rows, classes, ignore_index,
    MEAN: tl.constexpr, UNIT: tl.constexpr, HELD: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """A row: its largest logit and what the others add, as `logit_sums` leaves them, and its gradient if one is expected.

    All is asked for before anything is computed: a program has its multiprocessor to itself, and nothing hides what it waits for.
    """
    row = tl.program_id(0).to(tl.int64)
    count = classes.to(tl.int64) * UNIT
    at, inside = _places(classes * UNIT, HELD, LANES)
    values = tl.load(x + row * count + at, inside, other=float("-inf"))
    index = tl.load(target + row).to(tl.int64)
    sure, gradient = tl.load(expected + SURE), tl.load(expected + GRADIENT)
    total = tl.load(expected + COUNTED)
    top = tl.max(values)
    largest = values == top
    powers, scale = _powers(values, top)
    # The largest one's own 1 is never added, beside which the digits of small ones would be lost; but that of its equals is.
    others = tl.sum(tl.where(largest, 0.0, powers)) * scale
    others += tl.maximum(tl.sum(largest.to(tl.int32)) - 1, 0).to(tl.float32)
    tl.store(parts + row, top)
    tl.store(parts + rows.to(tl.int64) + row, others)
    factor = _factor(gradient, total, top, others, MEAN) * scale
    counted = is_counted(index, count, ignore_index)
    wanted = at < classes * (sure != 0).to(tl.int32) * UNIT
    _write(powers, factor, at, wanted, out + row * count, counted)


@triton.jit(do_not_specialize=[7, 8, 9, 10, 11])
def gradient_late(
    gradient, x, target, parts, expected, memory, out,
    rows, classes, ignore_index, blocks, programs,
    MEAN: tl.constexpr, UNIT: tl.constexpr, CLASSES: tl.constexpr,
):  # fmt: skip
    """Nothing, if the gradient is the one that was expected; else all rows, in blocks of classes. What it was is remembered."""
    given = tl.load(gradient)
    # By its bits: the gradient of -0 is not that of 0.
    same = given.to(tl.int32, bitcast=True) == tl.load(expected + GRADIENT).to(
        tl.int32, bitcast=True
    )
    first = tl.program_id(0)
    if first == 0:
        tl.store(memory + GRADIENT, given)
        tl.store(memory + SURE, same.to(tl.float32))
    if (same & (tl.load(expected + SURE) != 0)) == 0:
        count = classes.to(tl.int64) * UNIT
        total = tl.load(expected + COUNTED)
        for block in range(first, rows * blocks, programs):
            row = block // blocks
            at = (block % blocks) * CLASSES + tl.arange(0, CLASSES)
            inside = at < classes * UNIT
            values = tl.load(x + row * count + at, inside, other=float("-inf"))
            index = tl.load(target + row).to(tl.int64)
            top = tl.load(parts + row)
            powers, scale = _powers(values, top)
            others = tl.load(parts + rows.to(tl.int64) + row)
            factor = _factor(given, total, top, others, MEAN) * scale
            counted = is_counted(index, count, ignore_index)
            _write(powers, factor, at, inside, out + row * count, counted)


@triton.jit(do_not_specialize=[6, 7, 8])
def at_targets(
    gradient, x, target, parts, expected, out,
    rows, classes, ignore_index,
    MEAN: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The gradient at the targets, (p - 1) * g: a row in each lane. Where p is near 1 the target is the largest, and what it
    lacks is what the others have.
    """
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = row < rows
    indices = tl.load(target + row, inside, other=0).to(tl.int64)
    counted = inside & is_counted(indices, classes, ignore_index)
    place = row * classes + indices
    there = tl.load(x + place, counted, other=0)
    top = tl.load(parts + row, inside, other=0)
    others = tl.load(parts + rows.to(tl.int64) + row, inside, other=0)
    factor = _factor(tl.load(gradient), tl.load(expected + COUNTED), top, others, MEAN)
    powers, scale = _powers(there, top)
    less = tl.where(there == top, -others, powers * scale - (1.0 + others))
    tl.store(out + place, less * factor, counted)
