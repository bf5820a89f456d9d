"""How cross entropy from logits of pixels and its gradient are launched: blocks of neighbouring pixels, each with all classes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from openaclnn.core.dtypes import FLOAT
from openaclnn.core.plan import Plan, row_major_walks
from openaclnn.engines.gpu.formulas.tuned import as_float
from openaclnn.engines.gpu.kernels.logit_pixels import pixel_gradients, pixel_losses
from openaclnn.engines.gpu.kernels.logits import logit_loss
from openaclnn.engines.gpu.launching.launch import (
    VECTOR_BYTES,
    Family,
    Launch,
    Sizes,
    Slot,
    next_power_of_two,
    power_of_two_divisor,
)
from openaclnn.engines.gpu.launching.operands import pointer_type
from openaclnn.engines.gpu.launching.runners import runner_of
from openaclnn.engines.gpu.launching.steps import Runner
from openaclnn.engines.gpu.plans import logits, rows
from openaclnn.engines.gpu.plans.logits import NUMBERS, SUMS, WEIGHT
from openaclnn.engines.gpu.plans.sums import NO_SUMS, sum_launches

__all__ = ["Lying", "gradients", "losses", "row_major"]

MANY = 1 << 20  # pixels that keep a device busy with a whole vector for each thread
FEW_EACH = 2  # pixels of a thread where there are fewer
WARPS = 4
THREADS = 32 * WARPS
SUM_BYTES = 8 * SUMS  # of a block's sums, float64
MOST_BLOCK = 1024  # blocks whose sums are added up at once


class Lying(NamedTuple):
    """Where elements lie: the positions' axes, how many classes there are, and each operand's strides by its name.

    Strides are along two outer axes and that of pixels, then through classes; an operand that has no classes lacks that one, and the
    weights have no other.
    """

    shape: tuple[int, ...]
    classes: int
    strides: Mapping[str, tuple[int, ...]]


def _strides(role: str, along: tuple[int, ...], by_class: int) -> tuple[int, ...]:
    if role == "classes":
        return (by_class,)
    whole = (*(0,) * (3 - len(along)), *along)
    return (*whole, by_class) if role == "full" else whole


def as_planned(plan: Plan) -> Lying:
    """The plan's own operands."""
    assert len(plan.shape) <= 3, "positions merge into three axes at most"
    strides = {
        own.parameter: _strides(own.role, own.strides, own.class_stride) for own in plan.operands
    }
    return Lying(plan.shape, plan.classes, strides)


def row_major(plan: Plan, shape: Sequence[int]) -> Lying:
    """The same operands where they are row-major, and what is full has a shape of (images, classes, ...)."""
    images, classes, *sides = shape
    merged, walks = row_major_walks(images, classes, math.prod(sides))
    strides = {own.parameter: _strides(own.role, *walks[own.role][:2]) for own in plan.operands}
    return Lying(merged, classes, strides)


