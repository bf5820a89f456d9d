"""The machine code of `fitted.py`: reads sizes, numbers and addresses, writes what they decide, calls the CUDA driver.

A fit for each access pattern says how launches follow from sizes; whatever it does not serve, Python does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

from openaclnn.engines.gpu.launching.native_code import (
    CONFIG_SLOTS,
    CONFIG_STREAM,
    MAX_POINTERS,
    Entry,
    Memory,
)
from openaclnn.engines.machine.builtins import integer_of
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.objects import FLOAT_VALUE, OBJECT_TYPE, TUPLE_ITEMS, TUPLE_LENGTH
from openaclnn.engines.machine.values import Value

# The control block, one int64 a slot: functions and objects by address, then what a plan decides.
(
    LAUNCH, SAVE, RESTORE, VECTORCALL, FROM_INT64, ERROR, CLEAR, DECREF, TUPLE, FLOAT, INTEGER, FALLBACK,
    ALLOCATE, RELEASE, ADDRESSES, SUMMED, NUMBERS, WHOLE,
) = range(18)  # fmt: skip
OWN_NUMBERS, MAX_NUMBERS = 18, 4  # integers where WHOLE has a bit, else float64 by their bits
FACTS, MAX_FACTS = 22, 16  # what a fit asks for
HEADER = FACTS + MAX_FACTS

# Of each launch: which addresses it takes and how they must be aligned, its numbers, and the kernels it chooses from: by
# their place, or, of those ENTERED one after the other, by a key.
POINTERS, VALUES, ENTERED, PLACES = range(4)
MASKS, TEMPLATE = PLACES + MAX_POINTERS, PLACES + 2 * MAX_POINTERS
MAX_VALUES, MAX_WAYS, MAX_HIDDEN = 48, 55, 4
MAX_SCRATCH = 4  # addresses behind those of a call
WAYS = TEMPLATE + MAX_VALUES
FUNCTION, KEY, CONFIG = range(3)  # FUNCTION: 0 until it is compiled
WAY_SLOTS = CONFIG + CONFIG_SLOTS
STEP_SLOTS = WAYS + MAX_WAYS * WAY_SLOTS
# A kernel; the sums it needs; of many parts, what finishes them; what does all of that at once; and another kernel in the first
# one's place.
MAIN, SUMS, FINISH, AT_ONCE, OTHER, STEPS = range(6)
FORMS = HEADER + STEPS * STEP_SLOTS  # what more a fit has

_ONE_ROW = 1 << 32  # of a grid, whose second number is in the upper half
_EXACT = 1 << 53  # integers up to it are floats


# What a call has of each launch: the kernel's place, its key, programs, then pointers, numbers and hidden parameters.
WAY_AT, KEY_AT, PROGRAMS_AT, VALUES_AT = range(4)
MAX_PARAMETERS = MAX_POINTERS + MAX_VALUES + MAX_HIDDEN
CALL_SLOTS = VALUES_AT + MAX_PARAMETERS


class Cell:
    """One number of a frame."""

    def __init__(self, frame: Array, place: int) -> None:
        self.frame, self.place = frame, place

    def get(self) -> Value:
        return self.frame.read(self.place)

    def set(self, value: Value | int) -> None:
        self.frame.write(self.place, value)


class Step:
    """A launch being written: fits put numbers in, and say which kernel and how many programs."""

    def __init__(self, code: Code, control: Array, frame: Array, index: Value | int) -> None:
        self.code, self.block = code, control.at(index * STEP_SLOTS + HEADER)
        own = frame.at(index * CALL_SLOTS)
        self.way, self.key, self.programs = (
            Cell(own, place) for place in (WAY_AT, KEY_AT, PROGRAMS_AT)
        )
        self.values = own.at(VALUES_AT)
        self.pointers, self.count = self.block.read(POINTERS), self.block.read(VALUES)
        self.numbers = self.values.at(self.pointers)

    def begin(self) -> None:
        """The numbers that no size decides."""
        with self.code.loop(0, self.count) as index:
            self.numbers.write(index, self.block.at(TEMPLATE).read(index))
        for hidden in range(MAX_HIDDEN):
            self.numbers.write(self.count + hidden, 0)

    def put(self, names: Sequence[str], numbers: Mapping[str, Value]) -> None:
        """Write numbers, each by the name that the kernel has for it; `names` are those of all, in order."""
        for name, number in numbers.items():
            self.numbers.write(names.index(name), number)

    def search(self) -> None:
        """The way that has the key."""
        with self.code.loop(0, self.block.read(ENTERED)) as index:
            own = self.block.at(index * WAY_SLOTS + WAYS)
            with self.code.when(own.read(KEY) == self.key.get()):
                self.way.set(index)

    def chosen(self) -> Array:
        """The kernel that launches."""
        return self.block.at(self.way.get() * WAY_SLOTS + WAYS)

    def point(self, addresses: Array) -> Value:
        """Pointers in their places; a bit for each that is off a vector's bounds."""
        astray = self.code.variable(self.code.integer(0))
        with self.code.loop(0, self.pointers) as index:
            address = addresses.read(self.block.at(PLACES).read(index))
            self.values.write(index, address)
            off = ((address & self.block.at(MASKS).read(index)) != 0).to("i64")
            astray.set(astray.get() | off << index)
        return astray.get()

    def start(self, control: Array, stream: Value) -> Value:
        """The driver's code as an int64."""
        code, chosen = self.code, self.chosen()
        config = code.frame("i64", CONFIG_SLOTS)
        places = code.frame("i64", MAX_PARAMETERS)
        for slot in range(CONFIG_SLOTS):
            config.write(slot, chosen.read(CONFIG + slot))
        config.write(0, self.programs.get() + _ONE_ROW)
        config.write(CONFIG_STREAM, stream)
        with code.loop(0, self.pointers + self.count + MAX_HIDDEN) as index:
            places.write(index, self.values.address(index))
        function = chosen.read(FUNCTION)
        return control.call(LAUNCH, "i32", config, function, places, 0).unsigned("i64")


