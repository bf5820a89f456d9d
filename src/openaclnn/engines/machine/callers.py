"""How what computes is called: it is one function of 64-bit words, the address of which is in its control block. The fast path calls it in words, whether it holds the
interpreter's lock or not; for Python there is a builtin, the same for all blocks. A function in Python has a block, too, which calls it with objects.
"""

from __future__ import annotations

import functools
from array import array
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from openaclnn.engines.machine.builtins import (
    builtin,
    integer_of,
    object_of_python,
    python,
)
from openaclnn.engines.machine.cache import Emit, compiled
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.kinds import signature
from openaclnn.engines.machine.objects import FLOAT_VALUE, OBJECT_TYPE, TUPLE_ITEMS, TUPLE_LENGTH
from openaclnn.engines.machine.values import Value

# The first slots of a control block: what takes calls that it does not serve; the function of words, and what calls the former so; what the builtin takes; a bit for each of
# the call's numbers that is an integer.
FALLBACK, RUN, BY_OBJECTS, TAKES, WHOLE = range(5)
CALL_HEADER = 5
MAX_ADDRESSES, MAX_AXES, MAX_STRIDES, MAX_NUMBERS = 64, 64, 512, 16  # of a call by Python

RUNNING = signature("i64", *["i64"] * 11)
"""Of what `CallWords` says. It gives a status, 0 at least, or one of these."""
NOT_READY, RAISED, RAISED_LATE = -1, -2, -3
"""Nothing was done, or not all; Python raised, before all was done or behind it."""


class CallWords:
    """A call in words: its block, addresses, shape, numbers, none of which means the block's own, stream, all strides one after the other, and whether the interpreter's lock is
    held. Numbers are integers, or the bits of floats."""

    def __init__(self, code: Code, arguments: Sequence[Value]) -> None:
        self.code = code
        (
            block, addresses, self.operands, shape, self.axes, numbers, self.number_count, self.stream, strides, self.stride_count, self.locked,
        ) = arguments  # fmt: skip
        self.block, self.addresses, self.shape, self.numbers, self.strides = map(
            code.slots, (block, addresses, shape, numbers, strides)
        )


class Interpreter:
    """Code that calls CPython, and raises what that raises."""

    code: Code

    def python(self, function: str, result: str | None, *values: Value | Array | int) -> Value:
        """Call a function of CPython's."""
        return python(self.code, function, result, *values)

    def object(self, name: str) -> Value:
        """The address of one of Python's own."""
        return object_of_python(self.code, name)

    def call_object(self, function: Value, *arguments: Value) -> Value:
        items = self.code.frame("i64", len(arguments))
        for place, argument in enumerate(arguments):
            items.write(place, argument)
        return self.python("PyObject_Vectorcall", "i64", function, items, len(arguments), 0)

    def pack(self, words: Array, count: Value, made: Callable[[Value, Value], Value] | None = None) -> Value:  # fmt: skip
        """A tuple of integers, or of what is made of each word and its place."""
        packed = self.new_tuple(count)
        with self.code.loop(0, count) as index:
            word = words.read(index)
            self.put(packed, index, made(word, index) if made else self.integer_object(word))
        return packed

    def integer_object(self, word: Value) -> Value:
        return self.python("PyLong_FromLongLong", "i64", word)

    def new_tuple(self, count: Value) -> Value:
        """One to be filled."""
        fresh = self.python("PyTuple_New", "i64", count)
        self.fail_without(fresh)
        return fresh

    def put(self, into: Value, index: Value, item: Value) -> None:
        """An object into a tuple, which has it from then on; memory may have been too short for one."""
        with self.code.when(item == 0):
            self.drop(into)
        self.fail_without(item)
        self.python("PyTuple_SetItem", "i32", into, index, item)

    def drop(self, item: Value) -> None:
        self.python("Py_DecRef", None, item)

    def fail_without(self, item: Value) -> None:
        """Raise what a function raised that returned no object."""
        with self.code.when(item == 0, likely=False):
            self.fail()

    @functools.cached_property
    def fail(self) -> Callable[[], None]:
        return self.code.ending(self.write_failure)

    def write_failure(self) -> None:
        """What then follows, which leaves the function."""
        raise NotImplementedError


