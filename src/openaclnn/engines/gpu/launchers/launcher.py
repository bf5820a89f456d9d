"""What is made of a launch function: the launches of one plan, or a runner of any sizes or of any strides and the builtin of that.

A launch function gets a `Geometry`, or `Elements`, and gives `Launches`. With ints it is called here; `code.py` calls it with values of
machine code.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from openaclnn.core.plan import (
    BoundedCache,
    Plan,
    collapse,
    covered_elements,
    numbers_key,
    operand_signature,
    row_major_strides,
)
from openaclnn.engines.gpu.formulas.tuned import CHOICES, Form, form_of
from openaclnn.engines.gpu.launchers.geometry import (
    MISSING,
    NO_TARGETS,
    TARGET_AXES,
    Call,
    Elements,
    Geometry,
    Kind,
    Launches,
    Layout,
    Specs,
    Targets,
    elements_of,
    geometry_of,
    launch_of,
    padded,
    told_numbers,
)
from openaclnn.engines.gpu.launching.launch import KernelSpec, Launch
from openaclnn.engines.gpu.launching.runners import (
    Runner,
    can_be_emitted,
    on_each_device,
    queue_all,
    runner_of,
)
from openaclnn.engines.machine.numbers import Number

Dynamic = Callable[..., int]
"""Of addresses, a stream, the shape, and the plan's free numbers; without these, the plan's own hold.

With dynamic strides: of addresses, a stream, the sizes of all axes, each operand's strides along them one after the other and, with a class axis,
which is the last then, the free numbers. Where there are more axes than it takes, it gives NOT_SERVED."""
NOT_SERVED = 1


class Launcher:
    """What makes the runners of a kernel: of one plan, of any row-major sizes, of any strides up to so many elements."""

    reduces: bool = False  # whether it adds up all positions, if asked to
    axes: int = 8  # of positions that do not merge: so many at most
    limit: int = 0  # elements of any strides; 0: they are not served
    positions: int  # axes of any strides

    def declines(self, plan: Plan) -> str | None:
        """Why the kernel does not walk the plan's axes; None if it does."""
        if len(plan.shape) <= self.axes:
            return None
        got = f"{len(plan.shape)} that do not lie in one another"
        return f"the Triton kernel walks {self.axes} axes besides the classes, not {got}"

    def runner(self, plan: Plan) -> Runner:
        """What queues the plan on a stream."""
        raise NotImplementedError

    def few(self, plan: Plan) -> tuple[int, ...] | None:
        """The shape for the plan's runner of dynamic shapes, if that is as good as launches of its own."""
        return None

    def lies_so(self, plan: Plan) -> bool:
        """Whether a plan's operands are row-major, and any sizes of such are served."""
        return False

    def kind(self, plan: Plan, strided: bool) -> Kind:
        """What calls like the plan's have in common."""
        raise NotImplementedError

    def serves_strides(self, plan: Plan) -> bool:
        """Whether the kernel of any strides serves a plan."""
        moved = any(operand.offset for operand in plan.operands)
        few = covered_elements(plan) <= self.limit
        return few and len(plan.shape) <= self.positions and not moved

    def dynamic(self, plan: Plan, strided: bool) -> Dynamic | None:
        """What queues the plan's kernel over row-major operands of any sizes, or over operands of any strides, too."""
        served = self.serves_strides(plan) if strided else self.lies_so(plan)
        return _remembered_of(self, plan, strided) if served else None


def _dynamic(kind: Kind, plan: Plan) -> Dynamic:
    """What queues calls of a kind: a builtin, where there can be one."""
    block = _block_of(kind, plan)

    def run(addresses: Sequence[int], stream: int, sizes: Sequence[int], *more: Any) -> int:
        if kind.limit and not kind.least_axes <= len(sizes) <= kind.axes:
            return NOT_SERVED
        call = Call(kind, addresses, sizes, more[0] if kind.limit else ())
        g, specs, form = kind.geometry(call, more[-1] if kind.takes_numbers else ())
        launches, ready = kind.launch(g), None if form < 0 else block and block.ready
        steps = [
            (launch_of(specs[step.kernel], step, g), ready and functools.partial(ready, step.kernel, form))
            for step in launches.steps if step.when
        ]  # fmt: skip
        return queue_all(steps, addresses, stream, launches.scratch, launches.places)

    return run if block is None else block.function(run)


