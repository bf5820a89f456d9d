"""What a kind of two-phase call comes to: its work, of one size (`OneSize`) or of any (`AnySize`)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from openaclnn.core.declare import Operator
from openaclnn.core.plan import ANY_COUNT, Plan, covered_elements, walks_alike
from openaclnn.core.tensor import Tensor
from openaclnn.engines.dispatch import Choice, Runner
from openaclnn.repeat import slots as at
from openaclnn.repeat.records import patterns_of

__all__ = ["AnySize", "Extents", "Kind", "OneSize", "Work", "any_size"]

Extents = Sequence[tuple[int, int]]
"""The bytes that each of a kernel's tensors covers, from its first element on."""

_SERVED = frozenset((at.MISSING, at.SAME, at.DENSE, at.ONE, at.SOME))
_ROLES = ("full", "positions", "classes", "single")
_FLOAT, _WORD = struct.Struct("f"), struct.Struct("I")


Work = tuple[Runner | None, Extents, int]
"""What runs a kind's kernel at one size (None where there is nothing to do), and how many elements that has."""


class Kind:
    """What is the same for all calls of a kind."""

    def __init__(self, operator: Operator, plan: Plan, device: str) -> None:
        operands = () if plan.empty else plan.operands
        self.plan = plan  # of the first call
        self.device = device
        # The kernel's tensors, outputs last, by their number among the arguments.
        self.operands = tuple([operator.places[operand.parameter] for operand in operands])
        # Which inputs may be exactly the output.
        self.alike = tuple([walks_alike(operand, plan.output) for operand in plan.inputs])

    def reached_plan(self, extents: Extents) -> Plan:
        """The plan, right in the memory that it reaches; its geometry is that of the first call."""
        plan = self.plan
        operands = [
            replace(operand, low=low, high=high)
            for operand, (low, high) in zip(plan.operands, extents, strict=True)
        ]
        first = len(plan.inputs)
        inputs, (output, *more) = tuple(operands[:first]), operands[first:]
        return replace(plan, inputs=inputs, output=output, more=tuple(more))

    def bound(self, runner: Runner, count: int) -> Runner:
        """A runner that is worth making for many runs."""
        return runner


class OneSize(Kind):
    """A kind with sizes."""

    def __init__(self, operator: Operator, plan: Plan, device: str, choice: Choice | None) -> None:
        super().__init__(operator, plan, device)
        operands = () if choice is None else plan.operands
        extents = tuple([(operand.low, operand.high) for operand in operands])
        runner = None if choice is None else choice.prepare()
        self.work: Work = (runner, extents, covered_elements(plan))


