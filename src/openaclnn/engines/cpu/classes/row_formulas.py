"""Kernels of row formulas on a CPU: four kinds of the lines that `row_passes.py` computes (`LINES`), and `RowKernel`, which chooses one and launches it.

- `RowLines`: where classes are contiguous, or nearer to each other than positions, a line is a row with its classes in the lanes.
- `RowGroups`: of short rows a line is TOGETHER rows; the classes of each are one of the streams (vectors) of a value.
- `PositionLines`: elsewhere, and for the shortest rows, a line is TOGETHER vectors of positions, class after class. Contiguous positions are loaded and stored in place, and prefetched
  in longer runs of each plane; others are copied to the frame as FLOAT, and back.
- `RunLines`: formulas that sum once and compute little, as softmax's gradients, take long runs of each plane.

A line's classes are divided into blocks that fit into a cache or the frame. If there is one block, heavy values are kept between passes.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import operator
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from openaclnn.core.dtypes import DOUBLE, FLOAT, FLOAT16, FLOATS, INT32, INT64
from openaclnn.core.plan import Plan
from openaclnn.engines.cpu.arithmetic import numerics
from openaclnn.engines.cpu.classes import totals
from openaclnn.engines.cpu.classes.launches import (
    IMAGES,
    ClassKernel,
    Kernels,
    Launches,
    Problem,
    bound,
    cut_tiles,
    example,
)
from openaclnn.engines.cpu.classes.parameters import (
    AXES,
    KINDS,
    Parameters,
    ParametersOnce,
    Target,
    Targets,
    double,
    fields,
)
from openaclnn.engines.cpu.classes.row_copies import copier
from openaclnn.engines.cpu.classes.row_passes import ROOM, TOGETHER, Line, Passes, Phase, Schedule
from openaclnn.engines.cpu.launching.launcher import BRIEF, TINY
from openaclnn.engines.cpu.layouts.tiles import transposed
from openaclnn.engines.cpu.registry import Runner
from openaclnn.engines.formulas.rows import Graph, Node, RowFormula
from openaclnn.engines.machine.cache import Emit, compiled
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.host import LINE, machine
from openaclnn.engines.machine.kinds import SIZE
from openaclnn.engines.machine.numbers import (
    Number,
    Truth,
    all_of,
    any_of,
    ceil_div,
    flag,
    inverse,
    least,
    most,
    where,
)
from openaclnn.engines.machine.values import Shape, Value, Variable

AT_ONCE = 1 << 12  # elements of a piece of work, if rows are short
# Elements up to which there are few rows for each thread, and those of a piece of work then.
FEW, AT_ONCE_OF_FEW = 1 << 17, 1 << 10
PIECE = 1 << 14  # elements of a piece of work in lines of positions
PARTS = 32  # pieces of work in lines of positions, at least
CHUNK = 1 << 11  # classes of a row that stay in the first-level cache
AHEAD = 8  # classes to prefetch
ROWS_AHEAD = 16  # rows to prefetch, if only one value of each is read
# For such rows: rows of a piece of work at least, how many pieces more rows are divided into, and rows up to which one thread is faster than two, as each value waits for memory.
FEW_ROWS, MANY_PARTS, ROWS_ALONE = 1 << 8, 128, 1 << 11
# Bytes of a run of a plane, runs that positions are divided into at least, and classes from which on there are runs: softmax's gradients of 19 to 1,000 classes take
# 0.5 to 0.9 of the time of vectors of positions, those of 3 classes 0.8 to 0.9. Runs of 1.7 KB, which stay in the second-level cache, take 1.3 to 1.5 times as long with 150 classes.
RUN, RUN_PARTS, RUN_CLASSES = 1 << 12, 16, 3
SUMMED = 2  # planes of a run that are added up together: 2 to 8% less time than one
SUBS = 16  # vectors of positions that are copied together, at most


def streams() -> int:
    """Vectors of a row that are computed together: with one, or with four of AVX-512, computing would wait for its own latency. With four of AVX2, for which there are too few
    registers, steps in BFLOAT16 of 300 to 4,096 classes take 0.88 to 0.92 of the time with two, in FLOAT 0.95 to 1, softmax and log-softmax 0.92 to 0.98."""
    return 8 if machine().registers >= 32 else 4


class Names:
    """The names of a formula's operands in its kernel's parameter slots."""

    def __init__(
        self, inputs: Mapping[str, str], written: Sequence[str], outputs: Sequence[str] = (), singles: Sequence[str] = ()
    ) -> None:  # fmt: skip
        self.inputs = dict(inputs)  # name: kind
        self.written = list(written)  # of the first results; others are added up over the positions
        self.outputs = list(outputs or written)
        self.singles = frozenset(singles)  # inputs of positions that are one number for all
        self.all = [*self.inputs, *self.outputs]


class Kinds:
    """The dtypes of a plan's operands by their short names in machine code, and the one that is computed in."""

    def __init__(self, plan: Plan, names: Names) -> None:
        dtypes = {name: operand.dtype for name, operand in zip(names.all, plan.operands, strict=True)}  # fmt: skip
        self.of = {name: KINDS.get(dtype, dtype.short) for name, dtype in dtypes.items()}
        self.compute = plan.compute.short
        # Whether elements may have any NaN; numbers of a row have only the usual one.
        self.any_nan = any(
            self.of[name] in ("f32", "f64") for name, kind in names.inputs.items() if kind in ("Row", "PerClass")
        )  # fmt: skip

    @property
    def text(self) -> str:
        return ".".join((*self.of.values(), self.compute))


