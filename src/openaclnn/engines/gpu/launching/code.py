"""Machine code that queues launches: it reads addresses and a control block, and calls the CUDA driver.

Triton's launcher parses a kernel's arguments anew on every call. Here all but the addresses are known, or are computed from sizes. A control block has what the driver
needs, and machine code (by llvmlite, as in the CPU engine) adds the rest. A call whose kernels are not yet in the block falls back to Python, which launches them and
enters them.

`BoundCode` queues the launches of one plan; `launchers/code.py` derives code that computes launches from dynamic shapes and strides.
`engines/machine/callers.py` has the calling convention of both.
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

# The control block, one int64 a slot: behind the header that its callers need, functions by address, then what the plan decides.
LAUNCH, ALLOCATE, RELEASE, ADDRESSES, STEPS, STEP_SLOTS, SCRATCH, NUMBERS = range(
    CALL_HEADER, CALL_HEADER + 8
)
PLAN_NUMBERS, MAX_NUMBERS = NUMBERS + 1, 4  # integers by INTEGER_NUMBERS, else bits of float64
STATIC, MAX_STATIC = PLAN_NUMBERS + MAX_NUMBERS, 32  # static parameters of a launch function
FORMS = STATIC + MAX_STATIC  # of elementwise formulas
MAX_FORM_NUMBERS, MAX_FORMS = 12, 5
# Of each form: how many numbers it has; each number's bits, for those that the plan fixes; and for each the index of the call's value that it is, or -1.
FORM_WORDS, FORM_SOURCES, FORM_SLOTS = 1, 1 + MAX_FORM_NUMBERS, 1 + 2 * MAX_FORM_NUMBERS
HEADER = FORMS + MAX_FORMS * FORM_SLOTS

_ONE_ROW = 1 << 32  # the grid's second dimension is 1; it is in the upper half of the slot

# Of each launch: the numbers of pointers, of arguments and of ENTERED variants; the grid, if it is one plan's; each pointer's index in the addresses, the bytes to add,
# and a mask of the bits that must be 0 for it to be aligned; the arguments, if they are one plan's; then the variants in the order in which they were entered.
POINTERS, VALUES, ENTERED, GRID, PLACES = range(5)
MAX_POINTERS, MAX_VALUES, MAX_HIDDEN = 16, 64, 4
SHIFTS, MASKS, ARGUMENTS = [PLACES + MAX_POINTERS * table for table in (1, 2, 3)]
VARIANTS = ARGUMENTS + MAX_VALUES
MAX_STEPS, MAX_SCRATCH, MAX_ADDRESSES = 9, 4, 24  # MAX_SCRATCH: addresses behind those of a call
FUNCTION, KEY, CONFIG = 0, 1, 1 + KEY_WORDS
VARIANT_SLOTS = CONFIG + CONFIG_SLOTS
MAX_VARIANTS = 40
BOUND_VARIANTS = 4  # of one plan: for aligned addresses, and some misaligned ones

# The call's frame, for each launch: whether it takes place, the index of its variant, the grid, the variant's key, then pointers, arguments and hidden parameters.
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
        """Find the variant that has the key. Returns whether there is one."""
        code = self.code
        self.variant.write(0, -1)
        with code.loop(0, code.read_shared(self.block, ENTERED)) as index:
            variant, difference = self.block.at(index * VARIANT_SLOTS + VARIANTS), code.integer(0)
            for place in range(KEY_WORDS):
                difference = difference | (variant.read(KEY + place) ^ self.key.read(place))
            with code.when(difference == 0):
                self.variant.write(0, index)
        return self.variant.read(0) >= 0

    def chosen(self) -> Array:
        """The part of the block that has the variant which was found."""
        return self.block.at(self.variant.read(0) * VARIANT_SLOTS + VARIANTS)

    def point(self, addresses: Array) -> Value:
        """Write the pointers to the frame. Returns a bit for each that is misaligned."""
        misaligned = self.code.variable(self.code.integer(0))
        with self.code.loop(0, self.pointers) as index:
            address = addresses.read(self.block.at(PLACES).read(index))
            address = address + self.block.at(SHIFTS).read(index)
            self.values.write(index, address)
            off = ((address & self.block.at(MASKS).read(index)) != 0).to("i64")
            misaligned.set(misaligned.get() | off << index)
        return misaligned.get()

    def hide(self, count: Value | int) -> None:
        """Write null for the hidden parameters, which follow so many arguments."""
        for hidden in range(MAX_HIDDEN):
            self.arguments.write(count + hidden, 0)

    def start(self, control: Array, stream: Value) -> Value:
        """Call the driver. Returns its error code as an int64."""
        code, chosen = self.code, self.chosen()
        config = code.frame("i64", CONFIG_SLOTS)
        parameters = code.frame("i64", MAX_PARAMETERS)
        for slot in range(CONFIG_SLOTS):
            config.write(slot, chosen.read(CONFIG + slot))
        config.write(0, self.grid.read(0) + _ONE_ROW)
        config.write(CONFIG_STREAM, stream)
        with code.loop(0, self.pointers + self.count + MAX_HIDDEN) as index:
            parameters.write(index, self.values.address(index))
        function = chosen.read(FUNCTION)
        return control.call(LAUNCH, "i32", config, function, parameters, 0).unsigned("i64")


class LaunchCode(Guarded):
    """Writes the function that serves one call: it computes the launches, finds their variants, and queues them."""

    def __init__(self, code: Code, arguments: Sequence[Value]) -> None:
        call = CallWords(code, arguments)
        super().__init__(code, call.block)
        self.call = call
        self.frame = code.frame("i64", MAX_STEPS * CALL_SLOTS)
        for step in range(MAX_STEPS):
            self.frame.write(step * CALL_SLOTS + WANTED_AT, 0)
        # Bytes of scratch memory, and the offsets in it at which pointers begin.
        self.scratch, *self.scratch_offsets = (code.variable(code.integer(0)) for _ in range(1 + MAX_SCRATCH))  # fmt: skip
        self.addresses = code.frame("i64", MAX_ADDRESSES + MAX_SCRATCH)
        self.numbers = code.frame("i64", MAX_NUMBERS)
        control = self.control
        self.expect(call.operands >= control.read(ADDRESSES))
        self.expect((call.number_count == 0) | (call.number_count == control.read(NUMBERS)))
        with self.while_served():
            with code.loop(0, control.read(ADDRESSES)) as index:
                self.addresses.write(index, call.addresses.read(index))
            for number in range(MAX_NUMBERS):
                self.numbers.write(number, control.read(PLAN_NUMBERS + number))
            with code.loop(0, call.number_count) as index:
                self.numbers.write(index, call.numbers.read(index))

    def write(self) -> None:
        code = self.code
        with self.while_served():
            self.find_variants()
            # Memory is taken with Python's functions.
            self.expect((self.scratch.get() == 0) | (self.call.locked != 0))
        with self.while_served():
            self.queue_all()
            with self.while_served():
                code.leave(code.integer(0))
        code.leave(code.integer(NOT_READY))

    def step(self, index: Value | int) -> Step:
        block = self.control.at(self.control.read(STEP_SLOTS) * index + HEADER)
        return Step(self.code, block, self.frame.at(index * CALL_SLOTS))

    @contextmanager
    def each_step(self) -> Iterator[Step]:
        """A loop over the launches that take place, in order."""
        with self.code.loop(0, self.control.read(STEPS)) as index:
            step = self.step(index)
            with self.code.when(step.wanted.read(0) != 0):
                yield step

    def compute_launches(self) -> None:
        """Write which launches take place, their grids, arguments and keys, if the code serves this call."""
        raise NotImplementedError

    def find_variants(self) -> None:
        """Compute the launches and find their variants, if all have been entered."""
        self.compute_launches()
        with self.while_served(), self.each_step() as step:
            misaligned = step.point(self.addresses)
            step.key.write(KEY_WORDS - 1, step.key.read(KEY_WORDS - 1) & misaligned)
            self.expect(step.search())

    def queue_all(self) -> None:
        """Queue all launches, as long as none fails, with scratch memory that is given back as soon as they are queued."""
        code, control = self.code, self.control
        memory, saved = (code.variable(code.integer(0)) for _ in range(2))
        with code.when(self.scratch.get() != 0):
            memory.set(self.take_memory(self.scratch.get()))
            pointers, begin = self.addresses.at(control.read(ADDRESSES)), integer_of(code, memory.get())  # fmt: skip
            for place, offset in enumerate(self.scratch_offsets):
                pointers.write(place, begin + offset.get())
            with self.each_step() as step:
                step.point(self.addresses)
        # A full queue makes the driver wait, perhaps for a host function that needs the interpreter.
        with code.when(self.call.locked != 0):
            saved.set(python(code, "PyEval_SaveThread", "i64"))
        with self.each_step() as step, self.while_served():
            self.note_failure(step.start(control, self.call.stream))
        with code.when(self.call.locked != 0):
            python(code, "PyEval_RestoreThread", None, saved.get())
        with code.when(memory.get() != 0):
            self.give_back(memory.get())

    def take_memory(self, size: Value) -> Value:
        """Allocate scratch memory for work on the stream. Returns its address, as a Python integer."""
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
        """Release scratch memory in stream order, since the work on it is queued but not done."""
        control, items = self.control, self.code.frame("i64", 1)
        items.write(0, memory)
        done = python(self.code, "PyObject_Vectorcall", "i64", control.read(RELEASE), items, 1, 0)
        python(self.code, "Py_DecRef", None, memory)
        with self.code.when(done == 0):
            self.code.leave(self.code.integer(RAISED_LATE))
        python(self.code, "Py_DecRef", None, done)


class BoundCode(LaunchCode):
    """The launches of one plan: all is known but the addresses, and which of them are misaligned."""

    def compute_launches(self) -> None:
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


# Control blocks.


class NoRoomError(Exception):
    """The launches do not fit into a block, so that Python must queue them."""


class Block(CallBlock):
    """The control block of a builtin: its launches' pointers are set first, then it is made callable, and variants are entered as they are compiled."""

    name = ""  # the key of its machine code

    def __init__(self, addresses: int, steps: int, max_variants: int, takes: int = 0) -> None:
        if steps > MAX_STEPS or addresses > MAX_ADDRESSES:
            raise NoRoomError
        self._max_variants, self._step_slots = max_variants, VARIANTS + max_variants * VARIANT_SLOTS
        self._attributes = HEADER + self._step_slots * steps
        super().__init__(self._attributes + native.ATTRIBUTE_SLOTS * steps, takes)
        block = self._block
        block[LAUNCH] = native.launch_function()
        block[ADDRESSES], block[STEPS], block[STEP_SLOTS] = addresses, steps, self._step_slots
        self._lock = threading.Lock()

    def write(self, code: Code, arguments: Sequence[Value]) -> None:
        """Write the builtin's code."""
        raise NotImplementedError

    def function(self, fallback: Callable[..., int]) -> Callable[..., int]:
        """The builtin, which keeps this object; `fallback` serves the calls that its code does not."""
        return self.callable(f"gpu.{self.name}", self.write, fallback)

    def begin(self, step: int) -> int:
        """The slot where a launch's part begins."""
        return HEADER + step * self._step_slots

    def set_scratch(self, allocate: Any, release: Any, size: int = 0) -> None:
        """Set the functions that allocate and release scratch memory, and its bytes, if they are known."""
        block = self._block
        block[SCRATCH], block[ALLOCATE], block[RELEASE] = size, id(allocate), id(release)
        self._held += allocate, release

    def set_step(self, step: int, slots: Sequence[PointerArg | None], arguments: int) -> None:
        """Set a launch's pointers, and how many arguments it has beside them: the largest number, if its variants have different ones."""
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
        """From now on, launch this variant for calls that have its key. Does nothing if there is no room, or the key has been entered."""
        block, begin = self._block, self.begin(step)
        words = array("q", key)
        with self._lock:  # another thread may be entering one
            entered = block[begin + ENTERED]
            places = [begin + VARIANTS + index * VARIANT_SLOTS for index in range(entered + 1)]
            keys = [block[place + KEY : place + CONFIG] for place in places[:-1]]
            if kernel.hidden > MAX_HIDDEN or entered == self._max_variants or words in keys:
                return
            place, attribute = places[-1], self._attributes + step * native.ATTRIBUTE_SLOTS
            block[place + KEY : place + CONFIG] = words
            native.write_config(block, place + CONFIG, attribute, kernel)
            block[place + FUNCTION] = kernel.function
            # Last, since the code reads the variant from now on.
            publish(block.buffer_info()[0] + 8 * (begin + ENTERED), entered + 1)


