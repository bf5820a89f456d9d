"""Builtins of launches of any size, and the same for callers that have no Python objects, whether they hold the interpreter's lock or not."""

from __future__ import annotations

import functools
import struct
from array import array
from collections.abc import Callable, Sequence
from typing import Any

from openaclnn.engines.gpu.launchers.code import PatternEntry
from openaclnn.engines.gpu.launching import code as at
from openaclnn.engines.gpu.launching.blocks import Block
from openaclnn.engines.gpu.launching.code import (
    ADDRESSES,
    CLEAR,
    DECREF,
    FROM_INT64,
    MAX_NUMBERS,
    NUMBERS,
    OWN_NUMBERS,
)
from openaclnn.engines.gpu.launching.runners import Ready
from openaclnn.engines.machine.cache import compiled
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.kinds import TAKING_WORDS
from openaclnn.engines.machine.values import Value

__all__ = ["LauncherBlock"]

KeyOf = Callable[[tuple[Any, ...], int, int], Sequence[int]]
"""What makes a variant's key, of constexprs, warps, and a bit for each pointer that it takes as off a vector's bounds."""

_DOUBLE = struct.Struct("=d")


class LauncherBlock(Block):
    """The builtin of a pattern being made."""

    def __init__(self, entry: type[PatternEntry], addresses: int, static: Sequence[int]) -> None:
        super().__init__(entry, addresses, len(entry.pattern.kernels))
        self._pattern_entry = entry
        self._block[at.STATIC : at.STATIC + len(static)] = array("q", static)

    def take_numbers(self, numbers: Sequence[int | float], whole: int) -> None:
        """The plan's own numbers; the first `whole` are integers."""
        block = self._block
        block[NUMBERS], block[at.WHOLE] = len(numbers), (1 << whole) - 1
        for place, number in enumerate(numbers, OWN_NUMBERS):
            if place < OWN_NUMBERS + whole:
                block[place] = int(number)
            else:
                _DOUBLE.pack_into(block, 8 * place, number)

    def take_form(self, index: int, words: Sequence[int], sources: Sequence[int]) -> None:
        """A form's numbers, and which of the values known at the call they are instead."""
        pad = [0] * (at.MAX_FORM_NUMBERS - len(words))
        form, begin = [len(words), *words, *pad, *sources], at.FORMS + index * at.FORM_SLOTS
        self._block[begin : begin + len(form)] = array("q", form)

    def ready(self, step: int, key_of: KeyOf, floats: Sequence[bool]) -> Ready:
        """What enters compiled variants of a step, which are found by a key. `floats` says which arguments are FLOATs."""

        def enter(constexprs: tuple[Any, ...], warps: int, kernel: Any, misaligned: int) -> None:
            if kernel.floats() == [*floats]:
                self.enter(step, kernel, key_of(constexprs, warps, misaligned), at.MAX_VARIANTS)

        return enter

    def without_objects(self) -> tuple[int, int]:
        """The same as a function for machine code that does not hold the interpreter's lock, and its block; 0 for a function where there is none."""
        return _words_of(self._pattern_entry, locked=False), self._block.buffer_info()[0]

    def with_lock(self) -> tuple[int, int]:
        """The same for callers that hold it."""
        return _words_of(self._pattern_entry, locked=True), self._block.buffer_info()[0]


def _words_of(entry: type[PatternEntry], locked: bool) -> int:
    """`run(block, addresses, how many, shape, axes, numbers, how many, stream)`: 0, or -1 where the builtin has to be called;
    0 in place of a function for builtins that take more than that. Numbers are integers, or the bits of floats. `locked`, for callers that hold
    the lock.
    """
    if entry.more != PatternEntry.more:
        return 0
    name = f"gpu.{entry.name}.words{'.locked' if locked else ''}"
    return compiled(name, functools.partial(_emit, entry, locked), TAKING_WORDS, ours=False)


def _emit(entry: type[PatternEntry], locked: bool, code: Code, arguments: Sequence[Value]) -> None:
    base = _Locked if locked else _Unlocked
    own: type[_OfWords] = type(f"{entry.__name__}OfWords", (base, entry), {})
    block, addresses, operands, shape, axes, numbers, count, stream = arguments
    written = own(code, code.slots(block))
    written.take(code.slots(addresses), operands, code.slots(numbers), count)
    written.write_words(code.slots(shape), axes, stream)


class _OfWords(PatternEntry):
    """The function being written."""

    def size(self, axis: Value | int) -> Value:
        return self.shape.read(axis)

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
        self.shape, self.axes = shape, axes
        with self.when_fit():
            self.fit_all()
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
