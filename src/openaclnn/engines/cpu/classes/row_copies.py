"""Copies between positions in memory and vectors of them in a frame, class after class, FLOAT: `row_formulas.py` computes with those.

Each dtype has two functions, which all row formulas call by their addresses. A vector of positions is copied by the way that its layout has:
positions side by side, classes side by side (squares are turned in registers), or neither.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from openaclnn.engines.cpu.arithmetic import numerics
from openaclnn.engines.cpu.layouts.tiles import transposed
from openaclnn.engines.machine.cache import compiled
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.host import LINE
from openaclnn.engines.machine.kinds import SIZE, signature
from openaclnn.engines.machine.values import Shape, Value

COPY = signature(None, *["i64"] * 8)
"""`copy(frame, pitch, places, positions, distance, step, classes, beside)`: vectors of positions lie `pitch` bytes apart in the frame; `places` are the
addresses of positions, `distance` bytes before their first class, and classes `step` bytes apart; `beside` says whether positions lie side by side."""


def copier(kind: str, inwards: bool, compute: str = "f32") -> int:
    """The function that copies to a frame, or from it; both ways numbers are rounded to what is computed in."""
    compute = kind if compute == "f32" else compute
    name = f"rows.copy.{'in' if inwards else 'out'}.{kind}.{compute}"
    return compiled(name, functools.partial(_emit, kind, inwards, compute), COPY)


def _emit(kind: str, inwards: bool, compute: str, code: Code, arguments: Sequence[Value]) -> None:
    copy = (_In if inwards else _Out)(code, kind, compute, arguments)
    lanes, beside = code.lanes, arguments[-1] != 0
    # The last vector ends with the last position, and begins among those of the one before.
    many = (copy.positions + (lanes - 1)).unsigned_div(lanes)
    with code.first_of() as done:
        with code.when(beside):
            copy.dense()
            done()
        with code.when(copy.positions < lanes):
            copy.pad()
            with code.loop(0, copy.positions) as lane:
                copy.position(lane)
            done()
        with code.when((copy.step == copy.size) & (copy.classes >= lanes)):
            with code.loop(0, many) as vector:
                copy.turned(vector)
            done()
        with code.loop(0, many) as vector:
            copy.gathered(vector)


class _Copy:
    """The copy being written."""

    def __init__(self, code: Code, kind: str, compute: str, arguments: Sequence[Value]) -> None:
        frame, self.pitch, places, positions, self.distance, self.step, self.classes, _ = arguments
        self.code, self.kind, self.compute, self.size = code, kind, compute, SIZE[kind]
        self.frame, self.places, self.positions = frame, code.slots(places), positions
        self.lanes, self.one, self.zero = code.lanes, Shape(1, code.lanes), code.integer(0)
        self.opaque = numerics.Opaque(code)

    def vectors(self, vector: Value) -> Array:
        """One vector of positions, class after class."""
        return self.code.array(self.frame + vector * self.pitch, "f32")

    def place(self, lane: Value) -> Value:
        return self.places.read(lane) + self.distance

    def memory(self, place: Value) -> Array:
        return self.code.array(place, self.kind)

    def rounded(self, values: Value) -> Value:
        if self.compute == self.kind:
            return values
        return numerics.rounded(values, self.compute, self.opaque)

    def narrow(self, values: Value) -> Value:
        return numerics.narrow(self.rounded(values), self.kind, self.opaque, True)

    def pad(self) -> None:
        """Have numbers in lanes past the end."""

    def first(self, vector: Value) -> Value:
        """The first lane of a vector."""
        return (vector * self.lanes).least(self.positions - self.lanes)

    def dense(self) -> None:
        """Vectors of positions that lie side by side, a class of all after another."""
        code, first = self.code, self.place(self.zero)
        wide = Shape(4, self.lanes)
        with code.loop(0, self.classes) as label:
            line, frame = self.memory(first + label * self.step), self.frame + label * (4 * self.lanes)  # fmt: skip

            def some(shape: Shape, at: Value) -> None:
                vector = at.unsigned_div(self.lanes)
                places = [frame + (vector + k) * self.pitch for k in range(shape.streams)]
                self.line(line, at, shape, [code.array(place, "f32") for place in places])

            done = self.zero
            for shape in (wide, self.one):
                done = code.strides(done, self.positions, shape.elements, functools.partial(some, shape))  # fmt: skip
            with code.when(done < self.positions):
                place = frame + done.unsigned_div(self.lanes) * self.pitch
                self.line(line, self.positions - self.lanes, self.one, [code.array(place, "f32")])

    def turned(self, vector: Value) -> None:
        """Squares; the last one ends with the classes, and begins among those of the one before."""
        code, lanes, frame = self.code, self.lanes, self.vectors(vector)
        places = [self.place(self.first(vector) + lane) for lane in range(lanes)]
        with code.loop(0, self.classes, lanes) as start:
            label = start.least(self.classes - lanes)
            self.square([self.memory(place + label * self.size) for place in places], frame, label)

    def gathered(self, vector: Value) -> None:
        code, lanes, frame = self.code, self.lanes, self.vectors(vector)
        places = [self.place(self.first(vector) + lane) for lane in range(lanes)]
        with code.loop(0, self.classes) as label:
            distance = label * self.step
            self.lane_by_lane([self.memory(place + distance) for place in places], frame, label * lanes)  # fmt: skip

    def line(self, line: Array, at: Value, shape: Shape, frames: list[Array]) -> None:
        raise NotImplementedError

    def square(self, rows: list[Array], frame: Array, label: Value) -> None:
        raise NotImplementedError

    def lane_by_lane(self, elements: list[Array], frame: Array, index: Value) -> None:
        raise NotImplementedError

    def position(self, lane: Value) -> None:
        """One position of less than a vector has."""
        frame, place = self.vectors(self.zero), self.place(lane)
        with self.code.loop(0, self.classes) as label:
            self.element(place + label * self.step, frame, label * self.lanes + lane)

    def element(self, place: Value, frame: Array, index: Value) -> None:
        raise NotImplementedError


class _In(_Copy):
    def pad(self) -> None:
        self.code.clear(self.frame, self.classes * (4 * self.lanes))

    def line(self, line: Array, at: Value, shape: Shape, frames: list[Array]) -> None:
        # What follows is asked for meanwhile: planes are more than a processor foresees.
        for start in range(0, shape.elements * self.size, LINE):
            self.code.prefetch(line.address(at + self.positions) + start)
        loaded = self.rounded(numerics.load(line, at, shape))
        for frame, values in zip(frames, loaded.streams(), strict=True):
            frame.store(values, self.zero)

    def square(self, rows: list[Array], frame: Array, label: Value) -> None:
        loaded = [self.rounded(numerics.load(row, self.zero, self.one)) for row in rows]
        for lane, values in enumerate(transposed(loaded)):
            frame.store(values, (label + lane) * self.lanes)

    def lane_by_lane(self, elements: list[Array], frame: Array, index: Value) -> None:
        raw = self.code.lanes_of([element.read(0) for element in elements])
        frame.store(self.rounded(numerics.widen(raw, self.kind)), index)

    def element(self, place: Value, frame: Array, index: Value) -> None:
        value = self.code.load(place, self.kind).to("f32").splat(1)
        frame.write(index, self.rounded(value).lane(0))


class _Out(_Copy):
    def line(self, line: Array, at: Value, shape: Shape, frames: list[Array]) -> None:
        values = self.code.joined([frame.load(self.zero, self.one) for frame in frames])
        numerics.write(self.narrow(values), line, at)

    def square(self, rows: list[Array], frame: Array, label: Value) -> None:
        planes = [frame.load((label + lane) * self.lanes, self.one) for lane in range(self.lanes)]
        for row, values in zip(rows, transposed(planes), strict=True):
            numerics.write(self.narrow(values), row, self.zero)

    def lane_by_lane(self, elements: list[Array], frame: Array, index: Value) -> None:
        narrowed = self.narrow(frame.load(index, self.one))
        for lane, element in enumerate(elements):
            element.write(0, narrowed.lane(lane))

    def element(self, place: Value, frame: Array, index: Value) -> None:
        value = self.narrow(frame.read(index).splat(1)).lane(0)
        self.memory(place).write(0, value)
