"""ELU's gradient as vector code; `operators/elu.py` has its derivation.

`elu` picks the cheapest code that is right for a plan's numbers. From ELU's result it gives the bits of the
NumPy kernel; from its input it is within 2 ulp of the exact value (2.2 with an input scale, where PyTorch
reaches 18), subnormal results included.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from openaclnn.core.plan import Plan
from openaclnn.core.tensor import element_count
from openaclnn.engines.cpu import numerics, pool
from openaclnn.engines.cpu.elementwise import Formula, Signature, Site, constants, kernel_address
from openaclnn.engines.cpu.simd import Value, Values, Vec, shuffle
from openaclnn.engines.machine.words import i64

TABLE_FROM = 1 << 15  # from here on a 16-bit ELU looks its factor up: 5.8 ms against 10.5 for 2^24


def _elu_from_result(numbers: Any) -> Formula:
    scale, input_scale = numbers["scale"], numbers["input_scale"]
    with np.errstate(all="ignore"):
        slope = float(np.float32(numbers["alpha"]) * np.float32(scale))

    def emit(site: Site) -> None:
        offset, positive, inner = site.numbers

        def body(vec: Vec, index: Value) -> Values:
            gradient, x = site.load_in_order(vec, (0, 1), index)
            shifted = vec.add(x, vec.splat(offset))
            below = site.not_positive(vec, x)
            if input_scale == 1:
                return vec.mul(gradient, vec.select(below, shifted, vec.splat(positive)))
            negative = vec.mul(vec.mul(gradient, vec.splat(inner)), shifted)
            return vec.select(below, negative, vec.mul(gradient, vec.splat(positive)))

        site.loop(site.streaming(4), body)

    name = "elu.result" + ("" if input_scale == 1 else ".scaled")
    return Formula(name, emit, (slope, scale, input_scale))


def _elu_unfolded(numbers: Any) -> Formula:
    """The document's order of operations, for scalars whose product is 0, infinite, NaN or extreme."""
    with np.errstate(all="ignore"):
        slope = float(np.float32(numbers["alpha"]) * np.float32(numbers["scale"]))

    def emit(site: Site) -> None:
        slope, positive, inner = site.numbers
        exp = numerics.Exp(site.builder, None, "full", lanes=site.lanes)

        def body(vec: Vec, index: Value) -> Values:
            x, gradient = site.load(vec, 1, index), site.load(vec, 0, index)
            factor = vec.mul(vec.mul(gradient, vec.splat(inner)), vec.splat(slope))
            negative = vec.mul(factor, exp(vec, vec.mul(x, vec.splat(inner))))
            below = site.not_positive(vec, x)
            return vec.select(below, negative, vec.mul(gradient, vec.splat(positive)))

        site.loop(2, body)

    return Formula("elu.unfolded", emit, (slope, numbers["scale"], numbers["input_scale"]))


def elu(plan: Plan) -> Formula:
    numbers = plan.numbers
    if numbers["is_result"]:
        return _elu_from_result(numbers)
    alpha, scale, inner = (float(numbers[key]) for key in ("alpha", "scale", "input_scale"))
    product = alpha * scale * inner  # in float64: one rounding
    usable = all(math.isfinite(value) for value in (product, scale, inner))
    # A growing exponential must not overflow because of its multiplier, nor a falling one vanish: a
    # multiplier below 1 leaves its power of two to the gradient, as in the document's order.
    most = 2.0**80 if inner > 0 else 1.0
    if not (usable and 2.0**-16 < abs(product) <= most and 2.0**-60 < abs(inner) < 2.0**60):
        return _elu_unfolded(numbers)
    lift = max(0, 1 - math.frexp(product)[1]) if inner > 0 else 0
    folded = _Folded(float(np.float32(product)) * 2.0**lift, scale, inner, lift)
    dtype = plan.inputs[1].dtype.short
    if dtype == "f32" or element_count(plan.shape) < TABLE_FROM:
        return _elu_folded(folded, dtype)
    return _elu_looked_up(folded, dtype)


class _Folded(NamedTuple):
    """ELU's scalars: multiplier * 2^-lift = alpha * scale * inner."""

    multiplier: float
    scale: float
    inner: float
    lift: int


