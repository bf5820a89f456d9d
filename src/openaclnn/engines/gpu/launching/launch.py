"""What a launch is: a kernel with all its arguments but the addresses; and which pointers and strides it takes from a plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from openaclnn.core.dtypes import BOOL
from openaclnn.core.plan import Operand, Plan

__all__ = [
    "INT32_LIMIT", "KEY_WORDS", "MAX_KEYS", "VECTOR_BYTES", "KernelSpec", "Launch", "PointerArg", "elementwise_slots", "ignored", "next_power_of_two",
    "operand_of", "pointer_type", "slots_of", "table_of", "unaligned",
]  # fmt: skip

INT32_LIMIT = 1 << 31
KEY_WORDS = 8  # of what tells the variants of a launch apart in machine code
MAX_KEYS = 4 * (
    KEY_WORDS - 1
)  # numbers in them; the last word says which addresses are off a vector's bounds
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
    cluster: int = 1  # the same where sizes decide it

    @property
    def together(self) -> int:
        """Programs that run at once."""
        return max(self.cluster, self.spec.cluster)


def next_power_of_two(number: int) -> int:
    """The least one that is not below; Triton's own takes 7 us, since kernels may call it."""
    return 1 << (number - 1).bit_length()


def pointer_type(operand: Operand) -> str:
    """The operand's type as Triton is told it; truth values are bytes."""
    return "uint8" if operand.dtype is BOOL else operand.dtype.numpy_name


def elementwise_slots(
    plan: Plan, wide: Sequence[bool], shifts: Sequence[int]
) -> tuple[PointerArg, ...]:
    """The inputs and the outputs."""
    operands = plan.operands
    return tuple(
        PointerArg(
            index, pointer_type(operand), (operand.offset + shift) * operand.dtype.itemsize, fast
        )
        for index, (operand, fast, shift) in enumerate(zip(operands, wide, shifts, strict=True))
    )


def slots_of(plan: Plan, wanted: Mapping[str, bool]) -> list[PointerArg | None]:
    """The pointers to operands by their names, and whether they are wide; None where the plan has no such one."""
    places = {own.parameter: (at, own) for at, own in enumerate((*plan.inputs, plan.output))}
    slots: list[PointerArg | None] = []
    for parameter, wide in wanted.items():
        if parameter in places:
            index, own = places[parameter]
            slots.append(
                PointerArg(index, pointer_type(own), own.offset * own.dtype.itemsize, wide)
            )
        else:
            slots.append(None)
    return slots


def operand_of(plan: Plan, parameter: str) -> Operand | None:
    return next((own for own in plan.inputs if own.parameter == parameter), None)


def table_of(strides: Sequence[int], axes: int) -> list[Sequence[int]]:
    """Each operand's strides along so many axes, of all one after the other."""
    return [strides[at : at + axes] for at in range(0, len(strides), axes)]


def ignored(ignore_index: int) -> int:
    """The ignored class as kernels are told it: what names no class is ignored anyway, so all negative numbers become one, of 32 bits."""
    return max(int(ignore_index), -1)  # True would be a number of one bit
