"""The calling convention of runners in machine code, on CPU and GPU: a function of 64-bit words (`RUNNING`), whose address is in the runner's control block.

The fast path calls it with words, with or without the interpreter's lock. Python calls a builtin, whose code is the same for all control blocks. A runner written in
Python gets a block, too (`PythonBlock`), whose function of words makes Python objects of the words and calls it.
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

# The first slots of a control block: the Python function for calls that the code does not serve; the function of words; one that calls FALLBACK with such words; bits for
# what the builtin takes (SHAPE, STRIDES, FREE_NUMBERS); a bit for each of the call's numbers that is an integer.
FALLBACK, RUN, BY_OBJECTS, TAKES, INTEGER_NUMBERS = range(5)
CALL_HEADER = 5
MAX_ADDRESSES, MAX_AXES, MAX_STRIDES, MAX_NUMBERS = 64, 64, 512, 16  # of a call by Python

RUNNING = signature("i64", *["i64"] * 11)
"""The signature of functions that are called with what `CallWords` reads. They return a status of 0 or more, or one of these."""
NOT_READY, RAISED, RAISED_LATE = -1, -2, -3
"""The call is not served, or a launch failed; Python raised an exception before all was queued, or after that."""


class CallWords:
    """A call's arguments as words: the control block, addresses, the shape, numbers (integers, or the bits of float64; none: those of the block), the stream, the strides of one
    operand after the other, and whether the caller holds the interpreter's lock."""

    def __init__(self, code: Code, arguments: Sequence[Value]) -> None:
        self.code = code
        (
            block, addresses, self.operands, shape, self.axes, numbers, self.number_count, self.stream, strides, self.stride_count, self.locked,
        ) = arguments  # fmt: skip
        self.block, self.addresses, self.shape, self.numbers, self.strides = map(
            code.slots, (block, addresses, shape, numbers, strides)
        )


class Interpreter:
    """Code that calls CPython, and leaves through `fail` where CPython raises an exception."""

    code: Code

    def python(self, function: str, result: str | None, *values: Value | Array | int) -> Value:
        """Call a function of CPython's."""
        return python(self.code, function, result, *values)

    def object(self, name: str) -> Value:
        """The address of one of Python's objects, such as None."""
        return object_of_python(self.code, name)

    def call_object(self, function: Value, *arguments: Value) -> Value:
        items = self.code.frame("i64", len(arguments))
        for place, argument in enumerate(arguments):
            items.write(place, argument)
        return self.python("PyObject_Vectorcall", "i64", function, items, len(arguments), 0)

    def pack(self, words: Array, count: Value, made: Callable[[Value, Value], Value] | None = None) -> Value:  # fmt: skip
        """A tuple of the words as integers, or of what `made` makes of each word and its index."""
        packed = self.new_tuple(count)
        with self.code.loop(0, count) as index:
            word = words.read(index)
            self.put(packed, index, made(word, index) if made else self.integer_object(word))
        return packed

    def integer_object(self, word: Value) -> Value:
        return self.python("PyLong_FromLongLong", "i64", word)

    def new_tuple(self, count: Value) -> Value:
        """A tuple whose items are not set yet."""
        fresh = self.python("PyTuple_New", "i64", count)
        self.fail_without(fresh)
        return fresh

    def put(self, into: Value, index: Value, item: Value) -> None:
        """Set a tuple's item, whose reference it takes over. Fails where the item is null, for want of memory."""
        with self.code.when(item == 0):
            self.drop(into)
        self.fail_without(item)
        self.python("PyTuple_SetItem", "i32", into, index, item)

    def drop(self, item: Value) -> None:
        self.python("Py_DecRef", None, item)

    def fail_without(self, item: Value) -> None:
        """Fail where an object is null: the function that returned it has raised an exception."""
        with self.code.when(item == 0, likely=False):
            self.fail()

    @functools.cached_property
    def fail(self) -> Callable[[], None]:
        return self.code.ending(self.write_failure)

    def write_failure(self) -> None:
        """Write what is done after an exception; it must leave the function."""
        raise NotImplementedError


class Guarded:
    """Code with conditions under which it serves a call: `expect` notes where one fails, `while_served` skips code from then on."""

    def __init__(self, code: Code, control: Array) -> None:
        self.code, self.control = code, control
        self.failed = code.variable(code.integer(0))  # not 0: not served, or a launch failed

    def note_failure(self, bits: Value) -> None:
        self.failed.set(self.failed.get() | bits)

    def expect(self, condition: Value) -> None:
        self.note_failure((~condition).to("i64"))

    def while_served(self) -> AbstractContextManager[None]:
        return self.code.when(self.failed.get() == 0)


SHAPE, STRIDES, FREE_NUMBERS = 1, 2, 4
"""Bits for what a builtin takes after addresses and a stream, in this order."""
_EXACT = 1 << 53  # integers up to it are exact as float64


