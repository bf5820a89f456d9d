"""Calls that change: of each contender's sequence of prepared calls the first are checked, the rest are timed.

Before a sample those that were checked are made again, so that code is warm and what is timed is new; the arrays of those that
are timed are looked at. Calls that do not change are timed in the same rounds, since the machine may have another speed in others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from openaclnn.bench.problems.changes import CHANGES, CallRegime, Turn
from openaclnn.bench.problems.problem import Problem
from openaclnn.bench.timing.contenders import Contender, first_line
from openaclnn.bench.timing.machine import OtherLoad
from openaclnn.bench.timing.measure import Clock, Timing, interleave, paired_ratio
from openaclnn.bench.timing.sequences import PEER, Made, own_sequences, sequences
from openaclnn.bench.timing.steady import taken_out, yardstick
from openaclnn.bench.timing.verify import expected_of, fault_of, status_of
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import FLOAT, DType
from openaclnn.operators import registry

__all__ = ["CallCase", "all_calls", "find_fault", "run_calls"]

BESIDE = ", beside"  # ends the names of contenders that a case is compared with


@dataclass(frozen=True)
class CallCase:
    """One line of the table."""

    operator: Operator
    dtype: DType
    regime: CallRegime

    @property
    def variant(self) -> str:
        return "all" if self.regime.mixed else next(iter(self.operator.workloads.VARIANTS))

    @property
    def dtype_name(self) -> str:
        return "all" if self.regime.mixed else self.dtype.name

    @property
    def title(self) -> str:
        return f"{self.operator.python_name} {self.variant} {self.regime.name} {self.dtype_name}"


def all_calls(dtypes: Sequence[DType]) -> list[CallCase]:
    """The cases of these dtypes, where the operator has such calls."""
    cases = [
        CallCase(operator, dtype, regime)
        for operator in registry()
        for regime in CHANGES
        for dtype in ((FLOAT,) if regime.mixed else dtypes)
    ]
    return [case for case in cases if _exists(case)]


def _exists(case: CallCase) -> bool:
    return any(True for _ in case.regime.sequence(Turn(case.operator, case.dtype, "cpu", 1)))


def run_calls(
    case: CallCase,
    device: str,
    engines: Sequence[str],
    torch: Any,
    clock: Clock,
    rounds: int,
    inner: int,
    threads: int,
) -> list[dict[str, Any]]:
    """Check and time one case, in turn with the calls that it is compared with: a row for each contender."""

    def checked(regime: CallRegime, make: Callable[..., Made], ending: str = "") -> Iterator[_Made]:
        calls = regime.calls(inner)
        turn = Turn(case.operator, case.dtype, device, regime.checked + rounds * calls)
        for problems, contender in make(regime, turn, engines, torch):
            named = replace(contender, name=contender.name + ending, calls=calls)
            yield _checked(regime, problems, named, torch)

    # Ticks of 10 ms count the work of others, and a case is timed for some: what is made and checked before it counts, too.
    with OtherLoad() as load:
        made = list(checked(case.regime, sequences))
        usual = _usual(case.regime)
        beside = [] if usual is None else checked(usual, own_sequences, BESIDE)
        timed = [each.contender for each in (*made, *beside) if each.sound]
        timings = interleave([*timed, yardstick()], clock, rounds)
    common = {
        "shape": list(made[0].shape) if made else [], "threads": threads, "others_cores": load.cores,
        "disturbed": load.disturbs(threads), "yardstick_us": taken_out(timings),
    }  # fmt: skip
    return [_row(case, each, timings) | common for each in made]


def _usual(regime: CallRegime) -> CallRegime | None:
    """What a regime is compared with, called in the same ways; None for one that others are compared with."""
    found = next(each for each in CHANGES if each.name == regime.beside)
    return None if found.name == regime.name else replace(found, ways=regime.ways)


class _Made(NamedTuple):
    """A contender, whose first calls have been made."""

    shape: tuple[int, ...]
    contender: Contender
    fault: str

    @property
    def sound(self) -> bool:
        """Whether it is timed: PyTorch's even where it is inexact."""
        return not self.contender.unavailable and not (self.contender.ours and self.fault)


def _checked(
    regime: CallRegime, problems: Sequence[Problem], contender: Contender, torch: Any
) -> _Made:
    fault, shape = "", problems[0].shape
    try:
        if not contender.unavailable:
            fault = find_fault(regime, problems, contender, torch)
    except Exception as error:  # PyTorch may object; from ours it is as wrong as a wrong number
        if not contender.ours:
            return _Made(shape, replace(contender, unavailable=first_line(error)), "")
        fault = first_line(error)
    return _Made(shape, contender, fault)


def find_fault(
    regime: CallRegime, problems: Sequence[Problem], contender: Contender, torch: Any
) -> str:
    """What is wrong with the first calls of a sequence, which are all made; "" if nothing is."""
    fault, known = "", dict[int, Any]()
    for problem in problems[: regime.checked]:
        if regime.refused:
            with contender.chosen():
                contender.call()
            continue
        if id(problem) not in known or not problem.apart:
            known[id(problem)] = expected_of(problem)
        found = fault_of(problem, contender, known[id(problem)], torch)
        fault = fault or (found and f"{found}, shape {problem.shape}")
    return fault


def _row(case: CallCase, made: _Made, timings: dict[str, Timing]) -> dict[str, Any]:
    contender, fault = made.contender, made.fault
    own = timings.get(contender.name)
    row: dict[str, Any] = {
        "operator": case.operator.python_name, "variant": case.variant,
        "regime": case.regime.name, "reason": case.regime.reason,
        "dtype": case.dtype_name, "contender": contender.name, "ours": contender.ours,
        "engine": contender.engine, "note": fault or contender.unavailable,
        "status": status_of(fault, own),
        "ratios": {}, "of_same": None,
    }  # fmt: skip
    if own is not None:
        row |= own.summary()
    if own is not None and contender.ours:
        peers = [name for name in timings if name.startswith(PEER)]
        row["ratios"] = {name: paired_ratio(timings[name], own) for name in peers}
        itself = case.regime.beside == case.regime.name
        usual = own if itself else timings.get(contender.name + BESIDE)
        row["of_same"] = None if usual is None else paired_ratio(own, usual)
    return row
