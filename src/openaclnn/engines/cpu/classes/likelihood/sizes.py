"""NLL over any sizes: what its kernels' parameters and launches follow from, as code."""

from __future__ import annotations

from typing import Any

from openaclnn.engines.cpu.classes.likelihood import scatter
from openaclnn.engines.cpu.classes.shared import totals
from openaclnn.engines.cpu.classes.shared.parameters import fields, places
from openaclnn.engines.cpu.classes.shared.sized import (
    Fitted,
    Problem,
    Sizing,
    at_least_one,
    put_ignored,
)
from openaclnn.engines.machine.host import last_cache, machine
from openaclnn.engines.machine.values import Value

__all__ = [
    "ALONE", "COMPARED", "FEW", "IN_CACHE", "LAYING", "MANY", "OPERANDS", "PLACES", "ROWS", "SCATTERED", "SIZING", "SLOTS", "SPAN",
    "UNIT", "compares",
]  # fmt: skip

OPERANDS = {
    "target": "target", "gradient": "gradOutput", "weight": "weight", "total": "totalWeight",
    "out": "out",
}  # fmt: skip
SLOTS = fields(
    tuple(OPERANDS), ("weighted", "mean", "total_given", "unit", "clear", "span", "bytes")
)
PLACES = places(SLOTS, OPERANDS)

ALONE = 1 << 15  # output elements that one thread does faster than two
FEW = 8  # classes up to which comparing every plane beats clearing and scattering
MANY = 1 << 6  # the same of FLOAT outputs that leave the caches
VECTOR = 32  # bytes of a vector, from which on that is so
UNIT = 1 << 14  # positions of one piece of work: all planes of it are compared with cached targets
COMPARED = 1 << 11, UNIT  # a 64th of the positions, between these
# Where values are scattered: a 64th of the positions, so that no thread of 16 has a part more, between these.
SCATTERED = 1 << 12, 1 << 16
# The same for what is cleared first. Long spans are cleared at 112 GB/s, 64 KB at 60, 4 KB at 24: past the caches
# nothing is read first.
SPAN = 1 << 18, 1 << 22
IN_CACHE = 1 << 19  # bytes that are still in a core's cache when their values are scattered


def compares(item: Any, classes: Any, pixels: Any, size: Any) -> Any:
    """Whether every plane, of so many pixels, is compared with the targets; outputs have so many bytes in an element and in all.

    Of numbers and of code's values alike: what compiles a kernel and what calls it go by one rule.

    In caches, clearing is cheap, and so are patches of one class: comparing 21 planes takes 1.3 to 2.5 times as long there, and gains a fifth
    where targets are random. From half of the last cache on FLOAT gains: on a Xeon with two cores 1.0 to 1.5 for patches and 1.3 to 3 for random targets, on another with 16
    0.8 to 1.0 and 1.4 to 1.8. Of more classes one loses there what the other gains, and so do 16 bits: 0.5 to 0.7 for patches.
    """
    wide = (item >= 4) & (item * machine().lanes >= VECTOR)
    many = wide & (size > last_cache() // 2) & (classes <= MANY)
    # Images of one pixel are the pixels of one image that has its classes side by side.
    return ((classes <= FEW) | many) & ((pixels > 1) | (classes <= 1))


def _fit(problem: Problem) -> Fitted:
    """The parameters of row-major images."""
    code, (images, classes, height, width) = problem.code, problem.shape
    item, pixels = problem["out.step2"], height * width
    positions, column = images * pixels, classes * item
    size = positions * column
    dots, by_comparing = pixels == 1, compares(item, classes, pixels, size)
    whole, apiece = size <= IN_CACHE, (images > 1) & (pixels * column <= IN_CACHE)
    shares = ((count + 4095) >> 12 << 6 for count in (positions, positions, size))
    compared, share, span = (
        (own > least).choose(own.least(most), least)
        for own, (least, most) in zip(shares, (COMPARED, SCATTERED, SPAN), strict=True)
    )
    unit = whole.choose(positions, apiece.choose(pixels, share))
    unit = dots.choose(at_least_one(code.integer(IN_CACHE).unsigned_div(column)), unit)
    unit = by_comparing.choose(compared, unit)
    leaves = ~by_comparing & ~dots & ~whole & ~apiece
    spans = ~by_comparing & ~leaves
    for name, value in (
        ("classes", classes), ("positions", positions),
        ("size1", dots.choose(1, images)), ("size2", dots.choose(images, pixels)),
        ("target.step1", problem["target.step2"] * pixels),
        ("gradient.step1", problem["gradient.step2"] * pixels),
        ("out.step1", pixels * column), ("out.step2", dots.choose(column, item)),
        ("out.class_step", pixels * item), ("unit", unit),
        ("clear", spans.choose(code.integer(scatter.SPAN), scatter.LEAVE)), ("bytes", size),
        ("span", span),
    ):  # fmt: skip
        problem[name] = value
    pieces = (positions + unit - 1).unsigned_div(unit)
    grain = at_least_one(code.integer(ALONE).unsigned_div(unit.least(positions) * classes))
    return Fitted(
        by_comparing.to("i64"), pieces, grain, _sums_first(problem, pieces, grain),
        leaves.choose((size + (span - 1)).unsigned_div(span), 0),
    )  # fmt: skip


def _fit_rows(problem: Problem) -> Fitted:
    """The parameters of row-major rows: pixels of one image that have their classes side by side."""
    code, (positions, classes) = problem.code, problem.shape
    column = classes * problem["out.class_step"]
    for name, value in (
        ("classes", classes), ("positions", positions), ("size2", positions), ("out.step2", column),
        ("clear", code.integer(scatter.SPAN)),
    ):  # fmt: skip
        problem[name] = value
    return _scattered(problem, at_least_one(code.integer(IN_CACHE).unsigned_div(column)))


def _fit_laid(problem: Problem) -> Fitted:
    """The parameters of positions that lie anyhow."""
    code = problem.code
    problem["clear"] = code.integer(scatter.STRIDED)
    unit = code.integer(1 << 18).unsigned_div(problem["classes"]).least(UNIT)
    return _scattered(problem, at_least_one(unit))


def _scattered(problem: Problem, unit: Value) -> Fitted:
    """The launches over pieces that clear what they write."""
    code, positions, classes = problem.code, problem["positions"], problem["classes"]
    problem["unit"] = unit
    pieces = (positions + unit - 1).unsigned_div(unit)
    grain = at_least_one(code.integer(ALONE).unsigned_div(unit.least(positions) * classes))
    none = code.integer(0)
    return Fitted(none, pieces, grain, _sums_first(problem, pieces, grain), none)


def _sums_first(problem: Problem, pieces: Value, grain: Value) -> Value:
    """Blocks of weights that are summed before, by all threads; 0: each piece sums for itself."""
    positions = problem["positions"]
    summed = (problem["mean"] != 0) & (problem["total_given"] == 0)
    first = summed & (pieces > grain) & (positions > totals.BLOCK)
    return first.choose(totals.block_count(positions), 0)


NUMBERS = (("i64", put_ignored),)
SIZING = Sizing("nll", SLOTS, 4, _fit, NUMBERS)
ROWS = Sizing("nll.rows", SLOTS, 2, _fit_rows, NUMBERS)
LAYING = Sizing("nll.laid", SLOTS, 0, _fit_laid, NUMBERS)
