"""`Plan`: everything a kernel needs to know about a checked call, and nothing about where its data lie.

A plan holds no address, so that one plan serves every call of the same signature.

Two access patterns exist. Elementwise kernels visit `shape`. Kernels with a class axis visit
`shape` (the positions) and, at each position, `classes` classes that lie `class_stride` apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from openaclnn.core.dtypes import DType
from openaclnn.core.status import AclnnError, Status
from openaclnn.core.tensor import Tensor, element_count

__all__ = [
    "Operand", "Plan", "broadcast_shapes", "class_plan", "elementwise_plan", "empty_plan", "walks_alike",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Operand:
    """How one tensor is walked. Strides and offset count elements, the extent counts bytes."""

    parameter: str
    dtype: DType
    strides: tuple[int, ...]  # one for each axis of the plan's shape
    class_stride: int = 0
    offset: int = 0  # from the tensor's first element to the first one visited
    low: int = 0  # the view covers the bytes [address + low, address + high)
    high: int = 0
    role: str = "full"  # "full", "positions", "classes" or "single": see class_plan


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """An immutable recipe: which kernel, over which geometry, with which numbers."""

    operator: str
    kernel: str  # "" when there is nothing to compute
    compute: DType  # results are rounded to this type first, then to the output's
    shape: tuple[int, ...]
    inputs: tuple[Operand, ...]
    output: Operand
    numbers: Mapping[str, Any]
    classes: int = 0
    targets: int = -1  # which input holds class indices; -1: none does
    reciprocal: str = ""  # which number is one over the count of elements
    class_axis: int = -1  # of the output's shape; -1: there is none
    workspace: int = 0

    @property
    def empty(self) -> bool:
        return not self.kernel


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...] | None:
    """The common shape by the interface's rules (right-aligned, 1 stretches, 0 only with 0 and 1), or None."""
    rank = max(map(len, shapes))
    result = [1] * rank
    for shape in shapes:
        for axis, size in enumerate(shape, rank - len(shape)):
            if size != 1:
                if result[axis] not in (1, size):
                    return None
                result[axis] = size
    return tuple(result)


def _extent(tensor: Tensor) -> tuple[int, int]:
    if tensor.empty:
        return 0, 0
    low = high = 0
    for size, stride in zip(tensor.shape, tensor.strides, strict=True):
        reach = (size - 1) * stride
        if reach < 0:
            low += reach
        else:
            high += reach
    itemsize = tensor.dtype.itemsize
    return low * itemsize, (high + 1) * itemsize


def _stretched(tensor: Tensor, shape: tuple[int, ...]) -> list[int]:
    """The tensor's strides over a broadcast shape: 0 along stretched axes."""
    padding = len(shape) - tensor.rank
    own = (
        stride if size != 1 else 0
        for size, stride in zip(tensor.shape, tensor.strides, strict=True)
    )
    return [0] * padding + list(own)


def collapse(
    shape: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[tuple[int, ...], list[tuple[int, ...]], list[int]]:
    """Reorder, turn round and merge axes so that the last operand is walked in memory order.

    Returns the new shape, each operand's new strides, and the offset of its first visited element.
    """
    lead = strides[-1]
    axes = [axis for axis, size in enumerate(shape) if size != 1]
    offsets = [0] * len(strides)
    table = [list(own) for own in strides]
    for axis in axes:
        if lead[axis] < 0:
            for operand, own in enumerate(table):
                offsets[operand] += (shape[axis] - 1) * own[axis]
                own[axis] = -own[axis]
    axes.sort(key=lambda axis: tuple(-abs(own[axis]) for own in reversed(table)))
    merged: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for axis in axes:
        size = shape[axis]
        if merged and all(
            done[-1] == own[axis] * size for done, own in zip(steps, table, strict=True)
        ):
            merged[-1] *= size
            for done, own in zip(steps, table, strict=True):
                done[-1] = own[axis]
        else:
            merged.append(size)
            for done, own in zip(steps, table, strict=True):
                done.append(own[axis])
    if not merged:  # one element: kernels always have an axis to walk
        return (1,), [(0,) for _ in strides], offsets
    return tuple(merged), [tuple(own) for own in steps], offsets


def _one_stride(operator: str, name: str, tensor: Tensor) -> int:
    """The step through a tensor of C elements, whose documents ask for the count and not for one axis."""
    step, span = 0, 0
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.strides), strict=True):
        if size == 1:
            continue
        if span and stride != span:
            expected = "elements that lie at one stride"
            got = f"shape {tensor.shape}, strides {tensor.strides}"
            raise AclnnError(Status.ACLNN_ERR_PARAM_INVALID, operator, name, expected, got)
        step, span = step or stride, size * stride
    return step


