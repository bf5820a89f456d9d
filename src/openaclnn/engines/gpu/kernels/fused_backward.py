# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
"""Cross entropy from logits with its gradient in one go: a program holds a whole row in its registers, so that logits are
read once and the gradient is written once, where loss and gradient one after the other read logits twice. A row that is too long
for one program is held in pieces by several, which run at once (a cluster) and tell each other what their pieces come to.

The gradient is that for one gradient of the loss, which is not known yet: the one that the last backward pass was given.
`expect` notes it for all programs; where backward gets another, `gradient_late` writes the gradient anew, in the same steps.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton import knobs

from openaclnn.engines.gpu.formulas.words import LOG2_E, log1p
from openaclnn.engines.gpu.kernels.steps import EXPECTED, SURE, bits
from openaclnn.engines.gpu.kernels.sums import await_sums, is_counted, let_next_start

COUNTED, SHARE = tl.constexpr(2), tl.constexpr(3)
"""Behind what is expected, FLOATs: how many rows count, and each one's share of the expected gradient."""

ROUND = tl.constexpr(32)
"""Classes: pieces of a row are multiples of it, so that each begins as aligned as its row."""

ALONE = tl.constexpr(knobs.runtime.interpret)
"""Interpreted programs run one after the other and cannot wait: they run twice, and find what all left the first time."""


@triton.jit
def finite(top):
    """What is subtracted before powers: where all are minus infinity, any finite number gives 0."""
    return tl.where(top == float("-inf"), 0.0, top)


@triton.jit
def _share(gradient, total, MEAN: tl.constexpr):
    """A row's share of the loss's gradient."""
    if MEAN:
        gradient = tl.div_rn(gradient, total)
    return gradient


