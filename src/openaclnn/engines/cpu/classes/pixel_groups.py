"""Pixels whose classes lie planes apart, a group of neighbours at a time: vectors run across pixels, loops over classes.

Planes are often a power of two apart, where caches hold but few of their lines at once. So a group's logits are read once,
into a buffer of their own, FLOAT; and so are pixels that lie apart and those at a stretch's end, which are less than a group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from openaclnn.engines.cpu.arithmetic import numerics
from openaclnn.engines.cpu.classes.parameters import Parameters, Targets
from openaclnn.engines.cpu.layouts.tiles import transposed
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.host import LINE, machine
from openaclnn.engines.machine.kinds import SIZE
from openaclnn.engines.machine.numbers import Number, most
from openaclnn.engines.machine.values import Shape, Value

__all__ = ["Chunk", "Group", "Groups", "Pixels", "unit_of"]

CHUNK = 160  # classes that are read at once: 40 KB of 64 pixels
PIECE = 1 << 16  # elements of one piece of work
WIDEST = 64  # pixels of a group, at the most


def unit_of(classes: Number) -> Number:
    """Pixels of one piece of work."""
    return most(PIECE // classes & -WIDEST, WIDEST)


class Group(NamedTuple):
    """Some neighbouring pixels: where each operand has the first of them, how many they are, and whether they are a whole
    group that lies side by side."""

    places: dict[str, Value]
    many: Value
    here: Value


class Chunk(NamedTuple):
    """Some classes of a group: the first one, and their number."""

    start: Value
    many: Value


class Pixels(NamedTuple):
    """A vector of pixels: their targets, which of them count, the logits of their classes and the weights of those, FLOAT64."""

    labels: Value
    counted: Value
    logit: Value
    weight: Value


class Groups:
    """The groups of a stretch of pixels; `operands` are those that it gives addresses of."""

    def __init__(
        self, code: Code, parameters: Parameters, dtype: str, target: str, operands: tuple[str, ...]
    ) -> None:
        self.code, self.parameters, self.dtype, self.operands = code, parameters, dtype, operands
        self.shape = Shape(4 if machine().registers >= 32 else 2, code.lanes)
        self.width, self.size = self.shape.elements, SIZE[dtype]
        self.targets = Targets(code, parameters, target)
        self.steps = {name: parameters[f"{name}.step2"] for name in operands}
        self.class_step = parameters["input.class_step"]
        self.weighted = parameters.flag("weighted")
        self.labels = code.frame(target, self.width)
        self.logits = code.frame("f32", CHUNK * self.width)
        code.clear(self.logits.address(), self.targets.classes.least(CHUNK) * (self.width * 4))
        self.turned = _Turned(code, dtype, self.logits, self.width)

    def of(self, addresses: list[Value], count: Value, body: Callable[[Group], None]) -> None:
        """`body` for each group of a stretch."""
        code, dense = self.code, self.parameters["staged"] == 0
        with code.loop(0, count, self.width) as start:
            many = (count - start).least(self.width)
            places = {
                name: address + start * step
                for (name, step), address in zip(self.steps.items(), addresses, strict=True)
            }
            body(Group(places, many, dense & (many == self.width)))

    def chunks(self, body: Callable[[Chunk], None]) -> None:
        classes = self.targets.classes
        with self.code.loop(0, classes, CHUNK) as start:
            body(Chunk(start, (classes - start).least(CHUNK)))

    def read(self, group: Group, chunk: Chunk, note: Callable[[Value], None] | None = None) -> None:
        """A chunk's logits into the buffer; each vector is noted."""
        code, zero = self.code, self.code.integer(0)
        first = group.places["input"] + chunk.start * self.class_step
        with code.either(group.here) as (here, apart):
            with here, code.loop(0, chunk.many) as label:
                plane = code.array(first + label * self.class_step, self.dtype)
                values = numerics.load(plane, zero, self.shape)
                self.logits.store(values, label * self.width)
                if note is not None:
                    note(values)
            with apart:
                with code.either(self.are_rows(group, chunk, self.class_step)) as (rows, others):
                    with rows:
                        self.turned.read(first, self.steps["input"], chunk.many)
                    with others:
                        self._gather(group, chunk, first)
                if note is not None:
                    with code.loop(0, chunk.many) as label:
                        note(self.plane(label))

    def are_rows(self, group: Group, chunk: Chunk, class_step: Value) -> Value:
        """Whether a group is whole and an operand has its classes side by side, enough for a vector of them."""
        beside = ~group.here & (class_step == self.size) & (group.many == self.width)
        return beside & (chunk.many >= self.code.lanes)

    def _gather(self, group: Group, chunk: Chunk, first: Value) -> None:
        """A chunk's logits, each by itself."""
        code = self.code
        with code.loop(0, chunk.many) as label, code.loop(0, group.many) as lane:
            place = first + label * self.class_step + lane * self.steps["input"]
            self.logits.write(label * self.width + lane, code.load(place, self.dtype))

    def ahead(self, place: Value, written: bool = False) -> None:
        """Ask for the next group's pixels of a plane: memory would rest while powers are computed."""
        for line in range(0, self.width * self.size, LINE):
            self.code.prefetch(place + (self.width * self.size + line), written)

    def plane(self, label: Value) -> Value:
        """The logits of a chunk's class."""
        return self.logits.load(label * self.width, self.shape)

    def pixels(self, group: Group, index: Value) -> Pixels:
        """A vector of a group's pixels; their logits are in the buffer if all classes go there at once."""
        code, lanes = self.code, self.code.lanes
        shape, places = Shape(1, lanes), [index + lane for lane in range(lanes)]
        labels = self.fetch(group, "target", self.labels).load(index, shape).to("i64")
        target = self.targets.of(labels)
        inside = code.lanes_of(places) < group.many
        with code.when((target.stray & inside).reduce("or"), likely=False):
            self.parameters.report_stray()
        counted = target.counted & inside
        safe = counted.choose(labels, 0)
        chosen = [safe.lane(lane) for lane in range(lanes)]
        logit = code.variable(code.constant("f32", 0.0, lanes))
        with code.either(self.targets.classes <= CHUNK) as (buffered, outside):
            with buffered:
                pairs = zip(chosen, places, strict=True)
                logit.set(code.gathered(self.logits, [one * self.width + at for one, at in pairs]))
            with outside:
                last, x = group.many - 1, group.places["input"]
                pairs = zip(chosen, places, strict=True)
                logit.set(self._read(
                    [x + at.least(last) * self.steps["input"] + one * self.class_step for one, at in pairs],
                    self.dtype,
                ))  # fmt: skip
        weight = code.variable(code.constant("f32", 1.0, lanes))
        with code.when(self.weighted):
            first, step = self.parameters.address("weight"), self.parameters["weight.class_step"]
            weight.set(self._read([first + one * step for one in chosen], "f32"))
        return Pixels(labels, counted, logit.get().to("f64"), weight.get().to("f64"))

    def _read(self, places: list[Value], kind: str) -> Value:
        """Elements that lie anywhere, as FLOAT."""
        code = self.code
        raw = code.lanes_of([code.array(place, kind).read(0) for place in places])
        return numerics.widen(raw, kind)

    def factor(self, chunk: Chunk, label: Value) -> Value:
        """The weight of a chunk's class."""
        code, weight = self.code, self.code.variable(self.code.single(1.0))
        with code.when(self.weighted):
            place = (chunk.start + label) * self.parameters["weight.class_step"]
            weight.set(code.load(self.parameters.address("weight") + place, "f32"))
        return weight.get()

    def beside(self, group: Group, operand: str, frame: Array) -> Array:
        """An operand of pixels, or a frame in its place."""
        return self.code.array(
            group.here.choose(group.places[operand], frame.address()), frame.kind
        )

    def fetch(self, group: Group, operand: str, frame: Array) -> Array:
        """The same with the operand's numbers in the frame."""
        code = self.code
        with code.when(~group.here, likely=False):
            step, item = self.steps[operand], code.integer(frame.align)
            place = group.places[operand]
            code.copy(place, step, frame.address(), item, group.many, frame.kind)
        return self.beside(group, operand, frame)

    def put_back(self, group: Group, operand: str, frame: Array) -> None:
        """What was written to the frame in an operand's place."""
        code = self.code
        with code.when(~group.here, likely=False):
            step, item = self.steps[operand], code.integer(frame.align)
            place = group.places[operand]
            code.copy(frame.address(), item, place, step, group.many, frame.kind)


