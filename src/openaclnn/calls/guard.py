"""Memory rules: where tensors lie is checked just before a kernel may run.

A kernel never reads or writes outside its tensors, so raw addresses must lie inside an allocation of
the runtime; and an output never lies half over an input, so results do not depend on the order of writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from openaclnn.core.call import Call
from openaclnn.core.interface import Interface
from openaclnn.core.interop import (
    Held,
    check_recorder,
    is_tracked_leaf,
    mark_written,
    strided_view,
    torch_tensor_of,
)
from openaclnn.core.plan import Operand, Plan, walks_alike
from openaclnn.core.status import AclnnError, Status
from openaclnn.core.tensor import Tensor
from openaclnn.runtime.memory import Allocation, find_allocation

__all__ = [
    "Found", "announce_writes", "check_devices", "check_memory", "check_output_layout", "check_overlap", "check_storages", "lies_apart",
    "find_memory",
]  # fmt: skip

Found = tuple[tuple[int, ...], Sequence[Any]]
"""Where a kernel's tensors lie, and what keeps that memory alive until the kernel is done."""

# Views up to this size are searched exactly; larger ones with a doubtful layout are refused.
_EXACT = 1 << 20
_OVERLAP_WORK: Any = 100_000


def _refuse(plan: Plan, parameter: str, expected: str, got: str, status: int) -> AclnnError:
    return AclnnError(status, plan.operator, parameter, expected, got)


def check_devices(call: Call) -> str:
    """The memory that all tensors of a call lie in; mixing two is refused."""
    values = call.values
    devices = {own.device for own in values.values() if isinstance(own, Tensor)}
    if len(devices) == 1:
        return devices.pop()
    device = ""
    for parameter in call.operator.tensors:
        own = values[parameter.name]
        if isinstance(own, Tensor) and own.device != device:
            if device and not own.empty:
                raise AclnnError(
                    Status.ACLNN_ERR_PARAM_INVALID, call.operator.name, parameter.name,
                    f"memory of {device}, like the tensors before it", own.device,
                )  # fmt: skip
            device = device or own.device
    return device


def check_output_layout(operator: str, name: str, tensor: Tensor) -> None:
    """Refuse an output two of whose elements share memory: which one would win is nobody's choice."""
    if not lies_apart(tensor):
        raise AclnnError(
            Status.ACLNN_ERR_PARAM_INVALID, operator, name,
            "an output whose elements lie apart", f"shape {tensor.shape}, strides {tensor.strides}",
        )  # fmt: skip


def lies_apart(tensor: Tensor) -> bool:
    """Whether every element has memory of its own; of many elements, whether that is easy to see."""
    if tensor.contiguous:
        return True
    axes = sorted(
        (abs(stride), size)
        for size, stride in zip(tensor.shape, tensor.strides, strict=True)
        if size > 1
    )
    reach = 0
    for stride, size in axes:
        if stride <= reach:
            break
        reach += (size - 1) * stride
    else:
        return True
    if tensor.empty:
        return True
    if tensor.size <= _EXACT and all(stride for stride, _ in axes):
        places = np.zeros(1, np.int64)
        for stride, size in axes:
            places = np.add.outer(places, np.arange(size, dtype=np.int64) * stride).ravel()
        return bool(np.unique(places).size == tensor.size)
    return False


def find_memory(
    tensors: Sequence[Tensor],
    extents: Sequence[tuple[int, int]],
    alike: Sequence[bool],
    device: str,
) -> Found | None:
    """Where tensors lie, outputs last, if no rule of memory can be broken; else the checks below say which one is.

    `extents` are the bytes that each covers from its first element on, `alike` says which inputs may be exactly the
    first output, `device` is the one that the call was planned for.
    """
    addresses: list[int] = []
    owners: list[Any] = []
    for tensor, (low, high) in zip(tensors, extents, strict=True):
        address = tensor.base
        if tensor.offset:
            address += tensor.offset * tensor.dtype.itemsize
        owner = tensor.owner
        if tensor.raw:
            owner = find_allocation(address + low)
            if owner is None or owner.kind != "device" or not tensor.base:
                return None
            if address + high > owner.address + owner.size:
                return None
        if (owner if tensor.raw else tensor).device != device:
            return None
        owners.append(owner)
        addresses.append(address)
    first = len(alike)
    address, (low, high) = addresses[first], extents[first]
    start, stop = address + low, address + high
    for source, (low, high), same in zip(addresses, extents, alike, strict=False):
        if source + low < stop and start < source + high and not (same and source == address):
            return None
    if len(addresses) - first > 1 and not _apart(addresses, extents, first + 1):
        return None
    return tuple(addresses), owners


def _apart(addresses: Sequence[int], extents: Sequence[tuple[int, int]], first: int) -> bool:
    """Whether the tensors from the first on share no memory with one before them."""
    for last in range(first, len(addresses)):
        start, stop = (addresses[last] + end for end in extents[last])
        for source, (low, high) in zip(addresses[:last], extents, strict=False):
            if source + low < stop and start < source + high:
                return False
    return True


def check_storages(
    operator: Interface, places: Sequence[int], owners: Sequence[Any], since: str = "of phase one"
) -> None:
    """Refuse a PyTorch tensor whose storage was resized since it was viewed."""
    for number, owner in enumerate(owners):
        if type(owner) is Held and not owner.stays():
            name = operator.parameters[places[number]].name
            raise AclnnError(
                Status.ACLNN_ERR_PARAM_INVALID, operator.name, name,
                f"a tensor with the memory {since}", "one whose storage was resized",
            )  # fmt: skip


