"""What launch functions are written in, what they get and what they give.

A launch follows from sizes and strides by one function, over numbers that are Python's or those of machine code being written: called with
ints it gives the launch itself, called with `engines.machine.values.Value`s it writes the code that gives it. Both arms of a `where` are
evaluated, so that divisors are 1 at least.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from operator import or_
from typing import Any, NamedTuple

from openaclnn.core.dtypes import float_of
from openaclnn.engines.gpu.formulas.tuned import Form
from openaclnn.engines.gpu.launching.launch import MAX_KEYS, VECTOR_BYTES, KernelSpec, Launch
from openaclnn.engines.machine.numbers import (
    Number,
    Truth,
    all_of,
    any_of,
    flag,
    least,
    most,
    where,
)

DIVISOR = 16  # the largest power of two that is looked for


def where_all(
    condition: Truth, yes: tuple[Number, ...], no: tuple[Number, ...]
) -> tuple[Number, ...]:
    """The same of several numbers at once."""
    if condition is True or condition is False:
        return yes if condition else no
    return tuple([where(condition, *pair) for pair in zip(yes, no, strict=True)])


def within(number: Number, table: Sequence[tuple[Number, tuple[Number, ...]]], beyond: tuple[Number, ...]) -> tuple[Number, ...]:  # fmt: skip
    """Of a table by limits, in order, what belongs to the first that a number does not exceed."""
    for limit, several in reversed(table):
        beyond = where_all(number <= limit, several, beyond)
    return beyond


def clamp(number: Number, low: Number, high: Number) -> Number:
    return most(least(number, high), low)


def power_of_two_divisor(*numbers: Number) -> Number:
    """The largest power of two up to 16 that divides all numbers.

    Kernels get numbers divided by it and multiply again: the compiler then knows the factor, which
    it must for vector access, and there are five variants at most instead of two per argument.
    """
    written = [number for number in numbers if number.__class__ is not int]
    if not written:
        return math.gcd(DIVISOR, *numbers)
    bits = written[0] | math.gcd(
        DIVISOR, *(number for number in numbers if number.__class__ is int)
    )
    for number in written[1:]:
        bits = bits | number
    return bits & -bits


def power_of_two_above(number: Number, limit: int) -> Number:
    """The least power of two that is not below a number, but no more than the limit, which is one."""
    if number.__class__ is int:
        return min(1 << (number - 1).bit_length(), limit)
    power: Number = 1
    for _ in range(limit.bit_length() - 1):
        power = where(number > power, power * 2, power)
    return power


IGNORED, INTEGERS = "ignore_index", frozenset(("ignore_index", "first_class"))
"""Of the numbers that calls may tell; the others are FLOATs."""


def told_numbers(names: Sequence[str], numbers: Mapping[str, Any]) -> dict[str, Number]:
    """Those of a call as launch functions are told them."""
    told = {name: int(numbers[name]) if name in INTEGERS else float_of(numbers[name]) for name in names}  # fmt: skip
    if IGNORED in told:
        told[IGNORED] = ignored(told[IGNORED])
    return told


def ignored(ignore_index: Number) -> Number:
    """The ignored class as kernels are told it: what names no class is ignored anyway, so all negative numbers become one, of 32 bits."""
    return most(ignore_index, -1)


MISSING = 16
"""The place of an operand that a plan lacks, behind all others: its strides are 0."""


TARGET_AXES = 3  # that kernels walk where they add up what targets weigh


class Targets(NamedTuple):
    """The positions of targets on three axes, their strides, and how many of these axes are walked."""

    shape: tuple[Number, Number, Number]
    strides: tuple[Number, Number, Number]
    axes: int


NO_TARGETS = Targets((1, 1, 1), (0, 0, 0), 0)


class Layout(NamedTuple):
    """Where elements lie: the positions' axes, how many classes there are, and each operand's strides by its name, along positions
    and then classes; 0 where it lacks an axis, or is missing."""

    shape: tuple[Number, ...]
    classes: Number
    strides: Mapping[str, tuple[Number, ...]]


class Geometry(NamedTuple):
    """What a launch follows from: ints, or values of the code being written."""

    layout: Layout
    targets: Targets
    static: Mapping[str, Number]  # what the plan decides whatever its sizes
    numbers: Mapping[str, Number]  # of the call
    offset: Callable[[int], Number]  # how far an operand's address is off a vector's bounds
    strided: bool = False  # one kernel for all strides: nothing is chosen for a layout
    few: bool = True  # one kernel for all sizes of few elements


class Elements(NamedTuple):
    """What a launch over all elements follows from: ints, or values of the code being written."""

    count: Number
    static: Mapping[str, Number]
    misaligned: Truth = False  # an address that is read or written by vectors is off their bounds
    same_offset: Truth = True  # all of these are equally far off, or none is
    in_a_row: Truth = True  # of any strides: one axis, with a step of 1 for every input
    sizes: tuple[Number, ...] = ()  # of any strides
    few: bool = True  # one kernel for few elements wherever they lie
    numbers: tuple[float, ...] = ()  # of the form; machine code knows where they are
    strides: tuple[int, ...] = ()  # every operand's along all axes


class LaunchParams(NamedTuple):
    """One launch of a kernel, all but its addresses: what the launch function calls the kernel, its arguments and constexprs by their names."""

    kernel: Any
    grid: Number
    args: Mapping[str, Number]
    constexprs: Mapping[str, Number]
    warps: Number
    when: Truth = True  # whether there is such a launch
    aligned: Truth = True  # False: no address is taken as aligned, even if it is


class Launches(NamedTuple):
    """Launches in order, and the memory between them."""

    steps: Sequence[LaunchParams]
    scratch: Number = 0  # bytes
    places: tuple[Number, ...] = ()  # in it, of the pointers behind those to operands


def launch_of(spec: KernelSpec, step: LaunchParams, g: Geometry | Elements | None = None) -> Launch:
    """A launch of a kernel, each argument by the name that the kernel has for it; a formula's kernel has numbers and strides beside them."""
    names, constexprs = spec.names
    args = step.args
    if isinstance(g, Elements):
        numbers, strides = iter(g.numbers), iter(g.strides)
        args = {**{name: next(numbers if is_float(name) else strides) for name in names if name not in args}, **args}  # fmt: skip
    else:
        assert len(names) == len(args), (names, args)
    return Launch(
        spec, step.grid, tuple([args[name] for name in names]), tuple([step.constexprs[name] for name in constexprs]), step.warps,
        bool(step.aligned),
    )  # fmt: skip


