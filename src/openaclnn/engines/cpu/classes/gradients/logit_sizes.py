"""The gradient of cross entropy from logits over any sizes: which kernels rows and pixels have, and what their parameters and launches follow
from, as code.
"""

from __future__ import annotations

from array import array

from openaclnn.core.plan import Plan
from openaclnn.engines.cpu.classes.gradients.cross_entropy import NUMBERS, fitted
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
    pieces_of,
    place_images,
    place_rows,
    unit_of_pixels,
)
from openaclnn.engines.cpu.classes.positions.stretches import CHUNK, Cut
from openaclnn.engines.cpu.classes.positions.tile import TILE_ROWS
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
    code, item = problem.code, problem["out.class_step"]
    place_images(problem, FULL, EACH)
    positions, classes = problem["positions"], problem["classes"]
    problem["past"] = goes_past(item, positions * classes).to("i64")
    pieces = pieces_of(problem, unit_of_pixels(code, classes), classes)
    return fitted(problem, code.integer(0), pieces)


def _fit_rows(problem: Problem) -> Fitted:
    """The parameters of row-major rows; short ones are pixels whose planes lie one element apart."""
    code, (positions, classes), item = problem.code, problem.shape, problem["out.class_step"]
    place_rows(problem, FULL)
    short, chunk = classes < SHORT, classes.least(CHUNK)  # a short row is one chunk
    chunks = (classes + chunk - 1).unsigned_div(chunk)
    together = at_least_one(code.integer(AT_ONCE).unsigned_div(classes).least(TILE_ROWS))
    tile = short.choose(unit_of_pixels(code, classes), together)
    for name, value in (
        ("chunk", chunk), ("chunks", chunks), ("staged", (short & (classes > 1)).to("i64")),
        ("past", (short & goes_past(item, positions * classes)).to("i64")),
    ):  # fmt: skip
        problem[name] = value
    return fitted(problem, short.to("i64"), pieces_of(problem, tile, chunk, chunks))


PIXEL_SIZING = Sizing(PIXELS, SLOTS, IMAGES, _fit_pixels, NUMBERS)
ROW_SIZING = Sizing(OF_ROWS, SLOTS, 2, _fit_rows, NUMBERS)
ROWS, PIXELS_OF_ROWS = CrossEntropyLogitsGrad(OF_ROWS), OfPixels(PIXELS)
KERNELS[PIXELS] = PIXELS_OF_ROWS
KERNELS[OF_ROWS] = OfRows(ROWS, PIXELS_OF_ROWS, SHORT)
