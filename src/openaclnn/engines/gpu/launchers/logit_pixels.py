"""Cross entropy from logits of pixels and its gradient: blocks of neighbouring pixels, each with all classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from openaclnn.core.dtypes import FLOAT
from openaclnn.core.plan import Plan
from openaclnn.engines.gpu.formulas.tuned import as_float
from openaclnn.engines.gpu.kernels.logit_pixels import pixel_gradients, pixel_losses
from openaclnn.engines.gpu.kernels.logits import logit_loss
from openaclnn.engines.gpu.launchers import sums
from openaclnn.engines.gpu.launchers.geometry import (
    Geometry,
    Launches,
    LaunchParams,
    Layout,
    Pattern,
)
from openaclnn.engines.gpu.launchers.launcher import as_planned, bound, rounded, runner_of_pattern
from openaclnn.engines.gpu.launchers.numbers import (
    Number,
    all_of,
    any_of,
    ceil_div,
    divide_exactly,
    equal,
    flag,
    least,
    power_of_two_above,
    power_of_two_divisor,
    quotient,
    where,
)
from openaclnn.engines.gpu.launchers.rows import NUMBERS, WEIGHT, is_summed
from openaclnn.engines.gpu.launching.launch import VECTOR_BYTES, KernelSpec, PointerArg
from openaclnn.engines.gpu.launching.operands import operand_of, pointer_type
from openaclnn.engines.gpu.launching.queues import SizedRunner, lies_row_major, remembered
from openaclnn.engines.gpu.launching.steps import Runner

__all__ = ["gradients", "losses", "sized_gradients", "sized_losses"]

MANY = 1 << 20  # pixels that keep a device busy with a whole vector for each thread
FEW_EACH = 2  # pixels of a thread where there are fewer
WARPS = 4
THREADS = 32 * WARPS
LONGEST = THREADS * VECTOR_BYTES // 2  # a block, of the shortest elements
SUM_BYTES = 8 * 4  # of a block's sums, float64
MOST_BLOCK = 1024  # blocks whose sums are added up at once
AXES = 3  # of positions
MAIN, TOTAL = "main", "total"


def _main(g: Geometry, operands: Mapping[str, str], perhaps: str) -> LaunchParams:
    """The launch over pixels of operands by the kernel's names; `perhaps` one of them has a number for each pixel."""
    (first, seconds, pixels), classes, strides = g.layout
    each = where(first * seconds * pixels >= MANY, g.static["vector"], FEW_EACH)
    block = least(power_of_two_above(pixels, LONGEST), each * THREADS)
    blocks = ceil_div(pixels, block)
    dense = all_of(
        *(
            equal(strides[own][2], 1) if name != perhaps else any_of(equal(g.static["each"], 0), equal(strides[own][2], 1))
            for name, own in operands.items()
        )
    )  # fmt: skip
    # A stride of 1 is known to the kernel.
    apart = [
        where(all_of(dense, equal(own, 1)), 0, own) for name in operands.values() for own in strides[name]
    ]  # fmt: skip
    unit, pixels_unit = power_of_two_divisor(*apart), power_of_two_divisor(pixels)
    along = "first", "second", "pixel", "class"
    steps = {
        f"{name}_{axis}": divide_exactly(stride, unit)
        for name, own in operands.items()
        for axis, stride in zip(along if own in FULL else along[:-1], strides[own], strict=False)
    }
    return LaunchParams(
        MAIN, first * seconds * blocks,
        {
            "pixels": quotient(pixels, pixels_unit), "seconds": seconds, "blocks": blocks, "classes": classes, **steps,
            "weight_stride": strides[WEIGHT][-1],
        },
        {"DENSE": dense, "UNIT": unit, "PIXELS_UNIT": pixels_unit, "BLOCK": block}, WARPS,
    )  # fmt: skip


FULL = "x", "gradients"  # what has classes