FLOATS = frozenset(("smoothing", "zloss_scale"))


def is_float(argument: str) -> bool:
    """Whether a kernel's argument is a FLOAT, as a formula's numbers are; the others are integers."""
    return argument in FLOATS or argument.startswith("number_")


Specs = Mapping[Any, KernelSpec]  # by the names that launches have for kernels


class Kind(NamedTuple):
    """Calls of one kernel that differ in sizes, or in strides, and in numbers: the launch function, and what they have in common. Machine code is written from that,
    but for what a plan decides, which it reads at run time; `name` tells it from all other."""

    name: str
    launch: Callable[[Any], Launches]
    kernels: Mapping[Any, Any]  # Triton's, in the order of launches
    known: Mapping[str, int]
    """What the plan decides: of the roles, the operand's place or, if operands are row-major, whether it has a number for each position or class; then what else."""
    numbers: Sequence[str]  # the names of those that calls may tell
    specs: Sequence[Specs]  # of each of the forms, of which kernels with a class axis have one
    geometry: Callable[[Call, Sequence[Any]], tuple[Geometry | Elements, Specs, int]]
    """Of a call and its numbers, none of which means the plan's own; with the kernels, and which of the forms they are, or -1 where they are of none."""
    axes: int = 0  # of a call's sizes: so many, or for strides at most; 0: any, past the classes'
    limit: int = 0  # elements of any strides, which are told in the call; 0: operands are row-major
    forms: Sequence[Form] = ()
    roles: Mapping[str, str] = {}  # with a class axis: of the operands whose strides it asks for
    positions: int = 0  # axes of positions in the layouts of these

    @property
    def whole(self) -> int:
        """How many of a call's numbers are integers, the first ones."""
        return sum(name in INTEGERS for name in self.numbers)

    @property
    def least_axes(self) -> int:
        """Of any strides: with a class axis, those of rows are as many as there can be, and others may lack some."""
        return self.axes if self.positions == 1 else 0

    @property
    def takes_numbers(self) -> bool:
        """Whether calls tell numbers, if only that they are the plan's own: not those of formulas of any strides."""
        return bool(self.roles or not self.limit)


CLASS_AXIS = "class_axis"
"""What the plan decides: the classes' axis in the shape of row-major operands; without it, the second."""


class Call:
    """A call of ints, which a geometry is read from, as from the code of a builtin being written."""

    def __init__(
        self,
        kind: Kind,
        addresses: Sequence[int],
        sizes: Sequence[int],
        strides: Sequence[int] = (),
    ) -> None:
        self.kind, self._addresses, self._sizes = kind, addresses, sizes
        self.table = table_of(strides, len(sizes), kind.axes)  # each operand's strides

    @property
    def axes(self) -> int:
        """How many sizes it has."""
        return len(self._sizes)

    def known(self, name: str) -> int:
        """What the plan decides."""
        return self.kind.known[name]

    def static(self) -> Mapping[str, int]:
        """The same beside operands, by name."""
        return self.kind.known

    def size(self, axis: int) -> int:
        return self._sizes[axis]

    def product(self, start: int, stop: int) -> int:
        """How many elements there are along some axes."""
        return math.prod(self._sizes[start:stop])

    def sizes(self) -> tuple[int, ...]:
        """Of as many axes as the kind has; missing ones come first."""
        return tuple(padded(self._sizes, self.kind.axes, 1))

    def strides(self, name: str) -> tuple[int, ...]:
        """The same of an operand's strides."""
        place = self.known(name)
        return (0,) * self.kind.axes if place == MISSING else self.table[place]

    def in_a_row(self) -> bool:
        """Whether inputs have one axis, and a step of 1 along it."""
        return self.axes == 1 and {strides[-1] for strides in self.table[:-1]} == {1}

    def offset(self, place: int) -> int:
        """How far an operand's address is off a vector's bounds."""
        return self._addresses[place] % VECTOR_BYTES