@triton.jit
def expect(
    target, memory, expected,
    rows, classes, ignore_index,
    MEAN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """What the last backward pass left in memory, and the number of rows that count."""
    lanes = tl.arange(0, BLOCK)
    counted = tl.zeros([BLOCK], tl.int32)
    for start in range(0, rows, BLOCK):
        row = start + lanes
        indices = tl.load(target + row, row < rows, other=0).to(tl.int64)
        counted += ((row < rows) & is_counted(indices, classes, ignore_index)).to(tl.int32)
    gradient, total = tl.load(memory + EXPECTED), tl.sum(counted).to(tl.float32)
    tl.store(expected + EXPECTED, gradient)
    tl.store(expected + SURE, tl.load(memory + SURE))
    tl.store(expected + COUNTED, total)
    tl.store(expected + SHARE, _share(gradient, total, MEAN))


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
def _factor(share, top, others):
    """What exp(x - top) is multiplied with. A row with NaN or an infinite largest logit has no probabilities.

    The quotient is made better by its remainder, without a branch: what follows it would have to wait.
    """
    whole = 1.0 + others
    quotient = share / whole
    quotient = tl.fma(tl.fma(-quotient, whole, share), 1.0 / whole, quotient)
    return quotient + (top - top)


@triton.jit
def _write(values, top, factor, at, mask, out, counted):
    """The gradient of a row but for its target."""
    if counted:
        powers, scale = _powers(values, top)
        tl.store(out + at, powers * (factor * scale), mask)
    else:  # whatever is in it
        tl.store(out + at, tl.zeros(at.shape, tl.float32), mask)


@triton.jit
def _added(sums, counts, more_sums, more_counts):
    return sums + more_sums, counts + more_counts


@triton.jit
def _sums(values, flags):
    """Of both at once, so that threads wait for each other once; interpreted, that would take seconds for each program."""
    if ALONE:
        return tl.sum(values), tl.sum(flags.to(tl.int32))
    else:
        return tl.reduce((tl.ravel(values), tl.ravel(flags.to(tl.int32))), 0, _added)


@triton.jit
def _met():
    """Nothing but 0, when all programs of the cluster are here; what they wrote before can be read."""
    zero = tl.program_id(0) * 0
    if not ALONE:
        zero = tl.inline_asm_elementwise(
            "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned; mov.b32 $0, $1;",
            "=r,r", [zero], dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
    return zero


@triton.jit
def _of_all(top, others, pieces, piece, PIECES: tl.constexpr, WIDTH: tl.constexpr):
    """A row's largest logit and what its others add, from those of its pieces, in their order. Both of a piece are one word."""
    low, high = top.to(tl.uint32, bitcast=True), others.to(tl.uint32, bitcast=True)
    tl.store(pieces + piece, (low.to(tl.uint64) | (high.to(tl.uint64) << 32)).to(tl.int64))
    each = tl.arange(0, WIDTH)
    words = tl.load(pieces + each + _met(), each < PIECES, other=0, volatile=True)
    tops = (words & 0xFFFFFFFF).to(tl.uint32).to(tl.float32, bitcast=True)
    tops = tl.where(each < PIECES, tops, float("-inf"))
    rests = ((words >> 32) & 0xFFFFFFFF).to(tl.uint32).to(tl.float32, bitcast=True)
    top = tl.max(tops)
    has_it = each == tl.argmax(tops, 0)
    powers = tl.exp2((tops - finite(top)) * LOG2_E)
    return top, tl.sum(tl.where(has_it, rests, (1.0 + rests) * powers))


@triton.jit
def _row_ahead(
    values, index, sure, share, row, rows, piece, count, ignore_index, at, held, parts, pieces, out, PIECES: tl.constexpr, WIDTH: tl.constexpr
):  # fmt: skip
    """A row, or its piece: the largest logit and what the others add, and the gradient if one is expected."""
    top = tl.max(values)
    largest = values == top
    powers, scale = _powers(values, top)
    # The largest one's own 1 is never added, beside which the digits of small ones would be lost; but that of its equals is.
    others, equals = _sums(tl.where(largest, 0.0, powers), largest)
    others = others * scale + tl.maximum(equals - 1, 0).to(tl.float32)
    if PIECES > 1:
        top, others = _of_all(top, others, pieces + row * PIECES, piece, PIECES, WIDTH)
    tl.store(parts + row, top, piece == 0)
    tl.store(parts + rows.to(tl.int64) + row, others, piece == 0)
    counted = is_counted(index, count, ignore_index)
    wanted = at < held * (sure != 0).to(tl.int32)
    _write(values, top, _factor(share, top, others), at, wanted, out, counted)


@triton.jit
def loss_ahead(
    x, target, expected, parts, pieces, out,
    rows, classes, ignore_index, each,
    UNIT: tl.constexpr, HELD: tl.constexpr, LANES: tl.constexpr, PIECES: tl.constexpr, WIDTH: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """A row, or its piece. All is asked for before anything is computed: few programs share a multiprocessor, and little hides what they wait for.

    With several stages, a program that has a multiprocessor for itself takes one row after the other, and reads the next ones into shared memory meanwhile.
    """
    row = (tl.program_id(0) // PIECES).to(tl.int64)
    piece = tl.program_id(0) % PIECES
    start = piece * each * ROUND
    count = classes.to(tl.int64) * UNIT
    held = classes * UNIT
    if PIECES > 1:
        held = tl.minimum(classes * UNIT - start, each * ROUND)
    at, inside = _places(held, HELD, LANES)
    if STAGES == 1:
        values = tl.load(x + row * count + start + at, inside, other=float("-inf")).to(tl.float32)
        index = tl.load(target + row).to(tl.int64)
        sure, share = tl.load(expected + SURE), tl.load(expected + SHARE)
        _row_ahead(
            values, index, sure, share, row, rows, piece, count, ignore_index, at, held, parts, pieces, out + row * count + start, PIECES, WIDTH
        )  # fmt: skip
    else:
        sure, share = tl.load(expected + SURE), tl.load(expected + SHARE)
        for number in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=STAGES):
            row = tl.zeros([], tl.int64) + number
            values = tl.load(x + row * count + at, inside, other=float("-inf")).to(tl.float32)
            index = tl.load(target + row).to(tl.int64)
            _row_ahead(
                values, index, sure, share, row, rows, piece, count, ignore_index, at, held, parts, pieces, out + row * count, PIECES, WIDTH
            )  # fmt: skip


@triton.jit
def losses_ahead(
    x, target, parts, sums,
    rows, classes, ignore_index,
    OVERLAPPED: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The sum of the losses of some rows, and how many of them count: a row in each lane."""
    let_next_start(OVERLAPPED)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = row < rows
    indices = tl.load(target + row, inside, other=0).to(tl.int64)
    counted = inside & is_counted(indices, classes, ignore_index)
    there = tl.load(x + row * classes + indices, counted, other=0).to(tl.float32)
    await_sums(OVERLAPPED)
    top = tl.load(parts + row, inside, other=0)
    rest = log1p(tl.load(parts + rows.to(tl.int64) + row, inside, other=0)) + (top - top)
    losses = tl.where(counted, rest - (there - top), 0.0)
    tl.store(sums + tl.program_id(0), tl.sum(losses.to(tl.float64)))
    count = tl.sum(counted.to(tl.int32))
    tl.store(sums + tl.num_programs(0) + tl.program_id(0), count.to(tl.float64))


@triton.jit
def gradient_late(
    gradient, x, target, parts, expected, memory, out,
    rows, classes, ignore_index, blocks, programs,
    MEAN: tl.constexpr, UNIT: tl.constexpr, CLASSES: tl.constexpr,
):  # fmt: skip
    """Nothing, if the gradient is the one that was expected; else all rows, in blocks of classes. What it was is remembered."""
    actual = tl.load(gradient).to(tl.float32)
    same = bits(actual) == bits(tl.load(expected + EXPECTED))
    first = tl.program_id(0)
    if first == 0:
        tl.store(memory + EXPECTED, actual)
        tl.store(memory + SURE, same.to(tl.float32))
    if (same & (tl.load(expected + SURE) != 0)) == 0:
        count = classes.to(tl.int64) * UNIT
        share = _share(actual, tl.load(expected + COUNTED), MEAN)
        for block in range(first, rows * blocks, programs):
            row = block // blocks
            at = (block % blocks) * CLASSES + tl.arange(0, CLASSES)
            inside = at < classes * UNIT
            values = tl.load(x + row * count + at, inside, other=float("-inf")).to(tl.float32)
            index = tl.load(target + row).to(tl.int64)
            top = tl.load(parts + row)
            others = tl.load(parts + rows.to(tl.int64) + row)
            counted = is_counted(index, count, ignore_index)
            _write(values, top, _factor(share, top, others), at, inside, out + row * count, counted)


@triton.jit
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
    there = tl.load(x + place, counted, other=0).to(tl.float32)
    top = tl.load(parts + row, inside, other=0)
    others = tl.load(parts + rows.to(tl.int64) + row, inside, other=0)
    share = _share(tl.load(gradient).to(tl.float32), tl.load(expected + COUNTED), MEAN)
    factor = _factor(share, top, others)
    powers, scale = _powers(there, top)
    less = tl.where(there == top, -others, powers * scale - (1.0 + others))
    tl.store(out + place, less * factor, counted)
