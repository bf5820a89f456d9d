"""The gradient of NLL over images of any size, or rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from openaclnn.core.plan import Plan, covered_elements
from openaclnn.engines.gpu.fits.fitting import ANYWHERE, MAIN, OTHER, class_fitting
from openaclnn.engines.gpu.launching.launch import anywhere
from openaclnn.engines.gpu.launching.queues import SizedRunner, lies_row_major, queue_of, remembered
from openaclnn.engines.gpu.plans import pixels
from openaclnn.engines.gpu.sizes.sums import (
    sized_with_sums,
    sized_without_sums,
    sums_launched,
    sums_slot,
)


def sized(plan: Plan) -> SizedRunner | None:
    """What queues the plan's kernel over row-major operands and any (images, classes, height, width)."""
    # One merged axis is taken for one image's pixels: images of a pixel each look like channels last.
    if len(plan.shape) > 2 or not lies_row_major(plan, *(1, *plan.shape)[-2:]):
        return None
    return remembered(plan, _sized_images)


def few(plan: Plan) -> tuple[int, ...] | None:
    """The shape for the plan's sized runner, if that is as good as launches of its own."""
    if len(plan.shape) > 2 or covered_elements(plan) > pixels.FEW:
        return None
    images, area = (1, *plan.shape)[-2:]
    return images, plan.classes, 1, area


def sized_rows(plan: Plan) -> SizedRunner | None:
    """The same over any (rows, classes): rows are images of one pixel."""
    if plan.class_axis != 1 or len(plan.shape) != 1 or not lies_row_major(plan, plan.shape[0], 1):
        return None
    return remembered(plan, _sized_rows)


def _sized_images(plan: Plan) -> SizedRunner:
    return _sized(plan, "PixelFit")


def _sized_rows(plan: Plan) -> SizedRunner:
    return _sized(plan, "NllRowFit")


def _sized(plan: Plan, pattern: str) -> SizedRunner:
    summed, weight = pixels.is_summed(plan), plan.inputs[2].parameter
    kernel = pixels.Pixels(plan, sums_slot(plan) if summed else None, 1)
    planes = pixels.Planes(kernel)
    single = plan.inputs[1].role == "single"
    one: pixels.Strides = (0, 0, 0, 0)
    own: tuple[int, ...] = (plan.numbers["ignore_index"],)

    def main(
        addresses: Sequence[int], stream: int, shape: Sequence[int], numbers: Sequence[Any], parts: int
    ) -> None:  # fmt: skip
        (ignore_index,) = numbers or own
        images, classes, *sides = shape
        area = math.prod(sides)
        if area == 1:  # images are the pixels of one that has its channels last
            read, out, axes = (0, 0, 1, 0), (0, 0, classes, 1), (1, 1, images)
        else:
            read, out = (0, area, 1, 0), (0, classes * area, 1, area)
            axes = 1, images, area
        gradient = one if single else read
        if planes.serves(area, read, gradient, out, single):
            sizes = planes.sizes(axes, classes, read, gradient, out, ignore_index, parts)
            queue_planes(addresses, stream, *sizes)
            return
        few = images * classes * area <= pixels.FEW and (area > 1 or classes > 1)
        sizes = kernel.sizes(axes, classes, read, gradient, out, ignore_index, parts, few)
        (queue_few if few else queue)(addresses, stream, *sizes)

    read, out = (0, 6, 1, 0), (0, 18, 1, 6)
    some = (1, 2, 6), 3, read, one if single else read, out, -1, 1
    # Masks that can end anywhere forbid few elements vectors, so that alignment is nothing to them.
    small = anywhere(kernel.family)
    fitting = class_fitting(
        pattern, plan,
        {
            MAIN: (kernel.family, kernel.sizes(*some)), ANYWHERE: (small, kernel.sizes(*some, few=True)),
            OTHER: (planes.family, planes.sizes(*some)), **(sums_launched(plan, weight) if summed else {}),
        },
        weight, ("ignore_index",),
        (
            pixels.FEW, pixels.FEW_TILE.across, pixels.FEW_TILE.most, pixels.FEW_TILE.warps, not single, kernel.itemsize,
            pixels.CHUNK_CLASSES[kernel.itemsize], pixels.PANEL_PIXELS, pixels.FEW_PIXELS, pixels.PLANE_CLASSES, planes.vector, planes.block,
        ),
    )  # fmt: skip
    queue, queue_few = (
        queue_of(family, fitting.ready(name))
        for family, name in ((kernel.family, MAIN), (small, ANYWHERE))
    )
    queue_planes = queue_of(planes.family, fitting.ready(OTHER))
    if summed:
        return fitting.function(sized_with_sums(plan, weight, main, fitting.ready))
    return fitting.function(sized_without_sums(main))
