"""Steps: one launch each, from a runner's addresses to a kernel's pointers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from operator import add, itemgetter
from typing import Any

from openaclnn.engines.gpu.launching.launch import VECTOR_BYTES, Launch, PointerArg
from openaclnn.engines.gpu.launching.variants import Pointer, Start, variant_of

__all__ = [
    "Runner", "Step", "interpreted_step", "is_interpreted", "offsets_of", "places_of", "step_of_launch",
]  # fmt: skip

NO_POINTER = -1  # the place of what the kernel has no use for; addresses end with a 0 for it

Step = Callable[[Sequence[int], int, int], None]  # of addresses, a stream and its device
Runner = Callable[[Sequence[int], int], int]  # of addresses and a stream
Ready = Callable[[Any, Launch], None]  # of a native.Kernel and what is launched of it


def places_of(slots: Sequence[PointerArg | None]) -> Callable[[Sequence[int]], tuple[int, ...]]:
    """What picks a kernel's pointers out of addresses that end with a 0."""
    places = [NO_POINTER if slot is None else slot.place for slot in slots]
    if len(places) == 1:  # of which `itemgetter` makes no tuple
        return lambda addresses: (addresses[places[0]],)
    return itemgetter(*places)


def offsets_of(slots: Sequence[PointerArg | None], pointers: Sequence[int]) -> tuple[int, ...]:
    """How far pointers are off a vector's bounds where that matters."""
    return tuple(
        [
            pointer % VECTOR_BYTES if slot is not None and slot.wide else 0
            for pointer, slot in zip(pointers, slots, strict=True)
        ]
    )


def _chosen(launch: Launch, offsets: Sequence[int]) -> Launch:
    """The launch, or what takes over from it for pointers off a vector's bounds by these many bytes."""
    return launch if launch.at is None else launch.at(offsets)


def step_of_launch(launch: Launch, ready: Ready | None = None) -> Step:
    """What queues a launch; kernels are compiled as addresses ask for them, and kept.

    `ready` is told the one for aligned addresses.
    """
    slots = launch.spec.slots
    pick = places_of(slots)
    shifts = tuple([0 if slot is None else slot.shift for slot in slots])
    moved = any(shifts)
    aligned: dict[int, tuple[Start, Launch]] = {}
    others: dict[tuple[int, ...], tuple[Start, Launch]] = {}

    def find(pointers: Sequence[int], device: int) -> tuple[Start, Launch]:
        offsets = offsets_of(slots, pointers)
        key = (device, *offsets)
        found = others.get(key)
        if found is None:
            own = _chosen(launch, offsets)
            variant = variant_of(own, offsets, device)
            found = others[key] = variant.start, own
            if not any(offsets):
                aligned[device] = found
                if ready is not None and variant.native is not None:
                    ready(variant.native, own)
        return found

    def step(addresses: Sequence[int], stream: int, device: int) -> None:
        pointers = pick(addresses)
        if moved:
            pointers = tuple(map(add, pointers, shifts))
        bits = 0
        for pointer in pointers:
            bits |= pointer
        found = None if bits % VECTOR_BYTES else aligned.get(device)
        if found is None:
            found = find(pointers, device)
        start, own = found
        start(own.grid, stream, *pointers, *own.numbers)

    return step


def is_interpreted(kernel: Any) -> bool:
    return isinstance(kernel, _interpreted_kind())


@functools.cache
def _interpreted_kind() -> Any:
    from triton.runtime.interpreter import InterpretedFunction

    return InterpretedFunction


def interpreted_step(launch: Launch) -> Step:
    def step(addresses: Sequence[int], stream: int, device: int) -> None:
        pointers = [
            None if slot is None else Pointer(addresses[slot.place] + slot.shift, slot.dtype)
            for slot in launch.spec.slots
        ]
        offsets = [0 if pointer is None else pointer.address % VECTOR_BYTES for pointer in pointers]
        own = _chosen(launch, offsets)
        spec = own.spec
        constexprs = (*spec.constexprs, *own.constexprs)
        if spec.overlapped is not None:
            constexprs = (False, *constexprs)
        # What programs of a cluster would wait for is there the second time.
        for _ in range(min(own.cluster, 2)):
            spec.kernel[(own.grid,)](*pointers, *own.numbers, *constexprs)

    return step
