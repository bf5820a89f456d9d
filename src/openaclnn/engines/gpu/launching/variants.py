"""Compiled variants of kernels: one for each set of constexprs, types and alignments, compiled at the first launch that needs it.

Triton's own call path binds, specialises and looks up a kernel on every call: 16-22 us on the H200's
host. A launch has everything but the addresses, so the compiled kernel is looked up once and called with
bare integers, by Triton's launcher the first time and by machine code from then on (`code.py`). Of numbers only the types are part of a
variant, so launches of other sizes use the same one.
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
    """Whether the current device is of the Hopper generation or a later one."""
    from triton.runtime import driver

    return int(driver.active.get_current_target().arch) >= 90


def _can_overlap() -> bool:
    """Whether a kernel may start on the current device while the one before it ends (programmatic dependent launch)."""
    from triton.language.extra import cuda

    return hasattr(cuda, "gdc_wait") and _is_hopper()


def has_clusters() -> bool:
    """Whether the current device has thread block clusters, whose programs may wait for each other."""
    import triton

    return bool(triton.knobs.runtime.interpret) or (native.driver() is not None and _is_hopper())


def limits() -> tuple[int, int]:
    """The current device's number of multiprocessors, and the bytes of shared memory that a program may have there."""
    import triton
    from triton.runtime import driver

    if triton.knobs.runtime.interpret:
        return 1, 1 << 18
    properties = driver.active.utils.get_device_properties(driver.active.get_current_device())
    return properties["multiprocessor_count"], properties["max_shared_mem"]


def are_64_bit(numbers: Sequence[int | float]) -> tuple[bool, ...]:
    """Which numbers are integers beyond 32 bits: to Triton they have another type."""
    return tuple(
        [type(number) is int and not -INT32_LIMIT <= number < INT32_LIMIT for number in numbers]
    )


def _unspecialised(number: int | float) -> int | float:
    """A number of the same type that Triton does not specialise on: 1 would become a constant, and a multiple of 16 an alignment, but the
    variant must serve launches with other numbers."""
    if type(number) is not int:
        return number
    return 7 if -INT32_LIMIT <= number < INT32_LIMIT else (1 << 40) + 7


class Variant(NamedTuple):
    """A compiled kernel on a device."""

    start: Callable[..., None]  # of the grid, a stream, and the kernel's pointers and numbers
    native: native.Kernel | None  # None if only Triton's launcher can launch it
    binary: Any  # keeps the loaded code and the kernel


_variants: dict[tuple[Any, ...], Variant] = {}


def variant_of(launch: Launch, misaligned: Sequence[bool]) -> Variant:
    """The variant of a launch for the current device, and for pointers of which these are misaligned."""
    from triton.runtime import driver

    spec = launch.spec
    # Only pointers that vectors are read from or written to count as aligned: others gain nothing by it, but would double the variants.
    types = tuple(
        [
            slot and (slot.dtype, slot.wide and launch.aligned and not off)
            for slot, off in zip(spec.slots, misaligned, strict=True)
        ]
    )
    _, _, *options = spec
    key = (
        id(spec.kernel), types, are_64_bit(launch.numbers), *options, launch.constexprs, launch.warps,
        driver.active.get_current_device(),
    )  # fmt: skip
    variant = _variants.get(key)
    if variant is None:
        variant = _variants[key] = _compiled(launch, types)
    return variant


def _compiled(launch: Launch, types: Sequence[tuple[str, bool] | None]) -> Variant:
    spec = launch.spec
    pointers = [slot_type and Pointer(0 if slot_type[1] else 1, slot_type[0]) for slot_type in types]  # fmt: skip
    constexprs, options = (*spec.constexprs, *launch.constexprs), {}
    if spec.overlapped is not None:
        overlapped = spec.overlapped and _can_overlap()
        constexprs = (overlapped, *constexprs)
        options = {"launch_pdl": True} if spec.follows and overlapped else {}
    binary = spec.kernel.warmup(
        *pointers,
        *map(_unspecialised, launch.numbers),
        *constexprs,
        grid=(launch.grid,),
        num_warps=launch.warps,
        enable_fp_fusion=spec.fused,
        maxnreg=spec.registers,
        **options,
    )
    run = binary.run  # a property that loads the binary onto the current device
    pointer_count, kernel = len(types) - types.count(None), None
    if native.driver() is not None:
        kernel = native.Kernel.of(binary, pointer_count, len(launch.numbers), spec.cluster)
    if spec.cluster > 1:
        return Variant(_start_clusters(launch, kernel, types), kernel, binary)

    def start(grid: int, stream: int, *arguments: Any) -> None:
        # The three Nones: launch metadata and the profiler's enter and exit hooks.
        fixed = binary.function, binary.packed_metadata, None, None, None
        run(grid, 1, 1, stream, *fixed, *arguments, *constexprs)

    return Variant(start, kernel, binary)


def _start_clusters(launch: Launch, kernel: native.Kernel | None, types: Sequence[Any]) -> Callable[..., None]:  # fmt: skip
    """What starts a kernel whose programs form clusters, through the driver: Triton's launcher supports only clusters that are one program together."""
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
