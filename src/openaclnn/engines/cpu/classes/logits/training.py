"""Cross entropy for training over any sizes: which kernels rows and pixels have, and what their parameters and launches follow from, as code."""

from __future__ import annotations

from array import array

from openaclnn.core.plan import Plan
from openaclnn.engines.cpu.classes.logits.pixels import NAME as PIXELS
from openaclnn.engines.cpu.classes.logits.pixels import SHORT, CrossEntropyOfPixels
from openaclnn.engines.cpu.classes.logits.rows import (
    AT_ONCE,
    PLACES,
    SLOTS,
    TRAINING,
    CrossEntropy,
    Cut,
    staged_rows,
)
from openaclnn.engines.cpu.classes.logits.sizes import fitted
from openaclnn.engines.cpu.classes.positions.lengths import RowsOfAnyLength
from openaclnn.engines.cpu.classes.positions.sizes import (
    pieces_of,
    place_images,
    place_rows,
    unit_of_pixels,
)
from openaclnn.engines.cpu.classes.shared.sized import (
    IMAGES,
    Fitted,
    Problem,
    Sizing,
    at_least_one,
    row_major,
    sized_runner,
)
from openaclnn.engines.cpu.registry import KERNELS, SizedRunner

FULL, EACH = ("input",), ("target", "top", "rest", "loss")


class OfPixels(CrossEntropyOfPixels):
    def sized(self, plan: Plan) -> SizedRunner:
        """What runs row-major operands of any (N, C, d1, ...)."""

        def kernels(shape: tuple[int, ...]) -> tuple[int, ...]:
            write, finish = self.kernels(plan)
            return 0, write, 0, 0, finish

        return sized_runner(PIXEL_SIZINGS[not plan.reduction], _template(self, plan), kernels)


class OfRows(RowsOfAnyLength):
    def sized(self, plan: Plan) -> SizedRunner:
        """What runs row-major operands of any (N, C)."""

        def kernels(shape: tuple[int, ...]) -> tuple[int, ...]:
            short = shape[-1] < SHORT
            write, finish = (PIXELS_OF_ROWS if short else ROWS).kernels(plan)
            return int(short), write, 0, 0, finish

        sizing = ROW_SIZINGS[not plan.reduction, plan.compute.short]
        return sized_runner(sizing, _template(ROWS, plan), kernels)


def _template(kernel: CrossEntropy, plan: Plan) -> array[int]:
    block = kernel.block(plan, Cut(1, False, 1, 1, 1))
    return row_major(block, plan, SLOTS, PLACES, {"input.class_step": plan.compute.itemsize})


def _fit_pixels(problem: Problem, each: bool) -> Fitted:
    """The parameters of row-major images."""
    place_images(problem, FULL, EACH)
    unit = unit_of_pixels(problem.code, problem["classes"])
    pieces = pieces_of(problem, unit, problem["classes"])
    return fitted(problem, problem.code.integer(0), pieces, pieces.pieces, each)


def _fit_rows(problem: Problem, each: bool, dtype: str) -> Fitted:
    """The parameters of row-major rows; short ones are pixels whose planes lie one element apart."""
    code, (positions, classes) = problem.code, problem.shape
    place_rows(problem, FULL)
    short = classes < SHORT
    problem["staged"] = (short & (classes > 1)).to("i64")
    together = at_least_one(code.integer(AT_ONCE).unsigned_div(classes).least(staged_rows(dtype)))
    tile = short.choose(unit_of_pixels(code, classes), together)
    pieces = pieces_of(problem, tile, classes)
    return fitted(problem, short.to("i64"), pieces, short.choose(pieces.pieces, positions), each)


def _pixel_sizing(each: bool) -> Sizing:
    name = f"{PIXELS}.{'each' if each else 'sum'}"
    return Sizing(name, SLOTS, IMAGES, lambda problem: _fit_pixels(problem, each), ())


def _row_sizing(each: bool, dtype: str) -> Sizing:
    name = f"{TRAINING}.{'each' if each else 'sum'}.{dtype}"
    return Sizing(name, SLOTS, 2, lambda problem: _fit_rows(problem, each, dtype), ())


PIXEL_SIZINGS = {each: _pixel_sizing(each) for each in (False, True)}
ROW_SIZINGS = {
    (each, dtype): _row_sizing(each, dtype)
    for each in (False, True)
    for dtype in ("f32", "f16", "bf16")
}
ROWS, PIXELS_OF_ROWS = CrossEntropy(TRAINING), OfPixels()
KERNELS[PIXELS] = PIXELS_OF_ROWS
KERNELS[TRAINING] = OfRows(ROWS, PIXELS_OF_ROWS, SHORT)
