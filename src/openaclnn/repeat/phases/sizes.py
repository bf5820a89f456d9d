"""What an executor runs: the work of a kind of two-phase call, of one size (`OneSize`) or of any (`AnySize`)."""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from openaclnn.core.declare import Operator
from openaclnn.core.plan import Plan, covered_elements, walks_alike
from openaclnn.engines.dispatch import Choice, Runner
from openaclnn.repeat.kinds.patterns import patterns_of, places_of
from openaclnn.repeat.words import slots as at

__all__ = ["AnySize", "Extents", "Kind", "OneSize", "Work", "any_size"]

Extents = Sequence[tuple[int, int]]
"""The bytes that each of a kernel's tensors covers, from its first element on."""

_SERVED = frozenset((at.MISSING, at.SAME, at.DENSE, at.ONE, at.SOME))
_ROLES = ("full", "positions", "classes", "single")
_FLOAT, _WORD = struct.Struct("f"), struct.Struct("I")


Work = tuple[Runner | None, tuple[int, ...], int, tuple[Any, ...]]
"""What runs a kind's kernel (None where there is nothing to do), over which shape, how many elements that has, and what
belongs to other numbers than the kind's: a kernel's constants, or the numbers themselves."""


class Kind:
    """What is the same for all calls of a kind."""

    any_size: bool  # else sizes and strides are the very same, too
    choice: Choice

    def __init__(self, operator: Operator, plan: Plan, device: str) -> None:
        operands = () if plan.empty else plan.operands
        self.plan = plan  # of the first call
        self.device = device
        # The kernel's tensors, outputs last, by their number among the arguments.
        self.operands = tuple([operator.places[operand.parameter] for operand in operands])
        # Which inputs may be exactly the output.
        self.alike = tuple([walks_alike(operand, plan.output) for operand in plan.inputs])
        self.learned: set[frozenset[type]] = set()  # types of arrays that were tried to be located
        # Of the first call, whose numbers the plan has.
        self.attributes: tuple[Any, ...] | None = None

    def reached_plan(self, extents: Extents) -> Plan:
        """The plan with these extents, which are right for this call; the rest of its geometry is that of the first."""
        plan = self.plan
        operands = [
            operand._replace(low=low, high=high)
            for operand, (low, high) in zip(plan.operands, extents, strict=True)
        ]
        first = len(plan.inputs)
        inputs, (output, *more) = tuple(operands[:first]), operands[first:]
        return replace(plan, inputs=inputs, output=output, more=tuple(more))

    def extents(self, shape: tuple[int, ...], count: int) -> Extents:
        """The bytes of each operand, where the kernel runs over a shape of so many elements."""
        raise NotImplementedError

    def work(self, shape: tuple[int, ...], count: int, numbers: tuple[Any, ...]) -> Work:
        """What runs the kernel over a shape of so many elements."""
        raise NotImplementedError

    def bound(self, work: Work) -> Runner | None:
        """A runner that is worth making for many runs."""
        return work[0]


class OneSize(Kind):
    """A kind whose sizes and strides are part of it; `choice` is None where there is nothing to compute."""

    any_size = False

    def __init__(self, operator: Operator, plan: Plan, device: str, choice: Choice | None) -> None:
        super().__init__(operator, plan, device)
        operands = () if choice is None else plan.operands
        self._extents = tuple([(operand.low, operand.high) for operand in operands])
        runner: Any = None if choice is None else choice.prepare()
        self.only: Work = (runner, (), covered_elements(plan), ())
        self.choice = (choice or Choice("", lambda: runner))._replace(prepare=lambda: runner)

    def work(self, shape: tuple[int, ...], count: int, numbers: tuple[Any, ...]) -> Work:
        return self.only

    def extents(self, shape: tuple[int, ...], count: int) -> Extents:
        return self._extents


class AnySize(Kind):
    """A kind whose sizes are arguments: all tensors are row-major, and some have more than one element.

    `single` are the operands of one element.
    """

    any_size = True

    def __init__(
        self, operator: Operator, plan: Plan, device: str, choice: Choice, flat: Any, sized: Any,
        single: Collection[int],
    ) -> None:  # fmt: skip
        super().__init__(operator, plan, device)
        self.flat, self.sized, self.choice = flat, sized, choice._replace(sized=lambda plan: sized)
        self.class_axis = plan.class_axis
        # Of each operand: which of the counts it has, and its itemsize.
        self.reach = [
            (_ROLES.index("single" if place in single else operand.role), operand.dtype.itemsize)
            for place, operand in enumerate(plan.operands)
        ]
        if self.flat is not None:
            from openaclnn.engines.cpu.launching import pool

            self._pool, self._launch = pool, pool.native()

    def extents(self, shape: tuple[int, ...], count: int) -> Extents:
        classes = shape[self.class_axis] if self.class_axis >= 0 else 1
        counts = (count, count // classes, classes, 1)
        return [(0, counts[role] * item) for role, item in self.reach]

    def work(self, shape: tuple[int, ...], count: int, numbers: tuple[Any, ...]) -> Work:
        flat = self.flat
        runner = self._sized(shape, numbers) if flat is None else self._flat(count, numbers)
        return runner, shape, count, numbers

    def _constants(self, count: int, others: tuple[int, ...]) -> tuple[int, ...]:
        constants: tuple[int, ...] = others or self.flat.constants
        where = self.flat.reciprocal
        if where < 0:
            return constants
        (share,) = _WORD.unpack(_FLOAT.pack(1.0 / count))
        return *constants[:where], share, *constants[where + 1 :]

    def _flat(self, count: int, others: tuple[int, ...]) -> Runner:
        flat = self.flat
        kernel, grain, constants = flat.kernel, flat.grain, self._constants(count, others)
        launch = self._launch if count <= grain else self._pool.launch  # which starts the workers

        def run(addresses: Sequence[int], stream: int, keep: Any = flat) -> int:
            status: int = launch(kernel, count, grain, *constants, *addresses)
            return status

        return run

    def bound(self, work: Work) -> Runner | None:
        flat = self.flat
        runner, _, count, others = work
        if flat is None:
            return runner
        constants = self._constants(count, others)
        return self._pool.bind(flat.kernel, count, flat.grain, *constants, keep=flat)

    def _sized(self, shape: tuple[int, ...], numbers: tuple[Any, ...]) -> Runner:
        sized = self.sized

        def run(addresses: Sequence[int], stream: int) -> int:
            status: int = sized(addresses, stream, shape, numbers)
            return status

        return run


def any_size(
    operator: Operator, arguments: Sequence[Any], one: OneSize, choice: Choice
) -> AnySize | None:
    """The kind that a call is of, if sizes need not be part of it."""
    plan, flat = one.plan, choice.flat
    if flat is None and choice.sized is None:
        return None
    read = [own for own in operator.parameters if own.is_read]
    places = places_of(plan, [own.name for own in read], [own.name for own in operator.outputs])
    tensors = [arguments[operator.places[own.name]] for own in (*read, *operator.outputs)]
    found, lead, _ = patterns_of(plan, places, tensors)
    if lead < 0 or not _SERVED.issuperset(pattern for pattern, _ in found):
        return None
    if flat is not None and covered_elements(plan) >= flat.counts[1]:
        flat = None  # as in the record of such a size
    sized = choice.sized(plan) if flat is None and choice.sized is not None else None
    if flat is None and sized is None:
        return None
    single = {place for place, (pattern, _) in zip(places, found, strict=True) if pattern == at.ONE}
    return AnySize(operator, plan, one.device, choice, flat, sized, single)
