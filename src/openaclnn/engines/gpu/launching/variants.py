"""Compiled variants of kernels: one for each set of constexprs, types and alignments, found when it first comes up.

Triton's own call path binds, specialises and looks up a kernel on every call: 16-22 us on the H200's
host. A plan fixes everything but the addresses, so the compiled kernel is found once and called with
bare integers; `native` goes further for aligned addresses. Numbers are no part of a variant but for
their types, so that launches of other sizes find it again.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from openaclnn.engines.gpu.launching.launch import INT32_LIMIT, Launch

Start = Callable[..., None]  # of the grid, a stream, and the kernel's pointers and numbers


class Pointer:
    """An address that Triton takes for a tensor: when it specialises, and when it interprets."""

    def __init__(self, address: int, dtype: str) -> None:
        self.address = address
        self.dtype = dtype

    def data_ptr(self) -> int:
        return self.address

    # The interpreter copies tensors to the host and back. Host memory is there already, so what
    # it asks of a tensor and of its storage all answer with this same object.
    def untyped_storage(self) -> Pointer:
        return self

    def cpu(self) -> Pointer:
        return self

    def new_empty(self, *sizes: int, device: str) -> Pointer:
        return self

    def storage_offset(self) -> int:
        return 0

    def size(self) -> tuple[int, ...]:
        return (1,)

    def stride(self) -> tuple[int, ...]:
        return (1,)

    def set_(self, *view: Any) -> None: ...

    def copy_(self, source: Any) -> None: ...


def _is_hopper() -> bool:
    """Whether the current device is one, or a later one."""
    from triton.runtime import driver

    return int(driver.active.get_current_target().arch) >= 90


def _overlapping() -> bool:
    """Whether a kernel may start on the current device while the one before it ends."""
    from triton.language.extra import cuda

    return hasattr(cuda, "gdc_wait") and _is_hopper()


def has_clusters() -> bool:
    """Whether programs may wait for each other on the current device."""
    import triton

    return bool(triton.knobs.runtime.interpret) or (_driven() is not None and _is_hopper())


def kinds_of(numbers: Sequence[int | float]) -> tuple[bool, ...]:
    """Which numbers are more than 32 bits: Triton gives those another type."""
    return tuple(
        [type(number) is int and not -INT32_LIMIT <= number < INT32_LIMIT for number in numbers]
    )


def _unspecialised(number: int | float) -> int | float:
    """A number of the same type that Triton assumes nothing of. Of 1 it would make a constant and of multiples of 16 an alignment, and the
    variant serves launches with other numbers."""
    if type(number) is not int:
        return number
    return 7 if -INT32_LIMIT <= number < INT32_LIMIT else (1 << 40) + 7


class Variant(NamedTuple):
    """A compiled kernel on a device."""

    start: Start
    native: Any  # a native.Kernel, or None where the driver cannot be called straight
    binary: Any  # when this goes, so does the loaded code; it keeps the kernel, too


_known: dict[tuple[Any, ...], Variant] = {}


def variant_of(launch: Launch, offsets: Sequence[int], device: int) -> Variant:
    """For the current device, and pointers that are off a vector's bounds by these many bytes."""
    spec = launch.spec
    # Only wide slots are taken as aligned: the others have nothing of it, but would have variants.
    types = tuple(
        [
            None if slot is None else (slot.dtype, slot.wide and launch.aligned and not offset)
            for slot, offset in zip(spec.slots, offsets, strict=True)
        ]
    )
    key = (
        id(spec.kernel), types, kinds_of(launch.numbers), spec.constexprs, launch.constexprs,
        launch.warps, spec.fused, spec.overlapped, spec.follows, spec.cluster, spec.registers, device,
    )  # fmt: skip
    variant = _known.get(key)
    if variant is None:
        variant = _known[key] = _compiled(launch, types)
    return variant


