"""Launches of NLL's gradient over images: which pixels and classes a program writes, and in which order.

Programs are ordered so that the output is written nearly from its first byte to its last: a panel of
pixels, whose targets stay in the second-level cache, chunk of classes after chunk of classes. That took
(8,150,512,512) from 0.95 (FLOAT) and 0.87 (BF16) of a copy's bandwidth to 1.03 and 1.02, over programs
that write all classes of their pixels, and so write to many distant parts of the output at once.
Where targets or gradients are transposed, a block of pixels has two axes, so that whole lines are read.
Misaligned class planes, as those of images with an odd number of pixels, have another kernel.
"""

from __future__ import annotations

from openaclnn.core.plan import Plan
from openaclnn.engines.gpu.kernels.pixels import nll_loss2d_backward, nll_loss2d_backward_planes
from openaclnn.engines.gpu.launchers import sums
from openaclnn.engines.gpu.launchers.geometry import (
    Geometry,
    Launches,
    LaunchParams,
    clamp,
    power_of_two_above,
    power_of_two_divisor,
    where_all,
)
from openaclnn.engines.gpu.launchers.gradients import GRADIENTS, PANEL_PIXELS
from openaclnn.engines.gpu.launchers.launcher import ClassLauncher, is_row_major, is_row_major_2d
from openaclnn.engines.gpu.launching.launch import (
    INT32_LIMIT,
    VECTOR_BYTES,
    KernelSpec,
    pointers_by_name,
    scratch_of,
    spec_of,
)
from openaclnn.engines.gpu.launching.runners import Runner
from openaclnn.engines.machine.numbers import (
    Number,
    Truth,
    all_of,
    any_of,
    ceil_div,
    inverse,
    least,
    most,
    where,
)

# For misaligned planes, by the output's itemsize and whether all pixels have one gradient: elements of a vector,
# pixels of a program, warps. Fractions of a copy for (16,19,769,769), (16,21,513,513), (4,19,1025,2049): FLOAT 0.86 0.87
# 0.85, BF16 0.76 0.77 0.75, where the other kernel has 0.50 0.56 0.50 and 0.42 0.47 0.38; with a gradient for each pixel,
# (16,21,513,513), 0.89 and 0.80 (0.55 and 0.49). BF16 with a gradient for each: 0.79 0.80 0.74, by 1024 pixels and 8 warps 0.78 0.81 0.73;
# targets read once and moved in registers instead 0.78 0.79 0.73: reading them is not what it waits for. FLOAT by 4 elements: 0.87 0.84 0.80; fewer classes at a time lost.
PLANES = {
    (2, True): (8, 512, 4), (2, False): (4, 2048, 16), (4, True): (8, 512, 4), (4, False): (8, 512, 4),
    (8, True): (4, 512, 4), (8, False): (4, 512, 4),
}  # fmt: skip
PLANE_CLASSES = 24
FEW_PIXELS = 2048  # a plane of fewer is mostly borders

# Elements up to which one tile serves all sizes, so that a new size compiles nothing.
SMALL = 1 << 16
FEW_TILE = 1, 128, 1, 1, 8
NUMBERS = ("ignore_index",)
ROLES = {"target": "positions", "gradient": "positions", "weight": "classes", "out": "full"}
PLANES_KERNEL, MAIN = "planes", "main"
READ_ARGS = tuple(
    f"{name}_{axis}" for name in ("target", "gradient") for axis in ("first", "second", "pixel")
)
OUT_ARGS = tuple(f"out_{axis}" for axis in ("first", "second", "pixel", "class"))


