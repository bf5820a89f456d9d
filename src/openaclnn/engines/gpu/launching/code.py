"""Machine code that launches: it reads addresses and a control block, and calls the CUDA driver.

Triton's launcher parses a kernel's arguments anew on every call. They are known here but for the addresses, or follow from sizes, so a control
block holds what the driver wants, and machine code (by llvmlite, as in the CPU engine) puts the rest in. A kernel is entered when Python has
launched it, which is what happens with all calls that the code is not ready for.

`BoundCode` is that of one plan's launches; for any sizes and strides, `launchers/code.py` adds how launches follow from these. Who calls it,
`engines/machine/callers.py` says.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from openaclnn.engines.gpu.launching import native
from openaclnn.engines.gpu.launching.launch import KEY_WORDS, VECTOR_BYTES, Launch, PointerArg
from openaclnn.engines.gpu.launching.native import CONFIG_SLOTS, CONFIG_STREAM
from openaclnn.engines.machine.builtins import integer_of, publish, python
from openaclnn.engines.machine.callers import (
    CALL_HEADER,
    NOT_READY,
    RAISED,
    RAISED_LATE,
    CallBlock,
    CallWords,
    Guarded,
)
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.values import Value

# The control block, one int64 a slot: behind what calls it, functions by address, then what a plan decides.
LAUNCH, ALLOCATE, RELEASE, ADDRESSES, STEPS, STEP_SLOTS, SCRATCH, NUMBERS = range(
    CALL_HEADER, CALL_HEADER + 8
)
OWN_NUMBERS, MAX_NUMBERS = NUMBERS + 1, 4  # integers where WHOLE has a bit, else float64 by bits
STATIC, MAX_STATIC = OWN_NUMBERS + MAX_NUMBERS, 32  # what a launch function is told of the plan
FORMS = STATIC + MAX_STATIC  # of formulas
MAX_FORM_NUMBERS, MAX_FORMS = 12, 5
# Of each form: how many numbers, then each one's word, and which of the values known at the call it is instead, or -1.
FORM_WORDS, FORM_SOURCES, FORM_SLOTS = 1, 1 + MAX_FORM_NUMBERS, 1 + 2 * MAX_FORM_NUMBERS
HEADER = FORMS + MAX_FORMS * FORM_SLOTS

_ONE_ROW = 1 << 32  # of a grid, whose second number is in the upper half

# Of each launch: which addresses it takes, how many bytes to add, how they must be aligned, how many arguments; grid and arguments, where these are one plan's;
# and the variants that it chooses from, one after the other as they were ENTERED.
POINTERS, VALUES, ENTERED, GRID, PLACES = range(5)
MAX_POINTERS, MAX_VALUES, MAX_HIDDEN = 16, 64, 4
SHIFTS, MASKS, ARGUMENTS = [PLACES + MAX_POINTERS * several for several in (1, 2, 3)]
VARIANTS = ARGUMENTS + MAX_VALUES
MAX_STEPS, MAX_SCRATCH, MAX_ADDRESSES = 9, 4, 24  # MAX_SCRATCH: addresses behind those of a call
FUNCTION, KEY, CONFIG = 0, 1, 1 + KEY_WORDS
VARIANT_SLOTS = CONFIG + CONFIG_SLOTS
MAX_VARIANTS = 40
BOUND_VARIANTS = 4  # of one plan: for addresses at a vector's bounds, and some others

# What a call has of each launch: whether there is one, its variant, the grid, the variant's key, then pointers, arguments and hidden ones.
WANTED_AT, VARIANT_AT, GRID_AT, KEY_AT = range(4)
VALUES_AT = KEY_AT + KEY_WORDS
MAX_PARAMETERS = MAX_POINTERS + MAX_VALUES + MAX_HIDDEN
CALL_SLOTS = VALUES_AT + MAX_PARAMETERS


class Step:
    """A launch being written: its part of the control block, and of the call's frame."""

    def __init__(self, code: Code, block: Array, frame: Array) -> None:
        self.code, self.block = code, block
        self.wanted, self.variant, self.grid = map(frame.at, (WANTED_AT, VARIANT_AT, GRID_AT))
        self.key, self.values = frame.at(KEY_AT), frame.at(VALUES_AT)
        self.pointers, self.count = self.block.read(POINTERS), self.block.read(VALUES)
        self.arguments = self.values.at(self.pointers)

    def search(self) -> Value:
        """Find the variant that has the key; whether there is one."""
        code = self.code
        self.variant.write(0, -1)
        with code.loop(0, code.read_shared(self.block, ENTERED)) as index:
            variant, apart = self.block.at(index * VARIANT_SLOTS + VARIANTS), code.integer(0)
            for place in range(KEY_WORDS):
                apart = apart | (variant.read(KEY + place) ^ self.key.read(place))
            with code.when(apart == 0):
                self.variant.write(0, index)
        return self.variant.read(0) >= 0

    def chosen(self) -> Array:
        """The kernel that launches."""
        return self.block.at(self.variant.read(0) * VARIANT_SLOTS + VARIANTS)

    def point(self, addresses: Array) -> Value:
        """Pointers in their places; a bit for each that is off a vector's bounds."""
        misaligned = self.code.variable(self.code.integer(0))
        with self.code.loop(0, self.pointers) as index:
            address = addresses.read(self.block.at(PLACES).read(index))
            address = address + self.block.at(SHIFTS).read(index)
            self.values.write(index, address)
            off = ((address & self.block.at(MASKS).read(index)) != 0).to("i64")
            misaligned.set(misaligned.get() | off << index)
        return misaligned.get()

    def hide(self, count: Value | int) -> None:
        """Null for the parameters behind so many arguments."""
        for hidden in range(MAX_HIDDEN):
            self.arguments.write(count + hidden, 0)

    def start(self, control: Array, stream: Value) -> Value:
        """The driver's code as an int64."""
        code, chosen = self.code, self.chosen()
        config = code.frame("i64", CONFIG_SLOTS)
        places = code.frame("i64", MAX_PARAMETERS)
        for slot in range(CONFIG_SLOTS):
            config.write(slot, chosen.read(CONFIG + slot))
        config.write(0, self.grid.read(0) + _ONE_ROW)
        config.write(CONFIG_STREAM, stream)
        with code.loop(0, self.pointers + self.count + MAX_HIDDEN) as index:
            places.write(index, self.values.address(index))
        function = chosen.read(FUNCTION)
        return control.call(LAUNCH, "i32", config, function, places, 0).unsigned("i64")


