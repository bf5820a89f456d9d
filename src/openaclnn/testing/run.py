"""`run_cases`: case lists, drawn, run and judged, in this process or several.

One thread draws the data of the next cases, one runs, another compares; all that are in work share a budget of memory.
"""

from __future__ import annotations

import itertools
import math
import multiprocessing
import re
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from openaclnn.core.dtypes import dtype_of_numpy
from openaclnn.core.products import PRODUCTS, Product, current_product, find_product, use_product
from openaclnn.core.results import usable_memory
from openaclnn.core.status import AclnnError
from openaclnn.core.writing import cell_of
from openaclnn.engines.threads import get_num_threads, set_num_threads
from openaclnn.testing.build import Built, LevelCase, build
from openaclnn.testing.calls import WAYS, oracle_in_chunks, run_through
from openaclnn.testing.cases.case import Case, Malformed, Skip
from openaclnn.testing.figures import Array, Computed, Rules
from openaclnn.testing.files import Source, read_array
from openaclnn.testing.manifest import write_case
from openaclnn.testing.verdicts import Comparison, judge, worst

VERDICTS = ("passed", "failed", "refused", "skipped")
Item = Case | Malformed

_FIGURES = (
    "max_absolute_error", "MERE", "MARE", "root_mean_square_error", "cosine_similarity", "matched", "max_ulp",
)  # fmt: skip
COLUMNS = ("name", "id", "operator", "place", "verdict", "status", "output", "standard", "judged_by", "dtype", "shape", "elements", "bad",
           *_FIGURES, "seconds", "reason", "why")  # fmt: skip
"""The columns of a table of results."""

_AHEAD = 4  # cases that wait with their data,
_BYTES = 1 << 30  # and how much they need, but for a single large one
_TOGETHER = 16  # cases handed to a process at once
_GOLDEN = 8  # bytes of an element in float64
_BESIDES = 8 * _GOLDEN  # of a row's or a block's elements, for what the oracle computes in between


@dataclass(frozen=True)
class CaseResult:
    """A case's verdict: one of `VERDICTS`, the status, why, and the comparison where there was one.

    Of several outputs it is that of the worst, which it names.
    """

    name: str
    operator: str
    place: str
    verdict: str
    why: str = ""
    status: int = 0
    rule: str = ""  # the check that refused it
    identity: str = ""
    comparison: Comparison | None = None
    seconds: float = 0.0
    reason: str = ""  # of a skipped case, in a word or two
    judged_by: str = ""  # the standard, with the numbers that are the list's

    @property
    def label(self) -> str:
        """Its id and its name: lists may give one name to all."""
        return f"{self.identity} {self.name}" if self.identity else self.name

    @property
    def cause(self) -> str:
        """Why, without the numbers and words that differ from case to case of one cause."""
        text = self.rule or re.sub(r"'[^']*'|[-+]?\b\d[\w.+-]*", "#", self.why)
        return re.sub(r"#(, ?#)*,?", "#", text)

    @property
    def ok(self) -> bool:
        return self.verdict in ("passed", "skipped")

    @property
    def figures(self) -> dict[str, float]:
        """Those of the comparison; none where nothing was compared."""
        return (None if self.comparison is None else self.comparison.figures) or {}

    def as_dict(self) -> dict[str, Any]:
        """Everything, in types that JSON has (but for NaN and infinities among the numbers)."""
        comparison = None if self.comparison is None else self.comparison.as_dict()
        return asdict(self) | {"comparison": comparison}

    def row(self) -> list[str]:
        """The cells of `COLUMNS`."""
        verdict = self.comparison
        judged = [""] * 7 if verdict is None else [
            verdict.output, verdict.standard, self.judged_by, verdict.dtype, verdict.shape, verdict.count, verdict.bad
        ]  # fmt: skip
        cells = [
            self.name, self.identity, self.operator, self.place, self.verdict, self.status, *judged,
            *(f"{self.figures[name]:.6g}" if name in self.figures else "" for name in _FIGURES),
            f"{self.seconds:.4f}", self.reason, self.why,
        ]  # fmt: skip
        return [cell_of(cell) for cell in cells]


