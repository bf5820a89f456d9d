"""The formulas of the elementwise kernels: L1 and smooth L1 here, ELU in a file of its own.

Each function takes a plan and picks the cheapest code that is right for its numbers. L1 and smooth L1 give
the bits of the NumPy kernels. See `operators/` for the derivations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
from llvmlite import ir

from openaclnn.core.plan import Plan
from openaclnn.engines.cpu import numerics
from openaclnn.engines.cpu.elementwise import Formula, Site
from openaclnn.engines.cpu.elu import elu
from openaclnn.engines.cpu.simd import Value, Values, Vec, add_loop, repeat, shuffle, splat
from openaclnn.engines.machine.words import F16, I16, i64


def l1(plan: Plan) -> Formula:
    scale = plan.numbers["mean_scale"]
    scaled = scale != 1
    kinds = {operand.dtype.short for operand in (*plan.inputs, plan.output)}
    suffix = ".scaled" * scaled
    if len(kinds) == 1 and "f32" not in kinds:
        return Formula(f"l1.bits{suffix}", partial(_emit_l1_bits, scaled=scaled), (scale,))

    def emit(site: Site) -> None:
        (mean_scale,) = site.numbers

        def body(vec: Vec, index: Value) -> Values:
            gradient, x, y = site.load_in_order(vec, (0, 1, 2), index)
            if scaled:
                gradient = vec.mul(gradient, vec.splat(mean_scale))
            one, zero = vec.const(1.0), vec.const(0.0)
            above = vec.select(vec.compare(">", x, y), one, zero)
            below = vec.select(vec.compare("<", x, y), one, zero)
            return vec.mul(vec.sub(above, below), gradient)

        site.loop(site.streaming(4), body)

    return Formula(f"l1{suffix}", emit, (scale,))


def _emit_l1_bits(site: Site, scaled: bool) -> None:
    """L1 on 16-bit elements as they are: g, -g, or 0 * g, by the bits of the difference.

    The difference is 0 only for equal values, and NaN where the rule wants 0, so one subtraction replaces
    two comparisons; gradients are neither widened nor rounded (2^24 bfloat16 elements: 4.2 ms, PyTorch 36).
    """
    builder, lanes, dtype = site.builder, site.lanes, site.signature.inputs[0]
    infinity = 0x7C00 if dtype == "f16" else 0x7F80

    def body(vec: Vec, index: Value) -> None:
        wide = vec.lanes
        sign, size = repeat(I16, 0x8000, wide), repeat(I16, 0x7FFF, wide)
        endless = repeat(I16, infinity, wide)
        difference = _difference_bits(site, vec, index)
        gradient = _gradient_bits(site, vec, index, scaled)

        def pick(d: Value, g: Value) -> Value:
            # Neither 0 nor NaN: 1 to infinity, as a number.
            lower = builder.sub(builder.and_(d, size), repeat(I16, 1, wide))
            differs = builder.icmp_unsigned("<", lower, endless)
            signed = builder.xor(g, builder.and_(d, sign))
            if dtype == "f16":
                half = builder.bitcast(g, ir.VectorType(F16, wide))
                product = builder.fmul(half, repeat(F16, 0.0, wide))
                tie = builder.bitcast(product, g.type)
            else:
                finite = builder.icmp_unsigned("<", builder.and_(g, size), endless)
                nan = builder.select(finite, repeat(I16, 0, wide), repeat(I16, 0xFFFF, wide))
                tie = builder.or_(builder.and_(g, sign), nan)
            return builder.select(differs, signed, tie)

        for k, value in enumerate(vec.each(pick, difference, gradient)):
            at = builder.add(index, i64(wide * k))
            builder.store(value, builder.gep(site.pointers[-1], [at], source_etype=I16), align=2)

    rest = i64(0)
    for k, wide in ((4, 2 * lanes), (1, 2 * lanes), (1, 1)):
        vec = Vec(builder, k, wide)
        rest = add_loop(builder, rest, site.count, k * wide, partial(body, vec))


def _bits(site: Site, vec: Vec, operand: int, index: Value) -> Values:
    """16-bit elements as integers."""
    builder, kind = site.builder, ir.VectorType(I16, vec.lanes)
    if operand in site.singles:
        one = builder.load(site.pointers[operand], typ=I16, align=2)
        return [splat(builder, one, vec.lanes)] * vec.streams
    start = [builder.add(index, i64(vec.lanes * k)) for k in range(vec.streams)]
    places = [builder.gep(site.pointers[operand], [at], source_etype=I16) for at in start]
    return vec.each(lambda place: builder.load(place, typ=kind, align=2), places)


def _halves(vec: Vec) -> Vec:
    """The same elements as float32 vectors of the machine's width: two for one."""
    return vec if vec.lanes == 1 else Vec(vec.builder, 2 * vec.streams, vec.lanes // 2)


def _joined(vec: Vec, halves: Values) -> Values:
    if vec.lanes == 1:
        return halves
    pairs = zip(halves[::2], halves[1::2], strict=True)
    return [shuffle(vec.builder, low, high, range(vec.lanes)) for low, high in pairs]


def _difference_bits(site: Site, vec: Vec, index: Value) -> Values:
    """x - y: sign, zero and NaN are right; of bfloat16 the low half, which cannot matter, is cut off."""
    builder, short = site.builder, ir.VectorType(I16, vec.lanes)
    if site.signature.inputs[0] == "f16":
        half = ir.VectorType(F16, vec.lanes)
        x, y = (
            vec.each(lambda value: builder.bitcast(value, half), _bits(site, vec, operand, index))
            for operand in (1, 2)
        )
        return vec.each(lambda a, b: builder.bitcast(builder.fsub(a, b), short), x, y)
    parts = _halves(vec)
    difference = parts.sub(site.load(parts, 1, index), site.load(parts, 2, index))
    doubled = ir.VectorType(I16, 2 * parts.lanes)
    upper = parts.each(
        lambda value: shuffle(
            builder, builder.bitcast(value, doubled), None, range(1, 2 * parts.lanes, 2)
        ),
        difference,
    )
    return _joined(vec, upper)


def _gradient_bits(site: Site, vec: Vec, index: Value, scaled: bool) -> Values:
    if not scaled:
        return _bits(site, vec, 0, index)
    parts = _halves(vec)
    values = parts.mul(site.load(parts, 0, index), parts.splat(site.numbers[0]))
    rounded = _joined(vec, numerics.narrow(parts, values, site.signature.inputs[0], site.opaque))
    short = ir.VectorType(I16, vec.lanes)
    return vec.each(lambda value: site.builder.bitcast(value, short), rounded)


def smooth_l1(plan: Plan) -> Formula:
    beta, scale = float(plan.numbers["beta"]), plan.numbers["mean_scale"]
    exact = beta > 0 and math.isfinite(beta) and math.frexp(beta)[0] == 0.5
    if not 2.0**-60 < beta < 2.0**60:
        kind = "divided"
    else:
        kind = "unit" if beta == 1 else "exact" if exact else "corrected"
    inverse, remnant = (0.0, 0.0) if kind == "divided" else _inverse(beta)
    scaled = scale != 1

    def emit(site: Site) -> None:
        width, inverse, remnant, mean_scale = site.numbers

        def body(vec: Vec, index: Value) -> Values:
            gradient, x, y = site.load_in_order(vec, (0, 1, 2), index)
            slope = _smooth_slope(vec, kind, vec.sub(x, y), width, inverse, remnant)
            result = vec.mul(slope, gradient)
            return vec.mul(result, vec.splat(mean_scale)) if scaled else result

        site.loop(site.streaming(4), body)

    name = f"smooth_l1.{kind}{'.scaled' * scaled}"
    return Formula(name, emit, (beta, inverse, remnant, scale))


def _inverse(beta: float) -> tuple[float, float]:
    """1 / beta as a sum of two float32 numbers of the same sign."""
    high = np.float32(1 / beta)
    if float(high) > 1 / beta:
        high = np.nextafter(high, np.float32(0))
    return float(high), float(np.float32(1 / beta - float(high)))


def _smooth_slope(
    vec: Vec, kind: str, difference: Values, beta: Value, inverse: Value, remnant: Value
) -> Values:
    """difference / beta within +-beta, the sign beyond: a clamped difference divided by beta."""
    one, minus = vec.const(1.0), vec.const(-1.0)
    if kind == "divided":  # beta is 0, infinite or extreme
        sign = vec.select(vec.compare("<", difference, vec.const(0.0)), minus, difference)
        sign = vec.select(vec.compare(">", difference, vec.const(0.0)), one, sign)
        inside = vec.compare("<", vec.abs(difference), vec.splat(beta))
        zero = vec.compare("==", difference, vec.const(0.0))
        sign = vec.select(zero, vec.const(0.0), sign)
        return vec.select(inside, vec.div(difference, vec.splat(beta)), sign)
    if kind == "unit":
        return vec.max(vec.min(difference, one), minus)
    width = vec.splat(beta)
    below = vec.splat(vec.builder.fneg(beta))
    clamped = vec.max(vec.min(difference, width), below)
    if kind == "exact":
        return vec.mul(clamped, vec.splat(inverse))
    # With an inverse of twice the digits this is the quotient that a division gives (but for one in
    # millions, 1 ulp), for one operation more; a division would take longer than the memory does.
    return vec.fma(clamped, vec.splat(inverse), vec.mul(clamped, vec.splat(remnant)))


FORMULAS: dict[str, Callable[[Plan], Formula]] = {
    "elu_backward": elu,
    "l1_loss_backward": l1,
    "smooth_l1_loss_backward": smooth_l1,
}
