"""The run: the cases of operators by size, all elementwise operators and first calls; which cases of all sections the settings ask for; and the results of
them as one plain dict."""

from __future__ import annotations

import datetime
import gc
import importlib.metadata
import os
import platform
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import openaclnn
from openaclnn.bench.calls import call_cases
from openaclnn.bench.contenders import build_contenders, find_faults, threaded
from openaclnn.bench.problems import (
    build,
    first_variant,
    load_torch,
    measured,
    taken,
    torch_objection,
)
from openaclnn.bench.processes import in_a_fresh_process
from openaclnn.bench.regimes import ELEMENTWISE, REGIMES, Regime, Shape, by_shape
from openaclnn.bench.timing import (
    COPY,
    Bench,
    Case,
    Clock,
    Contender,
    CudaClock,
    OtherLoad,
    Progress,
    Row,
    Steady,
    time_contenders,
)
from openaclnn.bench.training import module_cases, override_cases, step_cases
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import FLOAT, FLOATS, DType
from openaclnn.core.results import usable_cores, usable_memory
from openaclnn.engines.dispatch import objections
from openaclnn.engines.threads import described
from openaclnn.operators import FAMILIES, registry
from openaclnn.testing.drawing import ranks_of

FIRST_CALL, EMPTY = "first-call", ", empty cache"
_PROBES = {"elementwise": (16, 16), "rows": (16, 16), "pixels": (2, 8, 4, 4)}
"""Shapes of problems that show whether an operator takes a layout."""


def speed_cases(
    device: str, dtypes: Sequence[DType], quick: bool, headline: bool
) -> Iterator[Case]:
    """The cases of a device, operator by operator; none of a layout that an operator refuses. Headlines are of those
    that `stands_alone` names, at sizes of their own."""
    for operator in measured():
        if headline and not stands_alone(operator):
            continue
        for regime in REGIMES[device][operator.workloads.PATTERN]:
            if (quick and not regime.quick) or (headline and not regime.headline):
                continue
            if headline:
                regime = replace(regime, shape=regime.headline)
            names = list(operator.workloads.VARIANTS)
            default = FLOATS if regime.all_dtypes and not quick else (FLOAT,)
            factory = _into_memory if headline else build_contenders
            for variant in names if regime.all_variants and not quick else names[:1]:
                served = len(regime.shape) in ranks_of(operator)
                served = served and _takes(operator, variant, regime.layout)
                for dtype in taken(operator, dtypes or default) if served else ():
                    yield speed_case(operator, variant, dtype, regime, factory)


def stands_alone(operator: Operator) -> bool:
    """Whether it is one of the few that short runs are about: no elementwise operator of a family, and none with a section of training."""
    among_many = (
        operator.home.rpartition(".")[2] in FAMILIES and operator.workloads.PATTERN == "elementwise"
    )
    return not among_many and not hasattr(operator.workloads, "TRAINED")


def speed_case(
    operator: Operator,
    variant: str,
    dtype: DType,
    regime: Regime,
    factory: Callable[..., list[Contender]] = build_contenders,
) -> Case:
    runner = partial(_run, operator, dtype, regime, factory=factory)
    return Case(operator.python_name, variant, regime.name, regime.shape, dtype.name, runner)


def elementwise_cases(device: str, dtypes: Sequence[DType]) -> Iterator[Case]:
    """Every elementwise operator that does not write over its input, also of several outputs, in every variant; and those that say their shapes."""
    for operator in registry():
        work, regimes = operator.workloads, ELEMENTWISE[device]
        if hasattr(work, "SHAPES"):
            regimes = by_shape(*work.SHAPES, compiled=device == "cuda")
        elif work.PATTERN != "elementwise" or operator.outputs[0].in_place:
            continue
        for variant, regime in product(work.VARIANTS, regimes):
            for dtype in taken(operator, dtypes):
                yield speed_case(operator, variant, dtype, regime, _into_memory)


def _into_memory(*problem: Any, **options: Any) -> list[Contender]:
    """Ours only into memory that is there."""
    every = build_contenders(*problem, **options)
    return [each for each in every if each.writes_out or not each.ours]


@cache
def _takes(operator: Operator, variant: str, layout: str) -> bool:
    """Whether the operator has problems of this layout."""
    return build(operator, variant, FLOAT, _PROBES[operator.workloads.PATTERN], layout) is not None