class _Builtin(Guarded):
    """Writes the builtin `run(addresses, stream, ...)`, whose further arguments TAKES says. The block's fallback serves the calls that its function does not."""

    def write(self, passed: Array, number: Value) -> None:
        code, control = self.code, self.control
        sized, strided, numbered = ((control.read(TAKES) & bit) != 0 for bit in (SHAPE, STRIDES, FREE_NUMBERS))  # fmt: skip
        strides_at = sized.to("i64") + 2
        numbers_at = strides_at + strided.to("i64")
        # A call with other arguments than a runner takes goes to the fallback.
        self.expect(number == numbers_at + numbered.to("i64"))
        addresses = self.words_of_tuple(passed, 0, MAX_ADDRESSES, number > 0)
        shape = self.words_of_tuple(passed, 2, MAX_AXES, sized)
        strides = self.words_of_tuple(passed, strides_at, MAX_STRIDES, strided)
        numbers = self.words_of_tuple(passed, numbers_at, MAX_NUMBERS, numbered, self.number)
        with self.while_served():
            stream = self.integer(passed.read(1))
            with self.while_served():
                status = control.call(
                    RUN, "i64", control, *addresses, *shape, *numbers, stream, *strides, 1
                )
                with code.when(status >= 0):
                    code.leave(python(code, "PyLong_FromLongLong", "i64", status))
                with code.when(status != NOT_READY):
                    code.leave(code.integer(0))
        fallback = control.read(FALLBACK)
        code.leave(python(code, "PyObject_Vectorcall", "i64", fallback, passed, number, 0))

    def words_of_tuple(
        self, passed: Array, place: Value | int, most: int, when: Value, read: Callable[..., Value] | None = None
    ) -> tuple[Array, Value]:  # fmt: skip
        """The items of the tuple at an index of the arguments, as words, and their number, which is 0 if `when` does not hold."""
        code, read = self.code, read or self.integer
        words, count = code.frame("i64", most), code.variable(0)
        with self.while_served(), code.when(when):
            items = code.slots(passed.read(place))
            self.expect(items.read(OBJECT_TYPE) == object_of_python(code, "tuple"))
            with self.while_served():
                count.set(items.read(TUPLE_LENGTH))
                self.expect(count.get() <= most)
                with self.while_served(), code.loop(0, count.get()) as index:
                    words.write(index, read(items.read(index + TUPLE_ITEMS), index))
        return words, count.get()

    def integer(self, item: Value, index: Value | None = None) -> Value:
        """The value of a Python integer, which must fit into 64 bits."""
        value = integer_of(self.code, item)
        with self.code.when(value == -1):
            self.expect(python(self.code, "PyErr_Occurred", "i64") == 0)
            python(self.code, "PyErr_Clear", None)
        return value

    def number(self, item: Value, index: Value) -> Value:
        """One of the call's numbers: an integer, or the bits of a float64."""
        code, control = self.code, self.control
        word, type_of_item = code.variable(0), code.slots(item).read(OBJECT_TYPE)
        is_integer = control.read(INTEGER_NUMBERS).bit(index)
        with code.either(type_of_item == object_of_python(code, "float")) as (floating, other):
            with floating:
                self.expect(~is_integer)
                word.set(code.slots(item).read(FLOAT_VALUE))
            with other:
                self.expect(type_of_item == object_of_python(code, "int"))
                with self.while_served():
                    value = self.integer(item)
                    self.expect(is_integer | (abs(value) <= _EXACT))
                    word.set(is_integer.choose(value, value.to("f64").bits_as("i64")))
        return word.get()


class _ByObjects(Interpreter):
    """Writes the function of words that calls a block's fallback with Python objects."""

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
        with code.when((takes & FREE_NUMBERS) != 0):
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
        """The Python number of a word: the inverse of `_Builtin.number`."""
        code, item = self.code, self.code.variable(0)
        with code.either(self.call.block.read(INTEGER_NUMBERS).bit(index)) as (integer, other):
            with integer:
                item.set(self.integer_object(word))
            with other:
                item.set(self.python("PyFloat_FromDouble", "i64", word.bits_as("f64")))
        return item.get()

    def drop_items(self) -> None:
        with self.code.loop(0, self.count.get()) as index:
            self.drop(self.items.read(index))
        self.count.set(self.code.integer(0))

    def write_failure(self) -> None:
        """Leave with RAISED: the exception is the caller's if it holds the lock, else it is cleared."""
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
    """Call the function of a block, and its fallback where that returns NOT_READY. Returns the status."""
    status = code.variable(block.call(RUN, "i64", block, *words))
    with code.when(status.get() == NOT_READY):
        status.set(block.call(BY_OBJECTS, "i64", block, *words))
    return status.get()


class CallBlock:
    """A control block of so many slots; it keeps alive what its addresses point to."""

    def __init__(self, slots: int, takes: int, integers: int = 0) -> None:
        self._block = array("q", bytes(8 * slots))
        self._block[BY_OBJECTS], self._block[TAKES] = by_objects(), takes
        self._block[INTEGER_NUMBERS] = integers
        self._held: list[Any] = []  # objects whose addresses are in the block

    @property
    def address(self) -> int:
        return self._block.buffer_info()[0]

    def fall_back(self, function: Callable[..., int]) -> None:
        self._block[FALLBACK] = id(function)
        self._held.append(function)

    def callable(self, name: str, emit: Emit, fallback: Callable[..., int]) -> Callable[..., int]:
        """The builtin of the function of words that `emit` writes; it keeps this object. `name` is the key of the machine code, `fallback` serves the calls that the
        function does not."""
        self._block[RUN] = compiled(name, emit, RUNNING)
        self.fall_back(fallback)
        function: Callable[..., int] = builtin(
            "callers.builtin", lambda code, control, *call: _Builtin(code, control).write(*call), self.address, self
        )  # fmt: skip
        return function


class PythonBlock(CallBlock):
    """The block of a runner that is a Python function, so that the fast path calls it like one in machine code."""

    def __init__(self, function: Callable[..., int], takes: int, integers: int) -> None:
        super().__init__(CALL_HEADER, takes, integers)
        self._block[RUN] = by_objects()
        self.fall_back(function)
