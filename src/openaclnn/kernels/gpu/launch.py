"""Launching: compiled variants of a kernel, the device and stream they go to, and scratch memory.

Triton's own call path binds, specialises and looks up a kernel on every call: 16-22 us on the H200's
host. A plan fixes everything but the addresses, so the compiled kernel is found once per plan and
called with bare integers: 6.4 us, of which 5.5 are Triton's C function (torch's elu_backward: 12).
"""

from __future__ import annotations

import copy
import ctypes
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import add, itemgetter
from typing import Any, NamedTuple

__all__ = ["Launch", "Slot", "power_of_two_divisor", "runner_of", "set_scratch_allocator"]

VECTOR_BYTES = 16  # the widest load of one thread; Triton asks whether pointers are multiples of it

Allocate = Callable[[int, int, int], int]
Release = Callable[[int], None]


class Slot(NamedTuple):
    """A pointer parameter: which address it takes, how far from it the data begin, and of what type."""

    place: int  # in the runner's addresses; the one past the last is the scratch memory
    dtype: str
    shift: int = 0  # bytes
    wide: bool = False  # read or written by vectors, which pays if the address is aligned


@dataclass(frozen=True)
class Launch:
    """One kernel with all its arguments but the addresses. Kernels take pointers, numbers, constants."""

    kernel: Any
    programs: int
    slots: tuple[Slot | None, ...]  # None: the kernel has no use for the pointer
    numbers: tuple[int | float, ...]
    constants: Mapping[str, Any]  # OVERLAPPED, where there is one, is false if the device cannot
    warps: int
    follows: bool = False  # may start while the launch before it ends; the kernel itself waits
    # What takes over where these slots' addresses are off a vector's bounds, all by as much; if
    # ragged, where they are not off, too.
    shifted: Launch | None = None
    together: tuple[int, ...] = ()
    ragged: bool = False


class _Pointer:
    """An address that Triton takes for a tensor: when it specialises, and when it interprets."""

    def __init__(self, address: int, dtype: str) -> None:
        self.address = address
        self.dtype = dtype

    def data_ptr(self) -> int:
        return self.address

    # The interpreter copies tensors to the host and back. Host memory is there already, so what
    # it asks of a tensor and of its storage all answer with this same object.
    def untyped_storage(self) -> _Pointer:
        return self

    def cpu(self) -> _Pointer:
        return self

    def new_empty(self, *sizes: int, device: str) -> _Pointer:
        return self

    def storage_offset(self) -> int:
        return 0

    def size(self) -> tuple[int, ...]:
        return (1,)

    def stride(self) -> tuple[int, ...]:
        return (1,)

    def set_(self, *view: Any) -> None: ...

    def copy_(self, source: Any) -> None: ...


def power_of_two_divisor(numbers: Iterable[int], limit: int = 16) -> int:
    """The largest power of two up to `limit` that divides all numbers.

    Kernels get numbers divided by it and multiply again: the compiler then knows the factor, which
    it must for vector access, and there are five variants at most instead of two per argument.
    """
    return math.gcd(limit, *numbers)


NO_POINTER = -1  # the place of what the kernel has no use for; addresses end with a 0 for it

Start = Callable[..., None]  # of a stream and the kernel's pointers
Step = Callable[[Sequence[int], int, int], None]  # of addresses, a stream and its device


def _overlapping() -> bool:
    """Whether a kernel may start on the current device while the one before it ends."""
    from triton.language.extra import cuda
    from triton.runtime import driver

    return hasattr(cuda, "gdc_wait") and int(driver.active.get_current_target().arch) >= 90


def _chosen(launch: Launch, offsets: Sequence[int]) -> Launch:
    """The launch, or what takes over from it for pointers off a vector's bounds by these many bytes."""
    if launch.shifted is None:
        return launch
    apart = {offsets[slot] for slot in launch.together}
    return launch.shifted if len(apart) == 1 and (launch.ragged or apart != {0}) else launch