@dataclass(frozen=True)
class Settings:
    """How cases are run."""

    seed: int = 0
    through: str = WAYS[0]
    compare: str | None = None  # None: mixed, or close where a case has tolerances of its own
    product: str = PRODUCTS[0].tag
    golden: Path | None = None
    memory: int = field(default_factory=lambda: usable_memory() // 2)  # bytes, of all cases in work

    def __post_init__(self) -> None:
        Rules(self.compare or "mixed")
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


def run_cases(
    cases: Iterable[Item],
    *,
    seed: int = 0,
    through: str = WAYS[0],
    compare: str | None = None,
    product: str | None = None,
    golden: Path | None = None,
    jobs: int = 1,
    memory: int | None = None,
) -> Iterator[CaseResult]:
    """Run cases (of `read_cases`, `level_cases`) and give their results in the same order, as they come.

    `through` is "two-phase", "plain" or "c"; `compare` a precision standard, by default mixed, and close for cases that
    have tolerances of their own. Cases are checked against `product` (by default the one in force), run under its profile,
    and skipped where a list means them for others.
    `golden` is a folder for every case's inputs and golden values; the second case of a name is `NAME-2` there. `jobs` processes share the work.
    `memory` is how many bytes the data of the cases in work may take, of all processes together, by default half of what the
    process may use; a case that needs more is skipped.
    """
    profile = current_product().tag if product is None else product
    budget = {} if memory is None else {"memory": memory}
    settings = Settings(seed, through, compare, product=profile, golden=golden, **budget)
    if golden is not None:
        cases = _with_folders(cases)
    if jobs > 1:
        yield from _run_in_processes(cases, settings, jobs)
    else:
        yield from _run_here(cases, settings)


def _with_folders(cases: Iterable[Item]) -> Iterator[Item]:
    """Cases with a folder for each, whatever names lists have given twice."""
    taken: set[str] = set()
    for case in cases:
        identity = "" if isinstance(case, (LevelCase, Malformed)) else case.identity
        label = f"{case.name}-{identity}" if identity else case.name
        name = "".join(c if c.isalnum() or c in "-_." else "_" for c in label).strip(".") or "case"
        numbered = (f"{name}-{number}" for number in itertools.count(2))
        folder = next(each for each in itertools.chain([name], numbered) if each not in taken)
        taken.add(folder)
        yield case if isinstance(case, Malformed) else replace(case, folder=folder)


def memory_of(case: Item, golden_files: bool = False) -> int:
    """About how many bytes a case needs: its tensors, its output, golden values in float64 and a row in between. Those of each
    element by itself are computed when they are looked at, unless files are made of them.
    """
    if isinstance(case, Malformed):
        return 0
    if isinstance(case, LevelCase):
        return 4 * case.recipe.elements * (4 + _GOLDEN)
    specs = {name: spec for name, spec in case.tensors.items() if spec is not None}
    if not specs:
        return 0
    largest = max(specs.values(), key=lambda spec: math.prod(spec.shape))
    shape, row, golden = largest.shape, math.prod(largest.shape[1:]), _GOLDEN
    if case.operator.workloads.PATTERN == "elementwise":
        row, golden = 0, golden if golden_files else 0
        with suppress(ValueError):  # which the operator will refuse
            shape = np.broadcast_shapes(*(spec.shape for spec in specs.values()))
    output = case.operator.output
    listed = output.name in specs and not output.in_place  # of which the oracle has a copy
    written = math.prod(shape) * ((0 if listed else largest.dtype.itemsize) + golden)
    stored = sum(spec.elements * spec.dtype.itemsize for spec in specs.values())
    return stored + written + row * _BESIDES


def _in_words(size: int) -> str:
    """A number of bytes."""
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"


def _run_in_processes(cases: Iterable[Item], settings: Settings, jobs: int) -> Iterator[CaseResult]:
    """Bundles of cases, of which some wait for a process; all that are not done share the memory that is allowed."""
    coming, least = iter(cases), settings.memory // (2 * jobs)
    waiting: deque[tuple[int, Future[list[CaseResult]]]] = deque()
    threads = max(get_num_threads() // jobs, 1)
    # Started afresh: a fork would take locks and worker threads along in an unknown state.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context, set_num_threads, (threads,)) as pool:
        while bundle := list(itertools.islice(coming, _TOGETHER)):
            share = max(least, *map(settings.need, bundle))
            while waiting and (
                len(waiting) >= 2 * jobs
                or share + sum(taken for taken, future in waiting if not future.done()) > settings.memory
            ):  # fmt: skip
                yield from waiting.popleft()[1].result()
            waiting.append((share, pool.submit(_run_bundle, bundle, settings, share)))
        while waiting:
            yield from waiting.popleft()[1].result()


def _run_bundle(bundle: list[Item], settings: Settings, share: int) -> list[CaseResult]:
    return list(_run_here(bundle, settings, share))


@dataclass
class _Ready:
    built: Built
    exact: dict[str, Array | Computed]  # by C name, of what is computed


def _run_here(
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


def _ready(case: Case, settings: Settings) -> _Ready:
    """A case's data and golden values, under the product in force; golden files, where they are asked for."""
    need = settings.memory_of(case)
    if need > settings.memory:
        allowed = _in_words(settings.memory)
        raise MemoryError(f"about {_in_words(need)} are needed, {allowed} allowed")
    product = current_product()
    if isinstance(case, LevelCase):
        built = case.built(product)
    else:
        built = build(case, settings.seed, product)
    files = {name: path for name, path in zip(built.outputs, case.goldens, strict=False) if path}
    exact: dict[str, Array | Computed] = {}
    if built.outputs.keys() - files:
        exact = oracle_in_chunks(built.operator, built.counted)
    for name, path in files.items():
        output = built.outputs[name]
        exact[name] = read_array(Source(path, dtype=dtype_of_numpy(output.dtype), shape=output.shape))  # fmt: skip
    if settings.golden is not None:
        about = {"name": case.name, "operator": case.operator_name, "place": case.place}
        folder = settings.golden / case.folder
        write_case(folder, case.operator_name, built.whole, about, built.counted)
    return _Ready(built, exact)


def _run(
    case: Item, ready: _Ready | CaseResult, settings: Settings, judging: ThreadPoolExecutor
) -> Future[CaseResult]:
    """Run a case whose data are there; what it wrote is judged by another thread."""
    result = ready if isinstance(ready, CaseResult) else None
    if isinstance(ready, _Ready):
        started = time.perf_counter()
        try:
            with use_product(settings.product):
                status, why = run_through(settings.through, ready.built)
            seconds = time.perf_counter() - started
            if not status:
                assert isinstance(case, Case)
                return judging.submit(_judge, case, ready, settings, seconds)
            result = _result(case, "refused", why, status=status, seconds=seconds)
        except MemoryError as error:
            result = _result(case, "skipped", f"not enough memory: {error}", reason="memory")
    assert result is not None
    return judging.submit(lambda: result)


def _judge(case: Case, ready: _Ready, settings: Settings, seconds: float) -> CaseResult:
    """By the worst output, of those that are written."""
    outputs, rules = ready.built.outputs, {}
    verdicts: dict[str, Comparison] = {}
    for number, (name, output) in enumerate(outputs.items()):
        if name in ready.exact and ready.built.writes(name):
            dtype = dtype_of_numpy(output.dtype)
            rules[name] = _rules(case, number, "" if dtype is None else dtype.name, settings)
            exact = ready.exact[name].reshape(output.shape)
            verdicts[name] = judge(output, exact, None, rules[name], None, 3)
    verdict = worst(verdicts)
    judged_by = rules[verdict.output].told()
    if len(outputs) == 1:
        verdict = replace(verdict, output="")
    prefix = f"{verdict.output}: " if verdict.output else ""
    why = prefix + "; ".join(verdict.reasons) if verdict.reasons else "; ".join(case.notes)
    return _result(
        case, "passed" if verdict else "failed", why, comparison=verdict, seconds=seconds, judged_by=judged_by
    )  # fmt: skip


def _rules(case: Case, output: int, dtype: str, settings: Settings) -> Rules:
    """By which an output is judged: the standard that was asked for, the case's tolerances (the last is that of all behind
    it), the list's own standard, or mixed.
    """
    standard = settings.compare or ("close" if case.tolerances else case.standard or "mixed")
    if standard != "close":
        relative = case.relatives.get(dtype) if standard == "stat_rel_err" else None
        return Rules(standard, relative=relative)
    rtol = ptol = atol = None
    if case.tolerances:
        rtol, ptol = case.tolerances[min(output, len(case.tolerances) - 1)]
    if case.atols:
        atol = case.atols[min(output, len(case.atols) - 1)]
    elif rtol == ptol == 0:
        atol = 0.0  # exact
    return Rules(standard, rtol, atol, ptol)


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