class _Turned:
    """Between rows in memory, whose classes lie side by side, and planes of so many FLOATs one after another.

    Squares of as many rows as classes are turned in registers, where single elements would take longer than what is computed of
    them (a loss of 100 classes FLOAT16: 280 ns a row, turned 85).
    """

    def __init__(self, code: Code, dtype: str, planes: Array, width: int) -> None:
        self.code, self.dtype, self.planes, self.width = code, dtype, planes, width

    def read(self, place: Value, step: Value, classes: Value) -> None:
        """Rows `step` bytes apart, from a place on; at least one vector of classes."""

        def square(row: Value, label: Value) -> None:
            lines = [self._line(place, step, row + lane, label) for lane in range(self.code.lanes)]
            rows = [numerics.load(line, self.code.integer(0), self._shape) for line in lines]
            for lane, plane in enumerate(transposed(rows)):
                self.planes.store(plane, self._at(row, label + lane))

        self._squares(classes, square)

    def write(self, place: Value, step: Value, classes: Value, opaque: numerics.Opaque) -> None:
        """The planes as rows."""

        def square(row: Value, label: Value) -> None:
            planes = [
                self.planes.load(self._at(row, label + lane), self._shape)
                for lane in range(self.code.lanes)
            ]
            for lane, values in enumerate(transposed(planes)):
                line = self._line(place, step, row + lane, label)
                numerics.store(values, line, self.code.integer(0), opaque, any_nan=True)

        self._squares(classes, square)

    @property
    def _shape(self) -> Shape:
        return Shape(1, self.code.lanes)

    def _at(self, row: Value, label: Value) -> Value:
        return label * self.width + row

    def _line(self, place: Value, step: Value, row: Value, label: Value) -> Array:
        return self.code.array(place + row * step + label * SIZE[self.dtype], self.dtype)

    def _squares(self, classes: Value, body: Callable[[Value, Value], None]) -> None:
        """The last one ends with the classes, and begins among those of the one before."""
        code, lanes = self.code, self.code.lanes
        last = classes - lanes
        rows = code.integer(self.width)
        with code.loop(0, rows, lanes) as row, code.loop(0, classes, lanes) as start:
            body(row, start.least(last))
