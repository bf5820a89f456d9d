"""Builtins that launch: what a plan decides lies in a control block, which machine code (`code.py`) reads.

Triton's launcher parses a kernel's arguments anew on every call. They are known here but for the addresses, or follow from sizes, so the
block holds what the driver wants, and machine code (by llvmlite, as in the CPU engine) puts the rest in. A kernel is entered when Python
has launched it, which is what happens with all calls that a builtin is not ready for.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Sequence
from typing import Any

from openaclnn.engines.gpu.launching import code as at
from openaclnn.engines.gpu.launching import native
from openaclnn.engines.gpu.launching.code import BoundEntry, Entry
from openaclnn.engines.gpu.launching.launch import KEY_WORDS, VECTOR_BYTES, PointerArg
from openaclnn.engines.machine.builtins import EmitBuiltin, builtin, publish
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.values import Value

__all__ = ["Block", "BoundBlock"]


class Block:
    """A builtin being made: first its launches, then what calls it, then kernels as they are compiled."""

    def __init__(self, entry: type[Entry], addresses: int, steps: int) -> None:
        assert steps <= at.MAX_STEPS, "a call's frame has no room for so many launches"
        self._entry = entry
        self._attributes = at.HEADER + entry.step_slots * steps
        size = self._attributes + native.ATTRIBUTE_SLOTS * steps
        self._block = block = array("q", bytes(8 * size))
        functions = native.functions()
        block[: len(functions)] = array("q", functions)
        block[at.TUPLE], block[at.FLOAT], block[at.INTEGER] = id(tuple), id(float), id(int)
        block[at.ADDRESSES], block[at.STEPS] = addresses, steps
        self._held: list[Any] = []
        self._lock = threading.Lock()

    def take_scratch(self, allocate: Any, release: Any, size: int = 0) -> None:
        """Where memory between launches comes from, and goes to; and of how many bytes it is, if that is known."""
        block = self._block
        block[at.SCRATCH], block[at.ALLOCATE], block[at.RELEASE] = size, id(allocate), id(release)
        self._held += allocate, release

    def take_step(self, step: int, slots: Sequence[PointerArg | None], arguments: int) -> None:
        """A launch's pointers, and how many arguments a variant has beside them: the block keeps the most."""
        block, begin = self._block, at.HEADER + step * self._entry.step_slots
        own = [slot for slot in slots if slot is not None]
        block[begin + at.POINTERS] = len(own)
        block[begin + at.VALUES] = max(block[begin + at.VALUES], arguments)
        for place, slot in enumerate(own, begin):
            block[place + at.PLACES], block[place + at.SHIFTS] = slot.place, slot.shift
            block[place + at.MASKS] = VECTOR_BYTES - 1 if slot.wide else 0

    def enter(self, step: int, kernel: native.Kernel, key: Sequence[int], most: int) -> None:
        """From now on, launch this variant for calls that have its key, if there is room and none has it yet."""
        block, begin = self._block, at.HEADER + step * self._entry.step_slots
        words = array("q", key)
        with self._lock:  # another thread may be entering one
            entered = block[begin + at.ENTERED]
            places = [begin + at.VARIANTS + own * at.VARIANT_SLOTS for own in range(entered + 1)]
            keys = [block[own + at.KEY : own + at.CONFIG] for own in places[:-1]]
            if kernel.hidden > at.MAX_HIDDEN or entered == most or words in keys:
                return
            place, attribute = places[-1], self._attributes + step * native.ATTRIBUTE_SLOTS
            block[place + at.KEY : place + at.CONFIG] = words
            attribute = native.write_attribute(block, attribute, kernel.cluster)
            native.write_config(block, place + at.CONFIG, kernel, 1, attribute)
            # Last: this makes it ready.
            publish(block.buffer_info()[0] + 8 * (place + at.FUNCTION), kernel.function)
            block[begin + at.ENTERED] = entered + 1

    def function(self, fallback: Callable[..., int]) -> Callable[..., int]:
        """The builtin itself, which keeps this object; `fallback` takes calls that it is not ready for."""
        self._block[at.FALLBACK] = id(fallback)
        self._held.append(fallback)
        name, address = f"gpu.{self._entry.name}", self._block.buffer_info()[0]
        # Its code depends on Triton and the GPU, too.
        function: Callable[..., int] = builtin(name, _emitter(self._entry), address, self, False)
        return function


class BoundBlock(Block):
    """The builtin `run(addresses, stream)` of one plan's launches. With `scratch`, so many bytes of memory and what takes it and gives it
    back, the memory's address follows the others."""

    def __init__(
        self,
        launches: Sequence[tuple[Sequence[PointerArg | None], int]],
        scratch: tuple[int, Any, Any] | None = None,
    ) -> None:
        last = max([slot.place for slots, _ in launches for slot in slots if slot], default=0)
        super().__init__(BoundEntry, last + (scratch is None), len(launches))
        for step, (slots, arguments) in enumerate(launches):
            self.take_step(step, slots, arguments)
        if scratch is not None:
            size, allocate, release = scratch
            self.take_scratch(allocate, release, size)

    @staticmethod
    def takes(launches: Sequence[tuple[Sequence[PointerArg | None], int]]) -> bool:
        """Whether a block has room for launches with such pointers, and so many arguments."""
        places = [slot.place for slots, _ in launches for slot in slots if slot]
        return (
            len(launches) <= at.MAX_STEPS
            and max(places, default=0) < at.MAX_ADDRESSES
            and all(takes(*own) for own in launches)
        )

    def fill(self, step: int, kernel: native.Kernel, grid: int, numbers: Sequence[Any]) -> None:
        """From now on, launch this kernel for addresses that are aligned."""
        begin = at.HEADER + step * at.BOUND_SLOTS
        words = kernel.words(numbers)[: len(numbers)]
        self._block[begin + at.BOUND_GRID] = grid
        for place, word in enumerate(words, begin + at.BOUND_VALUES):
            self._block[place] = word
        self.enter(step, kernel, [0] * KEY_WORDS, 1)


def takes(slots: Sequence[PointerArg | None], values: int) -> bool:
    """Whether a block has room for a launch."""
    return len(slots) <= at.MAX_POINTERS and values <= at.MAX_VALUES


def _emitter(entry: type[Entry]) -> EmitBuiltin:
    def emit(code: Code, control: Array, given: Array, number: Value) -> None:
        entry(code, control).write(given, number)

    return emit
