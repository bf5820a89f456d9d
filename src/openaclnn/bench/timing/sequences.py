"""Who makes the calls that change: ours on arrays and on tensors, and PyTorch, each with a sequence of its own.

Every contender reaches its next call the same way, which costs it some 0.1 us more than a call that never changes. What the
calls of a sample take is looked at before the clock starts, as if just made by the operation before: whatever is new about
a call, it is not that its arrays are in no cache.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, cycle
from typing import Any

import numpy as np

from openaclnn.bench.problems.changes import ALLOCATING, INTO, TWO_PHASE, CallRegime, Turn
from openaclnn.bench.problems.problem import Problem, is_array
from openaclnn.bench.timing.contenders import (
    Aside,
    Contender,
    first_line,
    forget_kinds,
    must_be_asked,
    no_call,
    phase_arguments,
    plain_call,
)
from openaclnn.core.status import AclnnError
from openaclnn.engines.dispatch import choose_engine, use_engine

__all__ = ["ARRAYS", "PEER", "TENSORS", "Made", "own_sequences", "sequences"]

ARRAYS, TENSORS, PEER = ", arrays", ", tensors", "torch"  # in contenders' names, before the way
Call = Callable[[], Any]
Made = Iterator[tuple[list[Problem], Contender]]


def sequences(regime: CallRegime, turn: Turn, engines: Sequence[str], torch: Any) -> Made:
    """Each contender with the problems of its calls: ours, then PyTorch's."""
    ours = own_sequences(regime, turn, engines, torch)
    return chain(ours, _peer_sequences(regime, turn, engines, torch))


def _entries(
    regime: CallRegime, turn: Turn, engines: Sequence[str], torch: Any
) -> list[tuple[str, str, str]]:
    """Ours by engine, library and way."""
    arrays = [ARRAYS] if turn.device == "cpu" else []
    libraries = [*arrays, *([TENSORS] if torch is not None else [])]
    return [
        (engine, library, way)
        for engine in engines
        for way in regime.ways_of(turn.operator)
        for library in libraries
    ]


def own_sequences(regime: CallRegime, turn: Turn, engines: Sequence[str], torch: Any) -> Made:
    """Ours with the problems of their calls."""
    entries = _entries(regime, turn, engines, torch)
    for own, (engine, library, way) in enumerate(entries):
        problems = list(regime.sequence(replace(turn, own=own, of=len(entries))))
        name = f"{engine}{library}{way}"
        try:
            with use_engine(engine):
                choose_engine(problems[0].plan, turn.device)
        except AclnnError as error:
            yield problems, Contender(name, no_call, True, engine, unavailable=str(error))
            continue
        given = _all_in_torch(problems, torch) if library == TENSORS else problems
        calls = [_own_call(problem, way) for problem in given]
        asked = must_be_asked(problems[0], engine)
        forget = forget_kinds(turn.operator) if regime.forgotten else None
        yield problems, _contender(
            name, given, calls, regime.checked, AclnnError if regime.refused else None, forget,
            ours=True, engine=engine, writes_out=way != ALLOCATING, asked=asked,
        )  # fmt: skip


def _peer_sequences(regime: CallRegime, turn: Turn, engines: Sequence[str], torch: Any) -> Made:
    """PyTorch's, of problems as large as ours."""
    count = max(len(_entries(regime, turn, engines, torch)), 1)
    for way in regime.peers_of(turn.operator) if torch is not None else ():
        name = PEER + way
        problems = list(regime.sequence(replace(turn, of=count)))
        try:
            given = _all_in_torch(problems, torch)
            peers = [_peer_calls(problem, torch, regime.waits).get(name) for problem in given]
        except Exception as error:  # whatever torch objects to is a line in the table
            yield problems, Contender(name, no_call, unavailable=first_line(error))
            continue
        calls = [call for call in peers if call is not None]
        if len(calls) == len(problems):  # else PyTorch has no such way
            refusal = Exception if regime.refused else None
            yield (
                problems,
                _contender(
                    name, given, calls, regime.checked, refusal, None, writes_out=way == INTO
                ),
            )


