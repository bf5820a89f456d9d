"""`Plan`: everything a kernel needs to know about a checked call, and nothing about where its data lie.

A plan holds no address, so that one plan serves every call of the same signature.

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
"""Counts of elements: from, below."""


class Operand(NamedTuple):
    """How one tensor is walked. Strides and offset count elements, the extent counts bytes."""

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
    """The first or second half of a tensor along an axis, as an operand: kernels walk it where it lies."""

    tensor: Tensor
    axis: int
    second: bool

    @property
    def view(self) -> Tensor:
        """The half as a tensor; where it begins, the offset says."""
        tensor, axis = self.tensor, self.axis
        shape = (*tensor.shape[:axis], tensor.shape[axis] // 2, *tensor.shape[axis + 1 :])
        return Tensor.view(shape, tensor.dtype, tensor.strides, 0, None, tensor.device)

    @property
    def offset(self) -> int:
        return self.second * (self.tensor.shape[self.axis] // 2) * self.tensor.strides[self.axis]


told_of = attrgetter("parameter", "dtype", "role")
"""What of an operand is the same at any size, whatever its strides."""

_operand = functools.partial(tuple.__new__, Operand)  # of all fields: a third of the time


@dataclass(frozen=True, eq=False)
class Free:
    """An option that may be another number in the next call of a kind: nothing else of the plan follows from it.

    A number outside of the bounds, which are inside, breaks a rule of the operator; NaN is never inside. In an elementwise
    plan it stands among the numbers under the same name: the formula's keyword is called as the option is.
    """

    option: str  # by its Python name
    whole: bool = False  # any integer
    low: float = -math.inf
    high: float = math.inf
    # What is 0 as FLOAT selects other code: it stays 0, or stays another number.
    keeps_zero: bool = False


@dataclass(slots=True, eq=False)
class Plan:
    """A recipe that nobody changes: which kernel, over which geometry, with which numbers."""

    operator: str
    kernel: str  # "" when there is nothing to compute
    compute: DType  # inputs are rounded to this type; so are results, and then to the output's
    shape: tuple[int, ...]
    inputs: tuple[Operand, ...]
    output: Operand
    numbers: Mapping[str, Any]
    classes: int = 0
    targets: int = -1  # which input holds class indices; -1: none does
    reciprocal: str = ""  # which number is one over the count of elements
    # Numbers or rules follow from the sizes otherwise: other sizes need another plan.
    fixed: bool = False
    ranked: bool = False  # rules look at the number of axes: others need another plan
    class_axis: int = -1  # of the output's shape, of classes or of halves; -1: there is none
    dense: bool = False  # every operand is row-major and of the output's shape; False: perhaps
    workspace: int = 0
    free: tuple[Free, ...] = ()
    more: tuple[Operand, ...] = ()  # outputs after the first
    spared: tuple[Operand, ...] = ()  # outputs that this call does not compute
    reduction: str = ""  # "sum", "mean": of what is computed at each element or position
    steps: tuple[Step, ...] = ()  # the plans that engines run in this one's place
    scratch: int = 0  # bytes of memory for what a step leaves for the next
    # What the kernel visits before axes are merged, with those of classes: the shape that operands follow by their roles, or stretch to.
    whole: tuple[int, ...] = ()

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
        """Whether operands are halves of tensors: one address may stand for two."""
        return not _HALVES.isdisjoint(map(_role_of, self.inputs))

    @property
    def shape_specific(self) -> bool:
        """Whether it says nothing of calls of other sizes: numbers, offsets or steps that sizes decide, or shapes that do not broadcast."""
        if self.fixed or self.steps:
            return True
        return not _APART.isdisjoint(map(_role_of, self.inputs))


_HALVES, _role_of = frozenset(HALVES), attrgetter("role")
_APART = _HALVES | {"channels"}


class Step(NamedTuple):
    """A plan that is a part of another, and where each of its operands is among the other's; scratch memory is behind those."""

    plan: Plan
    places: tuple[int, ...]