def _launch_losses(g: Geometry) -> Launches:
    """What reads logits, and leaves losses or sums of them, and what adds up the sums."""
    names = {"target": "target", "x": "x", "out": "lossOut", "top": "topOut", "rest": "restOut"}
    main = _main(g, names, "out")
    main = main._replace(args={**main.args, **sums.loss_numbers(g)})
    summed, blocks = equal(g.static["each"], 0), main.grid
    total = LaunchParams(
        TOTAL, 1, {"count": blocks}, {"BLOCK": power_of_two_above(blocks, MOST_BLOCK)}, 4, summed
    )
    return Launches([main, total], where(summed, blocks * SUM_BYTES, 0), (0,))


def _launch_gradients(g: Geometry) -> Launches:
    """What makes the sums, if it takes any, and what writes the gradient."""
    found, parts = sums.with_sums(g, WEIGHT, g.static["summed"] > 0)
    names = {
        "target": "target", "gradient": "gradient", "x": "x", "top": "top", "rest": "rest", "out": "gradients",
    }  # fmt: skip
    main = _main(g, names, "gradient")
    main = main._replace(
        args={**main.args, **sums.gradient_numbers(g)}, constexprs={"PARTS": parts, **main.constexprs}
    )  # fmt: skip
    return found._replace(steps=[*found.steps, main])


def _row_major(sizes: Sequence[Number], area: Number, each: Mapping[str, Number]) -> Layout:
    """As plans merge axes (`core.plan.row_major_walks`), so that blocks are theirs: images of a pixel each are the pixels of one that has
    its classes side by side, and one class of all images is a plane."""
    images, classes = sizes
    positions, several = images * area, flag(classes > 1)
    merged = any_of(equal(images, 1), equal(area, 1), equal(classes, 1))
    second, pixel = where(merged, 0, area), flag(positions > 1)
    dots = all_of(equal(area, 1), images > 1)
    strides: dict[str, tuple[Number, ...]] = {
        name: (0, second * own, pixel * own, 0) for name, own in each.items()
    }
    full = 0, second * classes, where(dots, classes, pixel), area * several
    strides |= {name: full for name in FULL if name in each}
    strides[WEIGHT] = 0, 0, 0, each[WEIGHT] * several
    return Layout((1, where(merged, 1, images), where(merged, positions, area)), classes, strides)


_LOSSES = Pattern(
    "logit_pixels.losses", _launch_losses, {MAIN: pixel_losses, TOTAL: logit_loss},
    ("target", "x", WEIGHT, "lossOut", "topOut", "restOut"), ("vector", "each"), 2, 0, _row_major,
)  # fmt: skip
_GRADIENTS = Pattern(
    "logit_pixels.gradients", _launch_gradients, {**sums.KERNELS, MAIN: pixel_gradients},
    ("target", "gradient", "x", "top", "rest", WEIGHT, "gradients"), ("vector", "each", "summed", "sums", "weighted"), 3, 0,
    _row_major,
)  # fmt: skip


def _slots(plan: Plan) -> dict[str, PointerArg]:
    return {
        own.parameter: PointerArg(place, pointer_type(own), own.offset * own.dtype.itemsize, own.role != "classes")
        for place, own in enumerate(plan.operands)
    }  # fmt: skip


def _squares(plan: Plan) -> bool:
    return as_float(plan.numbers["zloss_scale"]) != 0


def _specs_of_losses(plan: Plan) -> dict[str, KernelSpec]:
    each, slots = not plan.reduction, _slots(plan)
    scratch = PointerArg(len(plan.operands), "float64")
    main = KernelSpec(
        pixel_losses,
        (
            slots["target"], slots["input"], slots.get(WEIGHT), slots["lossOut"] if each else None, slots["topOut"],
            slots["restOut"], None if each else scratch,
        ),
        (each, as_float(plan.numbers["label_smoothing"]) != 0, _squares(plan)),
        overlapped=True,
    )  # fmt: skip
    if each:
        return {MAIN: main}
    pointers = scratch, slots["lossOut"]._replace(wide=False), None
    known = plan.reduction == "mean", _squares(plan)
    return {
        MAIN: main,
        TOTAL: KernelSpec(logit_loss, pointers, known, overlapped=True, follows=True),
    }