def _operands(
    tensors: Sequence[tuple[str, Tensor]],
    strides: Sequence[tuple[int, ...]],
    offsets: Sequence[int],
    class_strides: Sequence[int],
    roles: Sequence[str],
) -> list[Operand]:
    return [
        Operand(name, tensor.dtype, own, class_stride, offset, *_extent(tensor), role)
        for (name, tensor), own, offset, class_stride, role in zip(
            tensors, strides, offsets, class_strides, roles, strict=True
        )
    ]


def elementwise_plan(
    operator: str,
    kernel: str,
    compute: DType,
    inputs: Sequence[tuple[str, Tensor]],
    output: tuple[str, Tensor],
    numbers: Mapping[str, Any],
    reciprocal: str = "",
) -> Plan:
    """The plan of an elementwise kernel over the output's shape; inputs are stretched to it."""
    shape = output[1].shape
    tensors = [*inputs, output]
    merged, strides, offsets = collapse(shape, [_stretched(t, shape) for _, t in tensors])
    operands = _operands(tensors, strides, offsets, [0] * len(tensors), ["full"] * len(tensors))
    return Plan(
        operator, kernel, compute, merged, tuple(operands[:-1]), operands[-1],
        MappingProxyType(dict(numbers)), reciprocal=reciprocal,
    )  # fmt: skip


def class_plan(
    operator: str,
    kernel: str,
    compute: DType,
    inputs: Sequence[tuple[str, Tensor, str]],
    output: tuple[str, Tensor],
    class_axis: int,
    targets: int,
    numbers: Mapping[str, Any],
) -> Plan:
    """The plan of a kernel with a class axis.

    Each input has a role: "full" lies like the output, "positions" lacks the class axis, "classes" has
    the class axis alone, "single" is one element for all.
    """
    shape = output[1].shape
    positions = shape[:class_axis] + shape[class_axis + 1 :]
    rows: list[Sequence[int]] = []
    class_strides: list[int] = []
    roles: list[str] = []
    tensors: list[tuple[str, Tensor]] = []
    for name, tensor, role in [*inputs, (*output, "full")]:
        strides = [
            stride if size != 1 else 0
            for size, stride in zip(tensor.shape, tensor.strides, strict=True)
        ]
        tensors.append((name, tensor))
        roles.append(role)
        if role == "full":
            rows.append(strides[:class_axis] + strides[class_axis + 1 :])
            class_strides.append(strides[class_axis])
        elif role == "positions":
            rows.append(strides)
            class_strides.append(0)
        else:
            rows.append([0] * len(positions))
            class_strides.append(_one_stride(operator, name, tensor) if role == "classes" else 0)
    merged, steps, offsets = collapse(positions, rows)
    operands = _operands(tensors, steps, offsets, class_strides, roles)
    return Plan(
        operator, kernel, compute, merged, tuple(operands[:-1]), operands[-1],
        MappingProxyType(dict(numbers)), shape[class_axis], targets, class_axis=class_axis,
    )  # fmt: skip


def empty_plan(operator: str, output: tuple[str, Tensor]) -> Plan:
    """The plan of a call on empty tensors: success, no workspace, nothing written."""
    name, tensor = output
    operand = Operand(name, tensor.dtype, tensor.strides)
    return Plan(operator, "", tensor.dtype, (0,), (), operand, MappingProxyType({}))


def walks_alike(operand: Operand, output: Operand) -> bool:
    """Whether each element is read exactly where its output element is written, if both begin at one address."""
    return (
        operand.role == "full"
        and operand.dtype.itemsize == output.dtype.itemsize
        and operand.strides == output.strides
        and operand.class_stride == output.class_stride
        and operand.offset == output.offset
    )


def covered_elements(plan: Plan) -> int:
    """How many elements the plan's output has."""
    return element_count(plan.shape) * max(plan.classes, 1)
