"""Kernels with a class axis over few elements of any strides: nothing is chosen for a layout, so that one compiled kernel
serves all, as `tiles.py` does elementwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from openaclnn.core.plan import Plan, covered_elements
from openaclnn.engines.gpu.fits.fitting import ANYWHERE, class_fitting
from openaclnn.engines.gpu.launching.launch import Sizes, anywhere
from openaclnn.engines.gpu.launching.operands import ignored, table_of
from openaclnn.engines.gpu.launching.queues import NOT_SERVED, queue_of, remembered
from openaclnn.engines.gpu.plans import pixels, rows
from openaclnn.engines.gpu.sizes.sums import strided_with_sums, sums_launched, sums_slot

__all__ = ["LaidClassRunner", "laid_pixels", "laid_rows", "serves"]

LaidClassRunner = Callable[[Sequence[int], int, Sequence[int], Sequence[int], Sequence[Any]], int]
"""Of addresses, a stream, the sizes of the positions' axes and, last, of the classes, each operand's strides along them one
after the other, and the plan's free numbers; without these, the plan's own hold. Not 0: it does not serve so many axes."""

ANY_STEP = 2  # a stride known at run time only


def serves(plan: Plan, axes: int, few: int) -> bool:
    """Whether a kernel that takes so many axes has few elements to do, from where their addresses say."""
    offsets = any(own.offset for own in plan.operands)
    return len(plan.shape) <= axes and covered_elements(plan) <= few and not offsets


def laid_rows(plan: Plan) -> tuple[LaidClassRunner, int] | None:
    """What queues cross entropy's gradients over rows, and up to how many elements."""
    return (remembered(plan, _laid_rows), rows.FEW) if serves(plan, 1, rows.FEW) else None


def _laid_rows(plan: Plan) -> LaidClassRunner:
    places = {own.parameter: place for place, own in enumerate(plan.inputs)}
    along_rows = [None if own is None else places[own.parameter] for own in rows.by_row(plan)]
    weight, summed = places.get(rows.WEIGHT), rows.is_summed(plan)
    kernel = rows.Rows(plan, sums_slot(plan) if summed else None, (0,))
    own, (tall, wide, warps) = rows.last_of(plan), rows.FEW_TILE
    family = anywhere(kernel.family)

    def sizes_of(
        count: int, classes: int, strides: Sequence[int], last: Sequence[int | float], parts: int
    ) -> Sizes:
        across = -(-classes // wide)
        return (
            across * -(-count // tall), (count, classes, across, *strides, *last),
            (parts, *(ANY_STEP,) * 5, 1, 1, 1, True, 0, tall, wide), warps,
        )  # fmt: skip

    some = sizes_of(1, 1, (0,) * 11, own, 1)
    fitting = class_fitting(
        "StridedRowFit", plan,
        {ANYWHERE: (family, some), **(sums_launched(plan, rows.WEIGHT, True) if summed else {})},
        rows.WEIGHT, rows.NUMBERS, (rows.FEW, tall, wide, -1 if weight is None else weight),
        [-1 if place is None else place for place in along_rows],
    )  # fmt: skip
    queue = queue_of(family, fitting.ready(ANYWHERE))
    with_sums = strided_with_sums(plan, rows.WEIGHT, fitting.ready) if summed else None

    def run(
        addresses: Sequence[int], stream: int, sizes: Sequence[int], strides: Sequence[int],
        numbers: Sequence[Any],
    ) -> int:  # fmt: skip
        if len(sizes) != 2:
            return NOT_SERVED
        (count, classes), table = sizes, table_of(strides, 2)
        last = rows.last_numbers(*numbers) if numbers else own
        weight_step = 0 if weight is None else table[weight][1]
        steps = [0 if place is None else table[place][0] for place in along_rows]
        all_steps = (*steps, weight_step, *table[2], *table[-1])

        def main(given: Sequence[int], parts: int) -> None:
            queue(given, stream, *sizes_of(count, classes, all_steps, last, parts))

        if with_sums is None:
            main((*addresses, 0), 1)
            return 0
        shape, steps_of_targets = (1, 1, count), (0, 0, table[plan.targets][0])
        return with_sums(
            addresses, stream, shape, steps_of_targets, weight_step, classes, last[0], main
        )

    return fitting.function(run)


def laid_pixels(plan: Plan) -> tuple[LaidClassRunner, int] | None:
    """What queues NLL's gradient over images or rows, and up to how many elements."""
    return (remembered(plan, _laid_pixels), pixels.FEW) if serves(plan, 3, pixels.FEW) else None


def _laid_pixels(plan: Plan) -> LaidClassRunner:
    summed, parameter = pixels.is_summed(plan), plan.inputs[2].parameter
    kernel = pixels.Pixels(plan, sums_slot(plan) if summed else None, 0)
    family, own = anywhere(kernel.family), (plan.numbers["ignore_index"],)
    tall, width, wide, warps, most = pixels.FEW_TILE

    def sizes_of(
        sizes: Sequence[int], strides: Sequence[int], ignore_index: int, parts: int
    ) -> Sizes:
        first, second, third, classes = sizes
        across, chunks = -(-third // width), -(-classes // most)
        return (
            first * second * chunks * across,
            (
                third, second, second, 1, across, classes, -(-classes // chunks), chunks, *strides,
                ignored(ignore_index),
            ),
            (parts, *(ANY_STEP,) * 6, 1, 1, 1, 1, True, True, tall, width, wide), warps,
        )  # fmt: skip

    some = sizes_of((1, 1, 1, 1), (0,) * 11, -1, 1)
    fitting = class_fitting(
        "StridedPixelFit", plan,
        {ANYWHERE: (family, some), **(sums_launched(plan, parameter, True) if summed else {})},
        parameter, ("ignore_index",), (pixels.FEW, width, most),
    )  # fmt: skip
    queue = queue_of(family, fitting.ready(ANYWHERE))
    with_sums = strided_with_sums(plan, parameter, fitting.ready) if summed else None

    def run(
        addresses: Sequence[int], stream: int, sizes: Sequence[int], strides: Sequence[int],
        numbers: Sequence[Any],
    ) -> int:  # fmt: skip
        missing = 4 - len(sizes)
        if missing < 0:
            return NOT_SERVED
        (ignore_index,) = numbers or own
        *shape, classes = *(1,) * missing, *sizes
        table = [(*(0,) * missing, *steps) for steps in table_of(strides, len(sizes))]
        target, gradient, weight, out = *table[:3], table[-1]
        steps = (*target[:3], *gradient[:3], *out, weight[3])

        def main(given: Sequence[int], parts: int) -> None:
            queue(given, stream, *sizes_of((*shape, classes), steps, ignore_index, parts))

        if with_sums is None:
            main((*addresses, 0), 1)
            return 0
        return with_sums(
            addresses, stream, tuple(shape), target[:3], weight[3], classes, ignore_index, main
        )

    return fitting.function(run)
