"""Cross entropy from logits of images of any size, and its gradient: the launches of `plans/logit_pixels.py`, told the sizes in the call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from openaclnn.core.plan import Plan
from openaclnn.engines.gpu.fits.fitting import MAIN, OTHER, class_fitting
from openaclnn.engines.gpu.launching import scratch
from openaclnn.engines.gpu.launching.queues import SizedRunner, lies_row_major, queue_of, remembered
from openaclnn.engines.gpu.plans import logit_pixels, logits, rows
from openaclnn.engines.gpu.plans.logit_pixels import SUM_BYTES, row_major, total_sizes
from openaclnn.engines.gpu.plans.logits import NUMBERS, WEIGHT
from openaclnn.engines.gpu.sizes.sums import (
    sized_with_sums,
    sized_without_sums,
    sums_launched,
    sums_slot,
)

__all__ = ["sized_gradients", "sized_losses"]

SOME = 2, 3, 6  # images, classes, pixels


def sized_losses(plan: Plan) -> SizedRunner | None:
    """What queues the loss over row-major operands and any (images, classes, ...)."""
    return remembered(plan, _losses) if _has_images(plan) else None


def sized_gradients(plan: Plan) -> SizedRunner | None:
    """The same of the gradient."""
    return remembered(plan, _gradients) if _has_images(plan) else None


def _has_images(plan: Plan) -> bool:
    """Whether it lies as row-major images do; one merged axis is that of one image's pixels, or of images of a pixel each."""
    if len(plan.shape) > 2:
        return False
    first, last = (1, *plan.shape)[-2:]
    return lies_row_major(plan, first, last) or lies_row_major(plan, last, first)


def _losses(plan: Plan) -> SizedRunner:
    kernel, total = logit_pixels.loss_pixels(plan), logit_pixels.total_family(plan)
    own = logits.last_of(*(plan.numbers[name] for name in NUMBERS))
    some = kernel.sizes(row_major(plan, SOME), own)
    adding = {MAIN: (total, total_sizes(some[0]))} if plan.reduction else {}
    fitting = class_fitting(
        "PixelLossFit", plan, {OTHER: (kernel.family, some), **adding}, WEIGHT, NUMBERS,
        (kernel.vector, not plan.reduction),
    )  # fmt: skip
    queue = queue_of(kernel.family, fitting.ready(OTHER))
    queue_total = queue_of(total, fitting.ready(MAIN))

    def run(
        addresses: Sequence[int], stream: int, shape: Sequence[int], numbers: Sequence[Any]
    ) -> int:
        last = logits.last_of(*numbers) if numbers else own
        sizes = kernel.sizes(row_major(plan, shape), last)
        if not plan.reduction:
            queue((*addresses, 0), stream, *sizes)
            return 0
        programs = sizes[0]
        with scratch.lent(programs * SUM_BYTES, stream) as memory:
            given = (*addresses, memory, 0)
            queue(given, stream, *sizes)
            queue_total(given, stream, *total_sizes(programs))
        return 0

    return fitting.function(run)


def _gradients(plan: Plan) -> SizedRunner:
    summed = rows.is_summed(plan)
    kernel = logit_pixels.gradient_pixels(plan, sums_slot(plan) if summed else None)
    own = rows.last_of(plan)
    some = kernel.sizes(row_major(plan, SOME), own, (1,))
    fitting = class_fitting(
        "PixelGradientFit", plan,
        {MAIN: (kernel.family, some), **(sums_launched(plan, WEIGHT) if summed else {})},
        WEIGHT, NUMBERS, (kernel.vector, plan.inputs[1].role != "single"),
    )  # fmt: skip
    queue = queue_of(kernel.family, fitting.ready(MAIN))

    def main(
        addresses: Sequence[int], stream: int, shape: Sequence[int], numbers: Sequence[Any], parts: int
    ) -> None:  # fmt: skip
        last = rows.last_numbers(*numbers) if numbers else own
        queue(addresses, stream, *kernel.sizes(row_major(plan, shape), last, (parts,)))

    if summed:
        return fitting.function(sized_with_sums(plan, WEIGHT, main, fitting.ready))
    return fitting.function(sized_without_sums(main))
