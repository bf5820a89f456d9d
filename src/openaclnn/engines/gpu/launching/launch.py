"""What a launch is: a kernel with all its arguments but the addresses."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

__all__ = [
    "VECTOR_BYTES", "Family", "Launch", "Launched", "Sizes", "Slot", "anywhere", "next_power_of_two", "power_of_two_divisor",
]  # fmt: skip

VECTOR_BYTES = 16  # the widest load of one thread; Triton asks whether pointers are multiples of it


class Slot(NamedTuple):
    """A pointer parameter: which address it takes, how far from it the data begin, and of what type."""

    place: int  # in the runner's addresses; the one past the last is the scratch memory
    dtype: str
    shift: int = 0  # bytes
    wide: bool = False  # read or written by vectors, which pays if the address is aligned


class Family(NamedTuple):
    """A kernel and what its launches have in common whatever their sizes.

    Kernels take pointers, numbers, constants. Constants begin with OVERLAPPED where a family says
    `overlapped` at all; the kernel then gets False if the device cannot.
    """

    kernel: Any
    slots: tuple[Slot | None, ...]  # None: the kernel has no use for the pointer
    constants: tuple[Any, ...] = ()  # those that no size changes
    fused: bool = True  # a product and a sum may be rounded once; not in formulas, for NumPy's bits
    overlapped: bool | None = None
    follows: bool = False  # may start while the launch before it ends; the kernel itself waits


def anywhere(family: Family) -> Family:
    """The same with no address taken as aligned."""
    return family._replace(slots=tuple(slot and slot._replace(wide=False) for slot in family.slots))


Sizes = tuple[int, tuple[int | float, ...], tuple[Any, ...], int]
"""What sizes decide of a launch: programs, numbers, the last constants, warps."""

Launched = Mapping[str, tuple[Family, Sizes]]
"""Launches by a name: each one's kernel, and what some sizes decide of it."""


class Launch(NamedTuple):
    """A family's kernel at some size: all arguments but the addresses."""

    family: Family
    programs: int
    numbers: tuple[int | float, ...]
    constants: tuple[Any, ...]  # the last ones, which sizes decide
    warps: int
    # The launch for pointers that are so many bytes off a vector's bounds, where that decides more than a kernel's variant.
    at: Callable[[Sequence[int]], Launch] | None = None
    # Old ones
    shifted: Launch | None = None
    together: tuple[int, ...] = ()
    ragged: bool = False
    cluster: int = 1  # programs that run at once, and may wait for each other


def power_of_two_divisor(*numbers: int) -> int:
    """The largest power of two up to 16 that divides all numbers.

    Kernels get numbers divided by it and multiply again: the compiler then knows the factor, which
    it must for vector access, and there are five variants at most instead of two per argument.
    """
    return math.gcd(16, *numbers)


def next_power_of_two(number: int) -> int:
    """The least one that is not below; Triton's own takes 7 us, since kernels may call it."""
    return 1 << (number - 1).bit_length()
