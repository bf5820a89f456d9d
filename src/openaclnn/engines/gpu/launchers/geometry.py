"""The inputs of launch functions (`Geometry`, `Elements`), their result (`Launches`), and helpers to write them with.

A launch function computes launches from sizes and strides. Called with ints it returns the launches themselves; called with `engines.machine.values.Value`s
it writes machine code that computes them at each call. Both arms of a `where` are evaluated, so a divisor must be at least 1 in the arm that is not taken, too.
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
    """`where` for each number of two tuples."""
    if condition is True or condition is False:
        return yes if condition else no
    return tuple([where(condition, *pair) for pair in zip(yes, no, strict=True)])


def entry_within(number: Number, table: Sequence[tuple[Number, tuple[Number, ...]]], beyond: tuple[Number, ...]) -> tuple[Number, ...]:  # fmt: skip
    """The entry of the first limit in a table of rising (limit, entry) that a number does not exceed; `beyond` if it exceeds all."""
    for limit, entry in reversed(table):
        beyond = where_all(number <= limit, entry, beyond)
    return beyond


def clamp(number: Number, low: Number, high: Number) -> Number:
    return most(least(number, high), low)


def power_of_two_divisor(*numbers: Number) -> Number:
    """The largest power of two up to 16 that divides all numbers.

    Kernels get numbers divided by it and multiply again: the compiler then knows the factor, which
    it must for vector access, and there are five variants at most instead of two per argument.
    """
    values = [number for number in numbers if number.__class__ is not int]
    if not values:
        return math.gcd(DIVISOR, *numbers)
    bits = values[0] | math.gcd(DIVISOR, *(number for number in numbers if number.__class__ is int))
    for number in values[1:]:
        bits = bits | number
    return bits & -bits


def power_of_two_above(number: Number, limit: int) -> Number:
    """The least power of two that is not below a number, but no more than the limit, itself a power of two."""
    if number.__class__ is int:
        return min(1 << (number - 1).bit_length(), limit)
    power: Number = 1
    for _ in range(limit.bit_length() - 1):
        power = where(number > power, power * 2, power)
    return power


IGNORED, INTEGERS = "ignore_index", frozenset(("ignore_index", "first_class"))
"""The names of a call's numbers that are integers; the others are FLOATs."""


def launch_numbers(names: Sequence[str], numbers: Mapping[str, Any]) -> dict[str, Number]:
    """A call's numbers, by name, as launch functions take them."""
    told = {name: int(numbers[name]) if name in INTEGERS else float_of(numbers[name]) for name in names}  # fmt: skip
    if IGNORED in told:
        told[IGNORED] = ignored_class(told[IGNORED])
    return told


def ignored_class(ignore_index: Number) -> Number:
    """The ignored class as kernels take it: targets that name no class are ignored anyway, so all negative numbers become -1, which fits into 32 bits."""
    return most(ignore_index, -1)


MISSING = 16
"""The index of an operand that a plan lacks; it lies behind all others in the table of strides, where its strides are 0."""


TARGET_AXES = 3  # axes of targets that kernels walk where they add up the weights of all targets


class Targets(NamedTuple):
    """The positions of targets on three axes, their strides, and how many of these axes are walked."""

    shape: tuple[Number, Number, Number]
    strides: tuple[Number, Number, Number]
    axes: int


NO_TARGETS = Targets((1, 1, 1), (0, 0, 0), 0)


class Layout(NamedTuple):
    """Sizes and strides of a kernel with a class axis: the sizes of the positions' axes, the number of classes, and each operand's strides by its name, along
    positions and then classes. A stride is 0 where the operand lacks the axis, or the plan lacks the operand."""

    shape: tuple[Number, ...]
    classes: Number
    strides: Mapping[str, tuple[Number, ...]]


class Geometry(NamedTuple):
    """What launches of a kernel with a class axis are computed from. Numbers are ints, or values of the code being written."""

    layout: Layout
    targets: Targets
    static: Mapping[str, Number]  # static parameters: decided by the plan whatever its sizes
    numbers: Mapping[str, Number]  # the call's numbers
    offset: Callable[[int], Number]  # by how many bytes an operand's address is misaligned
    strided: bool = False  # dynamic strides: one kernel serves all, none is chosen for a layout
    share_small: bool = True  # small problems of all sizes share one compiled kernel


class Elements(NamedTuple):
    """What launches of an elementwise formula are computed from. Numbers are ints, or values of the code being written."""

    count: Number
    static: Mapping[str, Number]
    misaligned: Truth = False  # whether an address that is read or written by vectors is misaligned
    same_offset: Truth = True  # whether all such addresses are misaligned by the same bytes
    flat_inputs: Truth = True  # whether there is one axis, along which every input has stride 1
    sizes: tuple[Number, ...] = ()  # of all axes; empty where operands are contiguous
    share_small: bool = True  # small problems share one compiled kernel, whatever their alignment
    numbers: tuple[float, ...] = ()  # the form's; none for machine code, which reads them itself
    strides: tuple[int, ...] = ()  # every operand's along all axes; none for machine code, too