def _elu_folded(folded: _Folded, dtype: str) -> Formula:
    """gradient * (multiplier * exp(inner * x)), or gradient * scale for positive x."""
    multiplier, scale, inner, lift = folded
    # Up to 2^16, lifting a 16-bit gradient is exact, so both branches can share it.
    shared = lift if dtype != "f32" else 0
    apart = lift - shared
    # Where both branches meet at x = 0, min(x, 0) does what a comparison and a selection would.
    joined = inner == 1 and multiplier == scale * 2.0**shared and not apart
    span = "negative" if inner > 0 else "positive"
    bound = -104.66 / abs(inner)  # beyond it exp(inner * x) is 0, or infinite

    def emit(site: Site) -> None:
        factor, positive, inside, lowest, lifting = site.numbers
        exp = numerics.Exp(
            site.builder, factor, span, None if inner == 1 else inside, lanes=site.lanes
        )

        def body(vec: Vec, index: Value) -> Values:
            x = site.load(vec, 1, index)
            slope = vec.max(x, vec.const(-104.66) if inner == 1 else vec.splat(lowest))
            if joined:  # NaN becomes 0, as the rule for NaN asks
                slope = vec.min_number(slope, vec.const(0.0))
            slope = exp.clamped(vec, slope)
            if not joined:
                if (
                    site.signature.inputs[1] == "f32"
                ):  # loaded anew: K registers less in the long part
                    x = site.load(vec, 1, index, volatile=True)
                below = site.not_positive(vec, x)
            if apart:
                gradient = site.load(vec, 0, index)
                negative = vec.mul(vec.mul(gradient, vec.splat(lifting)), slope)
                return vec.select(below, negative, vec.mul(gradient, vec.splat(positive)))
            if not joined:
                slope = vec.select(below, slope, vec.splat(positive))
            gradient = site.load(vec, 0, index)  # after the selection: registers again
            if shared:
                gradient = vec.mul(gradient, vec.splat(lifting))
            return vec.mul(gradient, slope)

        # As many streams as registers allow; one more spills and takes 1.7 times as long.
        wide = "f32" in site.signature.inputs
        site.loop((8 if wide else 6) if inner == 1 and not apart else (6 if wide else 4), body)

    kind = "joined" if joined else "plain" if inner == 1 else f"scaled.{span}"
    name = f"elu.{kind}{'.lifted' * bool(shared)}{'.apart' * bool(apart)}"
    return Formula(name, emit, (multiplier, scale * 2.0**shared, inner, bound, 2.0**-lift))


def _elu_looked_up(folded: _Folded, dtype: str) -> Formula:
    """The factor from a table that the polynomial made: the same bits, twice as fast."""
    lifted = folded.lift > 0

    def emit(site: Site) -> None:
        by_four = site.signature.inputs[1] == "f16"

        def body(vec: Vec, index: Value) -> Values:
            if 1 in site.singles:
                one = Vec(site.builder, 1, 1)
                (same,) = numerics.lookup(one, site.pointers[1], i64(0), site.table)
                found = [shuffle(site.builder, same, None, [0] * vec.lanes)] * vec.streams
            else:
                found = numerics.lookup(vec, site.pointers[1], index, site.table, by_four)
            gradient = site.load(vec, 0, index)
            if lifted:
                gradient = vec.mul(gradient, vec.splat(site.numbers[0]))
            return vec.mul(gradient, found)

        site.loop(6 if by_four else 8, body)

    name = "elu.table" + ".lifted" * lifted
    return Formula(name, emit, (2.0**-folded.lift,), _elu_table(folded, dtype))


@lru_cache(maxsize=16)
def _elu_table(folded: _Folded, dtype: str) -> Any:
    """What a gradient (lifted already) is multiplied with, for every x of a 16-bit dtype."""
    scale = folded.scale * 2.0**folded.lift
    formula = _elu_folded(folded._replace(scale=scale, lift=0), dtype)
    kernel = kernel_address(formula, Signature(("f32", dtype), "f32", "f32", single=(0,)))
    one, every = np.ones(1, np.float32), np.arange(1 << 16, dtype=np.uint16)
    table = np.empty(1 << 16, np.float32)
    places = [array.ctypes.data for array in (one, every, table)]
    pool.launch(kernel, table.size, table.size, *constants(formula), *places)
    return table