class BoundBlock(Block):
    """The block of the builtin `run(addresses, stream)` of one plan's launches. `scratch` is the bytes of scratch memory and the functions that allocate and
    release it; the memory's address follows the others."""

    name = "bound"

    def __init__(
        self,
        launches: Sequence[tuple[Sequence[PointerArg | None], int]],
        scratch: tuple[int, Any, Any] | None = None,
    ) -> None:
        last = max([slot.place for slots, _ in launches for slot in slots if slot], default=0)
        super().__init__(last + (scratch is None), len(launches), BOUND_VARIANTS)
        for step, (slots, arguments) in enumerate(launches):
            self.set_step(step, slots, arguments)
        if scratch is not None:
            size, allocate, release = scratch
            self.set_scratch(allocate, release, size)

    def write(self, code: Code, arguments: Sequence[Value]) -> None:
        BoundCode(code, arguments).write()

    def fill(self, step: int, launch: Launch, kernel: native.Kernel, misaligned: int = 0) -> None:
        """From now on, launch this kernel for addresses of which these are misaligned: a bit for each pointer."""
        words, begin = kernel.words(launch.numbers), self.begin(step)
        self._block[begin + GRID] = launch.grid
        self._block[begin + ARGUMENTS : begin + ARGUMENTS + len(words)] = array("q", words)
        self.enter(step, kernel, [*[0] * (KEY_WORDS - 1), misaligned])
