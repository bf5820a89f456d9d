"""Plans of several steps with scratch memory between them: sums for each channel, and matrix products.

Channels lie along axis 1. The numbers of channels, one for each or one for all, are a tensor of any shape with so many elements; elementwise kernels
visit it with a stride along axis 1 alone. Sums for each channel take two steps: row formulas add up rows along one of the other axes, then the sums
of all rows of a channel.

A matrix product is a plan over (rows, columns, terms). Its operands have strides along all three, 0 where they lack the axis. Array libraries
compute it (`engines/arrays.py`); a plan's other steps are row formulas and kernels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

from openaclnn.core.dtypes import FLOAT, DType
from openaclnn.core.plan import (
    Operand,
    Plan,
    Step,
    class_plan,
    collapse,
    elementwise_plan,
    partial_sum_length,
    stretched,
)
from openaclnn.core.tensor import Tensor, extent


def channels_of(shape: tuple[int, ...]) -> int:
    return shape[1] if len(shape) > 1 else 1


def _split_strides(shape: tuple[int, ...], strides: tuple[int, ...], parts: tuple[int, ...]) -> tuple[int, ...]:  # fmt: skip
    """The strides where axis 1 is split into the axes `parts`."""
    if len(shape) < 2:
        return strides
    behind = [math.prod(parts[place + 1 :]) * strides[1] for place in range(len(parts))]
    return (strides[0], *behind, *strides[2:])


def _channel_axes(channels: Tensor) -> tuple[int, ...]:
    """The sizes of the axes that axis 1 is split into: the numbers of channels may lie along several."""
    return tuple([size for size in channels.shape if size != 1]) if channels.size > 1 else ()


def _channel_strides(tensor: Tensor, parts: tuple[int, ...], behind: int) -> tuple[int, ...]:
    """The strides of a tensor of numbers of channels along axis 0, the parts of axis 1, and `behind` further axes."""
    steps = [step for size, step in zip(tensor.shape, tensor.strides, strict=True) if size != 1]
    if len(steps) < len(parts):  # one axis of all channels
        steps = [math.prod(parts[place + 1 :]) * steps[0] for place in range(len(parts))]
    return (0, *steps, *(0,) * behind)


def channel_plan(
    operator: str, kernel: str, compute: DType, whole: tuple[str, Tensor], channels: tuple[str, Tensor], output: tuple[str, Tensor],
) -> Plan:  # fmt: skip
    """The plan of an elementwise kernel over a tensor and a number for each of its channels."""
    name, numbers = channels
    parts, shape = _channel_axes(numbers), output[1].shape
    if not parts:
        return elementwise_plan(operator, kernel, compute, [whole, channels], output, {})
    axes = (shape[0], *parts, *shape[2:])

    def view(tensor: Tensor) -> Tensor:
        strides = _split_strides(shape, tensor.strides, parts)
        return Tensor.view(axes, tensor.dtype, strides, 0, None, tensor.device)

    strides = _channel_strides(numbers, parts, len(shape) - 2)
    across = Tensor.view((1, *parts, *(1,) * (len(shape) - 2)), numbers.dtype, strides, 0, None, numbers.device)  # fmt: skip
    inputs = [(whole[0], view(whole[1])), (name, across)]
    plan = elementwise_plan(operator, kernel, compute, inputs, (output[0], view(output[1])), {})
    plan.inputs, plan.dense = (plan.inputs[0], plan.inputs[1]._replace(role="channels")), False
    plan.full_shape = shape
    return plan


def channel_sums_plan(
    operator: str, kernels: tuple[str, str, str], inputs: Sequence[tuple[str, Tensor]], channels: tuple[str, Tensor],
    output: tuple[str, Tensor], sums: tuple[str, Tensor],
) -> Plan:  # fmt: skip
    """The plan of a formula of elements and a number for each channel, which has two results: the output, and one that is summed for each channel.
    The three kernels are the formula, and for the steps a row formula of the output and the sum of each row, which is a FLOAT in scratch memory, and
    one that adds up these sums.
    """
    kernel, of_rows, adding = kernels
    shape, parts = output[1].shape, _channel_axes(channels[1])
    axes = (shape[0], *parts, *shape[2:]) if parts else shape
    walks = [stretched(tensor, shape) for _, tensor in (*inputs, output)]
    if parts:
        walks = [_split_strides(shape, walk, parts) for walk in walks]
        of_channels = [_channel_strides(tensor, parts, len(shape) - 2) for _, tensor in (channels, sums)]  # fmt: skip
    else:
        of_channels = [(0,) * len(shape)] * 2
    marks = [int(bool(parts) and 0 < axis <= len(parts)) for axis in range(len(axes))]
    *of_inputs, of_output = walks
    merged, (*steps, marked, last), offsets = collapse(axes, [*of_inputs, *of_channels, marks, of_output])  # fmt: skip
    *read, summed, written = (
        Operand(name, tensor.dtype, walk, 0, offset, *extent(tensor))
        for (name, tensor), walk, offset in zip(
            (*inputs, channels, sums, output), (*steps, last), (*offsets[:-2], offsets[-1]), strict=True
        )
    )  # fmt: skip
    role = "single" if channels[1].size == 1 else "channels"
    read[-1], summed = (operand._replace(role=role) for operand in (read[-1], summed))
    chain, scratch = _steps(operator, of_rows, adding, merged, [mark != 0 for mark in marked], read, written, summed)  # fmt: skip
    return Plan(
        operator, kernel, FLOAT, merged, tuple(read), written, {}, more=(summed,), steps=chain, scratch=scratch, full_shape=shape
    )  # fmt: skip


def _steps(
    operator: str, kernel: str, adding: str, merged: Sequence[int], is_channel: Sequence[bool],
    read: Sequence[Operand], written: Operand, summed: Operand,
) -> tuple[tuple[Step, ...], int]:  # fmt: skip
    """The steps of sums over all axes but that of the channels, and the bytes of scratch memory between them."""
    sizes, walks = list(merged), [list(operand.strides) for operand in (*read, written, summed)]
    along = next((axis for axis in reversed(range(len(sizes))) if not is_channel[axis]), None)
    if along is None:  # a row of one element
        along = len(sizes)
        sizes.append(1)
        walks = [[*walk, 0] for walk in walks]
        is_channel = [*is_channel, False]
    part = partial_sum_length(
        sizes[along], math.prod(sizes) // sizes[along], 1 not in [walk[along] for walk in walks]
    )
    if part < sizes[along]:
        sizes[along : along + 1] = [sizes[along] // part, part]
        for walk in walks:
            walk[along : along + 1] = [walk[along] * part, walk[along]]
        is_channel = [*is_channel[:along], False, *is_channel[along:]]
        along += 1
    kept = [axis for axis in range(len(sizes)) if axis != along]
    positions = tuple([sizes[axis] for axis in kept]) or (1,)
    channels = math.prod([sizes[axis] for axis in kept if is_channel[axis]])
    channel_rows = math.prod(positions) // channels  # in each channel

    def row(operand: Operand, walk: Sequence[int], role: str) -> Operand:
        strides = tuple([walk[axis] for axis in kept]) or (0,)
        return operand._replace(
            strides=strides, class_stride=walk[along] if role == "full" else 0, role=role
        )

    *of_read, of_written, of_sum = walks
    roles = ["full"] * (len(read) - 1) + ["positions"]
    inputs = tuple([row(*each) for each in zip(read, of_read, roles, strict=True)])
    result = row(written, of_written, "full")
    places = tuple(range(len(read) + 1))
    if channel_rows == 1:
        sums = row(summed, of_sum, "positions")
        plan = Plan(operator, kernel, FLOAT, positions, inputs, result, {}, sizes[along], class_axis=along, more=(sums,))  # fmt: skip
        return (Step(plan, (*places, len(read) + 1)),), 0
    # All rows of a channel lie side by side.
    ordered = [*(axis for axis in kept if is_channel[axis]), *(axis for axis in kept if not is_channel[axis])]  # fmt: skip
    strides, size = {}, 1
    for axis in reversed(ordered):
        strides[axis], size = size, size * sizes[axis]
    between = Operand("", FLOAT, tuple([strides[axis] for axis in kept]), role="positions")
    first = Plan(operator, kernel, FLOAT, positions, inputs, result, {}, sizes[along], class_axis=along, more=(between,))  # fmt: skip
    of_channels = [axis for axis in kept if is_channel[axis]]
    second = Plan(
        operator, adding, FLOAT, tuple([sizes[axis] for axis in of_channels]) or (1,),
        (Operand("", FLOAT, tuple([strides[axis] for axis in of_channels]) or (0,), 1),),
        summed._replace(strides=tuple([of_sum[axis] for axis in of_channels]) or (0,), role="positions"),
        {"count": 1.0}, channel_rows, class_axis=1,
    )  # fmt: skip
    scratch = len(read) + 2
    return (
        (Step(first, (*places, scratch)), Step(second, (scratch, len(read) + 1))),
        FLOAT.itemsize * size,
    )


# Matrix products.

MATRIX_PRODUCT = "matrix_product"
PLACED_TARGETS = "placed_targets"
"""A kernel from targets to three outputs: this rank's columns in 64 bits, -1 for targets of other ranks; a bit for each row, least significant first, 1 for
targets of other ranks; and columns in the targets' dtype, 0 for those. A target is of this rank if, less `first`, it lies in [0, `columns`)."""
RESTORED_TARGETS = "restored_targets"
"""A kernel from the second (or truth values in its place) and third of these outputs to the first."""

