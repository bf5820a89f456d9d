"""Launches queued by Python: all of one plan, in order, on the device and stream they belong to; or, with what sizes decide told at every
call, a kernel's.

A step is one launch, from a runner's addresses to a kernel's pointers. A prepared plan has its steps ready for one shape, and is a builtin
where it can be (`blocks.py`). A queue has nothing ready: sizes select a compiled variant, which is found by its constexprs, and the rest are
numbers among its arguments; `launchers/code.py` does the same in machine code, for the variants that were found here.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable, Iterator, Sequence
from operator import add, attrgetter, itemgetter
from typing import Any, TypeVar

import triton

from openaclnn.core.plan import BoundedCache, Plan, exactly, told_of
from openaclnn.engines.gpu.launching import scratch
from openaclnn.engines.gpu.launching.launch import (
    INT32_LIMIT,
    VECTOR_BYTES,
    KernelSpec,
    Launch,
    PointerArg,
)
from openaclnn.engines.gpu.launching.variants import Pointer, Start, kinds_of, variant_of

__all__ = [
    "NOT_SERVED", "Queue", "Ready", "Runner", "DynamicShapes", "can_be_queued", "device_library", "is_interpreted", "queue_of", "remembered",
    "runner_of",
]  # fmt: skip

NO_POINTER = -1  # the place of what the kernel has no use for; addresses end with a 0 for it

Step = Callable[[Sequence[int], int, int], None]  # of addresses, a stream and its device
Runner = Callable[[Sequence[int], int], int]  # of addresses and a stream


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


def _step_of_launch(launch: Launch, ready: Callable[[Any, Launch], None] | None = None) -> Step:
    """What queues a launch; kernels are compiled as addresses ask for them, and kept.

    `ready` is told the one for aligned addresses, and what is launched of it.
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


def _interpreted_step(launch: Launch) -> Step:
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
        # What programs of a cluster would wait for is there the next time; those of row formulas wait for up to three reductions.
        for _ in range(1 if own.together == 1 else 2 if spec.cluster == 1 else 4):
            spec.kernel[(own.grid,)](*pointers, *own.numbers, *constexprs)

    return step


# All launches of a plan.


@functools.cache
def device_library() -> Any:
    """The CUDA driver where there are several devices to tell apart; None where there is one."""
    library = ctypes.CDLL("libcuda.so.1")
    count = ctypes.c_int()
    failed = library.cuInit(0) or library.cuDeviceGetCount(ctypes.byref(count))
    if failed:
        raise RuntimeError(f"the CUDA driver does not tell its devices: error {failed}")
    return library if count.value > 1 else None


_DEVICE_ORDINAL = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL


def _device_of(library: Any, address: int) -> int:
    ordinal = ctypes.c_int()
    failed = library.cuPointerGetAttribute(
        ctypes.byref(ordinal), _DEVICE_ORDINAL, ctypes.c_uint64(address)
    )
    if failed:
        raise ValueError(f"{address:#x} is no address of CUDA memory: error {failed}")
    return ordinal.value


def runner_of(launches: Sequence[Launch], scratch_bytes: int = 0) -> Runner:
    """What queues the launches, in order, on a stream of the device where the output lies."""
    interpreted = is_interpreted(launches[0].spec.kernel)
    library = None if interpreted else device_library()
    if not interpreted and library is None:
        return _one_device_runner(launches, scratch_bytes)
    step_of = _interpreted_step if interpreted else _step_of_launch
    run = _with_scratch(_sequence([step_of(launch) for launch in launches]), scratch_bytes)
    return run if library is None else _device_runner(run, library)


def _sequence(steps: Sequence[Step]) -> Callable[..., int]:
    """What runs all steps, one after the other, on the current device."""

    def run(addresses: Sequence[int], stream: int = 0, device: int = 0) -> int:
        given = (*addresses, 0)
        for step in steps:
            step(given, stream, device)
        return 0

    return run


def _one_device_runner(launches: Sequence[Launch], scratch_bytes: int) -> Runner:
    """The common case: one device. The launches are a builtin once their kernels are compiled, if they can be."""
    steps: list[Step] = []
    run = _with_scratch(_sequence(steps), scratch_bytes)
    native = _native(launches, scratch_bytes)
    for index, launch in enumerate(launches):
        steps.append(_step_of_launch(launch, None if native is None else _filling(native, index)))
    return run if native is None else native.function(run)


def _filling(native: Any, index: int) -> Callable[[Any, Launch], None]:
    def ready(kernel: Any, launch: Launch) -> None:
        native.fill(index, kernel, launch.grid, launch.numbers)

    return ready


def _native(launches: Sequence[Launch], scratch_bytes: int) -> Any:
    try:
        from openaclnn.engines.gpu.launching.blocks import BoundBlock
        from openaclnn.engines.gpu.launching.native import driver
    except ImportError:  # no llvmlite
        return None
    several = [(launch.spec.slots, len(launch.numbers)) for launch in launches]
    if driver() is None or not BoundBlock.takes(several):
        return None
    memory = (scratch_bytes, *scratch.functions()) if scratch_bytes else None
    return BoundBlock(several, memory)