def _block_of(kind: Kind, plan: Plan) -> Any:
    """The block of the builtin for calls of a kind; None where there can be none."""
    if not kind.specs or not can_be_emitted():
        return None
    from openaclnn.engines.gpu.launchers.code import LauncherBlock
    from openaclnn.engines.gpu.launching.code import NoRoomError

    try:
        return LauncherBlock(kind, plan)
    except NoRoomError:
        return None


_remembered: BoundedCache[tuple[Any, ...], Dynamic] = BoundedCache(256)


def _remembered_of(launcher: Launcher, plan: Plan, strided: bool) -> Dynamic:
    """What queues calls like the plan's, as it was made for it, or for another of its kind: one that differs in sizes, or in strides, alone."""
    strides = () if plan.classes or strided else [operand.strides for operand in plan.operands]
    key = (
        launcher, strided, plan.kernel, plan.compute, plan.class_axis, plan.reduction, plan.reciprocal, plan.free,
        numbers_key(plan.numbers, plan.reciprocal), *map(operand_signature, plan.operands), *strides,
    )  # fmt: skip
    kept = _remembered.get(key)
    if kept is None:
        kept = _remembered[key] = on_each_device(lambda: _dynamic(launcher.kind(plan, strided), plan))  # fmt: skip
    return kept


def lies_row_major(plan: Plan, images: int, pixels: int) -> bool:
    """Whether the operands of a plan with classes lie as those of a row-major output of (images, classes, pixels)."""
    merged, walks = row_major_strides(images, plan.classes, pixels)
    if merged != plan.shape:
        return False
    for operand in plan.operands:
        walk = operand.strides, operand.class_stride
        if operand.offset or walk != walks[operand.role][:2]:
            return False
    return True


def of_rows(plan: Plan) -> bool:
    """Whether a plan lies as row-major rows do."""
    return len(plan.shape) == 1 and lies_row_major(plan, plan.shape[0], 1)


def before_and_behind(plan: Plan) -> tuple[int, int] | None:
    """How many positions are before the classes and behind them, where all operands lie row-major; None where they do not."""
    if len(plan.shape) > 2:
        return None
    (size,) = plan.shape if len(plan.shape) == 1 else (0,)
    for sizes in [(size, 1), (1, size)] if size else [plan.shape]:
        before, behind = sizes
        if (before == 1 or plan.class_axis > 0) and lies_row_major(plan, before, behind):
            return before, behind
    return None


# The launches of one plan.


def bound(
    launch: Callable[[Any], Launches], geometry_at: Callable[[Callable[[int], int]], Any], specs: Specs, operands: int
) -> Runner:  # fmt: skip
    """The launches of one plan, whose geometry may ask how far an operand's address is off a vector's bounds. Pointers behind those to so
    many operands lie in scratch memory."""
    asked = set[int]()

    def launches_at(offsets: Mapping[int, int]) -> tuple[list[Launch], int]:
        def offset(place: int) -> int:
            asked.add(place)
            return offsets.get(place, 0)

        g = geometry_at(offset)
        launches = launch(g)
        steps = [
            launch_of(_in_scratch(specs[step.kernel], operands, launches.places[1:]), step, g)
            for step in launches.steps if step.when
        ]  # fmt: skip
        return steps, launches.scratch

    launches, scratch = launches_at({})
    return runner_of(launches, scratch, (lambda offsets: launches_at(offsets)[0]) if asked else None)  # fmt: skip


def _in_scratch(spec: KernelSpec, operands: int, places: Sequence[int]) -> KernelSpec:
    """The same with one address behind those to operands, from which pointers but for the first begin at these places."""
    if not places:
        return spec
    slots = [
        slot and (slot._replace(place=operands, shift=places[slot.place - operands - 1]) if slot.place > operands else slot)
        for slot in spec.slots
    ]  # fmt: skip
    return spec._replace(slots=tuple(slots))


