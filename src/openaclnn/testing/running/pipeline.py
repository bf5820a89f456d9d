"""Draws, runs and judges cases in this process; the data of the next are drawn while one runs."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from openaclnn.core.dtypes import dtype_of_numpy
from openaclnn.core.products import PRODUCTS, Product, current_product, find_product, use_product
from openaclnn.core.status import AclnnError
from openaclnn.testing.cases.case import Case, Malformed, Skip
from openaclnn.testing.data.manifest import write_case
from openaclnn.testing.files.arrays import read_array
from openaclnn.testing.files.sources import Source
from openaclnn.testing.judging.compare import Comparison, judge, worst
from openaclnn.testing.judging.figures import Computed
from openaclnn.testing.judging.rules import Rules
from openaclnn.testing.running.budget import default_memory, in_words, memory_of
from openaclnn.testing.running.build import Built, build
from openaclnn.testing.running.chunks import oracle_in_chunks
from openaclnn.testing.running.levels import LevelCase
from openaclnn.testing.running.results import CaseResult
from openaclnn.testing.running.through import WAYS, run_through

__all__ = ["Item", "Settings", "run_here"]

Array = np.ndarray[Any, Any]
Item = Case | LevelCase | Malformed
_AHEAD = 4  # cases that wait with their data,
_BYTES = 1 << 30  # and how much they need, but for a single large one


@dataclass(frozen=True)
class Settings:
    """How cases are run."""

    seed: int = 0
    through: str = WAYS[0]
    compare: str | None = None  # None: mixed, or close where a case has tolerances of its own
    level: str = "L1"
    product: str = PRODUCTS[0].tag
    golden: Path | None = None
    memory: int = field(
        default_factory=default_memory
    )  # bytes that the cases there at one time may need

    def __post_init__(self) -> None:
        Rules(self.compare or "mixed", level=self.level)
        if self.compare == "cross_check":
            raise ValueError("cross_check needs a third party's output, which cases do not have")
        if self.through not in WAYS:
            raise ValueError(f"unknown way {self.through!r}; known: {', '.join(WAYS)}")
        find_product(self.product)
        if self.memory < 1:
            raise ValueError(f"memory: expected a number of bytes, got {self.memory}")

    def memory_of(self, case: Item) -> int:
        return memory_of(case, self.golden is not None)

    def need(self, case: Item) -> int:
        """The bytes that a case will have: none where it is not run because of them."""
        need = self.memory_of(case)
        return need if need <= self.memory else 0


@dataclass
class _Ready:
    built: Built
    exact: dict[str, Array | Computed]  # by C name, of what is computed


def run_here(
    cases: Iterable[Item], settings: Settings, share: int | None = None
) -> Iterator[CaseResult]:
    """In this process: one thread draws, this one runs, another compares. The cases that are there at one time need no
    more than the memory that is allowed, or than a share of it, but for a single one."""
    coming, memory = iter(cases), settings.memory if share is None else share
    waiting: deque[tuple[Item, int, Future[_Ready | CaseResult]]] = deque()
    judged: deque[tuple[int, Future[CaseResult]]] = deque()
    drawn: Item | None = next(coming, None)
    with ThreadPoolExecutor(1) as drawing, ThreadPoolExecutor(1) as judging:
        try:
            while drawn is not None or waiting:
                while drawn is not None and len(waiting) < _AHEAD:
                    need = settings.need(drawn)
                    ahead = sum(each for _, each, _ in waiting)
                    held = ahead + sum(each for each, _ in judged)
                    if (held and held + need > memory) or (ahead and ahead + need > _BYTES):
                        break
                    waiting.append((drawn, need, drawing.submit(_prepare, drawn, settings)))
                    drawn = next(coming, None)
                if waiting:
                    case, need, ready = waiting.popleft()
                    judged.append((need, _run(case, ready.result(), settings, judging)))
                    del ready
                while judged and (len(judged) > 1 or not waiting or judged[0][1].done()):
                    yield judged.popleft()[1].result()
        finally:
            for _, _, future in waiting:
                future.cancel()


def _result(case: Item, verdict: str, why: str = "", **more: Any) -> CaseResult:
    return CaseResult(case.name, case.operator_name, case.place, verdict, why, identity=case.identity, **more)  # fmt: skip


def _prepare(case: Item, settings: Settings) -> _Ready | CaseResult:
    """A case's data and golden values; its result at once where it is not to be run."""
    if isinstance(case, Malformed):
        return _result(case, "skipped", case.why, reason=case.reason)
    if not case.enabled:
        return _result(case, "skipped", "the list has it switched off", reason="not enabled")
    product = find_product(settings.product)
    meant = "" if product.is_default else _meant_for_another(case.products, product)
    if meant:
        why = f"the list has it for {', '.join(case.products)}"
        return _result(case, "skipped", why, reason=meant)
    try:
        with use_product(product.tag):
            return _ready(case, settings)
    except AclnnError as error:
        return _result(case, "refused", str(error), status=error.status, rule=error.rule)
    except Skip as skip:
        return _result(case, "skipped", str(skip), reason=skip.reason)
    except MemoryError as error:
        return _result(case, "skipped", f"not enough memory: {error}", reason="memory")
    except (ValueError, OSError) as error:
        return _result(case, "failed", str(error))
    except Exception as error:  # a fault of ours must not keep the other cases from being run
        return _result(case, "failed", f"{type(error).__name__}: {error}")


