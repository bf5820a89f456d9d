"""Cross entropy from logits at any size, or of few elements with any strides: the launches of `plans/logits.py`, told these in the call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from openaclnn.core.plan import Plan
from openaclnn.engines.gpu.fits.fitting import NOTHING, Fitting, can_be_fitted, key_maker
from openaclnn.engines.gpu.launching import scratch
from openaclnn.engines.gpu.launching.launch import VECTOR_BYTES, Slot, anywhere
from openaclnn.engines.gpu.launching.operands import INT32_LIMIT, ignored, operand_of, table_of
from openaclnn.engines.gpu.launching.queues import (
    NOT_SERVED,
    SizedRunner,
    lies_row_major,
    queue_of,
    remembered,
)
from openaclnn.engines.gpu.plans.logits import (
    FEW,
    NUMBERS,
    RESULTS,
    SCRATCH,
    WEIGHT,
    WIDE,
    WRITTEN,
    Last,
    Logits,
    Steps,
    has_vectors,
    last_of,
    usual_steps,
)
from openaclnn.engines.gpu.sizes.strided import LaidClassRunner, serves

__all__ = ["laid", "sized"]


def sized(plan: Plan) -> SizedRunner | None:
    """What queues the loss over row-major operands and any (rows, classes)."""
    if len(plan.shape) != 1 or not lies_row_major(plan, plan.shape[0], 1):
        return None
    return remembered(plan, _sized)


def laid(plan: Plan) -> tuple[LaidClassRunner, int] | None:
    """What queues the loss over rows of any strides, and up to how many elements."""
    return (remembered(plan, _laid), FEW) if serves(plan, 1, FEW) else None


def _sized(plan: Plan) -> SizedRunner:
    weighted = int(operand_of(plan, WEIGHT) is not None)
    # By what they are: strides of a plan of one row, or of one class, say nothing.
    each = {own.parameter: int(own.role == "positions") for own in plan.outputs}
    along = tuple(each.get(name, own) for name, own in usual_steps(plan).items())

    def steps_of(classes: int) -> Steps:
        return Steps(1, classes, 1, weighted, along, classes, 1)

    launch, fitting = _launching(plan, "LogitFit", steps_of(2), (weighted,), ())

    def run(
        addresses: Sequence[int], stream: int, shape: Sequence[int], numbers: Sequence[Any]
    ) -> int:
        rows, classes = shape
        return launch(addresses, stream, rows, classes, steps_of(classes), numbers)

    return fitting.function(run)


def _laid(plan: Plan) -> LaidClassRunner:
    places = {own.parameter: place for place, own in enumerate(plan.operands)}
    weight, written = places.get(WEIGHT, -1), places.get(WRITTEN, -1)
    results = [places.get(name, -1) for name in RESULTS]
    usual = tuple(usual_steps(plan).values())
    some = Steps(0, 0, 1, 0, usual, 0, 1)
    launch, fitting = _launching(plan, "StridedLogitFit", some, (weight, written), results)

    def run(
        addresses: Sequence[int], stream: int, sizes: Sequence[int], strides: Sequence[int],
        numbers: Sequence[Any],
    ) -> int:  # fmt: skip
        if len(sizes) != 2:
            return NOT_SERVED
        (rows, classes), table = sizes, table_of(strides, 2)
        along = tuple(
            table[place][0] if place >= 0 else own
            for place, own in zip(results, usual, strict=True)
        )
        own_row = table[written] if written >= 0 else (0, 0)
        by_class = table[1][1], own_row[1]
        if classes == 1:  # as good a stride as any
            by_class = 1, 1
        steps = Steps(
            table[0][0], table[1][0], by_class[0], table[weight][1] if weight >= 0 else 0, along, own_row[0],
            by_class[1],
        )  # fmt: skip
        return launch(addresses, stream, rows, classes, steps, numbers)

    return fitting.function(run)


Launching = Callable[[Sequence[int], int, int, int, Steps, Sequence[Any]], int]
"""Of addresses, a stream, rows, classes, strides and the plan's free numbers."""


def _launching(
    plan: Plan, pattern: str, some: Steps, facts: Sequence[int], words: Sequence[int]
) -> tuple[Launching, Fitting]:
    """What queues all launches, and what makes it a builtin of a fit that has these facts and words."""
    kernels, behind = Logits(plan), len(plan.operands)
    families = kernels.families([Slot(behind + place, kind) for place, kind in enumerate(SCRATCH)])
    own = last_of(*(plan.numbers[name] for name in NUMBERS))
    fitting = _fitting(plan, kernels, families, pattern, some, own, facts, words)
    queues = {
        (name, wide): queue_of(family if wide else anywhere(family), fitting.ready((name, wide)))
        for name, family in families.items()
        for wide in (False, True)
    }

    def launch(
        addresses: Sequence[int], stream: int, rows: int, classes: int, steps: Steps,
        numbers: Sequence[Any],
    ) -> int:  # fmt: skip
        last = last_of(*numbers) if numbers else own
        several, memory = kernels.sizes(rows, classes, steps, last)
        with scratch.lent(memory.size, stream) as begin:
            places = begin, *(begin + at for at in memory[:-1])
            for name, sizes in several.items():
                queues[name, has_vectors(name, sizes)]((*addresses, *places, 0), stream, *sizes)
        return 0

    return launch, fitting


def _fitting(
    plan: Plan, kernels: Logits, families: Any, pattern: str, some: Steps, own: Last,
    facts: Sequence[int], words: Sequence[int],
) -> Fitting:  # fmt: skip
    if not can_be_fitted():
        return NOTHING
    from openaclnn.engines.gpu.fits import classes, fitted
    from openaclnn.engines.gpu.fits import logits as fits

    # Short rows and long ones: together all launches that there are.
    example = {**kernels.sizes(2, 2, some, own)[0], **kernels.sizes(2, 2 * WIDE, some, own)[0]}
    if not all(
        fitted.takes(families[name].slots, len(sizes[1]), NUMBERS)
        for name, sizes in example.items()
    ):
        return NOTHING
    item = kernels.itemsize
    made = fitted.Fitted(
        getattr(fits, pattern), len(plan.operands),
        (kernels.each, kernels.whole, item, VECTOR_BYTES // item, *facts), len(words),
    )  # fmt: skip
    made.take_words(0, words)
    first, *others = (plan.numbers[name] for name in NUMBERS)
    made.take_numbers((min(ignored(first), INT32_LIMIT), *others), 1)
    made.take_sums(*scratch.functions())
    ready = {}
    for name, (_, numbers, constants, warps) in example.items():
        step, family = fits.STEP_OF[name], families[name]
        made.take_step(step, family.slots, numbers)
        places = classes.places_of(fits.KEYS[name])
        for wide in (False, True):
            key_of = key_maker(places, classes.ASTRAY, not wide, family, constants, warps)
            ready[name, wide] = made.ready_by(step, key_of, numbers)
    return Fitting(made, ready)
