"""What is made of a launch function: the launches of one plan, or a runner of any sizes or of any strides and the builtin of that.

A launch function gets a `Geometry`, or `Elements`, and gives `Launches`. With ints it is called here; `code.py` calls it with values of
machine code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import triton

from openaclnn.core.dtypes import float_of
from openaclnn.core.plan import Plan, collapse, covered_elements, row_major_walks
from openaclnn.engines.gpu.formulas.tuned import CHOICES, TUNED, Form, form_of
from openaclnn.engines.gpu.launchers.geometry import (
    MISSING,
    NO_TARGETS,
    Elements,
    Geometry,
    Launches,
    Launching,
    Layout,
    Pattern,
    Targets,
    geometry_of,
    launch_of,
    padded,
)
from openaclnn.engines.gpu.launching.launch import (
    VECTOR_BYTES,
    KernelSpec,
    Launch,
    PointerArg,
    table_of,
)
from openaclnn.engines.gpu.launching.runners import (
    NOT_SERVED,
    DynamicShapes,
    Queue,
    Runner,
    key_of,
    queue_all,
    queue_of,
    remembered,
    runner_of,
)
from openaclnn.engines.machine.numbers import Number

DynamicStrides = Callable[..., int]
"""Of addresses, a stream, the sizes of all axes, each operand's strides along them one after the other and, with a class axis, which is the
last then, the plan's free numbers; without these, the plan's own hold. Not 0: it does not serve so many axes."""


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


class PatternLauncher(Launcher):
    """Whose launches of any sizes or strides follow from these by a launch function."""

    limit: int  # elements of any strides; 0: they are not served
    positions: int  # axes of any strides
    lies_so: Callable[[Plan], bool]  # whether a plan's operands are row-major

    def dynamic(self, plan: Plan, strided: bool) -> Callable[..., int]:
        """What queues the plan's kernels at any size, or with any strides: a builtin, where there can be one."""
        raise NotImplementedError

    def dynamic_shapes(self, plan: Plan) -> DynamicShapes | None:
        return remembered(plan, self.dynamic) if self.lies_so(plan) else None

    def dynamic_strides(self, plan: Plan) -> tuple[DynamicStrides, int] | None:
        served = len(plan.shape) <= self.positions and covered_elements(plan) <= self.limit
        if not served or any(operand.offset for operand in plan.operands):
            return None
        return remembered(plan, self.dynamic, strided=True), self.limit


def can_be_emitted() -> bool:
    """Whether machine code can call the driver."""
    if triton.knobs.runtime.interpret:
        return False
    try:
        from openaclnn.engines.gpu.launching import native
    except ImportError:  # no llvmlite
        return False
    return native.driver() is not None


def lies_row_major(plan: Plan, images: int, pixels: int) -> bool:
    """Whether the operands of a plan with classes lie as those of a row-major output of (images, classes, pixels)."""
    merged, walks = row_major_walks(images, plan.classes, pixels)
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


# The launches of one plan.

Specs = Mapping[str, KernelSpec]  # by the names that launches have for kernels


def bound(
    launch: Callable[[Any], Launches], geometry_at: Callable[[Callable[[int], int]], Any], specs: Specs, operands: int
) -> Runner:  # fmt: skip
    """The launches of one plan, whose geometry may ask how far an operand's address is off a vector's bounds. Pointers behind those to so
    many operands lie in scratch memory."""
    asked = False

    def aligned(place: int) -> int:
        nonlocal asked
        asked = True
        return 0

    def launches_at(offset: Callable[[int], int]) -> tuple[list[Launch], int]:
        g = geometry_at(offset)
        launches, beside = launch(g), _beside(g)
        steps = [step for step in launches.steps if step.when]
        moved = [_in_scratch(specs[step.kernel], operands, launches.places) for step in steps]
        return [
            launch_of(*pair, beside) for pair in zip(moved, steps, strict=True)
        ], launches.scratch

    launches, scratch = launches_at(aligned)
    if not asked:
        return runner_of(launches, scratch)
    return runner_of(
        launches, scratch, lambda offsets: launches_at(lambda place: offsets.get(place, 0))[0]
    )


