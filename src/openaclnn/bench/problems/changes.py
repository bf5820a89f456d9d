"""What changes from call to call: each regime makes a sequence of small problems, and says in which ways they are called.

A sequence is one contender's own. What must be new in every call is new beside the sequences of the other contenders
too, since they share the engine's and the road's memory: of `Turn.of` contenders each takes its `Turn.own`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from openaclnn.bench.problems.problem import Arguments, Problem, build, empty_like, is_array
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import FLOATS, DType
from openaclnn.core.interface import Kind

__all__ = ["ALLOCATING", "CHANGES", "INTO", "KINDS", "TWO_PHASE", "CallRegime", "Turn"]

ALLOCATING, INTO, TWO_PHASE = "", " out=", " two-phase"  # ways to call, as contenders' names end
KINDS = 8
IN_A_ROW = 8  # calls of each kind, where kinds do not take turns
MIDDLE = 250  # for `small_shape`: about the mean of the new sizes
WIDE = 60  # and for layouts with gaps, which take more memory
STEPS = 16  # strides of the last axis in the new layouts


@dataclass(frozen=True)
class Turn:
    """For whom a sequence is made: how many calls, and which contender's of how many."""

    operator: Operator
    dtype: DType
    device: str
    count: int
    own: int = 0
    of: int = 1

    @property
    def variant(self) -> str:
        names: dict[str, Any] = self.operator.workloads.VARIANTS
        return next(iter(names))

    def fresh(self) -> Iterator[int]:
        """A number for each call that no other call and no other contender has, in no order."""
        for number in np.random.default_rng(7).permutation(self.count).tolist():
            yield number * self.of + self.own

    def problem(self, shape: tuple[int, ...], **options: Any) -> Problem | None:
        return build(self.operator, self.variant, self.dtype, shape, device=self.device, **options)

    def middle(self) -> Problem:
        found = self.problem(small_shape(self.operator, MIDDLE))
        assert found is not None, "every operator takes contiguous arguments"
        return found


def small_shape(operator: Operator, number: int, form: int = 1) -> tuple[int, ...]:
    """The shapes from 16 elements on: elementwise in three forms, with a class axis by their rows or their height."""
    pattern = operator.workloads.PATTERN
    if pattern == "rows":
        return (4 + number, 4)
    if pattern == "pixels":
        return (1, 2, 4 + number, 2)
    half = 8 + number
    return ((2 * half,), (half, 2), (2, half))[form % 3]


def _same(turn: Turn) -> Iterator[Problem]:
    yield from itertools.repeat(turn.middle(), turn.count)


def _new_sizes(turn: Turn) -> Iterator[Problem]:
    for form, number in enumerate(turn.fresh()):
        problem = turn.problem(small_shape(turn.operator, number, form))
        assert problem is not None, "every operator takes contiguous arguments"
        yield problem


def _new_numbers(turn: Turn) -> Iterator[Problem]:
    """All numbers that the operator lets vary by themselves, at once."""
    shape, limit = small_shape(turn.operator, MIDDLE), turn.count * turn.of

    def changed(names: list[str], number: int) -> Problem | None:
        def change(given: Arguments, read: list[str]) -> Arguments:
            for name in names:
                given = given | _with_number(turn.operator, given, name, (number + 1, limit))
            return given

        return turn.problem(shape, change=change)

    names = [name for name in _numbers(turn.operator) if changed([name], 0) is not None]
    for number in turn.fresh() if names else ():
        problem = changed(names, number)
        assert problem is not None, "each number may change by itself"
        yield problem


def _numbers(operator: Operator) -> list[str]:
    """The plain call's numbers: what is neither a tensor nor a choice among names."""
    kinds = (Kind.SCALAR, Kind.FLOAT, Kind.DOUBLE, Kind.INT64)
    return [p.python_name for p in operator.parameters if p.kind in kinds and not p.choices]


