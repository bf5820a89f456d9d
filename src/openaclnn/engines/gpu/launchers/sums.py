"""Launches that add up targets' and classes' weights, for means and label smoothing: in how many parts, and where in scratch memory the sums are."""

from __future__ import annotations

import math

from openaclnn.core.plan import Plan
from openaclnn.engines.gpu.kernels import sums as kernels
from openaclnn.engines.gpu.kernels.sums import add_up, finish_sums
from openaclnn.engines.gpu.launchers.geometry import (
    IGNORED,
    Geometry,
    Launches,
    LaunchParams,
    Targets,
    power_of_two_above,
)
from openaclnn.engines.gpu.launching.launch import (
    INT32_LIMIT,
    KernelSpec,
    pointers_by_name,
    scratch_of,
    spec_of,
)
from openaclnn.engines.machine.numbers import Number, all_of, ceil_div, most, where

FLOAT64_BYTES = 8

# Up to this many positions the kernel that needs a sum adds up a few parts itself; beyond, the sum is
# shared out among more programs, and a launch of its own (1-2 us) finishes it.
FEW_POSITIONS = 1 << 17
FEW_PARTS, MANY_PARTS = kernels.FEW_PARTS.value, 1024
SUM_BLOCK = 1024

NUMBERS = "ignore_index", "label_smoothing", "zloss_scale"  # of cross entropy

ADD, FINISH = "add", "finish"
KERNELS = {ADD: add_up, FINISH: finish_sums}


def specs(plan: Plan, weight: str, offset: int = 0, several: int = 2) -> dict[str, KernelSpec]:
    """The specs of the kernel that adds up parts of the first `several` sums of `add_up`, for targets that begin at an offset in elements, and of the one that adds up the parts."""
    target = plan.inputs[plan.targets]
    pointers = pointers_by_name(plan)
    first = pointers[target.parameter]
    first = first._replace(shift=first.shift + offset * target.dtype.itemsize)
    named = {"target": first, "weight": pointers.get(weight), "sums": scratch_of(plan), "SUMS": several}  # fmt: skip
    return {ADD: spec_of(add_up, named), FINISH: spec_of(finish_sums, named, follows=True)}


def adding(
    targets: Targets, weight_stride: Number, classes: Number, ignore_index: Number, parts: Number
) -> LaunchParams:
    """The launch whose programs add up so many parts."""
    (first, second, third), strides, axes = targets
    count = first * second * third
    args = {
        "count": count, "second_size": second, "third_size": third, "first_stride": strides[0], "second_stride": strides[1],
        "third_stride": strides[2], "weight_stride": weight_stride, "classes": classes, "ignore_index": ignore_index, "parts": parts,
    }  # fmt: skip
    wide = count + (parts + 1) * SUM_BLOCK >= INT32_LIMIT
    return LaunchParams(ADD, parts, args, {"AXES": axes, "WIDE": wide, "BLOCK": SUM_BLOCK}, 8)


def with_sums(g: Geometry, weight: str, needed: Number) -> tuple[Launches, Number]:
    """The launches that add up the sums if they are `needed`, and the number of parts that the kernel which reads them must add up."""
    if needed is False:  # known before any call
        return Launches([]), 1
    count, classes, weighted = math.prod(g.targets.shape), g.layout.classes, g.static["weighted"]
    longest = most(count, where(weighted > 0, classes, 0))
    many = longest > FEW_POSITIONS
    few_parts = power_of_two_above(ceil_div(longest, SUM_BLOCK), FEW_PARTS)
    parts = where(many, MANY_PARTS, few_parts)
    weight_stride = g.layout.strides.get(weight, (0,))[-1]
    add = adding(g.targets, weight_stride, classes, g.numbers[IGNORED], parts)._replace(when=needed)
    finish = LaunchParams(
        FINISH, g.static["sums"], {}, {"PARTS": MANY_PARTS}, 4, all_of(needed, many)
    )
    scratch = parts * g.static["sums"] * FLOAT64_BYTES
    return Launches([add, finish], where(needed, scratch, 0), (0,)), where(needed, parts, 1)
