# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
"""NLLLoss2dBackward: a program writes a few class planes of a block of pixels.

Programs are ordered so that the output is written nearly from its first byte to its last: a panel of
pixels, whose targets stay in the second-level cache, chunk of classes after chunk of classes. That took
(8,150,512,512) from 0.95 (FLOAT) and 0.87 (BF16) of a copy's bandwidth to 1.03 and 1.02; a program
that wrote all classes of its pixels kept as many places of the output open as there are images.
Where targets or gradients lie transposed, a block of pixels has two axes, so that whole lines are read.

It computes in float32; see the reference in `operators/` for the formula. A target that is ignored or
out of range counts for nothing: masks keep it from every address.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import triton
import triton.language as tl

from openaclnn.core.plan import Operand, Plan
from openaclnn.engines.gpu.launch import Launch, power_of_two_divisor
from openaclnn.engines.gpu.operands import INT32_LIMIT, slot_of, step_of, stride_of
from openaclnn.engines.gpu.runners import runner_of
from openaclnn.engines.gpu.sums import await_sums, is_counted, read_sum, sum_launches


@triton.jit
def _read(
    pointer, at_first, at_second, start, first_stride, second_stride, pixel_stride,
    pixels_left, seconds_left, STEP: tl.constexpr, SECOND_STEP: tl.constexpr, UNIT: tl.constexpr,
    WIDE: tl.constexpr, TALL: tl.constexpr, ACROSS: tl.constexpr,
):  # fmt: skip
    """A block of one number a pixel, row after row; 0 beyond the image."""
    lanes = tl.arange(0, ACROSS)
    inside = lanes < pixels_left
    if WIDE:
        lanes = lanes.to(tl.int64)
    pointer += at_first * first_stride * UNIT
    if SECOND_STEP == 1:
        pointer += at_second
    else:
        pointer += at_second * second_stride * UNIT
    if STEP == 1:
        places = pointer + start + lanes
    else:
        places = pointer + start * pixel_stride * UNIT + lanes * (pixel_stride * UNIT)
    if TALL == 1:
        values = tl.load(places, inside, other=0)
    else:
        down = tl.arange(0, TALL)
        both = (down < seconds_left)[:, None] & inside[None, :]
        if WIDE:
            down = down.to(tl.int64)
        if SECOND_STEP == 1:
            values = tl.load(places[None, :] + down[:, None], both, other=0)
        else:
            values = tl.load(
                places[None, :] + down[:, None] * (second_stride * UNIT), both, other=0
            )
        values = tl.reshape(values, [TALL * ACROSS])
    return values


@triton.jit(do_not_specialize=list(range(6, 26)))
def nll_loss2d_backward(
    target, gradient, weight, total_weight, sums, out,
    pixels, second_size, second_blocks, panels, panel_blocks, classes, chunk_classes, chunks,
    target_first, target_second, target_pixel,
    gradient_first, gradient_second, gradient_pixel,
    out_first, out_second, out_pixel, out_class, weight_stride, ignore_index,
    DIVIDED: tl.constexpr, ONE_GRADIENT: tl.constexpr, PARTS: tl.constexpr,
    TARGET_STEP: tl.constexpr, TARGET_SECOND: tl.constexpr, GRADIENT_STEP: tl.constexpr,
    GRADIENT_SECOND: tl.constexpr, PIXEL_STEP: tl.constexpr, CLASS_STEP: tl.constexpr,
    READ_UNIT: tl.constexpr, UNIT: tl.constexpr,
    PIXELS_UNIT: tl.constexpr, SECONDS_UNIT: tl.constexpr, CHUNKED: tl.constexpr, WIDE: tl.constexpr, OVERLAPPED: tl.constexpr,
    TALL: tl.constexpr, ACROSS: tl.constexpr, CLASSES: tl.constexpr,
):  # fmt: skip
    """A block of pixels (TALL rows of ACROSS), a chunk of classes of it one after another."""
    rest = tl.program_id(0)
    block = rest % panel_blocks
    rest = rest // panel_blocks
    begin = 0
    end = classes
    if CHUNKED:
        begin = (rest % chunks) * chunk_classes
        end = tl.minimum(begin + chunk_classes, classes)
        rest = rest // chunks
    start = ((rest % panels).to(tl.int64) * panel_blocks + block) * ACROSS
    rest = rest // panels
    at_second = (rest % second_blocks).to(tl.int64) * TALL
    at_first = (rest // second_blocks).to(tl.int64)
    pixels_left = pixels.to(tl.int64) * PIXELS_UNIT - start
    seconds_left = second_size.to(tl.int64) * SECONDS_UNIT - at_second
    lanes = tl.arange(0, TALL * ACROSS)
    if TALL == 1:
        inside = lanes < pixels_left
    else:
        inside = (lanes % ACROSS < pixels_left) & (lanes // ACROSS < seconds_left)
    if WIDE:
        lanes = lanes.to(tl.int64)

    indices = _read(
        target, at_first, at_second, start, target_first, target_second, target_pixel,
        pixels_left, seconds_left, TARGET_STEP, TARGET_SECOND, READ_UNIT, WIDE, TALL, ACROSS,
    ).to(tl.int64)  # fmt: skip
    counted = inside & is_counted(indices, classes, ignore_index)
    if ONE_GRADIENT:
        factor = tl.load(gradient).to(tl.float32)
    else:
        factor = _read(
            gradient, at_first, at_second, start, gradient_first, gradient_second, gradient_pixel,
            pixels_left, seconds_left, GRADIENT_STEP, GRADIENT_SECOND, READ_UNIT, WIDE, TALL, ACROSS,
        ).to(tl.float32)  # fmt: skip
    await_sums(OVERLAPPED)
    if DIVIDED:
        if total_weight is not None:
            divisor = tl.load(total_weight).to(tl.float32)
        else:
            divisor = read_sum(sums, 0, PARTS)
        factor = tl.div_rn(factor, divisor)
    own = tl.load(weight + indices * weight_stride, counted, other=0).to(tl.float32)
    value = (factor * own) * -1.0  # a unary minus is 0 - x in Triton, and the document wants -0
    value = value.to(out.dtype.element_ty)
    nothing = tl.zeros([1, 1], out.dtype.element_ty)
    if WIDE:
        hit = tl.where(counted, indices, -1)
    else:
        hit = tl.where(counted, indices, -1).to(tl.int32)

    out += (at_first * out_first + at_second * out_second) * UNIT
    across = lanes
    if TALL > 1:
        across = lanes % ACROSS
    if PIXEL_STEP == 1:
        out += start
        places = across[:, None]
    else:
        out += start * out_pixel * UNIT
        places = across[:, None] * (out_pixel * UNIT)
    if TALL > 1:
        places += (lanes // ACROSS)[:, None] * (out_second * UNIT)
    class_lanes = tl.arange(0, CLASSES)
    if CLASS_STEP == 1:
        step = tl.full([], 1, tl.int64)
        places = places + class_lanes[None, :]
    else:
        step = out_class.to(tl.int64) * UNIT
        if WIDE:
            class_lanes = class_lanes.to(tl.int64)
        places = places + class_lanes[None, :] * (out_class * UNIT)
    out += begin * step
    for first in range(begin, end, CLASSES):
        number = first + tl.arange(0, CLASSES)
        result = tl.where(hit[:, None] == number[None, :], value[:, None], nothing)
        mask = inside[:, None]
        if CLASSES > 1:
            mask = mask & (number[None, :] < end)
        # Nobody reads the gradient while it is written: .cs stores leave the second-level cache early.
        tl.store(out + places, result, mask, cache_modifier=".cs")
        out += step * CLASSES


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