class LaunchCode(Guarded):
    """The function being written that launches."""

    def __init__(self, code: Code, arguments: Sequence[Value]) -> None:
        call = CallWords(code, arguments)
        super().__init__(code, call.block)
        self.call = call
        self.frame = code.frame("i64", MAX_STEPS * CALL_SLOTS)
        for step in range(MAX_STEPS):
            self.frame.write(step * CALL_SLOTS + WANTED_AT, 0)
        # Bytes between launches, and where in them pointers begin.
        self.scratch, *self.scratch_offsets = (code.variable(code.integer(0)) for _ in range(1 + MAX_SCRATCH))  # fmt: skip
        self.addresses = code.frame("i64", MAX_ADDRESSES + MAX_SCRATCH)
        self.numbers = code.frame("i64", MAX_NUMBERS)
        control = self.control
        self.expect(call.operands >= control.read(ADDRESSES))
        self.expect((call.number_count == 0) | (call.number_count == control.read(NUMBERS)))
        with self.when_fit():
            with code.loop(0, control.read(ADDRESSES)) as index:
                self.addresses.write(index, call.addresses.read(index))
            for number in range(MAX_NUMBERS):
                self.numbers.write(number, control.read(OWN_NUMBERS + number))
            with code.loop(0, call.number_count) as index:
                self.numbers.write(index, call.numbers.read(index))

    def write(self) -> None:
        code = self.code
        with self.when_fit():
            self.fit_all()
            # Memory is taken with Python's functions.
            self.expect((self.scratch.get() == 0) | (self.call.locked != 0))
        with self.when_fit():
            self.queue_all()
            with self.when_fit():
                code.leave(code.integer(0))
        code.leave(code.integer(NOT_READY))

    def step(self, index: Value | int) -> Step:
        block = self.control.at(self.control.read(STEP_SLOTS) * index + HEADER)
        return Step(self.code, block, self.frame.at(index * CALL_SLOTS))

    @contextmanager
    def each_step(self) -> Iterator[Step]:
        """Those that a call has, in order."""
        with self.code.loop(0, self.control.read(STEPS)) as index:
            step = self.step(index)
            with self.code.when(step.wanted.read(0) != 0):
                yield step

    def fit(self) -> None:
        """What launches, its grid, its arguments and its variant's key, if this call is one that the code serves."""
        raise NotImplementedError

    def fit_all(self) -> None:
        """The kernels that launch, if all are there."""
        self.fit()
        with self.when_fit(), self.each_step() as step:
            misaligned = step.point(self.addresses)
            step.key.write(KEY_WORDS - 1, step.key.read(KEY_WORDS - 1) & misaligned)
            self.expect(step.search())

    def queue_all(self) -> None:
        """All launches, as long as none fails, with scratch memory that is given back as soon as they are queued."""
        code, control = self.code, self.control
        memory, saved = (code.variable(code.integer(0)) for _ in range(2))
        with code.when(self.scratch.get() != 0):
            memory.set(self.take_memory(self.scratch.get()))
            behind, begin = self.addresses.at(control.read(ADDRESSES)), integer_of(code, memory.get())  # fmt: skip
            for place, at in enumerate(self.scratch_offsets):
                behind.write(place, begin + at.get())
            with self.each_step() as step:
                step.point(self.addresses)
        # A full queue makes the driver wait, perhaps for a host function that needs the interpreter.
        with code.when(self.call.locked != 0):
            saved.set(python(code, "PyEval_SaveThread", "i64"))
        with self.each_step() as step, self.when_fit():
            self.mark(step.start(control, self.call.stream))
        with code.when(self.call.locked != 0):
            python(code, "PyEval_RestoreThread", None, saved.get())
        with code.when(memory.get() != 0):
            self.give_back(memory.get())

    def take_memory(self, size: Value) -> Value:
        """Allocate scratch memory for work on the stream; its address, as a Python integer."""
        control, items = self.control, self.code.frame("i64", 2)
        memory = self.code.variable(0)
        for place, number in enumerate((size, self.call.stream)):
            items.write(place, python(self.code, "PyLong_FromLongLong", "i64", number))
        with self.code.when((items.read(0) != 0) & (items.read(1) != 0)):
            memory.set(
                python(self.code, "PyObject_Vectorcall", "i64", control.read(ALLOCATE), items, 2, 0)
            )
        for place in range(2):
            python(self.code, "Py_DecRef", None, items.read(place))
        with self.code.when(memory.get() == 0):
            self.code.leave(self.code.integer(RAISED))
        return memory.get()

    def give_back(self, memory: Value) -> None:
        """Give scratch memory back, as soon as the work is queued."""
        control, items = self.control, self.code.frame("i64", 1)
        items.write(0, memory)
        done = python(self.code, "PyObject_Vectorcall", "i64", control.read(RELEASE), items, 1, 0)
        python(self.code, "Py_DecRef", None, memory)
        with self.code.when(done == 0):
            self.code.leave(self.code.integer(RAISED_LATE))
        python(self.code, "Py_DecRef", None, done)


