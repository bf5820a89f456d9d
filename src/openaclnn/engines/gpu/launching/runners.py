"""Runners: the launches of a plan, in order, on the device and stream they belong to."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

from openaclnn.engines.gpu.launching import scratch
from openaclnn.engines.gpu.launching.launch import Launch
from openaclnn.engines.gpu.launching.steps import (
    Runner,
    Step,
    interpreted_step,
    is_interpreted,
    step_of_launch,
)

__all__ = ["device_library", "runner_of"]


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
    step_of = interpreted_step if interpreted else step_of_launch
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
        steps.append(step_of_launch(launch, None if native is None else _filling(native, index)))
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
