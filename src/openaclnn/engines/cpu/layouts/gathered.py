"""A flat kernel on few elements of any strides, told at the call: gathered, computed, scattered.

`tiles` chooses the best geometry for a plan and takes its time for it. Here sizes and strides are arguments, and
elements are walked as they come. Where those of all operands lie side by side along the last axis, that is as fast as the best geometry: a kernel runs over rows of `LONG` elements
where they are, and shorter ones are moved in 0.4 to 0.7 of its time. Elsewhere it takes one to three times as long up to `MOST` elements, and less than choosing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from openaclnn.engines.cpu.launching.control import FIRST_ARGUMENT, MAX_ARGUMENTS, STATUS
from openaclnn.engines.machine import cache
from openaclnn.engines.machine.callers import CallWords
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.kinds import SIZE
from openaclnn.engines.machine.values import Value

MOST = 1 << 15  # elements
TILE = 1024  # of them at a time
MAX_AXES, MAX_OPERANDS = 8, 12

LONG = 16  # elements of a row that need not be gathered

# The geometry: the kernel, how many constants and operands it takes and how many of these are outputs, the axes' sizes, each operand's itemsize, and its
# steps in bytes along the axes.
KERNEL, CONSTANTS, OPERANDS, OUTPUTS, AXES, SIZES = range(6)
ITEMS = SIZES + MAX_AXES
STEPS = ITEMS + MAX_OPERANDS
GEOMETRY_SLOTS = STEPS + MAX_OPERANDS * MAX_AXES


def write_geometry(geometry: Array, call: CallWords, kernel: Value, outputs: Value, items: Array) -> None:  # fmt: skip
    """That of a call which is told sizes and strides."""
    for slot, word in (
        (KERNEL, kernel), (CONSTANTS, call.number_count), (OPERANDS, call.operands), (OUTPUTS, outputs), (AXES, call.axes),
    ):  # fmt: skip
        geometry.write(slot, word)
    with call.code.loop(0, call.axes) as axis:
        geometry.at(SIZES).write(axis, call.shape.read(axis))
    with call.code.loop(0, call.operands) as operand:
        item, steps = items.read(operand), geometry.at(operand * MAX_AXES + STEPS)
        geometry.at(ITEMS).write(operand, item)
        with call.code.loop(0, call.axes) as axis:
            steps.write(axis, call.strides.read(operand * call.axes + axis) * item)


@functools.cache
def gathering() -> int:
    """The kernel over elements of any strides; its arguments are the geometry's address, the constants, the operands."""
    return cache.compiled("gathered", _emit)


def _emit(code: Code, arguments: Sequence[Value]) -> None:
    passed, start, stop = arguments
    one = Gathered(code, code.slots(passed).at(FIRST_ARGUMENT))
    with code.either(one.has_long_rows()) as (long, short):
        with long:
            one.rows(start, stop)
        with short:
            one.tiles(start, stop)


