"""Calls that change: each regime makes sequences of small problems, and says in which ways they are called.

A sequence is one contender's own: ours on arrays and on tensors, and PyTorch's. Its first calls are checked, the rest are timed, in turn
with calls that the regime is compared with. What must be new in every call is new beside the sequences of the other contenders too, since
they share the engine's and the call cache's memory: of `Turn.of` contenders each takes its `Turn.place`.

Every contender reaches its next call the same way, which costs it some 0.1 us more than a call that never changes. What the
calls of a sample take is looked at before the clock starts, as if just made by the operation before: whatever is new about
a call, it is not that its arrays are in no cache.
"""

from __future__ import annotations

import functools
import gc
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, cycle, islice, product, repeat
from typing import Any

import numpy as np

import openaclnn
from openaclnn.bench.contenders import (
    ALLOCATING,
    INTO,
    TWO_PHASE,
    checked,
    expected_of,
    fault_of,
    our_call,
    ours,
    unavailable,
)
from openaclnn.bench.problems import (
    Arguments,
    Problem,
    build,
    empty_like,
    first_variant,
    is_array,
    outer,
    taken,
    with_gaps,
)
from openaclnn.bench.regimes import Shape
from openaclnn.bench.timing import (
    Bench,
    Call,
    Case,
    Contender,
    OtherLoad,
    Row,
    nothing,
    time_contenders,
)
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import FLOAT, FLOATS, DType
from openaclnn.core.interface import REQUIRED, Kind
from openaclnn.core.status import AclnnError
from openaclnn.operators import registry

ARRAYS, TENSORS, PEER = ", arrays", ", tensors", "torch"  # in contenders' names, before the way
PER_TURN = 8  # calls of a sample
QUICK_ROUNDS = 3  # in a quick run
KINDS = 8
MIDDLE = 250  # for `small_shape`: about the mean of the new sizes
WIDE = 60  # and for layouts with gaps, which take more memory
FRACTION = 2.0**-20  # by which numbers differ, exactly in FLOAT
STEPS = 16  # strides of the last axis in the new layouts


@dataclass(frozen=True)
class Turn:
    """For whom a sequence is made: how many calls, and which contender's of how many."""

    operator: Operator
    dtype: DType
    device: str
    count: int
    place: int = 0
    of: int = 1

    def fresh(self) -> Iterator[int]:
        """A number for each call that no other call and no other contender has, in no order."""
        for number in np.random.default_rng(7).permutation(self.count).tolist():
            yield number * self.of + self.place

    def shape(self, number: int = MIDDLE, form: int = 1) -> Shape:
        """From 16 elements on: elementwise in three forms, with a class axis by their rows or their height."""
        half, pattern = 8 + number, self.operator.workloads.PATTERN
        if pattern != "elementwise":
            return (4 + number, 4) if pattern == "rows" else (1, 2, 4 + number, 2)
        return ((2 * half,), (half, 2), (2, half))[form % 3]

    def problem(self, shape: Shape, **options: Any) -> Problem | None:
        variant = first_variant(self.operator)
        return build(self.operator, variant, self.dtype, shape, device=self.device, **options)

    def contiguous(self, *shape: int) -> Problem:
        problem = self.problem(self.shape(*shape))
        assert problem is not None, "every operator takes such arguments"
        return problem

    def changed(
        self,
        change: Callable[[int, Arguments, list[str]], Arguments | None],
        shape: Callable[[int, int], Shape] | None = None,
        layouts: Sequence[str] = ("contiguous",),
    ) -> Iterator[Problem]:
        """For each fresh number what `change` makes of a problem's arguments, of a shape by place and number; none where the operator refuses it."""
        for place, number in enumerate(self.fresh()):
            layout, by_number = layouts[place % len(layouts)], functools.partial(change, number)
            size = shape(place, number) if shape else self.shape()
            problem = self.problem(size, layout=layout, change=by_number)
            if problem is None:
                return
            yield problem


