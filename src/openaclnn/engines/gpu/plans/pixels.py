"""How NLLLoss2dBackward is launched: which pixels and classes a program writes, and in which order.

Programs are ordered so that the output is written nearly from its first byte to its last: a panel of
pixels, whose targets stay in the second-level cache, chunk of classes after chunk of classes. That took
(8,150,512,512) from 0.95 (FLOAT) and 0.87 (BF16) of a copy's bandwidth to 1.03 and 1.02; a program
that wrote all classes of its pixels kept as many places of the output open as there are images.
Where targets or gradients lie transposed, a block of pixels has two axes, so that whole lines are read.
Class planes that begin off a vector's bounds, as those of odd images do, have a kernel of their own (`kernels/planes.py`).
"""

from __future__ import annotations

from typing import NamedTuple

from openaclnn.core.plan import Operand, Plan
from openaclnn.engines.gpu.kernels.pixels import nll_loss2d_backward
from openaclnn.engines.gpu.kernels.planes import nll_loss2d_backward_planes
from openaclnn.engines.gpu.launching.launch import (
    VECTOR_BYTES,
    Family,
    Launch,
    Sizes,
    Slot,
    anywhere,
    next_power_of_two,
    power_of_two_divisor,
)
from openaclnn.engines.gpu.launching.operands import (
    INT32_LIMIT,
    ignored,
    slots_of,
    step_of,
    stride_of,
)
from openaclnn.engines.gpu.launching.runners import runner_of
from openaclnn.engines.gpu.launching.steps import Runner
from openaclnn.engines.gpu.plans.sums import (
    NO_SUMS,
    sum_launches,
)

# 4 MiB of INT64 targets. Half of it gave (32,21,512,1024) FLOAT 0.91 of a copy instead of 0.95; twice
# and four times gave (2,80,2048,2048) 0.86 and 0.72 instead of 0.97, as targets left the cache.
PANEL_PIXELS = 1 << 19
CHUNK_CLASSES = {2: 16, 4: 8, 8: 8}  # by the output's itemsize; see pixel_tile


# Of planes that begin anywhere, by the output's itemsize and whether all pixels have one gradient: elements of a vector,
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

# Elements of an output for which nothing is chosen by its sizes, so that no size compiles anything.
FEW = 1 << 16


class Tile(NamedTuple):
    """What a program writes: pixels by two axes, classes at once, and how many classes at most."""

    tall: int
    across: int
    classes: int
    warps: int
    most: int


