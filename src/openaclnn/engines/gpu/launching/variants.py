"""Compiled variants of kernels: one for each set of constexprs, types and alignments, found when it first comes up.

Triton's own call path binds, specialises and looks up a kernel on every call: 16-22 us on the H200's
host. A launch has everything but the addresses, so the compiled kernel is found once and called with
bare integers, by Triton's launcher the first time and by machine code from then on (`code.py`). Numbers are no part of a variant but for
their types, so that launches of other sizes find it again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from openaclnn.engines.gpu.launching import native
from openaclnn.engines.gpu.launching.launch import INT32_LIMIT, Launch, PointerArg


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

    return bool(triton.knobs.runtime.interpret) or (native.driver() is not None and _is_hopper())


def limits() -> tuple[int, int]:
    """How many multiprocessors the current device has, and how many bytes of shared memory a program may have there."""
    import triton
    from triton.runtime import driver

    if triton.knobs.runtime.interpret:
        return 1, 1 << 18
    properties = driver.active.utils.get_device_properties(driver.active.get_current_device())
    return properties["multiprocessor_count"], properties["max_shared_mem"]


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

    start: Callable[..., None]  # of the grid, a stream, and the kernel's pointers and numbers
    native: native.Kernel | None  # None where the driver cannot be called straight
    binary: Any  # when this goes, so does the loaded code; it keeps the kernel, too


_known: dict[tuple[Any, ...], Variant] = {}


def variant_of(launch: Launch, misaligned: Sequence[bool]) -> Variant:
    """For the current device, and pointers of which these are off a vector's bounds."""
    from triton.runtime import driver

    spec = launch.spec
    # Only wide slots are taken as aligned: the others have nothing of it, but would have variants.
    types = tuple(
        [
            slot and (slot.dtype, slot.wide and launch.aligned and not off)
            for slot, off in zip(spec.slots, misaligned, strict=True)
        ]
    )
    _, _, *options = spec
    key = (
        id(spec.kernel), types, kinds_of(launch.numbers), *options, launch.constexprs, launch.warps,
        driver.active.get_current_device(),
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
    run = binary.run  # a property that loads the binary onto the current device
    pointers, kernel = len(types) - types.count(None), None
    if native.driver() is not None:
        kernel = native.Kernel.of(binary, pointers, len(launch.numbers), spec.cluster)
    if spec.cluster > 1:
        return Variant(_start_together(launch, kernel, types), kernel, binary)

    def start(grid: int, stream: int, *arguments: Any) -> None:
        # The three Nones: launch metadata and the profiler's enter and exit hooks.
        known = binary.function, binary.packed_metadata, None, None, None
        run(grid, 1, 1, stream, *known, *arguments, *constexprs)

    return Variant(start, kernel, binary)


def _start_together(launch: Launch, kernel: native.Kernel | None, types: Sequence[Any]) -> Callable[..., None]:  # fmt: skip
    """By the driver alone: Triton's launcher knows no clusters of programs that are each a program of their own."""
    from openaclnn.engines.gpu.launching.code import BoundBlock

    if kernel is None:
        raise RuntimeError("kernels whose programs wait for each other cannot be launched by Triton's launcher")  # fmt: skip
    slots = [place for place, slot_type in enumerate(types) if slot_type is not None]

    def refuse(*call: Any) -> int:
        raise RuntimeError(f"the CUDA driver launches no {kernel.cluster} programs at once")

    def start(grid: int, stream: int, *arguments: Any) -> None:
        numbers = arguments[len(types) :]
        block = BoundBlock([([PointerArg(place, "") for place in slots], len(numbers))])
        block.fill(0, launch._replace(grid=grid, numbers=numbers), kernel)
        block.function(refuse)(arguments[: len(types)], stream)

    return start
