"""Kernels of row formulas: two ways to walk the lines of `row_passes.py`, and what launches them.

Where classes lie side by side, or nearer to each other than positions do, a line is a row and its classes lie in the lanes. Elsewhere, and where
rows are shorter than some vectors, a line is a vector of positions: some of them are copied into the frame first, class after class, as FLOAT, and
results from there. A line's classes are taken in blocks that the frame has room for; of what has one block alone, heavy values are kept
between passes.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from openaclnn.core.dtypes import DOUBLE, FLOAT, FLOAT16, FLOATS, INT32, INT64
from openaclnn.core.plan import Operand, Plan
from openaclnn.engines.cpu.arithmetic import numerics
from openaclnn.engines.cpu.classes.launches import (
    IMAGES,
    ClassKernel,
    Kernels,
    Launches,
    Problem,
    cut_tiles,
    example,
    outer_places,
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
from openaclnn.engines.cpu.classes.row_passes import Passes, Phase, Schedule
from openaclnn.engines.cpu.registry import Runner
from openaclnn.engines.formulas.rows import Graph, Node, RowFormula
from openaclnn.engines.machine.cache import Emit, compiled
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.host import machine
from openaclnn.engines.machine.kinds import SIZE
from openaclnn.engines.machine.numbers import (
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

__all__ = ["RowKernel"]

ROOM = 1 << 14  # FLOATs in the frame for what is copied or kept
AT_ONCE = 1 << 12  # elements of the rows that are one piece of work, if they are short
PIECE = 1 << 12  # elements of the positions that are one piece of work
PARTS = 32  # of the positions, at the least
SUBS = 16  # vectors of positions that are copied together, at the most


def streams() -> int:
    return 4 if machine().registers >= 32 else 2


class Names:
    """A formula's operands by the names that its kernel's slots have."""

    def __init__(self, formula: RowFormula, outputs: int) -> None:
        self.inputs = dict(formula.operands)  # with their kinds
        self.outputs = [f"result{number}" for number in range(outputs)]
        self.all = [*self.inputs, *self.outputs]


class Kinds:
    """The dtypes of a plan's operands as code calls them, and which results have classes."""

    def __init__(self, plan: Plan, names: Names) -> None:
        dtypes = {name: operand.dtype for name, operand in zip(names.all, plan.operands, strict=True)}  # fmt: skip
        self.of = {name: KINDS.get(dtype, dtype.short) for name, dtype in dtypes.items()}
        self.compute = plan.compute.short
        self.any_nan = any(
            kind in ("f32", "f64") for name, kind in self.of.items() if name in names.inputs
        )

    @property
    def text(self) -> str:
        return ".".join((*self.of.values(), self.compute))


class _Lines:
    """What both ways share: parameters, targets, numbers a row."""

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
            number: names.outputs[number]
            for number, node in enumerate(self.graph.results) if "c" in node.axes
        }  # fmt: skip
        self.labels: dict[str, Target] = {}

    def each_block(self, body: Callable[[Value, Value, Value], None]) -> None:
        """`body(number, start, count)`: the last block takes what is left."""
        code, many = self.code, self.parameters["blocks"]
        with code.loop(0, many) as number:
            start = number * self.block
            count = (number == many - 1).choose(self.classes - start, self.block)
            body(number, start, count)

    def targets(self, name: str) -> Targets:
        return Targets(self.code, self.parameters, self.kinds.of[name])

    def rounded(self, values: Value, name: str = "") -> Value:
        """Numbers rounded to what is computed in; not those of an operand that has that dtype."""
        compute, kind = self.kinds.compute, self.kinds.of.get(name)
        return (
            values if compute in ("f32", kind) else numerics.rounded(values, compute, self.opaque)
        )

    def report(self, stray: Value) -> None:
        """A target that is no class of a row's is a mistake, unless rows have some of all classes."""
        if "first_class" not in self.parameters.slots:
            with self.code.when(stray, likely=False):
                self.parameters.report_stray()

    def store(self, values: Value, array: Array, index: Value, name: str) -> None:
        numerics.store(self.rounded(values, name), array, index, self.opaque, self.kinds.any_nan)


