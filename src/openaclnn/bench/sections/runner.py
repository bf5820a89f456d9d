"""The run: registry x variants x dtypes x regimes, section by section; the results as one plain dict."""

from __future__ import annotations

import datetime
import gc
import os
from collections.abc import Callable
from itertools import product
from typing import Any

import openaclnn
from openaclnn.bench.problems.problem import load_torch
from openaclnn.bench.sections.calls import CallCase, run_calls
from openaclnn.bench.sections.cases import run_case
from openaclnn.bench.sections.first_call import first_calls, peak_memory
from openaclnn.bench.sections.modules import ModuleCase, run_module
from openaclnn.bench.sections.overrides import OverrideCase, run_override
from openaclnn.bench.sections.selection import SelectionError, Settings, choose
from openaclnn.bench.sections.training import TrainingCase, run_step
from openaclnn.bench.timing.contenders import COPY, engine_states
from openaclnn.bench.timing.machine import describe_machine, set_threads, versions
from openaclnn.bench.timing.measure import CpuClock, CudaClock
from openaclnn.bench.timing.steady import Progress, Steady
from openaclnn.bench.timing.teams import describe_threads

__all__ = ["ALONE", "BESIDE", "run"]

BESIDE, ALONE = "beside PyTorch", "alone"

PER_TURN = 8  # calls of a sample where calls change
QUICK_ROUNDS = 3  # there, in a quick run


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
        "training": [],
        "overrides": [],
        "first_calls": [],
        "memory": [],
    }
    gc.freeze()  # what is imported: collections before each case would take a tenth of a second
    for case in follow(chosen["speed"], "timing"):
        results["rows"] += run_case(case, settings, engines, torch)
    results["copy_gbps"] = max(
        (row["gbps"] for row in results["rows"] if row["contender"] == COPY and row["gbps"]),
        default=None,
    )
    steady = Steady(follow, settings.again_seconds)
    results["calls"] = steady.rows(
        chosen["calls"],
        lambda case: _run_calls(case, settings, engines, torch),
        "calls that change",
    )
    large = [case for case in chosen["training"] if isinstance(case, TrainingCase)]
    for step in follow(large, "training"):
        results["training"] += _by_threads(run_step, step, settings, torch)
    stepped = steady.rows(
        [case for case in chosen["training"] if isinstance(case, ModuleCase)],
        lambda case: _by_threads(run_module, case, settings, torch),
        "modules",
    )
    results["training"] += stepped
    results["overrides"] = steady.rows(
        chosen["overrides"],
        lambda case: _by_threads(run_override, case, settings, torch),
        "operators replaced",
    )
    steady.mark([*results["calls"], *stepped, *results["overrides"]])
    set_threads(max(settings.threads, default=None), torch)
    sides = [*engines, *(["torch"] if torch is not None else [])]
    for spec, name in follow(list(product(chosen["first-call"], sides)), "first calls"):
        small = {key: spec[key] for key in spec if key != "warm_shape"}
        results["first_calls"] += first_calls(small | {"shape": spec["warm_shape"]}, name)
    forms = [side + form for side in sides for form in ("", " out=")]
    for spec, name in follow(list(product(chosen["memory"], forms)), "memory"):
        results["memory"].append(peak_memory(spec, name))
    gc.unfreeze()
    return results


def _by_threads(
    run_one: Callable[..., list[dict[str, Any]]], case: TrainingCase | ModuleCase | OverrideCase, settings: Settings, torch: Any
) -> list[dict[str, Any]]:  # fmt: skip
    """A case's rows, by each number of threads."""
    clock = CpuClock() if settings.device == "cpu" else CudaClock(torch)
    rows = []
    for count in settings.threads or (None,):
        threads = set_threads(count, torch)
        rows += run_one(
            case, settings.device, torch, clock, settings.rounds, settings.budget_seconds, threads
        )
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
