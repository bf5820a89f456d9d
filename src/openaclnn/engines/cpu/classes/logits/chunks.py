"""Rows of logits taken in chunks: the largest logit, and the sum of exp(x - largest) over the others.

A chunk stays in the first-level cache: its largest logit first, then its powers. Where it raises the row's largest, what
was summed before is lowered. The largest one's own 1 stays out of the sum, since beside it the digits of small ones would be
lost. Vectors are FLOAT, a row's numbers FLOAT64. So few numbers are added up in FLOAT before their sum becomes part of one in
FLOAT64 that the error grows neither with the number of classes nor with narrow vectors.

Label smoothing sums weight * (x - largest), where nothing cancels, whichever class is far from the others.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from openaclnn.engines.cpu.arithmetic import numerics
from openaclnn.engines.cpu.arithmetic.doubles import exp64
from openaclnn.engines.cpu.arithmetic.exponential import Exp
from openaclnn.engines.cpu.classes.shared.parameters import Parameters
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.host import LINE, machine
from openaclnn.engines.machine.kinds import SIZE
from openaclnn.engines.machine.values import Shape, Value, fma

__all__ = ["CHUNK", "PARTS", "Chunks", "Rows", "added", "below", "larger", "moved"]

CHUNK = 2048  # classes
TURN = 8  # steps whose numbers are added up in FLOAT
INFINITY = float("inf")
PART = 2.0**-10  # of a difference is summed in FLOAT, where the sum of whole ones may be infinite
PARTS = 1 / PART


class _Largest:
    """A running maximum in as many vectors as there are streams, and one of single elements."""

    def __init__(self, code: Code, streams: int) -> None:
        self.wide, self.single = (
            [code.variable(code.constant("f32", -INFINITY, lanes)) for _ in range(many)]
            for lanes, many in ((code.lanes, streams), (1, 1))
        )

    def take(self, values: Value) -> None:
        own = self.wide if values.lanes == self.wide[0].get().lanes else self.single
        for variable, value in zip(own, values.streams(), strict=False):
            variable.set(larger(variable.get(), value))

    def get(self) -> Value:
        wide = _paired([variable.get() for variable in self.wide], larger)
        return larger(_across(wide, larger), self.single[0].get().lane(0))


class _Sum:
    """A running sum in FLOAT64; vectors are added up in FLOAT until it is told to fold them."""

    def __init__(self, code: Code) -> None:
        self.code, self.lanes = code, code.lanes
        self.wide, self.folded, self.single = (
            code.variable(code.constant(kind, 0.0, lanes))
            for kind, lanes in (("f32", code.lanes), ("f64", code.lanes), ("f64", 1))
        )

    def take(self, values: Value) -> None:
        if values.lanes == self.lanes:
            self.wide.set(self.wide.get() + _paired(values.streams(), added))
        else:
            self.single.set(self.single.get() + values.to("f64"))

    def fold(self) -> None:
        self.folded.set(self.folded.get() + self.wide.get().to("f64"))
        self.wide.set(self.code.constant("f32", 0.0, self.lanes))

    def get(self) -> Value:
        """What was folded, in a fixed order."""
        return _across(self.folded.get(), added) + self.single.get().lane(0)


def _across(vector: Value, join: Callable[[Value, Value], Value]) -> Value:
    """One number of all lanes."""
    while vector.lanes > 1:
        vector = join(*vector.split(vector.lanes // 2).streams())
    return vector.lane(0)


def _paired(parts: list[Value], join: Callable[[Value, Value], Value]) -> Value:
    while len(parts) > 1:
        half = (len(parts) + 1) // 2
        joined = [join(a, b) for a, b in zip(parts[:half], parts[half:], strict=False)]
        parts = joined + parts[len(joined) : half]
    return parts[0]


def larger(first: Value, second: Value) -> Value:
    """The larger of two, NaN left out: that shows in the sum of powers."""
    larger: Value = (second > first).choose(second, first)
    return larger


def added(first: Value, second: Value) -> Value:
    return first + second


def below(values: Value, top: Value) -> Value:
    """A part of values - top, which is finite where both are; `PARTS` of them are the difference."""
    return fma(values, PART, -(top * PART))


def moved(weights: Value, before: Value, top: Value) -> Value:
    """By how much a sum of weight * (x - before) changes if it is of x - top, in FLOAT64; nothing was summed below all numbers."""
    rise = before.to("f64") - top.to("f64")
    change: Value = (before > -INFINITY).choose(weights * rise, 0.0)
    return change


class Rows:
    """The numbers of a tile's rows while its chunks are taken, FLOAT64."""

    def __init__(self, code: Code, count: int) -> None:
        self.code = code
        self.top, self.others, self.spread, self.weights = (
            code.frame("f64", count) for _ in range(4)
        )
        self.highest = code.frame("f32", count)  # of a chunk

    def begin(self, index: Value) -> None:
        self.top.write(index, self.code.double(-INFINITY))
        for array in (self.others, self.spread, self.weights):
            array.write(index, self.code.double(0.0))

    def add(self, array: Array, index: Value, value: Value) -> None:
        array.write(index, array.read(index) + value)


