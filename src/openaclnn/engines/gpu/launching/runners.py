"""Launches queued by Python: all of one plan, in order, on the device and stream they belong to; or, with what sizes decide told at every
call, a kernel's.

A queue starts a kernel's launches: their constexprs and alignments select a compiled variant, which is found when it first comes up. A
prepared plan has its launches ready for one shape, and is a builtin where it can be (`code.py`); `launchers/code.py` makes builtins for any
sizes, of the variants that were found here.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import add, attrgetter, itemgetter, or_
from typing import Any, TypeVar

import triton

from openaclnn.core.plan import BoundedCache, Plan, exactly, told_of
from openaclnn.engines.gpu.launching import scratch
from openaclnn.engines.gpu.launching.launch import VECTOR_BYTES, KernelSpec, Launch, PointerArg
from openaclnn.engines.gpu.launching.variants import Pointer, Start, kinds_of, variant_of

NO_POINTER = -1  # the place of what the kernel has no use for; addresses end with a 0 for it

Runner = Callable[[Sequence[int], int], int]  # of addresses and a stream
Queue = Callable[[Sequence[int], int, int, Launch, Any], None]
"""Of addresses (a 0 last), a stream, its device, a launch, and what tells its variant from those of the queue's other launches, but for addresses."""
QueuedLaunch = tuple[Queue, Launch, Any]
Ready = Callable[[Launch, Any, int], None]
"""Of a launch whose variant was found, its native.Kernel, and a bit for each pointer that it takes as off a vector's bounds."""


def _places_of(slots: Sequence[PointerArg | None]) -> Callable[[Sequence[int]], tuple[int, ...]]:
    """What picks a kernel's pointers out of addresses that end with a 0."""
    places = [NO_POINTER if slot is None else slot.place for slot in slots]
    if len(places) == 1:  # of which `itemgetter` makes no tuple
        return lambda addresses: (addresses[places[0]],)
    return itemgetter(*places)


def _offsets_of(slots: Sequence[PointerArg | None], pointers: Sequence[int]) -> tuple[int, ...]:
    """How far pointers are off a vector's bounds where that matters."""
    return tuple(
        [
            pointer % VECTOR_BYTES if slot is not None and slot.wide else 0
            for pointer, slot in zip(pointers, slots, strict=True)
        ]
    )


def queue_of(spec: KernelSpec, ready: Ready | None = None) -> Queue:
    """What queues a kernel's launches on the current device; variants are compiled as they are asked for, and kept."""
    if _is_interpreted(spec.kernel):
        return functools.partial(_interpret, spec)
    slots, pick = spec.slots, _places_of(spec.slots)
    shifts = tuple([0 if slot is None else slot.shift for slot in slots])
    moved = any(shifts)
    known: dict[tuple[Any, ...], Start] = {}

    def queue(addresses: Sequence[int], stream: int, device: int, launch: Launch, key: Any) -> None:
        pointers = pick(addresses)
        if moved:
            pointers = tuple(map(add, pointers, shifts))
        bits = 0
        for pointer in pointers:
            bits |= pointer
        offsets = _offsets_of(slots, pointers) if launch.aligned and bits % VECTOR_BYTES else ()
        start = known.get((device, key, offsets))
        if start is None:
            variant = variant_of(launch, offsets or (0,) * len(slots), device)
            start = known[device, key, offsets] = variant.start
            if ready is not None and variant.native is not None:
                passed = [off for off, slot in zip(offsets, slots, strict=False) if slot is not None]  # fmt: skip
                misaligned = sum(1 << place for place, off in enumerate(passed) if off)
                ready(launch, variant.native, misaligned)
        start(launch.grid, stream, *pointers, *launch.numbers)

    return queue


def _is_interpreted(kernel: Any) -> bool:
    return isinstance(kernel, _interpreted_kind())


@functools.cache
def _interpreted_kind() -> Any:
    from triton.runtime.interpreter import InterpretedFunction

    return InterpretedFunction


def _interpret(
    spec: KernelSpec, addresses: Sequence[int], stream: int, device: int, launch: Launch, key: Any
) -> None:
    pointers = [
        None if slot is None else Pointer(addresses[slot.place] + slot.shift, slot.dtype)
        for slot in spec.slots
    ]
    overlapped = () if spec.overlapped is None else (False,)
    # What programs of a cluster would wait for is there the next time; those of row formulas wait for up to three reductions.
    for _ in range(1 if spec.cluster == 1 else 4):
        spec.kernel[(launch.grid,)](
            *pointers, *launch.numbers, *overlapped, *spec.constexprs, *launch.constexprs
        )


def queue_all(
    steps: Iterable[QueuedLaunch], addresses: Sequence[int], stream: int, device: int = 0,
    scratch_bytes: int = 0, places: Sequence[int] = (0,),
) -> int:  # fmt: skip
    """All launches, in order; scratch memory has pointers at these places behind those to operands."""
    if scratch_bytes:
        memory = scratch.allocate(scratch_bytes, stream)
        try:
            addresses = (*addresses, *[memory + at for at in places])
            return queue_all(steps, addresses, stream, device)
        finally:
            scratch.release(memory)
    pointers = (*addresses, 0)
    for queue, launch, key in steps:
        queue(pointers, stream, device, launch, key)
    return 0


