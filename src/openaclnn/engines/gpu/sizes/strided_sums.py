"""Sums over few elements or positions of any strides: one compiled kernel serves all, as `strided.py` has it for gradients."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from openaclnn.core.plan import Plan, covered_elements
from openaclnn.engines.gpu.formulas.tuned import form_of
from openaclnn.engines.gpu.launchers.launcher import StridedRunner, any_strides
from openaclnn.engines.gpu.launching.operands import table_of
from openaclnn.engines.gpu.launching.queues import NOT_SERVED, Queue, queue_of, remembered
from openaclnn.engines.gpu.plans.reductions import (
    AXES,
    FEW,
    LAID,
    NLL_AXES,
    add_family,
    add_sizes,
    finish_family,
    finish_sizes,
    nll_finish_sizes,
    nll_sizes,
    padded,
    single_of,
)
from openaclnn.engines.gpu.sizes.reductions import (
    ADD,
    ALONE,
    FINISH,
    Made,
    Summing,
    adding,
    fitting_of,
    nll_queued,
    run_all,
)
from openaclnn.engines.gpu.sizes.tiles import LaidRunner

__all__ = ["laid", "laid_nll"]

ANYHOW, FLAT = "anyhow", "flat"
"""How elements lie: with any strides; in a row after all."""


def laid(plan: Plan) -> tuple[LaidRunner, int] | None:
    """What queues the sum or mean of a formula, and up to how many elements. Not 0: it does not serve so many axes."""
    offsets = any(own.offset for own in plan.inputs)
    if offsets or covered_elements(plan) > LAID:
        return None
    return remembered(plan, _laid, strided=True), LAID


def _laid(plan: Plan) -> LaidRunner:
    form, inputs = form_of(plan), len(plan.inputs)
    numbers = form.numbers
    flat, anyhow = (add_sizes(2, numbers, (0,) * axes) for axes in (0, AXES * (1 + inputs)))
    launched: Summing = {
        (ADD, ANYHOW): (add_family(plan, form, AXES), anyhow), (ADD, FLAT): (add_family(plan, form), flat),
        (ALONE, ANYHOW): (add_family(plan, form, AXES, alone=True), anyhow),
        (ALONE, FLAT): (add_family(plan, form, alone=True), flat),
        (FINISH, FLAT): (finish_family(plan), finish_sizes(plan, 2)),
    }  # fmt: skip
    facts = plan.reduction == "mean", LAID, 2 + len(numbers)
    fitting = fitting_of("StridedSumFit", plan, launched, {}, 0, facts)
    queues = {name: queue_of(own, fitting.ready(name)) for name, (own, _) in launched.items()}

    @functools.cache
    def queue_flat(what: str, single: tuple[bool, ...]) -> Queue:
        if not any(single):
            return queues[what, FLAT]
        return queue_of(add_family(plan, form, single=single, alone=what == ALONE))

    def run(
        addresses: Sequence[int], stream: int, sizes: Sequence[int], strides: Sequence[int]
    ) -> int:
        axes, count = len(sizes), math.prod(sizes)
        if axes > AXES:
            return NOT_SERVED
        table = table_of(strides, axes)[:inputs]
        steps, what = [own[0] for own in table], adding(count)
        if axes == 1 and {*steps} <= {0, 1}:  # the bits are those of elements in a row
            add, first = queue_flat(what, single_of(count, steps)), add_sizes(count, numbers)
        else:
            add = queues[what, ANYHOW]
            first = add_sizes(count, numbers, padded(AXES - axes, sizes, table))
        both = add, queues[FINISH, FLAT]
        return run_all(addresses, stream, count, 1, both, (first, finish_sizes(plan, count)))

    return fitting.function(run)


def laid_nll(plan: Plan) -> tuple[StridedRunner, int] | None:
    """What queues the negative log-likelihood, and up to how many elements."""
    return any_strides(plan, _laid_nll, NLL_AXES, FEW) if plan.class_axis == 1 else None


def _laid_nll(plan: Plan) -> StridedRunner:
    own = plan.numbers["ignore_index"]

    def made(sizes: Sequence[int], strides: Sequence[int], numbers: Sequence[Any]) -> Made | None:
        missing = NLL_AXES + 1 - len(sizes)
        if missing < 0:
            return None
        *shape, classes = *(1,) * missing, *sizes
        table = [(*(0,) * missing, *steps) for steps in table_of(strides, len(sizes))]
        along = tuple([step for place in (0, 1, 3) for step in table[place][:NLL_AXES]])
        by_class = table[1][NLL_AXES], table[2][NLL_AXES]
        count, ignore_index = math.prod(shape), numbers[0] if numbers else own
        add = nll_sizes(tuple(shape), along, by_class, classes, ignore_index)
        return count, add, nll_finish_sizes(count)

    some = made((2, 2), (0,) * (2 * len(plan.operands)), ())
    assert some is not None
    return nll_queued(plan, "StridedNllFit", (FEW,), made, some)
