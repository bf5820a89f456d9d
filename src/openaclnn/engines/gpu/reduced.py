"""Sums over all elements or positions at any size, with any numbers: the launches of `reductions`, told sizes in the call."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from openaclnn.core.plan import Plan
from openaclnn.engines.gpu import scratch
from openaclnn.engines.gpu.fitting import NOTHING, Fitting, can_be_fitted
from openaclnn.engines.gpu.launch import Family, Sizes
from openaclnn.engines.gpu.operands import INT32_LIMIT, ignored
from openaclnn.engines.gpu.queues import SizedRunner, queue_of, remembered
from openaclnn.engines.gpu.reductions import (
    FLOAT64_BYTES,
    NLL_SUMS,
    PARTS,
    add_family,
    add_sizes,
    finish_family,
    finish_sizes,
    lies_in_a_row,
    nll_family,
    nll_finish_family,
    nll_finish_sizes,
    nll_sizes,
    parts_of,
)
from openaclnn.engines.gpu.tuned import TUNED, form_of

__all__ = ["sized", "sized_nll"]

ADD, FINISH = "add", "finish"
Made = tuple[int, Sizes, Sizes]
"""Parts, and what sizes decide of the launches that add up and that finish."""


def sized(plan: Plan) -> SizedRunner | None:
    """What queues the sum or mean of a formula over row-major operands, of one element where the plan's are, of any shape."""
    # One element is no pattern: it may lie for one or for all.
    if not lies_in_a_row(plan) or plan.shape == (1,) or plan.kernel in TUNED:
        return None
    return None if any(own.offset for own in plan.inputs) else remembered(plan, _sized)


def _sized(plan: Plan) -> SizedRunner:
    form, names = form_of(plan), [own.option for own in plan.free]

    def made(shape: Sequence[int], numbers: Sequence[Any]) -> Made:
        count, own = math.prod(shape), form.numbers
        if numbers:
            own = form_of(plan, {**plan.numbers, **dict(zip(names, numbers, strict=True))}).numbers
        return parts_of(count), add_sizes(count, own), finish_sizes(plan, count)

    # Of each number of the formula: which of the call's it is, or -1.
    takes = form.formula.numbers
    sources = [names.index(name) if name in names else -1 for name in takes]
    facts = plan.reduction == "mean", len(takes), *sources
    families = add_family(plan, form, flat=True), finish_family(plan)
    own_numbers = {name: plan.numbers[name] for name in names}
    fitting = _fitting("SumFit", plan, families, made((2,), ()), own_numbers, 0, facts)
    return _queued(plan, families, 1, fitting, made)


def sized_nll(plan: Plan) -> SizedRunner | None:
    """What queues the negative log-likelihood over row-major operands of any (N, C, ...)."""
    return remembered(plan, _sized_nll) if plan.class_axis == 1 else None


def _sized_nll(plan: Plan) -> SizedRunner:
    each, own = int(not plan.reduction), plan.numbers["ignore_index"]

    def made(shape: Sequence[int], numbers: Sequence[Any]) -> Made:
        images, classes, pixels = shape[0], shape[1], math.prod(shape[2:])
        count = images * pixels
        second = 1, count
        strides = (0, 0, 1, 0, 0, classes, 0, 0, each)
        if pixels > 1:
            second = images, pixels
            strides = (0, pixels, 1, 0, classes * pixels, 1, 0, each * pixels, each)
        ignore_index = numbers[0] if numbers else own
        add = nll_sizes((1, *second), strides, (pixels, 1), classes, ignore_index)
        return parts_of(count), add, nll_finish_sizes(count)

    families = nll_family(plan), nll_finish_family(plan)
    first = {"ignore_index": min(ignored(own), INT32_LIMIT)}
    fitting = _fitting("NllFit", plan, families, made((2, 2), ()), first, 1, (each,))
    return _queued(plan, families, NLL_SUMS, fitting, made)


def _queued(
    plan: Plan, families: tuple[Family, Family], sums: int, fitting: Fitting,
    made: Callable[[Sequence[int], Sequence[Any]], Made],
) -> SizedRunner:  # fmt: skip
    """Both launches, with scratch memory for so many sums of each part in between."""
    add, finish = (
        queue_of(own, fitting.ready(name))
        for own, name in zip(families, (ADD, FINISH), strict=True)
    )

    def run(
        addresses: Sequence[int], stream: int, shape: Sequence[int], numbers: Sequence[Any]
    ) -> int:
        parts, first, second = made(shape, numbers)
        memory = scratch.allocate(sums * parts * FLOAT64_BYTES, stream)
        try:
            given = (*addresses, memory, 0)
            add(given, stream, *first)
            finish(given, stream, *second)
        finally:
            scratch.release(memory)
        return 0

    return fitting.function(run)


def _fitting(
    pattern: str, plan: Plan, families: tuple[Family, Family], example: Made,
    numbers: Mapping[str, Any], whole: int, facts: Sequence[int],
) -> Fitting:  # fmt: skip
    """The builtin; `example` has the numbers that no size decides, of which the first `whole` of the call's are integers."""
    if not can_be_fitted():
        return NOTHING
    from openaclnn.engines.gpu import fit_code, fitted, reduced_fits

    _, *sizes = example
    if not all(
        fitted.takes(own.slots, len(size[1]), [*numbers])
        for own, size in zip(families, sizes, strict=True)
    ):
        return NOTHING
    made = fitted.Fitted(getattr(reduced_fits, pattern), len(plan.operands), facts)
    made.take_numbers([*numbers.values()], whole)
    made.take_sums(*scratch.functions())
    # What finishes is told apart by the power of two that covers the parts.
    powers = {((1 << power,), 4): power for power in range(PARTS.bit_length())}
    ready = {}
    for name, step, family, (_, own, constants, warps) in zip(
        (ADD, FINISH), (fit_code.SUMS, fit_code.MAIN), families, sizes, strict=True
    ):
        made.take_step(step, family.slots, own)
        ready[name] = made.ready(step, powers if name == FINISH else {(constants, warps): 0}, own)
    return Fitting(made, ready)
