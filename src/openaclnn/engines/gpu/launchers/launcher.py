"""Launchers: they make runners from a launch function, for one plan, for dynamic shapes, or for dynamic strides.

`engines/gpu/registry.py` has the launcher of each kernel. A launch function takes a `Geometry`, or `Elements`, and returns `Launches`. This module calls it with ints;
`code.py` calls it with values of machine code, for the builtins that serve dynamic shapes and strides.
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
    DynamicLaunch,
    Elements,
    Geometry,
    Launches,
    Layout,
    Specs,
    Targets,
    elements_of,
    geometry_of,
    launch_numbers,
    launch_of,
    padded,
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

DynamicRunner = Callable[..., int]
"""With dynamic shapes, a function of addresses, a stream, the shape, and the free numbers (empty: those of the plan).

With dynamic strides, a function of addresses, a stream, the sizes of all axes, the strides of one operand after the other and, where there is a class axis,
which must be the last, the free numbers. Where a call has more axes than the kernel takes, it returns NOT_SERVED."""
NOT_SERVED = 1


class Launcher:
    """Makes the runners of a kernel: for one plan, for dynamic shapes (row-major operands), and for dynamic strides."""

    reduces: bool = False  # whether the kernel serves plans with a reduction over all positions
    axes: int = 8  # how many axes a plan may have beside the class axis, after merging
    limit: int = 0  # how many elements a call with dynamic strides may have; 0: none is served
    position_axes: int  # how many axes it may have, beside the class axis

    def declines(self, plan: Plan) -> str | None:
        """Why the kernel does not serve the plan's axes; None if it does."""
        if len(plan.shape) <= self.axes:
            return None
        got = f"{len(plan.shape)} that do not lie in one another"
        return f"the Triton kernel walks {self.axes} axes besides the classes, not {got}"

    def runner(self, plan: Plan) -> Runner:
        """The plan's runner: it queues the plan's launches on a stream."""
        raise NotImplementedError

    def small_shape(self, plan: Plan) -> tuple[int, ...] | None:
        """The shape of a small plan that a runner of dynamic shapes may serve as well as launches of its own; None for other plans."""
        return None

    def serves_row_major(self, plan: Plan) -> bool:
        """Whether dynamic shapes are served, and the plan's operands are row-major."""
        return False

    def dynamic_launch(self, plan: Plan, strided: bool) -> DynamicLaunch:
        """The launch with dynamic shapes, or dynamic strides, of calls like the plan's."""
        raise NotImplementedError

    def serves_strides(self, plan: Plan) -> bool:
        """Whether the kernel for dynamic strides serves the plan."""
        has_offsets = any(operand.offset for operand in plan.operands)
        small = covered_elements(plan) <= self.limit
        return small and len(plan.shape) <= self.position_axes and not has_offsets

    def dynamic_runner(self, plan: Plan, strided: bool) -> DynamicRunner | None:
        """The runner of dynamic shapes, or of dynamic strides, that serves calls like the plan's; None where they are not served."""
        served = self.serves_strides(plan) if strided else self.serves_row_major(plan)
        return _dynamic_runner_of(self, plan, strided) if served else None


def _dynamic(dynamic: DynamicLaunch, plan: Plan) -> DynamicRunner:
    """The runner of a dynamic launch on the current device: a builtin, where there can be one."""
    block = _block_of(dynamic, plan)

    def run(addresses: Sequence[int], stream: int, sizes: Sequence[int], *more: Any) -> int:
        if dynamic.limit and not dynamic.min_axes <= len(sizes) <= dynamic.axes:
            return NOT_SERVED
        call = Call(dynamic, addresses, sizes, more[0] if dynamic.limit else ())
        g, specs, form = dynamic.geometry(call, more[-1] if dynamic.takes_numbers else ())
        launches, enter = dynamic.launch(g), None if form < 0 else block and block.enter_variant
        steps = [
            (launch_of(specs[step.kernel], step, g), enter and functools.partial(enter, step.kernel, form))
            for step in launches.steps if step.when
        ]  # fmt: skip
        return queue_all(steps, addresses, stream, launches.scratch, launches.scratch_offsets)

    return run if block is None else block.function(run)


