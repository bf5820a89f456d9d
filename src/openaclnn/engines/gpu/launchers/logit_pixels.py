"""Cross entropy from logits of pixels: blocks of neighbouring pixels, each with all classes."""

from __future__ import annotations

from openaclnn.core.dtypes import float_of
from openaclnn.core.plan import Plan
from openaclnn.engines.gpu.kernels.logit_pixels import pixel_losses
from openaclnn.engines.gpu.kernels.logits import logit_loss
from openaclnn.engines.gpu.launchers.geometry import (
    Geometry,
    Launches,
    LaunchParams,
    power_of_two_above,
    power_of_two_divisor,
)
from openaclnn.engines.gpu.launchers.launcher import ClassLauncher
from openaclnn.engines.gpu.launchers.logits import total_loss
from openaclnn.engines.gpu.launchers.sums import NUMBERS, WEIGHT, loss_numbers
from openaclnn.engines.gpu.launching.launch import (
    VECTOR_BYTES,
    KernelSpec,
    pointers_by_name,
    scratch_of,
    spec_of,
)
from openaclnn.engines.machine.numbers import all_of, any_of, ceil_div, least, where

MANY = 1 << 20  # pixels that keep a device busy with a whole vector for each thread
FEW_EACH = 2  # pixels of a thread where there are fewer
WARPS = 4
THREADS = 32 * WARPS
LONGEST = THREADS * VECTOR_BYTES // 2  # a block, of the shortest elements
SUM_BYTES = 8 * 4  # of a block's sums, float64
MOST_BLOCK = 1024  # blocks whose sums are added up at once
AXES = 3  # of positions
MAIN, TOTAL = "main", "total"


ROLES = {
    "target": "positions", "x": "full", WEIGHT: "classes", **dict.fromkeys(("lossOut", "topOut", "restOut"), "positions")
}  # fmt: skip
WALKED = {"target": "target", "x": "x", "out": "lossOut", "top": "topOut", "rest": "restOut"}
"""Operands by the kernel's names."""


def launch(g: Geometry) -> Launches:
    """What reads logits, and leaves losses or sums of them, and what adds up the sums."""
    (first, seconds, pixels), classes, strides = g.layout
    summed = g.static["each"] == 0
    each = where(first * seconds * pixels >= MANY, g.static["vector"], FEW_EACH)
    block = least(power_of_two_above(pixels, LONGEST), each * THREADS)
    blocks = ceil_div(pixels, block)
    side_by_side = {name: strides[operand][2] == 1 for name, operand in WALKED.items()}
    side_by_side["out"] = any_of(summed, side_by_side["out"])
    dense = all_of(*side_by_side.values())
    # A stride of 1 is known to the kernel.
    apart = [
        where(all_of(dense, stride == 1), 0, stride) for name in WALKED.values() for stride in strides[name]
    ]  # fmt: skip
    unit, pixels_unit = power_of_two_divisor(*apart), power_of_two_divisor(pixels)
    along = "first", "second", "pixel", "class"
    steps = {
        f"{name}_{axis}": stride // unit
        for name, operand in WALKED.items()
        for axis, stride in zip(along if name == "x" else along[:-1], strides[operand], strict=False)
    }  # fmt: skip
    grid = first * seconds * blocks
    main = LaunchParams(
        MAIN, grid,
        {
            "pixels": pixels // pixels_unit, "seconds": seconds, "blocks": blocks, "classes": classes, **steps,
            "weight_stride": strides[WEIGHT][-1], **loss_numbers(g),
        },
        {"DENSE": dense, "UNIT": unit, "PIXELS_UNIT": pixels_unit, "BLOCK": block}, WARPS,
    )  # fmt: skip
    total = LaunchParams(
        TOTAL, 1, {"count": grid}, {"BLOCK": power_of_two_above(grid, MOST_BLOCK)}, 4, summed
    )
    return Launches([main, total], where(summed, grid * SUM_BYTES, 0), (0,))


def _specs(plan: Plan, offset: int = 0) -> dict[str, KernelSpec]:
    each, squares = not plan.reduction, float_of(plan.numbers["zloss_scale"]) != 0
    slots = pointers_by_name(plan, lambda operand: operand.role != "classes")
    scratch = scratch_of(plan)
    named = {
        "target": slots["target"], "x": slots["input"], "weight": slots.get(WEIGHT), "out": slots["lossOut"] if each else None, "tops": slots["topOut"],
        "rests": slots["restOut"], "sums": None if each else scratch,
        "EACH": each, "SMOOTHED": float_of(plan.numbers["label_smoothing"]) != 0, "SQUARED": squares,
    }  # fmt: skip
    main = {MAIN: spec_of(pixel_losses, named)}
    if each:
        return main
    loss = slots["lossOut"]._replace(wide=False)
    return {**main, TOTAL: total_loss(scratch, loss, plan.reduction == "mean", squared=squares)}


def _static(plan: Plan) -> dict[str, int]:
    return {"vector": VECTOR_BYTES // plan.compute.itemsize, "each": int(not plan.reduction)}


LOSSES = ClassLauncher(
    "logit_pixels.losses", launch, {MAIN: pixel_losses, TOTAL: logit_loss}, ROLES, placed=2, numbers=NUMBERS, positions=AXES,
    specs=_specs, static=_static, reduces=True, axes=AXES,
)  # fmt: skip
