"""One case of the table: built, checked, and timed by each number of threads; an odd size beside its round neighbour."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from openaclnn.bench.problems.problem import Problem, build
from openaclnn.bench.sections.selection import Case, Settings
from openaclnn.bench.timing.contenders import COPY, Contender, build_contenders
from openaclnn.bench.timing.machine import OtherLoad, set_threads
from openaclnn.bench.timing.measure import CpuClock, CudaClock, Timing, interleave, paired_ratio
from openaclnn.bench.timing.teams import team_of, threaded
from openaclnn.bench.timing.verify import find_faults, status_of

__all__ = ["run_case"]

ATTEMPTS = 3  # a case is timed again while other processes disturb it
ROUND = ", round"  # ends the names of contenders at the round size beside an odd one


def run_case(
    case: Case,
    settings: Settings,
    engines: list[str],
    torch: Any,
    factory: Callable[..., list[Contender]] = build_contenders,
) -> list[dict[str, Any]]:
    """Check and time one case: a row for each contender; none where the operator refuses the layout."""
    regime = case.regime
    problem = _at(case, regime.shape, regime.layout, settings.device)
    if problem is None:
        return []

    kept = threaded(engines) if regime.threaded and not settings.engines else engines

    def contenders_of(given: Problem, compiled: bool = False) -> list[Contender]:
        return factory(given, kept, torch, two_phase=regime.two_phase, compiled=compiled)

    near = _at(case, regime.near, "contiguous", settings.device) if regime.near else None
    faults: dict[str, str] | None = None
    rows = []
    for count in settings.threads or (None,):
        threads = set_threads(count, torch)
        # Anew for each number: compiled code has it in its loops.
        contenders = contenders_of(problem, regime.compiled and not settings.quick)
        beside = [] if near is None else contenders_of(near)
        if faults is None:  # results do not depend on the number
            set_threads(max(settings.threads, default=None), torch)
            faults = find_faults(problem, contenders, contenders_of, torch)
            if near is not None:
                faults |= _own_faults(find_faults(near, beside, contenders_of, torch), beside)
            set_threads(count, torch)
            kept = threaded(kept)
        timed = [c for c in contenders if not c.unavailable and not (c.ours and c.name in faults)]
        timings, load = _timings([*timed, *_others(beside, timed)], settings, torch, threads)
        common = {
            "threads": threads if settings.device == "cpu" else None,
            "inexact": [name for name in timings if name in faults],
            "others_cores": load.cores,
            "disturbed": load.disturbs(threads),
        }
        for each in contenders:
            row = _row(case, problem, near, each, faults.get(each.name, ""), timings)
            team = team_of(each, settings.device, torch) if each in timed else ""
            rows.append(row | {"team": team} | common)
    return rows


def _timings(
    contenders: Sequence[Contender], settings: Settings, torch: Any, threads: int
) -> tuple[dict[str, Timing], OtherLoad]:
    """Again while other processes disturb them, up to a limit."""
    clock = CpuClock() if settings.device == "cpu" else CudaClock(torch)
    for _ in range(ATTEMPTS):
        with OtherLoad() as load:
            timings = interleave(contenders, clock, settings.rounds, settings.budget_seconds)
        if not load.disturbs(threads):
            break
    return timings, load


def _at(case: Case, shape: tuple[int, ...], layout: str, device: str) -> Problem | None:
    return build(case.operator, case.variant, case.dtype, shape, layout, device)


def _own_faults(faults: dict[str, str], contenders: Sequence[Contender]) -> dict[str, str]:
    ours = {each.name for each in contenders if each.ours}
    return {name: f"{fault}, at the round size" for name, fault in faults.items() if name in ours}


def _others(beside: Sequence[Contender], timed: Sequence[Contender]) -> list[Contender]:
    """Ours at the round size, into `out=` alone: two sizes of fresh results would take memory from each other."""
    names = {each.name for each in timed if each.ours and each.writes_out}
    found = [each for each in beside if each.name in names and not each.unavailable]
    return [replace(each, name=each.name + ROUND) for each in found]


def _row(
    case: Case,
    problem: Problem,
    near: Problem | None,
    contender: Contender,
    fault: str,
    timings: dict[str, Timing],
) -> dict[str, Any]:
    """One contender's line: what it computed, how long it took, and how that compares."""
    own = timings.get(contender.name)
    row: dict[str, Any] = {
        "operator": case.operator.python_name, "variant": case.variant,
        "regime": case.regime.name, "family": case.regime.family or case.regime.name,
        "reason": case.regime.reason, "layout": problem.layout, "near": list(case.regime.near),
        "shape": list(problem.shape), "dtype": case.dtype.name, "bytes": problem.moved, "touched": problem.touched,
        "contender": contender.name, "ours": contender.ours, "engine": contender.engine,
        "status": status_of(fault, own), "note": fault or contender.unavailable,
        "gbps": None, "of_copy": None, "of_round": None, "ratios": {},
    }  # fmt: skip
    if own is not None:
        row |= own.summary()
        moved = problem.touched if contender.name == COPY else problem.moved
        row["gbps"] = moved / own.median * 1e-9
        if COPY in timings:
            row["of_copy"] = paired_ratio(timings[COPY], own)
    if own is not None and contender.ours:
        row["ratios"] = {
            name: paired_ratio(timing, own)
            for name, timing in timings.items()
            if name.startswith("torch")
        }
    if near is not None and contender.name + ROUND in timings and own is not None:
        ratio = paired_ratio(timings[contender.name + ROUND], own)
        row["of_round"] = ratio and ratio * problem.moved / near.moved
    return row