def _block_of(dynamic: DynamicLaunch, plan: Plan) -> Any:
    """The block of the builtin for a dynamic launch; None where there can be none."""
    if not dynamic.specs or not can_be_emitted():
        return None
    from openaclnn.engines.gpu.launchers.code import LauncherBlock
    from openaclnn.engines.gpu.launching.code import NoRoomError

    try:
        return LauncherBlock(dynamic, plan)
    except NoRoomError:
        return None


_dynamic_runners: BoundedCache[tuple[Any, ...], DynamicRunner] = BoundedCache(256)


def _dynamic_runner_of(launcher: Launcher, plan: Plan, strided: bool) -> DynamicRunner:
    """The cached runner that serves the plan's calls and those of plans that differ from it in sizes alone or, with dynamic strides, in sizes and strides."""
    strides = () if plan.classes or strided else [operand.strides for operand in plan.operands]
    key = (
        launcher, strided, plan.kernel, plan.compute, plan.class_axis, plan.reduction, plan.reciprocal, plan.free,
        numbers_key(plan.numbers, plan.reciprocal), *map(operand_signature, plan.operands), *strides,
    )  # fmt: skip
    runner = _dynamic_runners.get(key)
    if runner is None:
        runner = _dynamic_runners[key] = on_each_device(lambda: _dynamic(launcher.dynamic_launch(plan, strided), plan))  # fmt: skip
    return runner


def is_row_major(plan: Plan, images: int, pixels: int) -> bool:
    """Whether the operands of a plan with classes have the strides of row-major operands for an output of shape (images, classes, pixels)."""
    merged, walks = row_major_strides(images, plan.classes, pixels)
    if merged != plan.shape:
        return False
    for operand in plan.operands:
        strides = operand.strides, operand.class_stride
        if operand.offset or strides != walks[operand.role][:2]:
            return False
    return True


def is_row_major_2d(plan: Plan) -> bool:
    """Whether a plan's operands have the strides of row-major ones for an output of shape (rows, classes)."""
    return len(plan.shape) == 1 and is_row_major(plan, plan.shape[0], 1)


def outer_and_inner_sizes(plan: Plan) -> tuple[int, int] | None:
    """The numbers of positions before the class axis and behind it, if all operands are row-major; None if they are not."""
    if len(plan.shape) > 2:
        return None
    (size,) = plan.shape if len(plan.shape) == 1 else (0,)
    for sizes in [(size, 1), (1, size)] if size else [plan.shape]:
        before, behind = sizes
        if (before == 1 or plan.class_axis > 0) and is_row_major(plan, before, behind):
            return before, behind
    return None


# The launches of one plan.


def plan_runner(
    launch: Callable[[Any], Launches], geometry_at: Callable[[Callable[[int], int]], Any], specs: Specs, operands: int
) -> Runner:  # fmt: skip
    """The runner of one plan. `geometry_at` makes the launch function's input; if it asks by how many bytes an operand's address is misaligned, there are launches
    for each misalignment. Of a kernel's pointers, those behind the first `operands` point into scratch memory."""
    asked = set[int]()

    def launches_at(offsets: Mapping[int, int]) -> tuple[list[Launch], int]:
        def offset(place: int) -> int:
            asked.add(place)
            return offsets.get(place, 0)

        g = geometry_at(offset)
        launches = launch(g)
        steps = [
            launch_of(_in_scratch(specs[step.kernel], operands, launches.scratch_offsets[1:]), step, g)
            for step in launches.steps if step.when
        ]  # fmt: skip
        return steps, launches.scratch

    launches, scratch = launches_at({})
    return runner_of(launches, scratch, (lambda offsets: launches_at(offsets)[0]) if asked else None)  # fmt: skip


def _in_scratch(spec: KernelSpec, operands: int, offsets: Sequence[int]) -> KernelSpec:
    """The spec with one address behind those of `operands`: all pointers into scratch memory but the first are shifted from it by these offsets."""
    if not offsets:
        return spec
    slots = [
        slot and (slot._replace(place=operands, shift=offsets[slot.place - operands - 1]) if slot.place > operands else slot)
        for slot in spec.slots
    ]  # fmt: skip
    return spec._replace(slots=tuple(slots))


def _misalignment_of(specs: Specs, offset: Callable[[int], int]) -> tuple[bool, bool]:
    """Whether an address that the first kernel reads or writes by vectors is misaligned, and whether all these are misaligned by the same bytes."""
    slots = next(iter(specs.values())).slots
    offsets = {offset(slot.place) for slot in slots if slot and slot.wide}
    return bool(offsets - {0}), len(offsets) < 2