def _of_target(node: Node, target: Target) -> Value:
    if node.what == "index_of":
        return target.inside.choose(target.label, 0).to("f64")
    return target.counted if node.what == "is_counted" else target.inside


def _whole(number: Value) -> Value:
    """A FLOAT64 that is a whole number of 32 bits: beside 1.5 * 2^52 these are its last ones."""
    return (number + 1.5 * 2.0**52).bits_as("i64").to("i32")


class RowLines(_Lines):
    """Lines are rows, with classes in the lanes."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
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
        # In the frame: what is kept, then operands with classes where these lie apart.
        order = [*self.full, *self.per_class, *self.written.values()]
        self.slot: dict[Any, int] = {
            each: k for k, each in enumerate((*self.schedule.saved, *order))
        }

    def begin(self, places: Mapping[str, Variable]) -> None:
        """A row that lies at these places."""
        self.place = {name: place.get() for name, place in places.items()}
        self.read: set[str] = set()  # by a pass before
        for name, kind in self.names.inputs.items():
            if kind == "Target":
                target = self.targets(name).at(self.place[name])
                self.report(target.stray)
                self.labels[name] = target

    def number(self, node: Node) -> Value:
        match node.what:
            case "input":
                return self._single(node.name, self.place[node.name]).to("f64")
            case "number":
                return self.parameters.double(node.name)
            case "is_counted" | "is_inside" | "index_of":
                return _of_target(node, self.labels[node.of[0].name])
        row, target = node.of
        label = self.labels[target.name]
        step = label.inside.choose(label.label, 0) * self.parameters[f"{row.name}.class_step"]
        value = self._single(row.name, self.place[row.name] + step)
        return label.inside.choose(value, 0.0).to("f64")

    def _single(self, name: str, place: Value) -> Value:
        value = self.code.load(place, self.kinds.of[name]).to("f32").splat(1)
        return self.rounded(value, name).lane(0)

    def _buffer(self, slot: int) -> Value:
        """Where a slot begins: each has room for a block that takes what is left of another."""
        return self.room + (self.block * (8 * slot))

    def blocks(self, phases: list[Phase], body: Callable[[Value, Value], None]) -> None:
        code, names = self.code, [node.name for node in self.schedule.inputs(phases)]
        writes = [self.written[number] for phase in phases for number, _ in phase.writes]

        def one(number: Value, start: Value, count: Value) -> None:
            self.start = start
            self.arrays: dict[str, Array] = {}
            for name in (*names, *writes):
                kind, step = self.kinds.of[name], self.parameters[f"{name}.class_step"]
                place, buffer = self.place[name] + start * step, self._buffer(self.slot[name])
                if name in names:
                    missing = self.staged & self.several if name in self.read else self.staged
                    with code.when(missing, likely=False):
                        code.copy(place, step, buffer, code.integer(SIZE[kind]), count, kind)
                self.arrays[name] = code.array(self.staged.choose(buffer, place), kind)
            self.read |= {*names}
            body(number, count)
            for name in writes:
                kind, step = self.kinds.of[name], self.parameters[f"{name}.class_step"]
                with code.when(self.staged, likely=False):
                    place, buffer = self.place[name] + start * step, self._buffer(self.slot[name])
                    code.copy(buffer, code.integer(SIZE[kind]), place, step, count, kind)

        self.each_block(one)

    def each(self, count: Value, phase: Phase, body: Callable[..., None], leaves: Callable[..., Any]) -> None:  # fmt: skip
        """Whole vectors; the last one ends with the block, and begins among those of the one before. It is read before others are written."""
        code, one = self.code, Shape(1, self.code.lanes)
        end = count - code.lanes
        last = leaves(end, one) if phase.writes or phase.saves else None
        done = code.integer(0)
        for shape in dict.fromkeys((Shape(self.streams, code.lanes), one)):
            done = code.strides(
                done, count, shape.elements, functools.partial(_unmasked, body, shape)
            )  # fmt: skip
        with code.when(done < count):
            mask = self.masks.load(count - done, one) != 0
            body(one, end, mask, last)

    def load(self, node: Node, index: Value, shape: Shape) -> Value:
        return self.rounded(numerics.load(self.arrays[node.name], index, shape), node.name)

    def is_target(self, node: Node, index: Value, shape: Shape) -> Value:
        # How far the target is from the first lane, or -1.
        distance = self.labels[node.name].label - (self.start + index)
        near = distance.below(shape.elements).choose(distance, -1).to("i32")
        numbers = self.lane_numbers.join(
            [self.lane_numbers + k * shape.lanes for k in range(shape.streams)]
        )
        return numbers == near

    def _kept(self, node: int) -> Array:
        return self.code.array(self._buffer(self.slot[node]), "f32")

    def keep(self, slot: int, index: Value, values: Value) -> None:
        self._kept(slot).store(values, index)

    def kept(self, slot: int, index: Value, shape: Shape) -> Value:
        return self._kept(slot).load(index, shape)

    def write(self, result: int, index: Value, values: Value) -> None:
        name = self.written[result]
        self.store(values, self.arrays[name], index, name)

    def reduced(self, vector: Value, join: Callable[[Value, Value], Value]) -> Value:
        return numerics.across(vector, join)

    def any(self, truths: Value) -> Value:
        return truths.reduce("or")

    def put(self, result: int, value: Value) -> None:
        name = self.names.outputs[result]
        kind = self.kinds.of[name]
        if kind == "i32":
            self.code.store(_whole(value), self.place[name], kind)
            return
        number = self.rounded(value.to("f32").splat(1), name).lane(0)
        self.code.store(number.to("f64") if kind == "f64" else number, self.place[name], kind)


def emit_rows(schedule: Schedule, names: Names, kinds: Kinds, slots: Mapping[str, int]) -> Emit:
    """The kernel over rows: pieces of work are some rows each."""

    def emit(code: Code, arguments: Sequence[Value]) -> None:
        block, first, last = arguments
        parameters = ParametersOnce(code, block, slots)
        line = RowLines(code, parameters, schedule, names, kinds)
        passes = Passes(code, schedule)
        tile = parameters["tile"]
        start, stop = first * tile, (last * tile).least(parameters["positions"])
        # Positions are counted along the last axis, since divisions would take as long as a short row.
        last_axis, size = code.variable(parameters.split(start)[-1]), parameters["size2"]
        places = {name: code.variable(parameters.position(name, start)) for name in names.all}
        with code.loop(start, stop) as position:
            line.begin(places)
            passes.over(line)
            last_axis.set(last_axis.get() + 1)
            for name, place in places.items():
                place.set(place.get() + parameters[f"{name}.step2"])
            with code.when(last_axis.get() == size, likely=False):
                last_axis.set(0)
                for name, place in places.items():
                    place.set(parameters.position(name, position + 1))

    return emit


class PositionLines(_Lines):
    """Lines are vectors of positions, class after class."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        code, parameters = self.code, self.parameters
        self.lanes, self.subs = code.lanes, parameters["subs"]
        self.one = Shape(1, self.lanes)
        self.slot, _ = self.schedule.slots()
        self.slot |= {name: place for place, name in enumerate(self.written.values())}
        # Where each lane's position lies, for each operand that has positions, unless all follow from the first.
        self.walked = [name for name, kind in self.names.inputs.items() if kind != "PerClass"]
        self.walked += self.names.outputs
        self.places = {name: code.frame("i64", SUBS * self.lanes) for name in self.walked}
        # Whether no result takes the place of an operand, so that positions may be computed twice.
        self.apart = code.integer(0) == 0
        for name, one in itertools.product(self.full, self.written.values()):
            self.apart = self.apart & (parameters.address(name) != parameters.address(one))

    def stretch(self, first: Value, stop: Value) -> tuple[Value, Value]:
        """The positions from one on that are taken together, and how many: those of one stretch, if that is long enough to fill a vector."""
        size = self.parameters["size2"]
        many = (stop - first).least(self.subs * self.lanes)
        before = first.unsigned_rem(size)
        alone = many.least(size - before)
        missing = self.lanes - alone
        again = (alone < self.lanes) & (before >= missing) & self.apart
        alone, start = again.choose(self.lanes, alone), again.choose(first - missing, first)
        short = size < self.lanes
        return short.choose(first, start), short.choose(many, alone)

    def group(self, first: Value, many: Value) -> None:
        """Have the places of some neighbouring positions, and all that is copied of them at once."""
        code, parameters = self.code, self.parameters
        self.many = many
        size = parameters["size2"]
        self.inside = (size >= self.lanes) | (first.unsigned_rem(size) + many <= size)
        # The last vector of some ends with the last position.
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
        # Of one vector that lies side by side, classes are read by the first pass that wants them, and kept.
        self.direct = {name: self.beside[name] & (self.subs == 1) for name in self.full}
        for name in self.full:
            with code.when(~self.several & ~self.direct[name]):
                self._copy(name, code.integer(0), self.classes)

    def finish(self) -> None:
        """Copy the results of a group that were not written where they belong."""
        for name in self.written.values():
            with self.code.when(~self.several & ~self.beside[name]):
                self._copy(name, self.code.integer(0), self.classes)

    def begin(self, sub: Value) -> None:
        code = self.code
        self.sub = sub
        self.read: set[str] = set()  # by a pass before
        self.first_lane = (sub * self.lanes).least(self.end)
        for name, kind in self.names.inputs.items():
            if kind == "Target":
                labels = code.lanes_of([code.load(place, self.kinds.of[name]) for place in self._lanes(name)])  # fmt: skip
                target = self.targets(name).of(labels)
                # Lanes past the end are those of the last position again.
                self.report(target.stray.reduce("or"))
                self.labels[name] = target

    def _lanes(self, name: str) -> list[Value]:
        beside, origin, size = self.beside[name], self.origin[name], SIZE[self.kinds.of[name]]
        lanes = [self.first_lane + lane for lane in range(self.lanes)]
        return [beside.choose(origin + lane * size, self.places[name].read(lane)) for lane in lanes]

    def _gathered(self, places: list[Value], name: str) -> Value:
        code, kind = self.code, self.kinds.of[name]
        raw = code.lanes_of([code.array(place, kind).read(0) for place in places])
        return self.rounded(numerics.widen(raw, kind), name)

    def number(self, node: Node) -> Value:
        match node.what:
            case "input":
                return self._gathered(self._lanes(node.name), node.name).to("f64")
            case "number":
                return self.parameters.double(node.name)
            case "is_counted" | "is_inside" | "index_of":
                return _of_target(node, self.labels[node.of[0].name])
        row, target = node.of
        label = self.labels[target.name]
        safe, step = label.inside.choose(label.label, 0), self.parameters[f"{row.name}.class_step"]
        places = [place + safe.lane(k) * step for k, place in enumerate(self._lanes(row.name))]
        values = self._gathered(places, row.name)
        return label.inside.choose(values, 0.0).to("f64")

    # Between memory and the frame.

    def _array(self, slot: int, sub: Value) -> Array:
        """A vector of positions, class after class."""
        place = (sub + self.subs * slot) * self._length()
        return self.code.array(self.room + place * 4, "f32")

    def _length(self) -> Value:
        return self.several.choose(self.block, self.classes) * self.lanes

    def _copy(self, name: str, start: Value, count: Value) -> None:
        """Some classes of an operand, into its slot or from there."""
        step = self.parameters[f"{name}.class_step"]
        self.code.call(
            self.parameters[f"{name}.copy"], None, self._array(self.slot[name], self.code.integer(0)), self._length() * 4,
            self.places[name], self.many, start * step, step, count, self.beside[name].to("i64"),
        )  # fmt: skip

    def _used(self) -> Value:
        return (self.many + (self.lanes - 1)).unsigned_div(self.lanes)

    # A line.

    def blocks(self, phases: list[Phase], body: Callable[[Value, Value], None]) -> None:
        code = self.code
        names = [node.name for node in self.schedule.inputs(phases) if node.name in self.full]
        writes = [self.written[number] for phase in phases for number, _ in phase.writes]

        def one(number: Value, start: Value, count: Value) -> None:
            self.start = start
            self.fresh: dict[str, Value] = {}
            self.fetched: dict[str, Phase] = {}
            for name in names:
                with code.when(self.several & ~self.direct[name]):
                    self._copy(name, start, count)
                again = self.several if name in self.read else code.integer(0) == 0
                self.fresh[name] = self.direct[name] & again
            self.read |= {*names}
            body(number, count)
            for name in writes:
                with code.when(self.several & ~self.beside[name]):
                    self._copy(name, start, count)

        self.each_block(one)

    def each(self, count: Value, phase: Phase, body: Callable[..., None], leaves: Callable[..., Any]) -> None:  # fmt: skip
        code, done = self.code, self.code.integer(0)
        # What a phase before has read and kept; a phase may be written twice.
        self.fresh = {name: new for name, new in self.fresh.items() if self.fetched.get(name, phase) is phase}  # fmt: skip
        self.phase = phase
        for many in dict.fromkeys((self.streams, 1)):
            shape = Shape(many, self.lanes)
            done = code.strides(
                done, count, many, functools.partial(_unmasked, body, shape)
            )  # fmt: skip

    def load(self, node: Node, index: Value, shape: Shape) -> Value:
        code = self.code
        if node.kind == "PerClass":
            first = self.parameters.position(node.name, code.integer(0))
            step = self.parameters[f"{node.name}.class_step"]
            kind = self.kinds.of[node.name]
            places = [first + (self.start + index + k) * step for k in range(shape.streams)]
            numbers = [code.load(place, kind).to("f32") for place in places]
            splat = code.joined([number.splat(self.lanes) for number in numbers])
            return self.rounded(splat, node.name)
        array, place = self._array(self.slot[node.name], self.sub), index * self.lanes
        fresh = self.fresh.get(node.name)
        if fresh is None:
            return array.load(place, shape)
        self.fetched[node.name] = self.phase
        values = [
            code.variable(code.constant("f32", 0.0, self.lanes)) for _ in range(shape.streams)
        ]
        with code.either(fresh) as (direct, copied):
            with direct:
                kind, step = self.kinds.of[node.name], self.parameters[f"{node.name}.class_step"]
                first = self.origin[node.name] + self.first_lane * SIZE[kind]
                for k, value in enumerate(values):
                    line = code.array(first + (self.start + index + k) * step, kind)
                    code.prefetch(line.address(self.many))
                    value.set(
                        self.rounded(numerics.load(line, code.integer(0), self.one), node.name)
                    )
                with code.when(self._is_read_again(node)):
                    array.store(code.joined([value.get() for value in values]), place)
            with copied:
                for value, loaded in zip(values, array.load(place, shape).streams(), strict=True):
                    value.set(loaded)
        return code.joined([value.get() for value in values])

    def _is_read_again(self, node: Node) -> Value:
        """Whether a later phase reads what was kept of an operand: of several blocks, one of the same level."""
        behind = self.schedule.phases[self.schedule.place(self.phase) + 1 :]
        levels = [phase.level for phase in behind if node.name in [each.name for each in self.schedule.inputs([phase])]]  # fmt: skip
        if not levels:
            return self.code.integer(0) == 1
        return ~self.several | (self.code.integer(self.phase.level in levels) == 1)

    def is_target(self, node: Node, index: Value, shape: Shape) -> Value:
        label = self.labels[node.name]
        labels = label.inside.choose(label.label, -1).to("i32")
        numbers = [(self.start + index + k).to("i32") for k in range(shape.streams)]
        return labels.join([labels == number for number in numbers])

    def keep(self, slot: int, index: Value, values: Value) -> None:
        self._kept(slot).store(values, index * self.lanes)

    def kept(self, slot: int, index: Value, shape: Shape) -> Value:
        return self._kept(slot).load(index * self.lanes, shape)

    def _kept(self, slot: int) -> Array:
        return self._array(self.slot[slot], self.sub)

    def write(self, result: int, index: Value, values: Value) -> None:
        code, name = self.code, self.written[result]
        kind, step = self.kinds.of[name], self.parameters[f"{name}.class_step"]
        with code.either(self.beside[name]) as (beside, elsewhere):
            with beside:
                place = self.origin[name] + self.first_lane * SIZE[kind]
                for k, vector in enumerate(values.streams()):
                    line = code.array(place + (self.start + index + k) * step, kind)
                    self.store(vector, line, code.integer(0), name)
            with elsewhere:
                self._array(self.slot[name], self.sub).store(values, index * self.lanes)

    def reduced(self, vector: Value, join: Callable[[Value, Value], Value]) -> Value:
        return vector

    def any(self, truths: Value) -> Value:
        return truths

    def put(self, result: int, value: Value) -> None:
        code, name = self.code, self.names.outputs[result]
        kind = self.kinds.of[name]
        if kind == "i32":
            values = _whole(value)
        else:
            values = numerics.narrow(self.rounded(value.to("f32"), name), kind, self.opaque, True)
        for lane, place in enumerate(self._lanes(name)):
            with code.when(self.many > self.first_lane + lane):
                code.array(place, kind).write(0, values.lane(lane))