class LaunchParams(NamedTuple):
    """One launch of a kernel without its addresses: the launch function's key for the kernel, its arguments and constexprs by their names."""

    kernel: Any
    grid: Number
    args: Mapping[str, Number]
    constexprs: Mapping[str, Number]
    warps: Number
    when: Truth = True  # whether the launch takes place
    aligned: Truth = True  # False: launch the variant for misaligned addresses in any case


class Launches(NamedTuple):
    """Launches in order, and the scratch memory that they share."""

    steps: Sequence[LaunchParams]
    scratch: Number = 0  # bytes
    scratch_offsets: tuple[Number, ...] = ()  # bytes; of its pointers, behind those to operands


def launch_of(spec: KernelSpec, step: LaunchParams, g: Geometry | Elements | None = None) -> Launch:
    """`step` with its arguments and constexprs in the kernel's order; those of a formula's kernel that `step` does not name are the numbers and strides of `g`."""
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


Specs = Mapping[Any, KernelSpec]  # by the keys that launch functions have for kernels


class DynamicLaunch(NamedTuple):
    """The launch of one kernel with dynamic shapes or dynamic strides: the launch function, and what its calls have in common, whatever their sizes, strides and numbers.

    Machine code is written from it once for each `name`; the values of `static` differ between plans of one name, so the code reads them at run time."""

    name: str
    launch: Callable[[Any], Launches]
    kernels: Mapping[Any, Any]  # Triton's, in the order of launches
    static: Mapping[str, int]
    """Static parameters. Of an operand: its index or, if operands are row-major, whether it varies along the axes of its role (1) or is one element (0)."""
    numbers: Sequence[str]  # the names of the numbers that a call may pass
    specs: Sequence[Specs]  # for each of the forms; kernels with a class axis have one
    geometry: Callable[[Call, Sequence[Any]], tuple[Geometry | Elements, Specs, int]]
    """From a call and its numbers (no numbers: the plan's), the launch function's input, the kernels, and the index of their form in `forms`, -1 if it is not there."""
    axes: int = 0  # of a call: exactly so many, at most with dynamic strides; 0: any number
    limit: int = 0  # elements that dynamic strides serve; 0: operands are row-major
    forms: Sequence[Form] = ()
    roles: Mapping[str, str] = {}  # with a class axis: the roles of the operands, by name
    position_axes: int = 0  # with a class axis: how many other axes a layout has

    @property
    def integer_count(self) -> int:
        """How many of a call's numbers are integers; they come first."""
        return sum(name in INTEGERS for name in self.numbers)

    @property
    def min_axes(self) -> int:
        """How many axes a call with dynamic strides has at least: rows have exactly `axes`, others may have fewer."""
        return self.axes if self.position_axes == 1 else 0

    @property
    def takes_numbers(self) -> bool:
        """Whether a call has an argument for numbers (empty: the plan's); elementwise formulas with dynamic strides have none."""
        return bool(self.roles or not self.limit)


CLASS_AXIS = "class_axis"
"""The static parameter that says which axis of row-major operands is the class axis; without it, the second is."""


class Call:
    """A call with dynamic shapes or strides, made by Python: sizes and strides by the same methods as those of `code.DynamicLaunchCode`."""

    def __init__(
        self,
        dynamic: DynamicLaunch,
        addresses: Sequence[int],
        sizes: Sequence[int],
        strides: Sequence[int] = (),
    ) -> None:
        self.dynamic, self._addresses, self._sizes = dynamic, addresses, sizes
        self.table = strides_by_operand(strides, len(sizes), dynamic.axes)  # each operand's strides

    @property
    def axes(self) -> int:
        """How many sizes the call has."""
        return len(self._sizes)

    def static_value(self, name: str) -> int:
        """One static parameter."""
        return self.dynamic.static[name]

    def static(self) -> Mapping[str, int]:
        """All static parameters by name."""
        return self.dynamic.static

    def size(self, axis: int) -> int:
        return self._sizes[axis]

    def product(self, start: int, stop: int) -> int:
        """How many elements there are along some axes."""
        return math.prod(self._sizes[start:stop])

    def sizes(self) -> tuple[int, ...]:
        """The sizes of as many axes as the launch takes; where the call has fewer, the first are 1."""
        return tuple(padded(self._sizes, self.dynamic.axes, 1))

    def strides(self, name: str) -> tuple[int, ...]:
        """An operand's strides along as many axes; along those that the call lacks, 0."""
        place = self.static_value(name)
        return (0,) * self.dynamic.axes if place == MISSING else self.table[place]

    def flat_inputs(self) -> bool:
        """Whether there is one axis, along which every input has stride 1."""
        return self.axes == 1 and {strides[-1] for strides in self.table[:-1]} == {1}

    def offset(self, place: int) -> int:
        """By how many bytes an operand's address is misaligned for vectors."""
        return self._addresses[place] % VECTOR_BYTES