def _with_number(
    operator: Operator, given: Arguments, name: str, step: tuple[int, int]
) -> Arguments:
    """Another value of a number: a fraction above a float, below an integer, which changes in integer arrays too."""
    number, limit = step
    old = given.get(name, operator.plain_defaults[name])
    if isinstance(old, float):
        return {name: old + number / (1 << limit.bit_length())}  # exact in float32, by less than 1
    arrays = {key: value for key, value in given.items() if is_array(value) and _integral(value)}
    for array in arrays.values():
        array[array == old] = old - number
    return {name: old - number, **arrays}


def _integral(array: Any) -> bool:
    if isinstance(array, np.ndarray):
        return array.dtype.kind in "iu"
    return not array.is_floating_point()


def _in_place(turn: Turn) -> Iterator[Problem]:
    """The output is the last input of its shape and dtype, of several outputs the first; every call has arrays of its own, since
    it overwrites one."""
    for _ in range(turn.count):
        problem = turn.middle()
        first, *others = problem.outputs_of(problem.out)
        fitting = [
            value
            for value in problem.arguments.values()
            if is_array(value) and (value.shape, value.dtype) == (first.shape, first.dtype)
        ]
        if not fitting:
            return
        yield replace(problem, out=(fitting[-1], *others) if others else fitting[-1])


def _new_layout(turn: Turn) -> Iterator[Problem]:
    """Operands of two axes and more with gaps along both of the last, or vectors where there are no others; every second call has
    one row for all, if it may."""
    shape = small_shape(turn.operator, WIDE)
    rows = turn.problem(shape, layout="broadcast") if len(shape) == 2 else None
    layouts = ("contiguous", "contiguous" if rows is None else "broadcast")
    for place, number in enumerate(turn.fresh()):

        def change(given: Arguments, read: list[str], number: int = number) -> Arguments:
            step, behind = 1 + number % STEPS, 1 + number // STEPS
            wide = [name for name in read if given[name].ndim >= 2]
            gaps = {name: _with_gaps(given[name], step, behind) for name in wide}
            if not gaps:
                first, *others = [name for name in read if math.prod(given[name].shape) > 1]
                gaps = {name: _with_gaps(given[name], behind) for name in others}
                gaps[first] = _with_gaps(given[first], step)
            return given | gaps

        problem = turn.problem(shape, layout=layouts[place % 2], change=change)
        if problem is None:
            return
        yield problem


def _outer(turn: Turn) -> Iterator[Problem]:
    """The last operand of two axes is a row and the others are columns, each of another length in every call."""

    def change(given: Arguments, read: list[str]) -> Arguments:
        wide = [name for name in read if given[name].ndim >= 2]
        columns, rows = wide[:-1], wide[-1:]
        return (
            given
            | {name: given[name][:, :1] for name in columns}
            | {name: given[name][:1] for name in rows}
        )

    elementwise = turn.operator.workloads.PATTERN == "elementwise"
    for form, number in enumerate(turn.fresh() if elementwise else ()):
        problem = turn.problem(small_shape(turn.operator, number, 1 + form % 2), change=change)
        if problem is None or not _stretches(problem):
            return
        yield problem


def _stretches(problem: Problem) -> bool:
    """Whether no input has the shape that all of them stretch to."""
    shapes = [value.shape for value in problem.arguments.values() if is_array(value)]
    return tuple(np.broadcast_shapes(*shapes)) not in map(tuple, shapes)


def _with_gaps(array: Any, step: int, behind: int = 0) -> Any:
    """The array in larger memory: a step along the last axis, and more behind each row."""
    length = array.shape[-1] * step
    view = empty_like(array, (*array.shape[:-1], length + behind))[..., :length:step]
    view[...] = array
    return view


def _eight(turn: Turn) -> list[Problem]:
    """Eight kinds: variants and dtypes, then, where those are fewer, again with operands that lie otherwise."""
    families = itertools.product(
        ("contiguous", "transposed", "sliced"), turn.operator.workloads.VARIANTS, FLOATS
    )
    shape = small_shape(turn.operator, MIDDLE)
    made = (
        build(turn.operator, variant, dtype, shape, layout, turn.device)
        for layout, variant, dtype in families
    )
    return list(itertools.islice((each for each in made if each is not None), KINDS))


def _kinds_in_turn(turn: Turn) -> Iterator[Problem]:
    yield from itertools.islice(itertools.cycle(_eight(turn)), turn.count)


