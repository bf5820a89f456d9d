"""Sums over all elements or positions at any size, with any numbers: the launches of `reductions`, told sizes in the call."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from openaclnn.core.plan import Plan
from openaclnn.engines.gpu import scratch
from openaclnn.engines.gpu.fitting import ALIKE, ANYWHERE, NOTHING, Fitting, can_be_fitted
from openaclnn.engines.gpu.launch import VECTOR_BYTES, Family, Launched, Sizes, anywhere
from openaclnn.engines.gpu.operands import INT32_LIMIT, ignored
from openaclnn.engines.gpu.queues import Queue, SizedRunner, queue_of, remembered
from openaclnn.engines.gpu.reductions import (
    FEW,
    FLOAT64_BYTES,
    NLL_SUMS,
    PARTS,
    add_family,
    add_sizes,
    finish_family,
    finish_sizes,
    in_a_row,
    lies_in_a_row,
    nll_family,
    nll_finish_family,
    nll_finish_sizes,
    nll_sizes,
    parts_of,
    shifted_family,
    single_of,
)
from openaclnn.engines.gpu.tuned import TUNED, form_of

__all__ = [
    "ADD", "FINISH", "NOT_SERVED", "Made", "fitting_of", "launched_of", "nll_numbers", "queued", "run_both", "sized", "sized_nll",
]  # fmt: skip

NOT_SERVED = 1
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
    facts = plan.reduction == "mean", FEW, len(takes), *sources
    single = single_of(math.prod(plan.shape), [own.strides[0] for own in plan.inputs])
    family, together = add_family(plan, form, single=single), in_a_row(plan, single)
    wide = [place for place, one in enumerate(single) if not one]
    _, first, second = made((2,), ())
    launched: Launched = {
        ADD: (family, first), ANYWHERE: (anywhere(family), first),
        **({ALIKE: (shifted_family(plan, form, single), first)} if together else {}),
        FINISH: (finish_family(plan), second),
    }  # fmt: skip
    own_numbers = {name: plan.numbers[name] for name in names}
    fitting = fitting_of("SumFit", plan, launched, own_numbers, 0, facts)
    queues = {name: queue_of(own, fitting.ready(name)) for name, (own, _) in launched.items()}

    def lying(addresses: Sequence[int], count: int) -> str:
        """Which launch takes the addresses."""
        offsets = {addresses[place] % VECTOR_BYTES for place in wide}
        if offsets <= {0}:
            return ADD
        return ALIKE if together and len(offsets) == 1 and count > FEW else ANYWHERE

    def run(
        addresses: Sequence[int], stream: int, shape: Sequence[int], numbers: Sequence[Any]
    ) -> int:
        parts, first, second = made(shape, numbers)
        add = queues[lying(addresses, math.prod(shape))]
        return run_both(addresses, stream, parts, (add, first), (queues[FINISH], second))

    return fitting.function(run)


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
    launched = launched_of(families, made((2, 2), ()))
    fitting = fitting_of("NllFit", plan, launched, nll_numbers(plan), 1, (each,))
    return queued(families, NLL_SUMS, fitting, made)


def nll_numbers(plan: Plan) -> dict[str, int]:
    """The plan's own, as builtins take them."""
    return {"ignore_index": min(ignored(plan.numbers["ignore_index"]), INT32_LIMIT)}


def queued(
    families: tuple[Family, Family], sums: int, fitting: Fitting, made: Callable[..., Made | None]
) -> Callable[..., int]:
    """Both launches, each part of which has so many sums; `made` is told what a call has beside addresses and stream; None: it is not served."""
    add, finish = (
        queue_of(own, fitting.ready(name))
        for own, name in zip(families, (ADD, FINISH), strict=True)
    )

    def run(addresses: Sequence[int], stream: int, *given: Any) -> int:
        found = made(*given)
        if found is None:
            return NOT_SERVED
        parts, first, second = found
        return run_both(addresses, stream, sums * parts, (add, first), (finish, second))

    return fitting.function(run)


def run_both(
    addresses: Sequence[int], stream: int, sums: int, add: tuple[Queue, Sizes], finish: tuple[Queue, Sizes]
) -> int:  # fmt: skip
    """Two launches, with scratch memory for so many sums in between."""
    memory = scratch.allocate(sums * FLOAT64_BYTES, stream)
    try:
        for queue, sizes in (add, finish):
            queue((*addresses, memory, 0), stream, *sizes)
    finally:
        scratch.release(memory)
    return 0


def launched_of(families: tuple[Family, Family], example: Made) -> Launched:
    """Both launches at some size."""
    return dict(zip((ADD, FINISH), zip(families, example[1:], strict=True), strict=True))


def fitting_of(
    pattern: str, plan: Plan, launched: Launched, numbers: Mapping[str, Any], whole: int, facts: Sequence[int]
) -> Fitting:  # fmt: skip
    """The builtin of launches, which have the numbers that no size decides; the first `whole` of the call's are integers.

    ADD may be done by other kernels, whose numbers are the first of its own: each has a way, in their order.
    """
    if not can_be_fitted():
        return NOTHING
    from openaclnn.engines.gpu import fit_code, fitted, reduced_fits

    if not all(
        fitted.takes(family.slots, len(sizes[1]), [*numbers]) for family, sizes in launched.values()
    ):
        return NOTHING
    made = fitted.Fitted(getattr(reduced_fits, pattern), len(plan.operands), facts)
    made.take_numbers([*numbers.values()], whole)
    made.take_sums(*scratch.functions())
    # What finishes is told apart by the power of two that covers the parts.
    powers = {((1 << power,), 4): power for power in range(PARTS.bit_length())}
    ready = {}
    for way, (name, (family, (_, own, constants, warps))) in enumerate(launched.items()):
        step = fit_code.MAIN if name == FINISH else fit_code.SUMS
        if name in (ADD, FINISH):
            made.take_step(step, family.slots, own)
        ways = powers if name == FINISH else {(constants, warps): way}
        ready[name] = made.ready(step, ways, own)
    return Fitting(made, ready)