CHUNK = 1 << 27  # elements of intermediate rows in scratch memory; rows of more are chunked
LINE = 64  # bytes


def chunks(rows: int, columns: int) -> Iterator[tuple[int, int]]:
    """The first row of each chunk, and the one after its last."""
    return pairwise([*range(0, rows, max(1, CHUNK // columns)), rows])


class View(NamedTuple):
    """Where a tensor lies: the number of a plan's operand (scratch memory has the number behind the last), and an offset there in elements."""

    number: int
    name: str
    tensor: Tensor
    offset: int = 0
    is_turned: bool = False

    def rows(self, begin: int, end: int) -> View:
        tensor = self.tensor
        view = Tensor.view((end - begin, *tensor.shape[1:]), tensor.dtype, tensor.strides, 0, None, tensor.device)  # fmt: skip
        return self._replace(tensor=view, offset=self.offset + begin * tensor.strides[0])

    @property
    def turned(self) -> View:
        tensor = self.tensor
        view = Tensor.view(
            tensor.shape[::-1], tensor.dtype, tensor.strides[::-1], 0, None, tensor.device
        )
        return self._replace(tensor=view, is_turned=not self.is_turned)

    def operand(self, strides: tuple[int, ...]) -> Operand:
        tensor = self.tensor
        return Operand(
            self.name, tensor.dtype, strides, 0, self.offset, *extent(tensor), "positions"
        )


class Steps:
    """Collects the steps of an operator's call, on tensors by name; `plan` makes one plan of them."""

    def __init__(self, operator: str, inputs: Mapping[str, Tensor], outputs: Mapping[str, Tensor]) -> None:  # fmt: skip
        self.operator = operator
        self.inputs = len(inputs)
        self.views = [
            View(place, *named) for place, named in enumerate([*inputs.items(), *outputs.items()])
        ]
        self.steps: list[Step] = []
        self.bytes = 0

    def __getitem__(self, name: str) -> View:
        return next(place for place in self.views if place.name == name)

    def scratch(self, shape: tuple[int, ...], dtype: DType) -> View:
        """A tensor in scratch memory, whose rows begin at multiples of LINE."""
        count = LINE // dtype.itemsize
        pitch = -(-shape[-1] // count) * count
        begin, size = self.bytes // dtype.itemsize, pitch * (shape[0] if len(shape) > 1 else 1)
        self.bytes += size * dtype.itemsize
        strides = (pitch, 1)[-len(shape) :]
        return View(len(self.views), "", Tensor.view(shape, dtype, strides, 0, None, ""), begin)

    def add(self, plan: Plan, places: Sequence[View]) -> None:
        self.steps.append(Step(plan, tuple([each.number for each in places])))

    def add_product(self, left: View, right: View, out: View, more: View | None = None) -> None:
        """Add the step out = left (rows, terms) times right (terms, columns), plus `more`; computed in FLOAT and rounded once."""
        (rows, terms), (_, columns) = left.tensor.shape, right.tensor.shape
        places = [left, right, *([] if more is None else [more]), out]
        strides = [(left.tensor.strides[0], 0, left.tensor.strides[1]), (0, *right.tensor.strides[::-1])]  # fmt: skip
        strides += [(*each.tensor.strides, 0) for each in places[2:]]
        *read, written = [each.operand(walk) for each, walk in zip(places, strides, strict=True)]
        shape, turned = (rows, columns, terms), {"turned": (left.is_turned, right.is_turned)}
        self.add(Plan(self.operator, MATRIX_PRODUCT, FLOAT, shape, tuple(read), written, turned, fixed=True), places)  # fmt: skip

    def add_rows(self, kernel: str, inputs: Sequence[tuple[View, str]], outputs: Sequence[tuple[View, str]], numbers: Mapping[str, Any]) -> None:  # fmt: skip
        """Add a row formula over the rows of its first operand; each operand has a role of `class_plan`."""
        both = [*inputs, *outputs]
        named = [(place.name, place.tensor, role) for place, role in both]
        shape = inputs[0][0].tensor.shape
        count = len(inputs)
        plan = class_plan(self.operator, kernel, FLOAT, named[:count], named[count:], shape, 1, -1, numbers, fixed=True)  # fmt: skip
        moved = [operand._replace(offset=operand.offset + place.offset) for operand, (place, _) in zip(plan.operands, both, strict=True)]  # fmt: skip
        plan = replace(plan, inputs=tuple(moved[:count]), output=moved[count], more=tuple(moved[count + 1 :]))  # fmt: skip
        self.add(plan, [place for place, _ in both])

    def add_kernel(self, kernel: str, inputs: Sequence[View], outputs: Sequence[View], numbers: Mapping[str, Any]) -> None:  # fmt: skip
        """Add a kernel over vectors."""
        places = [*inputs, *outputs]
        operands = [each.operand(each.tensor.strides) for each in places]
        count, shape = len(inputs), outputs[0].tensor.shape
        plan = Plan(self.operator, kernel, FLOAT, shape, tuple(operands[:count]), operands[count], numbers, more=tuple(operands[count + 1 :]), fixed=True)  # fmt: skip
        self.add(plan, places)

    def plan(self, kernel: str, shape: tuple[int, ...], spared: Sequence[Operand] = ()) -> Plan:
        """The plan of all steps, under one kernel's name; `shape` says how much work it is."""
        operands = [each.operand(each.tensor.strides) for each in self.views]
        first = self.inputs
        return Plan(
            self.operator, kernel, FLOAT, shape, tuple(operands[:first]), operands[first], {}, more=tuple(operands[first + 1 :]), spared=tuple(spared),
            steps=tuple(self.steps), scratch=self.bytes, fixed=True,
        )  # fmt: skip