def _same(turn: Turn) -> Iterator[Problem]:
    yield from repeat(turn.contiguous(), turn.count)


def _new_sizes(turn: Turn) -> Iterator[Problem]:
    yield from (turn.contiguous(number, form) for form, number in enumerate(turn.fresh()))


def _new_numbers(turn: Turn) -> Iterator[Problem]:
    """All numbers that the operator lets vary by themselves, at once: what is neither a tensor nor a choice among names or axes."""
    kinds = (Kind.SCALAR, Kind.FLOAT, Kind.DOUBLE, Kind.INT64)
    numbers = [
        p.python_name
        for p in turn.operator.parameters
        if p.kind in kinds and p.default is not REQUIRED and not p.choices and not p.axis
    ]
    defaults = turn.operator.plain_defaults

    def change(names: Sequence[str], number: int, values: Arguments, read: Any) -> Arguments:
        """A float grows, by less than 1; an integer falls, in integer arrays too."""
        arrays = [
            value for value in values.values() if is_array(value) and "int" in str(value.dtype)
        ]
        for name in names:
            old = values.get(name, defaults[name])
            new = old + (number + 1) * (FRACTION if isinstance(old, float) else -1)
            for array in arrays if isinstance(old, int) else ():
                array[array == old] = new
            values = values | {name: new}
        return values

    def may_vary(name: str) -> bool:
        far = 16 * isinstance(defaults[name], int)  # integers may number a few ways
        by_itself = functools.partial(change, [name], far)
        return turn.problem(turn.shape(), change=by_itself) is not None

    alone = [name for name in numbers if may_vary(name)]
    yield from turn.changed(functools.partial(change, alone)) if alone else ()


def _in_place(turn: Turn) -> Iterator[Problem]:
    """The output is the last input of its shape and dtype, of several outputs the first; every call has arrays of its own, since
    it overwrites one."""
    for _ in range(turn.count):
        problem = turn.contiguous()
        first, *others = problem.outputs_of(problem.out)
        fitting = [
            value
            for value in problem.arguments.values()
            if is_array(value) and (value.shape, value.dtype) == (first.shape, first.dtype)
        ]
        # One half would be written before the other is read, or numbers of rows before others of theirs.
        if not fitting or problem.plan.halved or problem.plan.output.role == "positions":
            return
        yield replace(problem, out=(fitting[-1], *others) if others else fitting[-1])


def _new_layout(turn: Turn) -> Iterator[Problem]:
    """Operands of two axes and more with gaps along both of the last, or vectors where there are no others; every second call has
    one row for all, if it may."""
    shape = turn.shape(WIDE)
    rows = turn.problem(shape, layout="broadcast") if len(shape) == 2 else None
    layouts = ["contiguous"] if rows is None else ["contiguous", "broadcast"]

    def change(number: int, values: Arguments, read: list[str]) -> Arguments:
        step, behind = 1 + number % STEPS, 1 + number // STEPS
        wide = [name for name in read if values[name].ndim >= 2]
        if wide:
            return values | {name: with_gaps(values[name], step, behind) for name in wide}
        first, *others = [name for name in read if math.prod(values[name].shape) > 1]
        gaps = {name: with_gaps(values[name], behind) for name in others}
        return values | gaps | {first: with_gaps(values[first], step)}

    yield from turn.changed(change, lambda *_: shape, layouts)


def _outer(turn: Turn) -> Iterator[Problem]:
    """The last operand of two axes is a row and the others are columns, each of another length in every call."""

    def change(number: int, values: Arguments, read: list[str]) -> Arguments | None:
        stretched = outer(values, [name for name in read if values[name].ndim >= 2]) or {}
        shapes = [tuple(each.shape) for each in stretched.values() if is_array(each)]
        # None where an input has the shape that all stretch to.
        return None if np.broadcast_shapes(*shapes) in shapes else stretched

    if turn.operator.workloads.PATTERN == "elementwise":
        yield from turn.changed(change, lambda place, number: turn.shape(number, 1 + place % 2))


