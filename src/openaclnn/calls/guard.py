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
    HeldStorage,
    check_recorder,
    is_tracked_leaf,
    mark_written,
    strided_view,
)
from openaclnn.core.plan import Plan
from openaclnn.core.status import AclnnError, Status
from openaclnn.core.tensor import Tensor
from openaclnn.repeat.phases import CheckedMemory, Extent
from openaclnn.runtime.memory import Allocation, find_allocation

# Views up to this size are searched exactly; larger ones with a doubtful layout are refused.
_EXACT = 1 << 20
_OVERLAP_WORK: Any = 100_000


def _refuse(plan: Plan, parameter: str, expected: str, got: str, status: int) -> AclnnError:
    return AclnnError(status, plan.operator, parameter, expected, got)


def check_devices(call: Call) -> str:
    """The memory that all tensors of a call lie in; mixing two is refused."""
    values = call.values
    # Outputs that are all left to us lie nowhere yet.
    names = call.operator.input_names if call.outputs_omitted else values
    devices: set[str] = {values[name].device for name in names if isinstance(values[name], Tensor)}
    if len(devices) == 1:
        return devices.pop()
    device = ""
    for parameter in call.operator.tensors:
        value = values[parameter.name]
        if isinstance(value, Tensor) and value.device != device:
            if device and not value.empty:
                raise AclnnError(
                    Status.ACLNN_ERR_PARAM_INVALID, call.operator.name, parameter.name,
                    f"memory of {device}, like the tensors before it", value.device,
                )  # fmt: skip
            device = device or value.device
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


def check_storages(
    operator: Interface, arguments: Sequence[Any], owners: Sequence[Any], since: str = "of phase one"
) -> None:  # fmt: skip
    """Refuse a PyTorch tensor whose storage was resized since it was viewed."""
    for owner in owners:
        if type(owner) is HeldStorage and not owner.stays():
            named = zip(operator.parameters, arguments, strict=True)
            name = next(
                p.name
                for p, value in named
                if value is owner.tensor or getattr(value, "owner", None) is owner
            )
            raise AclnnError(
                Status.ACLNN_ERR_PARAM_INVALID, operator.name, name,
                f"a tensor with the memory {since}", "one whose storage was resized",
            )  # fmt: skip


def announce_writes(operator: Interface, arguments: Sequence[Any]) -> None:
    """Phase two writes the outputs: what PyTorch would not let be written is refused, and autograd is told of the rest."""
    written = []  # of PyTorch's
    for place in operator.output_places:
        output = arguments[place]
        if type(output) is Tensor:
            output = output.owner.tensor if type(output.owner) is HeldStorage else None
        if output is not None and type(output) is not np.ndarray:
            written.append((place, output))
    if not written:
        return
    place, expected, got = written[0][0], "", ""
    try:
        check_recorder()
    except TypeError as error:
        expected, _, got = str(error).rpartition(", got ")
    for number, output in written:
        if output.requires_grad and not got and is_tracked_leaf(output):
            expected = "a tensor that autograd lets be written (or torch.no_grad())"
            place, got = number, "a leaf that requires grad"
    if got:
        name = operator.parameters[place].name
        raise AclnnError(Status.ACLNN_ERR_PARAM_INVALID, operator.name, name, expected, got)
    mark_written(*[output for _, output in written])


def check_memory(
    plan: Plan,
    extents: Sequence[Extent],
    tensors: Sequence[Tensor],
    device: str,
    later: bool = False,
) -> CheckedMemory | None:
    """Where tensors lie; refuse null data, memory of another kind or device, and raw views that reach past their allocation.

    `device` is the one that the call was planned for. With `later`, an address may come yet: None where one is null.
    """
    addresses: list[int] = []
    owners: list[Any] = []
    for operand, tensor, (low, high, _) in zip(plan.operands, tensors, extents, strict=True):
        address, owner, home = tensor.base, tensor.owner, tensor.device
        if tensor.offset:
            address += tensor.offset * tensor.dtype.itemsize
        if tensor.raw:
            name = operand.parameter
            if not tensor.base:
                if later:
                    continue
                raise _refuse(plan, name, "a data address", "null", Status.ACLNN_ERR_PARAM_NULLPTR)
            owner = find_allocation(address + low)
            if owner is None or owner.kind != "device":
                raise _stray(plan, name, tensor.base, address + low, address + high)
            if address + high > owner.address + owner.size:
                raise _outside(plan, name, owner, address + low, address + high)
            home = owner.device
        if home != device:
            raise _elsewhere(plan, operand.parameter, device, home)
        owners.append(owner)
        addresses.append(address)
    return None if len(addresses) < len(tensors) else (tuple(addresses), owners)


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
        plan, name, f"a view inside its allocation of {held.size} bytes, padding included",
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


def check_overlap(
    plan: Plan, extents: Sequence[Extent], tensors: Sequence[Tensor], addresses: Sequence[int]
) -> None:
    """Refuse an output that shares memory with an input, unless it is that input, element for element; or with an
    output before it."""
    spans = [
        (address + low, address + high)
        for address, (low, high, _) in zip(addresses, extents, strict=True)
    ]
    for place in range(len(plan.inputs), len(spans)):
        start, stop = spans[place]
        for before, (first, beyond) in enumerate(spans[:place]):
            if beyond <= start or stop <= first:
                continue  # as in most calls
            operand, output = plan.operands[before], plan.operands[place]
            source, target, (_, _, walks_alike) = tensors[before], tensors[place], extents[before]
            # The other half of it, or itself, in place.
            if operand.parameter == output.parameter or source.device != target.device:
                continue
            alike = output is plan.output and walks_alike
            if (alike and addresses[before] == addresses[place]) or _interleaved(source, target):
                continue
            same = "" if plan.halved else ", or exactly the same view"
            raise _refuse(
                plan, output.parameter, f"memory apart from {operand.parameter}'s{same}",
                f"{'an' if plan.halved else 'a partial'} overlap", Status.ACLNN_ERR_PARAM_INVALID,
            )  # fmt: skip


def _interleaved(source: Tensor, target: Tensor) -> bool:
    """Whether two views share no element, though one begins before the other ends: looked at on the host, as long as that is not too hard."""
    if target.device != "cpu":
        return False
    try:
        views = _touched(source), _touched(target)
        return not np.shares_memory(*views, max_work=_OVERLAP_WORK)
    except np.exceptions.TooHardError:
        return False