class Lines:
    """Base of the four kinds of lines: parameters, targets, numbers of a row, and sums over the positions of a piece of work."""

    one_row = True
    one_block = chooses = subtracts = False

    def __init__(self, code: Code, parameters: Parameters, schedule: Schedule, names: Names, kinds: Kinds) -> None:  # fmt: skip
        self.code, self.parameters, self.schedule = code, parameters, schedule
        self.names, self.kinds = names, kinds
        self.graph = schedule.graph
        self.classes, self.block = parameters["classes"], parameters["block"]
        self.several = parameters["blocks"] > 1
        self.room = code.buffer("f32", ROOM)
        self.opaque = numerics.Opaque(code)
        self.streams = streams()
        self.full = [name for name, kind in names.inputs.items() if kind == "Row"]
        self.per_class = [name for name, kind in names.inputs.items() if kind == "PerClass"]
        self.written = {
            number: names.written[number]
            for number, node in enumerate(self.graph.results) if "c" in node.axes
        }  # fmt: skip
        self.walked = [name for name, kind in names.inputs.items() if kind != "PerClass" and name not in names.singles]  # fmt: skip
        self.walked += names.written
        self.labels: dict[str, Target] = {}
        self.shared: Mapping[str, Value] = {}  # numbers that the parameters do not have
        self.asks: set[str] = set()  # of the phase that is being written
        self.none = code.constant("f64", 0.0, 1) if self.one_row else self.filled("f64", 0.0)
        self.sums = [code.variable(self.none) for _ in self.graph.results[len(names.written) :]]

    def blocks(self, phases: list[Phase], body: Callable[[Value, Value], None]) -> None:
        self.start = self.code.integer(0)
        body(self.start, self.classes)

    def walk(self, passes: Passes, first: Value, last: Value) -> None:
        """Write the loop over all lines of some pieces of work."""
        raise NotImplementedError

    def filled(self, kind: str, number: float) -> Value:
        raise NotImplementedError

    def folded(self, values: Value, join: Callable[[Value, Value], Value]) -> Value:
        return values

    def reduced(self, vector: Value, join: Callable[[Value, Value], Value]) -> Value:
        return vector

    def running(self, kind: str, number: float) -> Any:
        return self.code.variable(self.filled(kind, number))

    def settled(self, settle: Callable[[], None]) -> None:
        settle()

    def held(self, node: int, number: Value) -> Any:
        return number

    def of_rows(self, numbers: list[Value]) -> Value:
        raise NotImplementedError("of lines of rows")

    def spread(self, number: Any) -> Any:
        return number

    def write_where(self, result: int, index: Value, truths: Value, values: Value) -> None:
        raise NotImplementedError("of lines that choose")

    def write_at_target(self, result: int, target: Node, holds: Value | None, value: Value) -> None:
        raise NotImplementedError("of one row alone")

    def fill(self, result: int, number: float, count: Value) -> None:
        raise NotImplementedError("of one row alone")

    def adds_up(self, result: int, values: Value) -> bool:
        """Add a line's numbers to the sum of the piece of work, if the result is added up; whether it is."""
        place = result - len(self.names.written)
        if place >= 0:
            self.sums[place].set(self.sums[place].get() + self.counted_once(values))
        return place >= 0

    def counted_once(self, values: Value) -> Value:
        return values.splat(1)

    @contextmanager
    def piece(self, number: Value) -> Iterator[None]:
        """The code of a piece of work, after which its sums are written as a record to scratch memory."""
        for total in self.sums:
            total.set(self.none)
        yield
        if not self.sums:
            return
        records = self.parameters.scratch + self.parameters["records_at"]
        record = self.code.array(records + number * (8 * len(self.sums)), "f64")
        for slot, total in enumerate(self.sums):
            lanes = numerics.paired(total.get().streams(), operator.add)
            record.write(slot, numerics.across(lanes, operator.add))

    def each_block(self, many: Value, body: Callable[[Value, Value, Value], None]) -> None:
        """`body(number, start, count)` for each block of classes; the last one has the rest."""
        code = self.code
        with code.loop(0, many) as number:
            start = number * self.block
            count = (number == many - 1).choose(self.classes - start, self.block)
            body(number, start, count)

    def targets(self, name: str) -> Targets:
        return Targets(self.code, self.parameters, self.kinds.of[name])

    def number(self, node: Node) -> Value:
        """A number of the call, or what is asked of a target: its index, and whether it counts or is a class."""
        if node.what == "number":
            known = self.shared.get(node.name)
            return self.parameters.double(node.name) if known is None else known
        target = self.labels[node.of[0].name]
        if node.what == "index_of":
            return target.inside.choose(target.label, 0).to("f64")
        return target.counted if node.what == "is_counted" else target.inside

    def single(self, name: str, place: Value) -> Value:
        """One element of an operand, as FLOAT64."""
        value = self.code.load(place, self.kinds.of[name]).to("f32").splat(1)
        return self.plain(self.rounded(value, name), name).lane(0).to("f64")

    def plain(self, values: Value, name: str) -> Value:
        """The values with any NaN replaced by the usual one, whose low half is 0: rounding to bfloat16 needs that."""
        risky = "bf16" in self.kinds.of.values() and self.kinds.of[name] in ("f32", "f64")
        return values.is_nan().choose(math.nan, values) if risky else values

    def rounded(self, values: Value, name: str = "") -> Value:
        """The values rounded to the dtype that is computed in, unless they are those of an operand of that dtype."""
        compute, kind = self.kinds.compute, self.kinds.of.get(name)
        return (
            values if compute in ("f32", kind) else numerics.rounded(values, compute, self.opaque)
        )

    def report(self, stray: Value) -> None:
        """Report a target that is no class, unless rows have only some of all classes."""
        if "first_class" not in self.parameters.slots:
            with self.code.when(numerics.any_lane(stray), likely=False):
                self.parameters.report_stray()

    def store(self, values: Value, array: Array, index: Value, name: str) -> None:
        numerics.store(self.rounded(values, name), array, index, self.opaque, self.kinds.any_nan)


def _whole(number: Value) -> Value:
    """A FLOAT64 that is an integer of 32 bits as i32: added to 1.5 * 2^52, its low bits are that integer."""
    return (number + 1.5 * 2.0**52).bits_as("i64").to("i32")


