"""The machine code of `code.py` for callers that have no Python objects, whether they hold the interpreter's lock or not."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from openaclnn.engines.gpu.launchers.code import (
    ADDRESSES,
    CLEAR,
    DECREF,
    FROM_INT64,
    MAX_NUMBERS,
    NUMBERS,
    OWN_NUMBERS,
    Launcher,
)
from openaclnn.engines.machine.cache import compiled
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.kinds import TAKING_WORDS
from openaclnn.engines.machine.values import Value

__all__ = ["words_of"]


def words_of(launcher: type[Launcher], locked: bool) -> int:
    """`run(block, addresses, how many, shape, axes, numbers, how many, stream)`: 0, or -1 where the builtin has to be called;
    0 in place of a function for launchers that take more than that. Numbers are integers, or the bits of floats. `locked`, for callers that hold
    the lock.
    """
    if launcher.more != Launcher.more:
        return 0
    name = f"gpu.{launcher.name}.words{'.locked' if locked else ''}"
    return compiled(name, functools.partial(_emit, launcher, locked), TAKING_WORDS)


def _emit(launcher: type[Launcher], locked: bool, code: Code, arguments: Sequence[Value]) -> None:
    base = _Locked if locked else _Unlocked
    own: type[_OfWords] = type(f"{launcher.__name__}OfWords", (base, launcher), {})
    block, addresses, operands, shape, axes, numbers, count, stream = arguments
    written = own(code, code.slots(block))
    written.take(code.slots(addresses), operands, code.slots(numbers), count)
    written.write_words(code.slots(shape), axes, stream)


class _OfWords(Launcher):
    """The function being written."""

    def size(self, shape: Array, axis: Value | int) -> Value:
        return shape.read(axis)

    def take(self, addresses: Array, operands: Value, numbers: Array, count: Value) -> None:
        code, control, own = self.code, self.control, self.control.read(NUMBERS)
        self.expect(operands == control.read(ADDRESSES))
        self.expect((count == 0) | (count == own))
        for place in range(MAX_NUMBERS):
            self.numbers.write(place, control.read(OWN_NUMBERS + place))
        with self.when_fit():
            with code.loop(0, count) as index:
                self.numbers.write(index, numbers.read(index))
            with code.loop(0, operands) as index:
                self.addresses.write(index, addresses.read(index))

    def write_words(self, shape: Array, axes: Value, stream: Value) -> None:
        with self.when_fit():
            self.fit_all(shape, axes)
        with self.when_fit():
            self.launch(stream)
            with self.when_fit():
                self.code.leave(self.code.integer(0))
        self.code.leave(self.code.integer(-1))

    def launch(self, stream: Value) -> None:
        """All that launches, if that is possible here."""
        raise NotImplementedError


class _Unlocked(_OfWords):
    """Memory is taken with Python's functions, which cannot be called."""

    def launch(self, stream: Value) -> None:
        self.expect(self.scratch.get() == 0)
        with self.when_fit():
            self.start(stream)


class _Locked(_OfWords):
    """What Python raises is left to the builtin, which meets it again; once the work is queued, there is nothing left to do."""

    def __init__(self, code: Code, control: Array) -> None:
        super().__init__(code, control)
        self.held = code.variable(code.integer(0))  # the stream as a Python integer

    def launch(self, stream: Value) -> None:
        with self.when_scratch():
            self.held.set(self.control.call(FROM_INT64, "i64", stream))
            with self.code.when(self.held.get() == 0):
                self.fail(queued=False)
        self.queue_all(stream, self.held.get())
        self.drop_held()

    def fail(self, queued: bool) -> None:
        self.control.call(CLEAR, None)
        self.drop_held()
        self.code.leave(self.code.integer(0 if queued else -1))

    def drop_held(self) -> None:
        with self.code.when(self.held.get() != 0):
            self.control.call(DECREF, None, self.held.get())