def _offsets_of(specs: Specs, offset: Callable[[int], int]) -> tuple[bool, bool]:
    """Whether an address of the first kernel is off a vector's bounds where that matters, and whether all of these are, equally far."""
    slots = next(iter(specs.values())).slots
    offsets = {offset(slot.place) for slot in slots if slot and slot.wide}
    return bool(offsets - {0}), len(offsets) < 2


# Kernels with a class axis.


@dataclass(eq=False)
class ClassLauncher(Launcher):
    """How a kernel with a class axis is launched."""

    name: str
    launch: Callable[[Geometry], Launches]
    kernels: Mapping[Any, Any]  # Triton's, in the order of launches
    roles: Mapping[str, str]
    """Of the operands whose strides the launch asks for: first some by their places, then others by what the plan calls them, and "out"."""
    placed: int  # how many go by their places
    numbers: tuple[str, ...]  # of which integers come first
    positions: int  # axes: 1 for rows, 3 for images
    specs: Callable[..., Mapping[str, KernelSpec]]
    """Of a plan, and how many elements off its targets begin."""
    static: Callable[[Plan], Mapping[str, int]]
    is_row_major: Callable[[Plan], bool] = lambda plan: before_and_behind(plan) is not None
    limit: int = 0
    few_elements: int = 0  # elements of images for which a plan needs no launches of its own
    reduces: bool = False
    axes: int = 8

    def lies_so(self, plan: Plan) -> bool:
        return self.is_row_major(plan)

    def runner(self, plan: Plan) -> Runner:
        return self.runner_by(plan, strided=False)

    def runner_by(self, plan: Plan, strided: bool) -> Runner:
        """By the kernel for the plan's layout, or by that of any strides."""
        targets, begin = self._targets_of(plan)
        static, numbers = self.static(plan), told_numbers(self.numbers, plan.numbers)
        layout = self._as_planned(plan)
        return bound(
            self.launch,
            lambda offset: Geometry(layout, targets, static, numbers, offset, strided, few=False),
            self.specs(plan, begin),
            len(plan.operands),
        )

    def few(self, plan: Plan) -> tuple[int, ...] | None:
        if len(plan.shape) > 2 or covered_elements(plan) > self.few_elements:
            return None
        images, area = (1, *plan.shape)[-2:]
        return images, plan.classes, 1, area

    def _targets_of(self, plan: Plan) -> tuple[Targets, int]:
        """The plan's own targets, and where they begin: only they are walked, so axes merge that other operands may keep apart."""
        if plan.targets < 0:
            return NO_TARGETS, 0
        merged, (steps,), (offset,) = collapse(plan.shape, [plan.inputs[plan.targets].strides])
        axes = TARGET_AXES
        return Targets(padded(merged, axes, 1), padded(steps, axes, 0), len(merged)), offset

    def _places(self, plan: Plan) -> dict[str, int]:
        """Where operands are among the plan's; -1 where there is none."""
        known = {operand.parameter: place for place, operand in enumerate(plan.operands)}
        known |= {name: place for place, name in enumerate([*self.roles][: self.placed])}
        known.setdefault("out", len(plan.inputs))
        return {name: known.get(name, -1) for name in self.roles}

    def _as_planned(self, plan: Plan) -> Layout:
        """The plan's own operands."""
        axes = self.positions
        strides: dict[str, tuple[Number, ...]] = dict.fromkeys(self.roles, (0,) * (axes + 1))
        for name, place in self._places(plan).items():
            if place >= 0:
                operand = plan.operands[place]
                strides[name] = *padded(operand.strides, axes, 0), operand.class_stride
        return Layout(padded(plan.shape, axes, 1), plan.classes, strides)

    def kind(self, plan: Plan, strided: bool) -> Kind:
        planned, specs = told_numbers(self.numbers, plan.numbers), self.specs(plan)
        walked = {name: _walked(plan, place, strided) for name, place in self._places(plan).items()}

        def geometry(call: Call, numbers: Sequence[Any]) -> tuple[Geometry, Specs, int]:
            if numbers and len(numbers) != len(planned):
                expected = f"{len(planned)} positional numbers are expected"
                raise TypeError(f"{expected}, not {len(numbers)}")
            told = told_numbers(self.numbers, dict(zip(self.numbers, numbers, strict=True))) if numbers else planned  # fmt: skip
            return geometry_of(call, told), specs, 0

        name, axes, limit = self.name, 2 if self.positions == 1 else 0, 0
        if strided:
            name, axes, limit = f"{name}.strided", self.positions + 1, self.limit
        return Kind(
            name, self.launch, self.kernels, {**walked, **self.static(plan)}, self.numbers, [specs], geometry, axes, limit, (), self.roles,
            self.positions,
        )  # fmt: skip


