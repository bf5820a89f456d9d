"""Rows, some at a time: where they lie, or copied together; in pieces of some rows times some classes, or as many as a vector has lanes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

from openaclnn.engines.cpu.arithmetic import numerics
from openaclnn.engines.cpu.classes.launches import Problem
from openaclnn.engines.cpu.classes.parameters import Parameters, Target, Targets
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.kinds import SIZE
from openaclnn.engines.machine.numbers import (
    Number,
    Truth,
    all_of,
    ceil_div,
    flag,
    inverse,
    least,
    where,
)
from openaclnn.engines.machine.values import Value

__all__ = ["CHUNK", "TILE_CLASSES", "TILE_ROWS", "RowLanes", "Stretch", "Tile", "classes_lie_apart", "cut_rows", "each_stretch"]  # fmt: skip


TILE_ROWS, TILE_CLASSES = 64, 128  # of rows whose classes lie apart: 32 KB each way


class Tile:
    """Rows where they lie, or copied together where their classes do not lie side by side.

    The copies walk along the operand's smaller step: a transposed matrix is read and written line by line.
    """

    def __init__(
        self, code: Code, parameters: Parameters, dtype: str, source: str = "log_prob",
        rows: int = TILE_ROWS, classes: int = TILE_CLASSES, result: str = "out",
    ) -> None:  # fmt: skip
        self.code, self.parameters, self.dtype = code, parameters, dtype
        self.staged = parameters.flag("staged")
        self.source, self.result, self.size = source, result, rows * classes
        self.inputs = code.buffer(dtype, self.size)
        self.pitch = classes * SIZE[dtype]

    @functools.cached_property
    def results(self) -> Value:
        """Room for what is written, if anything is."""
        return self.code.buffer(self.dtype, self.size)

    def _place(self, operand: str, position: Value, label: Value) -> Value:
        steps = self.parameters[f"{operand}.step2"], self.parameters[f"{operand}.class_step"]
        return self.parameters.address(operand) + position * steps[0] + label * steps[1]

    def input_row(self, first_row: Value, first_class: Value, index: Value) -> Value:
        """The address of a row's inputs."""
        place = self._place(self.source, first_row + index, first_class)
        return self.staged.choose(self.inputs + index * self.pitch, place)

    def row(self, first_row: Value, first_class: Value, index: Value) -> tuple[Value, Value]:
        """The addresses of a row's inputs and results."""
        inputs = self.input_row(first_row, first_class, index)
        results = self._place(self.result, first_row + index, first_class)
        return inputs, self.staged.choose(self.results + index * self.pitch, results)

    def read(self, first_row: Value, first_class: Value, many: Value, count: Value) -> None:
        self._copy(self.source, self.inputs, first_row, first_class, many, count, inwards=True)

    def write(self, first_row: Value, first_class: Value, many: Value, count: Value) -> None:
        self._copy(self.result, self.results, first_row, first_class, many, count, inwards=False)

    def _copy(
        self, operand: str, buffer: Value, first_row: Value, first_class: Value, many: Value,
        count: Value, inwards: bool,
    ) -> None:  # fmt: skip
        code = self.code
        origin = self._place(operand, first_row, first_class)
        down = self.parameters[f"{operand}.step2"], code.integer(self.pitch)
        along = self.parameters[f"{operand}.class_step"], code.integer(SIZE[self.dtype])
        by_rows = abs(along[0]) < abs(down[0])
        for condition, outer, inner, lines, length in (
            (by_rows, down, along, many, count), (~by_rows, along, down, count, many),
        ):  # fmt: skip
            with code.when(self.staged & condition), code.loop(0, lines) as line:
                ends = [(origin + line * outer[0], inner[0]), (buffer + line * outer[1], inner[1])]
                source, target = ends if inwards else ends[::-1]
                code.copy(*source, *target, length, self.dtype)


CHUNK = 1 << 16  # classes of one piece of work: few long rows keep all threads busy


class Stretch(NamedTuple):
    """Some classes of a row, side by side, but for weights, which lie `weight_step` bytes apart."""

    x: Value
    out: Value
    weight: Value
    weight_step: Value
    many: Value


def cut_rows(problem: Problem, apart: Truth, together: Number) -> tuple[Number, Number, Number]:
    """The tile, the chunk and the chunks of a row: so many rows together where they lie, or, apart, copied together first."""
    classes = problem["classes"]
    tile = where(apart, TILE_ROWS, together)
    chunk = least(classes, where(apart, TILE_CLASSES, CHUNK))
    chunks = ceil_div(classes, chunk)
    problem.put(staged=flag(apart), chunk=chunk, chunks=chunks)
    return tile, chunk, chunks


