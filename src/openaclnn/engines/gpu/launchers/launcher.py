"""What is made of a launch function: the launches of one plan, or a runner of any sizes or strides and the builtin of that.

A launch function gets a `Geometry` and gives `Launches`. With ints it is called here; `code.py` calls it with values of machine code.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import triton

from openaclnn.core.plan import Plan, covered_elements
from openaclnn.engines.gpu.formulas.tuned import as_float
from openaclnn.engines.gpu.launchers.geometry import (
    FLOATS,
    KEY_WORDS,
    MISSING,
    Geometry,
    Launches,
    Launching,
    LaunchParams,
    Layout,
    Pattern,
    Targets,
    padded,
)
from openaclnn.engines.gpu.launchers.numbers import Number
from openaclnn.engines.gpu.launching import scratch
from openaclnn.engines.gpu.launching.launch import (
    VECTOR_BYTES,
    KernelSpec,
    Launch,
    PointerArg,
    unaligned,
)
from openaclnn.engines.gpu.launching.operands import INT32_LIMIT, ignored, table_of
from openaclnn.engines.gpu.launching.queues import NOT_SERVED, Queue, queue_of, remembered
from openaclnn.engines.gpu.launching.runners import runner_of
from openaclnn.engines.gpu.launching.steps import Runner

__all__ = [
    "StridedRunner",
    "any_strides",
    "as_planned",
    "bound",
    "can_be_emitted",
    "key_of",
    "rounded",
    "runner_of_pattern",
]


StridedRunner = Callable[[Sequence[int], int, Sequence[int], Sequence[int], Sequence[Any]], int]
"""Of addresses, a stream, the sizes of the positions' axes and, last, of the classes, each operand's strides along them one
after the other, and the plan's free numbers; without these, the plan's own hold. Not 0: it does not serve so many axes."""


def can_be_emitted() -> bool:
    """Whether machine code can call the driver."""
    if triton.knobs.runtime.interpret:
        return False
    try:
        from openaclnn.engines.gpu.launching import native
    except ImportError:  # no llvmlite
        return False
    return native.driver() is not None


@functools.cache
def _names(kernel: Any, pointers: int, constexprs: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Of a kernel's arguments behind the pointers, and of so many last constexprs."""
    names, first = (
        kernel.arg_names,
        next(n for n, own in enumerate(kernel.arg_names) if own.isupper()),
    )
    return tuple(names[pointers:first]), tuple(names[len(names) - constexprs :])


def in_order(
    spec: KernelSpec, step: LaunchParams
) -> tuple[int, tuple[int | float, ...], tuple[Any, ...], int]:
    """Grid, arguments, constexprs and warps, as the kernel takes them by place."""
    args, constexprs = _names(spec.kernel, len(spec.slots), len(step.constexprs))
    assert len(args) == len(step.args), (args, step.args)
    return (
        step.grid,
        tuple([step.args[name] for name in args]),
        tuple([step.constexprs[name] for name in constexprs]),
        step.warps,
    )


def rounded(numbers: Sequence[Any]) -> tuple[int | float, ...]:
    """A call's numbers as launch functions are told them."""
    first, *others = numbers
    return (int(first), *map(as_float, others))


def places_of(pattern: Pattern, plan: Plan) -> dict[str, int]:
    """Where a pattern's operands are among the plan's; -1 where there is none."""
    known = {own.parameter: place for place, own in enumerate(plan.operands)}
    known |= {name: place for place, name in enumerate(pattern.operands[: pattern.inputs])}
    known |= dict.fromkeys(("out", "gradients"), len(plan.inputs))
    return {name: known.get(name, -1) for name in pattern.operands}


def as_planned(pattern: Pattern, plan: Plan, axes: int) -> Layout:
    """The plan's own operands, on so many axes of positions."""
    strides: dict[str, tuple[Number, ...]] = dict.fromkeys(pattern.operands, (0,) * (axes + 1))
    for name, place in places_of(pattern, plan).items():
        if place >= 0:
            own = plan.operands[place]
            strides[name] = *padded(own.strides, axes, 0), own.class_stride
    return Layout(padded(plan.shape, axes, 1), plan.classes, strides)