def announce_writes(operator: Interface, arguments: Sequence[Any]) -> None:
    """Phase two writes the outputs, tensors of ours or arrays: what PyTorch would not let be written is refused, and autograd
    is told of the rest."""
    written = []  # of PyTorch's
    for place in operator.output_places:
        output = arguments[place]
        if type(output) is Tensor:
            output = torch_tensor_of(output)
        if output is not None and type(output) is not np.ndarray:
            written.append((place, output))
    if not written:
        return
    place, expected, got = written[0][0], "", ""
    try:
        check_recorder()
    except TypeError as error:
        expected, _, got = str(error).rpartition(", got ")
    for own, output in written:
        if output.requires_grad and not got and is_tracked_leaf(output):
            expected = "a tensor that autograd lets be written (or torch.no_grad())"
            place, got = own, "a leaf that requires grad"
    if got:
        name = operator.parameters[place].name
        raise AclnnError(Status.ACLNN_ERR_PARAM_INVALID, operator.name, name, expected, got)
    mark_written(*[output for _, output in written])


def check_memory(
    plan: Plan, operands: Sequence[Operand], tensors: Sequence[Tensor], device: str
) -> list[Any]:
    """Refuse null data, memory of another kind or device, and raw views that reach past their allocation.

    Returns what must be kept alive until the kernel is done.
    """
    owners: list[Any] = []
    for operand, tensor in zip(operands, tensors, strict=True):
        name, address = operand.parameter, tensor.address
        if not tensor.raw:
            if tensor.device != device:
                raise _elsewhere(plan, name, device, tensor.device)
            owners.append(tensor.owner)
            continue
        if not tensor.base:
            raise _refuse(plan, name, "a data address", "null", Status.ACLNN_ERR_PARAM_NULLPTR)
        first, last = address + operand.low, address + operand.high
        found = find_allocation(first)
        if found is None or found.kind != "device":
            raise _stray(plan, name, tensor.base, first, last)
        if last > found.address + found.size:
            raise _outside(plan, name, found, first, last)
        if found.device != device:
            raise _elsewhere(plan, name, device, found.device)
        owners.append(found)
    return owners


def _stray(plan: Plan, name: str, base: int, first: int, last: int) -> AclnnError:
    """A view whose first byte is in no device memory: it left its allocation, or never was in one."""
    held = find_allocation(base)
    if held is not None and held.kind == "device":
        return _outside(plan, name, held, first, last)
    kind = "unknown memory, or freed since," if held is None else "host memory"
    return _refuse(
        plan, name, "device memory from aclrtMalloc", f"{kind} at {base:#x}",
        Status.ACLNN_ERR_PARAM_INVALID,
    )  # fmt: skip


def _elsewhere(plan: Plan, name: str, device: str, home: str) -> AclnnError:
    return _refuse(
        plan, name, f"memory of {device}, which the call was planned for", f"memory of {home}",
        Status.ACLNN_ERR_PARAM_INVALID,
    )  # fmt: skip


def _outside(plan: Plan, name: str, held: Allocation, first: int, last: int) -> AclnnError:
    return _refuse(
        plan, name, f"a view inside its allocation of {held.size} bytes",
        f"one of its bytes {first - held.address} to {last - held.address}",
        Status.ACLNN_ERR_PARAM_INVALID,
    )  # fmt: skip


def _touched(tensor: Tensor) -> np.ndarray[Any, Any]:
    """The memory of a view, without the axes that add nothing to it: NumPy has only so many."""
    axes = [
        (size, stride)
        for size, stride in zip(tensor.shape, tensor.strides, strict=True)
        if size == 0 or (size > 1 and stride)
    ]
    shape, strides = (tuple([axis[part] for axis in axes]) for part in (0, 1))
    return strided_view(tensor.address, tensor.dtype, shape, strides)


def check_overlap(plan: Plan, tensors: Sequence[Tensor]) -> None:
    """Refuse an output that shares memory with an input, unless it is that input, element for element; or with an
    output before it."""
    operands = plan.operands
    for place in range(len(plan.inputs), len(operands)):
        _check_apart(plan, operands[: place + 1], tensors)


def _check_apart(plan: Plan, operands: Sequence[Operand], tensors: Sequence[Tensor]) -> None:
    """Refuse the last of some operands if it shares memory with one before."""
    *before, output = operands
    target = tensors[len(before)]
    begin = target.address
    start, stop = begin + output.low, begin + output.high
    for operand, source in zip(before, tensors, strict=False):
        own = source.address
        if own + operand.high <= start or stop <= own + operand.low:
            continue
        if source.device != target.device:
            continue
        if output is plan.output and own == begin and walks_alike(operand, output):
            continue
        if target.device == "cpu":
            try:
                views = _touched(source), _touched(target)
                if not np.shares_memory(*views, max_work=_OVERLAP_WORK):
                    continue
            except np.exceptions.TooHardError:
                pass
        raise _refuse(
            plan, output.parameter, f"memory apart from {operand.parameter}'s, or exactly the same view",
            "a partial overlap", Status.ACLNN_ERR_PARAM_INVALID,
        )  # fmt: skip
