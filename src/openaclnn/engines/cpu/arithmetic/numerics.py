"""Loads and stores of the three floating dtypes as float32 vectors, and constants that LLVM must not see through."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.host import machine
from openaclnn.engines.machine.values import Shape, Value, fma


class Constants:
    """Constants in memory, read by volatile loads at each use.

    An FMA overwrites its addend, so an addend held in a register costs a move on the busy vector pipes;
    a load runs on idle ones (3.6 -> 3.1 cycles per element). Entries may be run-time scalars or vectors.
    """

    def __init__(self, code: Code, values: Sequence[float | Value]) -> None:
        self.code, self.width = code, code.lanes
        self.align = 4 * self.width
        self.table = code.frame("f32", len(values), self.width, max(16, self.align))
        for index, value in enumerate(values):
            scalar = value if isinstance(value, Value) else code.single(value)
            where = code.integer(index * self.width)
            filled = scalar if scalar.lanes else scalar.splat(self.width)
            self.table.store(filled, where, self.align)

    def get(self, index: int, lanes: int) -> Value:
        where = self.code.integer(index * self.width)
        return self.table.load(where, Shape(1, lanes), True, min(self.align, 4 * lanes))

    def add_to_product(self, index: int, x: Value, y: Value) -> Value:
        """x * y + the constant."""
        # Each load directly before its use: loaded all at once they would need K registers more.
        return x.join(fma(a, b, self.get(index, x.lanes)) for a, b in x.streams_with(y))


class Opaque:
    """Constants whose value LLVM must not know.

    Seeing 0x10000 it turns NEON's bit test into shift and mask; seeing 0.0 it compares float16 values
    before widening them. Both are slower.
    """

    def __init__(self, code: Code) -> None:
        width = code.lanes
        table = code.frame("i32", 2, width)

        def hidden(index: int, value: int) -> Value:
            where = code.integer(index * width)
            table.store(code.constant("i32", value, width), where, 4 * width)
            return table.load(where, Shape(1, width), True, 4 * width)

        self._bit16 = hidden(0, 0x10000)
        self._zero = hidden(1, 0).bits_as("f32")

    def bit16(self, lanes: int) -> Value:
        return _narrowed(self._bit16, lanes)

    def zero(self, lanes: int) -> Value:
        return _narrowed(self._zero, lanes)


def _narrowed(value: Value, lanes: int) -> Value:
    return value if lanes == value.lanes else value.pick([0] * lanes)


def _paired(kind: str, streams: int) -> bool:
    """16-bit elements of two streams lie in one register where the streams pair up."""
    return kind in ("f16", "bf16") and streams % 2 == 0 and machine().neon


def load(array: Array, index: Value, shape: Shape, volatile: bool = False) -> Value:
    """Consecutive elements as float32; `volatile` forces a reload instead of a register."""
    streams, lanes = shape
    if not _paired(array.kind, streams):
        return widen(array.load(index, shape, volatile), array.kind)
    raw = array.load(index, Shape(streams // 2, 2 * lanes), volatile)
    if array.kind == "f16":
        return raw.join(
            half for one in raw.streams() for half in one.to("f32").split(lanes).streams()
        )
    # Interleaving with zeros shifts left by 16 on both NEON pipes; the widening shift has one.
    zero = array.code.constant("i16", 0, 2 * lanes)
    orders = [
        [lane for j in range(at, at + lanes) for lane in (j, 2 * lanes + j)] for at in (0, lanes)
    ]
    return raw.join(
        zero.interleave(one, order).bits_as_lanes("f32")
        for one in raw.streams()
        for order in orders
    )


def widen(value: Value, kind: str) -> Value:
    """Elements as float32, exactly."""
    if kind == "bf16":
        return (value.unsigned("i32") << 16).bits_as("f32")
    return value.to("f32")


def narrow(values: Value, kind: str, opaque: Opaque, any_nan: bool = False) -> Value:
    """float32 rounded to nearest-even into a dtype.

    bfloat16 adds 0x7fff plus the last kept bit and drops 16 bits. A NaN survives that if its low half is
    zero, which holds for NaNs of bfloat16 data and for those that arithmetic makes; `any_nan` says that
    other NaNs may come (from float32 data) and spends a comparison and a selection on them.
    """
    if kind != "bf16":
        return values.to(kind)
    rounded = _upper_halves(values, opaque, any_nan).streams()
    narrowed = []
    if values.lanes == 16:
        # With AVX-512 one instruction picks the upper halves of two vectors, where narrowing takes a shift and two more for each.
        for low, high in zip(rounded[::2], rounded[1::2], strict=False):
            low, high = low.bits_as_lanes("i16"), high.bits_as_lanes("i16")
            narrowed += low.interleave(high, range(1, 64, 2)).split(16).streams()
    narrowed += [(one >> 16).to("i16") for one in rounded[len(narrowed) :]]
    return values.join(narrowed)


def _upper_halves(values: Value, opaque: Opaque, any_nan: bool) -> Value:
    """float32 rounded to bfloat16, in the upper halves of integers."""
    bits = values.bits_as("i32")
    half = bits + 0x7FFF
    if values.lanes == 16:  # AVX-512 adds where a mask says so
        rounded = ((bits & 0x10000) != 0).choose(half + 1, half)
    else:
        odd = bits.join(
            ((one & opaque.bit16(values.lanes)) != 0).signed("i32") for one in bits.streams()
        )
        rounded = half - odd  # minus -1 where odd
    if any_nan:
        rounded = values.is_nan().choose(bits | 0x400000, rounded)
    return rounded


def rounded(values: Value, kind: str, opaque: Opaque) -> Value:
    """float32 that a dtype has."""
    return values if kind == "f32" else widen(narrow(values, kind, opaque, True), kind)


def store(values: Value, array: Array, index: Value, opaque: Opaque, any_nan: bool = False) -> None:
    """Round float32 values and write them."""
    write(narrow(values, array.kind, opaque, any_nan), array, index)


def write(narrowed: Value, array: Array, index: Value) -> None:
    """Write values that have the dtype already."""
    two = _paired(array.kind, len(narrowed.parts))
    array.store(narrowed.joined() if two else narrowed, index)


UPPER = -0x10000  # the upper half of an integer


def load_pairs(array: Array, index: Value, shape: Shape) -> Value:
    """bfloat16 elements as float32, those of even places in one stream and those of odd places in the next: one operation each where `load` takes two and `store` two more,
    for loops that do not care which lane an element is in. With AVX-512 ReLU takes 0.65 of the time, a sigmoid 0.91."""
    raw = array.load(index, Shape(shape.streams // 2, 2 * shape.lanes)).bits_as_lanes("i32")
    halves = raw.join(half for one in raw.streams() for half in (one << 16, one & UPPER))
    return halves.bits_as("f32")


def store_pairs(values: Value, array: Array, index: Value, opaque: Opaque) -> None:
    """Round what was made of these and write it."""
    streams = _upper_halves(values, opaque, False).streams()
    pairs = zip(streams[::2], streams[1::2], strict=True)
    whole = values.join((even >> 16) | (odd & UPPER) for even, odd in pairs)
    array.store(whole.bits_as_lanes("i16"), index)


def lookup(array: Array, index: Value, shape: Shape, table: Array, by_four: bool = False) -> Value:
    """table[bits of element] for consecutive 16-bit elements; the table has 65,536 float32 entries.

    `by_four` reads four elements in one word and takes it apart: better beside float16 conversions
    (1.67 cycles an element against 1.85), worse beside bfloat16 (2.0 against 1.8).
    """
    code = array.code
    bits = code.array(array.pointer, "i16")

    def four(position: int) -> list[Value]:
        word = code.array(bits.place(index + position), "i64").read(0, align=2)
        return [(word >> 16 * part) & 0xFFFF for part in range(4)]

    streams = []
    for k in range(shape.streams):
        start = shape.lanes * k
        if by_four and shape.lanes % 4 == 0:
            indices = [one for at in range(0, shape.lanes, 4) for one in four(start + at)]
        else:
            indices = [
                bits.read(index + (start + lane)).unsigned("i64") for lane in range(shape.lanes)
            ]
        streams.append(code.gathered(table, indices))
    return code.joined(streams)


def across(vector: Value, join: Callable[[Value, Value], Value]) -> Value:
    """One number of all lanes."""
    while vector.lanes > 1:
        vector = join(*vector.split(vector.lanes // 2).streams())
    return vector.lane(0)


def any_lane(truths: Value) -> Value:
    """Whether one of all streams' lanes is true."""
    return paired(truths.streams(), operator.or_).reduce("or") if truths.lanes else truths


def paired(parts: list[Value], join: Callable[[Value, Value], Value]) -> Value:
    """One vector of all."""
    while len(parts) > 1:
        half = (len(parts) + 1) // 2
        joined = [join(a, b) for a, b in zip(parts[:half], parts[half:], strict=False)]
        parts = joined + parts[len(joined) : half]
    return parts[0]
