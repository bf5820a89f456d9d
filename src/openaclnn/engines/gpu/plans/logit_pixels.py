"""How cross entropy from logits of pixels and its gradient are launched: blocks of neighbouring pixels, each with all classes."""

from __future__ import annotations

import math
from typing import NamedTuple

from openaclnn.core.dtypes import FLOAT
from openaclnn.core.plan import Operand, Plan
from openaclnn.engines.gpu.formulas.tuned import as_float
from openaclnn.engines.gpu.kernels.logit_pixels import pixel_gradients, pixel_losses
from openaclnn.engines.gpu.kernels.logits import logit_loss
from openaclnn.engines.gpu.launching.launch import (
    VECTOR_BYTES,
    Family,
    Launch,
    Slot,
    next_power_of_two,
    power_of_two_divisor,
)
from openaclnn.engines.gpu.launching.operands import ignored, operand_of, pointer_type, stride_of
from openaclnn.engines.gpu.launching.runners import runner_of
from openaclnn.engines.gpu.launching.steps import Runner
from openaclnn.engines.gpu.plans.sums import NO_SUMS, sum_launches

__all__ = ["gradients", "losses"]

WEIGHT = "weightOptional"
SUMS = 4  # of a block of pixels, float64
MANY = 1 << 20  # pixels that keep a device busy with a whole vector for each thread
WARPS = 4


class _Cut(NamedTuple):
    """How the pixels of a plan are cut into blocks, and what the compiler may know of their strides."""

    programs: int
    sizes: tuple[int, ...]
    constants: tuple[int, ...]
    unit: int


def _cut(plan: Plan, walked: list[Operand]) -> _Cut:
    assert len(plan.shape) <= 3, "positions merge into three axes at most"
    _, seconds, pixels = (*(1,) * (3 - len(plan.shape)), *plan.shape)
    each = VECTOR_BYTES // plan.compute.itemsize if math.prod(plan.shape) >= MANY else 2
    block = min(32 * WARPS * each, next_power_of_two(pixels))
    blocks = -(-pixels // block)
    dense = all(own.strides[-1] == 1 for own in walked)
    strides = [stride for own in walked for stride in _strides(own)]
    # A stride of 1 is known to the kernel.
    unit = power_of_two_divisor(*(stride for stride in strides if not (dense and stride == 1)))
    pixels_unit = power_of_two_divisor(pixels)
    return _Cut(
        math.prod(plan.shape[:-1]) * blocks, (pixels // pixels_unit, seconds, blocks, plan.classes),
        (dense, unit, pixels_unit, block), unit,
    )  # fmt: skip


def _strides(operand: Operand) -> tuple[int, ...]:
    """Along the two outer axes and that of pixels, and through classes if there are any."""
    along = tuple(stride_of(operand, axis) for axis in (-3, -2, -1))
    return (*along, operand.class_stride) if operand.role == "full" else along


def _numbers(unit: int, *operands: Operand | None) -> list[int]:
    """Their strides; 0 for one that has none."""
    return [stride // unit for own in operands for stride in (_strides(own) if own else (0, 0, 0))]


def _slots(plan: Plan) -> dict[str, Slot]:
    return {
        own.parameter: Slot(place, pointer_type(own), own.offset * own.dtype.itemsize, own.role != "classes")
        for place, own in enumerate(plan.operands)
    }  # fmt: skip


def losses(plan: Plan) -> Runner:
    """What queues the loss on a stream."""
    numbers, each, slots = plan.numbers, not plan.reduction, _slots(plan)
    (target, x, *_), (out, top, rest) = plan.inputs, plan.outputs
    weight = operand_of(plan, WEIGHT)
    cut = _cut(plan, [target, x, top, rest, *((out,) if each else ())])
    smooths, squares = (as_float(numbers[name]) != 0 for name in ("label_smoothing", "zloss_scale"))
    sums = Slot(len(plan.operands), "float64")
    loss = slots["lossOut"]
    launches = [
        Launch(
            Family(
                pixel_losses,
                (
                    slots["target"], slots["input"], slots.get(WEIGHT), loss if each else None, slots["topOut"],
                    slots["restOut"], None if each else sums,
                ),
                (each, smooths, squares),
                overlapped=True,
            ),
            cut.programs,
            (
                *cut.sizes, *_numbers(cut.unit, target, x, out if each else None, top, rest),
                weight.class_stride if weight else 0, ignored(numbers["ignore_index"]),
                as_float(numbers["label_smoothing"]), as_float(numbers["zloss_scale"]),
            ),
            cut.constants,
            WARPS,
        )
    ]  # fmt: skip
    if each:
        return runner_of(launches, 0)
    block = min(next_power_of_two(cut.programs), 1024)
    family = Family(
        logit_loss, (sums, loss._replace(wide=False), None), (plan.reduction == "mean", squares),
        overlapped=True, follows=True,
    )  # fmt: skip
    launches.append(Launch(family, 1, (cut.programs,), (block,), 4))
    return runner_of(launches, cut.programs * SUMS * 8)


def gradients(plan: Plan) -> Runner:
    """What queues the gradient on a stream."""
    numbers, slots = plan.numbers, _slots(plan)
    target, gradient, x, top, rest = plan.inputs[:5]
    single, weight = gradient.role == "single", operand_of(plan, WEIGHT)
    sums = sum_launches(plan, WEIGHT) if numbers["mean"] or weight else NO_SUMS
    walked = [target, x, top, rest, plan.output, *(() if single else (gradient,))]
    cut = _cut(plan, walked)
    smoothing = as_float(numbers["label_smoothing"])
    scale = as_float(2 * as_float(numbers["zloss_scale"]))
    family = Family(
        pixel_gradients,
        (
            slots["target"], slots["gradLoss"]._replace(wide=not single), slots["input"], slots["top"], slots["rest"],
            slots.get(WEIGHT), sums.slot, slots["out"],
        ),
        (single, numbers["mean"], smoothing != 0, plan.compute is FLOAT, scale != 0),
        overlapped=sums.slot is not None,
        follows=sums.slot is not None,
    )  # fmt: skip
    operands = target, None if single else gradient, x, top, rest, plan.output
    launch = Launch(
        family,
        cut.programs,
        (
            *cut.sizes, *_numbers(cut.unit, *operands), weight.class_stride if weight else 0,
            ignored(numbers["ignore_index"]), as_float(1 - smoothing), smoothing, scale,
        ),
        (sums.parts, *cut.constants),
        WARPS,
    )  # fmt: skip
    return runner_of([*sums.launches, launch], sums.scratch)