def _specs_of_gradients(plan: Plan, offset: int = 0) -> dict[str, KernelSpec]:
    numbers, slots, single = plan.numbers, _slots(plan), plan.inputs[1].role == "single"
    summed = is_summed(plan)
    main = KernelSpec(
        pixel_gradients,
        (
            slots["target"], slots["gradLoss"]._replace(wide=not single), slots["input"], slots["top"], slots["rest"],
            slots.get(WEIGHT), sums.sums_slot(plan) if summed else None, slots["out"],
        ),
        (
            single, numbers["mean"], as_float(numbers["label_smoothing"]) != 0, plan.compute is FLOAT,
            _squares(plan),
        ),
        overlapped=summed,
        follows=summed,
    )  # fmt: skip
    return {**(sums.specs(plan, WEIGHT, offset) if summed else {}), MAIN: main}


def _static_of_losses(plan: Plan) -> dict[str, int]:
    return {"vector": VECTOR_BYTES // plan.compute.itemsize, "each": int(not plan.reduction)}


def _static_of_gradients(plan: Plan) -> dict[str, int]:
    return {
        "vector": VECTOR_BYTES // plan.compute.itemsize, "each": int(plan.inputs[1].role != "single"),
        "summed": int(is_summed(plan)), "sums": sums.sums_of(plan, WEIGHT), "weighted": int(operand_of(plan, WEIGHT) is not None),
    }  # fmt: skip


def losses(plan: Plan) -> Runner:
    """What queues the loss on a stream."""
    return _bound(_LOSSES, plan, _static_of_losses(plan), _specs_of_losses(plan))


def gradients(plan: Plan) -> Runner:
    """What queues the gradient on a stream."""
    specs = _specs_of_gradients(plan, sums.targets_of(plan)[1])
    return _bound(_GRADIENTS, plan, _static_of_gradients(plan), specs)


def _bound(
    pattern: Pattern, plan: Plan, static: Mapping[str, int], specs: Mapping[str, KernelSpec]
) -> Runner:
    numbers = rounded([plan.numbers[name] for name in NUMBERS])
    layout, targets = as_planned(pattern, plan, AXES), sums.targets_of(plan)[0]
    geometry = Geometry(layout, targets, static, numbers, lambda place: 0)
    return bound(pattern.launch, geometry, specs, len(plan.operands))


def sized_losses(plan: Plan) -> SizedRunner | None:
    """What queues the loss over row-major operands and any (images, classes, ...)."""
    return remembered(plan, _sized_losses) if _has_images(plan) else None


def sized_gradients(plan: Plan) -> SizedRunner | None:
    """The same of the gradient."""
    return remembered(plan, _sized_gradients) if _has_images(plan) else None


def _has_images(plan: Plan) -> bool:
    """Whether it lies as row-major images do; one merged axis is that of one image's pixels, or of images of a pixel each."""
    if len(plan.shape) > 2:
        return False
    first, last = (1, *plan.shape)[-2:]
    return lies_row_major(plan, first, last) or lies_row_major(plan, last, first)


def _sized_losses(plan: Plan) -> SizedRunner:
    specs, static = _specs_of_losses(plan), _static_of_losses(plan)
    return runner_of_pattern(_LOSSES, plan, specs, static, NUMBERS)


def _sized_gradients(plan: Plan) -> SizedRunner:
    specs, static = _specs_of_gradients(plan), _static_of_gradients(plan)
    return runner_of_pattern(_GRADIENTS, plan, specs, static, NUMBERS)