class Guarded:
    """Code that goes on as long as all that it expects holds."""

    def __init__(self, code: Code, control: Array) -> None:
        self.code, self.control = code, control
        self.state = code.variable(code.integer(0))  # not 0: nothing was launched, or not all of it

    def mark(self, bits: Value) -> None:
        self.state.set(self.state.get() | bits)

    def expect(self, condition: Value) -> None:
        self.mark((~condition).to("i64"))

    def when_fit(self) -> AbstractContextManager[None]:
        return self.code.when(self.state.get() == 0)


SHAPE, STRIDES, TOLD_NUMBERS = 1, 2, 4
"""What a builtin takes behind addresses and a stream, in this order."""
_EXACT = 1 << 53  # integers up to it are floats


class _Builtin(Guarded):
    """`run(addresses, stream)` being written, and what TAKES says behind them. Whatever the block does not serve, its fallback does."""

    def write(self, passed: Array, number: Value) -> None:
        code, control = self.code, self.control
        sized, strided, numbered = ((control.read(TAKES) & bit) != 0 for bit in (SHAPE, STRIDES, TOLD_NUMBERS))  # fmt: skip
        strides_at = sized.to("i64") + 2
        numbers_at = strides_at + strided.to("i64")
        # Whoever calls differently from a runner's protocol meets the fallback.
        self.expect(number == numbers_at + numbered.to("i64"))
        addresses = self.taken(passed, 0, MAX_ADDRESSES, number > 0)
        shape = self.taken(passed, 2, MAX_AXES, sized)
        strides = self.taken(passed, strides_at, MAX_STRIDES, strided)
        numbers = self.taken(passed, numbers_at, MAX_NUMBERS, numbered, self.number)
        with self.when_fit():
            stream = self.integer(passed.read(1))
            with self.when_fit():
                status = control.call(
                    RUN, "i64", control, *addresses, *shape, *numbers, stream, *strides, 1
                )
                with code.when(status >= 0):
                    code.leave(python(code, "PyLong_FromLongLong", "i64", status))
                with code.when(status != NOT_READY):
                    code.leave(code.integer(0))
        fallback = control.read(FALLBACK)
        code.leave(python(code, "PyObject_Vectorcall", "i64", fallback, passed, number, 0))

    def taken(
        self, passed: Array, place: Value | int, most: int, when: Value, read: Callable[..., Value] | None = None
    ) -> tuple[Array, Value]:  # fmt: skip
        """The items of a tuple among the arguments as words, and how many there are; none where it is not there."""
        code, read = self.code, read or self.integer
        words, count = code.frame("i64", most), code.variable(0)
        with self.when_fit(), code.when(when):
            items = code.slots(passed.read(place))
            self.expect(items.read(OBJECT_TYPE) == object_of_python(code, "tuple"))
            with self.when_fit():
                count.set(items.read(TUPLE_LENGTH))
                self.expect(count.get() <= most)
                with self.when_fit(), code.loop(0, count.get()) as index:
                    words.write(index, read(items.read(index + TUPLE_ITEMS), index))
        return words, count.get()

    def integer(self, item: Value, index: Value | None = None) -> Value:
        """A Python integer of up to 64 bits."""
        value = integer_of(self.code, item)
        with self.code.when(value == -1):
            self.expect(python(self.code, "PyErr_Occurred", "i64") == 0)
            python(self.code, "PyErr_Clear", None)
        return value

    def number(self, item: Value, index: Value) -> Value:
        """One of the call's numbers: an integer, or the bits of a float64."""
        code, control = self.code, self.control
        word, kind = code.variable(0), code.slots(item).read(OBJECT_TYPE)
        whole = control.read(WHOLE).bit(index)
        with code.either(kind == object_of_python(code, "float")) as (floating, other):
            with floating:
                self.expect(~whole)
                word.set(code.slots(item).read(FLOAT_VALUE))
            with other:
                self.expect(kind == object_of_python(code, "int"))
                with self.when_fit():
                    value = self.integer(item)
                    self.expect(whole | (abs(value) <= _EXACT))
                    word.set(whole.choose(value, value.to("f64").bits_as("i64")))
        return word.get()


