"""`Launch`: a kernel with its grid and all its arguments but the addresses; and which pointers a kernel takes from a plan's operands."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from openaclnn.core.dtypes import BOOL
from openaclnn.core.plan import Operand, Plan

INT32_LIMIT = 1 << 31
KEY_WORDS = 8  # words of the key by which machine code finds a launch's variant
# Numbers in a key, four to a word; the last word has a bit for each misaligned address.
MAX_KEYS = 4 * (KEY_WORDS - 1)
VECTOR_BYTES = 16  # the widest load of one thread; Triton asks whether pointers are multiples of it


class PointerArg(NamedTuple):
    """A pointer parameter: which address it takes, how far from it the data begin, and of what type."""

    place: int  # index in the runner's addresses; behind the operands is the scratch memory
    dtype: str
    shift: int = 0  # bytes
    wide: bool = False  # read or written by vectors: an aligned address has a variant of its own


class KernelSpec(NamedTuple):
    """A kernel and what its launches have in common whatever their sizes.

    A kernel's parameters are pointers, numbers, then constexprs. If `overlapped` is not None, the first constexpr is
    OVERLAPPED, whether neighbouring launches overlap this one; it is False where the device cannot do that.
    """

    kernel: Any
    slots: tuple[PointerArg | None, ...]  # None: the kernel has no use for the pointer
    constexprs: tuple[Any, ...] = ()  # the first ones, which sizes do not decide
    fused: bool = True  # fused multiply-adds are allowed; not in formulas, for NumPy's bits
    overlapped: bool | None = None
    cluster: int = 1  # programs that run at once, and may wait for each other
    registers: int | None = None  # of a thread at most, so that more programs run at once
    follows: bool = False  # may start while the launch before it ends; the kernel itself waits

    @property
    def names(self) -> tuple[Sequence[str], Sequence[str]]:
        """The names of the parameters that a launch passes beside the spec's: numbers, and the constexprs that sizes decide."""
        others, constexprs, _ = _parameters_of(tuple(self.kernel.arg_names))
        return others[len(self.slots) :], constexprs[len(self.constexprs) :]


@functools.cache
def _parameters_of(names: tuple[str, ...]) -> tuple[Sequence[str], Sequence[str], bool]:
    """Of a kernel's parameters: pointers and numbers, constexprs but OVERLAPPED, and whether it has that one."""
    # Cached by the names, not by the kernel: its hash makes Triton read the source of all that it calls.
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
    aligned: bool = True  # False: launch the variant for misaligned addresses in any case


def spec_of(
    kernel: Any, named: Mapping[str, Any], fused: bool = True, overlapped: bool = True, cluster: int = 1, follows: bool = False
) -> KernelSpec:  # fmt: skip
    """The spec of a kernel whose pointers and constexprs are in `named` under its parameters' names: the first of each up to one that is missing there. A pointer is None
    where the kernel has no use for it. `overlapped` counts only if the kernel has OVERLAPPED."""
    others, constexprs, overlaps = _parameters_of(tuple(kernel.arg_names))
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
    """A launch of a kernel whose pointers, numbers and constexprs are all in `named` under its parameters' names."""
    spec = spec_of(kernel, named, **more)
    numbers, _ = spec.names
    return Launch(spec, grid, tuple([named[name] for name in numbers]), (), warps)


def next_power_of_two(number: int) -> int:
    """The least power of two that is not below a number; Triton's function takes 7 us, since kernels may call it."""
    return 1 << (number - 1).bit_length()


def pointers_of(
    plan: Plan, wide: Callable[[Operand], bool] = lambda operand: False
) -> tuple[PointerArg, ...]:
    """The pointers to a plan's operands; `wide` says which operands are read or written by vectors. BOOL is uint8 to Triton."""
    return tuple([
        PointerArg(
            place, "uint8" if operand.dtype is BOOL else operand.dtype.numpy_name, operand.offset * operand.dtype.itemsize, wide(operand)
        )
        for place, operand in enumerate(plan.operands)
    ])  # fmt: skip


def pointers_by_name(
    plan: Plan, wide: Callable[[Operand], bool] = lambda operand: False
) -> dict[str, PointerArg]:
    """`pointers_of` by the operands' names."""
    return {
        operand.parameter: slot
        for operand, slot in zip(plan.operands, pointers_of(plan, wide), strict=True)
    }


def scratch_of(plan: Plan, dtype: str = "float64", place: int = 0) -> PointerArg:
    """The pointer to scratch memory, whose address comes behind those of all operands; `place` counts the pointers into it."""
    return PointerArg(len(plan.operands) + place, dtype)