# Kernels with a class axis.


@dataclass(eq=False)
class ClassLauncher(Launcher):
    """The launcher of a kernel with a class axis."""

    name: str
    launch: Callable[[Geometry], Launches]
    kernels: Mapping[Any, Any]  # Triton's, in the order of launches
    roles: Mapping[str, str]
    """The operands whose strides the launch function reads: the plan's first `placed` operands under names of the launch's own, then others by their parameter, and "out"."""
    placed: int
    numbers: tuple[str, ...]  # integers come first
    position_axes: int  # 1 for rows, 3 for images
    specs: Callable[..., Mapping[str, KernelSpec]]
    """A function of a plan and of the offset in elements at which its targets begin."""
    static: Callable[[Plan], Mapping[str, int]]
    is_row_major: Callable[[Plan], bool] = lambda plan: outer_and_inner_sizes(plan) is not None
    limit: int = 0
    small_limit: int = 0  # elements up to which `small_shape` serves images
    reduces: bool = False
    axes: int = 8

    def serves_row_major(self, plan: Plan) -> bool:
        return self.is_row_major(plan)

    def runner(self, plan: Plan) -> Runner:
        return self.runner_by(plan, strided=False)

    def runner_by(self, plan: Plan, strided: bool) -> Runner:
        """The plan's runner, by the kernel for its layout, or by the kernel for dynamic strides."""
        targets, begin = self._targets_of(plan)
        static, numbers = self.static(plan), launch_numbers(self.numbers, plan.numbers)
        layout = self._as_planned(plan)
        return plan_runner(
            self.launch,
            lambda offset: Geometry(layout, targets, static, numbers, offset, strided, False),
            self.specs(plan, begin),
            len(plan.operands),
        )

    def small_shape(self, plan: Plan) -> tuple[int, ...] | None:
        if len(plan.shape) > 2 or covered_elements(plan) > self.small_limit:
            return None
        images, area = (1, *plan.shape)[-2:]
        return images, plan.classes, 1, area

    def _targets_of(self, plan: Plan) -> tuple[Targets, int]:
        """The plan's targets alone, and the offset where they begin. Their axes may merge where those of other operands do not."""
        if plan.targets < 0:
            return NO_TARGETS, 0
        merged, (steps,), (offset,) = collapse(plan.shape, [plan.inputs[plan.targets].strides])
        axes = TARGET_AXES
        return Targets(padded(merged, axes, 1), padded(steps, axes, 0), len(merged)), offset

    def _places(self, plan: Plan) -> dict[str, int]:
        """Each operand's index in `plan.operands`; -1 where the plan lacks it."""
        places = {operand.parameter: place for place, operand in enumerate(plan.operands)}
        places |= {name: place for place, name in enumerate([*self.roles][: self.placed])}
        places.setdefault("out", len(plan.inputs))
        return {name: places.get(name, -1) for name in self.roles}

    def _as_planned(self, plan: Plan) -> Layout:
        """The layout of the plan's operands."""
        axes = self.position_axes
        strides: dict[str, tuple[Number, ...]] = dict.fromkeys(self.roles, (0,) * (axes + 1))
        for name, place in self._places(plan).items():
            if place >= 0:
                operand = plan.operands[place]
                strides[name] = *padded(operand.strides, axes, 0), operand.class_stride
        return Layout(padded(plan.shape, axes, 1), plan.classes, strides)

    def dynamic_launch(self, plan: Plan, strided: bool) -> DynamicLaunch:
        planned, specs = launch_numbers(self.numbers, plan.numbers), self.specs(plan)
        places = self._places(plan).items()
        operands = {name: _static_operand(plan, place, strided) for name, place in places}

        def geometry(call: Call, numbers: Sequence[Any]) -> tuple[Geometry, Specs, int]:
            if numbers and len(numbers) != len(planned):
                expected = f"{len(planned)} positional numbers are expected"
                raise TypeError(f"{expected}, not {len(numbers)}")
            passed = launch_numbers(self.numbers, dict(zip(self.numbers, numbers, strict=True))) if numbers else planned  # fmt: skip
            return geometry_of(call, passed), specs, 0

        name, axes, limit = self.name, 2 if self.position_axes == 1 else 0, 0
        if strided:
            name, axes, limit = f"{name}.strided", self.position_axes + 1, self.limit
        return DynamicLaunch(
            name, self.launch, self.kernels, {**operands, **self.static(plan)}, self.numbers, [specs], geometry, axes, limit, (), self.roles,
            self.position_axes,
        )  # fmt: skip