class Gathered:
    """The kernel being written; some of its constants may come before the flat kernel's own."""

    def __init__(self, code: Code, passed: Array, before: int = 0) -> None:
        self.code = code
        self.geometry = code.slots(passed.read(0))
        self.kernel, constants, self.operands, outputs, self.axes = (
            self.geometry.read(where) for where in (KERNEL, CONSTANTS, OPERANDS, OUTPUTS, AXES)
        )
        self.sizes, self.items = self.geometry.at(SIZES), self.geometry.at(ITEMS)
        self.output = self.operands - outputs  # the first
        self.bases = passed.at(constants + 1)
        self.buffers = code.buffer("i32", TILE * MAX_OPERANDS)
        self.places = code.frame("i64", MAX_AXES)  # a walk's place along each axis
        self.in_a_row = code.frame("i64", MAX_OPERANDS)  # whether elements lie side by side
        with code.loop(0, self.operands) as operand:
            self.in_a_row.write(operand, self.lies_in_a_row(operand))
        self.block = code.frame("i64", FIRST_ARGUMENT + MAX_ARGUMENTS)
        self.block.write(STATUS, 0)
        first = self.block.at(FIRST_ARGUMENT)
        with code.loop(0, constants - before) as index:
            first.write(index, passed.read(index + (1 + before)))
        self.taken = first.at(constants - before)

    def has_long_rows(self) -> Value:
        """Whether the elements of each operand lie side by side along the last axis, many of them."""
        code, last = self.code, self.axes - 1
        answer = code.variable(self.sizes.read(last) >= LONG)
        with code.loop(0, self.operands) as operand:
            beside = self.steps(operand).read(last) == self.items.read(operand)
            answer.set(answer.get() & beside)
        return answer.get()

    def rows(self, start: Value, stop: Value) -> None:
        """Elements where they are, row after row."""
        code, places, last = self.code, self.places, self.axes - 1
        first, size = code.variable(start), self.sizes.read(last)
        with code.loop(0, self.operands) as operand:
            here = self.enter(self.steps(operand), start)
            self.taken.write(operand, self.bases.read(operand) + here)
        with code.repeat_while(lambda: first.get() < stop):
            rest = stop - first.get()
            with code.either(self.has_whole_rows(rest)) as (whole, part):
                with whole:
                    before, many = last - 1, self.whole_rows(rest)
                    with code.loop(0, many):
                        code.call(self.kernel, None, self.block, 0, size)
                        self.go_on(lambda steps: steps.read(before))
                    first.set(first.get() + many * size)
                    places.write(before, places.read(before) + many)
                    with self.carry(before) as axis:
                        self.go_on(lambda steps: self.to_next(steps, axis))
                with part:
                    run = (size - places.read(last)).least(rest)
                    code.call(self.kernel, None, self.block, 0, run)
                    self.go_on(lambda steps: steps.read(last) * run)
                    first.set(first.get() + run)
                    places.write(last, places.read(last) + run)
                    with self.carry(last) as axis:
                        self.go_on(lambda steps: self.to_next(steps, axis))

    def go_on(self, distance: Callable[[Array], Value]) -> None:
        """Move every operand by what follows from its steps."""
        with self.code.loop(0, self.operands) as operand:
            there = self.taken.read(operand) + distance(self.steps(operand))
            self.taken.write(operand, there)

    def has_whole_rows(self, rest: Value) -> Value:
        """Whether a walk is at the beginning of a row, with so many elements to go that others follow it."""
        last = self.axes - 1
        return (last > 0) & (self.places.read(last) == 0) & (rest >= self.sizes.read(last))

    def whole_rows(self, rest: Value) -> Value:
        """How many there are along the axis before."""
        before = self.axes - 2
        left = self.sizes.read(before) - self.places.read(before)
        return rest.unsigned_div(self.sizes.read(before + 1)).least(left)

    def tiles(self, start: Value, stop: Value) -> None:
        first = self.code.variable(start)
        with self.code.repeat_while(lambda: first.get() < stop):
            self.tile(first.get(), (stop - first.get()).least(TILE))
            first.set(first.get() + TILE)

    def tile(self, start: Value, count: Value) -> None:
        code = self.code
        with code.loop(0, self.output) as operand:
            with code.when(~self.in_place(operand)):
                self.walk(operand, start, count, out=False)
            self.take(operand, start)
        self.take_outputs(start)
        code.call(self.kernel, None, self.block, 0, count)
        self.put_outputs(start, count)

    def take(self, operand: Value, start: Value) -> None:
        """Where the kernel finds an operand's elements from one on, or leaves them."""
        here = self.bases.read(operand) + start * self.items.read(operand)
        self.taken.write(operand, self.in_place(operand).choose(here, self.buffer(operand)))

    def take_outputs(self, start: Value) -> None:
        with self.code.loop(self.output, self.operands) as operand:
            self.take(operand, start)

    def put_outputs(self, start: Value, count: Value) -> None:
        with (
            self.code.loop(self.output, self.operands) as operand,
            self.code.when(~self.in_place(operand)),
        ):
            self.walk(operand, start, count, out=True)

    def steps(self, operand: Value) -> Array:
        return self.geometry.at(operand * MAX_AXES + STEPS)

    def lies_in_a_row(self, operand: Value) -> Value:
        """Whether the operand's elements lie side by side, in the order of a walk."""
        code, steps = self.code, self.steps(operand)
        answer, step = code.variable(1), code.variable(self.items.read(operand))
        with code.loop(0, self.axes) as behind:
            axis = self.axes - 1 - behind
            answer.set(answer.get() & (steps.read(axis) == step.get()).to("i64"))
            step.set(step.get() * self.sizes.read(axis))
        return answer.get()

    def in_place(self, operand: Value) -> Value:
        """Whether the kernel takes the operand's elements where they are."""
        return self.in_a_row.flag(operand)

    def buffer(self, operand: Value) -> Value:
        return self.buffers + operand * (TILE * 4)

    def walk(self, operand: Value, start: Value, count: Value, out: bool) -> None:
        """Between an operand's buffer and its elements, from one on: whole rows that are short, or what is left of one."""
        code, steps, last = self.code, self.steps(operand), self.axes - 1
        item, size = self.items.read(operand), self.sizes.read(last)
        place, done = (code.variable(0) for _ in range(2))
        place.set(self.bases.read(operand) + self.enter(steps, start))
        with code.repeat_while(lambda: done.get() < count):
            near, far, rest = self.buffer(operand) + done.get() * item, place.get(), count - done.get()  # fmt: skip
            with code.either((size < LONG) & self.has_whole_rows(rest)) as (rows, row):
                with rows:
                    before, many = last - 1, self.whole_rows(rest)
                    for width, kind in ((2, "i16"), (4, "i32")):
                        with code.when(item == width):
                            self.move_rows(near, far, (many, size), (steps.read(before), steps.read(last)), kind, out)  # fmt: skip
                    done.set(done.get() + many * size)
                    place.set(place.get() + many * steps.read(before))
                    self.places.write(before, self.places.read(before) + many)
                    with self.carry(before) as axis:
                        place.set(place.get() + self.to_next(steps, axis))
                with row:
                    run = (size - self.places.read(last)).least(rest)
                    with code.either(steps.read(last) == item) as (in_a_row, apart):
                        with in_a_row:
                            code.move(*((near, far) if out else (far, near)), run * item)
                        with apart:
                            for width, kind in ((2, "i16"), (4, "i32")):
                                with code.when(item == width):
                                    self.move_apart(near, (far, steps.read(last)), run, kind, out)
                    done.set(done.get() + run)
                    place.set(place.get() + run * steps.read(last))
                    self.places.write(last, self.places.read(last) + run)
                    with self.carry(last) as axis:
                        place.set(place.get() + self.to_next(steps, axis))

    def move_rows(
        self, near: Value, far: Value, counts: tuple[Value, Value], steps: tuple[Value, Value], kind: str, out: bool
    ) -> None:  # fmt: skip
        """Between elements side by side and rows of few, at a step from row to row and from element to element."""
        code, (rows, columns), (row_step, step) = self.code, counts, steps
        with code.loop(0, rows) as row, code.loop(0, columns) as column:
            here = code.array(near + (row * columns + column) * SIZE[kind], kind)
            there = code.array(far + row * row_step + column * step, kind)
            source, target = (here, there) if out else (there, here)
            target.write(0, source.read(0))

    def to_next(self, steps: Array, axis: Value) -> Value:
        """From beyond the end of an axis to the next place along the one before."""
        return steps.read(axis - 1) - self.sizes.read(axis) * steps.read(axis)

    def move_apart(
        self, near: Value, far: tuple[Value, Value], run: Value, kind: str, out: bool
    ) -> None:
        """Between elements side by side and those at a step, or one for all of a run."""
        code, aside = self.code, (near, self.code.integer(SIZE[kind]))
        if out:
            code.copy(*aside, *far, run, kind)
            return
        with code.either(far[1] == 0) as (one, many):
            with one:
                code.repeat(far[0], near, run, kind)
            with many:
                code.copy(*far, *aside, run, kind)

    def enter(self, steps: Array, start: Value) -> Value:
        """A walk's first place, and how far that is from the operand's start."""
        code = self.code
        left, distance = code.variable(start), code.variable(0)
        with code.loop(0, self.axes) as behind:
            axis = self.axes - 1 - behind
            size = self.sizes.read(axis)
            place = left.get().unsigned_rem(size)
            self.places.write(axis, place)
            distance.set(distance.get() + place * steps.read(axis))
            left.set(left.get().unsigned_div(size))
        return distance.get()

    @contextmanager
    def carry(self, first: Value) -> Iterator[Value]:
        """For each axis that a walk came to the end of, from one on: on to the next along the one before."""
        code, places = self.code, self.places
        axis = code.variable(first)

        def ended() -> Value:
            current = axis.get()
            return (current > 0) & (places.read(current) == self.sizes.read(current))

        with code.repeat_while(ended):
            current = axis.get()
            places.write(current, 0)
            places.write(current - 1, places.read(current - 1) + 1)
            yield current
            axis.set(current - 1)
