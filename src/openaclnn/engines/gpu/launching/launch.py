"""What a launch is: a kernel with all its arguments but the addresses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

__all__ = [
    "KEY_WORDS", "VECTOR_BYTES", "KernelSpec", "Launch", "PointerArg", "next_power_of_two", "unaligned",
]  # fmt: skip

KEY_WORDS = 6  # of what tells the variants of a launch apart in machine code
VECTOR_BYTES = 16  # the widest load of one thread; Triton asks whether pointers are multiples of it


class PointerArg(NamedTuple):
    """A pointer parameter: which address it takes, how far from it the data begin, and of what type."""

    place: int  # in the runner's addresses; the one past the last is the scratch memory
    dtype: str
    shift: int = 0  # bytes
    wide: bool = False  # read or written by vectors, which pays if the address is aligned


class KernelSpec(NamedTuple):
    """A kernel and what its launches have in common whatever their sizes.

    Kernels take pointers, numbers, constexprs. These begin with OVERLAPPED where a spec says
    `overlapped` at all; the kernel then gets False if the device cannot.
    """

    kernel: Any
    slots: tuple[PointerArg | None, ...]  # None: the kernel has no use for the pointer
    constexprs: tuple[Any, ...] = ()  # those that no size changes
    fused: bool = True  # a product and a sum may be rounded once; not in formulas, for NumPy's bits
    overlapped: bool | None = None
    follows: bool = False  # may start while the launch before it ends; the kernel itself waits


def unaligned(spec: KernelSpec) -> KernelSpec:
    """The same with no address taken as aligned."""
    return spec._replace(slots=tuple(slot and slot._replace(wide=False) for slot in spec.slots))


class Launch(NamedTuple):
    """A spec's kernel at some size: all arguments but the addresses."""

    spec: KernelSpec
    grid: int
    numbers: tuple[int | float, ...]
    constexprs: tuple[Any, ...]  # the last ones, which sizes decide
    warps: int
    # The launch for pointers that are so many bytes off a vector's bounds, where that decides more than a kernel's variant.
    at: Callable[[Sequence[int]], Launch] | None = None
    cluster: int = 1  # programs that run at once, and may wait for each other


def next_power_of_two(number: int) -> int:
    """The least one that is not below; Triton's own takes 7 us, since kernels may call it."""
    return 1 << (number - 1).bit_length()
