"""Who computes a problem: our engines by each way to call them, PyTorch's ways, and a copy of the same bytes; and whether that is right.

No speed without right results: every contender is checked before anything is timed, against float64: the oracle, and of large problems,
for which that takes long, PyTorch's operators on float64 where it is there. Ours is not timed if it fails; PyTorch's is, and marked.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

import openaclnn
from openaclnn.bench.problems import Problem, is_array, to_torch
from openaclnn.bench.timing import COPY, Call, Contender
from openaclnn.core.dtypes import FLOAT, FLOATS, DType
from openaclnn.core.interface import Kind
from openaclnn.core.interop import torch_dtype
from openaclnn.core.status import AclnnError
from openaclnn.engines.dispatch import choose_engine, use_engine

COPY_GRAIN = 1 << 20  # bytes: below that, waking a thread of Python's costs more than it gains
THREADED = "cpu"  # the engine that has threads
ORACLE_LIMIT = 1 << 20  # elements that the float64 reference computes in about a tenth of a second
_CHUNK = 1 << 19  # elements that stay in the caches while they are compared
ALLOCATING, INTO, TWO_PHASE = "", " out=", " two-phase"  # ways to call, as contenders' names end
Results = tuple[Any, ...]  # an operator's outputs


def build_contenders(
    problem: Problem, engines: Sequence[str], torch: Any = None, *, compiled: bool = False
) -> list[Contender]:
    """All contenders of a problem: ours first, then those of torch's that work here, if torch is given, then the copy."""
    contenders = [
        ours(engine + way, problem, engine, way, functools.partial(our_call, problem, way))
        for engine in engines
        for way in (ALLOCATING, INTO)
    ]
    if torch is not None:
        contenders += _peers(problem, torch)
        if compiled:
            contenders += _compiled(problem, torch)
    return [*contenders, _copy(problem, torch)]


def ours(
    name: str, problem: Problem, engine: str, way: str, prepare: Callable[[], Call]
) -> Contender:
    """An engine's by a way to call it, if it serves the problem: what is prepared then.

    Calls run inside of a block that names the engine where they do not get it by themselves: there every call takes the slow path (docs/calls.md)."""
    choice = functools.partial(use_engine, engine)
    try:
        with choice():
            choose_engine(problem.plan, problem.device)
    except AclnnError as error:
        return unavailable(name, str(error), ours=True, engine=engine)
    alone = choose_engine(problem.plan, problem.device).engine == engine
    inside = nullcontext if alone else choice
    return Contender(name, prepare(), True, engine, way != ALLOCATING, inside=inside)


def unavailable(name: str, error: Exception | str, **options: Any) -> Contender:
    """A contender that cannot be had, with the reason."""
    return Contender(name, unavailable=first_line(error), **options)


def first_line(error: Exception | str) -> str:
    """An error as a line of a table."""
    if isinstance(error, str):
        return error
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:160]


def our_call(problem: Problem, way: str) -> Call:
    """Both phases, or the plain call, perhaps with `out=`."""
    if way == TWO_PHASE:
        return _both_phases(problem)
    operator, values = problem.operator, problem.arguments
    if way == INTO:
        values = values | {"out": problem.out}
    positional, keywords = operator.plain_parameters
    ordered = [values[p.python_name] for p in positional]
    names = tuple([p.python_name for p in keywords if p.python_name in values])
    function = getattr(openaclnn, operator.python_name)
    return _written(len(ordered), names)(function, *ordered, *[values[name] for name in names])


@functools.cache
def _written(positional: int, names: tuple[str, ...]) -> Callable[..., Call]:
    """What makes a call, written out as a program has it: `functools.partial` takes 0.2 us more to pass keywords."""
    ordered = [f"_{place}" for place in range(positional)]
    taken = ", ".join(["_function", *ordered, *names])
    passed = ", ".join([*ordered, *[f"{name}={name}" for name in names]])
    make: Callable[..., Call] = eval(f"lambda {taken}: lambda: _function({passed})", {})
    return make


