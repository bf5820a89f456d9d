"""Elementwise kernels: over dense operands, at any size and with any numbers; or by tiles (`tiles.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from openaclnn.core.dtypes import FLOAT
from openaclnn.core.plan import Plan
from openaclnn.engines.formulas import FORMULAS
from openaclnn.engines.gpu.formulas.compiled import precision
from openaclnn.engines.gpu.formulas.tuned import TUNED, Form, as_float, as_floats, form_of
from openaclnn.engines.gpu.kernels.elementwise import flat_kernel
from openaclnn.engines.gpu.launchers import tiles
from openaclnn.engines.gpu.launchers.formulas import (
    bound_elements,
    emit,
    forms_of,
    in_order,
    offsets_of,
)
from openaclnn.engines.gpu.launchers.geometry import (
    NUMBERS_ARGS,
    Elements,
    Launches,
    LaunchParams,
    Pattern,
)
from openaclnn.engines.gpu.launchers.launcher import Emitted
from openaclnn.engines.gpu.launchers.numbers import (
    all_of,
    ceil_div,
    inverse,
    power_of_two_divisor,
    quotient,
)
from openaclnn.engines.gpu.launching.launch import VECTOR_BYTES, KernelSpec, unaligned
from openaclnn.engines.gpu.launching.operands import INT32_LIMIT, elementwise_slots
from openaclnn.engines.gpu.launching.queues import Queue, SizedRunner, queue_of, remembered
from openaclnn.engines.gpu.launching.runners import runner_of
from openaclnn.engines.gpu.launching.steps import Runner

__all__ = ["few", "runner", "sized"]

FLAT, SHIFTED = "flat", "shifted"


def launch(g: Elements) -> Launches:
    """One launch: its kernel, or that for many elements which begin equally far from a vector's bounds."""
    count, block, vector = g.count, g.static["block"], g.static["vector"]
    small, unit = count <= tiles.FEW, power_of_two_divisor(count)
    shifted = all_of(g.misaligned, g.same_offset, vector > 0, inverse(small))
    flat = LaunchParams(
        FLAT, ceil_div(count, block), {"count": quotient(count, unit), NUMBERS_ARGS: 0},
        {"UNIT": unit, "WIDE": count + block >= INT32_LIMIT, "BLOCK": block}, g.static["warps"],
        inverse(shifted), inverse(all_of(g.few, small, g.misaligned)),
    )  # fmt: skip
    # The last block may be one more.
    other = LaunchParams(
        SHIFTED, ceil_div(count + vector - 1, block), {"count": count, NUMBERS_ARGS: 0},
        {"WIDE": count + 2 * block >= INT32_LIMIT, "BLOCK": block}, g.static["warps"], shifted, aligned=False,
    )  # fmt: skip
    return Launches([flat, other])


_ANY_SIZE = Pattern(
    "flat", launch, {FLAT: None, SHIFTED: None}, (), ("block", "warps", "vector", "exact"), 0, 0
)


def flat_shape(plan: Plan) -> tuple[int, int]:
    """Elements of a program, and warps."""
    # 512-1024 elements on 4-8 warps were equal (4.38 TB/s, a copy 4.24); evict_first loads lost 7%.
    # These give each thread one 16-byte load of each operand.
    return 1024, 8 if plan.output.dtype.itemsize >= 4 else 4


def is_flat(plan: Plan) -> bool:
    """Whether every operand lies in a row or is one element."""
    operands = (*plan.inputs, plan.output)
    return len(plan.shape) == 1 and all(own.strides[0] in (0, 1) for own in operands)


def _specs(plan: Plan, form: Form) -> dict[str, KernelSpec]:
    steps = [operand.strides[0] for operand in plan.inputs]
    slots = elementwise_slots(plan, [*(step == 1 for step in steps), True], [0] * (len(steps) + 1))
    known = (*form.switches, *steps, *precision(plan))
    flat = KernelSpec(flat_kernel(form.formula), slots, known, fused=False)
    return {FLAT: flat, SHIFTED: flat._replace(kernel=flat_kernel(form.formula, True))}


