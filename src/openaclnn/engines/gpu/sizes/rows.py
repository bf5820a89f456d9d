"""The gradients of cross entropy over rows of any number and length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from openaclnn.core.plan import Plan, covered_elements
from openaclnn.engines.gpu.fits.fitting import ANYWHERE, MAIN, OTHER, class_fitting
from openaclnn.engines.gpu.kernels.rows import COUNTED
from openaclnn.engines.gpu.launching.launch import VECTOR_BYTES, anywhere
from openaclnn.engines.gpu.launching.operands import operand_of
from openaclnn.engines.gpu.launching.queues import SizedRunner, lies_row_major, queue_of, remembered
from openaclnn.engines.gpu.plans import rows
from openaclnn.engines.gpu.sizes.sums import (
    sized_with_sums,
    sized_without_sums,
    sums_launched,
    sums_slot,
)


def sized(plan: Plan) -> SizedRunner | None:
    """What queues the plan's kernel over row-major operands and any (rows, classes)."""
    if len(plan.shape) != 1 or not lies_row_major(plan, plan.shape[0], 1):
        return None
    return remembered(plan, _sized)


def few(plan: Plan) -> tuple[int, ...] | None:
    """The shape for the plan's sized runner, if that is as good as launches of its own."""
    shape = *plan.shape, plan.classes
    return shape if len(shape) == 2 and covered_elements(plan) <= rows.FEW else None


def _sized(plan: Plan) -> SizedRunner:
    summed, weighted = rows.is_summed(plan), operand_of(plan, rows.WEIGHT) is not None
    # By what they are: strides of a plan of one row, or of one class, say nothing.
    along_rows = (int(own is not None and own.role == "positions") for own in rows.by_row(plan))
    steps = *along_rows, int(weighted)
    kernel = rows.Rows(plan, sums_slot(plan) if summed else None, steps)
    own = rows.last_of(plan)
    # Masks that can end anywhere forbid few elements vectors, so that alignment is nothing to them.
    shifted = anywhere(kernel.family)
    # A few targets that weigh 1 are counted by every program, which takes less than a launch that counts them.
    counting = anywhere(rows.Rows(plan, None, steps).family)
    most_counted = COUNTED.value if summed and not weighted else 0
    vector = kernel.vector
    shortest = rows.SHORT_ROW * vector if kernel.alike else 1 << 62
    some = 2, 3, (3, 1, 3, 1), own, 1
    few = kernel.sizes(*some, few=True)
    fitting = class_fitting(
        "RowFit", plan,
        {
            MAIN: (kernel.family, kernel.sizes(*some)), ANYWHERE: (shifted, few), OTHER: (counting, few),
            **(sums_launched(plan, rows.WEIGHT) if summed else {}),
        },
        rows.WEIGHT, rows.NUMBERS, (rows.FEW, *rows.FEW_TILE, kernel.itemsize, vector, shortest, kernel.logits, most_counted),
    )  # fmt: skip
    queue, queue_shifted, queue_counting = (
        queue_of(family, fitting.ready(name))
        for family, name in ((kernel.family, MAIN), (shifted, ANYWHERE), (counting, OTHER))
    )
    out = len(plan.inputs)

    def main(
        addresses: Sequence[int], stream: int, shape: Sequence[int], numbers: Sequence[Any], parts: int
    ) -> None:  # fmt: skip
        count, classes = shape
        last = rows.last_numbers(*numbers) if numbers else own
        strides = classes, 1, classes, 1
        if count * classes <= rows.FEW:
            sizes = kernel.sizes(count, classes, strides, last, parts, few=True)
            queue_few = queue_counting if count <= most_counted else queue_shifted
            queue_few(addresses, stream, *sizes)
            return
        if classes >= shortest:
            off = addresses[2] % VECTOR_BYTES
            if off == addresses[out] % VECTOR_BYTES and (off or classes % vector):
                sizes = kernel.sizes(count, classes, strides, last, parts, vector)
                queue_shifted(addresses, stream, *sizes)
                return
        queue(addresses, stream, *kernel.sizes(count, classes, strides, last, parts))

    alone = sized_without_sums(main)
    if not summed:
        return fitting.function(alone)
    with_sums = sized_with_sums(plan, rows.WEIGHT, main, fitting.ready)

    def run(
        addresses: Sequence[int], stream: int, shape: Sequence[int], numbers: Sequence[Any]
    ) -> int:
        count, classes = shape
        counted = count <= most_counted and count * classes <= rows.FEW
        return (alone if counted else with_sums)(addresses, stream, shape, numbers)

    return fitting.function(run)