def _eight_kinds(turn: Turn) -> list[Problem]:
    """Eight kinds: variants and dtypes, then, where those are fewer, again with operands that lie otherwise."""
    operator, shape = turn.operator, turn.shape()
    layouts, variants = ("contiguous", "transposed", "sliced"), operator.workloads.VARIANTS
    problems = (
        build(operator, variant, dtype, shape, layout, turn.device)
        for layout, variant, dtype in product(layouts, variants, taken(operator, FLOATS))
    )
    return list(islice((each for each in problems if each is not None), KINDS))


def _kinds_in_turn(turn: Turn) -> Iterator[Problem]:
    yield from islice(cycle(_eight_kinds(turn)), turn.count)


def _kinds_in_a_row(turn: Turn) -> Iterator[Problem]:
    """The same calls as in turn, each kind eight times in a row; those that are checked are each kind's."""
    kinds = _eight_kinds(turn)
    rows = chain.from_iterable([kind] * KINDS for kind in cycle(kinds))
    yield from islice(chain(kinds, kinds, rows), turn.count)


def _refused(turn: Turn) -> Iterator[Problem]:
    """One array too long: the last that the operator minds."""
    sound = turn.contiguous()
    for name, value in reversed(sound.arguments.items()):
        if not is_array(value) or math.prod(value.shape) < 2:
            continue
        longer = empty_like(value, (*value.shape[:-1], value.shape[-1] + 1))
        longer[..., :-1], longer[..., -1] = value, value[..., -1]
        wrong = sound.arguments | {name: longer}
        if turn.problem(sound.shape, change=lambda values, read, wrong=wrong: wrong) is None:
            yield from repeat(replace(sound, arguments=wrong), turn.count)
            return


@dataclass(frozen=True)
class CallRegime:
    """One way for calls to change. `sequence` makes a contender's problems; none where the operator has no such change."""

    name: str
    sequence: Callable[[Turn], Iterator[Problem]]
    ways: tuple[str, ...] = (ALLOCATING, INTO)
    refused: bool = False
    mixed: bool = False  # of all variants and dtypes, in samples of as many times the calls
    forgotten: bool = False  # before each call, which is a sample, all kinds are forgotten
    beside: str = "same"  # the regime that it is compared with

    @property
    def checked(self) -> int:
        """The first calls of a sequence, which are not timed: of several kinds each as it is first seen, and again."""
        return 2 * KINDS if self.mixed else KINDS

    def calls(self, usual: int) -> int:
        """How many calls a sample has, where most regimes' have `usual`."""
        return 1 if self.forgotten else usual * (KINDS if self.mixed else 1)

    def ways_of(self, operator: Operator) -> tuple[str, ...]:
        """An operator that writes over its input has no `out=`: its plain call is one."""
        if not operator.output.in_place:
            return self.ways
        return tuple(dict.fromkeys([ALLOCATING if way == INTO else way for way in self.ways]))

    def peers_of(self, operator: Operator) -> tuple[str, ...]:
        """PyTorch's ways beside ours: one phase beside two."""
        alone = tuple([way for way in self.ways_of(operator) if way != TWO_PHASE])
        return alone or (ALLOCATING, INTO)


_MIXED: dict[str, Any] = {"mixed": True, "beside": "kinds in a row"}
CHANGES = (
    CallRegime("same", _same, (ALLOCATING, INTO, TWO_PHASE)),
    CallRegime("new sizes", _new_sizes),
    CallRegime("new numbers", _new_numbers),
    CallRegime("in place", _in_place, (INTO,)),
    CallRegime("new layout", _new_layout),
    CallRegime("outer", _outer),
    CallRegime("kinds in a row", _kinds_in_a_row, **_MIXED),
    CallRegime("kinds in turn", _kinds_in_turn, **_MIXED),
    # By the slow path; kernels are compiled.
    CallRegime("first of a kind", _kinds_in_turn, forgotten=True, **_MIXED),
    CallRegime("refusal", _refused, (ALLOCATING,), refused=True),
    # With the wait, PyTorch's too; a new size each call.
    CallRegime("two-phase", _new_sizes, (TWO_PHASE,)),
)
"""The regimes, each after the one that it is compared with."""


