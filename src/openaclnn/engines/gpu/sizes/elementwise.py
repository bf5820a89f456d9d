"""Elementwise kernels for dense data of any size, with any numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from openaclnn.core.plan import Plan
from openaclnn.engines.formulas import FORMULAS
from openaclnn.engines.gpu.fits.fitting import ALIGNED, ALIKE, ANYWHERE, Fitting, flat_fitting
from openaclnn.engines.gpu.formulas.tuned import TUNED, Form, as_float, as_floats, form_of
from openaclnn.engines.gpu.launching.launch import VECTOR_BYTES, anywhere
from openaclnn.engines.gpu.launching.queues import Queue, SizedRunner, queue_of, remembered
from openaclnn.engines.gpu.plans import tiles
from openaclnn.engines.gpu.plans.elementwise import Flat, is_flat


def sized(plan: Plan) -> SizedRunner | None:
    """What queues the plan's kernel over row-major operands, of one element where the plan's are, and any shape."""
    operands = (*plan.inputs, plan.output)
    # One element is no pattern: it may lie for one or for all.
    if not is_flat(plan) or plan.shape == (1,) or any(own.offset for own in operands):
        return None
    return remembered(plan, _sized)


def few(plan: Plan) -> tuple[int, ...] | None:
    """The shape for the plan's sized runner, if that is as good as launches of its own."""
    return plan.shape if len(plan.shape) == 1 and plan.shape[0] <= tiles.FEW else None


def _sized(plan: Plan) -> SizedRunner:
    own_form = form_of(plan)
    own_flat = Flat(plan, own_form)
    fitting = flat_fitting(
        plan, own_form, own_flat.family, own_flat.block, own_flat.warps, tiles.FEW, own_flat.vector
    )
    vector, wide = own_flat.vector, own_flat.wide
    form_with = _forms(plan, own_form, fitting)

    def run(
        addresses: Sequence[int], stream: int, shape: Sequence[int], numbers: Sequence[Any]
    ) -> int:
        count = prod(shape)
        flat, queue, queue_few, queue_shifted, own = form_with(numbers)
        if flat.share >= 0:
            own = (*own[: flat.share], as_float(1.0 / count), *own[flat.share + 1 :])
        bits = 0
        for place in wide:
            bits |= addresses[place]
        if bits % VECTOR_BYTES:
            if count <= tiles.FEW:
                queue = queue_few or queue
            elif vector and len({addresses[place] % VECTOR_BYTES for place in wide}) == 1:
                queue_shifted(addresses, stream, *flat.shifted_sizes(count, own))
                return 0
        queue(addresses, stream, *flat.sizes(count, own))
        return 0

    return fitting.function(run)


_Found = tuple[Flat, Queue, Queue | None, Queue, tuple[float, ...]]
"""A form's kernel, what queues it, what queues few elements anywhere where a builtin does so too, what queues many that begin
equally far from a vector's bounds, and its numbers."""


def _forms(plan: Plan, own_form: Form, fitting: Fitting) -> Callable[[Sequence[Any]], _Found]:
    """What finds the form of a plan with other numbers."""
    names = tuple([own.option for own in plan.free])
    # Where the formula takes the options themselves, and has one form, they need but be rounded.
    direct = plan.kernel not in TUNED and names == FORMULAS[plan.kernel].numbers
    made: dict[tuple[str, tuple[bool, ...]], tuple[Flat, Queue, Queue | None, Queue]] = {}

    def find(form: Form) -> _Found:
        key = form.formula.name, form.switches
        found = made.get(key)
        if found is None:
            flat = Flat(plan, form)
            aligned, off, alike = (fitting.ready((key, own)) for own in (ALIGNED, ANYWHERE, ALIKE))
            found = made[key] = (
                flat,
                queue_of(flat.family, aligned),
                None if off is None else queue_of(anywhere(flat.family), off),
                queue_of(flat.shifted, alike),
            )
        return *found, form.numbers

    before: tuple[Sequence[Any], _Found] = (), find(own_form)

    def form_with(numbers: Sequence[Any]) -> _Found:
        nonlocal before
        known, found = before
        if numbers != known or 0 in numbers:  # which has two signs
            if direct and numbers:
                found = (*found[:-1], as_floats(numbers))
            else:
                own = {**plan.numbers, **dict(zip(names, numbers, strict=False))}
                found = find(form_of(plan, own))
            before = numbers, found
        return found

    return form_with
