"""Launches of any size, with any numbers, as builtins `run(addresses, stream, shape, numbers)`.

What a plan decides lies in a control block; machine code (`code.py`, and a fit) reads the rest in the call. A kernel
is entered when Python has launched it, which is what happens with all calls that it is not there for.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import threading
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from openaclnn.engines.gpu.launchers import code as at
from openaclnn.engines.gpu.launchers.code import Fit
from openaclnn.engines.gpu.launchers.geometry import KEY_WORDS
from openaclnn.engines.gpu.launchers.words import words_of
from openaclnn.engines.gpu.launching import native
from openaclnn.engines.gpu.launching.launch import Slot
from openaclnn.engines.gpu.launching.native_code import MAX_POINTERS
from openaclnn.engines.gpu.launching.queues import Ready, SizedRunner
from openaclnn.engines.machine.builtins import EmitBuiltin, address_of_function, builtin
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.shared import publish
from openaclnn.engines.machine.values import Value

__all__ = ["Fitted", "takes"]

Ways = Mapping[tuple[tuple[Any, ...], int], int]
"""Which of a launch's kernels has these constants that sizes decide, on so many warps."""

_DOUBLE = struct.Struct("=d")


class Fitted:
    """A builtin being made: first its launches and numbers, then what calls it, then kernels as they are compiled."""

    def __init__(self, fit: type[Fit], addresses: int, facts: Sequence[int], more: int = 0) -> None:
        self._fit = fit
        self._block = block = array("q", bytes(8 * (at.FORMS + more + native.ATTRIBUTE_SLOTS)))
        self._attribute = native.write_attribute(block, at.FORMS + more)
        functions = (*native.functions(), *_more_functions())
        block[: len(functions)] = array("q", functions)
        block[at.TUPLE], block[at.FLOAT], block[at.INTEGER] = id(tuple), id(float), id(int)
        block[at.ADDRESSES] = addresses
        block[at.FACTS : at.FACTS + len(facts)] = array("q", facts)
        self._held: list[Any] = []
        self._lock = threading.Lock()

    def take_numbers(self, numbers: Sequence[int | float], whole: int) -> None:
        """The plan's own numbers; the first `whole` are integers."""
        block = self._block
        block[at.NUMBERS], block[at.WHOLE] = len(numbers), (1 << whole) - 1
        for place, number in enumerate(numbers, at.OWN_NUMBERS):
            if place < at.OWN_NUMBERS + whole:
                block[place] = int(number)
            else:
                _DOUBLE.pack_into(block, 8 * place, number)

    def take_sums(self, allocate: Any, release: Any) -> None:
        """Let the sums be launched first, into memory of these functions'."""
        block = self._block
        block[at.SUMMED], block[at.ALLOCATE], block[at.RELEASE] = 1, id(allocate), id(release)
        self._held += allocate, release

    def take_step(
        self, step: int, slots: Sequence[Slot | None], numbers: Sequence[int | float]
    ) -> None:
        """A launch's pointers, and its numbers at any size."""
        block, begin = self._block, at.HEADER + step * at.STEP_SLOTS
        own = [slot for slot in slots if slot is not None]
        block[begin + at.POINTERS], block[begin + at.VALUES] = len(own), len(numbers)
        for place, words in (
            (at.PLACES, [slot.place for slot in own]),
            (at.MASKS, [15 if slot.wide else 0 for slot in own]),
            (at.TEMPLATE, [native.word(number) for number in numbers]),
        ):
            block[begin + place : begin + place + len(words)] = array("q", words)

    def take_words(self, begin: int, words: Sequence[int]) -> None:
        """What more a fit has."""
        block = self._block
        block[at.FORMS + begin : at.FORMS + begin + len(words)] = array("q", words)

    def ready(self, step: int, ways: Ways, numbers: Sequence[int | float]) -> Ready:
        """What enters compiled kernels of a step that take such numbers, and no address as off a vector's bounds."""
        return self._entering(step, ways, [type(number) is float for number in numbers])

    def _entering(self, step: int, ways: Ways, floats: Sequence[bool]) -> Ready:
        begin = at.HEADER + step * at.STEP_SLOTS + at.WAYS

        def enter(constants: tuple[Any, ...], warps: int, kernel: Any, astray: int) -> None:
            way = None if astray else ways.get((constants, warps))
            if way is None or kernel.hidden > at.MAX_HIDDEN or kernel.floats() != floats:
                return
            place = begin + way * at.WAY_SLOTS
            native.write_config(self._block, place + at.CONFIG, kernel, 1, self._attribute)
            start, item = self._block.buffer_info()[0], self._block.itemsize
            # Last: this makes it ready.
            publish(start + item * (place + at.FUNCTION), kernel.function)

        return enter

    def ready_by(
        self, step: int, key_of: Callable[[tuple[Any, ...], int, int], Sequence[int] | None], floats: Sequence[bool]
    ) -> Ready:  # fmt: skip
        """The same of kernels that are found by a key, which constants, warps and addresses make: None for what has none."""
        begin, ways = at.HEADER + step * at.STEP_SLOTS, dict[tuple[tuple[Any, ...], int], int]()
        enter_at = self._entering(step, ways, floats)
        block = self._block

        def enter(constants: tuple[Any, ...], warps: int, kernel: Any, astray: int) -> None:
            key = key_of(constants, warps, astray)
            with self._lock:  # another thread may be entering one
                entered = block[begin + at.ENTERED]
                places = [begin + at.WAYS + way * at.WAY_SLOTS + at.KEY for way in range(entered + 1)]  # fmt: skip
                if key is None or entered == at.MAX_WAYS:
                    return
                words = array("q", [*key, *(0,) * (KEY_WORDS - len(key))])
                if words in [block[own : own + KEY_WORDS] for own in places[:-1]]:
                    return
                block[places[-1] : places[-1] + KEY_WORDS] = words
                ways[constants, warps] = entered
                enter_at(constants, warps, kernel, 0)
                block[begin + at.ENTERED] = entered + 1

        return enter

    def function(self, fallback: SizedRunner) -> SizedRunner:
        """The builtin itself, which keeps this object; `fallback` takes calls that it is not ready for."""
        self._block[at.FALLBACK] = id(fallback)
        self._held.append(fallback)
        made: SizedRunner = builtin(
            f"gpu.{self._fit.name}", _emitter(self._fit), self._block.buffer_info()[0], self
        )
        return made

    def without_objects(self) -> tuple[int, int]:
        """The same as a function for machine code that does not hold the interpreter's lock, and its block; 0 for a function where there is none."""
        return words_of(self._fit, locked=False), self._block.buffer_info()[0]

    def with_lock(self) -> tuple[int, int]:
        """The same for callers that hold it."""
        return words_of(self._fit, locked=True), self._block.buffer_info()[0]


def takes(slots: Sequence[Slot | None], values: int, numbers: Sequence[str]) -> bool:
    """Whether a block has room for a launch, and for the numbers of a call."""
    room = MAX_POINTERS, at.MAX_VALUES, at.MAX_NUMBERS
    return all(n <= most for n, most in zip((len(slots), values, len(numbers)), room, strict=True))


def _emitter(fit: type[Fit]) -> EmitBuiltin:
    def emit(code: Code, control: Array, given: Array, number: Value) -> None:
        fit(code, control).write(given, number)

    return emit


@functools.cache
def _more_functions() -> tuple[int, ...]:
    api = ctypes.pythonapi
    return tuple(map(address_of_function, (api.PyErr_Occurred, api.PyErr_Clear, api.Py_DecRef)))
