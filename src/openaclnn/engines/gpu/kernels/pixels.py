# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
"""NLLLoss2dBackward: a program writes a few class planes of a block of pixels. Where planes begin anywhere, as those of odd images do,
they have a kernel of their own.

It computes in float32; see the reference in `operators/` for the formula. A target that is ignored or
out of range counts for nothing: masks keep it from every address.
"""

from __future__ import annotations

import triton
import triton.language as tl

from openaclnn.engines.gpu.kernels.sums import await_sums, is_counted, read_sum


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


@triton.jit
def nll_loss2d_backward(
    target, gradient, weight, total_weight, sums, out,
    pixels, second_size, second_blocks, panels, panel_blocks, classes, chunk_classes, chunks,
    target_first, target_second, target_pixel,
    gradient_first, gradient_second, gradient_pixel,
    out_first, out_second, out_pixel, out_class, weight_stride, ignore_index,
    OVERLAPPED: tl.constexpr, DIVIDED: tl.constexpr, ONE_GRADIENT: tl.constexpr, PARTS: tl.constexpr,
    TARGET_STEP: tl.constexpr, TARGET_SECOND: tl.constexpr, GRADIENT_STEP: tl.constexpr,
    GRADIENT_SECOND: tl.constexpr, PIXEL_STEP: tl.constexpr, CLASS_STEP: tl.constexpr,
    READ_UNIT: tl.constexpr, UNIT: tl.constexpr,
    PIXELS_UNIT: tl.constexpr, SECONDS_UNIT: tl.constexpr, CHUNKED: tl.constexpr, WIDE: tl.constexpr,
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
    target_weight = tl.load(weight + indices * weight_stride, counted, other=0).to(tl.float32)
    # A unary minus is 0 - x in Triton, and the document wants -0.
    value = (factor * target_weight) * -1.0
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


@triton.jit
def nll_loss2d_backward_planes(
    target, gradient, weight, total_weight, sums, out,
    pixels, second_size, blocks, classes, chunk_classes, chunks,
    target_first, target_second, gradient_first, gradient_second, out_first, out_second, out_class,
    weight_stride, ignore_index,
    OVERLAPPED: tl.constexpr, DIVIDED: tl.constexpr, ONE_GRADIENT: tl.constexpr, PARTS: tl.constexpr,
    VECTOR: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A block of pixels, shifted by less than a vector, of a chunk of classes; pixels lie side by side everywhere.

    A vector can be stored only where its address is a multiple of its size, and planes begin off such addresses by different lengths:
    those of classes VECTOR apart by the same. A program takes the classes of a chunk in such groups, and reads its targets once for each
    group, as far shifted; but for the first, from the first-level cache.
    """
    rest = tl.program_id(0)
    block = rest % blocks
    rest = rest // blocks
    begin = (rest % chunks) * chunk_classes
    end = tl.minimum(begin + chunk_classes, classes)
    rest = rest // chunks
    at_second = (rest % second_size).to(tl.int64)
    at_first = (rest // second_size).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    start = block.to(tl.int64) * BLOCK
    target += at_first * target_first + at_second * target_second
    out += at_first * out_first + at_second * out_second
    step = out_class.to(tl.int64)
    ITEMSIZE: tl.constexpr = out.dtype.element_ty.primitive_bitwidth // 8
    # Elsewhere all lanes are pixels of the image.
    border = (block == 0) | (start + BLOCK > pixels)
    nothing = tl.zeros([1], out.dtype.element_ty)
    if ONE_GRADIENT:
        factor = tl.load(gradient).to(tl.float32)
    else:
        gradient += at_first * gradient_first + at_second * gradient_second
    await_sums(OVERLAPPED)
    divisor = 1.0
    if DIVIDED:
        if total_weight is not None:
            divisor = tl.load(total_weight).to(tl.float32)
        else:
            divisor = read_sum(sums, 0, PARTS)
        if ONE_GRADIENT:
            factor = tl.div_rn(factor, divisor)

    for group in tl.static_range(VECTOR):
        first = begin + group
        if first < end:
            plane = out + first * step
            head = (plane.to(tl.int64) % (VECTOR * ITEMSIZE)) // ITEMSIZE
            pixel = start - head + lanes
            inside = (pixel >= 0) & (pixel < pixels)
            indices = tl.load(target + pixel, inside, other=-1).to(tl.int64)
            # A class's own number, or one that no class has.
            code = tl.where((indices >> 32) == 0, indices.to(tl.int32), -1)
            if not ONE_GRADIENT:
                pixel_factor = tl.load(gradient + pixel, inside, other=0).to(tl.float32)
                if DIVIDED:
                    pixel_factor = tl.div_rn(pixel_factor, divisor)
            place = plane - head + start
            for number in range(first, end, VECTOR):
                here = tl.load(weight + number * weight_stride).to(tl.float32)
                # A unary minus is 0 - x in Triton, and the document wants -0.
                if ONE_GRADIENT:
                    value = (factor * here) * -1.0
                else:
                    value = (pixel_factor * here) * -1.0
                hit = (code == number) & (number != ignore_index)
                result = tl.where(hit, value.to(out.dtype.element_ty), nothing)
                places = tl.multiple_of(place, VECTOR * ITEMSIZE) + lanes
                if border:
                    tl.store(places, result, inside)
                else:
                    tl.store(places, result, cache_modifier=".cs")
                place += step * VECTOR
