"""The run: registry x variants x dtypes x regimes, each checked, then timed; the results as one plain dict."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

from benchmarks.calls import CallCase, relate, run_calls
from benchmarks.contenders import COPY, Contender, build_contenders, engine_states
from benchmarks.first_call import first_calls, peak_memory
from benchmarks.machine import OtherLoad, describe_machine, set_threads, usable_cores, versions
from benchmarks.measure import CpuClock, CudaClock, Timing, interleave, paired_ratio
from benchmarks.problems import Problem, build, load_torch
from benchmarks.selection import Case, Settings, choose
from benchmarks.verify import find_faults

__all__ = ["run", "run_case"]

ATTEMPTS = 3  # a case is timed again while other processes disturb it
PER_TURN = 8  # calls of a sample where calls change
QUICK_ROUNDS = 3  # there, in a quick run


Progress = Callable[[Sequence[Any], str], Iterator[Any]]


def run(settings: Settings, progress: Progress | None = None) -> dict[str, Any]:
    """Run everything and return what the JSON file holds."""
    chosen = choose(settings)
    torch = load_torch() if settings.use_torch else None
    if settings.device == "cuda" and (torch is None or not torch.cuda.is_available()):
        raise SystemExit("--device cuda needs torch with a GPU that it can use")
    if settings.device != "cpu":
        os.environ["OPENACLNN_DEVICE"] = settings.device  # for two-phase calls
    threads = set_threads(settings.threads, torch)
    states = engine_states(settings.device)
    engines = [
        name
        for name, objection in states.items()
        if not objection and (not settings.engines or name in settings.engines)
    ]
    follow = progress or (lambda items, label: iter(items))
    results: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": settings.command,
        "device": settings.device,
        "machine": describe_machine(torch, settings.device),
        "versions": versions(),
        "threads": threads,
        "engines": {name: objection or "available" for name, objection in states.items()},
        "rows": [],
        "calls": [],
        "first_calls": [],
        "memory": [],
    }
    for case in follow(chosen["speed"], "timing"):
        results["rows"] += run_case(case, settings, engines, torch)
    results["copy_gbps"] = max(
        (row["gbps"] for row in results["rows"] if row["contender"] == COPY and row["gbps"]),
        default=None,
    )
    for each in follow(chosen["calls"], "calls that change"):
        results["calls"] += _run_calls(each, settings, engines, torch)
    relate(results["calls"])
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

    contenders = contenders_of(problem, regime.compiled and not settings.quick)
    faults = find_faults(problem, contenders, contenders_of, torch)
    timed = [each for each in contenders if not each.unavailable and each.name not in faults]
    clock = CpuClock() if settings.device == "cpu" else CudaClock(torch)
    threads = settings.threads or usable_cores()
    for _ in range(ATTEMPTS):
        with OtherLoad() as load:
            timings = interleave(timed, clock, settings.rounds, settings.budget_seconds)
        if not load.disturbs(threads):
            break
    rows = [_row(case, problem, each, faults.get(each.name, ""), timings) for each in contenders]
    noise = {"others_cores": load.cores, "disturbed": load.disturbs(threads)}
    return [row | noise for row in rows]


def _run_calls(
    case: CallCase, settings: Settings, engines: list[str], torch: Any
) -> list[dict[str, Any]]:
    """The rows of a case of calls that change; without engines asked for, of the one that calls get by themselves."""
    clock = CpuClock() if settings.device == "cpu" else CudaClock(torch)
    used = engines if settings.engines else engines[:1]
    rounds = min(settings.rounds, QUICK_ROUNDS) if settings.quick else settings.rounds
    threads = settings.threads or usable_cores()
    return run_calls(case, settings.device, used, torch, clock, rounds, PER_TURN, threads)


def _row(
    case: Case, problem: Problem, contender: Contender, fault: str, timings: dict[str, Timing]
) -> dict[str, Any]:
    """One contender's line: what it computed, how long it took, and how that compares."""
    own = timings.get(contender.name)
    status = "WRONG" if fault else "unavailable" if own is None else "ok"
    row: dict[str, Any] = {
        "operator": case.operator.python_name, "variant": case.variant,
        "regime": case.regime.name, "reason": case.regime.reason, "layout": problem.layout,
        "shape": list(problem.shape), "dtype": case.dtype.name, "bytes": problem.moved, "touched": problem.touched,
        "contender": contender.name, "ours": contender.ours, "engine": contender.engine,
        "status": status, "note": fault or contender.unavailable,
        "gbps": None, "of_copy": None, "ratios": {},
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
