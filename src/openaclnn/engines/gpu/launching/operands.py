"""From a plan's operands to a kernel's pointers and strides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from openaclnn.core.dtypes import BOOL
from openaclnn.core.plan import Operand, Plan
from openaclnn.engines.gpu.launching.launch import PointerArg

INT32_LIMIT = 1 << 31


def pointer_type(operand: Operand) -> str:
    """The operand's type as Triton is told it; truth values are bytes."""
    return "uint8" if operand.dtype is BOOL else operand.dtype.numpy_name


def elementwise_slots(
    plan: Plan, wide: Sequence[bool], shifts: Sequence[int]
) -> tuple[PointerArg, ...]:
    """The inputs and the output."""
    operands = (*plan.inputs, plan.output)
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


def stride_of(operand: Operand | None, axis: int) -> int:
    """Along an axis counted from the last; 0 where the operand or the axis is missing."""
    return operand.strides[axis] if operand and -axis <= len(operand.strides) else 0


def table_of(strides: Sequence[int], axes: int) -> list[Sequence[int]]:
    """Each operand's strides along so many axes, of all one after the other."""
    return [strides[at : at + axes] for at in range(0, len(strides), axes)]


def ignored(ignore_index: int) -> int:
    """The ignored class as kernels are told it: what names no class is ignored anyway, so all negative numbers become one, of 32 bits."""
    return max(int(ignore_index), -1)  # True would be a number of one bit


def step_of(stride: int) -> int:
    return 1 if stride == 1 else 2