class AnySize(Kind):
    """A kind whose sizes are arguments: the output is row-major, of more than one element, and leads."""

    def __init__(
        self, operator: Operator, plan: Plan, device: str, choice: Choice,
        whole: Sequence[int], others: Sequence[tuple[int, int, Any]], sized: Any,
    ) -> None:  # fmt: skip
        super().__init__(operator, plan, device)
        self.whole = tuple(whole)  # the inputs of the output's shape
        self.others = tuple(others)  # those that are not: place, pattern, and what belongs to that
        self.flat, self.sized, self.choice = choice.flat, sized, choice
        self.learned: set[type] = set()  # types of outputs that can be located
        counts: tuple[int, int] = ANY_COUNT if self.flat is None else self.flat.counts
        self.least, self.below = max(counts[0], 2), counts[1]
        self.class_axis = plan.class_axis
        operands = (*plan.inputs, plan.output)
        single = {place for place, pattern, _ in others if pattern == at.ONE}
        # Of each operand: which of the output's counts it has, and its itemsize.
        self.reach = [
            (_ROLES.index("single" if place in single else operand.role), operand.dtype.itemsize)
            for place, operand in zip(self.operands, operands, strict=True)
        ]
        if self.flat is not None:
            from openaclnn.engines.cpu import pool

            self._pool, self._launch = pool, pool.native()

    def work(self, arguments: Sequence[Any], output: Tensor) -> Work | None:
        """The work of a call that has this kind's key; None where its tensors lie otherwise."""
        shape = output.shape
        count = prod(shape)
        if not (output.contiguous and self.least <= count < self.below):
            return None
        for place in self.whole:  # the key says that they have the output's shape
            if not arguments[place].contiguous:
                return None
        if not self.others:
            extents: Extents = [(0, count * item) for _, item in self.reach]
        elif self._lie(arguments, shape):
            extents = self.extents(shape, count)
        else:
            return None
        return self.runner(shape, count), extents, count

    def extents(self, shape: tuple[int, ...], count: int) -> Extents:
        """The bytes of each operand, where the output has a shape of so many elements."""
        classes = shape[self.class_axis] if self.class_axis >= 0 else 1
        counts = (count, count // classes, classes, 1)
        return [(0, counts[role] * item) for role, item in self.reach]

    def runner(self, shape: tuple[int, ...], count: int) -> Runner:
        """What runs the kernel over a shape of so many elements."""
        return self._sized(shape) if self.flat is None else self._flat(count)

    def _lie(self, arguments: Sequence[Any], shape: tuple[int, ...]) -> bool:
        """Whether those that have another shape than the output lie as they should."""
        axis = self.class_axis
        # Axes of one element lie anyhow, and are walked otherwise.
        if axis >= 0 and 1 in shape[1:]:
            return False
        positions = shape[:axis] + shape[axis + 1 :]
        for place, pattern, more in self.others:
            tensor = arguments[place]
            if pattern == at.SOME:
                if not tensor.contiguous or tensor.shape != (
                    shape[axis : axis + 1] if more else positions
                ):
                    return False
            elif pattern == at.ONE:
                if prod(tensor.shape) != 1:
                    return False
            elif (tensor.shape, tensor.strides) != more:
                return False
        return True

    def _constants(self, count: int) -> tuple[int, ...]:
        constants: tuple[int, ...] = self.flat.constants
        where = self.flat.reciprocal
        if where < 0:
            return constants
        (share,) = _WORD.unpack(_FLOAT.pack(1.0 / count))
        return *constants[:where], share, *constants[where + 1 :]

    def _flat(self, count: int) -> Runner:
        flat = self.flat
        kernel, grain, constants = flat.kernel, flat.grain, self._constants(count)
        launch = self._launch if count <= grain else self._pool.launch  # which starts the workers

        def run(addresses: Sequence[int], stream: int, keep: Any = flat) -> int:
            status: int = launch(kernel, count, grain, *constants, *addresses)
            return status

        return run

    def bound(self, runner: Runner, count: int) -> Runner:
        flat = self.flat
        if flat is None:
            return runner
        return self._pool.bind(flat.kernel, count, flat.grain, *self._constants(count), keep=flat)

    def _sized(self, shape: tuple[int, ...]) -> Runner:
        sized = self.sized

        def run(addresses: Sequence[int], stream: int) -> int:
            status: int = sized(addresses, stream, shape, ())
            return status

        return run


def any_size(
    operator: Operator, arguments: Sequence[Any], one: OneSize, choice: Choice
) -> AnySize | None:
    """The kind that a call is of, if sizes need not be part of it: not where there are several outputs."""
    if one.plan.more:
        return None
    plan, places = one.plan, [*operator.input_places, operator.output_place]
    order = {place: number for number, place in enumerate(one.operands)}
    tensors = [arguments[place] for place in places]
    shape = tensors[-1].shape
    found, lead = patterns_of(plan, [order.get(p, -1) for p in places], tensors, tensors[-1])
    if lead < 0 or not _SERVED.issuperset(pattern for pattern, _ in found):
        return None
    if plan.classes and 1 in shape[1:]:
        return None
    sized = choice.sized() if choice.flat is None and choice.sized is not None else None
    if choice.flat is None and sized is None:
        return None
    whole: list[int] = []
    others: list[tuple[int, int, Any]] = []
    for place, tensor, (pattern, mask) in zip(places[:-1], tensors, found, strict=False):
        if pattern == at.DENSE:
            whole.append(place)
        elif pattern == at.SOME:
            others.append((place, pattern, mask == 1 << plan.class_axis))
        elif pattern != at.MISSING:
            others.append((place, pattern, (tensor.shape, tensor.strides)))
    return AnySize(operator, plan, one.device, choice, whole, others, sized)