def exactly(numbers: Mapping[str, Any], but: str = "") -> bytes:
    """A plan's numbers, all or all but one, as a key in which -0.0 is another than 0.0. (As text that takes three times as long.)"""
    if but:
        numbers = {**numbers, but: None}
    try:
        return marshal.dumps(tuple(numbers.values()), _BARE)
    except ValueError:
        known = "floats, integers and truth values (a Scalar's is its `.float32()`)"
        raise TypeError(f"a plan's numbers: expected {known}, got {numbers}") from None


_BARE = 2  # the last of marshal's versions that has objects by value alone

Key = TypeVar("Key")
Value = TypeVar("Value")


class BoundedCache(dict[Key, Value]):
    """A cache of so many entries at most: with one more it begins anew, which costs looking up nothing."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: Key, value: Value) -> None:
        if len(self) >= self._most:
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
    """The tensor's strides over a broadcast shape: 0 along stretched axes. One element may have more axes than there are."""
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
    """Reorder, turn round and merge axes so that the last operand is walked in memory order.

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
    for (_, one), (_, next_one) in pairwise(axes):
        if one[-1] <= next_one[-1]:  # else they are in order
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
    """The step through a tensor of C elements, whose documents ask for the count and not for one axis."""
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


def _in_a_row(
    tensors: Sequence[tuple[str, Tensor]], shape: tuple[int, ...], count: int
) -> tuple[list[Operand], bool] | None:
    """How tensors are walked that have this shape and lie row-major, or have one element for all of it, and whether none is
    of one: there is nothing to collapse, as in most calls. None where one lies otherwise.
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


_MOST_ELEMENTS = 1 << 60  # whose bytes are counted by 63 bits, whatever the dtype