def _with_scratch(run: Callable[..., int], scratch_bytes: int) -> Callable[..., int]:
    if not scratch_bytes:
        return run

    def run_with_scratch(addresses: Sequence[int], stream: int = 0, *device: int) -> int:
        memory = scratch.allocate(scratch_bytes, stream)
        try:
            return run((*addresses, memory), stream, *device)
        finally:
            scratch.release(memory)

    return run_with_scratch


def with_memory(make: Callable[[Any], Runner]) -> Runner:
    """What `make` makes of scratch memory on the device where the output lies: a function of bytes and a stream."""
    run = make(_lent)
    library = None if triton.knobs.runtime.interpret else device_library()
    if library is None:
        return run
    return _device_runner(lambda addresses, stream, device: run(addresses, stream), library)


@contextlib.contextmanager
def _lent(size: int, stream: int) -> Iterator[int]:
    memory = scratch.allocate(size, stream) if size else 0
    try:
        yield memory
    finally:
        if size:
            scratch.release(memory)


def _device_runner(queue: Callable[..., int], library: Any) -> Runner:
    from triton.runtime import driver

    active = driver.active

    def run(addresses: Sequence[int], stream: int = 0) -> int:
        device = _device_of(library, addresses[-1])
        current = active.get_current_device()
        if device == current:
            return queue(addresses, stream, device)
        active.set_current_device(device)
        try:
            return queue(addresses, stream, device)
        finally:
            active.set_current_device(current)

    return run


# Launches of any size.

DynamicShapes = Callable[[Sequence[int], int, Sequence[int], Sequence[Any]], int]
"""Of addresses, a stream, the shape, and the plan's free numbers; without these, the plan's own hold."""

NOT_SERVED = 1
"""What a runner of any strides returns where there are more axes than it takes."""

Queue = Callable[..., None]  # of addresses (a 0 last, if it is needed), a stream, and `Sizes`


def can_be_queued() -> bool:
    """Whether there is one device, or the interpreter: nobody asks which device an address is on."""
    return bool(triton.knobs.runtime.interpret) or device_library() is None


Ready = Callable[[tuple[Any, ...], int, Any, int], None]
"""Of constexprs, warps, a native.Kernel, and a bit for each pointer that it takes as off a vector's bounds."""


def queue_of(spec: KernelSpec, ready: Ready | None = None) -> Queue:
    """What queues the kernel on the one device there is. Slots must have no shifts.

    `ready` is told the kernels for numbers of 32 bits.
    """
    if is_interpreted(spec.kernel):
        return _interpreted_queue(spec)
    slots, pick = spec.slots, places_of(spec.slots)
    found: dict[tuple[Any, ...], Start] = {}

    def queue(
        addresses: Sequence[int],
        stream: int,
        grid: int,
        numbers: Any,
        constexprs: Any,
        warps: int,
    ) -> None:
        pointers = pick(addresses)
        bits = 0
        for pointer in pointers:
            bits |= pointer
        key: tuple[Any, ...] = (constexprs, warps)
        large = bool(numbers) and (max(numbers) >= INT32_LIMIT or min(numbers) < -INT32_LIMIT)
        if bits % VECTOR_BYTES or large:
            key = (constexprs, warps, offsets_of(slots, pointers), kinds_of(numbers))
        start = found.get(key)
        if start is None:
            offsets = offsets_of(slots, pointers)
            launch = Launch(spec, grid, numbers, constexprs, warps)
            variant = variant_of(launch, offsets, 0)
            start = found[key] = variant.start
            if ready is not None and variant.native is not None and not large:
                own = [off for off, slot in zip(offsets, slots, strict=True) if slot is not None]
                misaligned = sum(1 << place for place, off in enumerate(own) if off)
                ready(constexprs, warps, variant.native, misaligned)
        start(grid, stream, *pointers, *numbers)

    return queue


def _interpreted_queue(spec: KernelSpec) -> Queue:
    def queue(addresses: Sequence[int], stream: int, *sizes: Any) -> None:
        _interpreted_step(Launch(spec, *sizes))(addresses, stream, 0)

    return queue


_remembered: BoundedCache[tuple[Any, ...], Any] = BoundedCache(256)
Made = TypeVar("Made")


def remembered(plan: Plan, make: Callable[[Plan], Made], strided: bool = False) -> Made:
    """What `make` gives for a plan, or gave for another of its kind: one that differs in sizes, or in strides, alone."""
    strides = () if plan.classes or strided else map(_strides_of, plan.operands)
    key = (
        make, plan.kernel, plan.compute, plan.class_axis, plan.reduction, plan.reciprocal, plan.free,
        exactly(plan.numbers, plan.reciprocal), *map(told_of, plan.operands), *strides,
    )  # fmt: skip
    found: Made | None = _remembered.get(key)
    if found is None:
        found = _remembered[key] = make(plan)
    return found


_strides_of = attrgetter("strides")
