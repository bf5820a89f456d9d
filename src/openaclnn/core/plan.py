"""`Plan`: everything a kernel needs to know about a checked call, and nothing about where its data lie.

An operator's `plan` function makes one with a function of this module; an engine runs it. A plan holds no address, so that one plan
serves every call of the same signature.

Two access patterns exist. Elementwise kernels visit `shape`. Kernels with a class axis visit
`shape` (the positions) and, at each position, `classes` classes that lie `class_stride` apart.
"""

from __future__ import annotations

import functools
import marshal
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple, TypeVar

from openaclnn.core.dtypes import FLOAT, DType, promote
from openaclnn.core.status import AclnnError, Status
from openaclnn.core.tensor import Tensor, element_count, extent

ANY_COUNT = (1, 1 << 62)
"""A range of element counts that has all of them: its first count, and the one after its last."""


class Operand(NamedTuple):
    """How a kernel visits one tensor. Strides and offset count elements; `low` and `high` count bytes."""

    parameter: str
    dtype: DType
    strides: tuple[int, ...]  # one for each axis of the plan's shape
    class_stride: int = 0
    offset: int = 0  # from the tensor's first element to the first one visited
    low: int = 0  # the view covers the bytes [address + low, address + high)
    high: int = 0
    # "full", "positions", "classes" or "single": see class_plan; "channels": see steps.py; or one of HALVES
    role: str = "full"


HALVES = ("first half", "second half")
"""Roles of operands that are parts of a tensor along `Plan.class_axis`."""