def _walked(plan: Plan, place: int, strided: bool) -> int:
    """Where an operand is among all; or whether it has a number for each position or class."""
    if strided:
        return MISSING if place < 0 else place
    # By what they are: strides of a plan of one row, or of one class, say nothing.
    return int(place >= 0 and plan.operands[place].role != "single")


# Kernels that are made from formulas.


class FormulaLauncher(Launcher):
    """How a formula's kernels are launched: over elements that lie in a row, or of any strides."""

    kinds: tuple[Callable[..., Kind], Callable[..., Kind]]
    """Of any sizes, and of any strides; but for what the plan decides."""

    def lies_in_a_row(self, plan: Plan) -> bool:
        """Whether elements lie side by side, or are one for all."""
        raise NotImplementedError

    def specs(self, plan: Plan, form: Form, strided: bool) -> Specs:
        raise NotImplementedError

    def static(self, plan: Plan, strided: bool) -> Mapping[str, int]:
        raise NotImplementedError

    def bound(self, plan: Plan, form: Form, launch: Callable[[Elements], Launches], specs: Specs, **strided: Any) -> Runner:  # fmt: skip
        """The launches of one plan, whose elements lie in a row but for what is told of strided ones."""
        g = Elements(math.prod(plan.shape), self.static(plan, bool(strided)), few=False, numbers=form.numbers, **strided)  # fmt: skip

        def at(offset: Callable[[int], int]) -> Elements:
            misaligned, same = _offsets_of(specs, offset)
            return g._replace(misaligned=misaligned, same_offset=same)

        return bound(launch, at, specs, len(plan.operands))

    def lies_so(self, plan: Plan) -> bool:
        # One element is no pattern: it may lie for one or for all.
        offsets = any(operand.offset for operand in plan.operands)
        return self.lies_in_a_row(plan) and plan.shape != (1,) and not offsets

    def kind(self, plan: Plan, strided: bool) -> Kind:
        """With any numbers, or of any strides with the plan's own."""
        static, (forms, names) = self.static(plan, strided), _choices_of(plan, strided)
        specs = {form: self.specs(plan, form, strided) for form in forms}
        options, kernels = [number.option for number in plan.free], [*specs.values()]

        def geometry(call: Call, told: Sequence[Any]) -> tuple[Elements, Specs, int]:
            numbers = {**plan.numbers}
            if plan.reciprocal:
                numbers[plan.reciprocal] = 1.0 / call.product(0, call.axes)
            numbers |= zip(options, told, strict=False)
            formula, switches, values = form_of(plan, numbers)
            form = Form(formula, switches)
            if form not in specs:
                specs[form] = self.specs(plan, form, strided)
            g = elements_of(call, *_offsets_of(specs[form], call.offset), values, tuple(chain(*call.table)) if strided else ())  # fmt: skip
            return g, specs[form], forms.index(form) if form in forms else -1

        return self.kinds[strided](
            known=static, numbers=names, specs=kernels, geometry=geometry, forms=forms
        )


def _choices_of(plan: Plan, strided: bool) -> tuple[Sequence[Form], Sequence[str]]:
    """The forms that a plan's kernel chooses from by the call's numbers, and the names of these; no form where machine code cannot choose."""
    choice, names = CHOICES.get(plan.kernel), tuple([number.option for number in plan.free])
    if choice is not None and not strided:
        chosen = names[:1] in ((), (choice.number,))
        return (choice.forms, names or (choice.number,)) if chosen else ((), ())
    form = form_of(plan)._replace(numbers=())
    if strided:
        return (form,), ()
    return ((), ()) if {*names} & {*form.formula.switches} else ((form,), names)