def bound(
    launch: Launching, geometry: Geometry, specs: Mapping[str, KernelSpec], operands: int
) -> Runner:
    """The launches of one plan. Pointers behind those to so many operands lie in scratch memory."""
    asked = False

    def aligned(place: int) -> int:
        nonlocal asked
        asked = True
        return 0

    def launches_at(offset: Callable[[int], int]) -> tuple[list[LaunchParams], Launches]:
        found = launch(geometry._replace(offset=offset, few=False))
        return [step for step in found.steps if step.when], found

    steps, found = launches_at(aligned)

    def in_scratch(spec: KernelSpec) -> KernelSpec:
        def moved(slot: PointerArg | None) -> PointerArg | None:
            if slot is None or slot.place < operands:
                return slot
            return slot._replace(place=operands, shift=found.places[slot.place - operands])

        return spec._replace(slots=tuple(map(moved, spec.slots)))

    def launch_of(step: LaunchParams) -> Launch:
        spec = in_scratch(specs[step.kernel])
        return Launch(spec if step.aligned else unaligned(spec), *in_order(spec, step))

    def at(index: int, offsets: Sequence[int]) -> Launch:
        slots = specs[steps[index].kernel].slots
        off = {slot.place: own for slot, own in zip(slots, offsets, strict=True) if slot}
        return launch_of(launches_at(lambda place: off[place % operands])[0][index])

    launches = []
    for index, step in enumerate(steps):
        spec = specs[step.kernel]
        own = launch_of(step)._replace(
            spec=in_scratch(spec) if step.aligned or asked else unaligned(in_scratch(spec))
        )
        depends = asked and any(slot and slot.wide for slot in spec.slots)
        launches.append(own._replace(at=functools.partial(at, index)) if depends else own)
    return runner_of(launches, found.scratch)


class Emitted(NamedTuple):
    """The builtin of a pattern, and what is told each kernel of it, by its name and whether its addresses may be aligned."""

    made: Any = None
    ready: Mapping[Any, Any] = {}


def runner_of_pattern(
    pattern: Pattern, plan: Plan, specs: Mapping[str, KernelSpec], static: Mapping[str, int], numbers: Sequence[str],
) -> Callable[..., int]:  # fmt: skip
    """What runs a plan's kernels at any size, as `Pattern` says: a builtin, where there can be one."""
    own = rounded([plan.numbers[name] for name in numbers])
    walked = {
        name: _walked(plan, place, pattern.row_major is None)
        for name, place in places_of(pattern, plan).items()
    }
    emitted = _emit(pattern, plan, specs, static, walked, numbers)
    queues: dict[tuple[str, bool], Queue] = {
        (name, aligned): queue_of(
            spec if aligned else unaligned(spec), emitted.ready.get((name, aligned))
        )
        for name, spec in specs.items()
        for aligned in (False, True)
    }
    count, empty = len(plan.operands), (0,) * pattern.axes
    placed = [(name, place) for name, place in walked.items() if place < count]
    absent = {name: empty for name, place in walked.items() if place >= count}

    def laid(sizes: Sequence[int], strides: Sequence[int]) -> tuple[Layout, Targets]:
        table = table_of(strides, len(sizes))
        *shape, classes = padded(sizes, pattern.axes, 1)
        found = {name: padded(table[place], pattern.axes, 0) for name, place in placed}
        along = padded(padded(table[plan.targets], pattern.axes, 0)[:-1], 3, 0)
        targets = Targets(padded(shape, 3, 1), along, 3)
        return Layout(tuple(shape), classes, found | absent), targets

    def run(addresses: Sequence[int], stream: int, sizes: Sequence[int], *more: Any) -> int:
        given = more[-1]
        if given and len(given) != len(own):
            raise TypeError(f"{len(own)} positional numbers are expected, not {len(given)}")
        if pattern.row_major is not None:
            area = math.prod(sizes[2:])
            layout = pattern.row_major(sizes[:2], area, walked)
            targets = Targets((1, 1, sizes[0] * area), (0, 0, 1), 1)
        else:
            if len(sizes) > pattern.axes or (pattern.exactly and len(sizes) < pattern.axes):
                return NOT_SERVED
            layout, targets = laid(sizes, more[0])
        geometry = Geometry(
            layout, targets, static, rounded(given) if given else own,
            lambda place: addresses[place % count] % VECTOR_BYTES, pattern.row_major is None,
        )  # fmt: skip
        found = pattern.launch(geometry)
        with scratch.lent(found.scratch, stream) as memory:
            pointers = (*addresses, *[memory + at for at in found.places], 0)
            for step in found.steps:
                if step.when:
                    own_queue = queues[step.kernel, bool(step.aligned)]
                    own_queue(pointers, stream, *in_order(specs[step.kernel], step))
        return 0

    builtin: Callable[..., int] = run if emitted.made is None else emitted.made.function(run)
    return builtin