def _compiled(launch: Launch, offsets: Sequence[int]) -> Start:
    """For the current device, and pointers that are off a vector's bounds by these many bytes."""
    launch = _chosen(launch, offsets)
    # Only wide slots are taken as aligned: the others have nothing of it, but would have variants.
    pointers = [
        None if slot is None else _Pointer(0 if slot.wide and not offset else 1, slot.dtype)
        for slot, offset in zip(launch.slots, offsets, strict=True)
    ]
    constants = dict(launch.constants)
    options: dict[str, Any] = {}
    if constants.get("OVERLAPPED"):
        constants["OVERLAPPED"] = _overlapping()
        options = {"launch_pdl": True} if launch.follows and _overlapping() else {}
    arguments = (*launch.numbers, *constants.values())
    found = launch.kernel.warmup(
        *pointers,
        *arguments,
        grid=(launch.programs,),
        num_warps=launch.warps,
        enable_fp_fusion=True,  # what Triton up to 3.9 does unasked; 3.10 asks
        **options,
    )
    # `run` is a property that loads the binary onto the current device; `function` is set by it.
    known = launch.programs, found.run, found.function, found.packed_metadata
    start = _bare_start(*known, arguments, len(pointers)) or _start(*known, arguments)
    start.binary = found  # type: ignore[attr-defined]  # when the kernel goes, so does the binary
    return start


def _start(programs: int, run: Any, function: Any, metadata: Any, arguments: Any) -> Start:
    def start(stream: int, *pointers: int) -> None:
        # The three Nones: launch metadata and the profiler's enter and exit hooks.
        run(programs, 1, 1, stream, function, metadata, None, None, None, *pointers, *arguments)

    return start


def _bare_start(
    programs: int, run: Any, function: Any, metadata: Any, arguments: Any, pointers: int
) -> Start | None:
    """The C function that Triton's launcher calls in the end, with the same arguments; None if unsure.

    The launcher's Python around it took 2.2 of 7.7 us, and for kernels without scratch memory of
    Triton's own it only puts constants in place. Which ones, a copy of the launcher tells.
    """
    launch = getattr(run, "launch", None)
    scratch = getattr(run, "global_scratch_size", 1) or getattr(run, "profile_scratch_size", 1)
    if launch is None or scratch:
        return None
    noted: list[tuple[Any, ...]] = []
    twin = copy.copy(run)
    twin.launch = lambda *given: noted.append(given)
    stream_mark, marks = object(), tuple(object() for _ in range(pointers))
    _start(programs, twin, function, metadata, arguments)(stream_mark, *marks)
    if len(noted) != 1 or noted[0][3] is not stream_mark:
        return None
    (*before, _), rest = noted[0][:4], noted[0][4:]
    last = (*marks, *arguments)
    if rest[-len(last) :] == last:
        head = rest[: -len(last)]

        def start(stream: int, *pointers: int) -> None:
            launch(*before, stream, *head, *pointers, *arguments)

        return start
    if rest[-1] == last:  # Triton 3.7 and later hand them over as one tuple
        head = rest[:-1]

        def start_packed(stream: int, *pointers: int) -> None:
            launch(*before, stream, *head, (*pointers, *arguments))

        return start_packed
    return None


def _step(launch: Launch) -> Step:
    """What queues a launch; kernels are compiled as addresses ask for them, and kept."""
    pick = itemgetter(*(NO_POINTER if slot is None else slot.place for slot in launch.slots))
    shifts = tuple(0 if slot is None else slot.shift for slot in launch.slots)
    moved = any(shifts)
    wide = tuple(slot is not None and slot.wide for slot in launch.slots)
    aligned: dict[int, Start] = {}
    others: dict[tuple[int, ...], Start] = {}

    def find(pointers: Sequence[int], device: int) -> Start:
        offsets = tuple(
            pointer % VECTOR_BYTES if own else 0
            for pointer, own in zip(pointers, wide, strict=True)
        )
        key = (device, *offsets)
        found = others.get(key)
        if found is None:
            found = others[key] = _compiled(launch, offsets)
            if not any(offsets):
                aligned[device] = found
        return found

    def step(addresses: Sequence[int], stream: int, device: int) -> None:
        pointers = pick(addresses)
        if moved:
            pointers = tuple(map(add, pointers, shifts))
        bits = 0
        for pointer in pointers:
            bits |= pointer
        start = None if bits % VECTOR_BYTES else aligned.get(device)
        if start is None:
            start = find(pointers, device)
        start(stream, *pointers)

    return step


def _interpreted(launch: Launch) -> Step:
    def step(addresses: Sequence[int], stream: int, device: int) -> None:
        pointers = [
            None if slot is None else _Pointer(addresses[slot.place] + slot.shift, slot.dtype)
            for slot in launch.slots
        ]
        offsets = [0 if pointer is None else pointer.address % VECTOR_BYTES for pointer in pointers]
        chosen = _chosen(launch, offsets)
        constants = dict(chosen.constants)
        if "OVERLAPPED" in constants:
            constants["OVERLAPPED"] = False
        chosen.kernel[(chosen.programs,)](*pointers, *chosen.numbers, *constants.values())

    return step