class _ByObjects(Interpreter):
    """The call of a block's fallback being written, of the same words."""

    def __init__(self, code: Code, arguments: Sequence[Value]) -> None:
        self.code, self.call = code, CallWords(code, arguments)
        self.items = code.frame("i64", 5)
        self.count, self.lock, self.collects = (code.variable(0) for _ in range(3))

    def write(self) -> None:
        code, call = self.code, self.call
        takes = call.block.read(TAKES)
        with code.when(call.locked == 0):
            self.lock.set(self.python("PyGILState_Ensure", "i32").to("i64"))
        # Before 3.12 making objects may collect garbage, whose finalisers may change the caller's arrays.
        self.collects.set(self.python("PyGC_Disable", "i32").to("i64"))
        self.push(self.pack(call.addresses, call.operands))
        self.push(self.integer_object(call.stream))
        with code.when((takes & SHAPE) != 0):
            self.push(self.pack(call.shape, call.axes))
        with code.when((takes & STRIDES) != 0):
            self.push(self.pack(call.strides, call.stride_count))
        with code.when((takes & TOLD_NUMBERS) != 0):
            self.push(self.pack(call.numbers, call.number_count, self.number))
        self.collect_again()
        fallback, count = call.block.read(FALLBACK), self.count.get()
        answer = self.python("PyObject_Vectorcall", "i64", fallback, self.items, count, 0)
        self.drop_items()
        self.fail_without(answer)
        status = self.python("PyLong_AsLongLong", "i64", answer)
        self.drop(answer)
        self.leave((status == 0).choose(0, 1))

    def collect_again(self) -> None:
        with self.code.when(self.collects.get() != 0):
            self.python("PyGC_Enable", "i32")
            self.collects.set(self.code.integer(0))

    def push(self, item: Value) -> None:
        self.fail_without(item)
        self.items.write(self.count.get(), item)
        self.count.set(self.count.get() + 1)

    def number(self, word: Value, index: Value) -> Value:
        """What `_Builtin.number` reads."""
        code, made = self.code, self.code.variable(0)
        with code.either(self.call.block.read(WHOLE).bit(index)) as (whole, other):
            with whole:
                made.set(self.integer_object(word))
            with other:
                made.set(self.python("PyFloat_FromDouble", "i64", word.bits_as("f64")))
        return made.get()

    def drop_items(self) -> None:
        with self.code.loop(0, self.count.get()) as index:
            self.drop(self.items.read(index))
        self.count.set(self.code.integer(0))

    def write_failure(self) -> None:
        """The caller raises what was raised, if it has the lock."""
        self.drop_items()
        self.collect_again()
        with self.code.when(self.call.locked == 0):
            self.python("PyErr_Clear", None)
        self.leave(self.code.integer(RAISED))

    def leave(self, status: Value) -> None:
        with self.code.when(self.call.locked == 0):
            self.python("PyGILState_Release", None, self.lock.get().to("i32"))
        self.code.leave(status)


@functools.cache
def by_objects() -> int:
    """The function of words that calls a block's fallback."""
    return compiled("callers.by_objects", lambda code, arguments: _ByObjects(code, arguments).write(), RUNNING)  # fmt: skip


def call_block(code: Code, block: Array, *words: Value | Array | int) -> Value:
    """Call the function of a block, or where that is not ready its fallback; the status."""
    status = code.variable(block.call(RUN, "i64", block, *words))
    with code.when(status.get() == NOT_READY):
        status.set(block.call(BY_OBJECTS, "i64", block, *words))
    return status.get()


class CallBlock:
    """A control block of so many slots, and what calls its function."""

    def __init__(self, slots: int, takes: int, whole: int = 0) -> None:
        self._block = array("q", bytes(8 * slots))
        self._block[BY_OBJECTS], self._block[TAKES], self._block[WHOLE] = by_objects(), takes, whole
        self._held: list[Any] = []  # what the block relies on

    @property
    def address(self) -> int:
        return self._block.buffer_info()[0]

    def fall_back(self, function: Callable[..., int]) -> None:
        self._block[FALLBACK] = id(function)
        self._held.append(function)

    def callable(self, name: str, emit: Emit, fallback: Callable[..., int]) -> Callable[..., int]:
        """The builtin, which keeps this object, of the function that `emit` writes, under a name that tells it from all others; `fallback` takes calls that it is
        not ready for."""
        self._block[RUN] = compiled(name, emit, RUNNING)
        self.fall_back(fallback)
        function: Callable[..., int] = builtin(
            "callers.builtin", lambda code, control, *call: _Builtin(code, control).write(*call), self.address, self
        )  # fmt: skip
        return function


class PythonBlock(CallBlock):
    """The block of a function in Python, and of what that takes."""

    def __init__(self, function: Callable[..., int], takes: int, whole: int) -> None:
        super().__init__(CALL_HEADER, takes, whole)
        self._block[RUN] = by_objects()
        self.fall_back(function)
