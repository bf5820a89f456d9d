"""How the sums that `mean` divides by are launched: in how many parts, and where they lie."""

from __future__ import annotations

import math
from typing import NamedTuple

from openaclnn.core.plan import Plan, collapse
from openaclnn.engines.gpu.kernels.sums import add_up, finish_sums
from openaclnn.engines.gpu.launching.launch import (
    Family,
    Launch,
    Sizes,
    Slot,
    next_power_of_two,
)
from openaclnn.engines.gpu.launching.operands import (
    INT32_LIMIT,
    ignored,
    operand_of,
    pointer_type,
    slots_of,
)

FLOAT64_BYTES = 8
SUMS = 4  # the counted targets' weights, their number, all classes' weights, infinity times each of these

# Up to this many positions the kernel that needs a sum adds up a few parts itself; beyond, the sum is
# shared out among more programs, and a launch of its own (1-2 us) finishes it.
FEW_POSITIONS = 1 << 17
FEW_PARTS, MANY_PARTS = 16, 1024
SUM_BLOCK = 1024

ADD, FINISH = "add", "finish"
"""The launches of sums by their names."""


class Sums(NamedTuple):
    """The sums of a plan."""

    launches: list[Launch]  # make them
    slot: Slot | None  # where they lie
    parts: int  # that their user adds up
    scratch: int  # bytes of memory


NO_SUMS = Sums([], None, 1, 0)


def sum_launches(plan: Plan, weight: str) -> Sums:
    """What makes the sums that a plan needs."""
    target, weights = plan.inputs[plan.targets], operand_of(plan, weight)
    # Only the targets are walked, so axes merge that other operands may keep apart.
    merged, (steps,), (offset,) = collapse(plan.shape, [target.strides])
    missing = 3 - len(merged)
    shape, strides = (1,) * missing + merged, (0,) * missing + steps
    count = math.prod(shape)
    parts = parts_of(count, plan.classes if weights else 0)
    step = weights.class_stride if weights else 0
    sizes = add_sizes(
        count, shape[1:], strides, step, plan.classes, plan.numbers["ignore_index"], parts, len(merged)
    )  # fmt: skip
    add = Launch(add_family(plan, weight, offset), *sizes)
    if parts <= FEW_PARTS:
        return Sums([add], _into(plan), parts, scratch_of(parts))
    finished = _into(plan)._replace(shift=SUMS * parts * FLOAT64_BYTES)
    finish = Launch(finish_family(plan, finished), *finish_sizes(weights is not None))
    return Sums([add, finish], finished, 1, scratch_of(parts))


def parts_of(count: int, classes: int) -> int:
    """In how many parts so many targets are added up, and the weights of so many classes (0: none)."""
    longest = max(count, classes)
    if longest > FEW_POSITIONS:
        return MANY_PARTS
    return min(next_power_of_two(-(-longest // SUM_BLOCK)), FEW_PARTS)


def scratch_of(parts: int) -> int:
    """Bytes of memory for so many parts."""
    return SUMS * (parts + (parts > FEW_PARTS)) * FLOAT64_BYTES


def _into(plan: Plan) -> Slot:
    return Slot(len(plan.inputs) + 1, "float64")


def add_family(plan: Plan, weight: str, offset: int = 0) -> Family:
    """The kernel that adds up parts of all sums."""
    target = plan.inputs[plan.targets]
    shift = (target.offset + offset) * target.dtype.itemsize
    slots = (
        Slot(plan.targets, pointer_type(target), shift),
        *slots_of(plan, {weight: False}),
        _into(plan),
    )
    return Family(add_up, slots, overlapped=True)


def finish_family(plan: Plan, finished: Slot) -> Family:
    """The kernel that adds up many parts."""
    return Family(finish_sums, (_into(plan), finished), overlapped=True, follows=True)


def add_sizes(
    count: int, shape: tuple[int, ...], strides: tuple[int, ...],
    weight_stride: int, classes: int, ignore_index: int, parts: int, axes: int,
) -> Sizes:  # fmt: skip
    wide = count + (parts + 1) * SUM_BLOCK >= INT32_LIMIT
    numbers = count, *shape, *strides, weight_stride, classes, ignored(ignore_index), parts
    return parts, numbers, (axes, wide, SUM_BLOCK), 8


def finish_sizes(weighted: bool) -> Sizes:
    return SUMS if weighted else 2, (), (MANY_PARTS,), 4
