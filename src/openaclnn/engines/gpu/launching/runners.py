"""Launches queued by Python: all of one plan, in order, on the device and stream they belong to; or, with what sizes decide told at every
call, a kernel's.

A launch's constexprs and alignments select a compiled variant, which is found when it first comes up. Python queues what machine code is not
ready for, and tells it of the variants that it found: a prepared plan, which has its launches ready for one shape, is a builtin where it can be
(`code.py`), and `launchers/code.py` makes builtins for any sizes.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import triton

from openaclnn.engines.gpu.launching import native, scratch
from openaclnn.engines.gpu.launching.launch import VECTOR_BYTES, Launch
from openaclnn.engines.gpu.launching.variants import Pointer, variant_of

Runner = Callable[[Sequence[int], int], int]  # of addresses and a stream
Ready = Callable[[Launch, Any, int], None]
"""Of a launch whose variant was found, its native.Kernel, and a bit for each pointer that it takes as off a vector's bounds."""


def queue(launch: Launch, ready: Ready | None, addresses: Sequence[int], stream: int) -> None:
    """Start one launch on the current device; its variant is compiled where there is none yet."""
    spec = launch.spec
    slots = spec.slots
    pointers = [0 if slot is None else addresses[slot.place] + slot.shift for slot in slots]
    if _interprets():
        _interpret(launch, pointers)
        return
    misaligned = [
        bool(slot and slot.wide and launch.aligned and pointer % VECTOR_BYTES)
        for slot, pointer in zip(slots, pointers, strict=True)
    ]
    variant = variant_of(launch, misaligned)
    if ready is not None and variant.native is not None:
        passed = [off for off, slot in zip(misaligned, slots, strict=True) if slot is not None]
        ready(launch, variant.native, sum(off << place for place, off in enumerate(passed)))
    variant.start(launch.grid, stream, *pointers, *launch.numbers)


@functools.cache
def _interprets() -> bool:
    """Whether this process's kernels are interpreted, as was decided when they were made."""
    return bool(triton.knobs.runtime.interpret)


def _interpret(launch: Launch, pointers: Sequence[int]) -> None:
    spec = launch.spec
    tensors = [
        slot and Pointer(pointer, slot.dtype)
        for slot, pointer in zip(spec.slots, pointers, strict=True)
    ]
    overlapped = () if spec.overlapped is None else (False,)
    # What programs of a cluster would wait for is there the next time; those of row formulas wait for up to three reductions.
    for _ in range(1 if spec.cluster == 1 else 4):
        spec.kernel[(launch.grid,)](
            *tensors, *launch.numbers, *overlapped, *spec.constexprs, *launch.constexprs
        )


def queue_all(
    steps: Iterable[tuple[Launch, Ready | None]], addresses: Sequence[int], stream: int, scratch_bytes: int = 0, places: Sequence[int] = (0,)
) -> int:  # fmt: skip
    """All launches, in order; scratch memory has pointers at these places behind those to operands."""
    with scratch.lent(scratch_bytes, stream) as memory:
        addresses = (*addresses, *[memory + at for at in places])
        for launch, ready in steps:
            queue(launch, ready, addresses, stream)
    return 0


# All launches of a plan.

LaunchesAt = Callable[[Mapping[int, int]], Sequence[Launch]]
"""Of how many bytes operands are off a vector's bounds, by their places, where that matters."""


def runner_of(
    launches: Sequence[Launch], scratch_bytes: int = 0, launches_at: LaunchesAt | None = None
) -> Runner:
    """What queues the launches, in order, on a stream of the device where the output lies; a builtin once their kernels are compiled, if they can be.

    They are those for aligned addresses, where `launches_at` says what takes their place elsewhere; without it, these decide a kernel's variant alone.
    """
    return on_each_device(lambda: _runner(launches, scratch_bytes, launches_at))


def _runner(
    launches: Sequence[Launch], scratch_bytes: int, launches_at: LaunchesAt | None
) -> Runner:
    """The same on the current device."""
    block = _block_of(launches, scratch_bytes, launches_at is not None)
    steps = [
        (launch, block and functools.partial(block.fill, step))
        for step, launch in enumerate(launches)
    ]
    slots = [
        *{slot: None for launch in launches for slot in launch.spec.slots if slot and slot.wide}
    ]
    others: dict[tuple[int, ...], Runner] = {}

    def run(addresses: Sequence[int], stream: int = 0) -> int:
        offsets = tuple([(addresses[slot.place] + slot.shift) % VECTOR_BYTES for slot in slots])
        if launches_at is None or not any(offsets):
            return queue_all(steps, addresses, stream, scratch_bytes)
        if offsets not in others:
            places = [slot.place for slot in slots]
            moved = launches_at(dict(zip(places, offsets, strict=True)))
            others[offsets] = _runner(moved, scratch_bytes, None)
        return others[offsets](addresses, stream)

    return run if block is None else block.function(run)


def _block_of(launches: Sequence[Launch], scratch_bytes: int, at_bounds: bool) -> Any:
    """The block of a builtin; None where there can be none. `at_bounds`: it serves aligned addresses alone, even where they decide no variant."""
    if not can_be_emitted():
        return None
    from openaclnn.engines.gpu.launching.code import BoundBlock, NoRoomError

    several = [
        ([slot and slot._replace(wide=slot.wide and (launch.aligned or at_bounds)) for slot in launch.spec.slots], len(launch.numbers))
        for launch in launches
    ]  # fmt: skip
    try:
        return BoundBlock(several, (scratch_bytes, *scratch.functions()) if scratch_bytes else None)
    except NoRoomError:
        return None


def can_be_emitted() -> bool:
    """Whether machine code can call the driver."""
    return not triton.knobs.runtime.interpret and native.driver() is not None


# Several devices.


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


def on_each_device(make: Callable[[], Callable[..., int]]) -> Callable[..., int]:
    """The runner that `make` makes for the current device: of several, for each on which an output lies."""
    library = None if triton.knobs.runtime.interpret else device_library()
    if library is None:
        return make()
    from triton.runtime import driver

    active = driver.active
    runners: dict[int, Callable[..., int]] = {}

    def run(addresses: Sequence[int], stream: int = 0, *more: Any) -> int:
        device, current = _device_of(library, addresses[-1]), active.get_current_device()
        if device != current:
            active.set_current_device(device)
        try:
            if device not in runners:
                runners[device] = make()
            return runners[device](addresses, stream, *more)
        finally:
            if device != current:
                active.set_current_device(current)

    return run
