"""How NLLLoss2dBackward is launched: which pixels and classes a program writes, and in which order.

Programs are ordered so that the output is written nearly from its first byte to its last: a panel of
pixels, whose targets stay in the second-level cache, chunk of classes after chunk of classes. That took
(8,150,512,512) from 0.95 (FLOAT) and 0.87 (BF16) of a copy's bandwidth to 1.03 and 1.02; a program
that wrote all classes of its pixels kept as many places of the output open as there are images.
Where targets or gradients lie transposed, a block of pixels has two axes, so that whole lines are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import triton

from openaclnn.core.plan import Operand, Plan
from openaclnn.engines.gpu.launch import Launch, power_of_two_divisor
from openaclnn.engines.gpu.operands import INT32_LIMIT, slot_of, step_of, stride_of
from openaclnn.engines.gpu.pixel_kernel import nll_loss2d_backward
from openaclnn.engines.gpu.runners import runner_of
from openaclnn.engines.gpu.sums import sum_launches

# 4 MiB of INT64 targets. Half of it gave (32,21,512,1024) FLOAT 0.91 of a copy instead of 0.95; twice
# and four times gave (2,80,2048,2048) 0.86 and 0.72 instead of 0.97, as targets left the cache.
PANEL_PIXELS = 1 << 19
CHUNK_CLASSES = {2: 16, 4: 8, 8: 8}  # by the output's itemsize; see pixel_tile


class Tile(NamedTuple):
    """What a program writes: pixels by two axes, classes at once, and how many classes at most."""

    tall: int
    across: int
    classes: int
    warps: int
    most: int


def _is_transposed(operand: Operand) -> bool:
    """Whether neighbours along the last axis but one lie nearer than those along the last."""
    if len(operand.strides) < 2 or not operand.strides[-2]:
        return False
    second, last = (abs(stride) for stride in operand.strides[-2:])
    return second < last


def pixel_tile(plan: Plan, pixels: int) -> Tile:
    """By the layout of the output, then of what is read."""
    classes, itemsize = plan.classes, plan.output.dtype.itemsize
    if plan.output.class_stride == 1 and plan.output.strides[-1] != 1:  # channels last
        wide = min(triton.next_power_of_2(classes), 128)
        tall = min(triton.next_power_of_2(pixels), 2048 // wide)
        return Tile(1, tall, wide, max(1, min(4, tall * wide * itemsize // 512)), classes)
    if any(_is_transposed(own) for own in plan.inputs[:2]):
        # Of a copy, for 21 and 150 classes with both turned: FLOAT 0.91 and 0.94, BF16 0.92 and 0.97.
        # 32 classes at a time: 0.90 and 0.86 for 150; half as many rows lost 2-4%; 64 bytes across 5%.
        across = min(triton.next_power_of_2(pixels), 256 // itemsize)
        tall = min(triton.next_power_of_2(plan.shape[-2]), 32)
        return Tile(tall, across, 1, max(1, min(8, tall * across // 128)), classes)
    # Fractions of a copy with 512 pixels on 4 warps, for (32,21,512,1024), (8,150,512,512),
    # (8,19,1024,2048), (7,133,640,640), (24,60,500,500), (2,80,2048,2048):
    # FLOAT, 8 classes: 0.95 1.03 0.93 1.02 0.96 0.97; 16: 0.91 1.00 0.90 1.00 0.88 0.95;
    # all classes:      0.91 0.95 0.91 0.93 0.82 0.89.
    # BF16, 8 classes:  0.90 0.90 0.87 0.89 0.90 0.91; 16: 0.93 1.01 0.90 1.02 0.89 0.97;
    # all classes:      0.93 0.95 0.91 0.93 0.82 0.89.
    across = min(triton.next_power_of_2(pixels), 512)
    return Tile(1, across, 1, max(1, min(4, across // 128)), CHUNK_CLASSES[itemsize])


def runner(plan: Plan) -> Callable[[Sequence[int], int], int]:
    target, gradient, weight = plan.inputs[:3]
    output, numbers = plan.output, plan.numbers
    *outer, pixels = plan.shape
    first_size, second_size = (*(1,) * (2 - len(outer)), *outer)
    tile = pixel_tile(plan, pixels)
    outer_strides = [stride_of(output, -3), stride_of(output, -2)]
    steps = [0 if stride == 1 else stride for stride in (output.strides[-1], output.class_stride)]
    unit = power_of_two_divisor([*outer_strides, *steps])
    # A stride of 1 is known to the kernel; 0 is as good a number as any then.
    read = [
        [
            stride_of(own, -3),
            *(0 if stride_of(own, axis) == 1 else stride_of(own, axis) for axis in (-2, -1)),
        ]
        for own in (target, gradient)
    ]
    read_unit = power_of_two_divisor(stride for own in read for stride in own)
    pixels_unit, seconds_unit = power_of_two_divisor([pixels]), power_of_two_divisor([second_size])
    pixel_blocks = -(-pixels // tile.across)
    panels = -(-pixel_blocks * tile.across // PANEL_PIXELS)
    panel_blocks = -(-pixel_blocks // panels)
    second_blocks = -(-second_size // tile.tall)
    chunks = -(-plan.classes // tile.most)
    chunk_classes = -(-plan.classes // chunks)
    reach = max(
        tile.across * abs(own.strides[-1])
        + tile.tall * abs(stride_of(own, -2))
        + tile.classes * abs(own.class_stride)
        for own in (output, target, gradient)
    )
    summed = numbers["mean"] and not numbers["total_weight_given"]
    before, sums, parts, scratch = (
        sum_launches(plan, weight.parameter) if summed else ([], None, 1, 0)
    )
    launch = Launch(
        nll_loss2d_backward,
        first_size * second_blocks * panels * chunks * panel_blocks,
        (
            slot_of(plan, target.parameter, wide=True),
            slot_of(plan, gradient.parameter, wide=gradient.role != "single"),
            slot_of(plan, weight.parameter),
            slot_of(plan, "totalWeight"),
            sums,
            slot_of(plan, output.parameter, wide=True),
        ),
        (
            pixels // pixels_unit, second_size // seconds_unit, second_blocks, panels, panel_blocks,
            plan.classes, chunk_classes, chunks,
            *(stride // read_unit for own in read for stride in own),
            *(stride // unit for stride in (*outer_strides, *steps)),
            weight.class_stride, numbers["ignore_index"],
        ),
        {
            "DIVIDED": numbers["mean"], "ONE_GRADIENT": gradient.role == "single", "PARTS": parts,
            "TARGET_STEP": step_of(target.strides[-1]), "TARGET_SECOND": step_of(stride_of(target, -2)),
            "GRADIENT_STEP": step_of(gradient.strides[-1]),
            "GRADIENT_SECOND": step_of(stride_of(gradient, -2)),
            "PIXEL_STEP": step_of(output.strides[-1]), "CLASS_STEP": step_of(output.class_stride),
            "READ_UNIT": read_unit,
            "UNIT": unit, "PIXELS_UNIT": pixels_unit, "SECONDS_UNIT": seconds_unit, "CHUNKED": chunks > 1,
            "WIDE": reach >= INT32_LIMIT or plan.classes + tile.classes >= INT32_LIMIT,
            "OVERLAPPED": bool(summed), "TALL": tile.tall, "ACROSS": tile.across, "CLASSES": tile.classes,
        },
        tile.warps,
        follows=bool(summed),
    )  # fmt: skip
    return runner_of([*before, launch], scratch)