def _static(plan: Plan, flat: KernelSpec) -> dict[str, int]:
    operands = (*plan.inputs, plan.output)
    sizes = {operands[place].dtype.itemsize for place, own in enumerate(flat.slots) if own and own.wide}  # fmt: skip
    block, warps = flat_shape(plan)
    # Elements of a vector; 0 where operands have different ones.
    vector = VECTOR_BYTES // sizes.pop() if len(sizes) == 1 else 0
    return {"block": block, "warps": warps, "vector": vector, "exact": int(plan.compute is FLOAT)}


def runner(plan: Plan) -> Runner:
    """What queues the plan on a stream."""
    if not is_flat(plan):
        return runner_of(list(tiles.launches(plan)))
    form, (count,) = form_of(plan), plan.shape
    specs = _specs(plan, form)
    g = Elements(count, _static(plan, specs[FLAT]), False, True, numbers=form.numbers)
    return bound_elements(launch, g, specs)


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
    own_specs = _specs(plan, own_form)
    static, slots = _static(plan, own_specs[FLAT]), own_specs[FLAT].slots
    known, emitted = forms_of(plan, own_form), Emitted()
    indices: dict[Any, int] = {}
    if known is not None:
        forms, names, made_names = known
        several = [_specs(plan, Form(formula, (), switches)) for formula, switches in forms]
        some = launch(Elements(1, static, False, True))
        emitted = emit(_ANY_SIZE, plan, forms, several, static, some, len(slots), names, made_names)
        indices = {(formula.name, own): place for place, (formula, own) in enumerate(forms)}

    def queues_of(form: Form) -> Mapping[Any, Queue]:
        index = indices.get((form.formula.name, form.switches), -1)
        return {
            (name, aligned): queue_of(
                spec if aligned else unaligned(spec), emitted.ready.get((index, name, aligned))
            )
            for name, spec in _specs(plan, form).items()
            for aligned in (False, True)
        }

    form_with = _forms(plan, own_form, queues_of)

    def run(
        addresses: Sequence[int], stream: int, shape: Sequence[int], numbers: Sequence[Any]
    ) -> int:
        count = prod(shape)
        form, queues = form_with(numbers)
        own = form.numbers
        if plan.reciprocal:  # one over the count
            share = form.formula.numbers.index(plan.reciprocal)
            own = (*own[:share], as_float(1.0 / count), *own[share + 1 :])
        off = offsets_of(slots, lambda slot: addresses[slot.place])
        g = Elements(count, static, *off, numbers=own)
        for step in launch(g).steps:
            if step.when:
                queues[step.kernel, step.aligned](addresses, stream, *in_order(g, step))
        return 0

    builtin: SizedRunner = run if emitted.made is None else emitted.made.function(run)
    return builtin


_Found = tuple[Form, Mapping[Any, Queue]]


def _forms(
    plan: Plan, own_form: Form, queues_of: Callable[[Form], Mapping[Any, Queue]]
) -> Callable[[Sequence[Any]], _Found]:
    """What finds the form of a plan with other numbers, and what queues its kernels."""
    names = tuple([own.option for own in plan.free])
    # Where the formula takes the options themselves, and has one form, they need but be rounded.
    direct = plan.kernel not in TUNED and names == FORMULAS[plan.kernel].numbers
    made: dict[tuple[str, tuple[bool, ...]], Mapping[Any, Queue]] = {}

    def find(form: Form) -> _Found:
        key = form.formula.name, form.switches
        if key not in made:
            made[key] = queues_of(form)
        return form, made[key]

    before: tuple[Sequence[Any], _Found] = (), find(own_form)

    def form_with(numbers: Sequence[Any]) -> _Found:
        nonlocal before
        known, found = before
        if numbers != known or 0 in numbers:  # which has two signs
            if direct and numbers:
                found = found[0]._replace(numbers=as_floats(numbers)), found[1]
            else:
                own = {**plan.numbers, **dict(zip(names, numbers, strict=False))}
                found = find(form_of(plan, own))
            before = numbers, found
        return found

    return form_with
