"""The fast path of two-phase calls: machine code finds a call's entry in a `PhaseCache`, as it does for plain calls, and phase two runs what it found.

It reads descriptors: arrays are viewed as such before. What holds memory between the phases is in `calls/`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from operator import add, itemgetter
from struct import iter_unpack
from typing import Any, NamedTuple

from openaclnn.core.declare import Operator
from openaclnn.core.forks import undivided
from openaclnn.core.interface import Kind
from openaclnn.core.plan import Plan, covered_elements, walks_alike
from openaclnn.core.tensor import Scalar, Tensor
from openaclnn.engines.dispatch import Choice, Runner
from openaclnn.repeat import slots as at
from openaclnn.repeat.cache import CallCache, nothing_chosen
from openaclnn.repeat.specialize import Work, entry_of

Extent = tuple[int, int, int]
"""The bytes that one of a kernel's tensors covers, from its first element on: the lowest, and the one behind the highest; and whether each element is read exactly
where the first output's is written, if both begin at one address."""

CheckedMemory = tuple[tuple[int, ...], Sequence[Any]]
"""Where a kernel's tensors lie, and what keeps that memory alive until the kernel is done."""


def extents_of(plan: Plan) -> list[Extent]:
    """Those of a plan's own operands."""
    return [(each.low, each.high, walks_alike(each, plan.output)) for each in plan.operands]


class Launch(NamedTuple):
    """What runs a call's kernel (None where there is nothing to do), over how many elements, and the extents: a descriptor may say something else by then."""

    runner: Runner | None
    size: int
    extents: Sequence[Any]  # each an `Extent`


class Specialization:
    """What is the same for all calls that an entry serves. `exact` runs calls of the first one's sizes and strides."""

    def __init__(self, operator: Operator, plan: Plan, device: str, choice: Choice | None) -> None:
        self.plan = plan  # of the first call
        self.device = device
        operands = () if choice is None else plan.operands
        # The kernel's tensors, outputs last, by their number among the arguments.
        self.operands = tuple([operator.places[operand.parameter] for operand in operands])
        runner = None if choice is None else choice.prepare()
        extents = () if choice is None else extents_of(plan)
        self.exact = Launch(runner, covered_elements(plan), extents)


class PhaseCache(CallCache):
    """The fast path of an operator's phase one: `call(*arrays, *options)`, or NotImplemented."""

    by_value = CallCache.by_value | {Scalar, bytes}
    """Beside these, C's numbers, and its strings, of which each word is one object."""

    def __init__(self, declared: Operator) -> None:
        super().__init__(declared)
        numbers = {p.python_name: number for number, p in enumerate(declared.parameters)}
        places = [declared.places[name] for name in self._names]
        self._in_order = itemgetter(*places, *[numbers[name] for name in self._options])
        has_text = any(p.kind is Kind.CSTRING for p in declared.parameters)
        self.ordered: Callable[[Sequence[Any]], tuple[Any, ...]] = self._in_order
        """Arrays, then options, of which strings are one object for each text."""
        if has_text:
            self.ordered = lambda arguments: tuple([
                sys.intern(each) if type(each) is str else each for each in self._in_order(arguments)
            ])  # fmt: skip

    def _open(self) -> None:
        super()._open()
        control = self._control
        for place, name in enumerate(at.ATTRIBUTE_NAMES, at.ATTRIBUTES):
            control[place] = id(name)
        control[at.SCALAR], control[at.DESCRIPTOR] = id(Scalar), id(Tensor)

    def _callable(self) -> Callable[..., Any]:
        return self._begin

    @undivided
    def _begin(self, *arguments: Any) -> Any:
        """The second call: a program that makes one need not wait for machine code."""
        from openaclnn.engines.machine.builtins import builtin
        from openaclnn.repeat.code.phase_one import emit_phase_one

        control = self._control.buffer_info()[0]
        self.call = self._builtin = builtin("fast_path.phase_one", emit_phase_one, control, self)
        return self.call(*arguments)

    @undivided
    def enter(self, arguments: Sequence[Any], kind: Specialization, choice: Choice | None) -> None:
        """Let machine code find calls like one of these arguments."""
        ordered, count = self.ordered(arguments), len(self._arrays)
        views, options = ordered[:count], ordered[count:]
        if not (self._sayable(options) and nothing_chosen() and _VIEWED.issuperset(map(type, views))):  # fmt: skip
            return
        library = id(kind.device)
        made = entry_of(self._parameters, library, views, options, kind.plan, choice, views)
        if made:
            entry, work = made
            # One that is there did not serve the call: its output's elements interleave, say.
            if all(entry.guards != known.guards for known in self.entries):
                entry.relies_on = kind, work, entry.relies_on
                self._enter(entry, library)


_VIEWED = frozenset((Tensor, type(None)))


@functools.cache
def phase_cache(operator: Operator) -> PhaseCache:
    return PhaseCache(operator)


def locate(operator: Operator, arguments: Sequence[Any]) -> tuple[Specialization, Launch] | None:
    """The specialization that machine code finds of a call, and what runs the call."""
    cache = phase_cache(operator)
    located = cache.call(*cache.ordered(arguments))
    if located is NotImplemented:
        return None
    known, size, shifts, extents, *told = located
    kind, work, _ = known.relies_on
    if work.source < 0:
        return kind, kind.exact
    return kind, _new(Launch, (_runner(work, shifts, told), size, [*iter_unpack("3q", extents)]))


_new = tuple.__new__  # a third of the time


def _runner(work: Work, shifts: Sequence[int], told: Sequence[Any]) -> Runner:
    """What runs a call, as `code.phase_one` tells it; it keeps what constants point into."""
    if not any(shifts):
        return lambda addresses, stream: work.runner(addresses, stream, *told)
    return lambda addresses, stream: work.runner(tuple(map(add, addresses, shifts)), stream, *told)
