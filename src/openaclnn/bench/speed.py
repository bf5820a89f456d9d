"""The large table: each problem built, checked, and timed by each number of threads; an odd size beside its round neighbour."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from openaclnn.bench.contenders import build_contenders, find_faults
from openaclnn.bench.machine import THREADED, set_threads, team_of
from openaclnn.bench.problems import Problem, build, measured
from openaclnn.bench.regimes import Regime, shrink
from openaclnn.bench.timing import (
    COPY,
    Bench,
    Case,
    Contender,
    Row,
    Timing,
    paired_ratio,
    time_contenders,
)
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import FLOAT, FLOATS, DType

ATTEMPTS = 3  # a case is timed again while other processes disturb it
ROUND = ", round"  # ends the names of contenders at the round size beside an odd one
_PROBE = 1 << 8  # elements of a problem that shows whether an operator takes a layout


def speed_cases(
    regimes: Mapping[str, Sequence[Regime]], dtypes: Sequence[DType], quick: bool, headline: bool
) -> Iterator[Case]:
    """The cases of these regimes, operator by operator; none of a layout that an operator refuses."""
    taken: dict[tuple[str, str, str], bool] = {}
    for operator in measured():
        for regime in regimes.get(operator.workloads.PATTERN, ()):
            if (quick and not regime.quick) or (headline and not regime.headline):
                continue
            names = list(operator.workloads.VARIANTS)
            default = FLOATS if regime.all_dtypes and not quick else (FLOAT,)
            for variant in names if regime.all_variants and not quick else names[:1]:
                key = operator.name, variant, regime.layout
                if key not in taken:
                    taken[key] = _takes(operator, variant, regime)
                for dtype in (dtypes or default) if taken[key] else ():
                    yield speed_case(operator, variant, dtype, regime)


def speed_case(operator: Operator, variant: str, dtype: DType, regime: Regime) -> Case:
    title = f"{operator.python_name} {variant} {regime.name} {dtype}"
    runner = partial(_run, operator, dtype, regime)
    return Case(operator.python_name, variant, regime.name, regime.shape, dtype.name, title, runner)


def _takes(operator: Operator, variant: str, regime: Regime) -> bool:
    """Whether the operator has problems of this layout."""
    small = shrink(operator.workloads.PATTERN, regime.shape, _PROBE)
    return build(operator, variant, FLOAT, small, regime.layout) is not None


def _run(
    operator: Operator,
    dtype: DType,
    regime: Regime,
    case: Case,
    bench: Bench,
    factory: Callable[..., list[Contender]] = build_contenders,
) -> list[Row]:
    """None where the operator refuses the layout."""
    problem = build(operator, case.variant, dtype, regime.shape, regime.layout, bench.device)
    if problem is None:
        return []
    near = None
    if regime.near:
        near = build(operator, case.variant, dtype, regime.near, "contiguous", bench.device)
    about = case.about | {
        "family": regime.family or regime.name, "reason": regime.reason, "layout": problem.layout,
        "near": list(regime.near), "bytes": problem.moved, "touched": problem.touched,
    }  # fmt: skip
    # Threads are one engine's: the others' times are the first number's.
    threaded = [THREADED] if THREADED in bench.engines else bench.engines
    engines = threaded if regime.threaded and not bench.named else bench.engines

    def contenders_of(given: Problem, compiled: bool = False) -> list[Contender]:
        return factory(given, engines, bench.torch, two_phase=regime.two_phase, compiled=compiled)

    faults: dict[str, str] | None = None
    rows = []
    for count in bench.counts:
        threads = set_threads(count, bench.torch)
        # Anew for each number: compiled code has it in its loops.
        contenders = contenders_of(problem, regime.compiled and not bench.quick)
        neighbours = [] if near is None else contenders_of(near)
        if faults is None:  # results do not depend on the number
            set_threads(max((n for n in bench.counts if n), default=None), bench.torch)
            faults = find_faults(problem, contenders, contenders_of, bench.torch)
            if near is not None:
                faults |= {
                    name: f"{fault}, at the round size"
                    for name, fault in find_faults(near, neighbours, contenders_of, bench.torch).items()
                    if any(each.ours and each.name == name for each in neighbours)
                }  # fmt: skip
            set_threads(count, bench.torch)
            engines = threaded
        # Ours into `out=` alone: two sizes of fresh results would take memory from each other.
        into = {c.name for c in contenders if c.ours and c.writes_out and c.name not in faults}
        beside = [
            replace(each, name=each.name + ROUND)
            for each in neighbours
            if each.name in into and not each.unavailable
        ]
        for _ in range(ATTEMPTS):
            timed, timings = time_contenders(
                about, contenders, faults, replace(bench, threads=threads), beside=beside
            )
            if not timed[0]["disturbed"]:
                break
        inexact = [name for name in timings if name in faults]
        for row, contender in zip(timed, contenders, strict=True):
            team = (
                team_of(contender, bench.device, bench.torch) if contender.name in timings else ""
            )
            rows.append(row | _compared(row, problem, near, timings) | {"team": team, "inexact": inexact})  # fmt: skip
    return rows


def _compared(row: Row, problem: Problem, near: Problem | None, timings: dict[str, Timing]) -> Row:
    """Bytes a second, beside those of a copy and of the round neighbour."""
    name = row["contender"]
    timing = timings.get(name)
    compared: Row = {"gbps": None, "of_copy": None, "of_round": None}
    if timing is None:
        return compared
    moved = problem.touched if name == COPY else problem.moved
    compared["gbps"] = moved / timing.median * 1e-9
    if COPY in timings:
        compared["of_copy"] = paired_ratio(timings[COPY], timing)
    if near is not None and name + ROUND in timings:
        ratio = paired_ratio(timings[name + ROUND], timing)
        compared["of_round"] = ratio and ratio * problem.moved / near.moved
    return compared
