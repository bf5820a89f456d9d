"""Loads and stores of the three floating dtypes, and the exponential, on `simd.Vec` streams."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from openaclnn.engines.cpu.simd import (
    ELEMENT,
    ITEMSIZE,
    Consts,
    Opaque,
    Value,
    Values,
    Vec,
    machine,
    repeat,
    shuffle,
    volatile_load,
)
from openaclnn.engines.machine.words import F16, F32, I16, I32, I64, i64, stack


def load(vec: Vec, pointer: Value, index: Value, dtype: str, volatile: bool = False) -> Values:
    """K*L consecutive elements as float32; `volatile` forces a reload instead of a register."""
    builder, lanes, element = vec.builder, vec.lanes, ELEMENT[dtype]
    # 16-bit elements of two streams come in one register where the streams pair up.
    paired = dtype != "f32" and vec.streams % 2 == 0 and machine().neon
    wide = 2 * lanes if paired else lanes
    kind = ir.VectorType(element, wide)
    raw = []
    for k in range(vec.streams // 2 if paired else vec.streams):
        place = builder.gep(pointer, [builder.add(index, i64(wide * k))], source_etype=element)
        if volatile:
            raw.append(volatile_load(builder, place, kind, ITEMSIZE[dtype]))
        else:
            raw.append(builder.load(place, typ=kind, align=ITEMSIZE[dtype]))
    if not paired:
        return vec.each(lambda value: widen(builder, value, dtype), raw)
    halves = []
    for value in raw:
        if dtype == "f16":
            floats = builder.fpext(value, ir.VectorType(F32, wide))
            halves += [shuffle(builder, floats, None, range(at, at + lanes)) for at in (0, lanes)]
            continue
        # Interleaving with zeros shifts left by 16 on both NEON pipes; the widening shift has one.
        for at in (0, lanes):
            order = [lane for j in range(at, at + lanes) for lane in (j, wide + j)]
            zipped = shuffle(builder, repeat(I16, 0, wide), value, order)
            halves.append(builder.bitcast(zipped, vec.floats))
    return halves


def widen(builder: Any, value: Value, dtype: str) -> Value:
    """One vector of elements as float32, exactly."""
    if dtype == "f32":
        return value
    lanes = value.type.count
    if dtype == "f16":
        return builder.fpext(value, ir.VectorType(F32, lanes))
    bits = builder.zext(value, ir.VectorType(I32, lanes))
    shifted = builder.shl(bits, repeat(I32, 16, lanes))
    return builder.bitcast(shifted, ir.VectorType(F32, lanes))


def narrow(vec: Vec, values: Values, dtype: str, opaque: Opaque, any_nan: bool = False) -> Values:
    """float32 rounded to nearest-even into a dtype.

    bfloat16 adds 0x7fff plus the last kept bit and drops 16 bits. A NaN survives that if its low half is
    zero, which holds for NaNs of bfloat16 data and for those that arithmetic makes; `any_nan` says that
    other NaNs may come (from float32 data) and spends a comparison and a selection on them.
    """
    builder = vec.builder
    if dtype == "f32":
        return values
    if dtype == "f16":
        kind = ir.VectorType(F16, vec.lanes)
        return vec.each(lambda value: builder.fptrunc(value, kind), values)
    short = ir.VectorType(I16, vec.lanes)
    bits = vec.as_ints(values)
    odd = vec.each(
        lambda value: builder.sext(
            builder.icmp_unsigned(
                "!=", builder.and_(value, opaque.bit16(vec.lanes)), vec.iconst(0)
            ),
            vec.ints,
        ),
        bits,
    )
    rounded = vec.each(builder.sub, bits, odd)  # minus -1 where odd
    rounded = vec.each(lambda value: builder.add(value, vec.iconst(0x7FFF)), rounded)
    if any_nan:
        quiet = vec.each(lambda value: builder.or_(value, vec.iconst(0x400000)), bits)
        is_nan = vec.each(lambda value: builder.fcmp_unordered("uno", value, value), values)
        rounded = vec.select(is_nan, quiet, rounded)
    return vec.each(
        lambda value: builder.trunc(builder.lshr(value, vec.iconst(16)), short), rounded
    )


def store(
    vec: Vec, values: Values, pointer: Value, index: Value, dtype: str, opaque: Opaque,
    any_nan: bool = False,
) -> None:  # fmt: skip
    """Round K*L float32 values and write them."""
    write(vec, narrow(vec, values, dtype, opaque, any_nan), pointer, index, dtype)


def write(vec: Vec, narrowed: Values, pointer: Value, index: Value, dtype: str) -> None:
    """Write K*L values that have the dtype already."""
    builder, lanes, element = vec.builder, vec.lanes, ELEMENT[dtype]
    if dtype != "f32" and vec.streams % 2 == 0 and machine().neon:
        pairs = zip(narrowed[::2], narrowed[1::2], strict=True)
        narrowed = [shuffle(builder, low, high, range(2 * lanes)) for low, high in pairs]
        lanes *= 2
    for k, value in enumerate(narrowed):
        place = builder.gep(pointer, [builder.add(index, i64(lanes * k))], source_etype=element)
        builder.store(value, place, align=ITEMSIZE[dtype])


def lookup(vec: Vec, pointer: Value, index: Value, table: Value, by_four: bool = False) -> Values:
    """table[bits of element] for K*L consecutive 16-bit elements; the table has 65,536 float32 entries.

    `by_four` reads four elements in one word and takes it apart: better beside float16 conversions
    (1.67 cycles an element against 1.85), worse beside bfloat16 (2.0 against 1.8).
    """
    builder = vec.builder

    def bits(position: int) -> Value:
        place = builder.gep(pointer, [builder.add(index, i64(position))], source_etype=I16)
        return builder.zext(builder.load(place, typ=I16, align=2), I64)

    def four(position: int) -> list[Value]:
        place = builder.gep(pointer, [builder.add(index, i64(position))], source_etype=I16)
        word = builder.load(place, typ=I64, align=2)
        return [builder.and_(builder.lshr(word, i64(16 * part)), i64(0xFFFF)) for part in range(4)]

    found = []
    for k in range(vec.streams):
        value = ir.Constant(vec.floats, ir.Undefined)
        start = vec.lanes * k
        if by_four and vec.lanes % 4 == 0:
            indices = [one for at in range(0, vec.lanes, 4) for one in four(start + at)]
        else:
            indices = [bits(start + lane) for lane in range(vec.lanes)]
        for lane, where in enumerate(indices):
            entry = builder.load(builder.gep(table, [where], source_etype=F32), typ=F32, align=4)
            value = builder.insert_element(value, entry, ir.Constant(I32, lane))
        found.append(value)
    return found


LOG2_E = float(np.float32(1.4426950408889634))
LN2_HIGH = 0.693145751953125  # 16 significant bits: exact when multiplied by an exponent
LN2_LOW = float(np.float32(0.6931471805599453 - LN2_HIGH))
# Minimax for exp on +-ln(2)/2. Degree 6 is within 0.98 ulp when scaled by a multiplier; degree 5 would
# be within 2.32, over the bound of 2, and saves 5 % of the time.
COEFFICIENTS = (
    1.0, 1.0, 0.4999999403953552, 0.1666652113199234, 0.04166825860738754, 0.008368665352463722,
    0.0013821175089105964,
)  # fmt: skip
ROUNDER = 12582912.0  # 1.5 * 2^23: adding it rounds to an integer, which then lies in the low bits


class Exp:
    """multiplier * exp(x): a degree-6 polynomial with the multiplier folded into its coefficients, times 2^n.

    `span` says where x lies; elsewhere (NaN included) the result is unspecified but harmless.
    "negative": up to 71; subnormal results are right, 0 below -104.3. "positive": from -60 on; inf where
    the result overflows. "full": everywhere, for four more operations. The first two cost nothing more
    than flushing would: 2^-24 or 2^24 moves from 2^n into the multiplier.
    The multiplier's size must lie between 2^-80 and 2^80 ("positive": 2^-20 and 2^80).
    `factor` makes it multiplier * exp(factor * x), without rounding the product, for no more operations
    than one multiplication; x is then clamped by the caller (see `clamped`).
    """

    def __init__(
        self,
        builder: Any,
        multiplier: Value | None = None,
        span: str = "full",
        factor: Value | None = None,
        lanes: int | None = None,
    ) -> None:
        self.builder, self.span, self.factor = builder, span, factor
        shift = {"negative": 24, "positive": -24, "full": 127}[span]
        self.rounder = ROUNDER + 127 + shift
        scale = 1.0 if span == "full" else 2.0**-shift
        coefficients: list[Any] = [scale * value for value in COEFFICIENTS]
        if multiplier is not None:
            coefficients = [
                builder.fmul(ir.Constant(F32, value), multiplier) for value in coefficients
            ]
        self.addends = Consts(builder, [self.rounder, *coefficients[:-1]], lanes)
        # Factors lie four to a register: NEON multiplies by one lane of it.
        four = ir.VectorType(F32, 4)
        place = stack(builder, four, 1, 16)
        log2_e: Any = LOG2_E
        if factor is not None:
            log2_e = builder.fmul(ir.Constant(F32, LOG2_E), factor)
        for lane, value in enumerate((log2_e, -LN2_HIGH, -LN2_LOW, coefficients[-1])):
            scalar = ir.Constant(F32, value) if isinstance(value, float) else value
            builder.store(scalar, builder.gep(place, [i64(lane)], source_etype=F32), align=4)
        self.factors = volatile_load(builder, place, four, 16)

    def _factor(self, vec: Vec, lane: int) -> Value:
        return shuffle(self.builder, self.factors, None, [lane] * vec.lanes)

    def __call__(self, vec: Vec, x: Values) -> Values:
        if self.span != "positive":
            # The bound's power of two is exactly 0 ("full": small enough), so that -inf gives 0.
            x = vec.max(x, vec.const(-104.66 if self.span == "negative" else -174.0))
        if self.span != "negative":
            x = vec.min(x, vec.const(104.66 if self.span == "positive" else 174.0))
        return self.clamped(vec, x)

    def clamped(self, vec: Vec, x: Values) -> Values:
        """The same for x within the span's bounds already."""
        shifted = vec.fma_const(x, self._factor(vec, 0), self.addends, 0)
        n = vec.sub(shifted, vec.const(self.rounder))
        if self.factor is None:
            rest = vec.fma(n, self._factor(vec, 1), x)
        else:
            # n * LN2_HIGH is exact, so factor * x is rounded only after most of it has cancelled.
            rest = vec.fma(x, vec.splat(self.factor), vec.mul(n, self._factor(vec, 1)))
        rest = vec.fma(n, self._factor(vec, 2), rest)
        powers = self._powers(vec, vec.as_ints(shifted))
        value = vec.fma_const(rest, self._factor(vec, 3), self.addends, len(COEFFICIENTS) - 1)
        for index in range(len(COEFFICIENTS) - 2, 0, -1):
            value = vec.fma_const(value, rest, self.addends, index)
        for power in powers:
            value = vec.mul(value, power)
        return value

    def _powers(self, vec: Vec, bits: Values) -> list[Values]:
        """2^n from the low bits of the shifted sum; in two halves where one float32 cannot hold it."""
        whole = vec.shl(bits, 23)
        if self.span != "full":
            return [vec.as_floats(whole)]
        halved = vec.shl(bits, 22)
        half = vec.each(lambda v: self.builder.and_(v, vec.iconst(0x7F800000)), halved)
        rest = vec.each(self.builder.sub, whole, half)
        return [vec.as_floats(half), vec.as_floats(rest)]