def _walked(
    operator: str,
    tensors: Sequence[tuple[str, Tensor]],
    shape: tuple[int, ...],
    behind: Sequence[Sequence[int]] = (),
) -> tuple[tuple[int, ...], list[Operand], bool]:
    """A shape with merged axes, how tensors that stretch over it are walked, and whether all are known to be dense. `behind` are
    strides of an operand after them."""
    count = element_count(shape)
    if count > _MOST_ELEMENTS:
        name, expected = tensors[0][0], f"at most 2^60 elements in {shape}, which all stretch to"
        raise AclnnError(Status.ACLNN_ERR_PARAM_INVALID, operator, name, expected, str(count))
    flat = _in_a_row(tensors, shape, count) if count > 1 else None
    if flat is not None:
        return (count,), *flat
    rows = [stretched(tensor, shape) for _, tensor in tensors]
    merged, strides, offsets = collapse(shape, [*rows, *behind])
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
    _check_free(free, kernel, numbers)
    merged, (*operands, last), dense = _walked(operator, [*inputs, output], output[1].shape)
    return Plan(
        operator, kernel, compute, merged, tuple(operands), last, numbers,
        reciprocal=reciprocal, fixed=fixed, dense=dense, free=free, spared=_spared(spared), whole=output[1].shape,
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
    """The plan of an elementwise kernel over tensors, and halves of tensors, of one shape."""
    named = [*inputs, *outputs]
    views = [(name, part.view if isinstance(part, Half) else part) for name, part in named]
    merged, operands, _ = _walked(operator, views, views[0][1].shape)
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
        class_axis=axis, more=tuple(more), fixed=fixed, whole=views[0][1].shape,
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
    """The plan that makes one element, a sum or a mean, of what an elementwise kernel computes over a shape."""
    _check_free(free, kernel, numbers)
    merged, operands, _ = _walked(operator, inputs, shape, [(0,) * len(shape)])
    return Plan(
        operator, kernel, compute, merged, tuple(operands), single_operand(output, len(merged)), numbers,
        reduction=reduction, free=free, whole=shape,
    )  # fmt: skip


def _check_free(free: tuple[Free, ...], kernel: str, numbers: Mapping[str, Any]) -> None:
    """A number that the next call changes must be one of the formula's, or the formula would keep this call's."""
    for number in free:
        if number.option not in numbers:
            told = f"expected one of the plan's numbers ({', '.join(numbers)}), got {number.option}"
            raise TypeError(f"the plan of {kernel}: free: {told}")


def single_operand(output: tuple[str, Tensor], axes: int) -> Operand:
    """An output of one element under a plan with some axes."""
    name, tensor = output
    return Operand(name, tensor.dtype, (0,) * axes, 0, 0, *extent(tensor), role="single")


def filling_plan(
    operator: str,
    *outputs: tuple[str, Tensor, float],
    spared: Sequence[tuple[str, Tensor, str]] = (),
) -> Plan:
    """The plan that writes numbers into outputs of one element, or a number into one of several: what an operator gives for empty tensors."""
    numbers = {name: number for name, _, number in outputs}
    if len(outputs) == 1 and outputs[0][1].size > 1:
        name, tensor, _ = outputs[0]
        shape, (output,), _ = _walked(operator, [(name, tensor)], tensor.shape)
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
) -> Plan:
    """The plan of a kernel with a class axis.

    Each operand has a role: "full" is of the whole shape (an input's axes of one element stretch to it), "positions" lacks the class
    axis, "classes" has the class axis alone, "single" is one element for all. So has an output that is not written.
    """
    tensors = [*inputs, *outputs]
    for _, tensor, role in tensors:
        if not tensor.contiguous or (role == "full" and tensor.shape not in (shape, ())):
            merged, operands = _collapsed(operator, tensors, shape, class_axis)
            break
    else:
        merged, operands = _row_major(tensors, shape, class_axis)
    first = len(inputs)
    return Plan(
        operator, kernel, compute, merged, tuple(operands[:first]), operands[first], numbers, shape[class_axis], targets,
        class_axis=class_axis, free=free, more=tuple(operands[first + 1 :]), spared=_spared(spared), reduction=reduction, fixed=fixed,
        whole=shape,
    )  # fmt: skip