def sequences(
    regime: CallRegime, turn: Turn, engines: Sequence[str], torch: Any, peers: bool = True
) -> Iterator[tuple[list[Problem], Contender]]:
    """Each contender with the problems of its calls: ours by engine, way and library, then PyTorch's, of problems as large as ours."""
    arrays = [ARRAYS] if turn.device == "cpu" else []
    libraries = [*arrays, *([TENSORS] if torch is not None else [])]
    entries = list(product(engines, regime.ways_of(turn.operator), libraries))
    for place, (engine, way, library) in enumerate(entries):
        problems = list(regime.sequence(replace(turn, place=place, of=len(entries))))
        each = ours(f"{engine}{library}{way}", problems[0], engine, way, lambda: nothing)
        if not each.unavailable:
            called = [problem.in_torch for problem in problems] if library == TENSORS else problems
            each = replace(each, **_calls(regime, called, [our_call(p, way) for p in called]))
        yield problems, each
    for way in regime.peers_of(turn.operator) if torch is not None and peers else ():
        problems = list(regime.sequence(replace(turn, of=max(len(entries), 1))))
        called, waits = [problem.in_torch for problem in problems], regime.ways == (TWO_PHASE,)
        try:
            calls = [_peer_call(problem, PEER + way, torch, waits) for problem in called]
        except Exception as error:  # whatever torch objects to is a line in the table
            yield problems, unavailable(PEER + way, error)
            continue
        if None not in calls:  # else PyTorch has no such way
            told = _calls(regime, called, calls, Exception)
            yield problems, Contender(PEER + way, writes_out=way == INTO, **told)


def _calls(
    regime: CallRegime, problems: Sequence[Problem], calls: Sequence[Any], refusal: type[Exception] = AclnnError,
) -> dict[str, Any]:  # fmt: skip
    """What a contender calls, in turn, and how it warms up; where the regime says so, each call must raise `refusal`, or what ours knew of such calls is
    forgotten at last."""
    checked = regime.checked
    known = {id(problem) for problem in problems[:checked]}
    ahead = [
        functools.partial(_look_at, problem, call)
        for problem, call in zip(problems[checked:], calls[checked:], strict=True)
        if id(problem) not in known
    ]
    if regime.refused:
        calls = [functools.partial(_must_refuse, call, refusal) for call in calls]
    # There is a call of warming up for each that is timed after it; those that come again are warm by being made.
    steps = [*([_in_turn(ahead)] if ahead else []), _in_turn(cycle(calls[:checked]))]
    if regime.forgotten and refusal is AclnnError:
        # Kinds of an operator's plain calls are new again; engines keep what they compiled.
        steps.append(getattr(openaclnn, problems[0].operator.python_name).cache.forget)
    return {"call": _in_turn(calls), "warm_up": lambda: [step() for step in steps]}


def _in_turn(calls: Iterable[Call]) -> Call:
    following = iter(calls).__next__
    return lambda: following()()


def _must_refuse(call: Call, error: type[Exception]) -> None:
    try:
        call()
    except error:
        return
    raise RuntimeError("a wrong shape was not refused")


def _look_at(problem: Problem, call: Call) -> None:
    """What a call takes comes into the processor's caches: its objects, and the elements of arrays on the host."""
    gc.get_referents(*[cell.cell_contents for cell in getattr(call, "__closure__", None) or ()])
    for value in (*problem.arguments.values(), *problem.fresh):
        if isinstance(value, np.ndarray):
            np.count_nonzero(value)
        elif is_array(value) and value.data_ptr() and not value.is_cuda:
            value.count_nonzero()


