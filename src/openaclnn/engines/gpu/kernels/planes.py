# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
"""NLLLoss2dBackward where class planes begin anywhere, as those of odd images do.

A vector can be stored only where its address is a multiple of its size, and planes begin off such addresses by different
lengths: those of classes VECTOR apart by the same. A program takes the classes of a chunk in such groups, and reads its
targets once for each group, as far shifted; but for the first, from the first-level cache.
"""

from __future__ import annotations

import triton
import triton.language as tl

from openaclnn.engines.gpu.kernels.sums import await_sums, read_sum


@triton.jit(do_not_specialize=list(range(6, 21)))
def nll_loss2d_backward_planes(
    target, gradient, weight, total_weight, sums, out,
    pixels, second_size, blocks, classes, chunk_classes, chunks,
    target_first, target_second, gradient_first, gradient_second, out_first, out_second, out_class,
    weight_stride, ignore_index,
    OVERLAPPED: tl.constexpr, DIVIDED: tl.constexpr, ONE_GRADIENT: tl.constexpr, PARTS: tl.constexpr,
    VECTOR: tl.constexpr, BLOCK: tl.constexpr,
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
                own = tl.load(gradient + pixel, inside, other=0).to(tl.float32)
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