def part_of(size: int, rows: int, apart: bool) -> int:
    """How many elements along an axis a row adds up, the sums of such rows being added up then: a divisor of the axis, or all of it.

    Long rows are cut where there are few: each is one thread's, on a GPU one program's, which takes 32 or 64 of those whose elements lie
    `apart`, since others' lie between them.
    """
    enough, longest = (1 << 15, 1 << 8) if apart else (1 << 10, 1 << 12)
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
) -> Plan:
    """The plan that adds up what a formula gives over a shape, along the axes that the output does not have, or has one element of.

    The kernels are those of the formula, of the row formula that is its total, and of one that adds up rows and divides by a `count`. Axes that lie in one another for all inputs are added
    up at once, in parts where that makes few rows; others one after the other, in FLOAT.
    """
    name, tensor = output
    if tensor.size == 1:
        whole = reduced_plan(operator, kernels[0], compute, inputs, output, shape, numbers, "sum")
        return replace(whole, fixed=True)
    sizes = (1,) * (len(shape) - len(tensor.shape)) + tensor.shape
    kept = [axis for axis, size in enumerate(sizes) if size == shape[axis]]
    walks = [stretched(tensor, shape) for _, tensor in inputs]
    # Axes, or groups of them: the first, how many elements, and each input's stride.
    left = [(axis, shape[axis], [walk[axis] for walk in walks]) for axis in kept]
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
    part = part_of(size, rows, 1 not in strides)
    if part < size:
        groups.append((axis, size // part, [stride * part for stride in strides]))
    groups.append((axis, part, strides))
    steps = stretched(tensor, shape)
    last = _laid(tensor, tuple([shape[axis] for axis in kept]), tuple([steps[axis] for axis in kept]))  # fmt: skip
    views: list[tuple[str, Tensor, str]] = []
    stages: list[Plan] = []
    for number in reversed(range(len(groups))):
        axes = sorted([*left, *groups[: number + 1]], key=itemgetter(0))  # as they lie
        along, class_axis = tuple([size for _, size, _ in axes]), axes.index(groups[number])
        if not stages:
            views = [
                (each, _laid(one, along, tuple([strides[place] for _, _, strides in axes])), "full")
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
    several, scratch = _one_after_the_other(stages)
    # The axes in the order of the largest input, which is read most.
    largest = max(range(len(inputs)), key=lambda place: inputs[place][1].size)
    merged, (*walks, walk, _), offsets = collapse(shape, [*walks, steps, walks[largest]])
    read = tuple([
        Operand(each, one.dtype, walk, 0, offset, *extent(one))
        for (each, one), walk, offset in zip(inputs, walks, offsets, strict=False)
    ])  # fmt: skip
    written = Operand(name, tensor.dtype, walk, 0, offsets[-2], *extent(tensor), "positions")
    return Plan(
        operator, kernels[0], compute, merged, read, written, numbers, class_axis=stages[0].class_axis, steps=several, scratch=scratch,
        fixed=True, whole=shape,
    )  # fmt: skip


def _one_after_the_other(stages: Sequence[Plan]) -> tuple[tuple[Step, ...], int]:
    """Plans each of which reads what the one before wrote: as steps, with the bytes of memory between them."""
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


def over(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A tensor as it stretches to a shape."""
    return tensor if tensor.shape == shape else _laid(tensor, shape, stretched(tensor, shape))


def _laid(tensor: Tensor, shape: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
    """A tensor's memory, walked otherwise."""
    return Tensor.view(shape, tensor.dtype, strides, 0, None, tensor.device)


def _spared(outputs: Sequence[tuple[str, Tensor, str]]) -> tuple[Operand, ...]:
    """Outputs that are not computed, with their roles."""
    if not outputs:
        return ()
    return tuple(
        [_operand((name, tensor.dtype, (), 0, 0, 0, 0, role)) for name, tensor, role in outputs]
    )


def _collapsed(
    operator: str,
    tensors: Sequence[tuple[str, Tensor, str]],
    shape: tuple[int, ...],
    class_axis: int,
) -> tuple[tuple[int, ...], list[Operand]]:
    """The positions of a class plan, merged, and how each operand is walked."""
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


def row_major_walks(
    before: int, classes: int, behind: int
) -> tuple[tuple[int, ...], dict[str, tuple[tuple[int, ...], int, int]]]:
    """The merged shape of positions whose arrays all lie row-major, so many before the class axis and behind it, where one is
    "full"; and of each role the strides, the classes' stride, and how many elements there are.
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


def _row_major(
    tensors: Sequence[tuple[str, Tensor, str]], shape: tuple[int, ...], class_axis: int
) -> tuple[tuple[int, ...], list[Operand]]:
    """The same where all lie row-major, as most do: what `_collapsed` finds follows from three numbers there, in a third of
    its time.
    """
    before, behind = element_count(shape[:class_axis]), element_count(shape[class_axis + 1 :])
    merged, walks = row_major_walks(before, shape[class_axis], behind)
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


def rounded_first(plan: Plan) -> str | None:
    """What to say of an input of elements or rows that the computation type does not hold: it is rounded to that before."""
    compute = plan.compute
    for operand in plan.inputs:
        dtype = operand.dtype
        if dtype is compute or operand.role != "full":
            continue
        if dtype.kind == compute.kind == "floating" and promote(dtype, compute) is not compute:
            return f"{operand.parameter} is rounded to {compute} first"
    return None


def walks_alike(operand: Operand, output: Operand) -> bool:
    """Whether each element is read exactly where its output element is written, if both begin at one address. One for each
    position is never where classes are, not even where there is one class: the next call may have more.
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