class Pixels:
    """A kernel of a plan, whatever its sizes; `operands` in the order in which it is told their strides."""

    def __init__(self, plan: Plan, family: Family, operands: tuple[str, ...]) -> None:
        self.family, self._operands = family, operands
        self.itemsize = plan.compute.itemsize
        self.vector = VECTOR_BYTES // self.itemsize
        roles = {own.parameter: own.role for own in plan.operands}
        self._walked = [name for name in operands if roles[name] != "single"]

    def sizes(
        self, lying: Lying, last: Sequence[int | float], constants: tuple[int, ...] = ()
    ) -> Sizes:
        """`last` numbers and first `constants` are those that have nothing to do with pixels."""
        shape, classes, strides = lying
        _, seconds, pixels = (*(1,) * (3 - len(shape)), *shape)
        each = self.vector if math.prod(shape) >= MANY else FEW_EACH
        block = min(THREADS * each, next_power_of_two(pixels))
        blocks = -(-pixels // block)
        walked = [strides[name] for name in self._walked]
        dense = all(own[2] == 1 for own in walked)
        # A stride of 1 is known to the kernel.
        unit = power_of_two_divisor(
            *(stride for own in walked for stride in own if not (dense and stride == 1))
        )
        pixels_unit = power_of_two_divisor(pixels)
        return (
            math.prod(shape[:-1]) * blocks,
            (
                pixels // pixels_unit, seconds, blocks, classes,
                *[stride // unit for name in self._operands for stride in strides[name]],
                *strides.get(WEIGHT, (0,)), *last,
            ),
            (*constants, dense, unit, pixels_unit, block),
            WARPS,
        )  # fmt: skip


def _slots(plan: Plan) -> dict[str, Slot]:
    return {
        own.parameter: Slot(place, pointer_type(own), own.offset * own.dtype.itemsize, own.role != "classes")
        for place, own in enumerate(plan.operands)
    }  # fmt: skip


def _squares(plan: Plan) -> bool:
    return as_float(plan.numbers["zloss_scale"]) != 0


def _sums(plan: Plan) -> Slot:
    """Of blocks of pixels, where losses are added up."""
    return Slot(len(plan.operands), "float64")


def loss_pixels(plan: Plan) -> Pixels:
    """The kernel that reads logits, and leaves losses or sums of them."""
    each, slots = not plan.reduction, _slots(plan)
    family = Family(
        pixel_losses,
        (
            slots["target"], slots["input"], slots.get(WEIGHT), slots["lossOut"] if each else None, slots["topOut"],
            slots["restOut"], None if each else _sums(plan),
        ),
        (each, as_float(plan.numbers["label_smoothing"]) != 0, _squares(plan)),
        overlapped=True,
    )  # fmt: skip
    return Pixels(plan, family, ("target", "input", "lossOut", "topOut", "restOut"))


def total_family(plan: Plan) -> Family:
    """The kernel that adds up the sums."""
    loss = _slots(plan)["lossOut"]._replace(wide=False)
    return Family(
        logit_loss, (_sums(plan), loss, None), (plan.reduction == "mean", _squares(plan)),
        overlapped=True, follows=True,
    )  # fmt: skip


def total_sizes(programs: int) -> Sizes:
    """Of so many blocks of pixels."""
    return 1, (programs,), (min(next_power_of_two(programs), MOST_BLOCK),), 4


def losses(plan: Plan) -> Runner:
    """What queues the loss on a stream."""
    kernel = loss_pixels(plan)
    last = logits.last_of(*(plan.numbers[name] for name in NUMBERS))
    sizes = kernel.sizes(as_planned(plan), last)
    launch, programs = Launch(kernel.family, *sizes), sizes[0]
    if not plan.reduction:
        return runner_of([launch])
    total = Launch(total_family(plan), *total_sizes(programs))
    return runner_of([launch, total], programs * SUM_BYTES)


def gradient_pixels(plan: Plan, sums: Slot | None) -> Pixels:
    """The kernel that writes the gradient."""
    numbers, slots, single = plan.numbers, _slots(plan), plan.inputs[1].role == "single"
    family = Family(
        pixel_gradients,
        (
            slots["target"], slots["gradLoss"]._replace(wide=not single), slots["input"], slots["top"], slots["rest"],
            slots.get(WEIGHT), sums, slots["out"],
        ),
        (
            single, numbers["mean"], as_float(numbers["label_smoothing"]) != 0, plan.compute is FLOAT,
            _squares(plan),
        ),
        overlapped=sums is not None,
        follows=sums is not None,
    )  # fmt: skip
    return Pixels(plan, family, ("target", "gradLoss", "input", "top", "rest", "out"))


def gradients(plan: Plan) -> Runner:
    """What queues the gradient on a stream."""
    sums = sum_launches(plan, WEIGHT) if rows.is_summed(plan) else NO_SUMS
    kernel = gradient_pixels(plan, sums.slot)
    sizes = kernel.sizes(as_planned(plan), rows.last_of(plan), (sums.parts,))
    return runner_of([*sums.launches, Launch(kernel.family, *sizes)], sums.scratch)
