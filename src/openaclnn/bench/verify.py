"""No speed without right results: every contender is checked before anything is timed.

Small problems are checked against the float64 oracle. Of large ones a smaller sibling is (the same
variant, dtype, layout and engine), and at full size contenders must agree with PyTorch, or, where torch
is missing, with the first engine of ours that passed. Ours is not timed if it fails; PyTorch's is, and marked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from openaclnn.bench.problems import Problem, build, to_torch
from openaclnn.bench.regimes import shrink
from openaclnn.bench.timing import COPY, Contender
from openaclnn.core.dtypes import FLOAT, DType

__all__ = ["ORACLE_LIMIT", "disagreement", "expected_of", "fault_of", "find_faults", "further_off"]

ORACLE_LIMIT = 1 << 20  # elements that the float64 reference computes in about a tenth of a second
_CHUNK = 1 << 20  # elements that stay in the caches while they are compared
Factory = Callable[[Problem], list[Contender]]
Results = tuple[Any, ...]  # an operator's outputs


def find_faults(
    problem: Problem, contenders: list[Contender], factory: Factory, torch: Any
) -> dict[str, str]:
    """What is wrong with each contender's result, by name; `factory` makes contenders for the smaller sibling."""
    usable = [each for each in contenders if not each.unavailable and each.name != COPY]
    if math.prod(problem.shape) <= ORACLE_LIMIT:
        return _against_oracle(problem, usable, torch)
    pattern = problem.operator.workloads.PATTERN
    small = build(
        problem.operator, problem.variant, problem.dtype,
        shrink(pattern, problem.shape, ORACLE_LIMIT), problem.layout, problem.device,
    )  # fmt: skip
    assert small is not None, "the layout was accepted at full size"
    siblings = [each for each in factory(small) if not each.unavailable and each.name != COPY]
    faults = _against_oracle(small, siblings, torch)
    right = [each for each in usable if each.name not in faults]
    right.sort(key=lambda each: each.ours)  # stable: torch's come first
    if right:
        expected = last = _keep(_results(problem, right[0]))
        fault = ""
        for each in right[1:]:
            got = _results(problem, each)
            if not _alike(got, last, torch):  # ways of one engine mostly are
                fault = _first_fault(got, expected, problem.dtype, torch, slack=4)
                last = _keep(got)
            if fault:
                faults[each.name] = f"{fault} of {right[0].name}"
    return faults


def _against_oracle(problem: Problem, usable: list[Contender], torch: Any) -> dict[str, str]:
    expected = expected_of(problem)
    faults = {each.name: fault_of(problem, each, expected, torch) for each in usable}
    return {name: fault for name, fault in faults.items() if fault}


def expected_of(problem: Problem) -> Results:
    """The oracle's results as the problem's dtype has them."""
    with np.errstate(over="ignore"):
        dtype = problem.dtype.numpy
        return tuple([each if each is None else each.astype(dtype) for each in problem.oracle()])


def fault_of(problem: Problem, contender: Contender, expected: Results, torch: Any) -> str:
    """What is wrong with a contender's result beside the float64 oracle's; "" if nothing is."""
    # PyTorch rounds between the steps of a composite; its own error is no fault of the comparison.
    slack = 1.0 if contender.ours else 4.0
    fault = _first_fault(_results(problem, contender), expected, problem.dtype, torch, slack)
    return fault and f"{fault} of the float64 oracle"


def _first_fault(got: Results, expected: Results, dtype: DType, torch: Any, slack: float) -> str:
    """How the first output that differs does; those that are not expected are nobody's business."""
    for place, wanted in enumerate(expected):  # PyTorch has no more outputs than are expected
        fault = "" if wanted is None else disagreement(got[place], wanted, dtype, torch, slack)
        if fault:
            return fault
    return ""


def _results(problem: Problem, contender: Contender) -> Results:
    """What a contender computes; places for results are filled with NaN first, so that a gap shows."""
    for output in problem.fresh:
        output[...] = math.nan
    with contender.chosen():
        result = contender.call()
    return problem.outputs_of(problem.out if contender.writes_out else result)


def _alike(results: Results, others: Results, torch: Any) -> bool:
    """Whether all numbers are the same; NaN never is."""
    pairs = zip(results, others, strict=True)
    if torch is None:
        return all(np.array_equal(left, right) for left, right in pairs)
    return all(torch.equal(to_torch(torch, left), to_torch(torch, right)) for left, right in pairs)


def _keep(results: Results) -> Results:
    """Copies that later contenders cannot overwrite."""
    return tuple(
        [each.copy() if isinstance(each, np.ndarray) else each.clone() for each in results]
    )


def further_off(ours: Any, theirs: Any, exact: Any, eps: float) -> str:
    """How far our tensor is from the float64 one, where that is further than PyTorch's by more than a rounding; else ""."""
    off, allowed = ((each.double() - exact).abs().max().item() for each in (ours, theirs))
    if off <= allowed + eps * exact.abs().max().item() and not math.isnan(allowed):
        return ""
    return f"{off:.3g} off float64, PyTorch's {allowed:.3g}"


def disagreement(got: Any, expected: Any, dtype: DType, torch: Any, slack: float = 1.0) -> str:
    """How `got` differs from `expected` beyond rounding; "" if it does not.

    Two measures: the largest error against the largest value, and the mean error against the mean
    magnitude; the second catches small values that are wrong everywhere.
    """
    if tuple(got.shape) != tuple(expected.shape):
        return f"shape {tuple(got.shape)} instead of {tuple(expected.shape)}"
    worst = largest = total = magnitude = 0.0
    ours, theirs = _wide_chunks(got, torch), _wide_chunks(expected, torch)
    for mine, other in zip(ours, theirs, strict=True):
        beside = other if torch is None else other.to(mine.device)
        error, size = abs(mine - beside), abs(beside)
        worst = max(float(error.max()), worst, key=_nan_first)
        largest = max(largest, float(size.max()))
        total, magnitude = total + float(error.sum()), magnitude + float(size.sum())
    unit, smallest = _rounding(dtype)
    allowed = slack * unit * (32 if dtype is FLOAT else 4)
    count = math.prod(got.shape)
    if not worst <= allowed * largest + 2 * smallest:
        return f"error {worst:.3g} beside a largest value {largest:.3g}"
    if not total <= allowed * magnitude + 2 * smallest * count:
        return f"mean error {total / count:.3g} beside a mean magnitude {magnitude / count:.3g}"
    return ""


def _nan_first(value: float) -> float:
    return math.inf if math.isnan(value) else value


def _rounding(dtype: DType) -> tuple[float, float]:
    """The step above 1 and the smallest positive value of a floating dtype."""
    if dtype.numpy_name == "bfloat16":
        import ml_dtypes

        finfo: Any = ml_dtypes.finfo
    else:
        finfo = np.finfo
    info = finfo(dtype.numpy)
    return float(info.eps), float(info.smallest_subnormal)


def _wide_chunks(array: Any, torch: Any) -> Iterator[Any]:
    """The values in float64, piece by piece; in torch if it is there, which uses all cores or the GPU."""
    flat = (array if torch is None else to_torch(torch, array)).reshape(-1)
    for start in range(0, math.prod(flat.shape), _CHUNK):
        piece = flat[start : start + _CHUNK]
        yield piece.astype(np.float64) if torch is None else piece.double()
