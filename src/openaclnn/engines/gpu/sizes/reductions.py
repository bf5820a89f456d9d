"""Sums over all elements or positions at any size, with any numbers: the launches of `plans/reductions.py`, told sizes in the call."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from openaclnn.core.plan import Plan
from openaclnn.engines.gpu.fits.fitting import (
    ALIGNED,
    ALIKE,
    ANYWHERE,
    NOTHING,
    Fitting,
    can_be_fitted,
)
from openaclnn.engines.gpu.formulas.tuned import TUNED, form_of
from openaclnn.engines.gpu.launching import scratch
from openaclnn.engines.gpu.launching.launch import VECTOR_BYTES, Family, Sizes, anywhere
from openaclnn.engines.gpu.launching.operands import INT32_LIMIT, ignored
from openaclnn.engines.gpu.launching.queues import (
    NOT_SERVED,
    Queue,
    SizedRunner,
    queue_of,
    remembered,
)
from openaclnn.engines.gpu.plans.reductions import (
    FEW,
    FLOAT64_BYTES,
    NLL_SUMS,
    PARTS,
    add_family,
    add_sizes,
    finish_family,
    finish_sizes,
    in_a_row,
    is_alone,
    lies_in_a_row,
    nll_family,
    nll_finish_family,
    nll_finish_sizes,
    nll_sizes,
    parts_of,
    shifted_family,
    single_of,
)

__all__ = [
    "ADD", "ALONE", "FINISH", "Made", "Summing", "adding", "fitting_of", "nll_queued", "run_all",
    "sized", "sized_nll",
]  # fmt: skip

ADD, ALONE, FINISH = "add", "alone", "finish"
"""What a launch does: add up parts; add up and finish; finish."""
Summing = Mapping[tuple[str, str], tuple[Family, Sizes]]
"""Launches by what they do and how elements lie: each one's kernel, and what some sizes decide of it."""
Made = tuple[int, Sizes, Sizes]
"""How many are added up, and what sizes decide of the launches that add up and that finish."""


def adding(count: int) -> str:
    """What the first launch does, given how many are added up."""
    return ALONE if is_alone(count) else ADD


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
        return count, add_sizes(count, own), finish_sizes(plan, count)

    # Of each number of the formula: which of the call's it is, or -1.
    takes = form.formula.numbers
    sources = [names.index(name) if name in names else -1 for name in takes]
    facts = plan.reduction == "mean", FEW, len(takes), *sources
    single = single_of(math.prod(plan.shape), [own.strides[0] for own in plan.inputs])
    family, alone = (add_family(plan, form, single=single, alone=own) for own in (False, True))
    together = in_a_row(plan, single)
    wide = [place for place, one in enumerate(single) if not one]
    _, first, second = made((2,), ())
    launched: Summing = {
        (ADD, ALIGNED): (family, first), (ADD, ANYWHERE): (anywhere(family), first),
        **({(ADD, ALIKE): (shifted_family(plan, form, single), first)} if together else {}),
        (ALONE, ALIGNED): (alone, first), (ALONE, ANYWHERE): (anywhere(alone), first),
        (FINISH, ALIGNED): (finish_family(plan), second),
    }  # fmt: skip
    own_numbers = {name: plan.numbers[name] for name in names}
    fitting = fitting_of("SumFit", plan, launched, own_numbers, 0, facts)
    queues = {name: queue_of(own, fitting.ready(name)) for name, (own, _) in launched.items()}

    def lying(addresses: Sequence[int], count: int) -> str:
        """Which launch takes the addresses."""
        offsets = {addresses[place] % VECTOR_BYTES for place in wide}
        if offsets <= {0}:
            return ALIGNED
        return ALIKE if together and len(offsets) == 1 and count > FEW else ANYWHERE

    def run(
        addresses: Sequence[int], stream: int, shape: Sequence[int], numbers: Sequence[Any]
    ) -> int:
        count, *sizes = made(shape, numbers)
        add = queues[adding(count), lying(addresses, count)]
        return run_all(addresses, stream, count, 1, (add, queues[FINISH, ALIGNED]), sizes)

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
        return count, add, nll_finish_sizes(count)

    return nll_queued(plan, "NllFit", (each,), made, made((2, 2), ()))


def nll_queued(
    plan: Plan, pattern: str, facts: Sequence[int], made: Callable[..., Made | None], some: Made
) -> Callable[..., int]:
    """What queues the negative log-likelihood. `made` gets what a call has beside addresses and stream, and gives None where that is not served."""
    _, first, second = some
    launched: Summing = {
        (ADD, ANYWHERE): (nll_family(plan), first), (ALONE, ANYWHERE): (nll_family(plan, alone=True), first),
        (FINISH, ANYWHERE): (nll_finish_family(plan), second),
    }  # fmt: skip
    number = min(ignored(plan.numbers["ignore_index"]), INT32_LIMIT)
    fitting = fitting_of(pattern, plan, launched, {"ignore_index": number}, 1, facts)
    queues = {
        what: queue_of(own, fitting.ready((what, lying)))
        for (what, lying), (own, _) in launched.items()
    }

    def run(addresses: Sequence[int], stream: int, *given: Any) -> int:
        found = made(*given)
        if found is None:
            return NOT_SERVED
        count, *sizes = found
        both = queues[adding(count)], queues[FINISH]
        return run_all(addresses, stream, count, NLL_SUMS, both, sizes)

    return fitting.function(run)


def run_all(
    addresses: Sequence[int], stream: int, count: int, sums: int, queues: tuple[Queue, Queue], sizes: Sequence[Sizes]
) -> int:  # fmt: skip
    """Queue the launch that adds up `count` and, unless it does all alone, the one that finishes. Each part leaves so many `sums` in between."""
    if is_alone(count):
        queues[0]((*addresses, 0), stream, *sizes[0])
        return 0
    with scratch.lent(sums * parts_of(count) * FLOAT64_BYTES, stream) as memory:
        for queue, own in zip(queues, sizes, strict=True):
            queue((*addresses, memory, 0), stream, *own)
    return 0


def fitting_of(
    pattern: str, plan: Plan, launched: Summing, numbers: Mapping[str, Any], whole: int, facts: Sequence[int]
) -> Fitting:  # fmt: skip
    """The builtin that queues these launches. Of the call's `numbers` the first `whole` are integers.

    Several kernels may add up, for elements that lie in other ways: they are ways of one step, and take the first of its numbers.
    """
    if not can_be_fitted():
        return NOTHING
    from openaclnn.engines.gpu.fits import reductions as fits
    from openaclnn.engines.gpu.launchers import code, fitted

    if not all(
        fitted.takes(family.slots, len(sizes[1]), [*numbers]) for family, sizes in launched.values()
    ):
        return NOTHING
    made = fitted.Fitted(getattr(fits, pattern), len(plan.operands), facts)
    made.take_numbers([*numbers.values()], whole)
    made.take_sums(*scratch.functions())
    steps = {ADD: code.SUMS, ALONE: code.OTHER, FINISH: code.MAIN}
    # What finishes is told apart by the power of two that covers the parts.
    powers = {((1 << power,), 4): power for power in range(PARTS.bit_length())}
    ready, seen = {}, dict.fromkeys(steps, 0)
    for name, (family, (_, own, constants, warps)) in launched.items():
        what, _ = name
        step, way = steps[what], seen[what]
        if way == 0:
            made.take_step(step, family.slots, own)
        seen[what] = way + 1
        ready[name] = made.ready(step, powers if what == FINISH else {(constants, warps): way}, own)
    return Fitting(made, ready)
