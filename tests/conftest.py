"""What the tests share: layouts, tolerances derived from the naive formula, engines to run on."""

from __future__ import annotations

import atexit
import fcntl
import functools
import gc
import importlib
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import openaclnn
from openaclnn import acl
from openaclnn.calls.plain import plan_tensors
from openaclnn.core.call import bind_plain
from openaclnn.core.declare import Operator, Sample
from openaclnn.core.dtypes import (  # fmt: skip
    BFLOAT16,
    FLOAT,
    FLOAT16,
    FLOATS,
    INT32,
    UINT8,
    DType,
    dtype_of_numpy,
)
from openaclnn.core.interface import Kind
from openaclnn.core.plan import Plan, covered_elements
from openaclnn.core.products import current_product
from openaclnn.core.tensor import contiguous_strides
from openaclnn.engines import cpu
from openaclnn.engines.dispatch import ENGINES
from openaclnn.testing.goldens import plan_of
from workloads import EVERYTHING, data_of
from workloads.mistakes import Mistake

Array = np.ndarray[Any, Any]
OPERATORS = openaclnn.registry()
APART = [operator for operator in OPERATORS if not operator.output.in_place]
"""The operators whose outputs are no inputs."""
SIZED = [
    op
    for op in APART
    if op.result_type is None
    and not hasattr(data_of(op), "WHOLE")
    and getattr(op.workloads, "ANY_SIZE", True)
]
"""Of those, the ones with one output of the inputs' shape, and kernels for any size."""
WITHOUT_AXIS = [op for op in SIZED if op.axis is None]
"""Of those, the ones that are no rows along any axis: tests of the GPU try those by their formulas (test_gpu_row_operators.py)."""
GRADIENTS = [op for op in WITHOUT_AXIS if not hasattr(op.workloads, "TRAINED")]
"""Of those, the gradients: where a fast path is the same for all and trying it takes long, they stand for the forwards too."""


def _family(operator: Operator) -> tuple[Any, ...]:
    parameters = operator.parameters
    if operator.workloads.PATTERN != "elementwise":
        return (operator.name,)  # a kernel of its own
    tensors = [p.name for p in parameters if p.is_read]
    numbers = any(not p.is_tensor and not p.choices for p in parameters)
    reduced = any(p.choices for p in parameters)
    halves = operator.axis is not None
    return len(tensors), numbers, reduced, operator.output.in_place, len(operator.outputs), halves


def families(operators: Sequence[Operator]) -> list[Operator]:
    """Of elementwise operators that differ in nothing but their formula, the first: for what is tried of machinery that they share.

    What is true of a formula (its values, its checks, its names) is tried of every operator.
    """
    first: dict[tuple[Any, ...], Operator] = {}
    for operator in operators:
        first.setdefault(_family(operator), operator)
    return [*first.values()]


def floats_of(operator: Operator) -> tuple[DType, ...]:
    """The floating dtypes that it takes."""
    return tuple(dtype for dtype in FLOATS if dtype in operator.data_dtypes)


INTERPRETED = (FLOAT, BFLOAT16)
"""Dtypes where trying takes long, as kernels do under Triton's interpreter: FLOAT16 goes BFLOAT16's way, and devices try all."""
CPU_ENGINES = [
    name for name, module in ENGINES.items() if "cpu" in importlib.import_module(module).DEVICES
]