def _ready(case: Case | LevelCase, settings: Settings) -> _Ready:
    """A case's data and golden values, under the product in force; golden files, where they are asked for."""
    need = settings.memory_of(case)
    if need > settings.memory:
        told = f"about {in_words(need)} are needed, {in_words(settings.memory)} allowed"
        raise MemoryError(told)
    if isinstance(case, LevelCase):
        built = case.built()
    else:
        built = build(case, settings.seed, current_product())
    exact = _golden(case, built)
    if settings.golden is not None:
        _write_golden(settings.golden / case.folder, case, built)
    return _Ready(built, exact)


def _write_golden(folder: Path, case: Item, built: Built) -> None:
    """Inputs, golden values, and what else the call needs to be made on a device."""
    about = {"name": case.name, "operator": case.operator_name, "place": case.place}
    write_case(folder, case.operator_name, built.whole, about, built.counted)


def _golden(case: Any, built: Built) -> dict[str, Array | Computed]:
    shapes = {name: array.shape for name, array in built.outputs.items()}
    given = case.goldens if isinstance(case, Case) else ()
    files = {name: path for name, path in zip(shapes, given, strict=False) if path is not None}
    found: dict[str, Array | Computed] = {}
    if shapes.keys() - files:
        found = oracle_in_chunks(built.operator, built.counted)
    for name, path in files.items():
        dtype = dtype_of_numpy(built.outputs[name].dtype)
        found[name] = read_array(Source(path, dtype=dtype, shape=shapes[name]))
    return found


def _run(
    case: Item, ready: _Ready | CaseResult, settings: Settings, judging: ThreadPoolExecutor
) -> Future[CaseResult]:
    if isinstance(ready, CaseResult):
        return judging.submit(lambda: ready)
    started = time.perf_counter()
    try:
        with use_product(settings.product):
            status, told = run_through(settings.through, ready.built)
    except MemoryError as error:
        skipped = _result(case, "skipped", f"not enough memory: {error}", reason="memory")
        return judging.submit(lambda: skipped)
    took = time.perf_counter() - started
    if status:
        refused = _result(case, "refused", told, status=status, seconds=took)
        return judging.submit(lambda: refused)
    return judging.submit(_judge, case, ready, settings, took)


def _judge(case: Item, ready: _Ready, settings: Settings, took: float) -> CaseResult:
    found = _compare(case, ready, settings)
    own = f"{found.output}: " if found.output else ""
    notes = case.notes if isinstance(case, Case) else ()
    why = own + "; ".join(found.reasons) if found.reasons else "; ".join(notes)
    number = list(ready.built.outputs).index(found.output) if found.output else 0
    judged_by = _rules(case, number, found.dtype, settings).told()
    return _result(
        case, "passed" if found else "failed", why, comparison=found, seconds=took, judged_by=judged_by
    )  # fmt: skip


def _compare(case: Item, ready: _Ready, settings: Settings) -> Comparison:
    """The worst output's comparison, of those that are written."""
    outputs = ready.built.outputs
    found = {
        name: judge(own, ready.exact[name].reshape(own.shape), None, _rules(case, number, _dtype_name(own), settings), None, 3)
        for number, (name, own) in enumerate(outputs.items())
        if name in ready.exact and ready.built.writes(name)
    }  # fmt: skip
    return worst(found) if len(outputs) > 1 else found.popitem()[1]


def _dtype_name(array: Array) -> str:
    dtype = dtype_of_numpy(array.dtype)
    return "" if dtype is None else dtype.name


def _rules(case: Item, output: int, dtype: str, settings: Settings) -> Rules:
    """By which an output is judged: the standard that was asked for, the case's tolerances (the last is that of all behind
    it), the list's own standard, or mixed.
    """
    if not isinstance(case, Case):
        return Rules(settings.compare or "mixed", level=settings.level)
    standard = settings.compare or ("close" if case.tolerances else case.standard or "mixed")
    relative = case.relatives.get(dtype) if standard == "stat_rel_err" else None
    if standard != "close":
        return Rules(standard, level=settings.level, relative=relative)
    rtol = ptol = atol = None
    if case.tolerances:
        rtol, ptol = case.tolerances[min(output, len(case.tolerances) - 1)]
    if case.atols:
        atol = case.atols[min(output, len(case.atols) - 1)]
    elif rtol == ptol == 0:
        atol = 0.0  # exact
    return Rules(standard, rtol, atol, ptol, level=settings.level)


def _meant_for_another(listed: tuple[str, ...], product: Product) -> str:
    """Why a case is not run for a product, in a word or two; nothing where it is. A list names series or chips, which stand for
    their series; a minus excludes them.
    """
    excluded = [each[1:] for each in listed if each.startswith("-")]
    wanted = [each for each in listed if not each.startswith("-")]
    series = {each: _series(each) for each in (*wanted, *excluded)}
    if product in [series[each] for each in excluded]:
        return "another product"
    if not wanted or product in [series[each] for each in wanted]:
        return ""
    return "another product" if any(series[each] for each in wanted) else "unknown product"


def _series(name: str) -> Product | None:
    """The series that a list's word names, as Ascend910B, Ascend910B3 or 910B3 do."""
    try:
        return find_product(name.strip().lower().removeprefix("ascend"))
    except ValueError:
        return None