def _unmasked(body: Callable[..., None], shape: Shape, index: Value) -> None:
    body(shape, index, None, None)


def emit_positions(schedule: Schedule, names: Names, kinds: Kinds, slots: Mapping[str, int]) -> Emit:  # fmt: skip
    """The kernel over vectors of positions: pieces of work are some vectors each."""

    def emit(code: Code, arguments: Sequence[Value]) -> None:
        block, first, last = arguments
        parameters = ParametersOnce(code, block, slots)
        line = PositionLines(code, parameters, schedule, names, kinds)
        passes = Passes(code, schedule)
        tile, positions = parameters["tile"], parameters["positions"]
        with code.loop(first, last) as piece:
            stop = ((piece + 1) * tile).least(positions)
            start = code.variable(piece * tile)
            with code.repeat_while(lambda: start.get() < stop):
                begin, many = line.stretch(start.get(), stop)
                line.group(begin, many)
                with code.loop(0, line._used()) as sub:
                    line.begin(sub)
                    passes.over(line)
                line.finish()
                start.set(begin + many)

    return emit


class RowKernel(ClassKernel):
    """The kernels of a row formula."""

    axes, any_axis, strided, by_strides = IMAGES, True, True, True

    def __init__(self, formula: RowFormula) -> None:
        self.formula = formula
        self.graphs = formula.graph(dict.fromkeys(formula.switches, False))
        results = self.graphs.results
        self.named = Names(formula, len(results))
        self.full = tuple(
            [name for name, kind in formula.operands if kind == "Row"]
            + [name for name, node in zip(self.named.outputs, results, strict=True) if "c" in node.axes]
        )  # fmt: skip
        self.per_class = tuple(name for name, kind in formula.operands if kind == "PerClass")
        self.told = tuple(name for name in formula.targets if name == "first_class")
        items = [f"{name}.item" for name in (*self.full, *self.per_class)]
        items += [f"{name}.copy" for name in self.full]
        slots = fields(
            self.named.all,
            (*items, *formula.numbers, *self.told, "tile", "staged", "block", "blocks", "subs"),
        )
        name = f"rows.{formula.name}.{_digest(self.graphs)}"
        super().__init__(name, slots, {each: each for each in self.named.all})

    def first_slots(self, plan: Plan) -> Sequence[int]:
        return [self.slots[f"{name}.at"] for name in self.named.all]

    def declines(self, plan: Plan) -> str | None:
        kinds = self.named.inputs.values()
        floats = [own.dtype for own, kind in zip(plan.inputs, kinds, strict=True) if kind != "Target"]  # fmt: skip
        # Whole numbers are results of rows alone.
        floats += [own.dtype for own in plan.outputs if (own.dtype, own.role) != (INT32, "positions")]  # fmt: skip
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
        outer = len(plan.shape) - AXES
        if outer <= 0:
            return super().runner(plan)

        def cut(operand: Operand) -> Operand:
            return operand._replace(strides=operand.strides[outer:])

        inner = dataclasses.replace(
            plan, shape=plan.shape[outer:], inputs=tuple(map(cut, plan.inputs)), output=cut(plan.output),
            more=tuple(map(cut, plan.more)),
        )  # fmt: skip
        run = super().runner(inner)
        steps = [
            [step * operand.dtype.itemsize for step in operand.strides[:outer]]
            for operand in plan.operands
        ]

        def run_each(addresses: Sequence[int], stream: int = 0) -> int:
            status = 0
            for moved in outer_places(addresses, plan.shape[:outer], steps):
                status |= run(moved, stream)
            return status

        return run_each

    def free_numbers(self, plan: Plan) -> Sequence[tuple[str, str, float]]:
        return tuple((one.option, "i64" if one.whole else "f64", 1) for one in plan.free)

    def schedule(self, plan: Plan) -> Schedule:
        return _scheduled(self.formula.graph(plan.numbers))

    def numbers(self, plan: Plan) -> Mapping[str, int]:
        items = {
            f"{name}.item": operand.dtype.itemsize
            for name, operand in zip(self.named.all, plan.operands, strict=True)
            if f"{name}.item" in self.slots
        }
        copies = {
            f"{name}.copy": copier(
                operand.dtype.short, name in self.named.inputs, plan.compute.short
            )
            for name, operand in zip(self.named.all, plan.operands, strict=True)
            if name in self.full
        }
        return {
            **items,
            **copies,
            **{name: double(plan.numbers[name]) for name in self.formula.numbers},
            **{name: plan.numbers[name] for name in self.told},
        }

    def cut(self, problem: Problem) -> Launches:
        classes, positions, lanes = problem["classes"], problem["positions"], machine().lanes
        schedule = _scheduled(self.graphs)
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
        saved = len(schedule.saved)
        # Of rows: half of the room that a slot has, so that the last block has at least as many classes.
        slots = where(staged, saved + len(self.full) + len(self.per_class), max(saved, 1))
        half = ROOM // (2 * slots)
        room = ROOM // (lanes * schedule.slots()[1])
        # Few positions are cut into enough pieces for many threads.
        subs = most(least(least(room // classes, SUBS), positions // (lanes * PARTS)), 1)
        blocks = where(by_rows, most(classes // half, 1), ceil_div(classes, room))
        problem.put(
            staged=flag(staged), block=where(by_rows, half, room), blocks=blocks,
            subs=where(by_rows, 1, subs),
        )  # fmt: skip
        width = subs * lanes
        together = most(PIECE // (classes * width), 1) * width
        tile = where(by_rows, most(AT_ONCE // classes, 1), together)
        pieces, grain = cut_tiles(problem, tile, classes)
        return Launches(where(by_rows, 0, 1), pieces, grain)

    def kernels(self, plan: Plan, variant: int) -> Kernels:
        kinds = Kinds(plan, self.named)
        schedule = self.schedule(plan)
        emit = (emit_rows, emit_positions)[variant](schedule, self.named, kinds, self.slots)
        how = ("rows", "positions")[variant]
        name = f"{self.name}.{_digest(schedule.graph)}.{how}.{kinds.text}"
        return Kernels(compiled(name, emit))

    def variants(self) -> Iterator[Plan]:
        results = list(zip(self.named.outputs, self.graphs.results, strict=True))
        numbers = {
            "ignore_index": -100,
            "first_class": 0,
            **dict.fromkeys(self.formula.numbers, 1.0),
        }
        numbers |= dict.fromkeys(self.formula.switches, False)
        kinds = [kind for _, kind in self.formula.operands]
        targets = kinds.index("Target") if "Target" in kinds else -1
        described = list(zip(self.formula.operands, self.formula.roles, strict=True))
        for dtype, classes in itertools.product(FLOATS, (2, 1 << 10)):
            inputs = [(name, INT64 if kind == "Target" else dtype, role) for (name, kind), role in described]  # fmt: skip
            outputs = [(name, dtype, "full" if "c" in node.axes else "positions") for name, node in results]  # fmt: skip
            plan = example(self.formula.name, dtype, classes, inputs, outputs)
            yield dataclasses.replace(plan, numbers=numbers, targets=targets)


@functools.cache
def _scheduled(graph: Graph) -> Schedule:
    return Schedule(graph)


def _digest(graph: Graph) -> str:
    """Tells graphs apart."""
    text = repr([(node.what, [one.index for one in node.of], node.name) for node in graph.nodes])
    return f"{zlib.crc32((text + repr([node.index for node in graph.results])).encode()):x}"
