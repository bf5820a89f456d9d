"""The run: registry x variants x dtypes x regimes, each checked, then timed; the results as one plain dict."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.calls import CallCase, relate, run_calls, select_calls
from benchmarks.contenders import COPY, Contender, build_contenders, engine_states
from benchmarks.first_call import first_calls, peak_memory
from benchmarks.machine import OtherLoad, describe_machine, set_threads, usable_cores, versions
from benchmarks.measure import CpuClock, CudaClock, Timing, interleave, paired_ratio
from benchmarks.problems import Problem, build, load_torch
from benchmarks.regimes import REGIMES, Regime
from benchmarks.verify import find_faults
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import FLOAT, FLOATS, DType
from openaclnn.operators import registry

__all__ = ["SECTIONS", "Case", "Settings", "listing", "run", "run_case", "select"]

ATTEMPTS = 3  # a case is timed again while other processes disturb it
PER_TURN = 8  # calls of a sample where calls change
SECTIONS = ("speed", "calls", "first-call", "memory")


@dataclass(frozen=True)
class Case:
    """One cell of the table."""

    operator: Operator
    variant: str
    dtype: DType
    regime: Regime

    @property
    def title(self) -> str:
        return f"{self.operator.python_name} {self.variant} {self.regime.name} {self.dtype}"


@dataclass(frozen=True)
class Settings:
    """What to run, as the command line says it."""

    device: str = "cpu"
    quick: bool = False
    headline: bool = False
    only: str = ""
    dtypes: tuple[DType, ...] = ()
    engines: tuple[str, ...] = ()
    threads: int | None = None
    rounds: int = 15
    budget_seconds: float = 2.0
    sections: tuple[str, ...] = SECTIONS
    use_torch: bool = True
    command: str = ""
    regimes: dict[str, tuple[Regime, ...]] = field(default_factory=dict)  # {}: the table's


Progress = Callable[[Sequence[Any], str], Iterator[Any]]


def select(settings: Settings) -> list[Case]:
    """The cases that the settings ask for, operator by operator."""
    table = settings.regimes or REGIMES[settings.device]
    cases = []
    for operator in registry():
        for regime in table.get(operator.workloads.PATTERN, ()):
            if settings.quick and not regime.quick:
                continue
            if settings.headline and not regime.all_variants:
                continue
            names = list(operator.workloads.VARIANTS)
            wide = regime.all_variants and not settings.quick
            default = FLOATS if regime.all_dtypes and not settings.quick else (FLOAT,)
            for variant in names if wide else names[:1]:
                for dtype in settings.dtypes or default:
                    cases.append(Case(operator, variant, dtype, regime))
    wanted = settings.only.lower()
    return [case for case in cases if wanted in case.title.lower()]


def _calls(settings: Settings) -> list[CallCase]:
    """The cases of calls that change."""
    if "calls" not in settings.sections:
        return []
    default = (FLOAT,) if settings.quick else FLOATS
    return select_calls(settings.dtypes or default, settings.only)


def listing(settings: Settings) -> list[tuple[str, str]]:
    """Every case that the settings ask for: its section and its title."""
    cases = select(settings)
    processes = [
        f"{spec['operator']} {spec['variant']} {spec['dtype']}"
        for spec in _process_specs(cases, settings)
    ]
    titles = {
        "speed": [case.title for case in cases],
        "calls": [case.title for case in _calls(settings)],
        "first-call": processes,
        "memory": processes,
    }
    found = [(section, title) for section in settings.sections for title in titles[section]]
    if not found:
        raise SystemExit(
            f"--only {settings.only!r} matches no case of {', '.join(settings.sections)}; --list names them"
        )
    return found


def run(settings: Settings, progress: Progress | None = None) -> dict[str, Any]:
    """Run everything and return what the JSON file holds."""
    listing(settings)  # refuses a filter that matches nothing
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
    cases = select(settings)
    if "speed" in settings.sections:
        for case in follow(cases, "timing"):
            results["rows"] += run_case(case, settings, engines, torch)
    results["copy_gbps"] = max(
        (row["gbps"] for row in results["rows"] if row["contender"] == COPY and row["gbps"]),
        default=None,
    )
    for each in follow(_calls(settings), "calls that change"):
        results["calls"] += _run_calls(each, settings, engines, torch)
    relate(results["calls"])
    specs = list(_process_specs(cases, settings))
    if "first-call" in settings.sections:
        names = [*engines, *(["torch"] if torch is not None else [])]
        jobs = [(spec, name) for spec in specs for name in names]
        for spec, name in follow(jobs, "first calls"):
            small = {key: spec[key] for key in spec if key != "warm_shape"}
            results["first_calls"] += first_calls(small | {"shape": spec["warm_shape"]}, name)
    if "memory" in settings.sections:
        sides = [*engines, *(["torch"] if torch is not None else [])]
        jobs = [(spec, side + form) for spec in specs for side in sides for form in ("", " out=")]
        for spec, name in follow(jobs, "memory"):
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
    return run_calls(
        case, settings.device, engines if settings.engines else engines[:1], torch,
        CpuClock() if settings.device == "cpu" else CudaClock(torch), settings.rounds,
        PER_TURN, settings.threads or usable_cores(),
    )  # fmt: skip


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


def _process_specs(cases: list[Case], settings: Settings) -> Iterator[dict[str, Any]]:
    """One spec for each selected operator: its first variant in FLOAT, at its cache-sized and headline shapes."""
    table = settings.regimes or REGIMES[settings.device]
    for operator in {case.operator.name: case.operator for case in cases}.values():
        regimes = table[operator.workloads.PATTERN]
        headline = next((each for each in regimes if each.all_variants), regimes[-1])
        yield {
            "operator": operator.python_name,
            "variant": next(iter(operator.workloads.VARIANTS)),
            "dtype": FLOAT.name,
            "device": settings.device,
            "shape": list(headline.shape),
            "warm_shape": list(regimes[min(1, len(regimes) - 1)].shape),
        }