class Half(NamedTuple):
    """The first or second half of a tensor along an axis, as an operand: kernels visit it in place, without a copy."""

    tensor: Tensor
    axis: int
    second: bool

    @property
    def view(self) -> Tensor:
        """The half's shape and strides as a tensor; `offset` says where the half begins."""
        tensor, axis = self.tensor, self.axis
        shape = (*tensor.shape[:axis], tensor.shape[axis] // 2, *tensor.shape[axis + 1 :])
        return Tensor.view(shape, tensor.dtype, tensor.strides, 0, None, tensor.device)

    @property
    def offset(self) -> int:
        return self.second * (self.tensor.shape[self.axis] // 2) * self.tensor.strides[self.axis]


operand_signature = attrgetter("parameter", "dtype", "role")
"""The fields of an operand that sizes and strides do not change; engines key their kernels by them."""

_operand = functools.partial(tuple.__new__, Operand)  # takes a third of the time of `Operand(...)`


@dataclass(frozen=True, eq=False)
class Free:
    """An option whose number may change from call to call without a new plan, since nothing else of the plan follows from it.

    A number below `low` or above `high` breaks a rule of the operator; NaN counts as outside. In an elementwise plan the number
    stands among `numbers` under the option's name, which is the formula's keyword too.
    """

    option: str  # its Python name
    integer: bool = False  # any integer is allowed, and nothing else
    low: float = -math.inf
    high: float = math.inf
    # 0 as FLOAT selects other code, so that a change from or to 0 needs another plan.
    keeps_zero: bool = False
    held: DType = FLOAT  # the dtype that the number is rounded to


@dataclass(slots=True, eq=False)
class Plan:
    """Which kernel runs, over which shape and strides, with which numbers. Nobody changes a plan once it is made."""

    operator: str
    kernel: str  # "" when there is nothing to compute
    compute: DType  # inputs are rounded to this type; so are results, which are then rounded to the output's
    shape: tuple[int, ...]
    inputs: tuple[Operand, ...]
    output: Operand
    numbers: Mapping[str, Any]
    classes: int = 0
    targets: int = -1  # which input holds class indices; -1: none does
    reciprocal: str = ""  # the name of the number that is one over the count of elements
    # Numbers or rules depend on the sizes in another way than by `reciprocal`: calls of other sizes need another plan.
    fixed: bool = False
    fixed_classes: bool = False  # the same of the number of classes alone
    rank_specific: bool = False  # rules depend on the rank: calls of another need another plan
    class_axis: int = -1  # of classes or of halves, before axes are merged; -1: there is none
    dense: bool = False  # every operand is known to be row-major and of the output's shape
    workspace: int = 0
    free: tuple[Free, ...] = ()
    more: tuple[Operand, ...] = ()  # outputs after the first
    spared: tuple[Operand, ...] = ()  # outputs that this call does not compute
    reduction: str = ""  # "sum" or "mean" of what the kernel computes at each element or position
    steps: tuple[Step, ...] = ()  # the plans that engines run in this one's place
    scratch: int = 0  # bytes of memory for what one step leaves for the next
    # The shape before axes are merged, class axis included: "full" operands have it, or stretch to it.
    full_shape: tuple[int, ...] = ()

    @property
    def empty(self) -> bool:
        return not self.kernel

    @property
    def operands(self) -> tuple[Operand, ...]:
        """All operands, in the order in which kernels take their addresses: inputs, then outputs."""
        return (*self.inputs, self.output, *self.more)

    @property
    def outputs(self) -> tuple[Operand, ...]:
        return (self.output, *self.more)

    @property
    def halved(self) -> bool:
        """Whether inputs are halves of tensors: two operands may then begin at one address."""
        return not _HALVES.isdisjoint(map(_role_of, self.inputs))

    @property
    def shape_specific(self) -> bool:
        """Whether the plan serves calls of these sizes alone: they decide its numbers or offsets, or its operands do not broadcast."""
        if self.fixed:
            return True
        return not _APART.isdisjoint(map(_role_of, self.inputs))


_HALVES, _role_of = frozenset(HALVES), attrgetter("role")
_APART = _HALVES | {"channels"}


class Step(NamedTuple):
    """A plan that is a part of another. `places` has the number of each of its operands among the other's; the number behind the last is scratch memory."""

    plan: Plan
    places: tuple[int, ...]


def numbers_key(numbers: Mapping[str, Any], without: str = "") -> bytes:
    """A plan's numbers as a key in which -0.0 differs from 0.0; one of them may be left out. Text as a key takes three times as long."""
    if without:
        numbers = {**numbers, without: None}
    try:
        return marshal.dumps(tuple(numbers.values()), _MARSHAL_VERSION)
    except ValueError:
        known = "floats, integers and truth values (a Scalar's is its `.float32()`)"
        raise TypeError(f"a plan's numbers: expected {known}, got {numbers}") from None


_MARSHAL_VERSION = 2  # bytes of later versions depend on which objects are shared

Key = TypeVar("Key")
Value = TypeVar("Value")


class BoundedCache(dict[Key, Value]):
    """A cache that is cleared when it is full, so that looking up costs no more than in a dictionary."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def __setitem__(self, key: Key, value: Value) -> None:
        if len(self) >= self._limit:
            self.clear()
        super().__setitem__(key, value)


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...] | None:
    """The common shape by the interface's rules (right-aligned, 1 stretches, 0 only with 0 and 1), or None."""
    if shapes.count(shapes[0]) == len(shapes):
        return shapes[0]
    wide = [shape for shape in shapes if shape not in _ONE]
    if wide and wide.count(wide[0]) == len(wide):
        return wide[0]
    rank = max(map(len, shapes))
    result = [1] * rank
    for shape in shapes:
        for axis, size in enumerate(shape, rank - len(shape)):
            if size != 1:
                if result[axis] not in (1, size):
                    return None
                result[axis] = size
    return tuple(result)


_ONE = (), (1,)  # shapes that stretch to whatever there is beside them


def stretched(tensor: Tensor, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The tensor's strides over a broadcast shape: 0 along stretched axes. A tensor of one element may have more axes than the shape."""
    if tensor.shape == shape:
        return tensor.strides
    padding = len(shape) - len(tensor.shape)
    return (0,) * padding + _strides(tensor)[max(0, -padding) :]


def _strides(tensor: Tensor) -> tuple[int, ...]:
    """The tensor's strides, 0 along axes of one element."""
    if 1 not in tensor.shape:
        return tensor.strides
    axes = zip(tensor.shape, tensor.strides, strict=True)
    return tuple([stride if size != 1 else 0 for size, stride in axes])


def collapse(
    shape: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[tuple[int, ...], list[tuple[int, ...]], list[int]]:
    """Reorder, reverse and merge axes so that the last operand is visited in memory order.

    Returns the new shape, each operand's new strides, and the offset of its first visited element.
    """
    if len(shape) == 1 and shape[0] > 1 and strides[-1][0] >= 0:
        return tuple(shape), list(map(tuple, strides)), [0] * len(strides)
    axes: list[tuple[int, tuple[int, ...]]] = []  # the size, and each operand's stride
    offsets = [0] * len(strides)
    for size, steps in zip(shape, zip(*strides, strict=True), strict=True):
        if size == 1:
            continue
        if steps[-1] < 0:
            offsets = [
                offset + (size - 1) * step for offset, step in zip(offsets, steps, strict=True)
            ]
            steps = tuple([-step for step in steps])
        axes.append((size, steps))
    if not axes:  # one element: kernels always have an axis to walk
        return (1,), [(0,)] * len(strides), offsets
    for (_, steps), (_, next_steps) in pairwise(axes):
        if steps[-1] <= next_steps[-1]:  # else they are in order
            axes.sort(key=lambda axis: [-abs(step) for step in reversed(axis[1])])
            break
    merged = axes[:1]
    for size, steps in axes[1:]:
        length, before = merged[-1]
        if before == tuple([step * size for step in steps]):
            merged[-1] = length * size, steps
        else:
            merged.append((size, steps))
    sizes, table = zip(*merged, strict=True)
    return sizes, list(zip(*table, strict=True)), offsets


def _one_stride(operator: str, name: str, tensor: Tensor) -> int:
    """The stride between the elements of a tensor whose document asks for C elements, not for one axis; AclnnError where there are several."""
    if len(tensor.shape) == 1:
        return _strides(tensor)[0]
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


def _contiguous_operands(
    tensors: Sequence[tuple[str, Tensor]], shape: tuple[int, ...], count: int
) -> tuple[list[Operand], bool] | None:
    """The operands of tensors that are contiguous and of this shape, or of one element that stretches to it, and whether all are of this
    shape. In most calls they are, and there is nothing to collapse. None where a tensor is neither.
    """
    operands, dense = [], True
    for name, tensor in tensors:
        dtype = tensor.dtype
        if tensor.shape == shape and tensor.contiguous:
            operands.append(_operand((name, dtype, (1,), 0, 0, 0, count * dtype.itemsize, "full")))
        elif tensor.size == 1:
            operands.append(_operand((name, dtype, (0,), 0, 0, 0, dtype.itemsize, "full")))
            dense = False
        else:
            return None
    return operands, dense


_MOST_ELEMENTS = 1 << 60  # 63 bits count their bytes in any dtype


def _broadcast_operands(
    operator: str,
    tensors: Sequence[tuple[str, Tensor]],
    shape: tuple[int, ...],
    last: Sequence[Sequence[int]] = (),
) -> tuple[tuple[int, ...], list[Operand], bool]:
    """A shape with merged axes, the operands of tensors that stretch over it, and whether all are known to be dense. `last` has the strides of
    an operand after them, whose memory order decides the order of axes."""
    count = element_count(shape)
    if count > _MOST_ELEMENTS:
        name, expected = tensors[0][0], f"at most 2^60 elements in {shape}, which all stretch to"
        raise AclnnError(Status.ACLNN_ERR_PARAM_INVALID, operator, name, expected, str(count))
    flat = _contiguous_operands(tensors, shape, count) if count > 1 else None
    if flat is not None:
        return (count,), *flat
    rows = [stretched(tensor, shape) for _, tensor in tensors]
    merged, strides, offsets = collapse(shape, [*rows, *last])
    operands = [
        Operand(name, tensor.dtype, walk, 0, offset, *extent(tensor))
        for (name, tensor), walk, offset in zip(tensors, strides, offsets, strict=False)
    ]
    return merged, operands, False


def elementwise_plan(
    operator: str,
    kernel: str,
    compute: DType,
    inputs: Sequence[tuple[str, Tensor]],
    output: tuple[str, Tensor],
    numbers: Mapping[str, Any],
    reciprocal: str = "",
    free: tuple[Free, ...] = (),
    fixed: bool = False,
    spared: Sequence[tuple[str, Tensor, str]] = (),
) -> Plan:
    """The plan of an elementwise kernel over the output's shape; inputs are stretched to it."""
    check_free(free, kernel, numbers)
    shape, (*operands, last), dense = _broadcast_operands(
        operator, [*inputs, output], output[1].shape
    )
    return Plan(
        operator, kernel, compute, shape, tuple(operands), last, numbers,
        reciprocal=reciprocal, fixed=fixed, dense=dense, free=free, spared=_spared(spared), full_shape=output[1].shape,
    )  # fmt: skip


def halves_plan(
    operator: str,
    kernel: str,
    compute: DType,
    inputs: Sequence[tuple[str, Tensor | Half]],
    outputs: Sequence[tuple[str, Tensor | Half]],
    numbers: Mapping[str, Any],
    fixed: bool = False,
) -> Plan:
    """The plan of an elementwise kernel over tensors and halves of tensors, which all have one shape."""
    named = [*inputs, *outputs]
    views = [(name, part.view if isinstance(part, Half) else part) for name, part in named]
    merged, operands, _ = _broadcast_operands(operator, views, views[0][1].shape)
    axis = -1
    for place, (operand, (_, part)) in enumerate(zip(operands, named, strict=True)):
        if isinstance(part, Half):
            axis, (low, high) = part.axis, extent(part.tensor)
            operands[place] = operand._replace(
                offset=operand.offset + part.offset, low=low, high=high, role=HALVES[part.second]
            )
    first, *more = operands[len(inputs) :]
    return Plan(
        operator, kernel, compute, merged, tuple(operands[: len(inputs)]), first, numbers,
        class_axis=axis, more=tuple(more), fixed=fixed, full_shape=views[0][1].shape,
    )  # fmt: skip


def reduced_plan(
    operator: str,
    kernel: str,
    compute: DType,
    inputs: Sequence[tuple[str, Tensor]],
    output: tuple[str, Tensor],
    shape: tuple[int, ...],
    numbers: Mapping[str, Any],
    reduction: str,
    free: tuple[Free, ...] = (),
) -> Plan:
    """The plan that computes one element: the sum or mean of what an elementwise kernel computes over a shape."""
    check_free(free, kernel, numbers)
    merged, operands, _ = _broadcast_operands(operator, inputs, shape, [(0,) * len(shape)])
    return Plan(
        operator, kernel, compute, merged, tuple(operands), single_operand(output, len(merged)), numbers,
        reduction=reduction, free=free, full_shape=shape,
    )  # fmt: skip


def check_free(free: tuple[Free, ...], kernel: str, numbers: Mapping[str, Any]) -> None:
    """A number that the next call changes must be one of the formula's, or the formula would keep this call's."""
    for number in free:
        if number.option not in numbers:
            text = f"expected one of the plan's numbers ({', '.join(numbers)}), got {number.option}"
            raise TypeError(f"the plan of {kernel}: free: {text}")


def single_operand(output: tuple[str, Tensor], axes: int) -> Operand:
    """The operand of an output of one element in a plan with so many axes."""
    name, tensor = output
    return Operand(name, tensor.dtype, (0,) * axes, 0, 0, *extent(tensor), role="single")


def filling_plan(
    operator: str,
    *outputs: tuple[str, Tensor, float],
    spared: Sequence[tuple[str, Tensor, str]] = (),
) -> Plan:
    """The plan of results for empty tensors: writes a number into each of some outputs of one element, or into all elements of one output."""
    numbers = {name: number for name, _, number in outputs}
    if len(outputs) == 1 and outputs[0][1].size > 1:
        name, tensor, _ = outputs[0]
        shape, (output,), _ = _broadcast_operands(operator, [(name, tensor)], tensor.shape)
        return Plan(operator, "fill", tensor.dtype, shape, (), output, numbers)
    first, *more = [single_operand((name, tensor), 1) for name, tensor, _ in outputs]
    return Plan(
        operator, "fill", first.dtype, (1,), (), first, numbers, more=tuple(more), spared=_spared(spared)
    )  # fmt: skip


def class_plan(
    operator: str,
    kernel: str,
    compute: DType,
    inputs: Sequence[tuple[str, Tensor, str]],
    outputs: Sequence[tuple[str, Tensor, str]],
    shape: tuple[int, ...],
    class_axis: int,
    targets: int,
    numbers: Mapping[str, Any],
    free: tuple[Free, ...] = (),
    reduction: str = "",
    spared: Sequence[tuple[str, Tensor, str]] = (),
    fixed: bool = False,
    fixed_classes: bool = False,
) -> Plan:
    """The plan of a kernel with a class axis.

    Each operand has a role: "full" has the whole shape (an input's axes of one element stretch to it), "positions" lacks the class
    axis, "classes" has the class axis alone, "single" is one element for all. Outputs that are not computed (`spared`) have one too.
    """
    tensors = [*inputs, *outputs]
    for _, tensor, role in tensors:
        if not tensor.contiguous or (role == "full" and tensor.shape not in (shape, ())):
            merged, operands = _collapsed_operands(operator, tensors, shape, class_axis)
            break
    else:
        merged, operands = _row_major_operands(tensors, shape, class_axis)
    first = len(inputs)
    return Plan(
        operator, kernel, compute, merged, tuple(operands[:first]), operands[first], numbers, shape[class_axis], targets,
        class_axis=class_axis, free=free, more=tuple(operands[first + 1 :]), spared=_spared(spared), reduction=reduction, fixed=fixed,
        fixed_classes=fixed_classes, full_shape=shape,
    )  # fmt: skip


def partial_sum_length(size: int, rows: int, strided: bool) -> int:
    """How many elements of an axis are added up at once: all, or a divisor of the size, and then a further step adds up the parts' sums.

    Long rows are cut where there are few rows, so that all threads have work: a CPU thread or GPU program takes one row at a time, but a GPU program
    takes 32 or 64 at once if they are `strided`, since elements of its other rows lie between those of one.
    """
    enough, longest = (1 << 15, 1 << 8) if strided else (1 << 10, 1 << 12)
    if rows >= enough or size <= 2 * longest:
        return size
    lengths = range(longest, longest // 8, -1)
    return next((length for length in lengths if size % length == 0), size)


def summed_plan(
    operator: str,
    kernels: tuple[str, str, str],
    compute: DType,
    inputs: Sequence[tuple[str, Tensor]],
    output: tuple[str, Tensor],
    shape: tuple[int, ...],
    numbers: Mapping[str, Any],
    reciprocal: str = "",
    fixed: bool = False,
) -> Plan:
    """The plan that adds up a formula's results over a shape, along the axes that the output lacks or has one element of.

    The three kernels are the formula, a row formula that is its total over a row, and one that adds up rows and divides by a `count`. Axes that
    merge into one in all inputs are added up at once, in parts where there are few rows; others one after the other, in FLOAT.
    """
    name, tensor = output
    if tensor.size == 1:
        whole = reduced_plan(operator, kernels[0], compute, inputs, output, shape, numbers, "sum")
        return replace(whole, fixed=True)
    sizes = (1,) * (len(shape) - len(tensor.shape)) + tensor.shape
    kept = [axis for axis, size in enumerate(sizes) if size == shape[axis]]
    walks = [stretched(tensor, shape) for _, tensor in inputs]
    # Axes, or groups that are merged: the first axis, the count of elements, and each input's stride.
    remaining = [(axis, shape[axis], [walk[axis] for walk in walks]) for axis in kept]
    groups: list[tuple[int, int, list[int]]] = []
    for axis, size in enumerate(shape):
        if axis in kept:
            continue
        strides = [walk[axis] for walk in walks]
        if groups and groups[-1][2] == [stride * size for stride in strides]:
            groups[-1] = groups[-1][0], groups[-1][1] * size, strides
        else:
            groups.append((axis, size, strides))
    axis, size, strides = groups.pop()
    rows = math.prod([count for _, count, _ in groups], start=tensor.size)
    part = partial_sum_length(size, rows, 1 not in strides)
    if part < size:
        groups.append((axis, size // part, [stride * part for stride in strides]))
    groups.append((axis, part, strides))
    steps = stretched(tensor, shape)
    last = _view(tensor, tuple([shape[axis] for axis in kept]), tuple([steps[axis] for axis in kept]))  # fmt: skip
    views: list[tuple[str, Tensor, str]] = []
    stages: list[Plan] = []
    for number in reversed(range(len(groups))):
        axes = sorted([*remaining, *groups[: number + 1]], key=itemgetter(0))
        along, class_axis = tuple([size for _, size, _ in axes]), axes.index(groups[number])
        if not stages:
            views = [
                (each, _view(one, along, tuple([strides[place] for _, _, strides in axes])), "full")
                for place, (each, one) in enumerate(inputs)
            ]
        others = along[:class_axis] + along[class_axis + 1 :]
        result = Tensor.view(others, FLOAT, None, 0, None, "") if number else last
        stage = class_plan(
            operator, kernels[2] if stages else kernels[1], FLOAT if len(groups) > 1 else compute, views, [(name, result, "positions")], along,
            class_axis, -1, {"count": 1.0} if stages else numbers,
        )  # fmt: skip
        stages.append(replace(stage, fixed=True))
        views = [(name, result, "full")]
    chain, scratch = _chained_steps(stages)
    # Axes take the memory order of the largest input, which is read most.
    largest = max(range(len(inputs)), key=lambda place: inputs[place][1].size)
    merged, (*walks, walk, _), offsets = collapse(shape, [*walks, steps, walks[largest]])
    read = tuple([
        Operand(each, one.dtype, walk, 0, offset, *extent(one))
        for (each, one), walk, offset in zip(inputs, walks, offsets, strict=False)
    ])  # fmt: skip
    written = Operand(name, tensor.dtype, walk, 0, offsets[-2], *extent(tensor), "positions")
    return Plan(
        operator, kernels[0], compute, merged, read, written, numbers, reciprocal=reciprocal, class_axis=stages[0].class_axis, steps=chain,
        scratch=scratch, fixed=fixed, full_shape=shape,
    )  # fmt: skip


def _chained_steps(stages: Sequence[Plan]) -> tuple[tuple[Step, ...], int]:
    """The steps of plans each of which reads what the one before wrote, and how many bytes of scratch memory they need."""
    steps, end, begin = [], 0, 0
    inputs = len(stages[0].inputs)
    for number, stage in enumerate(stages):
        read, written = tuple(range(inputs)), inputs
        if number:
            stage = replace(stage, inputs=(stage.inputs[0]._replace(offset=begin),))
            read = (inputs + 1,)
        if number < len(stages) - 1:
            stage = replace(stage, output=stage.output._replace(offset=end))
            begin, end, written = end, end + -(-element_count(stage.shape) // 16) * 16, inputs + 1
        steps.append(Step(stage, (*read, written)))
    return tuple(steps), end * FLOAT.itemsize


def broadcast_view(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A view of a tensor's memory in a shape that it stretches to."""
    return tensor if tensor.shape == shape else _view(tensor, shape, stretched(tensor, shape))


def _view(tensor: Tensor, shape: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
    """A view of a tensor's memory in another shape and with other strides."""
    return Tensor.view(shape, tensor.dtype, strides, 0, None, tensor.device)


def _spared(outputs: Sequence[tuple[str, Tensor, str]]) -> tuple[Operand, ...]:
    """The operands of outputs that are not computed: names, dtypes and roles."""
    if not outputs:
        return ()
    return tuple(
        [_operand((name, tensor.dtype, (), 0, 0, 0, 0, role)) for name, tensor, role in outputs]
    )


def _collapsed_operands(
    operator: str,
    tensors: Sequence[tuple[str, Tensor, str]],
    shape: tuple[int, ...],
    class_axis: int,
) -> tuple[tuple[int, ...], list[Operand]]:
    """The merged shape of a class plan's positions, and its operands."""
    positions = shape[:class_axis] + shape[class_axis + 1 :]
    rows: list[Sequence[int]] = []
    class_strides: list[int] = []
    for name, tensor, role in tensors:
        strides = _strides(tensor)
        if role == "full":
            rows.append(strides[:class_axis] + strides[class_axis + 1 :])
            class_strides.append(strides[class_axis])
        elif role == "positions":
            rows.append(strides)
            class_strides.append(0)
        else:
            rows.append((0,) * len(positions))
            class_strides.append(_one_stride(operator, name, tensor) if role == "classes" else 0)
    merged, steps, offsets = collapse(positions, rows)
    return merged, [
        Operand(name, tensor.dtype, strides, class_stride, offset, *extent(tensor), role)
        for (name, tensor, role), strides, class_stride, offset in zip(
            tensors, steps, class_strides, offsets, strict=True
        )
    ]


def row_major_strides(
    before: int, classes: int, behind: int
) -> tuple[tuple[int, ...], dict[str, tuple[tuple[int, ...], int, int]]]:
    """The merged shape of positions where all arrays are row-major, with `before` positions before the class axis and `behind` behind it.
    Beside it, by role: an operand's strides, its stride from class to class, and its count of elements.
    """
    positions = before * behind
    if classes == 1 or before == 1 or behind == 1:
        merged: tuple[int, ...] = (positions,)
        each: tuple[int, ...] = (0,) if positions == 1 else (1,)
        full = (classes,) if behind == 1 < before else each
    else:
        merged, full, each = (before, behind), (classes * behind, 1), (behind, 1)
    nowhere = (0,) * len(merged)
    return merged, {
        "full": (full, behind if classes > 1 else 0, positions * classes),
        "positions": (each, 0, positions),
        "classes": (nowhere, int(classes > 1), classes),
        "single": (nowhere, 0, 1),
    }


def _row_major_operands(
    tensors: Sequence[tuple[str, Tensor, str]], shape: tuple[int, ...], class_axis: int
) -> tuple[tuple[int, ...], list[Operand]]:
    """The result of `_collapsed_operands` where all tensors are row-major, as most are. It follows from three numbers there, in a third of
    the time.
    """
    before, behind = element_count(shape[:class_axis]), element_count(shape[class_axis + 1 :])
    merged, walks = row_major_strides(before, shape[class_axis], behind)
    operands = []
    for name, tensor, role in tensors:
        strides, class_stride, count = walks[role]
        dtype = tensor.dtype
        reach = count * dtype.itemsize
        operands.append(_operand((name, dtype, strides, class_stride, 0, 0, reach, role)))
    return merged, operands


def empty_plan(
    operator: str, output: tuple[str, Tensor], spared: Sequence[tuple[str, Tensor, str]] = ()
) -> Plan:
    """The plan of a call on empty tensors: success, no workspace, nothing written."""
    name, tensor = output
    operand = Operand(name, tensor.dtype, tensor.strides)
    return Plan(operator, "", tensor.dtype, (0,), (), operand, {}, spared=_spared(spared))


def rounded_input(plan: Plan) -> str | None:
    """A sentence about the first "full" input whose values the computation type does not hold, so that they must be rounded to it first; or None."""
    compute = plan.compute
    for operand in plan.inputs:
        dtype = operand.dtype
        if dtype is compute or operand.role != "full":
            continue
        if dtype.kind == compute.kind == "floating" and promote(dtype, compute) is not compute:
            return f"{operand.parameter} is rounded to {compute} first"
    return None


def walks_alike(operand: Operand, output: Operand) -> bool:
    """Whether an input and an output at one address coincide element by element, so that each is read where it is written. "full" and "positions"
    never coincide, not even with one class: the next call may have more.
    """
    return (
        operand.role == "full"
        and output.role not in ("positions", *HALVES)
        and operand.dtype.itemsize == output.dtype.itemsize
        and operand.strides == output.strides
        and operand.class_stride == output.class_stride
        and operand.offset == output.offset
    )


def covered_elements(plan: Plan) -> int:
    """How many elements the plan's output has."""
    return math.prod(plan.shape) * (plan.classes or 1)
