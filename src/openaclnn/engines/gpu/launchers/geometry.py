"""What launch functions are written in, what they get and what they give.

A launch follows from sizes and strides by one function, over numbers that are Python's or those of machine code being written: called with
ints it gives the launch itself, called with `engines.machine.values.Value`s it writes the code that gives it. Both arms of a `where` are
evaluated, so that divisors are 1 at least.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from openaclnn.engines.machine.numbers import Number, Truth, least, most, where

__all__ = [
    "CLASS_AXIS", "FORM", "MISSING", "NO_TARGETS", "NUMBERS_ARGS", "STRIDES_ARGS", "Elements", "Geometry", "LaunchParams", "Launches",
    "Launching", "Layout", "Pattern", "Targets", "clamp", "is_float",
    "padded", "power_of_two_above", "power_of_two_divisor", "where_all",
]  # fmt: skip

DIVISOR = 16  # the largest power of two that is looked for


def where_all(
    condition: Truth, yes: tuple[Number, ...], no: tuple[Number, ...]
) -> tuple[Number, ...]:
    """The same of several numbers at once."""
    if condition is True or condition is False:
        return yes if condition else no
    return tuple([where(condition, own, other) for own, other in zip(yes, no, strict=True)])


def clamp(number: Number, low: Number, high: Number) -> Number:
    return most(least(number, high), low)


def power_of_two_divisor(*numbers: Number) -> Number:
    """The largest power of two up to 16 that divides all numbers.

    Kernels get numbers divided by it and multiply again: the compiler then knows the factor, which
    it must for vector access, and there are five variants at most instead of two per argument.
    """
    written = [own for own in numbers if own.__class__ is not int]
    if not written:
        return math.gcd(DIVISOR, *numbers)
    bits = written[0] | math.gcd(DIVISOR, *(own for own in numbers if own.__class__ is int))
    for own in written[1:]:
        bits = bits | own
    return bits & -bits


def power_of_two_above(number: Number, limit: int) -> Number:
    """The least power of two that is not below a number, but no more than the limit, which is one."""
    if number.__class__ is int:
        return min(1 << (number - 1).bit_length(), limit)
    found: Number = 1
    for _ in range(limit.bit_length() - 1):
        found = where(number > found, found * 2, found)
    return found


MISSING = 16
"""The place of an operand that a plan lacks, behind all others: its strides are 0."""


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
    numbers: tuple[Number, ...]  # of the call: integers, then FLOATs
    offset: Callable[[int], Number]  # how far an operand's address is off a vector's bounds
    strided: bool = False  # one kernel for all strides: nothing is chosen for a layout
    few: bool = True  # one kernel for all sizes of few elements


CLASS_AXIS = "class_axis"
"""What the plan decides: the classes' axis in the shape of row-major operands; without it, the second."""


class LaunchParams(NamedTuple):
    """One launch of a kernel, all but its addresses: the kernel's name in the pattern, its arguments and constexprs by their names."""

    kernel: str
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


Launching = Callable[[Geometry], Launches]
FLOATS = frozenset(("smoothing", "zloss_scale"))


def is_float(argument: str) -> bool:
    """Whether a kernel's argument is a FLOAT, as a formula's numbers are; the others are integers."""
    return argument in FLOATS or argument.startswith("number_")


class Pattern(NamedTuple):
    """A launch function with what is known of its calls: `name` tells its machine code from all other."""

    name: str
    launch: Callable[[Any], Launches]
    kernels: Mapping[str, Any]  # Triton's, in the order of launches
    static: tuple[str, ...]  # the names of what the plan decides
    axes: int = (
        0  # of a call's sizes: so many, or for strides at most; 0: any, with classes from 2 on
    )
    limit: int = 0  # elements of any strides, which are told in the call; 0: operands are row-major
    operands: tuple[str, ...] = ()  # whose strides it asks for
    row_major: Callable[[Sequence[Number], Number, Mapping[str, Number]], Layout] | None = None
    """The layout of row-major operands: of how many positions are before the classes, of the classes, how many positions are behind, and
    which operands have a number for each position or class."""
    exactly: bool = False  # strides have that many axes, not fewer
    whole: int = 1  # so many of a call's numbers are integers, the first ones


NUMBERS_ARGS, STRIDES_ARGS = "*numbers", "*strides"
"""Stand for several arguments: the form's numbers; every operand's strides, but for so many last ones."""
FORM = "FORM"


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


def padded(several: Sequence[Number], count: int, missing: int) -> Any:
    """So many numbers; what is missing comes before the others."""
    return (*(missing,) * (count - len(several)), *several)