def _static_operand(plan: Plan, place: int, strided: bool) -> int:
    """An operand's static parameter, as `DynamicLaunch.static` has it."""
    if strided:
        return MISSING if place < 0 else place
    # The role decides, since strides of a plan of one row, or of one class, may be 0 for any operand.
    return int(place >= 0 and plan.operands[place].role != "single")


# Kernels of elementwise formulas.


class FormulaLauncher(Launcher):
    """The launcher of an elementwise formula's kernels: over flat operands, or over strided ones."""

    dynamic_launches: tuple[Callable[..., DynamicLaunch], Callable[..., DynamicLaunch]]
    """For dynamic shapes, and for dynamic strides: partial objects, which lack what the plan decides."""

    def is_flat(self, plan: Plan) -> bool:
        """Whether each operand is contiguous along one merged axis, or one element that serves all."""
        raise NotImplementedError

    def specs(self, plan: Plan, form: Form, strided: bool) -> Specs:
        raise NotImplementedError

    def static(self, plan: Plan, strided: bool) -> Mapping[str, int]:
        raise NotImplementedError

    def plan_runner(self, plan: Plan, form: Form, launch: Callable[[Elements], Launches], specs: Specs, **strided: Any) -> Runner:  # fmt: skip
        """The runner of one plan; `strided` has the fields of `Elements` that strided operands need, flat ones need none."""
        g = Elements(math.prod(plan.shape), self.static(plan, bool(strided)), share_small=False, numbers=form.numbers, **strided)  # fmt: skip

        def at(offset: Callable[[int], int]) -> Elements:
            misaligned, same = _misalignment_of(specs, offset)
            return g._replace(misaligned=misaligned, same_offset=same)

        return plan_runner(launch, at, specs, len(plan.operands))

    def serves_row_major(self, plan: Plan) -> bool:
        # The strides of a plan of one element do not tell whether an operand has one element for each position or one for all.
        has_offsets = any(operand.offset for operand in plan.operands)
        return self.is_flat(plan) and plan.shape != (1,) and not has_offsets

    def dynamic_launch(self, plan: Plan, strided: bool) -> DynamicLaunch:
        """With dynamic shapes calls may pass numbers; with dynamic strides they have the plan's."""
        static, (forms, names) = self.static(plan, strided), _choices_of(plan, strided)
        specs = {form: self.specs(plan, form, strided) for form in forms}
        options, kernels = [number.option for number in plan.free], [*specs.values()]

        def geometry(call: Call, passed: Sequence[Any]) -> tuple[Elements, Specs, int]:
            numbers = {**plan.numbers}
            if plan.reciprocal:
                numbers[plan.reciprocal] = 1.0 / call.product(0, call.axes)
            numbers |= zip(options, passed, strict=False)
            formula, switches, values = form_of(plan, numbers)
            form = Form(formula, switches)
            if form not in specs:
                specs[form] = self.specs(plan, form, strided)
            g = elements_of(call, *_misalignment_of(specs[form], call.offset), values, tuple(chain(*call.table)) if strided else ())  # fmt: skip
            return g, specs[form], forms.index(form) if form in forms else -1

        return self.dynamic_launches[strided](
            static=static, numbers=names, specs=kernels, geometry=geometry, forms=forms
        )


def _choices_of(plan: Plan, strided: bool) -> tuple[Sequence[Form], Sequence[str]]:
    """The forms that machine code may launch, and the names of the numbers that a call may pass, the first of which chooses; no form where machine code cannot choose."""
    choice, names = CHOICES.get(plan.kernel), tuple([number.option for number in plan.free])
    if choice is not None and not strided:
        can_choose = names[:1] in ((), (choice.number,))
        return (choice.forms, names or (choice.number,)) if can_choose else ((), ())
    form = form_of(plan)._replace(numbers=())
    if strided:
        return (form,), ()
    return ((), ()) if {*names} & {*form.formula.switches} else ((form,), names)
