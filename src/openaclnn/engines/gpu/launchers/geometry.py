"""What launch functions get and give: a geometry, of ints or of values of the code being written, and the launches that follow from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from openaclnn.engines.gpu.launchers.numbers import Number, Truth

__all__ = [
    "FLOATS", "FORM", "IN_A_ROW", "KEY_WORDS", "MISSING", "NUMBERS_ARGS", "STRIDES_ARGS", "Elements", "Geometry", "LaunchParams",
    "Launches", "Launching", "Layout", "Pattern", "Targets", "padded",
]  # fmt: skip

KEY_WORDS = 6  # of what tells the kernels of a launch apart
MISSING = 16
"""The place of an operand that a plan lacks, behind all others: its strides are 0."""


class Targets(NamedTuple):
    """The positions of targets on three axes, their strides, and how many of these axes are walked."""

    shape: tuple[Number, Number, Number]
    strides: tuple[Number, Number, Number]
    axes: int


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
    numbers: tuple[Number, ...]  # of the call: the first is an integer, the others are FLOATs
    offset: Callable[[int], Number]  # how far an operand's address is off a vector's bounds
    strided: bool = False  # one kernel for all strides: nothing is chosen for a layout
    few: bool = True  # one kernel for all sizes of few elements


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
FLOATS = frozenset(("kept", "smoothing", "zloss_scale"))
"""Arguments of kernels that are FLOATs; the others are integers."""


class Pattern(NamedTuple):
    """A launch function with what is known of its calls: `name` tells its machine code from all other."""

    name: str
    launch: Callable[[Any], Launches]
    kernels: Mapping[str, Any]  # Triton's, in the order of launches
    operands: tuple[
        str, ...
    ]  # whose strides it asks for: first inputs by their places, then by what the plan calls them, and "out"
    static: tuple[str, ...]
    inputs: int  # how many of these have no other names
    axes: int  # of a call's sizes: so many, or for strides at most; 0: any, from 2 on
    row_major: Callable[[Sequence[Number], Number, Mapping[str, Number]], Layout] | None = None
    """The layout of row-major operands: of the first two sizes, the product of the others, and which operands have a number for each
    position or class. Without it, strides are told in the call."""
    exactly: bool = False  # strides have that many axes, not fewer
    limit: int = 0  # elements of any strides


NUMBERS_ARGS, STRIDES_ARGS = "*numbers", "*strides"
"""Stand for several arguments: the form's numbers; every operand's strides, but for so many last ones."""
FORM, IN_A_ROW = "FORM", "in_a_row"


class Elements(NamedTuple):
    """What a launch over all elements follows from: ints, or values of the code being written."""

    count: Number
    static: Mapping[str, Number]
    misaligned: Truth  # an address that is read or written by vectors is off their bounds
    same_offset: Truth  # all of these are equally far off, or none is
    in_a_row: Truth = True  # of any strides: one axis, with a step of 1 for every input
    sizes: tuple[Number, ...] = ()  # of any strides
    few: bool = True  # one kernel for few elements wherever they lie
    numbers: tuple[float, ...] = ()  # of the form; machine code knows where they are
    strides: tuple[int, ...] = ()


def padded(several: Sequence[Number], count: int, missing: int) -> Any:
    """So many numbers; what is missing comes before the others."""
    return (*(missing,) * (count - len(several)), *several)
