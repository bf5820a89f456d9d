# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
"""NLLLoss2dBackward where class planes begin anywhere, as those of odd images do.

A vector can be stored only where its address is a multiple of its size, and planes begin off such addresses by different
lengths: those of classes VECTOR apart by the same. A program takes the classes of a chunk in such groups. It reads its targets, from
an address that is a multiple, and those one vector earlier; what a group stores is picked out of both, in the registers of one thread.
"""

from __future__ import annotations

import triton
import triton.language as tl

from openaclnn.engines.gpu.sum_kernel import await_sums, read_sum

VECTOR = tl.constexpr(4)  # elements
NO_CLASS = tl.constexpr(0xFFFF)
MOST_CLASSES = 1 << 15
SHIFTED = 2 * (VECTOR.value - 1)
"""Pixels by which the blocks of an image may begin before it, at most: so that targets are aligned, and what is stored."""


@triton.jit
def _apart(words, COUNT: tl.constexpr):
    """The elements of vectors: all first ones, all second ones and so on."""
    even, odd = tl.split(tl.reshape(words, [COUNT, 2, 2]))
    first, third = tl.split(even)
    second, fourth = tl.split(odd)
    return first, second, third, fourth


@triton.jit
def _moved(before, words, by, COUNT: tl.constexpr):
    """The words from so many places before their first, less than a vector; `before` are those from a vector before it."""
    _, b1, b2, b3 = _apart(before, COUNT)
    a0, a1, a2, a3 = _apart(words, COUNT)
    one, two = (by & 1) != 0, (by & 2) != 0
    c2, c3, d0 = tl.where(one, b1, b2), tl.where(one, b2, b3), tl.where(one, b3, a0)
    d1, d2, d3 = tl.where(one, a0, a1), tl.where(one, a1, a2), tl.where(one, a2, a3)
    d2, d3 = tl.where(two, d0, d2), tl.where(two, d1, d3)
    d0, d1 = tl.where(two, c2, d0), tl.where(two, c3, d1)
    return tl.reshape(tl.join(tl.join(d0, d2), tl.join(d1, d3)), [VECTOR * COUNT])


@triton.jit
def _read(operand, start, lanes, pixels, border, ALIGNED: tl.constexpr):
    """Of the pixels from one on, of which some are none at an image's borders."""
    if border:
        pixel = start + lanes
        found = tl.load(operand + pixel, (pixel >= 0) & (pixel < pixels), other=0)
    else:
        place = operand + start
        if ALIGNED:
            place = tl.multiple_of(place, VECTOR * operand.dtype.element_ty.primitive_bitwidth // 8)
        found = tl.load(place + lanes)
    return found


@triton.jit
def _codes(target, start, lanes, pixels, classes, border):
    """Of each pixel the number of its class, or one that no class has."""
    indices = _read(target, start, lanes, pixels, border, True).to(tl.int64)
    return tl.where((indices >= 0) & (indices < classes), indices.to(tl.int32), NO_CLASS)


@triton.jit
def _packed(codes, values):
    """Codes and values of 16 bits as one word each."""
    return codes | (values.to(tl.int16, bitcast=True).to(tl.int32) << 16)


@triton.jit(do_not_specialize=list(range(6, 21)))
def nll_loss2d_backward_planes(
    target, gradient, weight, total_weight, sums, out,
    pixels, second_size, blocks, classes, chunk_classes, chunks,
    target_first, target_second, gradient_first, gradient_second, out_first, out_second, out_class,
    weight_stride, ignore_index,
    OVERLAPPED: tl.constexpr, DIVIDED: tl.constexpr, ONE_GRADIENT: tl.constexpr, PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """A block of pixels, shifted by less than a vector, of a chunk of classes; pixels lie side by side everywhere."""
    rest = tl.program_id(0)
    block = rest % blocks
    rest = rest // blocks
    begin = (rest % chunks) * chunk_classes
    end = tl.minimum(begin + chunk_classes, classes)
    rest = rest // chunks
    at_second = (rest % second_size).to(tl.int64)
    at_first = (rest // second_size).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    target += at_first * target_first + at_second * target_second
    WIDE: tl.constexpr = target.dtype.element_ty.primitive_bitwidth // 8
    start = block.to(tl.int64) * BLOCK - (target.to(tl.int64) // WIDE) % VECTOR
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

    COUNT: tl.constexpr = BLOCK // VECTOR
    before = start - VECTOR
    codes = _codes(target, start, lanes, pixels, classes, border)
    codes_before = _codes(target, before, lanes, pixels, classes, border)
    if not ONE_GRADIENT:
        values = _read(gradient, start, lanes, pixels, border, False)
        values_before = _read(gradient, before, lanes, pixels, border, False)
        PACKED: tl.constexpr = values.dtype.primitive_bitwidth == 16
        if PACKED:
            codes, codes_before = _packed(codes, values), _packed(codes_before, values_before)

    for group in tl.static_range(VECTOR):
        first = begin + group
        if first < end:
            plane = out + first * step
            head = ((plane.to(tl.int64) // ITEMSIZE + start) % VECTOR).to(tl.int32)
            pixel = start - head + lanes
            inside = (pixel >= 0) & (pixel < pixels)
            code = _moved(codes_before, codes, head, COUNT)
            if not ONE_GRADIENT:
                if PACKED:
                    own = (code >> 16).to(tl.int16).to(values.dtype, bitcast=True).to(tl.float32)
                    code = code & NO_CLASS
                else:
                    own = _moved(values_before, values, head, COUNT).to(tl.float32)
                if DIVIDED:
                    own = tl.div_rn(own, divisor)
            place = plane - head + start
            for number in range(first, end, VECTOR):
                here = tl.load(weight + number * weight_stride).to(tl.float32)
                # A unary minus is 0 - x in Triton, and the document wants -0.
                if ONE_GRADIENT:
                    value = (factor * here) * -1.0
                else:
                    value = (own * here) * -1.0
                hit = (code == number) & (number != ignore_index)
                result = tl.where(hit, value.to(out.dtype.element_ty), nothing)
                places = tl.multiple_of(place, VECTOR * ITEMSIZE) + lanes
                if border:
                    tl.store(places, result, inside)
                else:
                    tl.store(places, result, cache_modifier=".cs")
                place += step * VECTOR