def pixel_tile(
    itemsize: int, classes: int, rows: int, pixels: int, channels_last: bool, transposed: bool
) -> Tile:
    """By the layout of the output, then of what is read."""
    if channels_last:
        wide = min(next_power_of_two(classes), 128)
        tall = min(next_power_of_two(pixels), 2048 // wide)
        return Tile(1, tall, wide, max(1, min(4, tall * wide * itemsize // 512)), classes)
    if transposed:
        # Of a copy, for 21 and 150 classes with both turned: FLOAT 0.91 and 0.94, BF16 0.92 and 0.97.
        # 32 classes at a time: 0.90 and 0.86 for 150; half as many rows lost 2-4%; 64 bytes across 5%.
        across = min(next_power_of_two(pixels), 256 // itemsize)
        tall = min(next_power_of_two(rows), 32)
        return Tile(tall, across, 1, max(1, min(8, tall * across // 128)), classes)
    # Fractions of a copy with 512 pixels on 4 warps, for (32,21,512,1024), (8,150,512,512),
    # (8,19,1024,2048), (7,133,640,640), (24,60,500,500), (2,80,2048,2048):
    # FLOAT, 8 classes: 0.95 1.03 0.93 1.02 0.96 0.97; 16: 0.91 1.00 0.90 1.00 0.88 0.95;
    # all classes:      0.91 0.95 0.91 0.93 0.82 0.89.
    # BF16, 8 classes:  0.90 0.90 0.87 0.89 0.90 0.91; 16: 0.93 1.01 0.90 1.02 0.89 0.97;
    # all classes:      0.93 0.95 0.91 0.93 0.82 0.89.
    across = min(next_power_of_two(pixels), 512)
    return Tile(1, across, 1, max(1, min(4, across // 128)), CHUNK_CLASSES[itemsize])


FEW_TILE = Tile(1, 128, 1, 1, 8)

Strides = tuple[int, int, int, int]
"""Of an operand: along the two outer axes, along pixels and along classes; 0 where it lacks one."""


def _strides(operand: Operand) -> Strides:
    first, second, pixel = (stride_of(operand, axis) for axis in (-3, -2, -1))
    return first, second, pixel, operand.class_stride


class Pixels:
    """The kernel of a plan, whatever its sizes."""

    def __init__(self, plan: Plan, sums: Slot | None, weight_stride: int) -> None:
        target, gradient, weight = plan.inputs[:3]
        single = gradient.role == "single"
        *slots, out = slots_of(
            plan,
            {
                target.parameter: True, gradient.parameter: not single, weight.parameter: False,
                "totalWeight": False, plan.output.parameter: True,
            },
        )  # fmt: skip
        self.family = Family(
            nll_loss2d_backward,
            (*slots, sums, out),
            (plan.numbers["mean"], single),
            overlapped=sums is not None,
            follows=sums is not None,
        )
        self.itemsize, self.single = plan.output.dtype.itemsize, single
        self.weight_stride = weight_stride

    def sizes(
        self, shape: tuple[int, int, int], classes: int,
        target: Strides, gradient: Strides, out: Strides, ignore_index: int, parts: int,
        few: bool = False,
    ) -> Sizes:  # fmt: skip
        """Of two outer axes and one of pixels. New shapes come this way at every call.

        With `few` elements, of class planes one after the other, all constants are the same whatever the sizes.
        """
        first, second, pixels = shape
        target_first, target_second, target_pixel, _ = target
        gradient_first, gradient_second, gradient_pixel, _ = gradient
        out_first, out_second, out_pixel, out_class = out
        turned = (0 < abs(target_second) < abs(target_pixel)) or (
            0 < abs(gradient_second) < abs(gradient_pixel)
        )
        tall, across, wide, warps, most = (
            FEW_TILE
            if few
            else pixel_tile(
                self.itemsize, classes, second, pixels, out_class == 1 != out_pixel, turned
            )
        )
        # A stride of 1 is known to the kernel; 0 is as good a number as any then.
        written = out_first, out_second, _unknown(out_pixel), _unknown(out_class)
        read = (
            target_first, _unknown(target_second), _unknown(target_pixel),
            gradient_first, _unknown(gradient_second), _unknown(gradient_pixel),
        )  # fmt: skip
        unit = read_unit = pixels_unit = 1
        if not few:
            unit, read_unit = power_of_two_divisor(*written), power_of_two_divisor(*read)
            pixels_unit = power_of_two_divisor(pixels)
        # Only a block of several rows has a mask along them.
        seconds_unit = power_of_two_divisor(second) if tall > 1 else 1
        pixel_blocks = -(-pixels // across)
        panels = -(-pixel_blocks * across // PANEL_PIXELS)
        panel_blocks = -(-pixel_blocks // panels)
        second_blocks = -(-second // tall)
        chunks = -(-classes // most)
        reach = max(
            across * abs(out_pixel) + tall * abs(out_second) + wide * abs(out_class),
            across * abs(target_pixel) + tall * abs(target_second),
            across * abs(gradient_pixel) + tall * abs(gradient_second),
            classes + wide,
        )
        return (
            first * second_blocks * panels * chunks * panel_blocks,
            (
                pixels // pixels_unit, second // seconds_unit, second_blocks, panels, panel_blocks,
                classes, -(-classes // chunks), chunks,
                *[stride // read_unit for stride in read], *[stride // unit for stride in written],
                self.weight_stride, ignored(ignore_index),
            ),
            (
                parts, step_of(target_pixel), step_of(target_second),
                step_of(gradient_pixel), step_of(gradient_second),
                step_of(out_pixel), step_of(out_class), read_unit, unit, pixels_unit, seconds_unit,
                few or chunks > 1, reach >= INT32_LIMIT, tall, across, wide,
            ),
            warps,
        )  # fmt: skip


class Planes:
    """The kernel for class planes that begin off a vector's bounds, whatever the sizes."""

    def __init__(self, pixels: Pixels) -> None:
        self.family = anywhere(pixels.family)._replace(kernel=nll_loss2d_backward_planes)
        self.vector, self.block, self.warps = PLANES[pixels.itemsize, pixels.single]
        self.aligned = VECTOR_BYTES // pixels.itemsize
        self._weight_stride = pixels.weight_stride

    def serves(
        self, pixels: int, target: Strides, gradient: Strides, out: Strides, single: bool
    ) -> bool:
        """Whether pixels lie side by side everywhere, and planes begin off a vector's bounds."""
        dense = out[2] == target[2] == 1 and (single or gradient[2] == 1)
        return dense and pixels >= FEW_PIXELS and out[3] % self.aligned != 0

    def sizes(
        self, shape: tuple[int, int, int], classes: int,
        target: Strides, gradient: Strides, out: Strides, ignore_index: int, parts: int,
    ) -> Sizes:  # fmt: skip
        first, second, pixels = shape
        # Blocks are shifted back by less than a vector, so that the last may need one more.
        blocks = -(-(pixels + self.vector - 1) // self.block)
        chunks = -(-classes // PLANE_CLASSES)
        return (
            first * second * chunks * blocks,
            (
                pixels, second, blocks, classes, -(-classes // chunks), chunks,
                *target[:2], *gradient[:2], *out[:2], out[3],
                self._weight_stride, ignored(ignore_index),
            ),
            (parts, self.vector, self.block),
            self.warps,
        )  # fmt: skip


def _unknown(stride: int) -> int:
    return 0 if stride == 1 else stride


def is_summed(plan: Plan) -> bool:
    return bool(plan.numbers["mean"] and not plan.numbers["total_weight_given"])


def runner(plan: Plan) -> Runner:
    """What queues the plan on a stream."""
    target, gradient, weight = plan.inputs[:3]
    sums = sum_launches(plan, weight.parameter) if is_summed(plan) else NO_SUMS
    kernel = Pixels(plan, sums.slot, weight.class_stride)
    first, second, pixels = (*(1,) * (3 - len(plan.shape)), *plan.shape)
    strides = _strides(target), _strides(gradient), _strides(plan.output)
    planes = Planes(kernel)
    odd = planes.serves(pixels, *strides, gradient.role == "single")
    own: Pixels | Planes = planes if odd else kernel
    sizes = own.sizes(
        (first, second, pixels), plan.classes, *strides, plan.numbers["ignore_index"], sums.parts
    )
    return runner_of([*sums.launches, Launch(own.family, *sizes)], sums.scratch)