def _in_scratch(spec: KernelSpec, operands: int, places: Sequence[int]) -> KernelSpec:
    """The same with one address behind those to operands, from which pointers begin at these places."""
    slots = [
        slot and (slot if slot.place < operands else slot._replace(place=operands, shift=places[slot.place - operands]))
        for slot in spec.slots
    ]  # fmt: skip
    return spec._replace(slots=tuple(slots))


def _beside(g: Geometry | Elements) -> Elements | None:
    return g if isinstance(g, Elements) else None


def _offsets_of(
    slots: Sequence[PointerArg | None], offset: Callable[[int], int]
) -> tuple[bool, bool]:
    """Whether an address is off a vector's bounds where that matters, and whether all of these are, equally far."""
    offsets = {offset(slot.place) for slot in slots if slot and slot.wide}
    return bool(offsets - {0}), len(offsets) < 2


# Launches whose sizes are told in the call.

Queues = Mapping[str, tuple[KernelSpec, Queue]]


def _queues_of(specs: Specs, block: Any, form: int = 0) -> Queues:
    """By the kernel's name; what they find is entered into a block, if there is one."""
    return {
        name: (spec, queue_of(spec, block and block.ready(name, spec, form)))
        for name, spec in specs.items()
    }


def _run(
    launch: Callable[[Any], Launches],
    g: Geometry | Elements,
    queues: Queues,
    addresses: Sequence[int],
    stream: int,
) -> int:
    launches, beside = launch(g), _beside(g)
    steps = []
    for step in launches.steps:
        if step.when:
            spec, queue = queues[step.kernel]
            queued = launch_of(spec, step, beside)
            steps.append((queue, queued, key_of(queued)))
    return queue_all(steps, addresses, stream, 0, launches.scratch, launches.places)


def _block_of(
    pattern: Pattern, kernel: str, plan: Plan, static: Sequence[int], numbers: Sequence[str], forms: Sequence[Specs]
) -> Any:  # fmt: skip
    """The block of the builtin for a pattern, and a kernel's formula, if it has one; None where there can be none."""
    if not can_be_emitted():
        return None
    from openaclnn.engines.gpu.launchers.code import LauncherBlock

    block = LauncherBlock(pattern, kernel, len(plan.operands), static)
    fits = block.take_numbers([plan.numbers[name] for name in numbers])
    return block if fits and all(block.take_kernels(specs) for specs in forms) else None


# Kernels with a class axis.

IGNORED, FIRST_CLASS = "ignore_index", "first_class"


def _rounded(numbers: Sequence[Any], whole: int) -> tuple[int | float, ...]:
    """A call's numbers as launch functions are told them: so many integers, then FLOATs."""
    return (*map(int, numbers[:whole]), *map(float_of, numbers[whole:]))