def geometry_of(call: Any, numbers: Mapping[str, Number]) -> Geometry:
    """That of a kernel with a class axis."""
    kind, static = call.kind, call.static()
    if kind.limit:
        *shape, classes = call.sizes()
        layout = Layout(tuple(shape), classes, {name: call.strides(name) for name in kind.roles})
        along = layout.strides[next(iter(kind.roles))][:-1]
        targets = Targets(padded(shape, TARGET_AXES, 1), padded(along, TARGET_AXES, 0), TARGET_AXES)
    else:
        axis = static.get(CLASS_AXIS, 1)
        before, behind = call.product(0, axis), call.product(axis + 1, call.axes)
        each = {name: call.known(name) for name in kind.roles}
        layout = row_major(kind.positions, kind.roles, before, call.size(axis), behind, each)
        targets = Targets((1, 1, before * behind), (0, 0, 1), 1)
    return Geometry(layout, targets, static, numbers, call.offset, kind.limit > 0)


def elements_of(call: Any, misaligned: Truth, same_offset: Truth, *more: Any) -> Elements:
    """That of a formula's kernel."""
    sizes, count = call.sizes() if call.kind.limit else (), call.product(0, call.axes)
    in_a_row = call.in_a_row() if call.kind.limit else True
    return Elements(count, call.static(), misaligned, same_offset, in_a_row, sizes, True, *more)


def row_major(
    axes: int, roles: Mapping[str, str], before: Number, classes: Number, behind: Number, each: Mapping[str, Number]
) -> Layout:  # fmt: skip
    """The layout of row-major operands over so many axes of positions, of which so many are before the classes and behind; `each` says which operands
    have a number for each position or class."""
    shape: tuple[Number, ...]
    walks: dict[str, tuple[Number, ...]]
    if axes == 1:
        shape = (before,)
        walks = {"full": (classes, 1), "positions": (1, 0), "classes": (0, 1)}
    elif axes == 2:
        shape = before, behind
        walks = {"full": (classes * behind, 1, behind), "positions": (behind, 1, 0), "classes": (0, 0, 1)}  # fmt: skip
    else:
        # As plans merge axes (`core.plan.row_major_strides`), so that launches are theirs: images of a pixel each are the pixels of one that has its
        # classes side by side, and one class of all images is a plane.
        count, several = before * behind, flag(classes > 1)
        merged = any_of(before == 1, behind == 1, classes == 1)
        second, pixel = where(merged, 0, behind), flag(count > 1)
        dots = all_of(behind == 1, before > 1)
        shape = 1, where(merged, 1, before), where(merged, count, behind)
        walks = {
            "full": (0, second * classes, where(dots, classes, pixel), behind * several), "positions": (0, second, pixel, 0),
            "classes": (0, 0, 0, several),
        }  # fmt: skip
    strides = {
        name: walks[role]
        if role == "full"
        else tuple(stride * each[name] for stride in walks[role])
        for name, role in roles.items()
    }
    return Layout(shape, classes, strides)


NUMBERS_ARGS, STRIDES_ARGS = "*numbers", "*strides"
"""Stand for several arguments: the form's numbers; every operand's strides, but for so many last ones."""


def key_words(constexprs: Mapping[str, Number], form: Number, warps: Number, aligned: Number) -> list[Number]:  # fmt: skip
    """What tells the kernels of a launch apart, four numbers in a word; one more word tells which addresses are off a vector's bounds."""
    several = [*(constexprs[name] for name in sorted(constexprs)), form, warps, aligned]
    assert len(several) <= MAX_KEYS, constexprs
    return [
        functools.reduce(or_, [number << 16 * place for place, number in enumerate(several[at : at + 4])], 0)
        for at in range(0, MAX_KEYS, 4)
    ]  # fmt: skip


def padded(several: Sequence[Number], count: int, missing: int) -> Any:
    """So many numbers; what is missing comes before the others."""
    return (*(missing,) * (count - len(several)), *several)


def table_of(strides: Sequence[int], axes: int, depth: int) -> list[tuple[int, ...]]:
    """Each operand's strides along so many axes, of all one after the other; over a greater depth the missing ones are 0."""
    return [padded(strides[at : at + axes], depth, 0) for at in range(0, len(strides), axes)]