def _peer_call(problem: Problem, name: str, torch: Any, waits: bool) -> Call | None:
    """PyTorch's call of this name, if it has one; on the host it has waited when it returns."""
    peers = problem.operator.workloads.torch_peers(torch, problem.arguments, problem.out)
    call: Call | None = peers.get(name)
    if call is None or not waits or problem.device == "cpu":
        return call
    wait = torch.cuda.current_stream().synchronize

    def waited(call: Call = call) -> Any:
        result = call()
        wait()
        return result

    return waited


def call_cases(dtypes: Sequence[DType]) -> list[Case]:
    """The cases of these dtypes, where the operator has such calls."""
    return [
        call_case(operator, dtype, regime)
        for operator in registry()
        for regime in CHANGES
        for dtype in ((FLOAT,) if regime.mixed else taken(operator, dtypes))
        if _has_calls(operator, dtype, regime)
    ]


@functools.cache
def _has_calls(operator: Operator, dtype: DType, regime: CallRegime) -> bool:
    return any(True for _ in regime.sequence(Turn(operator, dtype, "cpu", KINDS)))


def call_case(operator: Operator, dtype: DType, regime: CallRegime) -> Case:
    runner = functools.partial(_run, operator, dtype, regime)
    variant, values = ("all", "all") if regime.mixed else (first_variant(operator), dtype.name)
    return Case(operator.python_name, variant, regime.name, (), values, runner)


def _run(
    operator: Operator, dtype: DType, regime: CallRegime, case: Case, bench: Bench, per_turn: int = PER_TURN,
) -> list[Row]:  # fmt: skip
    """In turn with the calls that it is compared with; without engines asked for, of the one that calls get by themselves."""
    rounds = min(bench.rounds, QUICK_ROUNDS) if bench.quick else bench.rounds
    engines = bench.engines if bench.named else bench.engines[:1]

    def made(regime: CallRegime, peers: bool = True) -> tuple[Shape, list[Contender]]:
        """The shape of the first call, and contenders whose first calls were made."""
        calls = regime.calls(per_turn)
        turn = Turn(operator, dtype, bench.device, regime.checked + rounds * calls)
        entries = list(sequences(regime, turn, engines, bench.torch, peers))
        problems = {each.name: called for called, each in entries}
        contenders = [replace(each, calls=calls) for _, each in entries]
        return entries[0][0][0].shape, checked(
            contenders, lambda each: find_fault(regime, problems[each.name], each, bench.torch)
        )

    # Ticks of 10 ms count the work of others, and a case is timed for some: what is made and checked before it counts, too.
    load = OtherLoad()
    beside, compared = list[Contender](), regime.beside != regime.name
    if compared:
        usual = next(each for each in CHANGES if each.name == regime.beside)
        _, usuals = made(replace(usual, ways=regime.ways), peers=False)
        beside = [each for each in usuals if each.status == "ok"]
    shape, contenders = made(regime)
    about = case.about | {"shape": list(shape), "of_same": None}
    rows = time_contenders(
        about, contenders, replace(bench, rounds=rounds),
        beside=beside, measuring=True, load=load,
    )  # fmt: skip
    for row in rows:
        if row["ours"] and "median_us" in row:
            row["of_same"] = row["of_beside"] if compared else 1.0
    return rows


def find_fault(
    regime: CallRegime, problems: Sequence[Problem], contender: Contender, torch: Any
) -> str:
    """What is wrong with the first calls of a sequence, which are all made; "" if nothing is."""
    fault, known = "", dict[int, Any]()
    for problem in problems[: regime.checked]:
        if regime.refused:
            with contender.inside():
                contender.call()
            continue
        if id(problem) not in known or not problem.apart:
            known[id(problem)] = expected_of(problem)
        different = fault_of(problem, contender, known[id(problem)], torch)
        fault = fault or (different and f"{different}, shape {problem.shape}")
    return fault