def classes_lie_apart(problem: Problem, *operands: str) -> Truth:
    """Whether an operand's classes do not lie side by side."""
    beside = [problem[f"{name}.class_step"] == problem["item"] for name in operands]
    return inverse(all_of(*beside))


def each_stretch(
    code: Code, parameters: Parameters, tile: Tile, first: Value, last: Value,
    body: Callable[[Value, Value, Stretch, Value], None],
    begin: Callable[[Value, Value, Value, Value], None] | None = None,
) -> None:  # fmt: skip
    """`body(position, first_class, stretch, index)` for those of some pieces, in each of which rows are counted from 0 on;
    before, `begin(first_row, first_class, rows, classes)`.
    """
    height, chunk, chunks = (parameters[name] for name in ("tile", "chunk", "chunks"))
    positions, classes = parameters["positions"], parameters["classes"]
    weights, weight_step = parameters.address("weight"), parameters["weight.class_step"]
    with code.loop(first, last) as piece:
        band = piece.unsigned_div(chunks)
        first_class, first_row = (piece - band * chunks) * chunk, band * height
        count = (classes - first_class).least(chunk)
        many = (positions - first_row).least(height)
        tile.read(first_row, first_class, many, count)
        if begin is not None:
            begin(first_row, first_class, many, count)
        with code.loop(0, many) as index:
            x, out = tile.row(first_row, first_class, index)
            weight = weights + first_class * weight_step
            stretch = Stretch(x, out, weight, weight_step, count)
            body(first_row + index, first_class, stretch, index)
        tile.write(first_row, first_class, many, count)


class RowLanes:
    """As many rows at once as a vector has lanes, or one, class after class: each lane has its row of every operand."""

    def __init__(
        self, code: Code, parameters: Parameters, dtype: str, target: str, operands: Sequence[str]
    ) -> None:
        self.code, self.parameters, self.dtype = code, parameters, dtype
        self.targets, self.opaque = Targets(code, parameters, target), numerics.Opaque(code)
        self.base = {name: parameters.address(name) for name in (*operands, "weight")}
        self.step = {name: parameters[f"{name}.step2"] for name in operands}
        self.along = {name: parameters[f"{name}.class_step"] for name in (*operands, "weight")}

    def each(self, first: Value, last: Value, body: Callable[[list[Value]], None]) -> None:
        """`body(rows)` for a vector of rows after another; lanes past the end do the last row again."""
        lanes = range(self.code.lanes)
        with self.code.loop(first, last, self.code.lanes) as start:
            body([(start + lane).least(last - 1) for lane in lanes])

    def places(self, operand: str, rows: list[Value]) -> list[Value]:
        """Where rows begin."""
        return [self.base[operand] + row * self.step[operand] for row in rows]

    def of_class(self, operand: str, places: list[Value], label: Value) -> list[Value]:
        """Where rows have a class."""
        return [place + label * self.along[operand] for place in places]

    def at_labels(self, operand: str, places: list[Value], labels: list[Value]) -> list[Value]:
        """Where rows have a class each."""
        both = zip(places, labels, strict=True)
        return [place + label * self.along[operand] for place, label in both]

    def raw(self, places: list[Value], kind: str) -> Value:
        return self.code.lanes_of([self.code.array(place, kind).read(0) for place in places])

    def read(self, places: list[Value], kind: str = "") -> Value:
        """An element of each row, as FLOAT."""
        kind = kind or self.dtype
        return numerics.widen(self.raw(places, kind), kind)

    def labels(self, rows: list[Value]) -> tuple[list[Value], Target]:
        """The targets; strays are reported."""
        code = self.code
        labels = [code.load(place, self.targets.kind) for place in self.places("target", rows)]
        targets = self.targets.of(code.lanes_of(labels))
        with code.when(targets.stray.reduce("or"), likely=False):
            self.parameters.report_stray()
        return labels, targets

    def weights(self, labels: list[Value]) -> Value:
        """Of classes, FLOAT64."""
        first = [self.base["weight"]] * len(labels)
        return self.read(self.at_labels("weight", first, labels), "f32").to("f64")

    def put(self, values: Value, places: list[Value], kind: str = "") -> None:
        """An element of each row."""
        kind = kind or self.dtype
        narrowed = numerics.narrow(values, kind, self.opaque, any_nan=True)
        for lane, place in enumerate(places):
            self.code.array(place, kind).write(0, narrowed.lane(lane))
