"""The machine code of `native`: reads a control block, puts addresses in, and calls the CUDA driver."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import NamedTuple

from openaclnn.engines.machine.builtins import integer_of
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.objects import OBJECT_TYPE, TUPLE_ITEMS, TUPLE_LENGTH
from openaclnn.engines.machine.values import Value

# The control block, one int64 a slot: functions by address, then a block for each launch.
(
    LAUNCH, COUNT, ADDRESSES, FALLBACK, TUPLE, SAVE, RESTORE, VECTORCALL, FROM_INT64, DECREF, SCRATCH, ALLOCATE, RELEASE,
) = range(13)  # fmt: skip
HEADER = 16
FUNCTION, CONFIG, POINTERS, PARAMETERS, PLACES = 0, 1, 8, 9, 10
MAX_POINTERS, MAX_PARAMETERS, MAX_LAUNCHES, MAX_ADDRESSES = 16, 128, 4, 24
SHIFTS, MASKS, VALUES = PLACES + MAX_POINTERS, PLACES + 2 * MAX_POINTERS, PLACES + 3 * MAX_POINTERS
STRIDE = VALUES + MAX_PARAMETERS

# CUlaunchConfig: grid, block and shared memory as seven 32-bit numbers, then the rest by slots.
CONFIG_SLOTS, CONFIG_STREAM, CONFIG_ATTRIBUTES, CONFIG_ATTRIBUTE_COUNT = 7, 4, 5, 6


def emit_entry(code: Code, control: Array, given: Array, number: Value) -> None:
    """The builtin `launch(addresses, stream)`."""
    _Entry(code, control).write(given, number)


class Memory(NamedTuple):
    """Where a control block has what scratch memory is taken with."""

    from_int64: int
    vectorcall: int
    decref: int
    allocate: int
    release: int


class Entry:
    """A builtin being written that launches, or leaves the call to its fallback."""

    memory = Memory(FROM_INT64, VECTORCALL, DECREF, ALLOCATE, RELEASE)

    def __init__(self, code: Code, control: Array) -> None:
        self.code, self.control = code, control
        self.state = code.variable(code.integer(0))  # not 0: nothing was launched, or not all of it

    def mark(self, bits: Value) -> None:
        self.state.set(self.state.get() | bits)

    def expect(self, condition: Value) -> None:
        self.mark((~condition).to("i64"))

    def when_fit(self) -> AbstractContextManager[None]:
        return self.code.when(self.state.get() == 0)

    def take_memory(self, size: Value, stream: Value) -> Value:
        """Allocate scratch memory for work on a stream; its address, as a Python integer. What that raises is raised."""
        control, at, items = self.control, self.memory, self.code.frame("i64", 2)
        items.write(0, control.call(at.from_int64, "i64", size))
        items.write(1, stream)
        made = control.call(at.vectorcall, "i64", control.read(at.allocate), items, 2, 0)
        control.call(at.decref, None, items.read(0))
        with self.code.when(made == 0):
            self.fail(queued=False)
        return made

    def give_back(self, memory: Value) -> None:
        """Give scratch memory back, as soon as the work is queued."""
        control, at, items = self.control, self.memory, self.code.frame("i64", 1)
        items.write(0, memory)
        done = control.call(at.vectorcall, "i64", control.read(at.release), items, 1, 0)
        control.call(at.decref, None, memory)
        with self.code.when(done == 0):
            self.fail(queued=True)
        control.call(at.decref, None, done)

    def fail(self, queued: bool) -> None:
        """Raise what Python raised, when the work is queued or before."""
        self.code.leave(self.code.integer(0))


class _Entry(Entry):
    """The launches of one plan."""

    def __init__(self, code: Code, control: Array) -> None:
        super().__init__(code, control)
        self.addresses = code.frame("i64", MAX_ADDRESSES + 1)  # scratch memory's is the last
        self.pointers = code.frame("i64", MAX_LAUNCHES * MAX_POINTERS)

    def write(self, given: Array, number: Value) -> None:
        """All launches, or the fallback where an address is off a vector's bounds."""
        code, control = self.code, self.control
        launches, count = control.read(COUNT), control.read(ADDRESSES)
        # Whoever calls differently from a runner's protocol meets the fallback.
        self.expect(number == 2)
        with self.when_fit():
            addresses = code.slots(given.read(0))
            self.expect(addresses.read(OBJECT_TYPE) == control.read(TUPLE))
            with self.when_fit():
                self.expect(addresses.read(TUPLE_LENGTH) >= count)
            with self.when_fit():
                with code.loop(0, count) as index:
                    item = addresses.read(index + TUPLE_ITEMS)
                    self.addresses.write(index, integer_of(code, item))
                self.addresses.write(count, 0)
                self.gather(launches)
        with self.when_fit():
            stream = integer_of(code, given.read(1))
            memory, size = code.variable(code.integer(0)), control.read(SCRATCH)
            with code.when(size != 0):
                memory.set(self.take_memory(size, given.read(1)))
                self.addresses.write(count, integer_of(code, memory.get()))
                self.gather(launches)
            # A full queue makes the driver wait, perhaps for a host function that needs the interpreter.
            saved = control.call(SAVE, "i64")
            with code.loop(0, launches) as index, self.when_fit():
                self.mark(self.start(index, stream))
            control.call(RESTORE, None, saved)
            with code.when(memory.get() != 0):
                self.give_back(memory.get())
            with self.when_fit():
                code.leave(control.call(FROM_INT64, "i64", 0))
        code.leave(control.call(VECTORCALL, "i64", control.read(FALLBACK), given, number, 0))

    def block(self, index: Value) -> Array:
        return self.control.at(index * STRIDE + HEADER)

    def gather(self, launches: Value) -> None:
        """Every launch's addresses, each moved to where its operand begins."""
        code = self.code
        with code.loop(0, launches) as index:
            block, pointers = self.block(index), self.pointers.at(index * MAX_POINTERS)
            self.expect(block.read(FUNCTION) != 0)
            with code.loop(0, block.read(POINTERS)) as number:
                own = self.addresses.read(block.read(number + PLACES))
                address = own + block.read(number + SHIFTS)
                pointers.write(number, address)
                self.mark(address & block.read(number + MASKS))

    def start(self, index: Value, stream: Value) -> Value:
        """One launch; the driver's code as an int64."""
        code, block = self.code, self.block(index)
        config = code.frame("i64", CONFIG_SLOTS)
        values, places = (code.frame("i64", MAX_PARAMETERS) for _ in range(2))
        for slot in range(CONFIG_SLOTS):
            config.write(slot, block.read(CONFIG + slot))
        config.write(CONFIG_STREAM, stream)
        with code.loop(0, block.read(PARAMETERS)) as number:
            values.write(number, block.read(number + VALUES))
            places.write(number, values.address(number))
        pointers = self.pointers.at(index * MAX_POINTERS)
        with code.loop(0, block.read(POINTERS)) as number:
            values.write(number, pointers.read(number))
        function = block.read(FUNCTION)
        return self.control.call(LAUNCH, "i32", config, function, places, 0).unsigned("i64")
