"""Who computes a problem: our engines by each way to call them, PyTorch's ways, and a copy of the same bytes."""

from __future__ import annotations

import functools
import importlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

import openaclnn
from openaclnn.bench.problems.problem import Arguments, Problem
from openaclnn.core.declare import Operator
from openaclnn.core.interface import Kind
from openaclnn.core.status import AclnnError
from openaclnn.engines.dispatch import ENGINES, choose_engine, use_engine

__all__ = [
    "COPY", "Aside", "Contender", "build_contenders", "engine_states", "first_line", "forget_kinds", "must_be_asked",
    "no_call", "phase_arguments", "plain_call",
]  # fmt: skip

COPY = "copy"
COPY_GRAIN = 1 << 20  # bytes: below that, waking a thread of Python's costs more than it gains


class Aside:
    """What is done before each call and is no part of it, with the seconds that it took."""

    def __init__(self, do: Callable[[], None]) -> None:
        self._do, self._seconds = do, 0.0

    def __call__(self) -> None:
        start = time.perf_counter()
        self._do()
        self._seconds += time.perf_counter() - start

    def taken(self) -> float:
        """The seconds since this was last asked."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds


@dataclass(frozen=True)
class Contender:
    """One way to the result. `unavailable` says why there is nothing to call."""

    name: str
    call: Callable[[], Any]
    ours: bool = False
    engine: str = ""
    writes_out: bool = False  # the result is in the problem's `out`, else it is returned
    unavailable: str = ""
    asked: bool = True  # the engine must be asked for by name
    warm_up: Callable[[], Any] | None = None  # before a sample, where it is not the call itself
    calls: int = 0  # of a sample, where they are counted; else as many as last long enough
    aside: Aside | None = None  # what its calls do that a sample does not count

    def chosen(self) -> AbstractContextManager[None]:
        """The engine's choice, entered before the clock starts; none where calls get that engine by themselves.

        Inside a block that names an engine every call takes the full way (docs/calls.md).
        """
        return use_engine(self.engine) if self.engine and self.asked else nullcontext()


def engine_states(device: str) -> dict[str, str]:
    """Each registered engine with why it cannot serve this device; "" if it can."""
    states = {}
    for name, package in ENGINES.items():
        try:
            engine = importlib.import_module(package)
        except ImportError as error:
            states[name] = f"not importable: {error}"
            continue
        if device not in engine.DEVICES:
            states[name] = f"serves {' and '.join(engine.DEVICES)} memory"
        else:
            states[name] = engine.unavailable() or ""
    return states


def build_contenders(
    problem: Problem,
    engines: list[str],
    torch: Any = None,
    *,
    two_phase: bool = False,
    compiled: bool = False,
    bare: bool = False,
) -> list[Contender]:
    """All contenders of a problem: ours first, then torch's if torch is given, then the copy.

    Torch's are run once to see whether they work here; `bare` leaves that and the copy out.
    """
    contenders = [own for engine in engines for own in _ours(problem, engine, two_phase)]
    if torch is not None:
        contenders += _peers(problem, torch, not bare)
        if compiled:
            contenders += _compiled(problem, torch)
    return contenders if bare else [*contenders, _copy(problem, torch)]


def _ours(problem: Problem, engine: str, two_phase: bool) -> Iterator[Contender]:
    try:
        with use_engine(engine):
            choose_engine(problem.plan, problem.device)
    except AclnnError as error:
        yield Contender(engine, no_call, True, engine, unavailable=str(error))
        return
    asked = must_be_asked(problem, engine)
    function = plain_call(problem.operator, problem.arguments)
    yield Contender(engine, function, True, engine, asked=asked)
    into = plain_call(problem.operator, problem.arguments, out=problem.out)
    yield Contender(f"{engine} out=", into, True, engine, writes_out=True, asked=asked)
    if two_phase:
        with use_engine(engine):
            second = _second_phase(problem)
        yield Contender(f"{engine} two-phase", second, True, engine, writes_out=True, asked=asked)


def must_be_asked(problem: Problem, engine: str) -> bool:
    """Whether a problem is served by this engine only if it is named."""
    return choose_engine(problem.plan, problem.device).engine != engine


def plain_call(operator: Operator, arguments: Arguments, **out: Any) -> Callable[[], Any]:
    """The plain call, perhaps with `out=`."""
    positional, keywords = operator.plain_parameters
    given = {**arguments, **out}
    ordered = [given[p.python_name] for p in positional]
    names = tuple([p.python_name for p in keywords if p.python_name in given])
    function = getattr(openaclnn, operator.python_name)
    return _written(len(ordered), names)(function, *ordered, *[given[name] for name in names])


def forget_kinds(operator: Operator) -> Callable[[], None]:
    """What makes kinds of an operator's plain calls new; engines keep what they compiled."""
    forget: Callable[[], None] = getattr(openaclnn, operator.python_name).road.forget
    return forget