def pixel_tile(
    itemsize: Number, classes: Number, rows: Number, pixels: Number, channels_last: Truth, transposed: Truth
) -> tuple[Number, ...]:  # fmt: skip
    """A program's tile: pixels along two axes, classes at once, warps, and how many classes at most. It depends on the output's layout, then on those of
    inputs."""
    # Fractions of a copy with 512 pixels on 4 warps, for (32,21,512,1024), (8,150,512,512),
    # (8,19,1024,2048), (7,133,640,640), (24,60,500,500), (2,80,2048,2048):
    # FLOAT, 8 classes: 0.95 1.03 0.93 1.02 0.96 0.97; 16: 0.91 1.00 0.90 1.00 0.88 0.95;
    # all classes:      0.91 0.95 0.91 0.93 0.82 0.89.
    # BF16, 8 classes:  0.90 0.90 0.87 0.89 0.90 0.91; 16: 0.93 1.01 0.90 1.02 0.89 0.97;
    # all classes:      0.93 0.95 0.91 0.93 0.82 0.89.
    across = power_of_two_above(pixels, 512)
    tile: tuple[Number, ...] = 1, across, 1, clamp(across // 128, 1, 4), where(itemsize > 2, 8, 16)  # fmt: skip
    # Of a copy, for 21 and 150 classes with both inputs transposed: FLOAT 0.91 and 0.94, BF16 0.92 and 0.97.
    # 32 classes at a time: 0.90 and 0.86 for 150; half as many rows lost 2-4%; 64 bytes across 5%.
    across = least(power_of_two_above(pixels, 128), 256 // itemsize)
    tall = power_of_two_above(rows, 32)
    turned = tall, across, 1, clamp(tall * across // 128, 1, 8), classes
    tile = where_all(transposed, turned, tile)
    wide = power_of_two_above(classes, 128)
    across = least(power_of_two_above(pixels, 2048), 2048 // wide)
    last = 1, across, wide, clamp(across * wide * itemsize // 512, 1, 4), classes
    return where_all(channels_last, last, tile)


def _planes(g: Geometry, parts: Number, when: Truth) -> LaunchParams:
    """The launch for misaligned class planes."""
    (first, second, pixels), classes, strides = g.layout
    target, gradient, out = (strides[name] for name in ("target", "gradient", "out"))
    vector, block = g.static["plane_vector"], g.static["plane_block"]
    # Blocks are shifted back by less than a vector, so that the last may need one more.
    blocks, chunks = ceil_div(pixels + vector - 1, block), ceil_div(classes, PLANE_CLASSES)
    return LaunchParams(
        PLANES_KERNEL, first * second * chunks * blocks,
        {
            "pixels": pixels, "second_size": second, "blocks": blocks, "classes": classes,
            "chunk_classes": ceil_div(classes, chunks), "chunks": chunks,
            "target_first": target[0], "target_second": target[1], "gradient_first": gradient[0],
            "gradient_second": gradient[1], "out_first": out[0], "out_second": out[1], "out_class": out[3],
            "weight_stride": strides["weight"][3], "ignore_index": g.numbers["ignore_index"],
        },
        {"PARTS": parts, "VECTOR": vector, "BLOCK": block}, g.static["plane_warps"], when, aligned=False,
    )  # fmt: skip


def launch(g: Geometry) -> Launches:
    """The launches of the sums, if there are any, and of the gradient, whose positions have two outer axes and one of pixels."""
    (first, second, pixels), classes, strides = g.layout
    target, gradient, out = (strides[name] for name in ("target", "gradient", "out"))
    itemsize = g.static["itemsize"]
    launches, parts = sums.with_sums(g, "weight", g.static["summed"] > 0)
    one_class_of_one_pixel = all_of(out[2] == 1, out[3] == 1)
    # Pixels are contiguous in all operands, and planes are misaligned.
    odd = all_of(
        not g.strided, out[2] == 1, target[2] == 1, any_of(g.static["single"] > 0, gradient[2] == 1),
        pixels >= FEW_PIXELS, (abs(out[3]) % (VECTOR_BYTES // itemsize)) != 0,
        inverse(one_class_of_one_pixel),
    )  # fmt: skip
    small = g.strided or all_of(
        g.share_small, first * second * pixels * classes <= SMALL, inverse(one_class_of_one_pixel)
    )
    turned = any_of(
        *(all_of(abs(steps[1]) > 0, abs(steps[1]) < abs(steps[2])) for steps in (target, gradient))
    )  # fmt: skip
    channels_last = all_of(out[3] == 1, out[2] != 1)
    # With few elements all constexprs are the same whatever the sizes.
    tall, across, wide, warps, at_most = FEW_TILE
    if small is not True:
        tile = pixel_tile(itemsize, classes, second, pixels, channels_last, turned)
        tall, across, wide, warps, at_most = where_all(small, FEW_TILE, tile)

    def unknown(stride: Number) -> Number:
        """A stride as an argument; 0 in place of 1, which the kernel has as a constexpr."""
        return stride if g.strided else where(stride == 1, 0, stride)

    def step(stride: Number) -> Number:
        return 2 if g.strided else where(stride == 1, 1, 2)

    written = out[0], out[1], unknown(out[2]), unknown(out[3])
    read = (
        target[0], unknown(target[1]), unknown(target[2]), gradient[0], unknown(gradient[1]), unknown(gradient[2]),
    )  # fmt: skip
    unit, read_unit, pixels_unit = (
        where(small, 1, power_of_two_divisor(*divided)) for divided in (written, read, (pixels,))
    )
    # Only a block of several rows has a mask along them.
    seconds_unit = where(tall > 1, power_of_two_divisor(second), 1)
    pixel_blocks = ceil_div(pixels, across)
    panels = ceil_div(pixel_blocks * across, PANEL_PIXELS)
    panel_blocks = ceil_div(pixel_blocks, panels)
    second_blocks, chunks = ceil_div(second, tall), ceil_div(classes, at_most)
    reach = classes + wide
    for steps, by_class in ((out, wide * abs(out[3])), (target, 0), (gradient, 0)):
        reach = most(reach, across * abs(steps[2]) + tall * abs(steps[1]) + by_class)
    main = LaunchParams(
        MAIN, first * second_blocks * panels * chunks * panel_blocks,
        {
            "pixels": pixels // pixels_unit, "second_size": second // seconds_unit,
            "second_blocks": second_blocks, "panels": panels, "panel_blocks": panel_blocks, "classes": classes,
            "chunk_classes": ceil_div(classes, chunks), "chunks": chunks,
            **{name: stride // read_unit for name, stride in zip(READ_ARGS, read, strict=True)},
            **{name: stride // unit for name, stride in zip(OUT_ARGS, written, strict=True)},
            "weight_stride": strides["weight"][3], "ignore_index": g.numbers["ignore_index"],
        },
        {
            "PARTS": parts, "TARGET_STEP": step(target[2]), "TARGET_SECOND": step(target[1]),
            "GRADIENT_STEP": step(gradient[2]), "GRADIENT_SECOND": step(gradient[1]), "PIXEL_STEP": step(out[2]),
            "CLASS_STEP": step(out[3]), "READ_UNIT": read_unit, "UNIT": unit, "PIXELS_UNIT": pixels_unit,
            "SECONDS_UNIT": seconds_unit, "CHUNKED": any_of(small, chunks > 1),
            "WIDE": True if g.strided else reach >= INT32_LIMIT, "TALL": tall, "ACROSS": across, "CLASSES": wide,
        },
        warps, inverse(odd), inverse(small),
    )  # fmt: skip
    planes = [] if odd is False else [_planes(g, parts, odd)]
    return launches._replace(steps=[*launches.steps, *planes, main])


def _specs(plan: Plan, offset: int = 0) -> dict[str, KernelSpec]:
    """The specs of a plan's kernels, for targets that begin at an offset in elements."""
    target, gradient, weight = plan.inputs[:3]
    single, summed = gradient.role == "single", is_summed(plan)
    by_vectors = (target, plan.output) if single else (target, gradient, plan.output)
    slots = pointers_by_name(plan, lambda operand: operand in by_vectors)
    named = {
        "target": slots[target.parameter], "gradient": slots[gradient.parameter], "weight": slots[weight.parameter], "total_weight": slots.get("totalWeight"),
        "sums": scratch_of(plan) if summed else None, "out": slots[plan.output.parameter], "DIVIDED": plan.numbers["mean"], "ONE_GRADIENT": single,
    }  # fmt: skip
    main = spec_of(nll_loss2d_backward, named, overlapped=summed, follows=summed)
    specs = sums.specs(plan, weight.parameter, offset) if summed else {}
    return {**specs, PLANES_KERNEL: main._replace(kernel=nll_loss2d_backward_planes), MAIN: main}


def _static(plan: Plan) -> dict[str, int]:
    itemsize, single = plan.output.dtype.itemsize, plan.inputs[1].role == "single"
    vector, block, warps = PLANES[itemsize, single]
    return {
        "itemsize": itemsize, "single": int(single), "summed": int(is_summed(plan)), "sums": 2,
        "weighted": 1, "plane_vector": vector, "plane_block": block, "plane_warps": warps,
    }  # fmt: skip


def is_summed(plan: Plan) -> bool:
    return bool(plan.numbers["mean"] and not plan.numbers["total_weight_given"])


def _of_images(plan: Plan) -> bool:
    """Whether a plan's operands are row-major images. One merged axis counts as the pixels of one image; images of one pixel each count as
    channels-last ones."""
    return len(plan.shape) <= 2 and is_row_major(plan, *(1, *plan.shape)[-2:])


class _Images(ClassLauncher):
    def runner(self, plan: Plan) -> Runner:
        """Channels-last images are rows to the row formula: (8,19,512,512) in 0.41 (FLOAT) and 0.53 (BF16) of the time."""
        return GRADIENTS.runner(plan) if is_row_major_2d(plan) else super().runner(plan)


PIXELS = _Images(
    "pixels", launch, {**sums.KERNELS, PLANES_KERNEL: nll_loss2d_backward_planes, MAIN: nll_loss2d_backward}, ROLES, placed=3, numbers=NUMBERS,
    position_axes=3, specs=_specs, static=_static, is_row_major=_of_images, limit=SMALL, small_limit=SMALL,
)  # fmt: skip
