"""Operators by size: each problem built, checked, and timed by each number of threads, an odd size beside its round neighbour; and first calls, in processes of
their own."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import product
from typing import Any

from openaclnn.bench.contenders import build_contenders, find_faults, threaded
from openaclnn.bench.problems import Problem, build, measured, taken
from openaclnn.bench.processes import in_a_fresh_process
from openaclnn.bench.regimes import ELEMENTWISE, Regime, Shape, by_shape
from openaclnn.bench.timing import (
    COPY,
    Bench,
    Case,
    Contender,
    OtherLoad,
    Row,
    paired_ratio,
    time_contenders,
)
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import FLOAT, FLOATS, DType
from openaclnn.core.results import usable_cores
from openaclnn.operators import FAMILIES, registry

ROUND = ", round"  # ends the names of contenders at the round size beside an odd one
FIRST_CALL, EMPTY = "first-call", ", empty cache"
_PROBES = {"elementwise": (16, 16), "rows": (16, 16), "pixels": (2, 8, 4, 4)}
"""Shapes of problems that show whether an operator takes a layout."""
Regimes = Mapping[str, Sequence[Regime]]


def speed_cases(
    regimes: Regimes, dtypes: Sequence[DType], quick: bool, headline: bool
) -> Iterator[Case]:
    """The cases of these regimes, operator by operator; none of a layout that an operator refuses. Headlines are of those
    that `stands_alone` names, at sizes of their own."""
    for operator in measured():
        if headline and not stands_alone(operator):
            continue
        for regime in regimes.get(operator.workloads.PATTERN, ()):
            if (quick and not regime.quick) or (headline and not regime.headline):
                continue
            if headline:
                regime = replace(regime, shape=regime.headline)
            names = list(operator.workloads.VARIANTS)
            default = FLOATS if regime.all_dtypes and not quick else (FLOAT,)
            factory = _into_memory if headline else build_contenders
            for variant in names if regime.all_variants and not quick else names[:1]:
                served = _of_axes(operator, regime) and _takes(operator, variant, regime.layout)
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


def _of_axes(operator: Operator, regime: Regime) -> bool:
    """Whether the operator takes so many axes: of rows there are images where its axis may be any."""
    rows = operator.workloads.PATTERN == "rows" and len(regime.shape) > 2
    return not rows or any(parameter.axis for parameter in operator.parameters)


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

    def contenders_of(subject: Problem, compiled: bool = False) -> list[Contender]:
        return factory(subject, engines, bench.torch, compiled=compiled)

    contenders = contenders_of(problem, regime.compiled and not bench.quick)
    faults = find_faults(problem, contenders, contenders_of, bench.torch)
    beside, elements = [], 1.0
    if regime.near:
        near = build(operator, case.variant, dtype, regime.near, "contiguous", bench.device)
        assert near is not None, "every operator takes such arguments"
        elements = problem.moved / near.moved
        neighbours = contenders_of(near)
        at_round = find_faults(near, neighbours, contenders_of, bench.torch)
        wrong = {each.name for each in neighbours if each.ours} & at_round.keys()
        faults |= {name: f"{at_round[name]}, at the round size" for name in wrong}
        # Ours into `out=` alone: two sizes of fresh results would take memory from each other.
        beside = [
            replace(each, name=each.name + ROUND)
            for each in neighbours
            if each.ours and each.writes_out and not each.unavailable and each.name not in faults
        ]
    about = case.about | {
        "family": regime.family or regime.name, "layout": problem.layout, "near": list(regime.near), "bytes": problem.moved,
        "touched": problem.touched, "gbps": None, "of_round": None,
    }  # fmt: skip
    rows, timings = time_contenders(about, contenders, faults, bench, beside=beside)
    for row, contender in zip(rows, contenders, strict=True):
        row["inexact"] = [name for name in timings if name in faults]
        timing, nearby = (timings.get(contender.name + ending) for ending in ("", ROUND))
        if timing is not None:
            moved = problem.touched if contender.name == COPY else problem.moved
            row["gbps"] = moved / timing.median * 1e-9
            if nearby is not None and (ratio := paired_ratio(nearby, timing)):
                row["of_round"] = ratio * elements
    return rows


def first_calls(regimes: Regimes) -> Iterator[Case]:
    """Each operator's first variant in FLOAT, at its cache-sized shape; and what a call at its headline's shape takes of memory."""
    for operator in measured():
        shapes = regimes[operator.workloads.PATTERN]
        small = shapes[min(1, len(shapes) - 1)].shape
        large = next((each for each in shapes if each.headline), shapes[-1]).shape
        name, variant = operator.python_name, next(iter(operator.workloads.VARIANTS))
        yield Case(name, variant, FIRST_CALL, small, FLOAT.name, partial(_first_calls, large))


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