@functools.cache
def _written(positional: int, names: tuple[str, ...]) -> Callable[..., Callable[[], Any]]:
    """What makes a call, written out as a program has it: `functools.partial` takes 0.2 us more to pass keywords."""
    ordered = [f"_{place}" for place in range(positional)]
    taken = ", ".join(["_function", *ordered, *names])
    passed = ", ".join([*ordered, *[f"{name}={name}" for name in names]])
    made: Callable[..., Callable[[], Any]] = eval(
        f"lambda {taken}: lambda: _function({passed})", {}
    )
    return made


def phase_arguments(problem: Problem) -> list[Any]:
    """The arguments of phase one, in C order."""
    outputs = iter(problem.outputs_of(problem.out))
    return [
        next(outputs)
        if p.kind is Kind.OUTPUT
        else problem.arguments.get(p.python_name, None if p.is_tensor else p.default)
        for p in problem.operator.parameters
    ]


def _second_phase(problem: Problem) -> Callable[[], None]:
    """Phase two of a repeatable executor; phase one is done here.

    On the CPU with the wait for it, since torch's calls there return when they are done; on a GPU without,
    since torch's do not wait either, and the clock's events follow the runtime's streams.
    """
    from openaclnn import acl, aclnn

    operator = problem.operator
    first = getattr(aclnn, f"{operator.name}GetWorkspaceSize")
    second = getattr(aclnn, operator.name)
    status, size, executor = first(*phase_arguments(problem))
    if status or aclnn.aclSetAclOpExecutorRepeatable(executor):
        raise RuntimeError(f"{operator.name}: {aclnn.aclGetRecentErrMsg()}")

    def queue() -> None:
        if second(None, size, executor, None):
            raise RuntimeError(f"{operator.name}: {aclnn.aclGetRecentErrMsg()}")

    def run() -> None:
        if second(None, size, executor, None) or acl.aclrtSynchronizeStream(None):
            raise RuntimeError(f"{operator.name}: {aclnn.aclGetRecentErrMsg()}")

    return run if problem.device == "cpu" else queue


def _peers(problem: Problem, torch: Any, probe: bool) -> Iterator[Contender]:
    arguments, out = problem.for_torch(torch)
    try:
        peers = problem.operator.workloads.torch_peers(torch, arguments, out)
    except Exception as error:  # whatever torch objects to is a line in the table
        yield Contender("torch", no_call, unavailable=first_line(error))
        return
    for name, call in peers.items():
        try:
            if probe:
                call()
        except Exception as error:
            yield Contender(name, no_call, unavailable=first_line(error))
        else:
            yield Contender(name, call, writes_out=name.endswith("out="))


def _compiled(problem: Problem, torch: Any) -> Iterator[Contender]:
    """torch.compile of the formula, and of the operators that autograd would run where those are several.

    It needs a C++ compiler (or Triton), and may refuse for other reasons.
    """
    arguments, out = problem.for_torch(torch)
    workloads = problem.operator.workloads
    formula = functools.partial(workloads.torch_formula, torch)
    functions: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]
    functions = {"torch.compile": (formula, (arguments,))}
    if getattr(workloads, "COMPOSITE", False):
        operators = workloads.torch_peers(torch, arguments, out)["torch"]
        functions["torch.compile ops"] = (operators, ())
    for name, (function, given) in functions.items():
        try:
            torch.compiler.reset()  # else the ninth shape falls back to eager without a word
            compiled = torch.compile(function, dynamic=False, fullgraph=True)
            call = functools.partial(compiled, *given)
            call()
        except Exception as error:
            yield Contender(name, no_call, unavailable=first_line(error))
        else:
            yield Contender(name, call)


def _copy(problem: Problem, torch: Any) -> Contender:
    """A plain copy that reads half the bytes that the problem touches and writes the other half."""
    half = max(problem.touched // 2, 4)
    if torch is None:
        return Contender(COPY, _shared_copy(np.ones(half, np.uint8), np.zeros(half, np.uint8)))
    options = {"dtype": torch.float32, "device": problem.device}
    given, into = torch.ones(half // 4, **options), torch.zeros(half // 4, **options)
    return Contender(COPY, functools.partial(into.copy_, given))


def _shared_copy(source: np.ndarray[Any, Any], target: np.ndarray[Any, Any]) -> Callable[[], Any]:
    """NumPy's copy; of much memory on as many threads as ours may use, as PyTorch's is."""
    count = min(openaclnn.get_num_threads(), source.nbytes // COPY_GRAIN)
    if count < 2:
        return functools.partial(np.copyto, target, source)
    pieces = list(zip(np.array_split(target, count), np.array_split(source, count), strict=True))
    share = _copiers(count - 1).map

    def copy() -> None:
        others = share(lambda piece: np.copyto(*piece), pieces[1:])
        np.copyto(*pieces[0])
        for _ in others:
            pass

    return copy


@functools.cache
def _copiers(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count)


def no_call() -> None:
    raise RuntimeError("an unavailable contender has no call")


def first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:160]
