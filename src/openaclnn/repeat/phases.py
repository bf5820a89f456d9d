"""The fast path of two-phase calls: machine code finds a call's entry in a `PhaseCache`, as it does for plain calls, and phase two runs what it found.

Arrays are read as they are; descriptors, and arrays beside them, as `Tensor`s. What holds memory between the phases is in `calls/`.
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
from openaclnn.core.interop import HeldStorage
from openaclnn.core.plan import Plan, covered_elements, walks_alike
from openaclnn.core.tensor import Scalar, Tensor
from openaclnn.engines.dispatch import Choice, Runner
from openaclnn.repeat import slots as at
from openaclnn.repeat.cache import CallCache, nothing_chosen
from openaclnn.repeat.specialize import Work, entry_of, library_of

Extent = tuple[int, int, int]
"""The bytes that one of a kernel's tensors covers, from its first element on: the lowest, and the one behind the highest; and whether each element is read exactly
where the first output's is written, if both begin at one address."""

CheckedMemory = tuple[tuple[int, ...], Sequence[Any]]
"""Where a kernel's tensors lie, and what keeps that memory alive until the kernel is done."""


def extents_of(plan: Plan) -> list[Extent]:
    """Those of a plan's own operands."""
    return [(each.low, each.high, walks_alike(each, plan.output)) for each in plan.operands]


class Launch(NamedTuple):
    """What runs a call's kernel (None where there is nothing to do), over how many elements, and the extents, which machine code tells as bytes: a descriptor
    may say something else by then."""

    runner: Runner | None
    size: int
    told: Sequence[Extent] | bytes

    @property
    def extents(self) -> Sequence[Extent]:
        told: Any = self.told
        return list(iter_unpack("3q", told)) if type(told) is bytes else told


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
    def enter(
        self, passed: Sequence[Any], viewed: Sequence[Any], kind: Specialization, choice: Choice | None
    ) -> None:  # fmt: skip
        """Let machine code find calls like one whose arguments are these, and as they are viewed. Arrays that have an entry, which did not serve them (their memory
        interleaves, say), are entered as descriptors are, and so are those of which one is empty: it may have no memory."""
        count, ordered, views = len(self._arrays), self.ordered(passed), self._in_order(viewed)
        arrays, options, views = ordered[:count], ordered[count:], views[:count]
        if not (self._sayable(options) and nothing_chosen() and _VIEWED.issuperset(map(type, views))):  # fmt: skip
            return
        known = [entry.guards for entry in self.entries]
        whole = not any(view is not None and view.empty for view in views)
        for given, library in (arrays, whole and library_of(arrays)), (views, id(kind.device)):
            made = library and entry_of(
                self._parameters, library, given, options, kind.plan, choice, views
            )
            if made:
                entry, work = made
                if entry.guards not in known:
                    entry.relies_on = kind, library, work, entry.relies_on
                    self._enter(entry, library)
                    return


_VIEWED = frozenset((Tensor, type(None)))


@functools.cache
def phase_cache(operator: Operator) -> PhaseCache:
    return PhaseCache(operator)


def locate(
    operator: Operator, arguments: tuple[Any, ...]
) -> tuple[Specialization, Launch, CheckedMemory | None] | None:
    """The specialization that machine code finds of a call, what runs the call, and, of arrays, where their memory is."""
    cache = phase_cache(operator)
    located = cache.call(*cache.ordered(arguments))
    if located is NotImplemented:
        return None
    owners, known, size, addresses, shifts, extents, *told = located
    kind, library, work, _ = known.relies_on
    launch = kind.exact
    if work.source >= 0:
        launch = _new(Launch, (_runner(work, shifts, told), size, extents))
    if library == at.NUMPY:
        return kind, launch, (addresses, owners)
    if library == at.TORCH:
        held = [_new(HeldStorage, owners[first : first + 4]) for first in range(0, len(owners), 4)]
        return kind, launch, (addresses, held)
    return kind, launch, None


_new = tuple.__new__  # a third of the time


def _runner(work: Work, shifts: Sequence[int], told: Sequence[Any]) -> Runner:
    """What runs a call, as `code.phase_one` tells it; it keeps what constants point into."""
    if not any(shifts):
        return lambda addresses, stream: work.runner(addresses, stream, *told)
    return lambda addresses, stream: work.runner(tuple(map(add, addresses, shifts)), stream, *told)