def _kinds_in_a_row(turn: Turn) -> Iterator[Problem]:
    """The same calls as in turn, in another order; those that are checked are each kind's."""
    kinds = _eight(turn)
    rows = itertools.chain.from_iterable([kind] * IN_A_ROW for kind in itertools.cycle(kinds))
    yield from itertools.islice(itertools.chain(kinds, kinds, rows), turn.count)


def _refused(turn: Turn) -> Iterator[Problem]:
    """One array too long: the last that the operator minds."""
    sound = turn.middle()
    for name, value in reversed(sound.arguments.items()):
        if not is_array(value) or math.prod(value.shape) < 2:
            continue
        longer = empty_like(value, (*value.shape[:-1], value.shape[-1] + 1))
        longer[..., :-1] = value
        longer[..., -1] = value[..., -1]
        given = sound.arguments | {name: longer}

        def change(made: Arguments, read: list[str], given: Arguments = given) -> Arguments:
            return given

        if turn.problem(sound.shape, change=change) is None:
            yield from itertools.repeat(replace(sound, arguments=given), turn.count)
            return


@dataclass(frozen=True)
class CallRegime:
    """One way for calls to change. `sequence` makes a contender's problems; none where the operator has no such change."""

    name: str
    reason: str
    sequence: Callable[[Turn], Iterator[Problem]]
    ways: tuple[str, ...] = (ALLOCATING, INTO)
    refused: bool = False
    mixed: bool = False  # of all variants and dtypes
    times: int = 1  # a sample has so many times the calls of other regimes'
    forgotten: bool = False  # before a call all kinds are forgotten
    beside: str = "same"  # the regime that it is compared with
    waits: bool = False  # calls wait until the work is done, PyTorch's too

    @property
    def checked(self) -> int:
        """The first calls of a sequence, which are not timed: of several kinds each as it is first seen, and again."""
        return 2 * KINDS if self.mixed else KINDS

    def calls(self, usual: int) -> int:
        """How many calls a sample has, where most regimes' have `usual`."""
        return min(usual, KINDS) if self.forgotten else usual * self.times

    def ways_of(self, operator: Operator) -> tuple[str, ...]:
        """An operator that writes over its input has no `out=`: its plain call is one."""
        if not operator.output.in_place:
            return self.ways
        return tuple(dict.fromkeys([ALLOCATING if way == INTO else way for way in self.ways]))

    def peers_of(self, operator: Operator) -> tuple[str, ...]:
        """PyTorch's ways beside ours: one phase beside two."""
        alone = tuple([way for way in self.ways_of(operator) if way != TWO_PHASE])
        return alone or (ALLOCATING, INTO)


CHANGES = (
    CallRegime("same", "nothing changes", _same, (ALLOCATING, INTO, TWO_PHASE)),
    CallRegime("new sizes", "a size that was not seen before, each call", _new_sizes),
    CallRegime("new numbers", "every number of the call another one, each call", _new_numbers),
    CallRegime("in place", "`out=` is an input", _in_place, (INTO,)),
    CallRegime("new layout", "strides that were not seen before, each call", _new_layout),
    CallRegime("outer", "a column beside a row, another shape each call", _outer),
    CallRegime(
        "kinds in a row",
        "eight kinds of calls, each eight times in a row",
        _kinds_in_a_row,
        mixed=True,
        times=KINDS,
        beside="kinds in a row",
    ),
    CallRegime(
        "kinds in turn",
        "the same eight, one after the other",
        _kinds_in_turn,
        mixed=True,
        times=KINDS,
        beside="kinds in a row",
    ),
    CallRegime(
        "first of a kind",
        "each of the same eight as if for the first time, by the full way; its kernel is compiled",
        _kinds_in_turn,
        mixed=True,
        forgotten=True,
        beside="kinds in a row",
    ),
    CallRegime("refusal", "an array of the wrong shape", _refused, (ALLOCATING,), refused=True),
    CallRegime(
        "two-phase",
        "both phases and the wait, a new size each call; PyTorch's call and the wait",
        _new_sizes,
        (TWO_PHASE,),
        waits=True,
    ),
)
"""The regimes, each after the one that it is compared with."""