def _compiled(launch: Launch, types: Sequence[tuple[str, bool] | None]) -> Variant:
    spec = launch.spec
    marks = [slot_type and Pointer(0 if slot_type[1] else 1, slot_type[0]) for slot_type in types]
    constexprs, options = (*spec.constexprs, *launch.constexprs), {}
    if spec.overlapped is not None:
        overlapped = spec.overlapped and _overlapping()
        constexprs = (overlapped, *constexprs)
        options = {"launch_pdl": True} if spec.follows and overlapped else {}
    binary = spec.kernel.warmup(
        *marks,
        *map(_unspecialised, launch.numbers),
        *constexprs,
        grid=(launch.grid,),
        num_warps=launch.warps,
        enable_fp_fusion=spec.fused,
        maxnreg=spec.registers,
        **options,
    )
    # `run` is a property that loads the binary onto the current device; `function` is set by it.
    known = binary.run, binary.function, binary.packed_metadata, constexprs
    arguments = len(types) + len(launch.numbers)
    pointers = len(types) - types.count(None)
    kind = _driven()
    native = kind and kind.of(binary, pointers, len(launch.numbers), spec.cluster)
    if spec.cluster > 1:
        start = _start_together(native, types)
    else:
        start = _bare_start(*known, arguments) or _start(*known)
    return Variant(start, native, binary)


def _driven() -> Any:
    """The class of kernels that the driver launches; None where it cannot be called straight."""
    try:
        from openaclnn.engines.gpu.launching.native import Kernel, driver
    except ImportError:  # no llvmlite
        return None
    return None if driver() is None else Kernel


def _start_together(native: Any, types: Sequence[Any]) -> Start:
    """By the driver alone: Triton's launcher knows no clusters of programs that are each a program of their own."""
    if native is None:
        raise RuntimeError(
            "a kernel whose grid wait for each other cannot be launched by Triton's launcher"
        )
    places = [place for place, slot_type in enumerate(types) if slot_type is not None]

    def start(grid: int, stream: int, *arguments: Any) -> None:
        native.launch(grid, stream, [arguments[place] for place in places], arguments[len(types) :])

    return start


def _start(run: Any, function: Any, metadata: Any, constexprs: tuple[Any, ...]) -> Start:
    def start(grid: int, stream: int, *arguments: Any) -> None:
        # The three Nones: launch metadata and the profiler's enter and exit hooks.
        run(grid, 1, 1, stream, function, metadata, None, None, None, *arguments, *constexprs)

    return start


def _bare_start(
    run: Any, function: Any, metadata: Any, constexprs: tuple[Any, ...], arguments: int
) -> Start | None:
    """The C function that Triton's launcher calls in the end, with the same arguments; None if unsure.

    The launcher's Python around it took 2.2 of 7.7 us, and for kernels without scratch memory of
    Triton's own it only puts constexprs in place. Which ones, a copy of the launcher tells.
    """
    launch = getattr(run, "launch", None)
    scratch = getattr(run, "global_scratch_size", 1) or getattr(run, "profile_scratch_size", 1)
    if launch is None or scratch:
        return None
    noted: list[tuple[Any, ...]] = []
    twin = copy.copy(run)
    twin.launch = lambda *passed: noted.append(passed)
    grid, stream = 70_001, object()
    marks = tuple(object() for _ in range(arguments))
    _start(twin, function, metadata, constexprs)(grid, stream, *marks)
    if len(noted) != 1 or noted[0][:4] != (grid, 1, 1, stream):
        return None
    rest, last = noted[0][4:], (*marks, *constexprs)
    if rest[-len(last) :] == last:
        head = rest[: -len(last)]

        def start(grid: int, stream: int, *arguments: Any) -> None:
            launch(grid, 1, 1, stream, *head, *arguments, *constexprs)

        return start
    if rest[-1] == last:  # Triton 3.7 and later hand them over as one tuple
        head = rest[:-1]

        def start_packed(grid: int, stream: int, *arguments: Any) -> None:
            launch(grid, 1, 1, stream, *head, (*arguments, *constexprs))

        return start_packed
    return None
