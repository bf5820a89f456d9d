"""Few classes: every plane is written once, each value or zero by comparing its class with the targets.

Two planes a pass over 16,384 positions: two streams of stores run at the memory's pace, four do not.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from openaclnn.engines.cpu import numerics
from openaclnn.engines.cpu.classes.code import SIZE, STORED, Code, Number
from openaclnn.engines.cpu.classes.writer import Writer
from openaclnn.engines.cpu.simd import Value, Values, Vec, add_loop, repeat, shuffle, splat
from openaclnn.engines.machine.words import I16, I32, I64

PLANES = 2
SEGMENT = 2048  # positions between two looks at whether a target was no class
STREAMS = 4


class Select(Writer):
    """For positions that lie side by side in all operands."""

    def __init__(self, code: Code, *operands: Any) -> None:
        super().__init__(code, *operands)
        # Results are chosen as they lie in memory: 16-bit elements twice as many at a time.
        self.element = I32 if self.dtype == "f32" else I16
        self.width = code.lanes * (1 if self.dtype == "f32" else 2)

    def clear(self, start: Number, stop: Number) -> None:
        """Nothing: every class of every position is written."""

    def run(self, addresses: list[Number], count: Number) -> None:
        """A stretch of positions, all planes of it."""
        code, zero = self.code, self.code.integer(0)
        pairs = self.classes - self.classes.rest(PLANES)
        with code.loop(zero, pairs, PLANES) as plane:
            self._planes(addresses, count, plane, PLANES)
        with code.when(pairs.differs(self.classes)):
            self._planes(addresses, count, pairs, 1)

    def _planes(self, addresses: list[Number], count: Number, first: Number, planes: int) -> None:
        code = self.code
        labels = [first + index for index in range(planes)]
        factors = []
        for label in labels:
            weight = -code.load(self.weights + label * self.weight_step, self.dtype)
            factors.append(weight if self.gradient is None else self.gradient * weight)
        # A plane whose class is ignored takes a number that no key has.
        wanted = [label.equals(self.ignored).choose(self.classes + 1, label) for label in labels]
        with code.loop(code.integer(0), count, SEGMENT) as start:
            sizes = SIZE[self.target], SIZE[self.dtype], SIZE[self.dtype]
            targets, gradients, out = (
                address + start * size for address, size in zip(addresses, sizes, strict=True)
            )
            outs = [(out + label * self.class_step).pointer for label in labels]
            length = (count - start).least(SEGMENT)
            highest = code.variable(code.integer(0))
            self._segment(targets, gradients.pointer, outs, length, wanted, factors, highest)
            beyond = highest.get() >= self.classes
            with code.when(beyond & first.equals(0), likely=False):
                self._look_for_strays(targets, length)

    def _segment(
        self, targets: Number, gradients: Value, outs: list[Value], count: Number,
        wanted: list[Number], factors: list[Number], highest: Any,
    ) -> None:  # fmt: skip
        builder = self.code.builder
        index: Value = ir.Constant(I64, 0)
        for streams, width in ((STREAMS, self.width), (1, self.width), (1, 1)):

            def body(at: Value, streams: int = streams, width: int = width) -> None:
                wide = [self._keys(targets, at, k * width, width) for k in range(streams)]
                short = ir.VectorType(self.element, width)
                keys = wide if self.element is I32 else [builder.trunc(key, short) for key in wide]
                self._note(keys, highest)
                own = self._gradients(gradients, at, streams, width)
                each = self._values(own, wide, wanted, factors, streams, width)
                nothing = repeat(self.element, 0, width)
                for out, label, values in zip(outs, wanted, each, strict=True):
                    sought = splat(builder, builder.trunc(label.value, self.element), width)
                    for k, (key, value) in enumerate(zip(keys, values, strict=True)):
                        hit = builder.icmp_signed("==", key, sought)
                        where = builder.add(at, ir.Constant(I64, k * width))
                        place = builder.gep(out, [where], source_etype=self.element)
                        chosen = builder.select(hit, value, nothing)
                        builder.store(chosen, place, align=SIZE[self.dtype])

            index = add_loop(builder, index, count.value, streams * width, body)

    def _keys(self, targets: Number, at: Value, offset: int, width: int) -> Value:
        """Targets as small integers: every one that is no class becomes the number of classes."""
        builder, element = self.code.builder, STORED[self.target]
        where = builder.add(at, ir.Constant(I64, offset))
        place = builder.gep(targets.pointer, [where], source_etype=element)
        value = builder.load(place, typ=ir.VectorType(element, width), align=SIZE[self.target])
        if element is I64:  # saturate to 32 bits, which NEON does while it narrows
            value = self._least(value, repeat(I64, 0xFFFFFFFF, width))
            value = builder.trunc(value, ir.VectorType(I32, width))
        elif element is not I32:
            value = builder.zext(value, ir.VectorType(I32, width))
        limit = splat(builder, builder.trunc(self.classes.value, I32), width)
        return self._least(value, limit)

    def _least(self, value: Value, limit: Value) -> Value:
        """The unsigned minimum."""
        return self._intrinsic("umin", value.type, value, limit)

    def _intrinsic(self, name: str, result: Any, *values: Value) -> Value:
        builder, kind = self.code.builder, values[0].type
        full = f"llvm.{name}.v{kind.count}i{kind.element.width}"
        function = builder.module.globals.get(full) or ir.Function(
            builder.module, ir.FunctionType(result, [value.type for value in values]), full
        )
        return builder.call(function, values)

    def _note(self, keys: Values, highest: Any) -> None:
        largest = keys[0]
        for key in keys[1:]:
            largest = self._intrinsic("umax", key.type, largest, key)
        one = self._intrinsic("vector.reduce.umax", self.element, largest)
        value = self.code.number(self.code.builder.zext(one, I64))
        highest.set((value > highest.get()).choose(value, highest.get()))

    def _gradients(self, gradients: Value, at: Value, streams: int, width: int) -> Values:
        if self.gradient is not None:
            return []
        return numerics.load(self._vec(streams, width), gradients, at, self.dtype)

    def _vec(self, streams: int, width: int) -> Vec:
        """The same elements as FLOAT vectors."""
        lanes = min(width, self.code.lanes)
        return Vec(self.code.builder, streams * width // lanes, lanes)

    def _values(
        self, own: Values, keys: Values, wanted: list[Number], factors: list[Number], streams: int,
        width: int,
    ) -> list[Values]:  # fmt: skip
        """-(gradient * weight) for each plane, rounded, as integers of the element's size."""
        builder, vec = self.code.builder, self._vec(streams, width)
        if self.gradient is not None:
            one = Vec(builder, 1, 1)
            results = []
            for factor in factors:
                (bits,) = self._rounded(one, [one.splat(factor.value)])
                scalar = builder.extract_element(bits, ir.Constant(I32, 0))
                results.append([splat(builder, scalar, width)] * streams)
            return results
        if self.element is I32 or len(factors) == 1:
            return [
                self._joined(vec, vec.mul(own, vec.splat(factor.value)), streams)
                for factor in factors
            ]
        # Rounding costs more than choosing the weight first: one value a position serves both planes.
        first = vec.splat(builder.trunc(wanted[0].value, I32))
        halves = [
            shuffle(builder, key, None, range(at, at + vec.lanes))
            for key in keys
            for at in range(0, width, vec.lanes)
        ]
        weights = vec.each(
            lambda key: builder.select(
                builder.icmp_signed("==", key, first),
                vec.splat(factors[0].value),
                vec.splat(factors[1].value),
            ),
            halves,
        )
        return [self._joined(vec, vec.mul(own, weights), streams)] * len(factors)

    def _joined(self, vec: Vec, values: Values, streams: int) -> Values:
        bits = self._rounded(vec, values)
        if len(bits) == streams:
            return bits
        pairs = zip(bits[::2], bits[1::2], strict=True)
        return [shuffle(vec.builder, low, high, range(2 * vec.lanes)) for low, high in pairs]

    def _rounded(self, vec: Vec, values: Values) -> Values:
        narrowed = numerics.narrow(vec, values, self.dtype, self.opaque)
        kind = ir.VectorType(self.element, vec.lanes)
        return vec.each(lambda value: vec.builder.bitcast(value, kind), narrowed)

    def _look_for_strays(self, targets: Number, count: Number) -> None:
        code = self.code
        with code.loop(code.integer(0), count) as index:
            label = code.load(targets + index * SIZE[self.target], self.target)
            stray = label.differs(self.ignored) & ~label.within(self.classes)
            with code.when(stray, likely=False):
                self.parameters.report_stray()
