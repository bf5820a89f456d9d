"""What is made of a launch function: the launches of one plan, or a runner of any sizes or of any strides and the builtin of that.

A launch function gets a `Geometry`, or `Elements`, and gives `Launches`. With ints it is called here; `code.py` calls it with values of
machine code.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import triton

from openaclnn.core.dtypes import float_of
from openaclnn.core.plan import Plan, collapse, covered_elements, row_major_walks
from openaclnn.engines.formulas import FORMULAS, Formula
from openaclnn.engines.gpu.formulas.tuned import CHOICES, TUNED, Form, as_floats, form_of
from openaclnn.engines.gpu.launchers.geometry import (
    CLASS_AXIS,
    FORM,
    MISSING,
    NO_TARGETS,
    NUMBERS_ARGS,
    STRIDES_ARGS,
    Elements,
    Geometry,
    Launches,
    Launching,
    LaunchParams,
    Layout,
    Pattern,
    Targets,
    is_float,
    padded,
)
from openaclnn.engines.gpu.launching import scratch
from openaclnn.engines.gpu.launching.launch import (
    INT32_LIMIT,
    MAX_KEYS,
    VECTOR_BYTES,
    KernelSpec,
    Launch,
    PointerArg,
    ignored,
    table_of,
    unaligned,
)
from openaclnn.engines.gpu.launching.runners import (
    NOT_SERVED,
    DynamicShapes,
    Queue,
    Runner,
    queue_of,
    remembered,
    runner_of,
)
from openaclnn.engines.machine.numbers import Number

__all__ = [
    "ClassLauncher", "Launcher", "DynamicStrides", "any_elements", "bound", "bound_elements", "can_be_emitted", "in_order",
    "lies_row_major", "offers_strides",
]  # fmt: skip

DynamicStrides = Callable[..., int]
"""Of addresses, a stream, the sizes of all axes, each operand's strides along them one after the other and, with a class axis, which is the
last then, the plan's free numbers; without these, the plan's own hold. Not 0: it does not serve so many axes."""

ArgsInOrder = tuple[int, tuple[int | float, ...], tuple[Any, ...], int]
"""Grid, arguments, constexprs and warps, as a kernel takes them by place."""


class Launcher:
    """What makes the runners of a kernel: of one plan, of any row-major sizes, of any strides up to so many elements."""

    reduces: bool = False  # whether it adds up all positions, if asked to
    axes: int = 8  # of positions that do not merge: so many at most

    def runner(self, plan: Plan) -> Runner:
        """What queues the plan on a stream."""
        raise NotImplementedError

    def dynamic_shapes(self, plan: Plan) -> DynamicShapes | None:
        """What queues the plan's kernel over row-major operands and any sizes."""
        return None

    def dynamic_strides(self, plan: Plan) -> tuple[DynamicStrides, int] | None:
        """What queues the plan's kernel over operands of any sizes and strides, and up to how many elements."""
        return None

    def few(self, plan: Plan) -> tuple[int, ...] | None:
        """The shape for the plan's runner of dynamic shapes, if that is as good as launches of its own."""
        return None


def can_be_emitted() -> bool:
    """Whether machine code can call the driver."""
    if triton.knobs.runtime.interpret:
        return False
    try:
        from openaclnn.engines.gpu.launching import native
    except ImportError:  # no llvmlite
        return False
    return native.driver() is not None


def offers_strides(plan: Plan, limit: int, axes: int) -> bool:
    """Whether a plan is one for a runner of any strides, of so many elements and axes of positions at most."""
    offsets = any(own.offset for own in plan.operands)
    return len(plan.shape) <= axes and covered_elements(plan) <= limit and not offsets


def lies_row_major(plan: Plan, images: int, pixels: int) -> bool:
    """Whether the operands of a plan with classes lie as those of a row-major output of (images, classes, pixels)."""
    merged, walks = row_major_walks(images, plan.classes, pixels)
    if merged != plan.shape:
        return False
    for own in plan.operands:
        if own.offset or (own.strides, own.class_stride) != walks[own.role][:2]:
            return False
    return True