def geometry_of(call: Any, numbers: Mapping[str, Number]) -> Geometry:
    """The input of the launch function of a kernel with a class axis; `call` is a `Call` or a `code.DynamicLaunchCode`."""
    dynamic, static = call.dynamic, call.static()
    if dynamic.limit:
        *shape, classes = call.sizes()
        layout = Layout(tuple(shape), classes, {name: call.strides(name) for name in dynamic.roles})
        along = layout.strides[next(iter(dynamic.roles))][:-1]
        targets = Targets(padded(shape, TARGET_AXES, 1), padded(along, TARGET_AXES, 0), TARGET_AXES)
    else:
        axis = static.get(CLASS_AXIS, 1)
        before, behind = call.product(0, axis), call.product(axis + 1, call.axes)
        each = {name: call.static_value(name) for name in dynamic.roles}
        classes, roles = call.size(axis), dynamic.roles
        layout = row_major(dynamic.position_axes, roles, before, classes, behind, each)
        targets = Targets((1, 1, before * behind), (0, 0, 1), 1)
    return Geometry(layout, targets, static, numbers, call.offset, dynamic.limit > 0)


def elements_of(call: Any, misaligned: Truth, same_offset: Truth, *more: Any) -> Elements:
    """The input of the launch function of an elementwise formula's kernel."""
    sizes, count = call.sizes() if call.dynamic.limit else (), call.product(0, call.axes)
    flat_inputs = call.flat_inputs() if call.dynamic.limit else True
    return Elements(count, call.static(), misaligned, same_offset, flat_inputs, sizes, True, *more)


def row_major(
    axes: int, roles: Mapping[str, str], before: Number, classes: Number, behind: Number, each: Mapping[str, Number]
) -> Layout:  # fmt: skip
    """The layout of row-major operands of shape (before, classes, behind), with the positions on `axes` axes. `each` is 1 for an operand that varies along the axes of
    its role, and 0 for one of a single element."""
    shape: tuple[Number, ...]
    walks: dict[str, tuple[Number, ...]]
    if axes == 1:
        shape = (before,)
        walks = {"full": (classes, 1), "positions": (1, 0), "classes": (0, 1)}
    elif axes == 2:
        shape = before, behind
        walks = {"full": (classes * behind, 1, behind), "positions": (behind, 1, 0), "classes": (0, 0, 1)}  # fmt: skip
    else:
        # Axes merge as those of plans do (`core.plan.row_major_strides`), so that both have the same launches: images of one pixel each are the pixels of one
        # channels-last image, and images of one class are one plane.
        count, class_step = before * behind, flag(classes > 1)
        merged = any_of(before == 1, behind == 1, classes == 1)
        second, pixel = where(merged, 0, behind), flag(count > 1)
        one_pixel_images = all_of(behind == 1, before > 1)
        shape = 1, where(merged, 1, before), where(merged, count, behind)
        walks = {
            "full": (0, second * classes, where(one_pixel_images, classes, pixel), behind * class_step), "positions": (0, second, pixel, 0),
            "classes": (0, 0, 0, class_step),
        }  # fmt: skip
    strides = {
        name: walks[role]
        if role == "full"
        else tuple(stride * each[name] for stride in walks[role])
        for name, role in roles.items()
    }
    return Layout(shape, classes, strides)


NUMBERS_ARGS, STRIDES_ARGS = "*numbers", "*strides"
"""Stand in `LaunchParams.args` for several arguments: the form's numbers; the strides of all operands but the last n, n being the value."""


def key_words(constexprs: Mapping[str, Number], form: Number, warps: Number, aligned: Number) -> list[Number]:  # fmt: skip
    """The key by which machine code finds a compiled variant: four numbers of 16 bits in each word. Behind these it has one more word, a bit for each misaligned address."""
    parts = [*(constexprs[name] for name in sorted(constexprs)), form, warps, aligned]
    assert len(parts) <= MAX_KEYS, constexprs
    return [
        functools.reduce(or_, [number << 16 * place for place, number in enumerate(parts[at : at + 4])], 0)
        for at in range(0, MAX_KEYS, 4)
    ]  # fmt: skip


def padded(numbers: Sequence[Number], count: int, missing: int) -> Any:
    """`count` numbers: those given, and before them as many times `missing` as they lack."""
    return (*(missing,) * (count - len(numbers)), *numbers)


def strides_by_operand(strides: Sequence[int], axes: int, depth: int) -> list[tuple[int, ...]]:
    """Each operand's strides, from a sequence of all operands' strides along `axes` axes; padded with 0 in front to `depth` axes."""
    return [padded(strides[at : at + axes], depth, 0) for at in range(0, len(strides), axes)]