@dataclass(frozen=True, eq=False)
class ClassLauncher(PatternLauncher):
    """How a kernel with a class axis is launched."""

    name: str
    launch: Launching
    kernels: Mapping[str, Any]  # Triton's, in the order of launches
    roles: Mapping[str, str]
    """Of the operands whose strides the launch asks for: first inputs by their places, then others by what the plan calls them, and "out"."""
    inputs: int  # how many of these go by their places
    numbers: tuple[str, ...]  # of which the first is an integer, if it is one of targets
    positions: int  # axes: 1 for rows, 3 for images
    specs: Callable[..., Mapping[str, KernelSpec]]
    """Of a plan, and how many elements off its targets begin."""
    static: Callable[[Plan], Mapping[str, int]]
    lies_so: Callable[[Plan], bool]
    limit: int = 0
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
            self.specs(plan, begin),
            len(plan.operands),
        )

    def few(self, plan: Plan) -> tuple[int, ...] | None:
        if len(plan.shape) > min(self.positions, 2) or covered_elements(plan) > self.few_elements:
            return None
        if self.positions == 1:
            return *plan.shape, plan.classes
        images, area = (1, *plan.shape)[-2:]
        return images, plan.classes, 1, area

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
        known = {operand.parameter: place for place, operand in enumerate(plan.operands)}
        known |= {name: place for place, name in enumerate([*self.roles][: self.inputs])}
        known["out"] = len(plan.inputs)
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

    def dynamic(self, plan: Plan, strided: bool) -> Callable[..., int]:
        planned, specs, static = self._numbers_of(plan), self.specs(plan), self.static(plan)
        name, axes = self.name, 2 if self.positions == 1 else 0
        if strided:
            name, axes = f"{name}.strided", self.positions + 1
        pattern = Pattern(
            name, self.launch, self.kernels, tuple(static), axes, self.limit if strided else 0, self.roles, self.positions, self.whole
        )  # fmt: skip
        walked = {name: _walked(plan, place, strided) for name, place in self._places(plan).items()}
        known = {**walked, **static}
        block = _block_of(pattern, "", plan, [*known.values()], self.numbers, [specs])
        queues = _queues_of(specs, block)

        def run(addresses: Sequence[int], stream: int, sizes: Sequence[int], *more: Any) -> int:
            *strides, numbers = more
            if numbers and len(numbers) != len(planned):
                expected = f"{len(planned)} positional numbers are expected"
                raise TypeError(f"{expected}, not {len(numbers)}")
            if strided and not (axes if self.positions == 1 else 0) <= len(sizes) <= axes:
                return NOT_SERVED
            call = _Call(pattern, known, addresses, sizes, *strides)
            geometry = geometry_of(call, _rounded(numbers, self.whole) if numbers else planned)
            return _run(self.launch, geometry, queues, addresses, stream)

        return run if block is None else block.function(run)


class _Call:
    """A call of ints."""

    def __init__(
        self, pattern: Pattern, known: Mapping[str, int], addresses: Sequence[int], sizes: Sequence[int], strides: Sequence[int] = ()
    ) -> None:  # fmt: skip
        self.pattern, self.axes, self.known = pattern, len(sizes), known.__getitem__
        self._addresses, self._sizes, self._strides = (
            addresses,
            sizes,
            table_of(strides, len(sizes)),
        )

    def size(self, axis: int) -> int:
        return self._sizes[axis]

    def product(self, start: int, stop: int) -> int:
        return math.prod(self._sizes[start:stop])

    def sizes(self) -> tuple[int, ...]:
        return tuple(padded(self._sizes, self.pattern.axes, 1))

    def strides(self, name: str) -> tuple[int, ...]:
        place = self.known(name)
        return tuple(padded(() if place == MISSING else self._strides[place], self.pattern.axes, 0))

    def offset(self, place: int) -> int:
        return self._addresses[place] % VECTOR_BYTES


def _walked(plan: Plan, place: int, strided: bool) -> int:
    """Where an operand is among all; or whether it has a number for each position or class."""
    if strided:
        return MISSING if place < 0 else place
    # By what they are: strides of a plan of one row, or of one class, say nothing.
    return int(place >= 0 and plan.operands[place].role != "single")


# Kernels that are made from formulas.


