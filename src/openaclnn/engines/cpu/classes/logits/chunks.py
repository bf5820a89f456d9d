"""Rows of logits taken in chunks: the largest logit, and the sum of exp(x - largest) over the others.

A chunk stays in the first-level cache: its largest logit first, then its powers. Where it raises the row's largest, what
was summed before is lowered. The largest one's own 1 stays out of the sum, since beside it the digits of small ones would be
lost. Vectors are FLOAT, a chunk's sums and a row's numbers FLOAT64.

Label smoothing sums weight * (x - largest), where nothing cancels, whichever class is far from the others.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

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
INFINITY = float("inf")
PART = 2.0**-10  # of a difference is summed in FLOAT, where the sum of whole ones may be infinite
PARTS = 1 / PART


class _Sum:
    """A running sum or maximum in as many vectors as there are streams, and one of single elements."""

    def __init__(self, code: Code, streams: int, start: float) -> None:
        self.wide = [code.variable(code.constant("f32", start, code.lanes)) for _ in range(streams)]
        self.single = code.variable(code.constant("f32", start, 1))
        self.lanes = code.lanes

    def take(self, values: Value, join: Callable[[Value, Value], Value]) -> None:
        own = self.wide if values.lanes == self.lanes else [self.single]
        for variable, value in zip(own, values.streams(), strict=False):
            variable.set(join(variable.get(), value))

    def all_of(self, join: Callable[[Value, Value], Value], kind: str = "f32") -> Value:
        """One number, in a fixed order."""
        parts = [variable.get().to(kind) for variable in self.wide]
        vector = _paired(parts, join)
        while vector.lanes > 1:
            vector = join(*vector.split(vector.lanes // 2).streams())
        return join(vector.lane(0), self.single.get().to(kind).lane(0))


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

    def _each(self, count: Value, body: Callable[[Shape, Value], None]) -> None:
        self.code.elements(count, self.streams, body)

    def look(self, place: Value, count: Value, index: Value) -> None:
        """Find a chunk's largest logit, before it is taken."""
        x, highest = self.code.array(place, self.dtype), _Sum(self.code, self.streams, -INFINITY)

        def body(shape: Shape, at: Value) -> None:
            highest.take(numerics.load(x, at, shape), larger)

        self._each(count, body)
        self.rows.highest.write(index, highest.all_of(larger))

    def take(self, place: Value, weight: Value, weight_step: Value, count: Value, index: Value) -> None:  # fmt: skip
        code, rows = self.code, self.rows
        x = code.array(place, self.dtype)
        before, highest = rows.top.read(index).to("f32"), rows.highest.read(index)
        top = larger(before, highest)
        # Where all are minus infinity, any finite number gives them the power 0.
        shift = top.equals(-INFINITY).choose(0.0, top)
        with code.either(highest > before) as (raised, kept):
            with raised:
                lowered = exp64(code, before.to("f64") - top.to("f64"))
                old = (rows.others.read(index) + 1.0) * lowered
                rows.others.write(index, old + self._powers(x, count, shift, apart=True))
            with kept:
                rows.add(rows.others, index, self._powers(x, count, shift, apart=False))
        rows.top.write(index, top.to("f64"))
        with code.when(self.parameters["smooths"].differs(0)):
            rows.add(rows.spread, index, moved(rows.weights.read(index), before, top))
            self._spread(x, shift, weight, weight_step, count, index)

    def _powers(self, x: Array, count: Value, shift: Value, apart: bool) -> Value:
        """The sum of exp(x - shift); `apart`: without one of those that are the shift itself."""
        code = self.code
        total, ties = (_Sum(code, self.streams, 0.0) for _ in range(2))

        size = SIZE[self.dtype]

        def powers_of(values: Value) -> tuple[Value, Value]:
            """And which of them are left out."""
            powers, tie = self.exp(values - shift), values.equals(shift)
            return (tie.choose(code.single(0.0), powers) if apart else powers), tie

        def body(shape: Shape, index: Value) -> None:
            # Memory would rest while powers are computed: what the next chunk begins with is asked for meanwhile.
            if shape.streams > 1:
                for line in range(0, shape.elements * size, LINE):
                    code.prefetch(x.address(index + CHUNK) + line)
            powers, tie = powers_of(numerics.load(x, index, shape))
            if apart:
                ties.take(tie.choose(code.single(1.0), 0.0), added)
            total.take(powers, added)

        one = Shape(1, code.lanes)
        done = code.integer(0)
        for shape in (Shape(self.streams, code.lanes), one):
            done = code.strides(done, count, shape.elements, functools.partial(body, shape))
        with code.either(count >= code.lanes) as (vector, few):
            with vector, code.when(done < count):
                # What is left are the last lanes of the chunk's last vector, added one after another.
                end = count - code.lanes
                powers, tie = powers_of(numerics.load(x, end, one))
                self.last.store(powers, code.integer(0))
                self.tied.store(tie.choose(code.single(1.0), 0.0), code.integer(0))
                with code.loop(done - end, code.integer(code.lanes)) as lane:
                    total.take(self.last.read(lane).splat(1), added)
                    if apart:
                        ties.take(self.tied.read(lane).splat(1), added)
            with few:
                code.strides(done, count, 1, functools.partial(body, Shape(1, 1)))
        found = total.all_of(added, "f64")
        return found + (ties.all_of(added).to("f64") - 1.0) if apart else found

    def _spread(
        self, x: Array, shift: Value, weight: Value, weight_step: Value, count: Value, index: Value
    ) -> None:
        """What label smoothing sums: weight * (x - shift), and the weights."""
        code, rows = self.code, self.rows
        spread, weights = (_Sum(code, self.streams, 0.0) for _ in range(2))
        with code.either(self.parameters["weighted"].differs(0)) as (weighted, alike):
            with weighted:
                own = code.frame("f32", CHUNK).address()
                with code.when(weight_step.differs(4)):
                    code.copy(weight, weight_step, own, code.integer(4), count, "f32")
                factors = code.array(weight_step.equals(4).choose(weight, own), "f32")

                def body(shape: Shape, place: Value) -> None:
                    factor = factors.load(place, shape)
                    spread.take(below(numerics.load(x, place, shape), shift) * factor, added)
                    weights.take(factor, added)

                self._each(count, body)
                rows.add(rows.weights, index, weights.all_of(added, "f64"))
            with alike:

                def plain(shape: Shape, place: Value) -> None:
                    spread.take(below(numerics.load(x, place, shape), shift), added)

                self._each(count, plain)
                rows.add(rows.weights, index, count.to("f64"))
        rows.add(rows.spread, index, spread.all_of(added, "f64") * PARTS)