class RowLines(Lines):
    """A line is a row, or in `RowGroups` several, with classes in the lanes. Values that each row has are in lists, one item a row."""

    rows, subtracts = 1, True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        code = self.code
        self.staged = self.parameters.flag("staged")
        lanes = code.lanes
        self.masks = code.frame("i32", 2 * lanes)
        with code.once():
            zero, one = (code.constant("i32", number, lanes) for number in (0, -1))
            self.masks.store(zero, code.integer(0))
            self.masks.store(one, code.integer(lanes))
            self.lane_numbers = code.lanes_of(
                [code.integer(lane).to("i32") for lane in range(lanes)]
            )
        # Slots in the frame: saved values, then operands with classes, if these are not contiguous.
        order = [*self.full, *self.per_class, *self.written.values()]
        self.slot: dict[Any, int] = {
            each: k for k, each in enumerate((*self.schedule.saved, *order))
        }

    def begin(self, places: Mapping[str, Variable], many: Value, asks: bool) -> None:
        """Begin a line with the rows from these places on, of which `many` are left. Past the end the last row is taken again, since all are read before any is written."""
        code, self.many, self.is_last = self.code, many, many <= self.rows
        self.read: set[str] = set()  # by a pass before
        self.at = {name: [place] * self.rows for name, place in self.resting.items()}
        for name, place in places.items():
            step, others = self.parameters[f"{name}.step2"], range(1, self.rows)
            self.at[name] = [place.get(), *(place.get() + code.integer(row).least(many - 1) * step for row in others)]  # fmt: skip
        if asks:
            self._ask_for_targets()
        for name, kind in self.names.inputs.items():
            if kind == "Target":
                label = self.of_rows([code.load(place, self.kinds.of[name]) for place in self.at[name]])  # fmt: skip
                self.labels[name] = target = self.targets(name).of(label)
                self.report(target.stray)

    def of_rows(self, numbers: list[Value]) -> Value:
        """One value with a number of each row."""
        return numbers[0]

    def of_row(self, values: Value, row: int) -> Value:
        """The number of one row in such a value."""
        return values

    def elements_of_rows(self, values: Value) -> list[Value]:
        return [values]

    def _ask_for_targets(self) -> None:
        """Prefetch the element at the target of a row that comes later: without a loop over classes, each would wait for memory."""
        for node in self.schedule.rows:
            if node.what == "at" and node.of[0].kind == "Row":
                place, target = (self.at[one.name][0] + self.parameters[f"{one.name}.step2"] * ROWS_AHEAD for one in node.of)  # fmt: skip
                label = self.targets(node.of[1].name).at(target).label
                self.code.prefetch(place + label * self.parameters[f"{node.of[0].name}.class_step"])

    def number(self, node: Node) -> Value:
        if node.what == "input":
            return self._singles(node.name, self.at[node.name])
        if node.what != "at":
            return super().number(node)
        row, target = node.of
        label = self.labels[target.name]
        step = label.inside.choose(label.label, 0) * self.parameters[f"{row.name}.class_step"]
        places = [place + self.of_row(step, k) for k, place in enumerate(self.at[row.name])]
        return label.inside.choose(self._singles(row.name, places), 0.0)

    def _singles(self, name: str, places: list[Value]) -> Value:
        return self.of_rows([self.single(name, place) for place in places])

    def _buffer(self, slot: int) -> Value:
        """The address of a slot, which has room for two blocks, as the last block may have almost twice as many classes."""
        return self.room + (self.block * (8 * slot))

    def blocks(self, phases: list[Phase], body: Callable[[Value, Value], None]) -> None:
        code, names = self.code, [node.name for node in self.schedule.inputs(phases)]
        writes = [self.written[number] for phase in phases for number, _ in phase.writes]

        def one(number: Value, start: Value, count: Value) -> None:
            self.start = start
            self.arrays: dict[str, list[Array]] = {}
            for name in (*names, *writes):
                kind, step = self.kinds.of[name], self.parameters[f"{name}.class_step"]
                place, buffer = self.at[name][0] + start * step, self._buffer(self.slot[name])
                if name in names:
                    missing = self.staged & self.several if name in self.read else self.staged
                    with code.when(missing, likely=False):
                        code.copy(place, step, buffer, code.integer(SIZE[kind]), count, kind)
                self.arrays[name] = [code.array(self.staged.choose(buffer, place), kind)]
            self.read |= {*names}
            body(number, count)
            for name in writes:
                kind, step = self.kinds.of[name], self.parameters[f"{name}.class_step"]
                with code.when(self.staged, likely=False):
                    place, buffer = self.at[name][0] + start * step, self._buffer(self.slot[name])
                    code.copy(buffer, code.integer(SIZE[kind]), place, step, count, kind)

        # A contiguous row is one block, unless sums are relative to a block's largest, or values are saved.
        many = self.parameters["blocks"]
        cut = any(phase.online or phase.saves for phase in phases)
        self.each_block(many if cut else self.staged.choose(many, 1), one)

    def each(self, count: Value, phase: Phase, body: Callable[..., None], leaves: Callable[..., Any]) -> None:  # fmt: skip
        """Loop over whole vectors. The last one ends with the block, overlaps the one before, and is loaded before others are stored."""
        code, one = self.code, Shape(self.rows, self.code.lanes)
        self.asks = phase.asks
        end = count - code.lanes
        last = leaves(end, one) if phase.writes or phase.saves else None
        done = code.integer(0)
        for shape in dict.fromkeys((Shape(self.streams, code.lanes), one)):
            step = functools.partial(_unmasked, body, shape)
            done = code.strides(done, count, shape.elements // self.rows, step)
        with code.when(done < count):
            mask = self.masks.load(count - done, Shape(1, code.lanes)) != 0
            body(one, end, mask, last)

    def _of_one(self, shape: Shape) -> Shape:
        """The part of a shape that one row has."""
        return Shape(shape.streams // self.rows, shape.lanes)

    def load(self, node: Node, index: Value, shape: Shape) -> Value:
        if node.kind == "Row" and node.name in self.asks:
            self._ask(node.name, index, shape)
        each = [
            numerics.load(array, index, self._of_one(shape)) for array in self.arrays[node.name]
        ]
        return self.rounded(each[0].join(each), node.name)

    def _ask(self, name: str, index: Value, shape: Shape, written: bool = False) -> None:
        """Prefetch the next block or row while this one is computed."""
        item, row = SIZE[self.kinds.of[name]], self.parameters[f"{name}.step2"] * self.rows
        # What follows the last row is written by another thread, whose cache line would be taken away.
        if written:
            row = self.is_last.choose(0, row)
        # Beside one distance for all rows, addresses need no registers of their own, of which there are too few (softmax's gradient of 150 classes: 1 to 5%).
        ahead = index * item + self.several.choose(self.block * item, row)
        for array in self.arrays[name] if shape.streams > 1 else ():
            for line in range(0, self._of_one(shape).elements * item, LINE):
                self.code.prefetch(array.address() + (ahead + line), written)

    def is_target(self, node: Node, index: Value, shape: Shape) -> Value:
        # The target's distance from the first lane, or -1.
        streams, lanes = self._of_one(shape)
        distance: Value = self.labels[node.name].label - (self.start + index)
        near = distance.below(streams * lanes).choose(distance, -1).to("i32")
        numbers = self.lane_numbers.join([self.lane_numbers + k * lanes for k in range(streams)])
        truths: Value = numbers == self.spread(near)
        return truths

    def _kept(self, node: int) -> list[Array]:
        return [self.code.array(self._buffer(self.slot[node]), "f32")]

    def keep(self, slot: int, index: Value, values: Value) -> None:
        for array, each in zip(self._kept(slot), self.elements_of_rows(values), strict=True):
            array.store(each, index)

    def kept(self, slot: int, index: Value, shape: Shape) -> Value:
        each = [array.load(index, self._of_one(shape)) for array in self._kept(slot)]
        return each[0].join(each)

    def write(self, result: int, index: Value, values: Value) -> None:
        name = self.written[result]
        self._ask(name, index, Shape(len(values.parts), self.code.lanes), written=True)
        for array, each in zip(self.arrays[name], self.elements_of_rows(values), strict=True):
            self.store(each, array, index, name)

    def write_at_target(self, result: int, target: Node, holds: Value | None, value: Value) -> None:
        name, label = self.written[result], self.labels[target.name]
        place = self.at[name][0] + label.label * self.parameters[f"{name}.class_step"]
        with self.code.when(label.inside if holds is None else label.inside & holds):
            array = self.code.array(place, self.kinds.of[name])
            numerics.store(self.rounded(value.splat(1), name), array, self.code.integer(0), self.opaque, any_nan=True)  # fmt: skip

    def fill(self, result: int, number: float, count: Value) -> None:
        def body(shape: Shape, index: Value) -> None:
            self.write(result, index, self.code.single(number).fill(shape))

        self.code.elements(count, 4, body)

    def filled(self, kind: str, number: float) -> Value:
        return self.code.constant(kind, number, self.code.lanes)

    def folded(self, values: Value, join: Callable[[Value, Value], Value]) -> Value:
        return numerics.paired(values.streams(), join)

    def reduced(self, vector: Value, join: Callable[[Value, Value], Value]) -> Value:
        return numerics.across(vector, join)

    def any(self, truths: Value) -> Value:
        return truths.reduce("or")

    def put(self, result: int, value: Value) -> None:
        if self.adds_up(result, value):
            return
        name = self.names.written[result]
        kind = self.kinds.of[name]
        for row, place in enumerate(self.at[name]):
            number = self.of_row(value, row)
            if kind == "i32":
                self.code.store(_whole(number), place, kind)
                continue
            number = self.rounded(number.to("f32").splat(1), name).lane(0)
            self.code.store(number.to("f64") if kind == "f64" else number, place, kind)

    def walk(self, passes: Passes, first: Value, last: Value) -> None:
        """A piece of work is some rows."""
        code, parameters = self.code, self.parameters
        tile, positions = parameters["tile"], parameters["positions"]
        places = {name: code.variable(0) for name in self.walked}
        self.resting = {name: parameters.address(name) for name in self.names.all if name not in places}  # fmt: skip

        def stretch(start: list[Value], many: Value, left: Value) -> None:
            for place, address in zip(places.values(), start, strict=True):
                place.set(address)
            parts = [(False, 0, many)]
            if not self.schedule.phases:
                asking = most(many.least(left - ROWS_AHEAD), 0)
                parts = [(True, 0, asking), (False, asking, many)]
            for asks, since, until in parts:
                with code.loop(since, until, self.rows) as done:
                    self.begin(places, many - done, asks)
                    passes.over(self)
                    for name, place in places.items():
                        place.set(place.get() + parameters[f"{name}.step2"] * self.rows)

        def rows(start: Value, stop: Value) -> None:
            parameters.stretches(start, stop, places, stretch)

        if not self.sums:
            rows(first * tile, (last * tile).least(positions))
            return
        with code.loop(first, last) as piece, self.piece(piece):
            rows(piece * tile, ((piece + 1) * tile).least(positions))


class RowGroups(RowLines):
    """A line is TOGETHER short rows, so that computing does not wait for the latency of one: each row's elements are a stream, its numbers a lane. Classes are contiguous, and
    one block has all of them."""

    rows, one_row, one_block = TOGETHER, False, True
    folded = Lines.folded

    def __init__(self, code: Code, *arguments: Any) -> None:
        super().__init__(code, *arguments)
        self.several, self.streams = code.integer(0) != 0, TOGETHER
        self.none = code.constant("f64", 0.0, 1)
        self.sums = [code.variable(self.none) for _ in self.sums]

    def blocks(self, phases: list[Phase], body: Callable[[Value, Value], None]) -> None:
        self.arrays = {
            name: [self.code.array(place, self.kinds.of[name]) for place in places[: 1 if name in self.per_class else None]]
            for name, places in self.at.items()
        }  # fmt: skip
        super(RowLines, self).blocks(phases, body)

    def of_rows(self, numbers: list[Value]) -> Value:
        return self.code.lanes_of(numbers)

    def of_row(self, values: Value, row: int) -> Value:
        return values.lane(row) if values.lanes else values

    def elements_of_rows(self, values: Value) -> list[Value]:
        return values.streams()

    def _kept(self, node: int) -> list[Array]:
        pitch = 4 * self.code.lanes * self.schedule.grouped[1]
        first = self.slot[node] * TOGETHER
        places = [self.room + (first + row) * pitch for row in range(TOGETHER)]
        return [self.code.array(place, "f32") for place in places]

    def filled(self, kind: str, number: float) -> Value:
        return self.code.joined([super().filled(kind, number)] * TOGETHER)

    def reduced(self, vector: Value, join: Callable[[Value, Value], Value]) -> Value:
        """A number of each stream: its lanes are joined in the order of `RowLines`."""
        rows = vector.streams()
        while rows[0].lanes > TOGETHER:
            rows = [join(*row.split(row.lanes // 2).streams()) for row in rows]
        first, second, third, fourth = transposed(rows)
        return join(join(first, third), join(second, fourth))

    def any(self, truths: Value) -> Value:
        return self.code.lanes_of([one.reduce("or") for one in truths.streams()])

    def spread(self, number: Value) -> Value:
        if not number.lanes:
            return number
        return self.code.joined([number.lane(row) for row in range(TOGETHER)])

    def counted_once(self, values: Value) -> Value:
        rows = self.code.lanes_of([self.code.integer(row) for row in range(TOGETHER)])
        return numerics.across((rows < self.many).choose(values, 0.0), operator.add).splat(1)


class PositionLines(Lines):
    """A line is TOGETHER vectors of positions, class after class. A group is all that is copied together: up to SUBS vectors."""

    one_row = False

    def __init__(self, code: Code, *arguments: Any) -> None:
        super().__init__(code, *arguments)
        parameters = self.parameters
        self.lanes, self.subs = code.lanes, parameters["subs"]
        self.one, self.shape = Shape(1, self.lanes), Shape(TOGETHER, self.lanes)
        self.slot, _ = self.schedule.slots()
        self.slot |= {name: place for place, name in enumerate(self.written.values())}
        # The address of each position, unless positions are contiguous.
        self.places = {name: code.frame("i64", SUBS * self.lanes) for name in self.walked}
        # For each lane: its number in the group, its targets' classes, and elements that are gathered.
        width = TOGETHER * self.lanes
        targets = [name for name, kind in self.names.inputs.items() if kind == "Target"]
        self.lane, *chosen = (code.frame("i64", width) for _ in range(1 + len(targets)))
        self.chosen = dict(zip(targets, chosen, strict=True))
        self.gathered = {
            kind: code.frame(kind, width) for kind in dict.fromkeys(self.kinds.of.values())
        }
        # Whether no result overwrites an operand, so that positions may be computed twice.
        self.apart = code.integer(0) == 0
        for name, one in itertools.product(self.full, self.written.values()):
            self.apart = self.apart & (parameters.address(name) != parameters.address(one))

    def stretch(self, first: Value, stop: Value) -> tuple[Value, Value]:
        """The first position of the next group, and how many it has: those up to the end of an image, if that fills a vector."""
        size = self.parameters["size2"]
        many = (stop - first).least(self.subs * self.lanes)
        before = first.unsigned_rem(size)
        alone = many.least(size - before)
        missing = self.lanes - alone
        again = (alone < self.lanes) & (before >= missing) & self.apart
        alone, start = again.choose(self.lanes, alone), again.choose(first - missing, first)
        short = size < self.lanes
        return short.choose(first, start), short.choose(many, alone)

    def group(self, first: Value, many: Value, fresh: Value) -> None:
        """Begin a group of neighbouring positions: compute their addresses, and copy operands in one go. The first `fresh` positions have been computed before."""
        code, parameters = self.code, self.parameters
        self.many, self.fresh_from = many, fresh
        size = parameters["size2"]
        self.inside = (size >= self.lanes) | (first.unsigned_rem(size) + many <= size)
        # The last of several vectors ends with the last position.
        self.end = (many > self.lanes).choose(many - self.lanes, 0)
        self.origin, self.beside = {}, {}
        for name in self.walked:
            self.origin[name] = origin = parameters.position(name, first)
            step, item = parameters[f"{name}.step2"], SIZE[self.kinds.of[name]]
            self.beside[name] = self.inside & (step == item) & (many >= self.lanes)
            with code.when(~self.beside[name]), code.either(self.inside) as (here, across):
                with here, code.loop(0, most(many, self.lanes)) as lane:
                    self.places[name].write(lane, origin + lane.least(many - 1) * step)
                with across, code.loop(0, most(many, self.lanes)) as lane:
                    place = parameters.position(name, first + lane.least(many - 1))
                    self.places[name].write(lane, place)
            with code.when(self.beside[name]):
                self.places[name].write(0, origin)
        # Contiguous positions are loaded in place, unless a result may overwrite them: the last vector overlaps the one before.
        beside = [self.beside[name] for name in (*self.full, *self.written.values())]
        self.direct = functools.reduce(operator.and_, beside, self.apart)
        for name in self.full:
            with code.when(~self.several), code.either(self.direct) as (where_they_lie, apart):
                with where_they_lie:
                    self._ask_for_group(name)
                with apart:
                    self._copy(name, code.integer(0), self.classes)

    def finish(self) -> None:
        """Copy the results of a group from the frame, if they were not stored in place."""
        for name in self.written.values():
            with self.code.when(~self.several & ~self.beside[name]):
                self._copy(name, self.code.integer(0), self.classes)

    def begin(self, sub: Value) -> None:
        code = self.code
        # A vector past the end repeats the last one.
        self.starts = [(sub * TOGETHER + k) * self.lanes for k in range(TOGETHER)]
        self.subs_of_line = [(sub * TOGETHER + k).least(self._used() - 1) for k in range(TOGETHER)]
        self.first_lanes = [start.least(self.end) for start in self.starts]
        numbers = code.lanes_of([code.integer(lane) for lane in range(self.lanes)])
        self._lay(self.lane, self.together([numbers + first for first in self.first_lanes]))
        for name, kind in self.names.inputs.items():
            if kind == "Target":
                target = self.targets(name).of_vector(self._vector(name))
                self._lay(self.chosen[name], target.inside.choose(target.label, 0))
                # Lanes past the end repeat the last position.
                self.report(target.stray)
                self.labels[name] = target

    def _lay(self, frame: Array, values: Value) -> None:
        for k, vector in enumerate(values.streams()):
            frame.store(vector, self.code.integer(k * self.lanes))

    def _place(self, name: str, lane: Value) -> Value:
        """The address of a lane's position."""
        index = self.lane.read(lane)
        along = self.origin[name] + index * SIZE[self.kinds.of[name]]
        return self.beside[name].choose(along, self.places[name].read(index))

    def _gathered(self, name: str, place: Callable[[Value], Value]) -> Value:
        """An operand's elements from an address for each lane, not converted."""
        kind, code = self.kinds.of[name], self.code
        with code.loop(0, code.integer(TOGETHER * self.lanes)) as lane:
            self.gathered[kind].write(lane, code.array(place(lane), kind).read(0))
        places = [code.integer(k * self.lanes) for k in range(TOGETHER)]
        return self.together([self.gathered[kind].load(place, self.one) for place in places])

    def _vector(self, name: str) -> Value:
        """The elements of an operand of positions, not converted."""
        code, zero = self.code, self.code.integer(0)
        frame = self.gathered[self.kinds.of[name]]
        with code.either(self.beside[name]) as (beside, apart):
            with beside:
                self._lay(frame, self.together([one.load(zero, self.one) for one in self._beside(name)]))  # fmt: skip
            with apart:
                self._gathered(name, functools.partial(self._place, name))
        places = [code.integer(k * self.lanes) for k in range(TOGETHER)]
        return self.together([frame.load(place, self.one) for place in places])

    def _beside(self, name: str, step: Value | int = 0) -> list[Array]:
        """The vectors of contiguous positions as arrays, `step` bytes further on."""
        kind, origin = self.kinds.of[name], self.origin[name] + step
        return [self.code.array(origin + first * SIZE[kind], kind) for first in self.first_lanes]

    def counted_once(self, values: Value) -> Value:
        """The values with 0 for positions that have been counted before: the last vector overlaps the one before."""
        code = self.code
        numbers = code.lanes_of([code.integer(lane) for lane in range(self.lanes)])
        new = []
        for start, first in zip(self.starts, self.first_lanes, strict=True):
            fresh = most(self.fresh_from, start) - first
            new.append((numbers >= fresh) & (numbers < self.many - first))
        return self.together(new).choose(values, 0.0)

    def number(self, node: Node) -> Value:
        if node.what == "input":
            if node.name in self.names.singles:
                return self.single(node.name, self.parameters.address(node.name))
            values = numerics.widen(self._vector(node.name), self.kinds.of[node.name])
            return self.plain(self.rounded(values, node.name), node.name).to("f64")
        if node.what != "at":
            return super().number(node)
        row, target = node.of
        label = self.labels[target.name]
        step = self.parameters[f"{row.name}.class_step"]
        chosen = self.chosen[target.name]

        def place(lane: Value) -> Value:
            first = self.parameters.address(row.name) if row.kind == "PerClass" else self._place(row.name, lane)  # fmt: skip
            return first + chosen.read(lane) * step

        values = numerics.widen(self._gathered(row.name, place), self.kinds.of[row.name])
        values = self.plain(self.rounded(values, row.name), row.name)
        return label.inside.choose(values, 0.0).to("f64")

    # Between memory and the frame.

    def _array(self, slot: int, sub: Value) -> Array:
        """A vector of positions in a slot of the frame, class after class."""
        place = (sub + self.subs * slot) * self._length()
        return self.code.array(self.room + place * 4, "f32")

    def _length(self) -> Value:
        return self.several.choose(self.block, self.classes) * self.lanes

    def _copy(self, name: str, start: Value, count: Value) -> None:
        """Copy some classes of an input to its slot in the frame, or of a result from there."""
        step = self.parameters[f"{name}.class_step"]
        self.code.call(
            self.parameters[f"{name}.copy"], None, self._array(self.slot[name], self.code.integer(0)), self._length() * 4,
            self.places[name], self.many, start * step, step, count, self.beside[name].to("i64"),
        )  # fmt: skip

    def _arrays(self, slot: int) -> list[Array]:
        return [self._array(slot, sub) for sub in self.subs_of_line]

    def _used(self) -> Value:
        return (self.many + (self.lanes - 1)).unsigned_div(self.lanes)

    # A line.

    def blocks(self, phases: list[Phase], body: Callable[[Value, Value], None]) -> None:
        code = self.code
        names = [node.name for node in self.schedule.inputs(phases) if node.name in self.full]
        writes = [self.written[number] for phase in phases for number, _ in phase.writes]

        def one(number: Value, start: Value, count: Value) -> None:
            self.start = start
            for name in names:
                with code.when(self.several & ~self.direct):
                    self._copy(name, start, count)
            body(number, count)
            for name in writes:
                with code.when(self.several & ~self.beside[name]):
                    self._copy(name, start, count)

        self.each_block(self.parameters["blocks"], one)

    def each(self, count: Value, phase: Phase, body: Callable[..., None], leaves: Callable[..., Any]) -> None:  # fmt: skip
        """Write two loops, for contiguous operands and others: one loop that asks for the layout in each class takes up to 1.6 times as long."""
        step = functools.partial(_unmasked, body, self.shape)
        self.asks = phase.asks
        with self.code.either(self.direct) as ways:
            for self.loads_directly, way in zip((True, False), ways, strict=True):
                with way:
                    self.code.strides(self.code.integer(0), count, 1, step)

    def load(self, node: Node, index: Value, shape: Shape) -> Value:
        code, name = self.code, node.name
        step = (self.start + index) * self.parameters[f"{name}.class_step"]
        if node.kind == "PerClass":
            value = code.load(self.parameters.address(name) + step, self.kinds.of[name])
            return self.rounded(value.to("f32").fill(shape), name)
        if not self.loads_directly:
            return self.kept(name, index, shape)
        lines = self._beside(name, step)
        if name in self.asks:
            self._ask(lines, name)
        vectors = [numerics.load(line, code.integer(0), self.one) for line in lines]
        return self.rounded(self.together(vectors), name)

    def _ask(self, lines: list[Array], name: str, written: bool = False) -> None:
        """Prefetch while elements are computed: in lines of several blocks the classes that follow, in others the positions that are written next."""
        later = self.parameters[f"{name}.class_step"] * AHEAD
        for line in lines:
            here = line.address(self.code.integer(0))
            # The first part of a vector may be in a cache line that is already there.
            following = line.address((TOGETHER + 1) * self.lanes) - 1 if written else here
            self.code.prefetch(self.several.choose(here + later, following), written)

    def _ask_for_group(self, name: str) -> None:
        """Prefetch the next group in runs of each plane: there are more planes than a processor's prefetcher follows."""
        code, size = self.code, SIZE[self.kinds.of[name]]
        following = self.origin[name] + self.many * size
        with code.loop(0, self.classes) as label:
            plane = following + label * self.parameters[f"{name}.class_step"]
            with code.loop(0, self.many * size, LINE) as distance:
                code.prefetch(plane + distance, level=2)

    def _put_down(self, arrays: list[Array], place: Value, values: Value) -> None:
        for array, vector in zip(arrays, values.streams(), strict=True):
            array.store(vector, place)

    def is_target(self, node: Node, index: Value, shape: Shape) -> Value:
        label = self.labels[node.name]
        labels = label.inside.choose(label.label, -1).to("i32")
        return labels == (self.start + index).to("i32")

    def keep(self, slot: Any, index: Value, values: Value) -> None:
        self._put_down(self._arrays(self.slot[slot]), index * self.lanes, values)

    def kept(self, slot: Any, index: Value, shape: Shape) -> Value:
        arrays = self._arrays(self.slot[slot])
        return self.together([array.load(index * self.lanes, self.one) for array in arrays])

    def write(self, result: int, index: Value, values: Value) -> None:
        code, name = self.code, self.written[result]
        step = self.parameters[f"{name}.class_step"]

        def put_beside() -> None:
            lines = self._beside(name, (self.start + index) * step)
            self._ask(lines, name, written=True)
            for line, vector in zip(lines, values.streams(), strict=True):
                self.store(vector, line, code.integer(0), name)

        if self.loads_directly:
            put_beside()
            return
        with code.either(self.beside[name]) as (beside, elsewhere):
            with beside:
                put_beside()
            with elsewhere:
                self._put_down(self._arrays(self.slot[name]), index * self.lanes, values)

    def filled(self, kind: str, number: float) -> Value:
        return self.together([self.code.constant(kind, number, self.code.lanes)] * TOGETHER)

    def together(self, vectors: Sequence[Value]) -> Value:
        return self.code.joined(vectors)

    def any(self, truths: Value) -> Value:
        return truths

    def put(self, result: int, value: Value) -> None:
        if self.adds_up(result, value):
            return
        code, name = self.code, self.names.written[result]
        kind = self.kinds.of[name]
        if kind == "i32":
            values = _whole(value)
        else:
            values = numerics.narrow(self.rounded(value.to("f32"), name), kind, self.opaque, True)
        with code.either(self.beside[name]) as (beside, apart):
            with beside:
                self._put_down(self._beside(name), code.integer(0), values)
            with apart:
                self._lay(self.gathered[kind], values)
                with code.loop(0, code.integer(TOGETHER * self.lanes)) as lane:
                    value = self.gathered[kind].read(lane)
                    with code.when(self.lane.read(lane) < self.many):
                        code.array(self._place(name, lane), kind).write(0, value)

    def walk(self, passes: Passes, first: Value, last: Value) -> None:
        """A piece of work is some groups of vectors."""
        code, tile, positions = self.code, self.parameters["tile"], self.parameters["positions"]
        with code.loop(first, last) as piece, self.piece(piece):
            stop = ((piece + 1) * tile).least(positions)
            start = code.variable(piece * tile)
            with code.repeat_while(lambda: start.get() < stop):
                begin, many = self.stretch(start.get(), stop)
                self.group(begin, many, start.get() - begin)
                with code.loop(0, (self._used() + (TOGETHER - 1)).unsigned_div(TOGETHER)) as sub:
                    self.begin(sub)
                    passes.over(self)
                self.finish()
                start.set(begin + many)


def _unmasked(body: Callable[..., None], shape: Shape, index: Value) -> None:
    body(shape, index, None, None)


class RunLines(Lines):
    """A line is a run of contiguous positions, class after class, long enough for a processor's prefetcher to follow each plane. Sums and numbers of positions are in
    the frame."""

    one_row, one_block = False, True

    def __init__(self, code: Code, *arguments: Any) -> None:
        super().__init__(code, *arguments)
        self.several = code.integer(0) != 0
        self.numbers: dict[int, _OfRun] = {}
        self.totals: list[_OfRun] = []
        self.settling = False

    def begin(self, first: Value, many: Value) -> None:
        self.many = many
        self.origin = {name: self.parameters.position(name, first) for name in self.walked}

    def _along(self, name: str) -> Array:
        return self.code.array(self.origin[name], self.kinds.of[name])

    def number(self, node: Node) -> Value:
        if node.what != "input":
            return super().number(node)
        if node.name in self.shared:
            return self.shared[node.name]
        values = numerics.load(self._along(node.name), self.index, self.shape)
        return self.plain(self.rounded(values, node.name), node.name).to("f64")

    def filled(self, kind: str, number: float) -> Value:
        return self.code.constant(kind, number, 1)

    def running(self, kind: str, number: float) -> Any:
        total = _OfRun(self, kind)
        self.totals.append(total)
        self._each_position(lambda: total.set(self.code.double(number).fill(self.shape)))
        return total

    def settled(self, settle: Callable[[], None]) -> None:
        self.settling = True
        self._each_position(settle)
        self.settling = False

    def held(self, node: int, number: Value) -> Any:
        if not self.settling:
            return number
        held = self.numbers.setdefault(node, _OfRun(self, "f32"))
        held.set(number)
        return held

    def spread(self, number: Any) -> Value:
        return cast("Value", number.get() if isinstance(number, _OfRun) else number)

    def each(self, count: Value, phase: Phase, body: Callable[..., None], leaves: Callable[..., Any]) -> None:  # fmt: skip
        """SUMMED classes are added to sums before these are stored again; results are written one plane at a time."""
        code, together = self.code, 1 if phase.writes else SUMMED
        whole = count - count.unsigned_rem(together)
        for start, stop, step in ((code.integer(0), whole, together), (whole, count, 1)):
            with code.loop(start, stop, step) as first:
                totals = self.totals if phase.reductions else []
                self._each_position(functools.partial(self._take, body, totals, first, step))

    def _take(self, body: Callable[..., None], totals: list[_OfRun], first: Value, many: int) -> None:  # fmt: skip
        for total in totals:
            total.hold()
        for k in range(many):
            # Results are written from the last class to the first: those that were read last are still in a cache.
            self.label = first + k if totals else self.classes - 1 - first
            body(self.shape, self.index, None, None)
        for total in totals:
            total.put_down()

    def _each_position(self, body: Callable[[], None]) -> None:
        def some(shape: Shape, index: Value) -> None:
            self.shape, self.index = shape, index
            body()

        self.code.elements(self.many, TOGETHER, some)

    def _plane(self, name: str) -> Array:
        place = self.origin[name] + self.label * self.parameters[f"{name}.class_step"]
        return self.code.array(place, self.kinds.of[name])

    def load(self, node: Node, index: Value, shape: Shape) -> Value:
        return self.rounded(numerics.load(self._plane(node.name), index, shape), node.name)

    def write(self, result: int, index: Value, values: Value) -> None:
        name = self.written[result]
        self.store(values, self._plane(name), index, name)

    def walk(self, passes: Passes, first: Value, last: Value) -> None:
        """A piece of work is one run, divided where an image ends."""
        code, parameters = self.code, self.parameters
        tile, positions, size = (parameters[name] for name in ("tile", "positions", "size2"))
        start, stop = code.variable(first * tile), (last * tile).least(positions)
        with code.repeat_while(lambda: start.get() < stop):
            here = start.get()
            many = (stop - here).least(size - here.unsigned_rem(size)).least(tile)
            self.begin(here, many)
            self.over(passes)
            start.set(here + many)

    def over(self, passes: Passes) -> None:
        passes.over(cast("Line", self))  # no formula that takes runs asks for the rest


class _OfRun:
    """Numbers of a run's positions in the frame; `get` and `set` access those of the positions that are being computed."""

    def __init__(self, line: RunLines, kind: str) -> None:
        self.line, self.array = line, line.code.frame(kind, RUN // 2)  # of 16 bits
        self.held: Value | None = None

    def get(self) -> Value:
        return self.array.load(self.line.index, self.line.shape) if self.held is None else self.held

    def set(self, values: Value) -> None:
        if self.held is None:
            self.array.store(values, self.line.index)
        else:
            self.held = values

    def hold(self) -> None:
        """Keep these numbers in registers until `put_down` stores them."""
        self.held = self.get()

    def put_down(self) -> None:
        values, self.held = self.get(), None
        self.set(values)


LINES: dict[str, type[Lines]] = {
    "rows": RowLines,
    "positions": PositionLines,
    "groups": RowGroups,
    "runs": RunLines,
}
"""The variants of a kernel, in order."""
ROWS, POSITIONS, GROUPS, RUNS = range(len(LINES))

Share = Callable[[Code, Parameters], Mapping[str, Value]]
"""Computes numbers that all lines share, by their names, before the loop over lines."""


def emit_lines(
    lines: type[Lines], schedule: Schedule, names: Names, kinds: Kinds, slots: Mapping[str, int],
    share: Share,
) -> Emit:  # fmt: skip
    """What writes the kernel with this kind of lines."""

    def emit(code: Code, arguments: Sequence[Value]) -> None:
        block, first, last = arguments
        parameters = ParametersOnce(code, block, slots)
        line = lines(code, parameters, schedule, names, kinds)
        line.shared = share(code, parameters)
        line.walk(Passes(code, schedule), first, last)

    return emit


def example_classes() -> tuple[int, ...]:
    """Numbers of classes with which rows have each kind of lines."""
    return 2, 8 * machine().lanes, 1 << 10


class RowKernel(ClassKernel):
    """The kernels of a row formula."""

    axes, any_axis, strided = IMAGES, True, True
    lines = LINES

    def __init__(
        self, formula: RowFormula, graph: Graph | None = None, named: Names | None = None, more: Sequence[str] = ()
    ) -> None:  # fmt: skip
        """`graph` and `named`: those of a plan, if it has fewer operands or results than the formula; `more`: further parameter slots."""
        self.formula, self.specialized = formula, graph is not None
        self.graphs = graph or formula.graph(dict.fromkeys(formula.switches, False))
        results = self.graphs.results
        written = [f"result{number}" for number in range(len(results))]
        self.named = named or Names(dict(formula.operands), written)
        inputs = self.named.inputs.items()
        self.full = tuple(
            [name for name, kind in inputs if kind == "Row"]
            + [name for name, node in zip(self.named.written, results, strict=False) if "c" in node.axes]
        )  # fmt: skip
        self.per_class = tuple(name for name, kind in inputs if kind == "PerClass")
        self.told = tuple(name for name in formula.targets if name == "first_class")
        items = [f"{name}.item" for name in (*self.full, *self.per_class)]
        items += [f"{name}.copy" for name in self.full]
        walk_slots = ("tile", "staged", "block", "blocks", "subs")
        slots = fields(self.named.all, (*items, *formula.numbers, *self.told, *walk_slots, *more))
        name = f"rows.{formula.name}.{_digest(self.graphs)}"
        super().__init__(name, slots, {each: each for each in self.named.all})

    def share(self, code: Code, parameters: Parameters) -> Mapping[str, Value]:
        """The formula's numbers that are not the plan's, as sums; see `Share`."""
        return {}

    def first_slots(self, plan: Plan) -> Sequence[int]:
        return [self.slots[f"{name}.at"] for name in self.named.all]

    def declines(self, plan: Plan) -> str | None:
        kinds = self.named.inputs.values()
        floats = [operand.dtype for operand, kind in zip(plan.inputs, kinds, strict=True) if kind != "Target"]  # fmt: skip
        # Only results of positions may be INT32.
        floats += [operand.dtype for operand in plan.outputs if (operand.dtype, operand.role) != (INT32, "positions")]  # fmt: skip
        if plan.compute not in FLOATS:
            return f"it computes in {plan.compute}"
        # FLOAT64 would be rounded twice on its way to 16 bits.
        known = (*FLOATS, DOUBLE) if plan.compute is FLOAT else FLOATS
        strange = [dtype for dtype in floats if dtype not in known]
        if strange:
            return f"an operand is {strange[0]}, and it computes in {plan.compute}"
        if FLOAT16 in floats and not machine().half:
            return "this CPU does not convert FLOAT16"
        return None

    def runner(self, plan: Plan) -> Runner:
        if len(plan.shape) <= AXES:
            return super().runner(plan)
        run = self.dynamic_strides(plan)
        assert run is not None
        return bound(run, plan)

    def free_numbers(self, plan: Plan) -> Sequence[tuple[str, str, float]]:
        return tuple((one.option, "i64" if one.integer else "f64", 1) for one in plan.free)

    def schedule(self, plan: Plan) -> Schedule:
        return _scheduled(self.graphs if self.specialized else self.formula.graph(plan.numbers))

    def numbers(self, plan: Plan) -> Mapping[str, int]:
        items = {
            f"{name}.item": operand.dtype.itemsize
            for name, operand in zip(self.named.all, plan.operands, strict=True)
            if f"{name}.item" in self.slots
        }
        return {
            **items,
            **{
                name: double(plan.numbers[name])
                for name in self.formula.numbers
                if name in plan.numbers
            },
            **{name: plan.numbers[name] for name in self.told},
        }

    def called(self, plan: Plan, variant: int) -> Mapping[str, int]:
        """The functions that copy operands, which only lines of positions call."""
        return {
            f"{name}.copy": copier(operand.dtype.short, name in self.named.inputs, plan.compute.short)
            for name, operand in zip(self.named.all, plan.operands, strict=True)
            if name in self.full and variant == POSITIONS
        }  # fmt: skip

    def cut(self, problem: Problem) -> Launches:
        classes, positions, lanes = problem["classes"], problem["positions"], machine().lanes
        schedule = _scheduled(self.graphs)
        if not schedule.phases:
            tile = least(most(positions // MANY_PARTS, FEW_ROWS), totals.BLOCK)
            pieces, _ = cut_tiles(problem, tile, classes)
            brief = BRIEF // FEW_ROWS * TINY
            return Launches(ROWS, pieces, where(positions <= BRIEF, brief, most(ROWS_ALONE // tile, 1)))  # fmt: skip
        near, beside = [], []
        for name in self.full:
            step, along = problem[f"{name}.step2"], problem[f"{name}.class_step"]
            near.append(any_of(abs(along) <= abs(step), step == 0))
            beside.append(along == problem[f"{name}.item"])
        for name in self.per_class:
            beside.append(problem[f"{name}.class_step"] == problem[f"{name}.item"])
        by_rows = all_of(
            classes >= schedule.short * lanes, any_of(all_of(*near), positions < lanes)
        )
        staged = inverse(all_of(*beside))
        first, last = schedule.grouped
        # Few rows would leave most lanes of a line of positions empty.
        first = where(positions < 2 * lanes, 1, first)
        grouped = all_of(*beside, classes >= first * lanes, classes <= last * lanes)
        by_rows = any_of(by_rows, grouped)
        saved = len(schedule.saved)
        # Of rows: half of the room that a slot has, so that the last block has at least as many classes.
        slots = where(staged, saved + len(self.full) + len(self.per_class), max(saved, 1))
        half = ROOM // (2 * slots)
        chunk = least(half, CHUNK)
        half = where(classes < 2 * half, half, chunk) if saved else chunk
        room = ROOM // (TOGETHER * lanes * schedule.slots()[1])
        # Few positions are cut into enough pieces for many threads.
        most_lines = least(room // classes, SUBS // TOGETHER)
        subs = TOGETHER * most(least(most_lines, positions // (TOGETHER * lanes * PARTS)), 1)
        blocks = where(by_rows, most(classes // half, 1), ceil_div(classes, room))
        problem.put(
            staged=flag(staged), block=where(by_rows, half, room), blocks=blocks,
            subs=subs,
        )  # fmt: skip
        width = subs * lanes
        together = most(least(PIECE // (classes * width), positions // (width * 2 * PARTS)), 1) * width  # fmt: skip
        # Whole planes, where some are a piece: what is left of one would take as long as all of a line.
        plane = most(problem["size2"], 1)
        whole = all_of(plane >= lanes, plane <= together)
        together = where(whole, together // plane * plane, together)
        at_once = where(positions * classes <= FEW, AT_ONCE_OF_FEW, AT_ONCE) // classes
        rows = where(grouped, ceil_div(at_once, TOGETHER) * TOGETHER, most(at_once, 1))
        tile = where(by_rows, rows, together)
        by_runs: Truth = False
        if schedule.takes_runs:
            line = TOGETHER * lanes
            beside = [problem[f"{name}.step2"] == problem[f"{name}.item"] for name in self.full]
            by_runs = all_of(inverse(by_rows), plane >= line, classes >= RUN_CLASSES, *beside)
            items = functools.reduce(most, [problem[f"{name}.item"] for name in self.full], 2)
            run = least(RUN // items, ceil_div(positions, RUN_PARTS * line) * line)
            tile = where(by_runs, run, tile)
        pieces, grain = cut_tiles(problem, tile, classes)
        of_team: Number = 0
        if schedule.computes_long:
            # Fewer are enough for some threads; where more are shared, how stays as it is.
            few = all_of(pieces > 1, pieces <= grain)
            of_team, grain = (where(few, most(grain // by, 1), grain) for by in (8, 2))
        lines = where(grouped, GROUPS, where(by_rows, ROWS, where(by_runs, RUNS, POSITIONS)))
        return Launches(lines, pieces, grain, grain_of_team=of_team)

    def kernels(self, plan: Plan, variant: int) -> Kernels:
        kinds = Kinds(plan, self.named)
        schedule = self.schedule(plan)
        how, lines = list(self.lines.items())[variant]
        emit = emit_lines(lines, schedule, self.named, kinds, self.slots, self.share)
        name = f"{self.name}.{_digest(schedule.graph)}.{how}.{kinds.text}"
        return Kernels(compiled(name, emit))

    def variants(self) -> Iterator[Plan]:
        results = list(zip(self.named.written, self.graphs.results, strict=True))
        numbers = {
            "ignore_index": -100,
            "first_class": 0,
            **dict.fromkeys(self.formula.numbers, 1.0),
        }
        numbers |= dict.fromkeys(self.formula.switches, False)
        kinds = [kind for _, kind in self.formula.operands]
        targets = kinds.index("Target") if "Target" in kinds else -1
        described = list(zip(self.formula.operands, self.formula.roles, strict=True))
        for dtype, classes in itertools.product(FLOATS, example_classes()):
            inputs = [(name, INT64 if kind == "Target" else dtype, role) for (name, kind), role in described]  # fmt: skip
            outputs = [(name, dtype, "full" if "c" in node.axes else "positions") for name, node in results]  # fmt: skip
            plan = example(self.formula.name, dtype, classes, inputs, outputs)
            yield dataclasses.replace(plan, numbers=numbers, targets=targets)
            if classes == 2 and _scheduled(self.graphs).takes_runs:
                inputs, outputs = ([(name, kind, "planes") for name, kind, _ in each] for each in (inputs, outputs))  # fmt: skip
                plan = example(self.formula.name, dtype, RUN_CLASSES, inputs, outputs, RUN)
                yield dataclasses.replace(plan, numbers=numbers)


@functools.cache
def _scheduled(graph: Graph) -> Schedule:
    return Schedule(graph)


def _digest(graph: Graph) -> str:
    """Tells graphs apart."""
    text = repr([(node.what, [one.index for one in node.of], node.name) for node in graph.nodes])
    return f"{zlib.crc32((text + repr([node.index for node in graph.results])).encode()):x}"