@functools.cache
def _device_library() -> Any:
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


@functools.cache
def _torch_allocator() -> tuple[Any, Any]:
    """Allocation on the current device and stream-ordered release, without torch's checks if it can be."""
    import torch

    torch.cuda.init()  # type: ignore[no-untyped-call, unused-ignore]
    raw = getattr(torch._C, "_cuda_cudaCachingAllocator_raw_alloc", None)
    raw_delete = getattr(torch._C, "_cuda_cudaCachingAllocator_raw_delete", None)
    if raw and raw_delete:
        return raw, raw_delete  # 1.6 us, where the public functions below take 3.8
    allocate = torch.cuda.caching_allocator_alloc
    return lambda size, stream: allocate(size, stream=stream), torch.cuda.caching_allocator_delete


def _torch_allocate(size: int, device: int, stream: int) -> int:
    # Its blocks belong to a stream: freed right after the launches, one is used again only by work
    # queued later on that stream. While a graph is captured they come from the graph's own pool.
    address: int = _torch_allocator()[0](size, stream)
    return address


def _torch_release(address: int) -> None:
    _torch_allocator()[1](address)


_scratch: list[tuple[Allocate, Release]] = [(_torch_allocate, _torch_release)]


def set_scratch_allocator(allocate: Allocate, release: Release) -> None:
    """Replace torch's caching allocator: `allocate(bytes, device, stream)` gives a device address.

    That device is the current one. `release(address)` is called as soon as the work is queued, so
    memory must be reused in stream order.
    """
    _scratch[0] = allocate, release


def runner_of(
    launches: Sequence[Launch], scratch_bytes: int = 0
) -> Callable[[Sequence[int], int], int]:
    """What queues the launches, in order, on a stream of the device where the output lies."""
    from triton.runtime.interpreter import InterpretedFunction

    if isinstance(launches[0].kernel, InterpretedFunction):
        return _host_runner([_interpreted(launch) for launch in launches], scratch_bytes)
    steps = [_step(launch) for launch in launches]
    library = _device_library()
    if library is None and len(steps) == 1 and not scratch_bytes:
        return _single_runner(steps[0])
    queue = _queue(steps, scratch_bytes)
    return _one_device_runner(queue) if library is None else _device_runner(queue, library)


def _host_runner(steps: Sequence[Step], scratch_bytes: int) -> Callable[[Sequence[int], int], int]:
    def run(addresses: Sequence[int], stream: int = 0) -> int:
        scratch = ctypes.create_string_buffer(scratch_bytes + 1)
        for step in steps:
            step((*addresses, ctypes.addressof(scratch)), 0, 0)
        return 0

    return run


def _queue(steps: Sequence[Step], scratch_bytes: int) -> Step:
    """All steps as one, with scratch memory if they need it."""

    def queue(addresses: Sequence[int], stream: int, device: int) -> None:
        if not scratch_bytes:
            given = (*addresses, 0)
            for step in steps:
                step(given, stream, device)
            return
        allocate, release = _scratch[0]
        scratch = allocate(scratch_bytes, device, stream)
        try:
            given = (*addresses, scratch, 0)
            for step in steps:
                step(given, stream, device)
        finally:
            release(scratch)

    return queue


def _single_runner(step: Step) -> Callable[[Sequence[int], int], int]:
    """The common case: one device and one launch."""

    def run(addresses: Sequence[int], stream: int = 0) -> int:
        step((*addresses, 0), stream, 0)
        return 0

    return run


def _one_device_runner(queue: Step) -> Callable[[Sequence[int], int], int]:
    def run(addresses: Sequence[int], stream: int = 0) -> int:
        queue(addresses, stream, 0)
        return 0

    return run


def _device_runner(queue: Step, library: Any) -> Callable[[Sequence[int], int], int]:
    from triton.runtime import driver

    active = driver.active

    def run(addresses: Sequence[int], stream: int = 0) -> int:
        device = _device_of(library, addresses[-1])
        current = active.get_current_device()
        if device == current:
            queue(addresses, stream, device)
            return 0
        active.set_current_device(device)
        try:
            queue(addresses, stream, device)
        finally:
            active.set_current_device(current)
        return 0

    return run