def _both_phases(problem: Problem) -> Call:
    """With the wait for them."""
    from openaclnn import acl, aclnn

    operator, outputs = problem.operator, iter(problem.outputs_of(problem.out))
    arguments = [
        next(outputs)
        if p.kind is Kind.OUTPUT
        else problem.arguments.get(p.python_name, None if p.is_tensor else p.default)
        for p in operator.parameters
    ]
    first = getattr(aclnn, f"{operator.name}GetWorkspaceSize")
    second = getattr(aclnn, operator.name)

    def both() -> None:
        status, size, executor = first(*arguments)
        if status or second(None, size, executor, None) or acl.aclrtSynchronizeStream(None):
            raise RuntimeError(f"{operator.name}: {aclnn.aclGetRecentErrMsg()}")

    return both


def _peers(problem: Problem, torch: Any) -> Iterator[Contender]:
    given = problem.in_torch
    try:
        peers = problem.operator.workloads.torch_peers(torch, given.arguments, given.out)
    except Exception as error:  # whatever torch objects to is a line in the table
        yield unavailable("torch", error)
        return
    for name, call in peers.items():
        yield Contender(name, call, writes_out=name.endswith(INTO))


def _compiled(problem: Problem, torch: Any) -> Iterator[Contender]:
    """torch.compile of the formula, and of the operators that autograd would run where those are several.

    It needs a C++ compiler (or Triton), and may refuse for other reasons.
    """
    given = problem.in_torch
    workloads = problem.operator.workloads

    def compiled(name: str, function: Callable[..., Any], *values: Any) -> Contender:
        torch.compiler.reset()  # else the ninth shape falls back to eager without a word
        call = torch.compile(function, dynamic=False, fullgraph=True)
        return Contender(name, functools.partial(call, *values))

    yield compiled(
        "torch.compile", functools.partial(workloads.torch_formula, torch), given.arguments
    )
    if getattr(workloads, "COMPOSITE", False):
        operators = workloads.torch_peers(torch, given.arguments, given.out)["torch"]
        yield compiled("torch.compile ops", operators)


def threaded(engines: Sequence[str]) -> Sequence[str]:
    """Those to time by every number of threads; the others' times are the first one's."""
    return [THREADED] if THREADED in engines else engines