def _run(
    operator: Operator,
    dtype: DType,
    regime: Regime,
    case: Case,
    bench: Bench,
    factory: Callable[..., list[Contender]],
) -> list[Row]:
    problem = build(operator, case.variant, dtype, regime.shape, regime.layout, bench.device)
    assert problem is not None, "cases are of layouts that operators take"
    engines = bench.engines if bench.named or not regime.threaded else threaded(bench.engines)

    contenders = factory(problem, engines, bench.torch, compiled=regime.compiled and not bench.quick)  # fmt: skip
    contenders = find_faults(problem, contenders, bench.torch)
    beside, elements = [], 1.0
    if regime.near:
        near = build(operator, case.variant, dtype, regime.near, "contiguous", bench.device)
        assert near is not None, "every operator takes such arguments"
        elements = problem.moved / near.moved
        neighbours = find_faults(near, factory(near, engines, bench.torch), bench.torch)
        wrong = {each.name: f"{each.fault}, at the round size" for each in neighbours if each.status == "WRONG"}  # fmt: skip
        contenders = [replace(each, fault=wrong.get(each.name, each.fault)) for each in contenders]
        # Ours into `out=` alone: two sizes of fresh results would take memory from each other.
        beside = [each for each in neighbours if each.ours and each.writes_out and each.status == "ok"]  # fmt: skip
    about = case.about | {
        "family": regime.family or regime.name, "layout": problem.layout, "near": list(regime.near), "bytes": problem.moved,
        "touched": problem.touched, "gbps": None, "of_round": None,
    }  # fmt: skip
    rows = time_contenders(about, contenders, bench, beside=beside)
    for row in rows:
        if "median_us" in row:
            moved = problem.touched if row["contender"] == COPY else problem.moved
            row["gbps"] = moved / row["median_us"] * 1e-3
            row["of_round"] = row["of_beside"] and elements / row["of_beside"]
    return rows


def first_calls(device: str) -> Iterator[Case]:
    """Each operator's first variant in FLOAT, at its cache-sized shape; and what a call at its headline's shape takes of memory."""
    for operator in measured():
        _, small, *more = REGIMES[device][operator.workloads.PATTERN]
        large = next(each.shape for each in (small, *more) if each.headline)
        name, variant = operator.python_name, first_variant(operator)
        yield Case(name, variant, FIRST_CALL, small.shape, FLOAT.name, partial(_first_calls, large))


def _first_calls(large: Shape, case: Case, bench: Bench) -> list[Row]:
    """Of ours with an empty cache, and with the one that this left; PyTorch has none."""
    rows: dict[str, Row] = {}
    for side in (*(["torch"] if bench.torch is not None else []), *bench.engines):
        with tempfile.TemporaryDirectory(prefix="openaclnn-benchmark-") as folder:
            for ending in (EMPTY, "") if side in bench.engines else ("",):
                load = OtherLoad()
                spec = {"side": side, "device": bench.device, "large": [*large]}
                told = in_a_fresh_process(case.about | spec, folder)
                load.stop()
                if ending:
                    told.pop("extra_bytes", None)  # compiling is no part of a call's memory
                rows[side + ending] = case.about | {
                    "contender": side + ending, "ours": side in bench.engines, "engine": side, "threads": None, "ratios": {},
                    "status": "ok", "note": "", "disturbed": load.disturbs(usable_cores()),
                } | told  # fmt: skip
    theirs = rows.get("torch", {}).get("median_us")
    for row in rows.values():
        if theirs and row["ours"] and "median_us" in row:
            row["ratios"]["torch"] = theirs / row["median_us"]
    return list(rows.values())


@dataclass(frozen=True)
class Section:
    """Cases of a kind: what makes them, and what a case takes on a machine of two cores at the default number of rounds."""

    cases: Callable[[Settings], Iterable[Case]]
    seconds: float
    of_torch: bool = False  # it times openaclnn.torch
    by_threads: bool = True  # another number of threads takes its time again
    # A quick run has a few operators of it; others say themselves which cases that has.
    few: bool = False


