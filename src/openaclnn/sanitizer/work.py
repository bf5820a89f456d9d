"""What an operator's run reads and writes: the plan of the very call, and copies of its tensors, which the program may change meanwhile."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from openaclnn.calls.executor import Executor
from openaclnn.core.call import Call as Bound
from openaclnn.core.call import bind_arguments
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import UINT8
from openaclnn.core.interop import view_memory
from openaclnn.core.plan import Plan
from openaclnn.core.products import current_product
from openaclnn.core.status import AclnnError
from openaclnn.core.tensor import Tensor, array_address, extent
from openaclnn.runtime.device import device_named, host
from openaclnn.runtime.memory import find_allocation
from openaclnn.sanitizer.events import Call

__all__ = ["Work", "extents", "read_bytes", "snapshot", "values", "work_of"]


@dataclass(frozen=True, eq=False)
class Work:
    """A call of an operator as it was checked and planned; tensors by the names of their parameters."""

    operator: Operator
    bound: Bound
    plan: Plan
    reads: dict[str, Tensor]
    writes: dict[str, Tensor]

    @property
    def tensors(self) -> dict[str, Tensor]:
        return self.reads | self.writes


_known: weakref.WeakKeyDictionary[Executor, Work] = weakref.WeakKeyDictionary()


def work_of(executor: Any) -> Work | None:
    """What an executor runs; None where there is nothing to run, or it is none."""
    if not isinstance(executor, Executor):
        return None
    work = _known.get(executor)
    if work is None:
        operator = executor.operator
        try:
            bound = bind_arguments(operator, executor.described(), current_product())
            plan = operator.plan(bound)
        except AclnnError:  # descriptors that were destroyed, which is told elsewhere
            return None
        _known[executor] = work = Work(
            operator,
            bound,
            plan,
            {}
            if plan.empty
            else {each.parameter: bound.tensor(each.parameter) for each in plan.inputs},
            {}
            if plan.empty
            else {each.parameter: bound.tensor(each.parameter) for each in plan.outputs},
        )
    return work


def tensors_of(call: Call) -> dict[str, Tensor]:
    """The descriptors among a call's arguments."""
    return {name: each for name, each in call.arguments.items() if isinstance(each, Tensor)}


def snapshot(tensor: Tensor) -> Tensor:
    """A copy of a descriptor, which keeps the memory that it has now."""
    owner = find_allocation(tensor.base) if tensor.raw else tensor.owner
    return Tensor(
        tensor.shape, tensor.dtype, tensor.strides, tensor.offset, tensor.format, tensor.storage_shape, tensor.base,
        owner=owner, device=tensor.device, raw=tensor.raw, writable=tensor.writable,
    )  # fmt: skip


def extents(tensors: Sequence[Tensor]) -> list[tuple[int, int]]:
    return [extent(tensor) for tensor in tensors]


def read_bytes(address: int, count: int, device: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Memory of a device, as bytes on the host."""
    if device == host.name:
        return view_memory(Tensor((count,), UINT8, base=address))
    copied = np.empty(count, np.uint8)
    device_named(device).copy(array_address(copied), address, count)
    return copied


def values(tensor: Tensor) -> np.ndarray[Any, Any]:
    """A tensor's values: where they lie on the host, else a copy of them. NumPy has 32 axes at least: with more, those of one element are
    left out."""
    if tensor.rank > 32:
        axes = zip(tensor.shape, tensor.strides, strict=True)
        shape, strides = zip(*[axis for axis in axes if axis[0] != 1] or [(1, 1)], strict=True)
        address, owner = tensor.address, tensor.owner
        tensor = Tensor.view(shape, tensor.dtype, strides, address, owner, tensor.device)
    if tensor.device == host.name:
        return view_memory(tensor)
    low, high = extent(tensor)
    copied = read_bytes(tensor.address + low, high - low, tensor.device)
    there = Tensor(tensor.shape, tensor.dtype, tensor.strides, base=array_address(copied) - low, owner=copied)  # fmt: skip
    view = view_memory(there)
    return view if view.size == 0 else view.copy()