def _copy(problem: Problem, torch: Any) -> Contender:
    """A plain copy that reads half the bytes that the problem touches and writes the other half."""
    half = max(problem.touched // 2, 4)
    if torch is None:
        return Contender(COPY, _shared_copy(np.ones(half, np.uint8), np.zeros(half, np.uint8)))
    options = {"dtype": torch.float32, "device": problem.device}
    source, target = torch.ones(half // 4, **options), torch.zeros(half // 4, **options)
    return Contender(COPY, functools.partial(target.copy_, source))


def _shared_copy(source: np.ndarray[Any, Any], target: np.ndarray[Any, Any]) -> Call:
    """NumPy's copy; of much memory on as many threads as ours may use, as PyTorch's is."""
    count = min(openaclnn.get_num_threads(), source.nbytes // COPY_GRAIN)
    if count < 2:
        return functools.partial(np.copyto, target, source)
    pieces = np.array_split(target, count), np.array_split(source, count)
    share = _copiers(count).map
    return lambda: list(share(np.copyto, *pieces))


@functools.cache
def _copiers(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count)


def checked(contenders: Iterable[Contender], check: Callable[[Contender], str]) -> list[Contender]:
    """Each with what is wrong with its result. Who objects cannot be had; an exception of ours is as wrong as a wrong number."""
    kept = []
    for each in contenders:
        try:
            told = {"fault": "" if each.unavailable else check(each)}
        except Exception as error:
            told = {"fault" if each.ours else "unavailable": first_line(error)}
        kept.append(replace(each, **told))  # type: ignore[arg-type]
    return kept


def find_faults(problem: Problem, contenders: Iterable[Contender], torch: Any) -> list[Contender]:
    """Each with what is wrong with its result beside float64's."""
    expected = expected_of(problem, torch)
    return checked(contenders, lambda each: fault_of(problem, each, expected, torch))


def expected_of(problem: Problem, torch: Any = None) -> Results:
    """The results of float64 as the problem's dtype has them."""
    if torch is None or math.prod(problem.shape) <= ORACLE_LIMIT:
        with np.errstate(over="ignore"):
            dtype = problem.dtype.numpy
            return tuple(
                [each if each is None else each.astype(dtype) for each in problem.oracle()]
            )
    wide = {
        name: value.double() if is_array(value) and value.is_floating_point() else value
        for name, value in problem.in_torch.arguments.items()
    }
    results = problem.operator.workloads.torch_peers(torch, wide, None)["torch"]()
    kind = torch_dtype(problem.dtype)
    return tuple([each.to(kind) for each in problem.outputs_of(results)])


def fault_of(problem: Problem, contender: Contender, expected: Results, torch: Any) -> str:
    """What is wrong with a contender's result beside those of float64; "" if nothing is, or if it computes none."""
    if contender.name == COPY:
        return ""
    return fault_among(_results(problem, contender), contender, expected, problem.dtype, torch)


def fault_among(
    results: Results, contender: Contender, expected: Results, dtype: DType, torch: Any
) -> str:
    """The same of results that are there: how the first that differs does."""
    # PyTorch rounds between the steps of a composite; its own error is no fault of the comparison.
    slack = 1.0 if contender.ours else 4.0
    for got, wanted in zip(results, expected, strict=False):  # who has fewer outputs has the first
        fault = "" if wanted is None else disagreement(got, wanted, dtype, torch, slack)
        if fault:
            return f"{fault} of float64"
    return ""


def _results(problem: Problem, contender: Contender) -> Results:
    """What a contender computes; places for results are filled with NaN first, so that a gap shows."""
    for output in problem.fresh:
        output[...] = math.nan if "float" in str(output.dtype) else 85
    with contender.inside():
        result = contender.call()
    return problem.outputs_of(problem.out if contender.writes_out else result)


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
        with np.errstate(invalid="ignore"):
            error, size = abs(mine - beside), abs(beside)
        if not math.isfinite(float(error.sum() + size.sum())):
            # What is infinite or NaN in both is right, and no measure of other values.
            error[(mine == beside) | ((mine != mine) & (beside != beside))] = 0.0
            size[(size == math.inf) | (size != size)] = 0.0
        worst = float(np.maximum(worst, float(error.max())))  # NaN stays
        largest = max(largest, float(size.max()))
        total, magnitude = total + float(error.sum()), magnitude + float(size.sum())
    if "16" in str(got.dtype):  # a result may be narrower than the data
        dtype = next(each for each in reversed(FLOATS) if each.torch_name in str(got.dtype))
    finfo: Any = ml_dtypes.finfo
    unit, smallest = float(finfo(dtype.numpy).eps), float(finfo(dtype.numpy).smallest_subnormal)
    allowed = slack * unit * (32 if dtype is FLOAT else 4)
    count = math.prod(got.shape)
    if not worst <= allowed * largest + 2 * smallest:
        return f"error {worst:.3g} beside a largest value {largest:.3g}"
    if not total <= allowed * magnitude + 2 * smallest * count:
        return f"mean error {total / count:.3g} beside a mean magnitude {magnitude / count:.3g}"
    return ""


def _wide_chunks(array: Any, torch: Any) -> Iterator[Any]:
    """The values in float64, piece by piece; in torch if it is there, which uses all cores or the GPU."""
    flat = (array if torch is None else to_torch(torch, array)).reshape(-1)
    for start in range(0, math.prod(flat.shape), _CHUNK):
        piece = flat[start : start + _CHUNK]
        yield piece.astype(np.float64) if torch is None else piece.double()