_SECTIONS = {
    "speed": Section(lambda asked: speed_cases(asked.device, asked.dtypes, asked.quick, asked.headline), 2.5, few=True),
    "elementwise": Section(lambda asked: elementwise_cases(asked.device, asked.all_dtypes), 2.0),
    "calls": Section(lambda asked: call_cases(asked.all_dtypes), 0.35, by_threads=False, few=True),
    "training": Section(lambda asked: step_cases(asked.device, asked.all_dtypes, asked.quick), 8.0, of_torch=True),
    "modules": Section(lambda asked: module_cases(asked.all_dtypes), 0.8, of_torch=True),
    "overrides": Section(lambda asked: override_cases(asked.all_dtypes, asked.quick), 0.6, of_torch=True),
    FIRST_CALL: Section(lambda asked: first_calls(asked.device), 15.0, by_threads=False, few=True),
}  # fmt: skip
SECTIONS = tuple(_SECTIONS)
BESIDE, ALONE = "beside PyTorch", "alone"
_PACKAGES = ("numpy", "ml_dtypes", "llvmlite", "torch", "triton")


class SelectionError(ValueError):
    """The settings ask for nothing that there is; the message is a sentence."""


@dataclass(frozen=True)
class Settings:
    """What to run, as the command line says it."""

    device: str = "cpu"
    quick: bool = False
    headline: bool = False
    only: tuple[str, ...] = ()
    dtypes: tuple[DType, ...] = ()
    engines: tuple[str, ...] = ()
    threads: tuple[int, ...] = ()  # each side's own number where there is none
    rounds: int = 15
    # For calls that met a slow machine; None: as long as their section took.
    again_seconds: float | None = None
    sections: tuple[str, ...] = SECTIONS
    use_torch: bool = True
    command: str = ""

    @property
    def all_dtypes(self) -> tuple[DType, ...]:
        """Those that were asked for, or all; of a quick run FLOAT."""
        return self.dtypes or ((FLOAT,) if self.quick else FLOATS)


def matching(cases: Sequence[Case], only: Sequence[str]) -> list[Case]:
    """The cases in whose title one of the texts begins with a word; of a text that is a title, that one alone."""
    titles = [case.title.lower() for case in cases]
    wanted = [text.lower().lstrip() for text in only]
    exact = set(wanted) & set(titles)

    def fits(title: str) -> bool:
        return any(
            title == text or (text not in exact and f" {text}" in f" {title}") for text in wanted
        )

    return [case for case, title in zip(cases, titles, strict=True) if not wanted or fits(title)]


def choose(settings: Settings) -> dict[str, list[Case]]:
    """The cases of each section, none for those not asked for; a filter that matches nothing at all is an error."""
    missing = left_out(settings)
    if missing and all(_SECTIONS[name].of_torch for name in settings.sections):
        raise SelectionError(missing)
    chosen = {
        name: matching(list(section.cases(settings)), settings.only)
        if name in settings.sections and not (missing and section.of_torch)
        else []
        for name, section in _SECTIONS.items()
    }
    if settings.quick and not settings.only:
        few = {operator.python_name for operator in measured() if stands_alone(operator)}
        chosen = {
            section: [case for case in cases if case.name in few or not _SECTIONS[section].few]
            for section, cases in chosen.items()
        }
    if not any(chosen.values()):
        asked = ", ".join(settings.sections)
        filters = f"--only {' or '.join(map(repr, settings.only))} matches"
        fewer = " of --headline" if settings.headline else " of --quick" if settings.quick else ""
        raise SelectionError(
            f"{filters if settings.only else 'there is'} no case of {asked}{fewer}; --list names them"
        )
    return chosen


def estimate(settings: Settings) -> str:
    """How many cases the settings ask for, and how long they take, as a line."""
    chosen = choose(settings)
    count, rounds, teams = sum(map(len, chosen.values())), settings.rounds / Settings.rounds, max(len(settings.threads), 1)  # fmt: skip
    # The start takes some seconds, and half of a case is drawing its data and checking results.
    seconds = 2 + sum(_SECTIONS[section].seconds * len(cases) for section, cases in chosen.items()) * teams * (1 + rounds) / 2  # fmt: skip
    told = f"{seconds:.0f} seconds" if seconds < 90 else f"{seconds / 60:.0f} minutes"
    return f"{count} case{'' if count == 1 else 's'}: about {told}"


def left_out(settings: Settings) -> str:
    """Which sections that were asked for are not run without PyTorch, and why; "" where none is left out."""
    named = " and ".join(name for name in settings.sections if _SECTIONS[name].of_torch)
    if not named:
        return ""
    if not settings.use_torch:
        return f"{named}: openaclnn.torch needs PyTorch, and --alone is without it"
    objection = torch_objection()
    return objection and f"{named}: {objection}"


