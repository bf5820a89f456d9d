"""Launches of any size, with any numbers, as builtins `run(addresses, stream, shape, numbers)`.

What a plan decides lies in a control block; machine code (`code.py`) reads the rest in the call. A kernel
is entered when Python has launched it, which is what happens with all calls that it is not there for.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import threading
from array import array
from collections.abc import Callable, Sequence
from typing import Any

from openaclnn.engines.gpu.launchers import code as at
from openaclnn.engines.gpu.launchers.code import Launcher
from openaclnn.engines.gpu.launchers.words import words_of
from openaclnn.engines.gpu.launching import native
from openaclnn.engines.gpu.launching.launch import PointerArg
from openaclnn.engines.gpu.launching.native_code import MAX_POINTERS
from openaclnn.engines.gpu.launching.queues import Ready, SizedRunner
from openaclnn.engines.machine.builtins import EmitBuiltin, address_of_function, builtin
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.shared import publish
from openaclnn.engines.machine.values import Value

__all__ = ["LauncherBlock", "takes"]

KeyOf = Callable[[tuple[Any, ...], int, int], Sequence[int]]
"""What makes a variant's key, of constexprs, warps, and a bit for each pointer that it takes as off a vector's bounds."""

_DOUBLE = struct.Struct("=d")


class LauncherBlock:
    """A builtin being made: first its launches and numbers, then what calls it, then kernels as they are compiled."""

    def __init__(
        self, launcher: type[Launcher], addresses: int, static: Sequence[int], more: int = 0
    ) -> None:
        self._launcher = launcher
        self._block = block = array("q", bytes(8 * (at.FORMS + more + native.ATTRIBUTE_SLOTS)))
        self._attribute = native.write_attribute(block, at.FORMS + more)
        functions = (*native.functions(), *_more_functions())
        block[: len(functions)] = array("q", functions)
        block[at.TUPLE], block[at.FLOAT], block[at.INTEGER] = id(tuple), id(float), id(int)
        block[at.ADDRESSES] = addresses
        block[at.STATIC : at.STATIC + len(static)] = array("q", static)
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

    def take_scratch(self, allocate: Any, release: Any) -> None:
        """Where memory between launches comes from, and goes to."""
        block = self._block
        block[at.SUMMED], block[at.ALLOCATE], block[at.RELEASE] = 1, id(allocate), id(release)
        self._held += allocate, release

    def take_step(self, step: int, slots: Sequence[PointerArg | None], arguments: int) -> None:
        """A launch's pointers, and how many arguments it has beside them."""
        block, begin = self._block, at.HEADER + step * at.STEP_SLOTS
        own = [slot for slot in slots if slot is not None]
        block[begin + at.POINTERS], block[begin + at.VALUES] = len(own), arguments
        for place, words in (
            (at.PLACES, [slot.place for slot in own]),
            (at.MASKS, [15 if slot.wide else 0 for slot in own]),
        ):
            block[begin + place : begin + place + len(words)] = array("q", words)

    def take_words(self, begin: int, words: Sequence[int]) -> None:
        """What formulas have."""
        block = self._block
        block[at.FORMS + begin : at.FORMS + begin + len(words)] = array("q", words)

    def ready(self, step: int, key_of: KeyOf, floats: Sequence[bool]) -> Ready:
        """What enters compiled variants of a step, which are found by a key. `floats` says which arguments are FLOATs."""
        block, begin = self._block, at.HEADER + step * at.STEP_SLOTS

        def enter(constexprs: tuple[Any, ...], warps: int, kernel: Any, misaligned: int) -> None:
            key = array("q", key_of(constexprs, warps, misaligned))
            with self._lock:  # another thread may be entering one
                entered = block[begin + at.ENTERED]
                places = [
                    begin + at.VARIANTS + own * at.VARIANT_SLOTS for own in range(entered + 1)
                ]
                keys = [block[own + at.KEY : own + at.CONFIG] for own in places[:-1]]
                unknown = kernel.hidden > at.MAX_HIDDEN or kernel.floats() != [*floats]
                if unknown or entered == at.MAX_VARIANTS or key in keys:
                    return
                place = places[-1]
                block[place + at.KEY : place + at.CONFIG] = key
                native.write_config(block, place + at.CONFIG, kernel, 1, self._attribute)
                # Last: this makes it ready.
                publish(block.buffer_info()[0] + 8 * (place + at.FUNCTION), kernel.function)
                block[begin + at.ENTERED] = entered + 1

        return enter

    def function(self, fallback: SizedRunner) -> SizedRunner:
        """The builtin itself, which keeps this object; `fallback` takes calls that it is not ready for."""
        self._block[at.FALLBACK] = id(fallback)
        self._held.append(fallback)
        made: SizedRunner = builtin(
            f"gpu.{self._launcher.name}",
            _emitter(self._launcher),
            self._block.buffer_info()[0],
            self,
        )
        return made

    def without_objects(self) -> tuple[int, int]:
        """The same as a function for machine code that does not hold the interpreter's lock, and its block; 0 for a function where there is none."""
        return words_of(self._launcher, locked=False), self._block.buffer_info()[0]

    def with_lock(self) -> tuple[int, int]:
        """The same for callers that hold it."""
        return words_of(self._launcher, locked=True), self._block.buffer_info()[0]


def takes(slots: Sequence[PointerArg | None], values: int, numbers: Sequence[str]) -> bool:
    """Whether a block has room for a launch, and for the numbers of a call."""
    room = MAX_POINTERS, at.MAX_VALUES, at.MAX_NUMBERS
    return all(n <= most for n, most in zip((len(slots), values, len(numbers)), room, strict=True))


def _emitter(launcher: type[Launcher]) -> EmitBuiltin:
    def emit(code: Code, control: Array, given: Array, number: Value) -> None:
        launcher(code, control).write(given, number)

    return emit


@functools.cache
def _more_functions() -> tuple[int, ...]:
    api = ctypes.pythonapi
    return tuple(map(address_of_function, (api.PyErr_Occurred, api.PyErr_Clear, api.Py_DecRef)))