def _contender(
    name: str,
    given: Sequence[Problem],
    calls: Sequence[Call],
    checked: int,
    refusal: type[Exception] | None,
    forget: Call | None,
    **options: Any,
) -> Contender:
    """One that makes the calls in turn; with `refusal`, each must raise that. With `forget`, no call before it is remembered, and
    what that takes is not counted."""
    known = {id(problem) for problem in given[:checked]}
    ahead = [
        functools.partial(_look_at, _arrays_of(problem), call)
        for problem, call in zip(given[checked:], calls[checked:], strict=True)
        if id(problem) not in known
    ]
    if refusal is not None:
        calls = [functools.partial(_refused, call, refusal) for call in calls]
    # There is a call of warming up for each that is timed after it; those that come again are warm by being made.
    aside = None if forget is None else Aside(forget)
    if aside is not None:
        calls = [functools.partial(_forgotten, call, aside) for call in calls]
    steps = [*([_in_turn(ahead)] if ahead else []), _in_turn(cycle(calls[:checked]))]
    return Contender(
        name, _in_turn(calls), warm_up=lambda: [step() for step in steps], aside=aside, **options
    )


def _forgotten(call: Call, forget: Call) -> Any:
    forget()
    return call()


def _arrays_of(problem: Problem) -> list[Any]:
    return [value for value in (*problem.arguments.values(), *problem.fresh) if is_array(value)]


def _look_at(arrays: Sequence[Any], call: Call) -> None:
    """What a call takes comes into the processor's caches: its objects, and the elements of arrays on the host."""
    gc.get_referents(*[cell.cell_contents for cell in getattr(call, "__closure__", None) or ()])
    for value in arrays:
        if isinstance(value, np.ndarray):
            np.count_nonzero(value)
        elif value.data_ptr() and not value.is_cuda:
            value.count_nonzero()


def _all_in_torch(problems: Sequence[Problem], torch: Any) -> list[Problem]:
    """The same on PyTorch's tensors; a problem that comes again is the same again."""
    known: dict[int, Problem] = {}
    for problem in problems:
        if id(problem) not in known:
            arguments, out = problem.for_torch(torch)
            known[id(problem)] = replace(problem, arguments=arguments, out=out)
    return [known[id(problem)] for problem in problems]


def _own_call(problem: Problem, way: str) -> Call:
    if way == TWO_PHASE:
        return _both_phases(problem)
    out = {"out": problem.out} if way == INTO else {}
    return plain_call(problem.operator, problem.arguments, **out)


def _peer_calls(problem: Problem, torch: Any, waits: bool) -> dict[str, Call]:
    """PyTorch's calls by name; on the host they have waited when they return."""
    peers: dict[str, Call] = problem.operator.workloads.torch_peers(
        torch, problem.arguments, problem.out
    )
    if not waits or problem.device == "cpu":
        return peers
    wait = torch.cuda.current_stream().synchronize
    return {name: functools.partial(_waited, call, wait) for name, call in peers.items()}


def _waited(call: Call, wait: Call) -> Any:
    result = call()
    wait()
    return result


def _both_phases(problem: Problem) -> Call:
    """Phase one, phase two and the wait for them."""
    from openaclnn import acl, aclnn

    operator, arguments = problem.operator, phase_arguments(problem)
    first = getattr(aclnn, f"{operator.name}GetWorkspaceSize")
    second = getattr(aclnn, operator.name)

    def run() -> None:
        status, size, executor = first(*arguments)
        if status or second(None, size, executor, None) or acl.aclrtSynchronizeStream(None):
            raise RuntimeError(f"{operator.name}: {aclnn.aclGetRecentErrMsg()}")

    return run


def _refused(call: Call, error: type[Exception]) -> None:
    try:
        call()
    except error:
        return
    raise RuntimeError("a wrong shape was not refused")


def _in_turn(calls: Iterable[Call]) -> Call:
    following = iter(calls).__next__
    return lambda: following()()