class FormulaLauncher(PatternLauncher):
    """How a formula's kernels are launched: over elements that lie in a row, or of any strides."""

    sized: Pattern
    strided: Pattern

    def lies_in_a_row(self, plan: Plan) -> bool:
        """Whether elements lie side by side, or are one for all."""
        raise NotImplementedError

    def specs(self, plan: Plan, form: Form, strided: bool) -> Specs:
        raise NotImplementedError

    def static(self, plan: Plan, strided: bool) -> Mapping[str, int]:
        raise NotImplementedError

    def lies_so(self, plan: Plan) -> bool:
        # One element is no pattern: it may lie for one or for all.
        offsets = any(operand.offset for operand in plan.operands)
        return self.lies_in_a_row(plan) and plan.shape != (1,) and not offsets

    def bound(self, plan: Plan, specs: Specs, g: Elements, strided: bool = False) -> Runner:
        """The launches of one plan."""
        slots = next(iter(specs.values())).slots

        def at(offset: Callable[[int], int]) -> Elements:
            misaligned, same = _offsets_of(slots, offset)
            return g._replace(misaligned=misaligned, same_offset=same, few=False)

        pattern = self.strided if strided else self.sized
        return bound(pattern.launch, at, specs, len(plan.operands))

    def dynamic(self, plan: Plan, strided: bool) -> Callable[..., int]:
        """With any numbers, or of any strides with the plan's own."""
        pattern, static = self.strided if strided else self.sized, self.static(plan, strided)
        own_form, axes = form_of(plan), pattern.axes
        slots = next(iter(self.specs(plan, own_form, strided).values())).slots
        forms, numbers, derived = _choices_of(plan, own_form, strided)
        block = None
        if forms:
            several = [self.specs(plan, form, strided) for form in forms]
            block = _block_of(pattern, plan.kernel, plan, [*static.values()], numbers, several)
        if block is not None:
            of_form = dict(zip(own_form.formula.numbers, own_form.numbers, strict=True))
            names = [form.formula.numbers for form in forms]
            fits = block.take_forms(names, {**plan.numbers, **of_form}, numbers, derived, plan.reciprocal)  # fmt: skip
            block = block if fits else None
        indices = {(form.formula.name, form.switches): place for place, form in enumerate(forms)}
        options = [number.option for number in plan.free]
        known: dict[tuple[str, tuple[bool, ...]], Queues] = {}

        def queues_of(form: Form) -> Queues:
            key = form.formula.name, form.switches
            if key not in known:
                index = indices.get(key, -1)
                specs = self.specs(plan, form, strided)
                known[key] = _queues_of(specs, None if index < 0 else block, index)
            return known[key]

        def run(
            addresses: Sequence[int], stream: int, sizes: Sequence[int], more: Sequence[Any]
        ) -> int:
            if strided and len(sizes) > axes:
                return NOT_SERVED
            form = own_form
            if more and not strided:
                form = form_of(plan, {**plan.numbers, **dict(zip(options, more, strict=False))})
            count, numbers = math.prod(sizes), form.numbers
            if plan.reciprocal:  # one over the count
                share = form.formula.numbers.index(plan.reciprocal)
                numbers = (*numbers[:share], float_of(1.0 / count), *numbers[share + 1 :])
            if strided:
                table = [padded(strides, axes, 0) for strides in table_of(more, len(sizes))]
                g = Elements(
                    count, static, in_a_row=len(sizes) == 1 and {strides[-1] for strides in table[:-1]} == {1}, sizes=padded(sizes, axes, 1),
                    numbers=numbers, strides=tuple(chain(*table)),
                )  # fmt: skip
            else:
                off = _offsets_of(slots, lambda place: addresses[place] % VECTOR_BYTES)
                g = Elements(count, static, *off, numbers=numbers)
            return _run(pattern.launch, g, queues_of(form), addresses, stream)

        return run if block is None else block.function(run)


def _choices_of(
    plan: Plan, form: Form, strided: bool
) -> tuple[Sequence[Form], Sequence[str], Sequence[str]]:
    """The forms that a plan's kernel chooses from by the call's numbers, the names of these, and of those that a choice makes; no form where
    machine code cannot choose."""
    choice, names = CHOICES.get(plan.kernel), tuple([number.option for number in plan.free])
    if strided:
        return [form], (), ()
    if choice is not None and (not names or names[0] == choice.number):
        forms = [Form(formula, (), switches) for formula, switches in choice.forms]
        return forms, names or (choice.number,), choice.derived
    if choice is not None or plan.kernel in TUNED or {*names} & {*form.formula.switches}:
        return [], (), ()
    return [form], names, ()