class BoundCode(LaunchCode):
    """The launches of one plan: all is known but the addresses, and which of them are off a vector's bounds."""

    def fit(self) -> None:
        code, control = self.code, self.control
        self.scratch.set(control.read(SCRATCH))
        with code.loop(0, control.read(STEPS)) as index:
            step = self.step(index)
            step.wanted.write(0, 1)
            step.grid.write(0, step.block.read(GRID))
            for word in range(KEY_WORDS):
                step.key.write(word, 0 if word < KEY_WORDS - 1 else -1)
            with code.loop(0, step.count) as place:
                step.arguments.write(place, step.block.read(place + ARGUMENTS))
            step.hide(step.count)


# Their blocks.


class NoRoomError(Exception):
    """A block is too small for launches: Python queues them."""


class Block(CallBlock):
    """A builtin being made: first its launches, then what calls it, then kernels as they are compiled, so many of each launch at most."""

    name = ""  # tells its code from all other

    def __init__(self, addresses: int, steps: int, most: int, takes: int = 0) -> None:
        if steps > MAX_STEPS or addresses > MAX_ADDRESSES:
            raise NoRoomError
        self._most, self._step_slots = most, VARIANTS + most * VARIANT_SLOTS
        self._attributes = HEADER + self._step_slots * steps
        super().__init__(self._attributes + native.ATTRIBUTE_SLOTS * steps, takes)
        block = self._block
        block[LAUNCH] = native.launch_function()
        block[ADDRESSES], block[STEPS], block[STEP_SLOTS] = addresses, steps, self._step_slots
        self._lock = threading.Lock()

    def write(self, code: Code, arguments: Sequence[Value]) -> None:
        """Its code."""
        raise NotImplementedError

    def function(self, fallback: Callable[..., int]) -> Callable[..., int]:
        """The builtin itself, which keeps this object; `fallback` takes calls that it is not ready for."""
        return self.callable(f"gpu.{self.name}", self.write, fallback)

    def begin(self, step: int) -> int:
        """Where a launch's part begins."""
        return HEADER + step * self._step_slots

    def take_scratch(self, allocate: Any, release: Any, size: int = 0) -> None:
        """Where memory between launches comes from, and goes to; and of how many bytes it is, if that is known."""
        block = self._block
        block[SCRATCH], block[ALLOCATE], block[RELEASE] = size, id(allocate), id(release)
        self._held += allocate, release

    def take_step(self, step: int, slots: Sequence[PointerArg | None], arguments: int) -> None:
        """A launch's pointers, and how many arguments a variant has beside them: the block keeps the most."""
        block, begin = self._block, self.begin(step)
        if len(slots) > MAX_POINTERS or arguments > MAX_VALUES:
            raise NoRoomError
        pointers = [slot for slot in slots if slot is not None]
        block[begin + POINTERS] = len(pointers)
        block[begin + VALUES] = max(block[begin + VALUES], arguments)
        for place, slot in enumerate(pointers, begin):
            block[place + PLACES], block[place + SHIFTS] = slot.place, slot.shift
            block[place + MASKS] = VECTOR_BYTES - 1 if slot.wide else 0

    def enter(self, step: int, kernel: native.Kernel, key: Sequence[int]) -> None:
        """From now on, launch this variant for calls that have its key, if there is room and none has it yet."""
        block, begin = self._block, self.begin(step)
        words = array("q", key)
        with self._lock:  # another thread may be entering one
            entered = block[begin + ENTERED]
            places = [begin + VARIANTS + index * VARIANT_SLOTS for index in range(entered + 1)]
            keys = [block[place + KEY : place + CONFIG] for place in places[:-1]]
            if kernel.hidden > MAX_HIDDEN or entered == self._most or words in keys:
                return
            place, attribute = places[-1], self._attributes + step * native.ATTRIBUTE_SLOTS
            block[place + KEY : place + CONFIG] = words
            native.write_config(block, place + CONFIG, attribute, kernel)
            block[place + FUNCTION] = kernel.function
            # Last: this makes it ready.
            publish(block.buffer_info()[0] + 8 * (begin + ENTERED), entered + 1)


