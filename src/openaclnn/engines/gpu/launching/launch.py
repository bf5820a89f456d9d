"""What a launch is: a kernel with all its arguments but the addresses; and which pointers and strides it takes from a plan."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from openaclnn.core.dtypes import BOOL
from openaclnn.core.plan import Operand, Plan

INT32_LIMIT = 1 << 31
KEY_WORDS = 8  # of what tells the variants of a launch apart in machine code
# Numbers in them; the last word says which addresses are off a vector's bounds.
MAX_KEYS = 4 * (KEY_WORDS - 1)
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
    cluster: int = 1  # programs that run at once, and may wait for each other
    registers: int | None = None  # of a thread at most, so that more programs run at once
    follows: bool = False  # may start while the launch before it ends; the kernel itself waits

    @property
    def names(self) -> tuple[Sequence[str], Sequence[str]]:
        """The kernel's own, of a launch's numbers, and of the constexprs that sizes decide."""
        others, constexprs, _ = _parted(tuple(self.kernel.arg_names))
        return others[len(self.slots) :], constexprs[len(self.constexprs) :]


@functools.cache
def _parted(names: tuple[str, ...]) -> tuple[Sequence[str], Sequence[str], bool]:
    """A kernel's pointers and numbers, its constexprs, and whether the first of these says that it overlaps."""
    # Not by the kernel itself: Triton reads all that it calls to tell it from others.
    first = next(place for place, name in enumerate(names) if name[0].isupper())
    overlaps = names[first] == "OVERLAPPED"
    return names[:first], names[first + overlaps :], overlaps


class Launch(NamedTuple):
    """A spec's kernel at some size: all arguments but the addresses."""

    spec: KernelSpec
    grid: int
    numbers: tuple[int | float, ...]
    constexprs: tuple[Any, ...]  # the last ones, which sizes decide
    warps: int
    aligned: bool = True  # False: no address is taken as aligned, even if it is


def spec_of(
    kernel: Any, named: Mapping[str, Any], fused: bool = True, overlapped: bool = True, cluster: int = 1, follows: bool = False
) -> KernelSpec:  # fmt: skip
    """What a kernel takes of pointers and constexprs by the names that it has for them, the first ones of each; None where it has no use for a pointer. One that can
    overlap with others does."""
    others, constexprs, overlaps = _parted(tuple(kernel.arg_names))
    slots, known, get = [], [], named.get
    for name in others:
        slot = get(name, name)
        if slot is not None and slot.__class__ is not PointerArg:
            break
        slots.append(slot)
    for name in constexprs:
        if name not in named:
            break
        known.append(named[name])
    return KernelSpec(
        kernel, tuple(slots), tuple(known), fused, overlapped if overlaps else None, cluster, None, follows
    )  # fmt: skip


def launched(kernel: Any, grid: int, named: Mapping[str, Any], warps: int, **more: Any) -> Launch:
    """A launch of a kernel with what it takes of pointers, numbers and constexprs by the names that it has for them."""
    spec = spec_of(kernel, named, **more)
    numbers, _ = spec.names
    return Launch(spec, grid, tuple([named[name] for name in numbers]), (), warps)


def next_power_of_two(number: int) -> int:
    """The least one that is not below; Triton's own takes 7 us, since kernels may call it."""
    return 1 << (number - 1).bit_length()


def pointers_of(
    plan: Plan, wide: Callable[[Operand], bool] = lambda operand: False
) -> tuple[PointerArg, ...]:
    """Those to the plan's operands, of which some are wide. Truth values are bytes to Triton."""
    return tuple([
        PointerArg(
            place, "uint8" if operand.dtype is BOOL else operand.dtype.numpy_name, operand.offset * operand.dtype.itemsize, wide(operand)
        )
        for place, operand in enumerate(plan.operands)
    ])  # fmt: skip


def pointers_by_name(
    plan: Plan, wide: Callable[[Operand], bool] = lambda operand: False
) -> dict[str, PointerArg]:
    """The same by the operands' names."""
    return {
        operand.parameter: slot
        for operand, slot in zip(plan.operands, pointers_of(plan, wide), strict=True)
    }


def scratch_of(plan: Plan, dtype: str = "float64", place: int = 0) -> PointerArg:
    """The pointer to scratch memory, which is behind all operands, or to one of its places."""
    return PointerArg(len(plan.operands) + place, dtype)