def key_of(launch: Launch) -> tuple[Any, ...]:
    """What tells a launch's variant from others of the same spec, but for addresses."""
    return launch.constexprs, launch.warps, launch.aligned, kinds_of(launch.numbers)


@contextlib.contextmanager
def _lent(size: int, stream: int) -> Iterator[int]:
    memory = scratch.allocate(size, stream) if size else 0
    try:
        yield memory
    finally:
        if size:
            scratch.release(memory)


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


LaunchesAt = Callable[[Mapping[int, int]], Sequence[Launch]]
"""Of how many bytes operands are off a vector's bounds, by their places, where that matters."""


def runner_of(
    launches: Sequence[Launch], scratch_bytes: int = 0, launches_at: LaunchesAt | None = None
) -> Runner:
    """What queues the launches, in order, on a stream of the device where the output lies; a builtin once their kernels are compiled, if they can be.

    They are those for aligned addresses, where `launches_at` says what takes their place elsewhere; without it, these decide a kernel's variant alone.
    """
    interpreted = _is_interpreted(launches[0].spec.kernel)
    library = None if interpreted else device_library()
    block = None
    if not interpreted and library is None:
        block = _block_of(launches, scratch_bytes, launches_at is not None)
    aligned: list[QueuedLaunch] = [
        (queue_of(launch.spec, block and functools.partial(_fill, block, step)), launch, None)
        for step, launch in enumerate(launches)
    ]
    slots = [
        *{slot: None for launch in launches for slot in launch.spec.slots if slot and slot.wide}
    ]
    shifts = functools.reduce(or_, [slot.shift for slot in slots], 0)
    known: dict[tuple[int, ...], list[QueuedLaunch]] = {}

    def steps_at(addresses: Sequence[int]) -> list[QueuedLaunch]:
        offsets = tuple([(addresses[slot.place] + slot.shift) % VECTOR_BYTES for slot in slots])
        if not any(offsets) or launches_at is None:
            return aligned
        if offsets not in known:
            places = [slot.place for slot in slots]
            others = launches_at(dict(zip(places, offsets, strict=True)))
            known[offsets] = [(queue_of(other.spec), other, None) for other in others]
        return known[offsets]

    def run(addresses: Sequence[int], stream: int = 0, device: int = 0) -> int:
        steps = aligned
        if launches_at is not None:
            bits = shifts
            for address in addresses:
                bits |= address
            if bits % VECTOR_BYTES:
                steps = steps_at(addresses)
        return queue_all(steps, addresses, stream, device, scratch_bytes)

    if block is not None:
        runner: Runner = block.function(run)
        return runner
    return run if library is None else _device_runner(run, library)


def _block_of(launches: Sequence[Launch], scratch_bytes: int, at_bounds: bool) -> Any:
    """The block of a builtin; None where there can be none. `at_bounds`: it serves aligned addresses alone, even where they decide no variant."""
    try:
        from openaclnn.engines.gpu.launching.code import BoundBlock
        from openaclnn.engines.gpu.launching.native import driver
    except ImportError:  # no llvmlite
        return None
    several = [
        ([slot and slot._replace(wide=slot.wide and (launch.aligned or at_bounds)) for slot in launch.spec.slots], len(launch.numbers))
        for launch in launches
    ]  # fmt: skip
    if driver() is None or not BoundBlock.takes(several):
        return None
    return BoundBlock(several, (scratch_bytes, *scratch.functions()) if scratch_bytes else None)


def _fill(block: Any, step: int, launch: Launch, kernel: Any, misaligned: int) -> None:
    block.fill(step, kernel, launch.grid, launch.numbers, misaligned)


def with_memory(make: Callable[[Any], Runner]) -> Runner:
    """What `make` makes of scratch memory on the device where the output lies: a function of bytes and a stream."""
    run = make(_lent)
    library = None if triton.knobs.runtime.interpret else device_library()
    if library is None:
        return run
    return _device_runner(lambda addresses, stream, device: run(addresses, stream), library)


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


def can_be_queued() -> bool:
    """Whether there is one device, or the interpreter: nobody asks which device an address is on."""
    return bool(triton.knobs.runtime.interpret) or device_library() is None


_remembered: BoundedCache[tuple[Any, ...], Any] = BoundedCache(256)
Made = TypeVar("Made")


def remembered(plan: Plan, make: Callable[[Plan, bool], Made], strided: bool = False) -> Made:
    """What `make` gives for a plan, or gave for another of its kind: one that differs in sizes, or in strides, alone."""
    strides = () if plan.classes or strided else map(_strides_of, plan.operands)
    key = (
        make, strided, plan.kernel, plan.compute, plan.class_axis, plan.reduction, plan.reciprocal, plan.free,
        exactly(plan.numbers, plan.reciprocal), *map(told_of, plan.operands), *strides,
    )  # fmt: skip
    kept: Made | None = _remembered.get(key)
    if kept is None:
        kept = _remembered[key] = make(plan, strided)
    return kept


_strides_of = attrgetter("strides")
