"""Calls that change: of each contender's sequence of prepared calls the first are checked, the rest are timed.

Before a sample those that were checked are made again, so that code is warm and what is timed is new; the arrays of those that
are timed are looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from openaclnn.bench.changes import CHANGES, KINDS, CallRegime, Turn
from openaclnn.bench.contenders import Contender, first_line
from openaclnn.bench.machine import OtherLoad
from openaclnn.bench.measure import Clock, Timing, interleave, paired_ratio
from openaclnn.bench.problems import Problem
from openaclnn.bench.sequences import PEER, sequences
from openaclnn.bench.verify import expected_of, fault_of, status_of
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import FLOAT, DType
from openaclnn.operators import registry

__all__ = ["CallCase", "all_calls", "find_fault", "relate", "run_calls"]


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
    """Check and time one case: a row for each contender."""
    inner = min(inner, KINDS) if case.regime.forgotten else inner * case.regime.times
    turn = Turn(case.operator, case.dtype, device, case.regime.checked + rounds * inner)
    contenders: list[Contender] = []
    faults: dict[str, str] = {}
    shape: tuple[int, ...] = ()
    for problems, contender in sequences(case.regime, turn, engines, torch):
        shape = problems[0].shape
        try:
            if not contender.unavailable:
                faults[contender.name] = find_fault(case.regime, problems, contender, torch)
        except Exception as error:  # PyTorch may object; from ours it is as wrong as a wrong number
            if contender.ours:
                faults[contender.name] = first_line(error)
            else:
                contender = replace(contender, unavailable=first_line(error))
        contenders.append(contender)
    timed = [c for c in contenders if not c.unavailable and not (c.ours and faults[c.name])]
    with OtherLoad() as load:
        timings = interleave(timed, clock, rounds, inner=inner)
    noise = {"others_cores": load.cores, "disturbed": load.disturbs(threads), "threads": threads}
    return [
        _row(case, shape, each, faults.get(each.name, ""), timings) | noise for each in contenders
    ]


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


def _row(
    case: CallCase,
    shape: Sequence[int],
    contender: Contender,
    fault: str,
    timings: dict[str, Timing],
) -> dict[str, Any]:
    own = timings.get(contender.name)
    row: dict[str, Any] = {
        "operator": case.operator.python_name, "variant": case.variant,
        "regime": case.regime.name, "reason": case.regime.reason, "shape": list(shape),
        "dtype": case.dtype_name, "contender": contender.name, "ours": contender.ours,
        "engine": contender.engine, "note": fault or contender.unavailable,
        "status": status_of(fault, own),
        "ratios": {}, "of_same": None,
    }  # fmt: skip
    if own is not None:
        row |= own.summary()
        peers = [name for name in timings if name.startswith(PEER) and contender.ours]
        row["ratios"] = {name: paired_ratio(timings[name], own) for name in peers}
    return row


def relate(rows: Sequence[dict[str, Any]]) -> None:
    """Enter how many times as long as calls that do not change each contender took, where the run has both."""

    def told(row: dict[str, Any], regime: str) -> tuple[str, ...]:
        return row["operator"], row["contender"], row["dtype"], regime

    beside = {regime.name: regime.beside for regime in CHANGES}
    timed = [row for row in rows if "median_us" in row]
    usual = {told(row, row["regime"]): row["median_us"] for row in timed}
    for row in timed:
        compared = usual.get(told(row, beside[row["regime"]]))
        if compared is not None:
            row["of_same"] = row["median_us"] / compared