class Chunks:
    """Takes a chunk of a row."""

    def __init__(self, code: Code, parameters: Parameters, dtype: str, rows: Rows) -> None:
        self.code, self.parameters, self.dtype, self.rows = code, parameters, dtype, rows
        # AVX-512 by 2, 4, 8: 0.47, 0.41, 0.40 ns an element FLOAT. NEON's registers hold sums, too, beside six.
        self.streams = 6 if machine().neon else 8 if machine().registers >= 32 else 2
        self.exp = Exp(code, None, "negative")
        self.last, self.tied = (code.frame("f32", code.lanes) for _ in range(2))

    def _summed(
        self, count: Value, sums: Sequence[_Sum], body: Callable[[Shape, Value], None]
    ) -> Value:
        """`body` over all whole vectors, and the sums of what it took; returns where the rest begins."""
        code, shape = self.code, Shape(self.streams, self.code.lanes)
        turn, whole = TURN * shape.elements, count - count.unsigned_rem(shape.elements)
        with code.loop(0, whole, turn) as start:
            stop = (start + turn).least(whole)
            code.strides(start, stop, shape.elements, functools.partial(body, shape))
            for own in sums:
                own.fold()
        done = code.strides(whole, count, code.lanes, functools.partial(body, Shape(1, code.lanes)))
        for own in sums:
            own.fold()
        return done

    def look(self, place: Value, count: Value, index: Value) -> None:
        """Find a chunk's largest logit, before it is taken."""
        x, highest = self.code.array(place, self.dtype), _Largest(self.code, self.streams)

        def body(shape: Shape, at: Value) -> None:
            highest.take(numerics.load(x, at, shape))

        self.code.elements(count, self.streams, body)
        self.rows.highest.write(index, highest.get())

    def take(self, place: Value, weight: Value, weight_step: Value, count: Value, index: Value) -> None:  # fmt: skip
        code, rows = self.code, self.rows
        x = code.array(place, self.dtype)
        before, highest = rows.top.read(index).to("f32"), rows.highest.read(index)
        top = larger(before, highest)
        # Where all are minus infinity, any finite number gives them the power 0.
        shift = (top == -INFINITY).choose(0.0, top)
        with code.either(highest > before) as (raised, kept):
            with raised:
                lowered = exp64(code, before.to("f64") - top.to("f64"))
                old = (rows.others.read(index) + 1.0) * lowered
                rows.others.write(index, old + self._powers(x, count, shift, apart=True))
            with kept:
                rows.add(rows.others, index, self._powers(x, count, shift, apart=False))
        rows.top.write(index, top.to("f64"))
        with code.when(self.parameters.flag("smooths")):
            rows.add(rows.spread, index, moved(rows.weights.read(index), before, top))
            self._spread(x, shift, weight, weight_step, count, index)

    def _powers(self, x: Array, count: Value, shift: Value, apart: bool) -> Value:
        """The sum of exp(x - shift); `apart`: without one of those that are the shift itself."""
        code = self.code
        total, ties, size = _Sum(code), _Sum(code), SIZE[self.dtype]

        def powers_of(values: Value) -> tuple[Value, Value]:
            """And 1 for each of them that is left out."""
            powers, tie = self.exp(values - shift), values == shift
            tied = tie.choose(code.single(1.0), 0.0)
            return (tie.choose(code.single(0.0), powers) if apart else powers), tied

        def body(shape: Shape, index: Value) -> None:
            # Memory would rest while powers are computed: what the next chunk begins with is asked for meanwhile.
            if shape.streams > 1:
                for line in range(0, shape.elements * size, LINE):
                    code.prefetch(x.address(index + CHUNK) + line)
            powers, tied = powers_of(numerics.load(x, index, shape))
            if apart:
                ties.take(tied)
            total.take(powers)

        done = self._summed(count, (total, ties) if apart else (total,), body)
        with code.either(count >= code.lanes) as (vector, few):
            with vector, code.when(done < count):
                # What is left are the last lanes of the chunk's last vector, added one after another.
                end = count - code.lanes
                powers, tied = powers_of(numerics.load(x, end, Shape(1, code.lanes)))
                self.last.store(powers, code.integer(0))
                self.tied.store(tied, code.integer(0))
                with code.loop(done - end, code.integer(code.lanes)) as lane:
                    total.take(self.last.read(lane).splat(1))
                    if apart:
                        ties.take(self.tied.read(lane).splat(1))
            with few:
                code.strides(done, count, 1, functools.partial(body, Shape(1, 1)))
        return total.get() + (ties.get() - 1.0) if apart else total.get()

    def _spread(
        self, x: Array, shift: Value, weight: Value, weight_step: Value, count: Value, index: Value
    ) -> None:
        """What label smoothing sums: weight * (x - shift), and the weights."""
        code, rows = self.code, self.rows
        spread, weights = _Sum(code), _Sum(code)
        with code.either(self.parameters.flag("weighted")) as (weighted, alike):
            with weighted:
                own = code.frame("f32", CHUNK).address()
                with code.when(weight_step != 4):
                    code.copy(weight, weight_step, own, code.integer(4), count, "f32")
                factors = code.array((weight_step == 4).choose(weight, own), "f32")

                def body(shape: Shape, place: Value) -> None:
                    factor = factors.load(place, shape)
                    spread.take(below(numerics.load(x, place, shape), shift) * factor)
                    weights.take(factor)

                done = self._summed(count, (spread, weights), body)
                code.strides(done, count, 1, functools.partial(body, Shape(1, 1)))
                rows.add(rows.weights, index, weights.get())
            with alike:

                def plain(shape: Shape, place: Value) -> None:
                    spread.take(below(numerics.load(x, place, shape), shift))

                done = self._summed(count, (spread,), plain)
                code.strides(done, count, 1, functools.partial(plain, Shape(1, 1)))
                rows.add(rows.weights, index, count.to("f64"))
        rows.add(rows.spread, index, spread.get() * PARTS)
