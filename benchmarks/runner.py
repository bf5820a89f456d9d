"""The run: registry x variants x dtypes x regimes, each checked, then timed by numbers of threads; one plain dict."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import openaclnn
from benchmarks.calls import CallCase, relate, run_calls
from benchmarks.contenders import COPY, Contender, build_contenders, engine_states
from benchmarks.first_call import first_calls, peak_memory
from benchmarks.machine import OtherLoad, describe_machine, set_threads, versions
from benchmarks.measure import CpuClock, CudaClock, Timing, interleave, paired_ratio
from benchmarks.problems import Problem, build, load_torch
from benchmarks.selection import Case, SelectionError, Settings, choose
from benchmarks.teams import describe_threads, team_of
from benchmarks.verify import find_faults, status_of

__all__ = ["ALONE", "BESIDE", "relate_odd", "run", "run_case"]

BESIDE, ALONE = "beside PyTorch", "alone"

ATTEMPTS = 3  # a case is timed again while other processes disturb it
PER_TURN = 8  # calls of a sample where calls change
QUICK_ROUNDS = 3  # there, in a quick run


Progress = Callable[[Sequence[Any], str], Iterator[Any]]


def run(settings: Settings, progress: Progress | None = None) -> dict[str, Any]:
    """Run everything and return what the JSON file holds."""
    chosen = choose(settings)
    torch = load_torch() if settings.use_torch else None
    if settings.device == "cuda" and (torch is None or not torch.cuda.is_available()):
        raise SelectionError("--device cuda needs torch with a GPU that it can use")
    if settings.device != "cpu":
        os.environ["OPENACLNN_DEVICE"] = settings.device  # for two-phase calls
    states = engine_states(settings.device)
    engines = [
        name
        for name, objection in states.items()
        if not objection and (not settings.engines or name in settings.engines)
    ]
    if settings.engines and not engines:
        said = "; ".join(f"--engine {name}: {states[name]}" for name in settings.engines)
        raise SelectionError(f"no engine of ours is left ({said})")
    set_threads(max(settings.threads, default=None), torch)
    follow = progress or (lambda items, label: iter(items))
    results: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": settings.command,
        "mode": ALONE if torch is None else BESIDE,
        "device": settings.device,
        "machine": describe_machine(torch, settings.device),
        "versions": versions(),
        "threads": describe_threads(torch),
        "engines": {name: objection or "available" for name, objection in states.items()},
        "rows": [],
        "calls": [],
        "first_calls": [],
        "memory": [],
    }
    for case in follow(chosen["speed"], "timing"):
        results["rows"] += run_case(case, settings, engines, torch)
    relate_odd(results["rows"])
    results["copy_gbps"] = max(
        (row["gbps"] for row in results["rows"] if row["contender"] == COPY and row["gbps"]),
        default=None,
    )
    for each in follow(chosen["calls"], "calls that change"):
        results["calls"] += _run_calls(each, settings, engines, torch)
    relate(results["calls"])
    set_threads(max(settings.threads, default=None), torch)
    sides = [*engines, *(["torch"] if torch is not None else [])]
    for spec, name in follow(list(product(chosen["first-call"], sides)), "first calls"):
        small = {key: spec[key] for key in spec if key != "warm_shape"}
        results["first_calls"] += first_calls(small | {"shape": spec["warm_shape"]}, name)
    forms = [side + form for side in sides for form in ("", " out=")]
    for spec, name in follow(list(product(chosen["memory"], forms)), "memory"):
        results["memory"].append(peak_memory(spec, name))
    return results


def run_case(
    case: Case,
    settings: Settings,
    engines: list[str],
    torch: Any,
    factory: Callable[..., list[Contender]] = build_contenders,
) -> list[dict[str, Any]]:
    """Check and time one case: a row for each contender; none where the operator refuses the layout."""
    regime = case.regime
    problem = build(
        case.operator, case.variant, case.dtype, regime.shape, regime.layout, settings.device
    )
    if problem is None:
        return []

    def contenders_of(given: Problem, compiled: bool = False) -> list[Contender]:
        return factory(given, engines, torch, two_phase=regime.two_phase, compiled=compiled)

    clock = CpuClock() if settings.device == "cpu" else CudaClock(torch)
    faults: dict[str, str] | None = None
    rows = []
    for count in settings.threads or (None,):
        threads = set_threads(count, torch)
        # Anew for each number: compiled code has it in its loops.
        contenders = contenders_of(problem, regime.compiled and not settings.quick)
        if faults is None:  # results do not depend on the number
            faults = find_faults(problem, contenders, contenders_of, torch)
        timed = [c for c in contenders if not c.unavailable and not (c.ours and c.name in faults)]
        for _ in range(ATTEMPTS):
            with OtherLoad() as load:
                timings = interleave(timed, clock, settings.rounds, settings.budget_seconds)
            if not load.disturbs(threads):
                break
        common = {
            "threads": threads if settings.device == "cpu" else None,
            "inexact": [name for name in timings if name in faults],
            "others_cores": load.cores,
            "disturbed": load.disturbs(threads),
        }
        for each in contenders:
            row = _row(case, problem, each, faults.get(each.name, ""), timings)
            team = team_of(each, settings.device, torch) if each in timed else ""
            rows.append(row | {"team": team} | common)
    return rows


def _run_calls(
    case: CallCase, settings: Settings, engines: list[str], torch: Any
) -> list[dict[str, Any]]:
    """The rows of a case of calls that change; without engines asked for, of the one that calls get by themselves."""
    clock = CpuClock() if settings.device == "cpu" else CudaClock(torch)
    used = engines if settings.engines else engines[:1]
    rounds = min(settings.rounds, QUICK_ROUNDS) if settings.quick else settings.rounds
    threads = openaclnn.get_num_threads()
    return run_calls(case, settings.device, used, torch, clock, rounds, PER_TURN, threads)


def _row(
    case: Case, problem: Problem, contender: Contender, fault: str, timings: dict[str, Timing]
) -> dict[str, Any]:
    """One contender's line: what it computed, how long it took, and how that compares."""
    own = timings.get(contender.name)
    row: dict[str, Any] = {
        "operator": case.operator.python_name, "variant": case.variant,
        "regime": case.regime.name, "family": case.regime.family or case.regime.name,
        "reason": case.regime.reason, "beside": case.regime.beside, "layout": problem.layout,
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
    return row


def relate_odd(rows: Sequence[dict[str, Any]]) -> None:
    """Enter what part of the round neighbour's throughput each contender reaches, where the run has both.

    Each beside the copy in its own rounds, since the two were not timed in the same.
    """

    def key(row: dict[str, Any], regime: str) -> tuple[Any, ...]:
        parts = ("operator", "variant", "dtype", "contender", "threads")
        return regime, *(row[part] for part in parts)

    known = {key(row, row["regime"]): row["of_copy"] for row in rows if row["of_copy"]}
    for row in rows:
        near = known.get(key(row, row["beside"]))
        if near and row["of_copy"]:
            row["of_round"] = row["of_copy"] / near