def _walked(plan: Plan, place: int, strided: bool) -> int:
    """Where an operand is among all; or whether it has a number for each position or class."""
    if strided:
        return MISSING if place < 0 else place
    # By what they are: strides of a plan of one row, or of one class, say nothing.
    return int(place >= 0 and plan.operands[place].role != "single")


def any_strides(
    plan: Plan, make: Callable[[Plan], StridedRunner], axes: int, few: int
) -> tuple[StridedRunner, int] | None:
    """What runs few elements of any strides, of so many positions' axes at most, and up to how many: as `make` has it."""
    offsets = any(own.offset for own in plan.operands)
    if len(plan.shape) > axes or covered_elements(plan) > few or offsets:
        return None
    return remembered(plan, make), few


def key_of(constexprs: Mapping[str, Any], warps: int, aligned: bool, astray: int) -> list[int]:
    """What tells the kernels of a launch apart, as words of machine code: four constexprs each, then a bit for each address that is off a
    vector's bounds."""
    several = [*(int(constexprs[name]) for name in sorted(constexprs)), warps, int(aligned)]
    several += [0] * (4 * (KEY_WORDS - 1) - len(several))
    words = [several[at : at + 4] for at in range(0, len(several), 4)]
    return [*(sum(own << 16 * n for n, own in enumerate(word)) for word in words), astray]


def _emit(
    pattern: Pattern, plan: Plan, specs: Mapping[str, KernelSpec], static: Mapping[str, int], walked: Mapping[str, int],
    numbers: Sequence[str],
) -> Emitted:  # fmt: skip
    if not can_be_emitted():
        return Emitted()
    from openaclnn.engines.gpu.launchers import blocks
    from openaclnn.engines.gpu.launchers.code import code_of

    facts = [*(walked[name] for name in pattern.operands), *(static[name] for name in pattern.static)]  # fmt: skip
    made = blocks.LauncherBlock(code_of(pattern), len(plan.operands), facts)
    first, *others = (plan.numbers[name] for name in numbers)
    made.take_numbers((min(ignored(first), INT32_LIMIT), *others), 1)
    if any(
        slot and slot.place >= len(plan.operands) for own in specs.values() for slot in own.slots
    ):
        made.take_sums(*scratch.functions())
    ready = {}
    for index, name in enumerate(pattern.kernels):
        if name not in specs:
            continue
        spec = specs[name]
        args, _ = _names(spec.kernel, len(spec.slots), 0)
        if not blocks.takes(spec.slots, len(args), numbers):
            return Emitted()
        made.take_step(index, spec.slots, len(args))
        floats = [own in FLOATS for own in args]
        for aligned in (False, True):
            keys = functools.partial(_key_of, spec, aligned)
            ready[name, aligned] = made.ready(index, keys, floats)
    return Emitted(made, ready)


def _key_of(
    spec: KernelSpec, aligned: bool, constexprs: tuple[Any, ...], warps: int, astray: int
) -> list[int]:
    _, names = _names(spec.kernel, len(spec.slots), len(constexprs))
    return key_of(dict(zip(names, constexprs, strict=True)), warps, aligned, astray)