class Fit(Entry):
    """The builtin `run(addresses, stream, shape, numbers)` being written; subclasses have `fit`."""

    name = ""
    axes = 0  # of the shape; 0: any
    more: tuple[str, ...] = ("numbers",)  # what it takes after the shape
    memory = Memory(FROM_INT64, VECTORCALL, DECREF, ALLOCATE, RELEASE)

    def __init__(self, code: Code, control: Array) -> None:
        super().__init__(code, control)
        self.frame = code.frame("i64", STEPS * CALL_SLOTS)
        steps = [self.step(index) for index in range(STEPS)]
        self.main, self.sums, self.finish, self.at_once, self.other = steps
        for step in steps:
            step.way.set(0)
            step.key.set(0)
        self.summed = code.variable(control.read(SUMMED))
        # Not 0: the sums are finished by a launch, and lie so many bytes behind their parts; the other kernel launches.
        self.finished, self.replaced = (code.variable(code.integer(0)) for _ in range(2))
        self.addresses = code.frame("i64", MAX_POINTERS + MAX_SCRATCH)
        self.numbers = code.frame("i64", MAX_NUMBERS)
        self.scratch = code.variable(code.integer(0))  # bytes

    def fit(self, shape: Array, axes: Value) -> None:
        """Ways, programs and numbers of all steps, from the sizes as Python has them."""
        raise NotImplementedError

    def write(self, given: Array, number: Value) -> None:
        code, control = self.code, self.control
        # Whoever calls differently from a runner's protocol meets the fallback.
        self.expect(number == 3 + len(self.more))
        with self.when_fit():
            places = 0, 2, *range(3, 3 + len(self.more))
            addresses, shape, *others = (code.slots(given.read(index)) for index in places)
            for one in (addresses, shape, *others):
                self.expect(one.read(OBJECT_TYPE) == control.read(TUPLE))
            with self.when_fit():
                axes, count = shape.read(TUPLE_LENGTH), control.read(ADDRESSES)
                self.expect(addresses.read(TUPLE_LENGTH) == count)
                if self.axes:
                    self.expect(axes == self.axes)
                for name, one in zip(self.more, others, strict=True):
                    with self.when_fit():
                        getattr(self, f"take_{name}")(one, axes)
                with self.when_fit():
                    with code.loop(0, count) as index:
                        item = addresses.read(index + TUPLE_ITEMS)
                        self.addresses.write(index, integer_of(code, item))
                    self.fit_all(shape.at(TUPLE_ITEMS), axes)
        with self.when_fit():
            self.run(given.read(1))
        code.leave(control.call(VECTORCALL, "i64", control.read(FALLBACK), given, number, 0))

    def fit_all(self, shape: Array, axes: Value) -> None:
        """The kernels that launch, if all are there."""
        self.fit(shape, axes)
        with self.when_fit(), self.each_step() as step:
            self.align(step, step.point(self.addresses))
            step.search()
            chosen = step.chosen()
            self.expect(self.code.read_shared(chosen, FUNCTION) != 0)
            self.expect(chosen.read(KEY) == step.key.get())

    def align(self, step: Step, astray: Value) -> None:
        """What becomes of a launch with addresses off a vector's bounds, which have a bit each."""
        self.mark(astray)

    def when_summed(self) -> AbstractContextManager[None]:
        return self.code.when(self.summed.get() != 0)

    def step(self, index: Value | int) -> Step:
        return Step(self.code, self.control, self.frame, index)

    @contextmanager
    def each_step(self) -> Iterator[Step]:
        """Those that a call has, in order."""
        code, wanted = self.code, self.code.frame("i64", STEPS)
        has = self.wanted()
        for place in range(STEPS):
            wanted.write(place, has.get(place, 0))
        with code.loop(SUMS, code.integer(SUMS + STEPS)) as turn:
            index = (turn < STEPS).choose(turn, MAIN)  # the first comes last
            with code.when(wanted.read(index) != 0):
                yield self.step(index)

    def wanted(self) -> dict[int, Value]:
        """Which steps a call has: not 0."""
        replaced = self.replaced.get() != 0
        return {
            SUMS: self.summed.get(), FINISH: self.finished.get(), OTHER: replaced.to("i64"),
            MAIN: (~replaced).to("i64"),
        }  # fmt: skip

    def fact(self, index: int) -> Value:
        return self.control.read(FACTS + index)

    def size(self, shape: Array, axis: Value | int) -> Value:
        return integer_of(self.code, shape.read(axis))

    def take_numbers(self, given: Array, axes: Value) -> None:
        """The call's numbers; without any, the plan's own."""
        code, control = self.code, self.control
        count, own = given.read(TUPLE_LENGTH), control.read(NUMBERS)
        self.expect((count == 0) | (count == own))
        for place in range(MAX_NUMBERS):
            self.numbers.write(place, control.read(OWN_NUMBERS + place))
        with self.when_fit(), code.loop(0, count) as index:
            item = given.read(index + TUPLE_ITEMS)
            kind = code.slots(item).read(OBJECT_TYPE)
            whole = control.read(WHOLE).bit(index)
            with code.either(kind == control.read(FLOAT)) as (floating, other):
                with floating:
                    self.expect(~whole)
                    self.numbers.write(index, code.slots(item).read(FLOAT_VALUE))
                with other:
                    self.expect(kind == control.read(INTEGER))
                    with self.when_fit():
                        value = integer_of(code, item)
                        with code.when(value == -1):  # or too large for 64 bits
                            self.expect(control.call(ERROR, "i64") == 0)
                            control.call(CLEAR, None)
                        self.expect(whole | (abs(value) <= _EXACT))
                        bits = value.to("f64").bits_as("i64")
                        self.numbers.write(index, whole.choose(value, bits))

    def single(self, index: int) -> Value:
        """A number as FLOAT."""
        return self.numbers.read(index).bits_as("f64").to("f32")

    def share_out(self, memory: Value, addresses: Array) -> None:
        """Where in scratch memory launches find what others leave."""
        addresses.write(0, memory)
        addresses.write(1, memory + self.finished.get())

    def start(self, queue: Value) -> None:
        """All launches, as long as none fails."""
        with self.each_step() as step, self.when_fit():
            self.mark(step.start(self.control, queue))

    def run(self, stream: Value) -> None:
        """All launches on a stream that is a Python integer."""
        self.queue_all(integer_of(self.code, stream), stream)
        with self.when_fit():
            self.code.leave(self.control.call(FROM_INT64, "i64", 0))

    def queue_all(self, queue: Value, stream: Value) -> None:
        """All launches; sums first, in scratch memory that is given back as soon as they are queued. `stream` is the queue as a Python integer,
        where there are sums."""
        code, control = self.code, self.control
        memory = code.variable(code.integer(0))
        with self.when_summed():
            memory.set(self.take_memory(self.scratch.get(), stream))
            own = self.addresses.at(control.read(ADDRESSES))
            self.share_out(integer_of(code, memory.get()), own)
            with self.each_step() as step:
                step.point(self.addresses)
        # A full queue makes the driver wait, perhaps for a host function that needs the interpreter.
        saved = control.call(SAVE, "i64")
        self.start(queue)
        control.call(RESTORE, None, saved)
        with code.when(memory.get() != 0):
            self.give_back(memory.get())