LONGEST = (
    "test_operators.py", "test_gpu.py", "test_logits.py", "test_losses.py", "test_explorer_page.py", "test_new_operator.py", "test_benchmarks.py",
    "test_cpu_rows.py", "test_torch_parallel.py", "test_torch_ops.py", "test_fast_path.py", "test_cpu_threads.py",
    "test_cpu_elementwise.py", "test_torch_override.py", "test_capi_build.py", "test_torch_functional.py",
    "test_sessions.py", "test_attack.py", "test_faults.py", "test_site.py", "test_cli_operators.py", "test_special_values.py",
    "test_capi_process.py", "test_cpu_classes.py", "test_explorer.py", "test_properties.py", "test_fast_path_outputs.py", "test_torch_samples.py",
    "test_torch_public.py", "test_torch_log_probs.py", "test_torch_training.py", "test_second_opinion.py", "test_two_phase_kinds.py", "test_cli_compare.py",
    "test_testing_cases.py", "test_torch_linear.py", "test_torch_like.py", "test_fast_path_losses.py", "test_capi_examples.py", "test_docs.py",
    "test_accuracy.py", "test_gated.py", "test_large.py", "test_terminal.py", "test_trust.py", "test_writing.py", "test_testing_golden.py",
    "test_case_lists.py", "test_structure.py", "test_environment.py", "test_torch_adopt.py", "test_headers.py", "test_capi.py", "test_sanitizer.py",
)  # fmt: skip
"""Files that take longest: begun first, they do not keep one process at work when the other has nothing left. Those that compile most
come before others that load the same kernels in many processes."""


SURROUNDINGS = (
    "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "TTY_INTERACTIVE",
    "PYTHON_COLORS", "PYTHONWARNINGS", "OPENACLNN_ENGINE", "OPENACLNN_PRODUCT", "OPENACLNN_NUM_THREADS", "OPENACLNN_EXPLAIN",
    "OPENACLNN_RESULT_MEMORY",
)  # fmt: skip
"""Variables that change what programs print or compute."""


CACHE = Path(tempfile.gettempdir()) / f"openaclnn-test-cache-{os.getuid()}"
"""Where all tests, and the processes that they start, keep compiled code: what one has compiled serves the others."""

TURNS = 3
"""Tests marked `in_turns`, of what is the same for many operators, dtypes, layouts or shapes, try one of so many cases: each test others, and at the next turn the next
ones. `.ci/run` has another turn with each commit, the forge with each minor version of Python. `make test-all` tries all."""

TURN = int(os.environ.get("OPENACLNN_TEST_TURN", sys.version_info.minor))