# Arguments in the order of the kernel's parameters.


@functools.cache
def _names(kernel: Any, pointers: int, constexprs: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Of a kernel's arguments behind the pointers, and of so many last constexprs."""
    names = kernel.arg_names
    first = next(n for n, own in enumerate(names) if own.isupper())
    return tuple(names[pointers:first]), tuple(names[len(names) - constexprs :])


def in_order(spec: KernelSpec, step: LaunchParams) -> ArgsInOrder:
    """What a launch of a kernel takes, each argument by the name that the kernel has for it."""
    args, constexprs = _names(spec.kernel, len(spec.slots), len(step.constexprs))
    assert len(args) == len(step.args), (args, step.args)
    return (
        step.grid,
        tuple([step.args[name] for name in args]),
        tuple([step.constexprs[name] for name in constexprs]),
        step.warps,
    )


def _in_order_of_elements(g: Elements, step: LaunchParams) -> ArgsInOrder:
    """The same of kernels that are made from formulas, which have as many operands and numbers as the formula has."""
    args: list[int | float] = []
    for name, own in step.args.items():
        if name == NUMBERS_ARGS:
            args += g.numbers
        elif name == STRIDES_ARGS:
            args += g.strides[: len(g.strides) - own * len(g.sizes)]
        else:
            args.append(own)
    return step.grid, tuple(args), tuple(step.constexprs.values()), step.warps


# The launches of one plan.


def bound(
    launch: Callable[[Any], Launches], geometry_at: Callable[[Callable[[int], int]], Any],
    in_order_of: Callable[[Any, KernelSpec, LaunchParams], ArgsInOrder], specs: Mapping[str, KernelSpec], operands: int,
) -> Runner:  # fmt: skip
    """The launches of one plan, whose geometry may ask how far an operand's address is off a vector's bounds. Pointers behind those to so
    many operands lie in scratch memory."""
    asked = False

    def aligned(place: int) -> int:
        nonlocal asked
        asked = True
        return 0

    def launches_at(offset: Callable[[int], int]) -> tuple[Any, list[LaunchParams], Launches]:
        geometry = geometry_at(offset)
        launches = launch(geometry)
        return geometry, [step for step in launches.steps if step.when], launches

    geometry, steps, launches = launches_at(aligned)

    def in_scratch(slot: PointerArg | None) -> PointerArg | None:
        if slot is None or slot.place < operands:
            return slot
        return slot._replace(place=operands, shift=launches.places[slot.place - operands])

    def launch_of(geometry: Any, step: LaunchParams, asks: bool = False) -> Launch:
        spec = specs[step.kernel]
        moved = spec._replace(slots=tuple(map(in_scratch, spec.slots)))
        kept = step.aligned or asks  # what asks must be told of addresses
        return Launch(moved if kept else unaligned(moved), *in_order_of(geometry, spec, step))

    def at(index: int, offsets: Sequence[int]) -> Launch:
        slots = specs[steps[index].kernel].slots
        off = {slot.place: own for slot, own in zip(slots, offsets, strict=True) if slot}
        geometry, other, _ = launches_at(lambda place: off[place % operands])
        return launch_of(geometry, other[index])

    found = []
    for index, step in enumerate(steps):
        own = launch_of(geometry, step, asked)
        depends = asked and any(slot and slot.wide for slot in specs[step.kernel].slots)
        found.append(own._replace(at=functools.partial(at, index)) if depends else own)
    return runner_of(found, launches.scratch)


def bound_elements(
    launch: Callable[[Elements], Launches], g: Elements, specs: Mapping[str, KernelSpec], operands: int
) -> Runner:  # fmt: skip
    """The same of kernels that are made from formulas."""
    slots = next(iter(specs.values())).slots

    def at(offset: Callable[[int], int]) -> Elements:
        misaligned, same = _offsets_of(slots, offset)
        return g._replace(misaligned=misaligned, same_offset=same, few=False)

    return bound(
        launch,
        at,
        lambda g, spec, step: _in_order_of_elements(g, step),
        specs,
        operands,
    )


def _offsets_of(
    slots: Sequence[PointerArg | None], offset: Callable[[int], int]
) -> tuple[bool, bool]:
    """Whether an address is off a vector's bounds where that matters, and whether all of these are, equally far."""
    found = {offset(slot.place) for slot in slots if slot and slot.wide}
    return bool(found - {0}), len(found) < 2


# Launches whose sizes are told in the call.


def _queue_all(
    launches: Launches, queues: Mapping[tuple[str, bool], Queue], in_order_of: Callable[[LaunchParams], ArgsInOrder],
    addresses: Sequence[int], stream: int,
) -> int:  # fmt: skip
    size = launches.scratch
    memory = scratch.allocate(size, stream) if size else 0
    try:
        pointers = (*addresses, *[memory + at for at in launches.places], 0)
        for step in launches.steps:
            if step.when:
                queues[step.kernel, bool(step.aligned)](pointers, stream, *in_order_of(step))
    finally:
        if size:
            scratch.release(memory)
    return 0


def _queues_of(
    specs: Mapping[str, KernelSpec], ready: Mapping[Any, Any], form: int
) -> dict[tuple[str, bool], Queue]:
    """By the kernel's name, and whether its addresses may be aligned."""
    return {
        (name, aligned): queue_of(
            spec if aligned else unaligned(spec), ready.get((form, name, aligned))
        )
        for name, spec in specs.items()
        for aligned in (False, True)
    }


# Kernels with a class axis.

IGNORED, FIRST_CLASS = "ignore_index", "first_class"


def _rounded(numbers: Sequence[Any], whole: int) -> tuple[int | float, ...]:
    """A call's numbers as launch functions are told them: so many integers, then FLOATs."""
    return (*map(int, numbers[:whole]), *map(float_of, numbers[whole:]))


@dataclass(frozen=True, eq=False)
class ClassLauncher(Launcher):
    """How a kernel with a class axis is launched."""

    name: str
    launch: Launching
    kernels: Mapping[str, Any]  # Triton's, in the order of launches
    operands: tuple[str, ...]
    """Whose strides the launch asks for: first inputs by their places, then others by what the plan calls them, and "out"."""
    inputs: int  # how many of these go by their places
    numbers: tuple[str, ...]  # of which the first is an integer, if it is one of targets
    positions: int  # axes of positions: 1 for rows, 3 for images
    specs: Callable[..., Mapping[str, KernelSpec]]
    """Of a plan, and how many elements off its targets begin."""
    static: Callable[[Plan], Mapping[str, int]]
    row_major: Callable[[Sequence[Number], Number, Mapping[str, Number]], Layout]
    lies_so: Callable[[Plan], bool]  # whether a plan lies as `row_major` says
    limit: int = 0  # elements of any strides; 0: they are not served
    few_elements: int = 0  # elements for which a plan needs no launches of its own
    reduces: bool = False
    axes: int = 8

    def runner(self, plan: Plan) -> Runner:
        targets, begin = self._targets_of(plan)
        static, numbers = self.static(plan), self._numbers_of(plan)
        layout = self._as_planned(plan)
        return bound(
            self.launch,
            lambda offset: Geometry(layout, targets, static, numbers, offset, few=False),
            lambda g, spec, step: in_order(spec, step),
            self.specs(plan, begin),
            len(plan.operands),
        )

    def dynamic_shapes(self, plan: Plan) -> DynamicShapes | None:
        return remembered(plan, self._any_shape) if self.lies_so(plan) else None

    def dynamic_strides(self, plan: Plan) -> tuple[DynamicStrides, int] | None:
        if not self.limit or not offers_strides(plan, self.limit, self.positions):
            return None
        return remembered(plan, self._any_strides), self.limit

    def few(self, plan: Plan) -> tuple[int, ...] | None:
        if len(plan.shape) > min(self.positions, 2) or covered_elements(plan) > self.few_elements:
            return None
        if self.positions == 1:
            return *plan.shape, plan.classes
        images, area = (1, *plan.shape)[-2:]
        return images, plan.classes, 1, area

    def _any_shape(self, plan: Plan) -> DynamicShapes:
        return self._dynamic(plan, strided=False)

    def _any_strides(self, plan: Plan) -> DynamicStrides:
        return self._dynamic(plan, strided=True)

    def _numbers_of(self, plan: Plan) -> tuple[int | float, ...]:
        return _rounded([plan.numbers[name] for name in self.numbers], self.whole)

    @property
    def whole(self) -> int:
        return sum(name in (IGNORED, FIRST_CLASS) for name in self.numbers[:1])

    def _targets_of(self, plan: Plan) -> tuple[Targets, int]:
        """The plan's own targets, and where they begin: only they are walked, so axes merge that other operands may keep apart."""
        if plan.targets < 0:
            return NO_TARGETS, 0
        merged, (steps,), (offset,) = collapse(plan.shape, [plan.inputs[plan.targets].strides])
        return Targets(padded(merged, 3, 1), padded(steps, 3, 0), len(merged)), offset

    def _places(self, plan: Plan) -> dict[str, int]:
        """Where operands are among the plan's; -1 where there is none."""
        known = {own.parameter: place for place, own in enumerate(plan.operands)}
        known |= {name: place for place, name in enumerate(self.operands[: self.inputs])}
        known |= dict.fromkeys(("out", "gradients"), len(plan.inputs))
        return {name: known.get(name, -1) for name in self.operands}

    def _as_planned(self, plan: Plan) -> Layout:
        """The plan's own operands."""
        axes = self.positions
        strides: dict[str, tuple[Number, ...]] = dict.fromkeys(self.operands, (0,) * (axes + 1))
        for name, place in self._places(plan).items():
            if place >= 0:
                own = plan.operands[place]
                strides[name] = *padded(own.strides, axes, 0), own.class_stride
        return Layout(padded(plan.shape, axes, 1), plan.classes, strides)

    def _pattern(self, static: Mapping[str, int], strided: bool) -> Pattern:
        name = f"{self.name}.strided" if strided else self.name
        known = name, self.launch, self.kernels, tuple(static)
        if strided:
            return Pattern(
                *known,
                self.positions + 1,
                self.limit,
                self.operands,
                exactly=self.positions == 1,
                whole=self.whole,
            )
        axes = 2 if self.positions == 1 else 0
        return Pattern(
            *known, axes, operands=self.operands, row_major=self.row_major, whole=self.whole
        )

    def _dynamic(self, plan: Plan, strided: bool) -> Callable[..., int]:
        """What runs a plan's kernels at any size, or with any strides: a builtin, where there can be one."""
        own, specs, static = self._numbers_of(plan), self.specs(plan), self.static(plan)
        pattern = self._pattern(static, strided)
        walked = {name: _walked(plan, place, strided) for name, place in self._places(plan).items()}
        known = [*(walked[name] for name in pattern.operands), *static.values()]
        block, ready = _emit(pattern, plan, specs, known, self.numbers)
        queues = _queues_of(specs, ready, 0)
        count, axes = len(plan.operands), pattern.axes
        placed = [(name, place) for name, place in walked.items() if place < count]
        absent = {name: (0,) * axes for name, place in walked.items() if place >= count}

        def laid(sizes: Sequence[int], strides: Sequence[int]) -> tuple[Layout, Targets]:
            table = table_of(strides, len(sizes))
            *shape, classes = padded(sizes, axes, 1)
            found = {name: padded(table[place], axes, 0) for name, place in placed}
            layout = Layout(tuple(shape), classes, found | absent)
            if plan.targets < 0:
                return layout, NO_TARGETS
            along = padded(padded(table[plan.targets], axes, 0)[:-1], 3, 0)
            return layout, Targets(padded(shape, 3, 1), along, 3)

        axis = static.get(CLASS_AXIS, 1)

        def row_major(sizes: Sequence[int]) -> tuple[Layout, Targets]:
            before, behind = math.prod(sizes[:axis]), math.prod(sizes[axis + 1 :])
            layout = self.row_major((before, sizes[axis]), behind, walked)
            return layout, Targets((1, 1, before * behind), (0, 0, 1), 1)

        def run(addresses: Sequence[int], stream: int, sizes: Sequence[int], *more: Any) -> int:
            *strides, given = more
            if given and len(given) != len(own):
                raise TypeError(f"{len(own)} positional numbers are expected, not {len(given)}")
            if strided and not (axes if pattern.exactly else 0) <= len(sizes) <= axes:
                return NOT_SERVED
            layout, targets = laid(sizes, *strides) if strided else row_major(sizes)
            geometry = Geometry(
                layout, targets, static, _rounded(given, self.whole) if given else own,
                lambda place: addresses[place % count] % VECTOR_BYTES, strided,
            )  # fmt: skip
            launches = self.launch(geometry)
            return _queue_all(
                launches, queues, lambda step: in_order(specs[step.kernel], step), addresses, stream
            )

        builtin: Callable[..., int] = run if block is None else block.function(run)
        return builtin


def _walked(plan: Plan, place: int, strided: bool) -> int:
    """Where an operand is among all; or whether it has a number for each position or class."""
    if strided:
        return MISSING if place < 0 else place
    # By what they are: strides of a plan of one row, or of one class, say nothing.
    return int(place >= 0 and plan.operands[place].role != "single")


def _emit(
    pattern: Pattern, plan: Plan, specs: Mapping[str, KernelSpec], static: Sequence[int], numbers: Sequence[str]
) -> tuple[Any, Mapping[Any, Any]]:  # fmt: skip
    """The block of a pattern's builtin, and what is told each kernel of it; None where there can be no builtin."""
    if not can_be_emitted():
        return None, {}
    from openaclnn.engines.gpu.launchers.blocks import LauncherBlock
    from openaclnn.engines.gpu.launchers.code import entry_of

    block = LauncherBlock(entry_of(pattern), len(plan.operands), static)
    several = [plan.numbers[name] for name in numbers]
    for place in range(pattern.whole):
        several[place] = min(ignored(several[place]), INT32_LIMIT)
    block.take_numbers(several, pattern.whole)
    if any(slot and slot.place >= len(plan.operands) for own in specs.values() for slot in own.slots):  # fmt: skip
        block.take_scratch(*scratch.functions())

    def floats_of(name: str) -> list[bool]:
        args, _ = _names(specs[name].kernel, len(specs[name].slots), 0)
        return [is_float(own) for own in args]

    def names_of(name: str, count: int) -> Sequence[str]:
        return _names(specs[name].kernel, len(specs[name].slots), count)[1]

    ready = _enter_all(block, pattern, specs, 0, floats_of, names_of)
    return (None, {}) if ready is None else (block, ready)


def _enter_all(
    block: Any, pattern: Pattern, specs: Mapping[str, KernelSpec], form: int, floats_of: Callable[[str], list[bool]],
    names_of: Callable[[str, int], Sequence[str]],
) -> dict[Any, Any] | None:  # fmt: skip
    """What is told each kernel of a form, by the form, its name, and whether its addresses may be aligned. It says which arguments
    are FLOATs, and names the constexprs that sizes decide. None where a block has no room."""
    from openaclnn.engines.gpu.launching.blocks import takes

    def key_of(name: str, aligned: bool, constexprs: tuple[Any, ...], warps: int, misaligned: int) -> list[int]:  # fmt: skip
        known = dict(zip(names_of(name, len(constexprs)), constexprs, strict=True))
        return _key_of({**known, FORM: form}, warps, aligned, misaligned)

    ready = {}
    for step, name in enumerate(pattern.kernels):
        if name in specs:
            floats, spec = floats_of(name), specs[name]
            decided = sum(own.isupper() for own in spec.kernel.arg_names) - len(spec.constexprs)
            # Beside the constexprs: the form, the warps, and whether addresses may be aligned.
            if not takes(spec.slots, len(floats)) or decided + 3 > MAX_KEYS:
                return None
            block.take_step(step, specs[name].slots, len(floats))
            for aligned in (False, True):
                keys = functools.partial(key_of, name, aligned)
                ready[form, name, aligned] = block.ready(step, keys, floats)
    return ready


def _key_of(constexprs: Mapping[str, Any], warps: int, aligned: bool, misaligned: int) -> list[int]:
    """What tells the kernels of a launch apart, as words of machine code: four constexprs each, then a bit for each address that is off a
    vector's bounds."""
    several = [*(int(constexprs[name]) for name in sorted(constexprs)), warps, int(aligned)]
    several += [0] * (MAX_KEYS - len(several))
    words = [several[at : at + 4] for at in range(0, len(several), 4)]
    return [*(sum(own << 16 * n for n, own in enumerate(word)) for word in words), misaligned]


# Kernels that are made from formulas.


def any_elements(
    pattern: Pattern, plan: Plan, specs_of: Callable[[Form], Mapping[str, KernelSpec]], static: Mapping[str, int]
) -> Callable[..., int]:  # fmt: skip
    """What runs a formula's kernels at any size, with any numbers, or with any strides and the plan's own numbers: a builtin, where there
    can be one."""
    own_form, strided, axes = form_of(plan), pattern.limit > 0, pattern.axes
    own_specs = specs_of(own_form)
    slots = next(iter(own_specs.values())).slots
    choices = _choices_of(plan, own_form, strided)
    block, ready = _emit_elements(pattern, plan, own_form, choices, specs_of, static)
    indices = {(formula.name, own): place for place, (formula, own) in enumerate((choices and choices[0]) or ())}  # fmt: skip

    def queues_of(form: Form) -> Mapping[tuple[str, bool], Queue]:
        index = indices.get((form.formula.name, form.switches), -1)
        return _queues_of(specs_of(form), ready, index)

    form_with = _forms(plan, own_form, queues_of)

    def run(
        addresses: Sequence[int], stream: int, sizes: Sequence[int], given: Sequence[Any]
    ) -> int:
        if strided and len(sizes) > axes:
            return NOT_SERVED
        form, queues = form_with(() if strided else given)
        count, numbers = math.prod(sizes), form.numbers
        if plan.reciprocal:  # one over the count
            share = form.formula.numbers.index(plan.reciprocal)
            numbers = (*numbers[:share], float_of(1.0 / count), *numbers[share + 1 :])
        if strided:
            table = table_of(given, len(sizes))
            g = Elements(
                count, static, in_a_row=len(sizes) == 1 and {own[0] for own in table[:-1]} == {1}, sizes=padded(sizes, axes, 1),
                numbers=numbers, strides=tuple([step for own in table for step in padded(own, axes, 0)]),
            )  # fmt: skip
        else:
            off = _offsets_of(slots, lambda place: addresses[place] % VECTOR_BYTES)
            g = Elements(count, static, *off, numbers=numbers)
        in_order_of = functools.partial(_in_order_of_elements, g)
        return _queue_all(pattern.launch(g), queues, in_order_of, addresses, stream)

    builtin: Callable[..., int] = run if block is None else block.function(run)
    return builtin


_FormQueues = tuple[Form, Mapping[tuple[str, bool], Queue]]


def _forms(
    plan: Plan, own_form: Form, queues_of: Callable[[Form], Mapping[tuple[str, bool], Queue]]
) -> Callable[[Sequence[Any]], _FormQueues]:
    """What finds the form of a plan with other numbers, and what queues its kernels."""
    names = tuple([own.option for own in plan.free])
    # Where the formula takes the options themselves, and has one form, they need but be rounded.
    direct = plan.kernel not in TUNED and names == FORMULAS[plan.kernel].numbers
    known: dict[tuple[str, tuple[bool, ...]], Mapping[tuple[str, bool], Queue]] = {}

    def with_queues(form: Form) -> _FormQueues:
        key = form.formula.name, form.switches
        if key not in known:
            known[key] = queues_of(form)
        return form, known[key]

    before: tuple[Sequence[Any], _FormQueues] = (), with_queues(own_form)

    def form_with(numbers: Sequence[Any]) -> _FormQueues:
        nonlocal before
        last, found = before
        if numbers != last or 0 in numbers:  # which has two signs
            if direct and numbers:
                found = found[0]._replace(numbers=as_floats(numbers)), found[1]
            else:
                own = {**plan.numbers, **dict(zip(names, numbers, strict=False))}
                found = with_queues(form_of(plan, own))
            before = numbers, found
        return found

    return form_with


_Choices = tuple[Sequence[tuple[Formula, tuple[bool, ...]]], tuple[str, ...], tuple[str, ...]]


def _choices_of(plan: Plan, form: Form, strided: bool) -> _Choices | None:
    """The forms that a plan's kernel chooses from by the call's numbers, the names of these, and of those that a choice makes; None where
    machine code cannot choose."""
    choice, names = CHOICES.get(plan.kernel), tuple([own.option for own in plan.free])
    if strided:
        return [(form.formula, form.switches)], (), ()
    if choice is not None:
        known = not names or names[0] == choice.number
        return (choice.forms, names or (choice.number,), choice.made) if known else None
    served = plan.kernel not in TUNED and not {*names} & {*form.formula.switches}
    return ([(form.formula, form.switches)], names, ()) if served else None


def _emit_elements(
    pattern: Pattern, plan: Plan, own_form: Form, choices: _Choices | None, specs_of: Callable[[Form], Mapping[str, KernelSpec]],
    static: Mapping[str, int],
) -> tuple[Any, Mapping[Any, Any]]:  # fmt: skip
    """The same as `_emit` of a pattern of which each form has its kernels; what is told a kernel is by the form's place, too."""
    if choices is None or not can_be_emitted():
        return None, {}
    from openaclnn.engines.gpu.launchers.blocks import LauncherBlock
    from openaclnn.engines.gpu.launchers.code import MADE, SHARE, formula_entry_of
    from openaclnn.engines.gpu.launching.code import MAX_FORM_NUMBERS, MAX_FORMS, MAX_NUMBERS
    from openaclnn.engines.gpu.launching.native import word

    forms, numbers, made_names = choices
    longest = max(len(formula.numbers) for formula, _ in forms)
    if longest > MAX_FORM_NUMBERS or len(forms) > MAX_FORMS or len(numbers) > MAX_NUMBERS:
        return None, {}
    operands = len(plan.operands)
    # Any launches have the names of arguments and constexprs.
    launches = pattern.launch(Elements(1, static, sizes=(1,) * pattern.axes))
    params = {step.kernel: step for step in launches.steps}
    block = LauncherBlock(formula_entry_of(pattern, plan.kernel), operands, [*static.values()])
    block.take_numbers([plan.numbers[name] for name in numbers], 0)
    if launches.places:
        block.take_scratch(*scratch.functions())
    known = {name: place for place, name in enumerate(numbers)}
    known |= {name: place for place, name in enumerate(made_names, MADE)}
    if plan.reciprocal:
        known[plan.reciprocal] = SHARE
    fixed = {**plan.numbers, **dict(zip(own_form.formula.numbers, own_form.numbers, strict=True))}

    def floats_of(formula: Formula, name: str) -> list[bool]:
        found: list[bool] = []
        for own, number in params[name].args.items():
            if own == NUMBERS_ARGS:
                found += [True] * len(formula.numbers)
            elif own == STRIDES_ARGS:
                found += [False] * (operands - number) * pattern.axes
            else:
                found.append(False)
        return found

    ready: dict[Any, Any] = {}
    for index, (formula, switches) in enumerate(forms):
        sources = [known.get(name, -1) for name in formula.numbers]
        words = [
            word(float_of(fixed[name])) if source < 0 else 0
            for name, source in zip(formula.numbers, sources, strict=True)
        ]
        block.take_form(index, words, sources)
        specs = specs_of(Form(formula, (), switches))
        more = _enter_all(
            block, pattern, specs, index, functools.partial(floats_of, formula), lambda name, _: [*params[name].constexprs]
        )  # fmt: skip
        if more is None:
            return None, {}
        ready |= more
    return block, ready
