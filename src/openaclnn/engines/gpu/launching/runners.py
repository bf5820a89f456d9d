"""Queues launches by Python, in order, on a stream of the device where the output lies.

The constexprs and alignments of a launch select a compiled variant. Machine code queues launches whose variants it knows: `code.py` those of one plan,
`launchers/code.py` those of dynamic shapes and strides. All other calls come here; Python compiles the variants that are missing, and enters them into the machine code's
block, so that the next such call does not come here again.
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

Runner = Callable[[Sequence[int], int], int]  # of addresses and a stream; returns 0
EnterVariant = Callable[[Launch, Any, int], None]
"""Enters a compiled variant into the machine code's block: of a launch, its native.Kernel, and a bit for each misaligned pointer."""


def queue(launch: Launch, enter: EnterVariant | None, addresses: Sequence[int], stream: int) -> None:  # fmt: skip
    """Start one launch on the current device; its variant is compiled if it is missing."""
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
    if enter is not None and variant.native is not None:
        passed = [off for off, slot in zip(misaligned, slots, strict=True) if slot is not None]
        enter(launch, variant.native, sum(off << place for place, off in enumerate(passed)))
    variant.start(launch.grid, stream, *pointers, *launch.numbers)


@functools.cache
def _interprets() -> bool:
    """Whether Triton interprets kernels in this process, which it decides when they are defined."""
    return bool(triton.knobs.runtime.interpret)


def _interpret(launch: Launch, pointers: Sequence[int]) -> None:
    spec = launch.spec
    tensors = [
        slot and Pointer(pointer, slot.dtype)
        for slot, pointer in zip(spec.slots, pointers, strict=True)
    ]
    overlapped = () if spec.overlapped is None else (False,)
    # The interpreter runs programs one after the other. What a program of a cluster would wait for is in memory the next time; row formulas wait up to three times.
    for _ in range(1 if spec.cluster == 1 else 4):
        spec.kernel[(launch.grid,)](
            *tensors, *launch.numbers, *overlapped, *spec.constexprs, *launch.constexprs
        )


def queue_all(
    steps: Iterable[tuple[Launch, EnterVariant | None]], addresses: Sequence[int], stream: int, scratch_bytes: int = 0, scratch_offsets: Sequence[int] = (0,)
) -> int:  # fmt: skip
    """Queue all launches in order. Behind the operands' addresses they find those of the scratch memory, one at each of its offsets."""
    with scratch.lent(scratch_bytes, stream) as memory:
        addresses = (*addresses, *[memory + offset for offset in scratch_offsets])
        for launch, enter in steps:
            queue(launch, enter, addresses, stream)
    return 0


# All launches of a plan.

LaunchesAt = Callable[[Mapping[int, int]], Sequence[Launch]]
"""The launches for misaligned operands: of by how many bytes each is misaligned, by its index."""


def runner_of(
    launches: Sequence[Launch], scratch_bytes: int = 0, launches_at: LaunchesAt | None = None
) -> Runner:
    """The runner that queues the launches in order, a builtin if there can be one.

    With `launches_at`, these launches serve aligned addresses, and it has those that serve misaligned ones; without it, they serve all.
    """
    return on_each_device(lambda: _runner(launches, scratch_bytes, launches_at))


def _runner(
    launches: Sequence[Launch], scratch_bytes: int, launches_at: LaunchesAt | None
) -> Runner:
    """`runner_of` for the current device."""
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


def _block_of(launches: Sequence[Launch], scratch_bytes: int, aligned_only: bool) -> Any:
    """The block of the launches' builtin; None where there can be none. `aligned_only`: it does not serve misaligned addresses, even if they change no variant."""
    if not can_be_emitted():
        return None
    from openaclnn.engines.gpu.launching.code import BoundBlock, NoRoomError

    parameters = [
        ([slot and slot._replace(wide=slot.wide and (launch.aligned or aligned_only)) for slot in launch.spec.slots], len(launch.numbers))
        for launch in launches
    ]  # fmt: skip
    try:
        memory = (scratch_bytes, *scratch.functions()) if scratch_bytes else None
        return BoundBlock(parameters, memory)
    except NoRoomError:
        return None


def can_be_emitted() -> bool:
    """Whether machine code can launch: kernels are compiled, and it can call the driver."""
    return not triton.knobs.runtime.interpret and native.driver() is not None


# Several devices.


@functools.cache
def device_library() -> Any:
    """The CUDA driver if there are several devices; None if there is one."""
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
    """The runner that `make` makes for the current device. Where there are several, one that switches to the output's device and has a runner for each."""
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