def digits(number: int) -> int:
    """The sum of its digits to the base of `TURNS`: along every axis of a grid of parameters turns follow each other."""
    return number and number % TURNS + digits(number // TURNS)


def is_in_turn(number: int, name: str, turn: int = TURN) -> bool:
    """Whether it is the turn of a test's case with this number."""
    return (digits(number) + zlib.crc32(name.encode()) + turn) % TURNS == 0


def in_turn(cases: Sequence[Any], name: str) -> list[Any]:
    """Those of a test's cases whose turn it is."""
    return [case for number, case in enumerate(cases) if EVERYTHING or is_in_turn(number, name)]


def pytest_configure(config: pytest.Config) -> None:
    """Tests, and the processes that they start, find the same terminal, settings and signals wherever the suite runs."""
    config.addinivalue_line("markers", "in_turns: of its cases a third is tried, see TURNS")
    for name in SURROUNDINGS:
        os.environ.pop(name, None)
    os.environ["OPENACLNN_CACHE_DIR"] = str(CACHE)
    os.environ["TERM"] = "dumb"
    # Else PyTorch's threads spin for milliseconds after each operator, and take the cores that other processes' tests want.
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    os.umask(0o022)
    gc.disable()  # modules and tests are many objects, which stay: a seventh of the time that they take
    # A background job ignores them, and so would all that it starts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_IGN:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


LIBRARIES = ("torch", "sympy", "hypothesis", "torch.distributed.tensor")
"""What files of tests import and Python takes longest to compile."""


def pytest_sessionstart(session: pytest.Session) -> None:
    """Processes that begin together begin at different modules: each is compiled by one of them, and found compiled by the others.

    Not those that a test starts, which know whether kernels are interpreted before they import Triton."""
    worker = getattr(session.config, "workerinput", None)
    if worker is None:
        return
    number = int(worker["workerid"].removeprefix("gw"))
    files = [path.stem for path in sorted(Path(__file__).parent.glob("test_*.py"))]
    with open(f"{CACHE}.lock", "w") as lock:
        for place, names in ((0, LIBRARIES), (len(LIBRARIES), files)):
            first = len(names) * number // worker["workercount"]
            for index in (*range(first, len(names)), *range(first)):
                fcntl.lockf(lock, fcntl.LOCK_EX, 1, place + index)
                with suppress(Exception, pytest.skip.Exception):  # of which collecting tells
                    importlib.import_module(names[index])
                fcntl.lockf(lock, fcntl.LOCK_UN, 1, place + index)


@functools.cache
def _own_width() -> str:
    """This machine's, asked before a test has the vectors of another."""
    from openaclnn.engines.machine.host import machine

    return f"cpu{machine().lanes}"


def _dtypes_of_width(item: Any) -> tuple[DType, ...]:
    """Those that the operator takes; of vectors that this machine does not have FLOAT alone is tried: compiling takes long."""
    chosen = item.callspec.params if hasattr(item, "callspec") else {}
    name, operator = str(chosen.get("engine_of_any_width", "")), chosen.get("operator")
    taken = floats_of(operator) if operator in OPERATORS else FLOATS
    if not name.startswith("cpu") or name == _own_width() or EVERYTHING:
        return taken
    return (FLOAT,) if FLOAT in taken else taken[:1]


@functools.cache
def _tried_with_other_vectors() -> list[Operator]:
    return in_turn(families(OPERATORS), "vectors")


def _takes_part(item: Any) -> bool:
    """An operator is tried with dtypes that it takes; code for vectors that this machine does not have is compiled for one of
    each family, in turns."""
    chosen = item.callspec.params if hasattr(item, "callspec") else {}
    name, operator = str(chosen.get("engine_of_any_width", "")), chosen.get("operator")
    if name.startswith("cpu") and name != _own_width() and operator in OPERATORS:
        return EVERYTHING or operator in _tried_with_other_vectors()
    return chosen.get("dtype") not in FLOATS or chosen["dtype"] in _dtypes_of_width(item)


def _those_in_turn(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    """Of tests marked `in_turns` the cases whose turn it is, of fewer cases than turns all; every case of the others."""
    functions = [getattr(item, "function", item) for item in items]
    cases, numbers = Counter(functions), Counter[Any]()
    for item, function in zip(items, functions, strict=True):
        marked = item.get_closest_marker("in_turns") and cases[function] >= TURNS
        if not marked or is_in_turn(numbers[function], function.__name__):
            yield item
        numbers[function] += 1


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items[:] = filter(_takes_part, items)
    if not EVERYTHING and not any("::" in asked for asked in config.args):  # those are named
        items[:] = _those_in_turn(items)
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """All modules are there: a tenth of a second for each `gc.collect`, which none of them needs. Writing kernels makes many objects and
    hardly a cycle: a fifth of its time with the usual threshold."""
    gc.freeze()
    gc.set_threshold(20_000)
    gc.enable()
    atexit.register(gc.unfreeze)  # pytest's own collections are over; libraries would tell of leaks


@pytest.fixture(params=CPU_ENGINES)
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each engine for CPU memory in turn, chosen by name; what it declines, NumPy serves."""
    with openaclnn.use_engine(request.param):
        yield request.param


WIDTHS = (4, 8, 16)
"""FLOATs of a vector: NEON's, AVX2's, AVX-512's."""


def vectors_of(lanes: int) -> AbstractContextManager[None]:
    """The CPU engine's code as on a machine with such vectors, for calls that name the engine."""
    from openaclnn.engines.machine import host

    return host.vectors_of(lanes)


@pytest.fixture(
    params=[*(name for name in CPU_ENGINES if name != "cpu"), *(f"cpu{width}" for width in WIDTHS)]
)
def engine_of_any_width(request: pytest.FixtureRequest) -> Iterator[str]:
    """As `engine`; the CPU's with the vectors of each sort of machine."""
    name = request.param.rstrip("0123456789")
    with ExitStack() as stack:
        if name != request.param:
            stack.enter_context(vectors_of(int(request.param.removeprefix(name))))
        stack.enter_context(openaclnn.use_engine(name))
        yield name


@pytest.fixture
def of_another_width(request: pytest.FixtureRequest) -> bool:
    """Whether `engine_of_any_width` is the CPU's with vectors that this machine does not have."""
    name = str(request.node.callspec.params["engine_of_any_width"])
    return name.startswith("cpu") and name != _own_width()


@pytest.fixture
def dtypes_of_width(request: pytest.FixtureRequest) -> tuple[DType, ...]:
    """The dtypes to try with `engine_of_any_width`, for tests that go through them by themselves."""
    return _dtypes_of_width(request.node)


def plain(operator: Operator) -> Any:
    """The operator's plain function; one that works in place gets a copy of its argument, or `out` to work in."""
    function = getattr(openaclnn, operator.python_name)
    if not operator.output.in_place:
        return function
    name = operator.output.python_name

    def apart(operand: Any, out: Any = None, **options: Any) -> Any:
        if out is None:
            out = operand.clone() if hasattr(operand, "clone") else operand.copy()
        else:
            out[...] = operand
        return function(out, **options)

    return lambda *args, **kwargs: apart(*args or (kwargs.pop(name),), **kwargs)


def call_on(engine: str, operator: Operator, arguments: dict[str, Any]) -> Any:
    """The plain call on one engine, or on NumPy where that engine declines the plan."""
    try:
        return plain(operator)(**arguments)
    except openaclnn.AclnnError as error:
        if error.parameter != "engine":
            raise
    with openaclnn.use_engine("numpy"):
        return plain(operator)(**arguments)


def has_targets(operator: Operator) -> bool:
    """Whether a tensor of its is one of class indices."""
    return plan_of(operator, operator.samples[0].arrays()).targets >= 0


def has_halves(operator: Operator) -> bool:
    """Whether its operands are halves of tensors: their shapes are not the result's."""
    return plan_of(operator, operator.samples[0].arrays()).halved


def of_one_size(operator: Operator, arguments: dict[str, Any], classes: bool = False) -> bool:
    """Whether each size has a plan of its own, or, of `classes`, each number of them."""
    plan = plan_of(operator, arguments)
    return _has_size(plan) or (classes and plan.fixed_classes)


def _has_size(plan: Plan, module: Any = cpu) -> bool:
    """Whether an engine runs the plan for its sizes alone."""
    few = module.offer(plan)[1] if plan.steps and hasattr(module, "offer") else None
    return plan.fixed or bool(plan.steps and not (few and covered_elements(plan) < few.counts[1]))


@functools.cache
def lacks(operator: Operator, engine: str = "cpu", ability: str = "") -> str | None:
    """Why an engine does not serve the operator's first sample, or, with a class axis, not with an ability (`dynamic_shapes`,
    `dynamic_strides`)."""
    module = importlib.import_module(ENGINES[engine])
    plan = plan_of(operator, operator.samples[0].arrays())
    reason: str | None = module.declines(plan)
    if reason is None and ability and _has_size(plan, module):
        reason = f"a plan of {plan.kernel} is of one size"
    elif reason is None and plan.classes and ability and getattr(module, ability)(plan) is None:
        reason = f"{engine} has no {ability} for {plan.kernel}"
    return reason


@pytest.fixture
def any_size(request: pytest.FixtureRequest) -> None:
    """Skips tests of an operator, and says why, where the CPU engine has no kernel for it that runs any size and strides."""
    operator = getattr(request.node, "callspec", None) and request.node.callspec.params.get("operator")  # fmt: skip
    if isinstance(operator, Operator):
        for ability in ("dynamic_shapes", "dynamic_strides"):
            if reason := lacks(operator, "cpu", ability):
                pytest.skip(reason)


@pytest.fixture
def any_layout(request: pytest.FixtureRequest, any_size: None) -> None:
    """The same where plans of one size are known by their layouts: strided ones, and all of phase one."""
    operator = getattr(request.node, "callspec", None) and request.node.callspec.params.get("operator")  # fmt: skip
    if isinstance(operator, Operator):
        plan = plan_of(operator, operator.samples[0].arrays())
        if plan.shape_specific:
            pytest.skip(f"a plan of {plan.kernel} is known by its layout here")


def table_of(operator: Operator) -> tuple[Callable[[], dict[str, Any]], list[Mistake]]:
    """The operator's sound call and its mistakes."""
    data = data_of(operator)
    if not (hasattr(data, "sound") and hasattr(data, "MISTAKES")):
        place = f"tests/workloads/{operator.python_name}.py"
        pytest.fail(f"{operator.name} has no table of mistakes: {place} wants sound(), MISTAKES")
    return data.sound, data.MISTAKES


def whole(operator: Operator) -> dict[str, Any]:
    """The options with which an elementwise operator's result has the shape of its arguments."""
    options: dict[str, Any] = getattr(data_of(operator), "WHOLE", {})
    return options


def has_one_dtype(operator: Operator, output: DType, dtype: DType) -> bool:
    """Whether its output has the inputs' dtype, and this is another."""
    rules = [check.rule for check in operator.checks if operator.output.name in check.names]
    compared = any("has the dtype of" in rule or "the common dtype" in rule for rule in rules)
    return compared and output is not dtype


def tensor_names(operator: Operator) -> list[str]:
    """The Python names of the input tensors."""
    return [p.python_name for p in operator.parameters if p.is_read]


def spacing(values: Array, dtype: DType) -> Array:
    """The distance between neighbouring numbers of a dtype around float64 values."""
    info = ml_dtypes.finfo(dtype.numpy)
    smallest = float(info.smallest_normal)
    with np.errstate(divide="ignore", invalid="ignore"):
        exponent = np.floor(np.log2(np.maximum(np.abs(values), smallest)))
    return np.asarray(np.exp2(exponent) * float(info.eps))


def each(results: Any) -> list[Array]:
    """The arrays of a result, one or several; those that were computed."""
    return [out for out in results if out is not None] if isinstance(results, tuple) else [results]


def assert_same_bits(got: Any, expected: Any) -> None:
    for result, known in zip(each(got), each(expected), strict=True):
        assert (result.shape, result.dtype) == (known.shape, known.dtype)
        assert result.tobytes() == known.tobytes()


def assert_matches_oracle(
    operator: Operator, arguments: dict[str, Any], got: Any, compute: DType | None = None
) -> None:
    """Every element within what the formula itself loses in float32, plus the final rounding."""
    inputs = {k: v for k, v in arguments.items() if k != "out"}
    terms = _terms(operator, inputs)
    exact, naive = each(operator.oracle(**inputs)), each(naive_result(operator, inputs))
    for result, known, rough in zip(each(got), exact, naive, strict=True):
        _assert_close(operator, result, known, rough, terms, compute)


def _assert_close(
    operator: Operator, got: Array, exact: Array, naive: Array, terms: float, compute: DType | None
) -> None:
    output = dtype_of_numpy(got.dtype)
    assert output is not None
    assert got.shape == exact.shape
    if output.kind == "integer":
        np.testing.assert_array_equal(got, exact)
        return
    coarse = max(
        (d for d in (compute, output) if d is not None), key=lambda d: d.numpy.itemsize < 4
    )
    values = got.astype(np.float64)
    with np.errstate(all="ignore"):
        rounded = exact.astype(coarse.numpy).astype(np.float64)
        finite = np.isfinite(exact) & np.isfinite(rounded) & np.isfinite(naive)
        lost = np.abs(naive - exact)[finite].max(initial=0.0) + terms
        allowed = 0.5 * spacing(exact, coarse) + 4 * lost + spacing(exact, FLOAT)
        if coarse is output and output.itemsize == 4:
            allowed = allowed + spacing(exact, coarse)
        close = np.abs(values - exact) <= allowed
        same_special = (
            (np.isnan(values) & np.isnan(exact)) | (values == exact) | (values == rounded)
        )
        edge = np.isfinite(exact) & ~finite & np.isinf(values)  # overflow in float32 itself
    bad = ~(close | same_special | edge)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise AssertionError(
            f"{operator.name}: {int(bad.sum())} of {bad.size} elements off; first at {where}: "
            f"got {values[where]!r}, oracle {exact[where]!r}, allowed {allowed[where]!r}"
        )


def assert_matches_sample(operator: Operator, sample: Sample, got: Any) -> None:
    """Its very bits where they are known, else two units in the last place, and what the formula itself loses of one more."""
    if sample.exact:
        for result, known in zip(each(got), each(expected_of(sample, np.float32)), strict=True):
            assert_same_bits(result, known.astype(result.dtype))
        return
    exact, naive = operator.oracle(**sample.arrays()), naive_result(operator, sample.arrays())
    for result, known, rough in zip(each(got), each(exact), each(naive), strict=True):
        kind = dtype_of_numpy(result.dtype)
        assert kind in (FLOAT, FLOAT16, UINT8, INT32)
        unit = spacing(known, FLOAT16 if kind is FLOAT16 else FLOAT)
        allowed = 2 * unit + np.minimum(np.abs(rough - known), unit)
        assert (np.abs(result - known) <= allowed).all(), (sample.title, result)


def expected_of(sample: Sample, dtype: Any) -> Any:
    """What a sample expects, as an array or a tuple of those."""
    if isinstance(sample.expected, tuple):
        return tuple(np.asarray(values, dtype) for values in sample.expected)
    return np.asarray(sample.expected, dtype)


def _terms(operator: Operator, arguments: dict[str, Any]) -> float:
    """One rounding of the terms that a row's gradient is the difference of; all are linear in the gradient.

    Where they cancel exactly, the naive formula may lose nothing by luck, and its error says too little.
    """
    if operator.name == "aclnnMseLossOut":  # which rounds what it adds up
        sums = np.abs(operator.oracle(**arguments))
        return float(ml_dtypes.finfo(arguments["self"].dtype).eps) / 8 * sums.max(initial=0.0)
    if (
        operator.name == "aclnnFusedLinearCrossEntropyLossGrad"
    ):  # now and then it rounds them otherwise
        sizes = [np.abs(arguments[name].astype(np.float64)).max(initial=0.0) for name in ("grad", "input", "weight")]  # fmt: skip
        return float(ml_dtypes.finfo(arguments["input"].dtype).eps * sizes[0] * max(sizes[1:]) / 4)
    if operator.name == "aclnnFastGeluBackward":  # whose two terms cancel near its zero
        gradient = np.abs(arguments[operator.plain_parameters[0][0].python_name].astype(np.float64))
        return float(2.0**-25 * gradient[np.isfinite(gradient)].max(initial=0.0))
    if operator.reduction is None or operator.workloads.PATTERN != "rows":
        return 0.0
    gradient = arguments[operator.plain_parameters[0][0].python_name]
    sizes = [
        np.abs(np.asarray(v, np.float64))
        for v in (gradient, arguments.get("weight", 1.0))
        if v is not None
    ]
    return float(2.0**-25 * np.prod([size[np.isfinite(size)].max(initial=0.0) for size in sizes]))


def naive_result(operator: Operator, arguments: dict[str, Any]) -> Any:
    """The document's formula evaluated in float32, step by step."""
    values = operator.reference_arguments(**arguments)
    with np.errstate(all="ignore"):
        result = operator.reference(**values, work=np.float32)
    if isinstance(result, tuple):
        return tuple(None if array is None else array.astype(np.float64) for array in result)
    return result.astype(np.float64)


def confident(classes: int, gap: float) -> tuple[Array, dict[str, Any]]:
    """Rows of logits whose class, at either end or inside, is above all others: those classes, and cross entropy's arguments."""
    place = np.array([0, 1, classes // 2, classes - 1])
    x = np.zeros((4, classes), np.float32)
    x[np.arange(4), place] = gap
    return place, {"input": x, "target": place, "reduction": "none"}


def outliers(dtype: DType, classes: int) -> Iterator[dict[str, Any]]:
    """Arguments of smoothed cross entropy: rows of logits of which one class (the first, one inside, the last) or half of all
    lie far from the others, with weights, 0 for those or 1, and without."""
    rng = np.random.default_rng(classes)
    lowest = float(ml_dtypes.finfo(dtype.numpy).min)
    far = np.array([-1e4, max(-1e9, lowest), lowest, 1e4], np.float32)[:, None]
    for where in ({0}, {classes // 2}, {classes - 1}, set(range(0, classes, 2))):
        places = sorted(where)
        x = rng.normal(size=(len(far), classes)).astype(np.float32)
        x[:, places] = far
        beside = next(label for label in range(classes) if label not in where)
        case = {
            "input": x.astype(dtype.numpy), "target": np.full(len(far), beside), "reduction": "none",
            "label_smoothing": 0.1,
        }  # fmt: skip
        yield case
        for extreme in (0.0, 1.0):
            weight = (0.5 + rng.random(classes)).astype(np.float32)
            weight[places] = extreme
            yield case | {"weight": weight}


def reduced(number: int, dtype: DType) -> Iterator[tuple[int, str]]:
    """Rows of such a case to be computed alone, with reductions. Rows of 16 bits are reduced as those of FLOAT are: they are tried without."""
    if dtype is FLOAT or EVERYTHING:
        yield from ((number % 4, "mean"), ((number + 1) % 4, "sum"))


def assert_near_oracle(operator: Operator, case: dict[str, Any], loss: Any) -> None:
    """Each loss by itself, as near as its dtype can tell: beside others that are larger by far no digit may be lost."""
    exact, losses = operator.oracle(**case)[0], np.asarray(loss)
    with np.errstate(all="ignore"):
        rounded = exact.astype(np.float32).astype(losses.dtype).astype(np.float64)
    near = max(1e-6, 2 * float(ml_dtypes.finfo(losses.dtype).eps))
    np.testing.assert_allclose(losses.astype(np.float64), rounded, rtol=near)


def planned(operator: Operator, arguments: dict[str, Any]) -> tuple[Plan, tuple[int, ...]]:
    """The plan of a plain call with `out`, and the addresses that its runner takes."""
    call = bind_plain(operator, operator.plain_defaults | arguments, current_product())
    plan = operator.plan(call)
    return plan, tuple(tensor.address for tensor in plan_tensors(plan, call))


def bits(array: Array) -> Array:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def assert_same_but_nans(ours: Array, theirs: Array) -> None:
    """All bits alike, but for which NaN a NaN is: IEEE leaves its sign and payload open."""
    nans = np.isnan(theirs.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(ours.astype(np.float32)), nans)
    np.testing.assert_array_equal(np.where(nans, 0, bits(ours)), np.where(nans, 0, bits(theirs)))


SOURCE = str(Path(openaclnn.__file__).parents[1])


def run_python(
    program: str, *arguments: str, timeout: float = 120, **environment: str
) -> subprocess.CompletedProcess[str]:
    """A program in a process of its own, with the package's sources and these variables; it must end by itself, with status 0."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *arguments], capture_output=True, text=True, timeout=timeout, check=False,
        env=os.environ | {"PYTHONPATH": SOURCE} | environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done


CANARY = 0xA5


def fresh(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Memory full of a canary byte, so that an unwritten element shows."""
    memory = np.empty(shape, dtype)
    memory.view(np.uint8).reshape(-1)[...] = CANARY
    return memory


def laid_out(array: Array, layout: str) -> tuple[Array, Array]:
    """The same values in another layout, and the whole memory beneath."""
    shape, dtype = array.shape, array.dtype
    if layout == "contiguous" or array.ndim == 0:
        base = fresh((array.size + 3,), dtype)
        view = base[2 : 2 + array.size].reshape(shape)
    elif layout == "transposed":
        base = fresh(shape[::-1], dtype)
        view = base.transpose()
    elif layout == "sliced":
        base = fresh(tuple(2 * size + 1 for size in shape), dtype)
        view = base[tuple(slice(1, 2 * size + 1, 2) for size in shape)]
    elif layout == "reversed":
        base = fresh(shape, dtype)
        view = base[tuple(slice(None, None, -1) for _ in shape)]
    elif layout == "gaps in rows":
        base = fresh((*shape[:-1], shape[-1] + 5), dtype)
        view = base[..., 3 : 3 + shape[-1]]
    else:
        raise ValueError(layout)
    view[...] = array
    return view, base


LAYOUTS = ("contiguous", "transposed", "sliced", "reversed", "gaps in rows")


def in_layouts(cases: Sequence[dict[str, Any]], shift: int) -> Iterator[tuple[dict[str, Any], str]]:
    """Every case in a layout, and every layout with a case; of another `shift`, other pairs."""
    for place in range(max(len(cases), len(LAYOUTS))):
        yield cases[place % len(cases)], LAYOUTS[(place + shift) % len(LAYOUTS)]


@contextmanager
def told(*case: Any) -> Iterator[None]:
    """What fails says in which of a test's cases."""
    try:
        yield
    except Exception as error:
        error.add_note(f"with {', '.join(map(str, case))}")
        raise


@pytest.fixture
def fresh_device() -> Iterator[None]:
    """A runtime without a past, on device 0; everything it held is released after the test."""
    acl.aclInit(None)
    acl.aclFinalize()
    acl.aclrtSetDevice(0)
    yield
    acl.aclInit(None)
    acl.aclFinalize()
    acl.aclGetRecentErrMsg()


@pytest.fixture
def stream() -> Any:
    """A program's frame: init, device, stream, and everything released in the documented order."""
    assert acl.aclInit(None) == 0
    assert acl.aclrtSetDevice(0) == 0
    status, handle = acl.aclrtCreateStream()
    assert status == 0
    yield handle
    assert acl.aclrtDestroyStream(handle) == 0
    assert acl.aclrtResetDevice(0) == 0
    assert acl.aclFinalize() == 0


def device_tensor(array: np.ndarray) -> tuple[Any, int]:
    """A device copy of an array and its descriptor, as the documents' CreateAclTensor makes them."""
    size = max(array.nbytes, 1)
    status, address = acl.aclrtMalloc(size, acl.ACL_MEM_MALLOC_HUGE_FIRST)
    assert status == 0
    contiguous = np.ascontiguousarray(array)
    if array.nbytes:
        assert (
            acl.aclrtMemcpy(address, size, contiguous, array.nbytes, acl.ACL_MEMCPY_HOST_TO_DEVICE)
            == 0
        )
    strides = contiguous_strides(array.shape)
    dtype = dtype_of_numpy(array.dtype)
    assert dtype is not None
    tensor = acl.aclCreateTensor(
        array.shape, dtype.code, strides, 0, acl.ACL_FORMAT_ND, array.shape, address
    )
    assert tensor is not None
    return tensor, address


def read_back(address: int, like: np.ndarray) -> np.ndarray:
    result = np.empty_like(like)
    assert (
        acl.aclrtMemcpy(
            result, result.nbytes, address, result.nbytes, acl.ACL_MEMCPY_DEVICE_TO_HOST
        )
        == 0
    )
    return result


def places_for(operator: Operator, arguments: dict[str, Any]) -> Iterator[Array]:
    """Memory for each output in C order, those that are not computed too."""
    call = bind_plain(operator, operator.plain_defaults | arguments, current_product())
    for shape, dtype in operator.results(call):
        yield np.full(shape, np.nan if dtype.kind == "floating" else 85, dtype.numpy)


def document_program(operator: Operator) -> tuple[list[Any], list[int], list[int], Any]:
    """The document's example up to phase one: its arguments, the device addresses, which of those are outputs', the
    result to expect."""
    inputs = operator.samples[0].arrays()
    expected = plain(operator)(**inputs)
    places = places_for(operator, inputs)
    arguments, addresses, outputs = [], [], []
    for parameter in operator.parameters:
        value = inputs.get(parameter.python_name, parameter.default)
        if parameter.kind is Kind.OUTPUT:
            outputs.append(len(addresses))
            if not parameter.in_place:
                value = next(places)
        if parameter.is_tensor and value is not None:
            value, address = device_tensor(np.asarray(value))
            addresses.append(address)
        elif parameter.kind is Kind.SCALAR:
            value = acl.aclCreateScalar(np.float32(value), acl.ACL_FLOAT)
        elif parameter.choices and parameter.kind is Kind.INT64:
            value = parameter.choices.index(value)
        arguments.append(value)
    return arguments, addresses, outputs, expected
