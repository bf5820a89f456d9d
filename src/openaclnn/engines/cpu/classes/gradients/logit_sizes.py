"""The gradient of cross entropy from logits over any sizes: which kernels rows and pixels have, and what their parameters and launches follow
from, as code.
"""

from __future__ import annotations

from array import array

from openaclnn.core.plan import Plan
from openaclnn.engines.cpu.classes.gradients.logit_pixels import NAME as PIXELS
from openaclnn.engines.cpu.classes.gradients.logit_pixels import (
    SHORT,
    CrossEntropyLogitsGradOfPixels,
    goes_past,
)
from openaclnn.engines.cpu.classes.gradients.logits import (
    AT_ONCE,
    PLACES,
    SLOTS,
    CrossEntropyLogitsGrad,
)
from openaclnn.engines.cpu.classes.gradients.logits import NAME as OF_ROWS
from openaclnn.engines.cpu.classes.positions.lengths import RowsOfAnyLength
from openaclnn.engines.cpu.classes.positions.sizes import (
    Pieces,
    pieces_of,
    place_images,
    place_rows,
    unit_of_pixels,
)
from openaclnn.engines.cpu.classes.positions.stretches import CHUNK, Cut
from openaclnn.engines.cpu.classes.positions.tile import TILE_ROWS
from openaclnn.engines.cpu.classes.shared import totals
from openaclnn.engines.cpu.classes.shared.sized import (
    IMAGES,
    Fitted,
    Problem,
    Sizing,
    at_least_one,
    put_ignored,
    row_major,
    sized_runner,
)
from openaclnn.engines.cpu.registry import KERNELS, SizedRunner
from openaclnn.engines.machine.values import Value

FULL, EACH = ("input", "out"), ("target", "gradient", "top", "rest")


class OfPixels(CrossEntropyLogitsGradOfPixels):
    def sized(self, plan: Plan) -> SizedRunner:
        """What runs row-major operands of any (N, C, d1, ...)."""

        def kernels(shape: tuple[int, ...]) -> tuple[int, ...]:
            return 0, *self.kernels(plan), 0

        return sized_runner(PIXEL_SIZING, _template(self, plan), kernels)


class OfRows(RowsOfAnyLength):
    def sized(self, plan: Plan) -> SizedRunner:
        """What runs row-major operands of any (N, C)."""

        def kernels(shape: tuple[int, ...]) -> tuple[int, ...]:
            short = shape[-1] < SHORT
            return int(short), *(PIXELS_OF_ROWS if short else ROWS).kernels(plan), 0

        return sized_runner(ROW_SIZING, _template(ROWS, plan), kernels)


def _template(kernel: CrossEntropyLogitsGrad, plan: Plan) -> array[int]:
    fixed = {f"{name}.class_step": plan.compute.itemsize for name in FULL}
    return row_major(kernel.block(plan, Cut(1, False, 1, 1, 1, 1)), plan, SLOTS, PLACES, fixed)


def _fit_pixels(problem: Problem) -> Fitted:
    """The parameters of row-major images."""
    item = problem["out.class_step"]
    place_images(problem, FULL, EACH)
    return _fitted(problem, problem.code.integer(0), _pixel_pieces(problem, item))


def _fit_rows(problem: Problem) -> Fitted:
    """The parameters of row-major rows; short ones are pixels whose planes lie one element apart."""
    code, (_, classes), item = problem.code, problem.shape, problem["out.class_step"]
    place_rows(problem, FULL)
    short = classes < SHORT
    of_pixels = _pixel_pieces(problem, item)
    unit, past = problem["tile"], problem["past"]
    tile = at_least_one((code.integer(AT_ONCE) // classes).least(TILE_ROWS))
    chunk = classes.least(CHUNK)
    chunks = (classes + chunk - 1) // chunk
    of_rows = pieces_of(problem, tile, chunk, chunks)
    for name, value in (
        ("tile", short.choose(unit, tile)), ("chunk", chunk), ("chunks", chunks),
        ("staged", (short & (classes > 1)).to("i64")), ("past", short.choose(past, 0)),
    ):  # fmt: skip
        problem[name] = value
    both = zip(of_pixels, of_rows, strict=True)
    pieces = Pieces(*[short.choose(one, other) for one, other in both])
    return _fitted(problem, short.to("i64"), pieces)


def _pixel_pieces(problem: Problem, item: Value) -> Pieces:
    classes = problem["classes"]
    problem["past"] = goes_past(item, problem["positions"] * classes).to("i64")
    return pieces_of(problem, unit_of_pixels(problem.code, classes), classes)


def _fitted(problem: Problem, way: Value, pieces: Pieces) -> Fitted:
    shared = problem["mean"], problem["weighted"], problem["positions"], problem["classes"]
    apart = (pieces.pieces > pieces.grain) & totals.sums_apart(*shared)
    return Fitted(way, *pieces, apart.choose(totals.sum_blocks(*shared), 0))


def _put_smoothing(problem: Problem, number: Value) -> None:
    problem.put_double("smoothing", number)


def _put_scale(problem: Problem, number: Value) -> None:
    problem.put_double("zloss_scale", number * 2.0)


NUMBERS = ("i64", put_ignored), ("f64", _put_smoothing), ("f64", _put_scale)
PIXEL_SIZING = Sizing(PIXELS, SLOTS, IMAGES, _fit_pixels, NUMBERS)
ROW_SIZING = Sizing(OF_ROWS, SLOTS, 2, _fit_rows, NUMBERS)
ROWS, PIXELS_OF_ROWS = CrossEntropyLogitsGrad(OF_ROWS), OfPixels(PIXELS)
KERNELS[PIXELS] = PIXELS_OF_ROWS
KERNELS[OF_ROWS] = OfRows(ROWS, PIXELS_OF_ROWS, SHORT)
