"""Compiled variants of a launch: one for each alignment of its addresses, found when they first come up.

Triton's own call path binds, specialises and looks up a kernel on every call: 16-22 us on the H200's
host. A plan fixes everything but the addresses, so the compiled kernel is found once and called with
bare integers; `native` goes further for aligned addresses.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from operator import add, itemgetter
from typing import Any

from openaclnn.engines.gpu.launch import VECTOR_BYTES, Launch

__all__ = ["Step", "interpreted_step", "step_of_launch"]

NO_POINTER = -1  # the place of what the kernel has no use for; addresses end with a 0 for it

Start = Callable[..., None]  # of a stream and the kernel's pointers
Step = Callable[[Sequence[int], int, int], None]  # of addresses, a stream and its device
Runner = Callable[[Sequence[int], int], int]  # of addresses and a stream
Ready = Callable[[Any], None]  # of a native.Kernel


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


def _compiled(launch: Launch, offsets: Sequence[int], ready: Ready | None = None) -> Start:
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
        enable_fp_fusion=launch.fused,
        **options,
    )
    # `run` is a property that loads the binary onto the current device; `function` is set by it.
    known = launch.programs, found.run, found.function, found.packed_metadata
    if ready is not None:
        from openaclnn.engines.gpu.native import Kernel

        used = sum(pointer is not None for pointer in pointers)
        kernel = Kernel.of(found, launch.programs, launch.numbers, used)
        if kernel is not None:
            ready(kernel)
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


def step_of_launch(launch: Launch, ready: Ready | None = None) -> Step:
    """What queues a launch; kernels are compiled as addresses ask for them, and kept.

    `ready` is told the one for aligned addresses.
    """
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
            found = others[key] = _compiled(launch, offsets, None if any(offsets) else ready)
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


def interpreted_step(launch: Launch) -> Step:
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
