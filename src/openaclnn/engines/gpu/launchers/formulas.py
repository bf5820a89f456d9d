"""Launches of kernels that are made from formulas: these have as many operands and numbers as the formula has, one after the other."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from openaclnn.core.plan import Plan
from openaclnn.engines.formulas import Formula
from openaclnn.engines.gpu.formulas.tuned import CHOICES, TUNED, Form, as_float
from openaclnn.engines.gpu.launchers.geometry import (
    FORM,
    NUMBERS_ARGS,
    STRIDES_ARGS,
    Elements,
    Launches,
    LaunchParams,
    Pattern,
)
from openaclnn.engines.gpu.launchers.launcher import Emitted, can_be_emitted, key_of
from openaclnn.engines.gpu.launching import scratch
from openaclnn.engines.gpu.launching.launch import (
    VECTOR_BYTES,
    KernelSpec,
    Launch,
    PointerArg,
    unaligned,
)
from openaclnn.engines.gpu.launching.runners import runner_of
from openaclnn.engines.gpu.launching.steps import Runner

__all__ = ["bound_elements", "emit", "in_order", "key_of_form", "offsets_of"]


def offsets_of(
    slots: Sequence[PointerArg | None], addresses: Callable[[PointerArg], int]
) -> tuple[bool, bool]:
    """Whether an address is off a vector's bounds where that matters, and whether all of these are, equally far."""
    found = {addresses(slot) % VECTOR_BYTES for slot in slots if slot and slot.wide}
    return bool(found - {0}), len(found) < 2


def in_order(
    g: Elements, step: LaunchParams
) -> tuple[int, tuple[int | float, ...], tuple[Any, ...], int]:
    """Grid, arguments, constexprs and warps, as the kernel takes them by place."""
    args: list[int | float] = []
    for name, own in step.args.items():
        if name == NUMBERS_ARGS:
            args += g.numbers
        elif name == STRIDES_ARGS:
            args += g.strides
        else:
            args.append(own)
    return step.grid, tuple(args), tuple(step.constexprs.values()), step.warps


def bound_elements(
    launch: Callable[[Elements], Launches], g: Elements, specs: Mapping[str, KernelSpec]
) -> Runner:
    """The launches of one plan, by the offsets of its addresses."""

    def launches_at(misaligned: bool, same: bool) -> tuple[list[LaunchParams], Launches]:
        found = launch(g._replace(misaligned=misaligned, same_offset=same, few=False))
        return [step for step in found.steps if step.when], found

    def launch_of(step: LaunchParams) -> Launch:
        spec = specs[step.kernel]
        return Launch(spec if step.aligned else unaligned(spec), *in_order(g, step))

    def at(index: int, slots: Sequence[PointerArg | None], offsets: Sequence[int]) -> Launch:
        own = {slot: off for slot, off in zip(slots, offsets, strict=True) if slot}
        return launch_of(launches_at(*offsets_of(slots, own.__getitem__))[0][index])

    steps, found = launches_at(False, True)
    launches = []
    for index, step in enumerate(steps):
        slots = specs[step.kernel].slots
        depends = [launch_of(launches_at(True, True)[0][index])] != [launch_of(step)]
        own = launch_of(step)
        launches.append(own._replace(at=functools.partial(at, index, slots)) if depends else own)
    return runner_of(launches, found.scratch)


def key_of_form(
    index: int, names: Sequence[str], aligned: bool, constexprs: tuple[Any, ...], warps: int, astray: int
) -> list[int]:  # fmt: skip
    return key_of(
        {**dict(zip(names, constexprs, strict=True)), FORM: index}, warps, aligned, astray
    )


def emit(
    pattern: Pattern, plan: Plan, forms: Sequence[tuple[Formula, tuple[bool, ...]]], specs: Sequence[Mapping[str, KernelSpec]],
    static: Mapping[str, int], some: Launches, operands: int, numbers: Sequence[str] = (), made_names: Sequence[str] = (),
    fixed: Mapping[str, Any] | None = None,
) -> Emitted:  # fmt: skip
    """The builtin of a pattern, of which each form has its kernels; `some` launches have the names of arguments and constexprs. What is told
    a kernel is by the form's place, its name, and whether its addresses may be aligned. Numbers that are not those of the call are `fixed`,
    or the plan's own."""
    if not can_be_emitted():
        return Emitted()
    from openaclnn.engines.gpu.launchers import blocks, code
    from openaclnn.engines.gpu.launching.native import word

    params = {step.kernel: step for step in some.steps}

    def floats_of(name: str, formula: Formula) -> list[bool]:
        """Which arguments are FLOATs."""
        found: list[bool] = []
        for own, number in params[name].args.items():
            if own == NUMBERS_ARGS:
                found += [True] * len(formula.numbers)
            elif own == STRIDES_ARGS:
                found += [False] * (operands - number) * pattern.axes
            else:
                found.append(False)
        return found

    longest = max((formula for formula, _ in forms), key=lambda own: len(own.numbers))
    lengths = {name: len(floats_of(name, longest)) for name in params}
    if len(longest.numbers) > code.MAX_FORM_NUMBERS or len(forms) > code.MAX_FORMS or not all(
        blocks.takes(spec.slots, lengths[name], numbers) for own in specs for name, spec in own.items()
    ):  # fmt: skip
        return Emitted()
    facts = [static[name] for name in pattern.static]
    made = blocks.LauncherBlock(
        code.formula_code_of(pattern, plan.kernel), operands, facts, len(forms) * code.FORM_SLOTS
    )
    made.take_numbers([plan.numbers[name] for name in numbers], 0)
    if some.places:
        made.take_sums(*scratch.functions())
    known, own_numbers = {name: place for place, name in enumerate(numbers)}, fixed or plan.numbers
    known |= {name: place for place, name in enumerate(made_names, code.MADE)}
    if plan.reciprocal:
        known[plan.reciprocal] = code.SHARE
    ready = {}
    for index, ((formula, _), own) in enumerate(zip(forms, specs, strict=True)):
        sources = [known.get(name, -1) for name in formula.numbers]
        words = [
            word(as_float(own_numbers[name])) if source < 0 else 0
            for name, source in zip(formula.numbers, sources, strict=True)
        ]
        pad = [0] * (code.MAX_FORM_NUMBERS - len(words))
        made.take_words(index * code.FORM_SLOTS, [len(words), *words, *pad, *sources])
        for place, name in enumerate(pattern.kernels):
            if name not in own:
                continue
            if index == 0:
                made.take_step(place, own[name].slots, lengths[name])
            for aligned in (False, True):
                names = [*params[name].constexprs]
                keys = functools.partial(key_of_form, index, names, aligned)
                floats = floats_of(name, formula)
                ready[index, name, aligned] = made.ready(place, keys, floats)
    return Emitted(made, ready)


def forms_of(plan: Plan, form: Form) -> tuple[Sequence[tuple[Formula, tuple[bool, ...]]], tuple[str, ...], tuple[str, ...]] | None:  # fmt: skip
    """The forms that a plan's kernel chooses from by the call's numbers, the names of these, and of those that a choice makes; None where
    machine code cannot choose."""
    choice, names = CHOICES.get(plan.kernel), tuple([own.option for own in plan.free])
    if choice is not None:
        return (choice.forms, (choice.number,), choice.made) if {*names} <= {choice.number} else None  # fmt: skip
    served = plan.kernel not in TUNED and not {*names} & {*form.formula.switches}
    return ([(form.formula, form.switches)], names, ()) if served else None
