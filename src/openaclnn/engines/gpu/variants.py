"""Compiled variants of kernels: one for each set of constants, types and alignments, found when it first comes up.

Triton's own call path binds, specialises and looks up a kernel on every call: 16-22 us on the H200's
host. A plan fixes everything but the addresses, so the compiled kernel is found once and called with
bare integers; `native` goes further for aligned addresses. Numbers are no part of a variant but for
their types, so that launches of other sizes find it again.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from operator import add, itemgetter
from typing import Any, NamedTuple

from openaclnn.engines.gpu.launch import VECTOR_BYTES, Launch, Slot
from openaclnn.engines.gpu.operands import INT32_LIMIT

__all__ = [
    "Runner", "Start", "Step", "Variant", "interpreted_step", "is_interpreted", "kinds_of", "offsets_of",
    "places_of", "step_of_launch", "variant_of",
]  # fmt: skip

NO_POINTER = -1  # the place of what the kernel has no use for; addresses end with a 0 for it

Start = Callable[..., None]  # of programs, a stream, and the kernel's pointers and numbers
Step = Callable[[Sequence[int], int, int], None]  # of addresses, a stream and its device
Runner = Callable[[Sequence[int], int], int]  # of addresses and a stream
Ready = Callable[[Any, Launch], None]  # of a native.Kernel and what is launched of it


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


def kinds_of(numbers: Sequence[int | float]) -> tuple[bool, ...]:
    """Which numbers are more than 32 bits: Triton gives those another type."""
    return tuple(isinstance(own, int) and not -INT32_LIMIT <= own < INT32_LIMIT for own in numbers)


class Variant(NamedTuple):
    """A compiled kernel on a device."""

    start: Start
    native: Any  # a native.Kernel, or None where the driver cannot be called straight
    binary: Any  # when this goes, so does the loaded code; it keeps the kernel, too


_known: dict[tuple[Any, ...], Variant] = {}


def variant_of(launch: Launch, offsets: Sequence[int], device: int) -> Variant:
    """For the current device, and pointers that are off a vector's bounds by these many bytes."""
    family = launch.family
    # Only wide slots are taken as aligned: the others have nothing of it, but would have variants.
    types = tuple(
        None if slot is None else (slot.dtype, slot.wide and not offset)
        for slot, offset in zip(family.slots, offsets, strict=True)
    )
    key = (
        id(family.kernel), types, kinds_of(launch.numbers), family.constants, launch.constants,
        launch.warps, family.fused, family.overlapped, family.follows, device,
    )  # fmt: skip
    found = _known.get(key)
    if found is None:
        found = _known[key] = _compiled(launch, types)
    return found


def _compiled(launch: Launch, types: Sequence[tuple[str, bool] | None]) -> Variant:
    family = launch.family
    marks = [own and _Pointer(0 if own[1] else 1, own[0]) for own in types]
    constants, options = (*family.constants, *launch.constants), {}
    if family.overlapped is not None:
        overlapped = family.overlapped and _overlapping()
        constants = (overlapped, *constants)
        options = {"launch_pdl": True} if family.follows and overlapped else {}
    found = family.kernel.warmup(
        *marks,
        *launch.numbers,
        *constants,
        grid=(launch.programs,),
        num_warps=launch.warps,
        enable_fp_fusion=family.fused,
        **options,
    )
    # `run` is a property that loads the binary onto the current device; `function` is set by it.
    known = found.run, found.function, found.packed_metadata, constants
    arguments = len(types) + len(launch.numbers)
    start = _bare_start(*known, arguments) or _start(*known)
    pointers = len(types) - types.count(None)
    return Variant(start, _native(found, pointers, len(launch.numbers)), found)


def _native(found: Any, pointers: int, numbers: int) -> Any:
    try:
        from openaclnn.engines.gpu.native import Kernel, driver
    except ImportError:  # no llvmlite
        return None
    return None if driver() is None else Kernel.of(found, pointers, numbers)


def _start(run: Any, function: Any, metadata: Any, constants: tuple[Any, ...]) -> Start:
    def start(programs: int, stream: int, *arguments: Any) -> None:
        # The three Nones: launch metadata and the profiler's enter and exit hooks.
        run(programs, 1, 1, stream, function, metadata, None, None, None, *arguments, *constants)

    return start


def _bare_start(
    run: Any, function: Any, metadata: Any, constants: tuple[Any, ...], arguments: int
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
    programs, stream = 70_001, object()
    marks = tuple(object() for _ in range(arguments))
    _start(twin, function, metadata, constants)(programs, stream, *marks)
    if len(noted) != 1 or noted[0][:4] != (programs, 1, 1, stream):
        return None
    rest, last = noted[0][4:], (*marks, *constants)
    if rest[-len(last) :] == last:
        head = rest[: -len(last)]

        def start(programs: int, stream: int, *arguments: Any) -> None:
            launch(programs, 1, 1, stream, *head, *arguments, *constants)

        return start
    if rest[-1] == last:  # Triton 3.7 and later hand them over as one tuple
        head = rest[:-1]

        def start_packed(programs: int, stream: int, *arguments: Any) -> None:
            launch(programs, 1, 1, stream, *head, (*arguments, *constants))

        return start_packed
    return None


def places_of(slots: Sequence[Slot | None]) -> Callable[[Sequence[int]], tuple[int, ...]]:
    """What picks a kernel's pointers out of addresses that end with a 0."""
    return itemgetter(*(NO_POINTER if slot is None else slot.place for slot in slots))


def step_of_launch(launch: Launch, ready: Ready | None = None) -> Step:
    """What queues a launch; kernels are compiled as addresses ask for them, and kept.

    `ready` is told the one for aligned addresses.
    """
    slots = launch.family.slots
    pick = places_of(slots)
    shifts = tuple(0 if slot is None else slot.shift for slot in slots)
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
        start(own.programs, stream, *pointers, *own.numbers)

    return step


def offsets_of(slots: Sequence[Slot | None], pointers: Sequence[int]) -> tuple[int, ...]:
    """How far pointers are off a vector's bounds where that matters."""
    return tuple(
        pointer % VECTOR_BYTES if slot is not None and slot.wide else 0
        for pointer, slot in zip(pointers, slots, strict=True)
    )


def is_interpreted(kernel: Any) -> bool:
    from triton.runtime.interpreter import InterpretedFunction

    return isinstance(kernel, InterpretedFunction)


def interpreted_step(launch: Launch) -> Step:
    family = launch.family

    def step(addresses: Sequence[int], stream: int, device: int) -> None:
        pointers = [
            None if slot is None else _Pointer(addresses[slot.place] + slot.shift, slot.dtype)
            for slot in family.slots
        ]
        offsets = [0 if pointer is None else pointer.address % VECTOR_BYTES for pointer in pointers]
        own = _chosen(launch, offsets)
        constants = (*family.constants, *own.constants)
        if family.overlapped is not None:
            constants = (False, *constants)
        family.kernel[(own.programs,)](*pointers, *own.numbers, *constants)

    return step