class BoundBlock(Block):
    """The builtin `run(addresses, stream)` of one plan's launches. With `scratch`, so many bytes of memory and what takes it and gives it
    back, the memory's address follows the others."""

    name = "bound"

    def __init__(
        self,
        launches: Sequence[tuple[Sequence[PointerArg | None], int]],
        scratch: tuple[int, Any, Any] | None = None,
    ) -> None:
        last = max([slot.place for slots, _ in launches for slot in slots if slot], default=0)
        super().__init__(last + (scratch is None), len(launches), BOUND_VARIANTS)
        for step, (slots, arguments) in enumerate(launches):
            self.take_step(step, slots, arguments)
        if scratch is not None:
            size, allocate, release = scratch
            self.take_scratch(allocate, release, size)

    def write(self, code: Code, arguments: Sequence[Value]) -> None:
        BoundCode(code, arguments).write()

    def fill(self, step: int, launch: Launch, kernel: native.Kernel, misaligned: int = 0) -> None:
        """From now on, launch this kernel for addresses of which these are off a vector's bounds."""
        words, begin = kernel.words(launch.numbers), self.begin(step)
        self._block[begin + GRID] = launch.grid
        self._block[begin + ARGUMENTS : begin + ARGUMENTS + len(words)] = array("q", words)
        self.enter(step, kernel, [*[0] * (KEY_WORDS - 1), misaligned])