def run(settings: Settings, progress: Progress | None = None) -> dict[str, Any]:
    """Run everything and return what the JSON file holds."""
    chosen = choose(settings)
    torch = load_torch() if settings.use_torch else None
    if settings.device == "cuda" and (torch is None or not torch.cuda.is_available()):
        raise SelectionError("--device cuda needs torch with a GPU that it can use")
    if settings.device != "cpu":
        os.environ["OPENACLNN_DEVICE"] = settings.device  # for two-phase calls
    states = objections(settings.device)
    able = [name for name, objection in states.items() if not objection]
    engines = [name for name in able if not settings.engines or name in settings.engines]
    if settings.engines and not engines:
        said = "; ".join(f"--engine {name}: {states[name]}" for name in settings.engines)
        raise SelectionError(f"no engine of ours is left ({said})")
    most = max(settings.threads, default=None)
    set_threads(most, torch)
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
    }
    bench = Bench(
        settings.device, engines, torch, Clock() if settings.device == "cpu" else CudaClock(torch),
        settings.rounds, quick=settings.quick, named=bool(settings.engines),
    )  # fmt: skip
    steady = Steady(progress or (lambda items, label: iter(items)), settings.again_seconds)

    def rows_of(counts: Sequence[int | None], case: Case) -> list[Row]:
        rows = []
        for place, count in enumerate(counts):
            used, threads = threaded(engines) if place else engines, set_threads(count, torch)
            rows += case.run(replace(bench, engines=used, threads=threads))
        return rows

    kept = gc.get_freeze_count()  # by the program around us
    gc.freeze()  # what is imported: collections before each case would take a tenth of a second
    for name, section in _SECTIONS.items():
        counts = (section.by_threads and settings.threads) or (most,)
        rows = steady.rows(chosen[name], partial(rows_of, counts), name)
        results["rows"] += [row | {"section": name} for row in rows]
    steady.mark(results["rows"])
    copies = [row["gbps"] for row in results["rows"] if row["contender"] == COPY and row.get("gbps")]  # fmt: skip
    results["copy_gbps"] = max(copies, default=None)
    if not kept:
        gc.unfreeze()
    return results


# What results depend on besides the code: the machine, the versions, the threads.


def set_threads(count: int | None, torch: Any) -> int:
    """Use this many threads on both sides; None leaves each its own. Returns how many ours may use."""
    if count is not None:
        os.environ["OPENACLNN_NUM_THREADS"] = str(count)  # for fresh processes
        openaclnn.set_num_threads(count)
        if torch is not None:
            torch.set_num_threads(count)
    return openaclnn.get_num_threads()


def describe_threads(torch: Any) -> str:
    """How many threads large problems may use, ours and PyTorch's."""
    theirs = "" if torch is None else f"; PyTorch {torch.get_num_threads()}"
    return f"ours {described()}{theirs}"


def versions() -> dict[str, str]:
    """Versions of Python, openaclnn and the packages that compute."""
    listed = {"python": platform.python_version(), "openaclnn": openaclnn.__version__}
    for name in _PACKAGES:
        try:
            listed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            listed[name] = "not installed"
    return listed


def describe_machine(torch: Any = None, device: str = "cpu") -> dict[str, Any]:
    """CPU model, cores, memory and system; the GPU too where one is timed."""
    machine: dict[str, Any] = {
        "cpu": _cpu_model(),
        "architecture": platform.machine(),
        "cores": usable_cores(),
        "memory_gib": round(usable_memory() / 2**30, 1),
        "system": platform.system(),
    }
    if device == "cuda":
        gpu = torch.cuda.get_device_properties(torch.cuda.current_device())
        machine["gpu"] = gpu.name
        machine["gpu_memory_gib"] = round(gpu.total_memory / 2**30, 1)
        machine["cuda"] = torch.version.cuda
    return machine


def _cpu_model() -> str:
    """The model's name; Arm cores have it in lscpu only."""
    try:
        text = subprocess.run(["lscpu"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        information = Path("/proc/cpuinfo")
        text = information.read_text() if information.exists() else ""
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip().lower() == "model name" and value.strip():
            return value.strip()
    return platform.processor() or platform.machine()
