"""Row formulas on the CPU engine, against NumPy's evaluation of the same graph in float64."""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("llvmlite")

import openaclnn.engines.formulas.softmax
import step_formulas  # noqa: F401
from openaclnn.core.dtypes import dtype_of_numpy
from openaclnn.core.plan import Free, Plan, class_plan
from openaclnn.core.tensor import Tensor
from openaclnn.engines import cpu
from openaclnn.engines.cpu.classes.row_formulas import RowKernel
from openaclnn.engines.cpu.classes.row_passes import Schedule
from openaclnn.engines.formulas.rows import (
    ROW_FORMULAS,
    PerClass,
    PerRow,
    Row,
    RowFormula,
    Target,
    at,
    described,
    is_counted,
    is_target,
    largest,
    total,
)
from openaclnn.engines.formulas.words import (
    abs,
    erf,
    exp,
    expm1,
    log,
    log1p,
    sigmoid,
    sign,
    sqrt,
    tanh,
    where,
)
from openaclnn.engines.machine.host import machine, written_for
from openaclnn.engines.numpy.rows import evaluate
from workloads import EVERYTHING as EVERY_DTYPE

Array = np.ndarray[Any, Any]
BF16 = ml_dtypes.bfloat16
DTYPES = [np.float32, np.float16, BF16]
EPSILON = {np.float32: 2.0**-23, np.float16: 2.0**-10, BF16: 2.0**-7}


def everything(
    x: Row, weight: PerClass, share: PerRow, target: Target, y: Row, *, scale: float, flipped: bool
) -> tuple[Row, PerRow, Row, PerRow]:
    """A formula with each kind of operand, and reductions of three levels."""
    top = largest(x * scale)
    powers = exp(x * scale - top)
    whole = total(powers)
    mean = total(weight * y) / total(weight * weight)
    spread = total((y - mean) * (y - mean) * powers / whole)
    hit = where(is_counted(target), at(y, target) + at(powers, target) / whole, -1.0)
    row = where(is_target(target), tanh(y), powers / whole * weight) * share
    if flipped:
        row = row - spread
    return row, log(whole) + share, weight * y - mean, hit + spread


def words_of_numbers(x: Row, *, scale: float) -> tuple[Row, Row]:
    """Words that a row's numbers have in FLOAT alone, or in FLOAT64."""
    mean = total(x) * scale
    return x * sigmoid(mean) + erf(mean), sqrt(abs(mean)) + expm1(mean) + log1p(mean * mean) + sign(
        mean
    )


def kept_before_powers(x: Row) -> tuple[Row, PerRow]:
    """What one loop keeps for the next is computed again where rows are long, from the operand."""
    heavy = tanh(x)
    powers = exp(heavy - largest(heavy))
    return powers / total(powers), largest(heavy) + log(total(powers))


def scaled_backward(gradient: Row, result: Row, *, scale: float) -> Row:
    """A number of the call's beside a total."""
    return gradient * scale - result * (total(gradient) * scale)


EVERYTHING = described(everything)


def kernel_of(formula: RowFormula) -> RowKernel:
    return RowKernel(formula)


def planned(
    formula: RowFormula, inputs: Sequence[Array], outputs: Sequence[Array], axis: int, numbers: dict[str, Any]
) -> tuple[Plan, tuple[int, ...]]:  # fmt: skip
    tensors = [Tensor.from_numpy(array) for array in (*inputs, *outputs)]
    roles = list(zip(formula.operands, formula.roles, strict=True))
    results = formula.graph(numbers).results
    taken = [
        (name, tensor, role) for ((name, _), role), tensor in zip(roles, tensors, strict=False)
    ]
    written = [
        (f"out{number}", tensor, "full" if "c" in node.axes else "positions")
        for number, (node, tensor) in enumerate(zip(results, tensors[len(inputs) :], strict=True))
    ]
    shape = next(tensor.shape for _, tensor, role in taken if role == "full")
    targets = next(
        (place for place, (_, kind) in enumerate(formula.operands) if kind == "Target"), -1
    )
    plan = class_plan(
        "", formula.name, tensors[len(inputs)].dtype, taken, written, shape, axis % len(shape), targets, numbers
    )  # fmt: skip
    return plan, tuple(tensor.address for tensor in tensors)


def computed(
    formula: RowFormula, inputs: Sequence[Array], outputs: Sequence[Array], axis: int, numbers: dict[str, Any]
) -> int:  # fmt: skip
    plan, addresses = planned(formula, inputs, outputs, axis, numbers)
    kernel = kernel_of(formula)
    assert kernel.declines(plan) is None
    return kernel.runner(plan)(addresses, 0)


def expected(
    formula: RowFormula, inputs: Sequence[Array], axis: int, numbers: dict[str, Any]
) -> list[Array]:
    graph = formula.graph(numbers)
    kinds = [kind for _, kind in formula.operands]
    shape = inputs[kinds.index("Row")].shape
    axis %= len(shape)
    block: dict[str, Array] = {}
    for (name, kind), array in zip(formula.operands, inputs, strict=True):
        wide = array.astype(np.int64 if kind == "Target" else np.float64)
        rows = np.moveaxis(wide, axis, -1) if kind == "Row" else wide
        columns = 1 if kind in ("PerRow", "Target") else shape[axis]
        block[name] = rows.reshape(-1, columns)
    positions = shape[:axis] + shape[axis + 1 :]
    with np.errstate(all="ignore"):
        compute = dtype_of_numpy(inputs[kinds.index("Row")].dtype)
        assert compute is not None
        results = evaluate(graph, block, numbers, np.float64, compute)
    return [
        np.moveaxis(values.reshape(*positions, shape[axis]), -1, axis)
        if "c" in node.axes
        else values.reshape(positions)
        for values, node in zip(results, graph.results, strict=True)
    ]


def drawn(
    formula: RowFormula, shape: tuple[int, ...], axis: int, dtype: Any, seed: int = 0
) -> tuple[list[Array], list[Array], dict[str, Any]]:
    rng = np.random.default_rng(seed)
    axis %= len(shape)
    positions = shape[:axis] + shape[axis + 1 :]
    inputs = []
    for _, kind in formula.operands:
        if kind == "Target":
            target = rng.integers(0, shape[axis], positions)
            inputs.append(np.where(rng.random(positions) < 0.2, -7, target))
        else:
            size = {"Row": shape, "PerRow": positions, "PerClass": shape[axis : axis + 1]}[kind]
            # Numbers a row as the largest of its logits are, or sums: powers of what is above would have the error of a difference.
            width, middle = (0.5, 2.0) if kind == "PerRow" else (2.0, -0.5)
            inputs.append(np.asarray(rng.standard_normal(size) * width + middle).astype(dtype))
    numbers: dict[str, Any] = {
        "ignore_index": -7,
        "first_class": 0,
        **dict.fromkeys(formula.numbers, 0.75),
    }
    numbers |= dict.fromkeys(formula.switches, True)
    results = formula.graph(numbers).results
    outputs = [np.full(shape if "c" in node.axes else positions, np.nan, dtype) for node in results]
    return inputs, outputs, numbers


def assert_close(got: Array, wanted: Array, dtype: Any, what: Any = "") -> None:
    """Half an ulp of the dtype, and some of FLOAT at the size of the largest: terms cancel in some formulas."""
    assert not np.isnan(got.astype(np.float64)).any() or np.isnan(wanted).any(), what
    scale = np.nanmax(np.abs(wanted), initial=0.0)
    # Arguments of exponentials are rounded, whose results show it; a logarithm of about 1 is off by its ulps.
    bound = 8 * EPSILON[np.float32] * scale + 2.0**-21
    if dtype is not np.float32:
        smallest = 2.0**-24 if dtype is np.float16 else 2.0**-133
        bound = bound + np.maximum(0.5 * EPSILON[dtype] * np.abs(wanted), smallest)
    with np.errstate(all="ignore"):
        beyond = np.isinf(wanted.astype(dtype)) & (got == wanted.astype(dtype))
        beyond |= np.isnan(wanted) & np.isnan(got.astype(np.float64))
        assert (beyond | (np.abs(got.astype(np.float64) - wanted) <= bound)).all(), what


FORMULAS = [
    *(
        (formula, dtype)
        for place, formula in enumerate(ROW_FORMULAS.values())
        for dtype in (
            DTYPES if EVERY_DTYPE else (np.float32, DTYPES[1 + place % 2])[: 2 - place % 2]
        )
    ),
    (EVERYTHING, np.float32),
    (described(words_of_numbers), np.float32),
    (described(kept_before_powers), np.float32),
]
# By the code that walks them. Short rows and planes, of several blocks too, and smaller than a vector; rows in groups; long rows.
SHAPES = [
    [((70, 3), 1), ((2, 30, 40), 1), ((2, 2500, 19), 1), ((9, 60, 5), 1), ((2, 300, 20), 1), ((21, 4, 5), 0), ((1, 1), 1), ((64, 1, 3), 1)],
    [((5, 100), 1), ((40, 17), 1), ((2, 3, 4, 50), -1), ((130,), 0)],
    [((3, 20000), 1), ((3, 700), 1)],
]  # fmt: skip


@pytest.mark.parametrize(
    ("formula", "dtype"), FORMULAS, ids=lambda one: getattr(one, "name", None) or one.__name__
)
@pytest.mark.in_turns
def test_formulas_are_numpys(formula: RowFormula, dtype: Any) -> None:
    """In float32 of every shape; the dtypes of 16 bits share the shapes, a third each, and formulas that their operators' tests try in both."""
    shapes = SHAPES
    if dtype is not np.float32 and not EVERY_DTYPE:
        shapes = SHAPES[[*ROW_FORMULAS].index(formula.name) % len(SHAPES) :][:1]
    for shape, axis in itertools.chain(*shapes):
        inputs, outputs, numbers = drawn(formula, shape, axis, dtype)
        assert computed(formula, inputs, outputs, axis, numbers) == 0
        for got, wanted in zip(outputs, expected(formula, inputs, axis, numbers), strict=True):
            assert_close(got, wanted, dtype, (shape, axis))


def _laid(array: Array, how: str) -> Array:
    """The same numbers, lying otherwise."""
    if how == "transposed":
        return np.ascontiguousarray(array.T).T
    if how == "misaligned":
        place = np.empty(array.size + 1, array.dtype)[1:].reshape(array.shape)
    else:
        room = np.zeros([3 * size + 1 for size in array.shape], array.dtype)
        steps = {"apart": (2, 3), "backwards": (-1, -2)}[how]
        place = room
        for axis, size in enumerate(array.shape):
            step = steps[axis % 2]
            taken = slice(1, 1 + step * size, step) if step > 0 else slice(-step * size, 0, step)
            place = place[(slice(None),) * axis + (taken,)]
    place[...] = array
    return place


LAYOUTS = ["transposed", "misaligned", "apart", "backwards"]
LAID_SHAPES = [((20, 70), 1), ((3, 60, 18), 1), ((6, 21, 5), 1), ((3, 9000), 1), ((33, 6), -1)]


@pytest.mark.parametrize("dtype", [np.float32, BF16], ids=["f32", "bf16"])
@pytest.mark.parametrize("how", LAYOUTS)
def test_layouts_have_the_same_results(how: str, dtype: Any) -> None:
    few = [ROW_FORMULAS["softmax"], ROW_FORMULAS["softmax_backward"]]
    for formula in few if dtype is BF16 else (*few, EVERYTHING):
        for shape, axis in LAID_SHAPES:
            inputs, outputs, numbers = drawn(formula, shape, axis, dtype, 1)
            wanted = expected(formula, inputs, axis, numbers)
            for moved_inputs, moved_outputs in ((True, False), (False, True), (True, True)):
                taken = [_laid(array, how) if moved_inputs else array for array in inputs]
                written = [_laid(array, how) if moved_outputs else array.copy() for array in outputs]  # fmt: skip
                assert computed(formula, taken, written, axis, numbers) == 0
                for got, result in zip(written, wanted, strict=True):
                    assert_close(got, result, dtype, (formula.name, shape))


def test_rows_together_have_the_bits_of_rows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("softmax", "softmax_backward", "cross_entropy_weighted_step"):
        formula = ROW_FORMULAS[name]
        for shape in ((6, 64), (9, 117), (2, 3, 67)):
            inputs, outputs, numbers = drawn(formula, shape, -1, np.float32)
            alone = [array.copy() for array in outputs]
            assert computed(formula, inputs, outputs, -1, numbers) == 0
            with monkeypatch.context() as patched:
                patched.setattr(Schedule, "grouped", (1, 0))
                patched.setattr(Schedule, "short", 1)
                assert computed(formula, inputs, alone, -1, numbers) == 0
            for got, wanted in zip(outputs, alone, strict=True):
                assert got.tobytes() == wanted.tobytes(), (name, shape)


@pytest.mark.parametrize("dtype", [np.float32, BF16], ids=["f32", "bf16"])
def test_runs_of_positions_have_the_bits_of_vectors(monkeypatch: pytest.MonkeyPatch, dtype: Any) -> None:  # fmt: skip
    known = [ROW_FORMULAS[name] for name in ("softmax_backward", "log_softmax_backward")]
    for formula in (*known, described(scaled_backward)):
        for shape in ((1, 3, 64), (2, 5, 1027), (3, 150, 75), (1, 19, 5000)):
            inputs, outputs, numbers = drawn(formula, shape, 1, dtype)
            name = formula.name
            vectors = [array.copy() for array in outputs]
            assert computed(formula, inputs, outputs, 1, numbers) == 0
            with monkeypatch.context() as patched:
                patched.setattr(Schedule, "takes_runs", False)
                assert computed(formula, inputs, vectors, 1, numbers) == 0
            assert outputs[0].tobytes() == vectors[0].tobytes(), (name, shape)
            assert computed(formula, inputs, inputs[:1], 1, numbers) == 0
            assert outputs[0].tobytes() == inputs[0].tobytes(), (name, shape)


def test_broadcast_rows_and_classes() -> None:
    formula = ROW_FORMULAS["softmax_backward"]
    for shape in ((20, 70), (40, 5)):
        gradient = np.random.default_rng(2).standard_normal(shape[1], np.float32)
        result = np.random.default_rng(3).random((shape[0], 1), np.float32)
        inputs = [np.broadcast_to(gradient, shape), np.broadcast_to(result, shape)]
        out = np.empty(shape, np.float32)
        computed(formula, inputs, [out], 1, {})
        assert_close(out, expected(formula, inputs, 1, {})[0], np.float32)


@pytest.mark.parametrize("shape", [(7, 90), (40, 5), (3, 20000)], ids=str)
def test_results_may_take_the_place_of_an_operand(shape: tuple[int, ...]) -> None:
    for name in ("softmax", "log_softmax_backward"):
        formula = ROW_FORMULAS[name]
        for axis in (0, 1):
            inputs, outputs, numbers = drawn(formula, shape, axis, np.float32)
            computed(formula, inputs, outputs, axis, numbers)
            computed(formula, inputs, inputs[:1], axis, numbers)
            assert inputs[0].tobytes() == outputs[0].tobytes()


@pytest.mark.parametrize("classes", [5, 100, 20000])
def test_special_values_are_numpys(classes: int) -> None:
    rng = np.random.default_rng(4)
    x = rng.standard_normal((8, classes), np.float32)
    x[0, 3] = math.nan
    x[1, 1] = math.inf
    x[2, :] = -math.inf
    x[3, : classes - 1] = -math.inf
    x[4, 1] = -math.inf
    x[5, :] = 3e38
    x[6, 0], x[6, 1:] = 3e38, -3e38
    for name in ("softmax", "log_softmax"):
        formula = ROW_FORMULAS[name]
        for axis, array in ((1, x), (0, np.ascontiguousarray(x.T))):
            out = np.empty_like(array)
            computed(formula, [array], [out], axis, {})
            (wanted,) = expected(formula, [array], axis, {})
            with np.errstate(over="ignore"):
                wanted = wanted.astype(np.float32)  # -6e38 is infinite
            assert (np.isnan(out) == np.isnan(wanted)).all(), (name, axis)
            np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-30)


KEPT = 24
MANY_KEPT = """from __future__ import annotations
from openaclnn.engines.formulas.rows import Row, total
from openaclnn.engines.formulas.words import tanh

def many_kept(x: Row) -> Row:
"""


def test_values_that_have_no_room_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A formula with more values for each class than the frame keeps of four rows."""
    names = [f"t{number}" for number in range(KEPT)]
    lines = [f"{name} = tanh(x * {number + 1}.0)" for number, name in enumerate(names)]
    lines += [f"whole = total({' + '.join(names)})", f"return {' - '.join(names)} * whole"]
    (tmp_path / "many_kept.py").write_text(MANY_KEPT + "".join(f"    {line}\n" for line in lines))
    monkeypatch.syspath_prepend(tmp_path)
    formula = described(importlib.import_module("many_kept").many_kept)
    assert len(Schedule(formula.graph({})).saved) == KEPT
    for classes in (30, 100, 200, 256, 257):
        inputs, outputs, numbers = drawn(formula, (9, classes), 1, np.float32)
        assert computed(formula, inputs, outputs, 1, numbers) == 0
        for got, wanted in zip(outputs, expected(formula, inputs, 1, numbers), strict=True):
            assert_close(got, wanted, np.float32, classes)


def test_strange_targets_are_reported() -> None:
    formula = ROW_FORMULAS["cross_entropy_step"]
    for shape, kind in (((20, 60), np.int64), ((40, 5), np.int32)):
        inputs, outputs, numbers = drawn(formula, shape, 1, np.float32)
        inputs[1] = inputs[1].astype(kind)
        assert computed(formula, inputs, outputs, 1, numbers) == 0
        for stray in (shape[1], -1):
            inputs[1][3] = stray
            assert computed(formula, inputs, outputs, 1, numbers) == 1
            assert (outputs[0][3] == 0).all()
            assert outputs[1][3] == 0


def test_more_digits_than_float_has() -> None:
    """A sum of many, and a logarithm near 1."""
    formula = ROW_FORMULAS["log_softmax"]
    for lanes in (4, 16):
        with written_for(machine()._replace(lanes=lanes)):
            for classes in (3, 1000, 50000):
                rng = np.random.default_rng(5)
                x = np.round(rng.random((3, classes)) * 512).astype(np.float32) / 512
                x[1, 0] = 12
                x[2, 0] = 16
                out = np.empty_like(x)
                computed(formula, [x], [out], 1, {})
                (wanted,) = expected(formula, [x], 1, {})
                error = np.abs(out - wanted) / np.spacing(np.abs(wanted.astype(np.float32)))
                assert error.max() <= 2, (lanes, classes)


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_other_vectors_compute_the_same(lanes: int) -> None:
    formula = ROW_FORMULAS["softmax_cross_entropy"]
    registers = 32 if lanes == 16 else 16
    with written_for(machine()._replace(lanes=lanes, registers=registers)):
        for shape, axis in (((5, 160), 1), ((40, 17), 1), ((9, 60, 5), 1), ((2, 2500, 19), 1)):
            inputs, outputs, numbers = drawn(formula, shape, axis, np.float32)
            computed(formula, inputs, outputs, axis, numbers)
            wanted = expected(formula, inputs, axis, numbers)
            for got, result in zip(outputs, wanted, strict=True):
                assert_close(got, result, np.float32, (shape, axis))


def test_engine_knows_row_formulas() -> None:
    x = np.ones((3, 4), np.float32)
    plan, addresses = planned(ROW_FORMULAS["softmax"], [x], [x], 1, {})
    assert cpu.declines(plan) is None
    assert cpu.prepare(plan)(addresses, 0) == 0
    assert (x == 0.25).all()


def test_any_number_of_axes() -> None:
    formula = ROW_FORMULAS["log_softmax"]
    rng = np.random.default_rng(6)
    held = rng.standard_normal((3, 4, 3, 4, 5, 4, 3, 6), np.float32)
    x = held[::2, ::-2, ::2, ::2, :, ::2, ::2, ::3]
    for axis in range(8):
        out = np.empty(x.shape, np.float32)
        computed(formula, [x], [out], axis, {})
        wanted = expected(formula, [x], axis, {})[0]
        assert_close(out, wanted, np.float32, axis)
        # What serves any strides may be made for a plan of so many axes.
        assert_close(openaclnn.log_softmax(x, dim=axis), wanted, np.float32, axis)


@pytest.mark.parametrize("name", ["softmax", "everything"])
def test_one_runner_serves_other_shapes(name: str) -> None:
    formula = {**ROW_FORMULAS, "everything": EVERYTHING}[name]
    kernel = kernel_of(formula)
    for axis, shapes in {
        0: [(5, 3), (100, 2), (1, 1), (300, 40)],
        1: [(4, 3, 2), (3, 200, 1), (2, 30, 50), (1, 2500, 20)],
        2: [(2, 3, 5), (7, 1, 200), (40, 2, 3)],
    }.items():
        inputs, outputs, numbers = drawn(formula, shapes[0], axis, np.float32)
        plan, _ = planned(formula, inputs, outputs, axis, numbers)
        plan.free = tuple(Free(number) for number in formula.numbers)
        run = kernel.dynamic_shapes(plan)
        assert run is not None
        for shape in shapes:
            inputs, outputs, numbers = drawn(formula, shape, axis, np.float32)
            free = tuple([number + 0.25 for number in map(numbers.get, formula.numbers)])
            numbers |= dict(zip(formula.numbers, free, strict=True))
            _, addresses = planned(formula, inputs, outputs, axis, numbers)
            assert run(addresses, 0, shape, free) == 0
            for got, wanted in zip(outputs, expected(formula, inputs, axis, numbers), strict=True):
                assert_close(got, wanted, np.float32, shape)


def test_one_runner_serves_other_strides() -> None:
    formula = ROW_FORMULAS["softmax_backward"]
    run = None
    for shape, axis, how in (
        ((20, 70), 1, "apart"), ((20, 200), 1, "transposed"), ((5, 3), 0, "misaligned"), ((2, 3, 4, 3, 2, 5), 2, "backwards"),
    ):  # fmt: skip
        inputs, outputs, numbers = drawn(formula, shape, axis, np.float32)
        inputs = [_laid(array, how) for array in inputs]
        plan, addresses = planned(formula, inputs, outputs, axis, numbers)
        run = run or kernel_of(formula).dynamic_strides(plan)
        offsets = [operand.offset * operand.dtype.itemsize for operand in plan.operands]
        places = tuple(address + offset for address, offset in zip(addresses, offsets, strict=True))
        steps = [(*operand.strides, operand.class_stride) for operand in plan.operands]
        sizes = (*plan.shape, plan.classes)
        assert run(places, 0, sizes, tuple(step for one in steps for step in one), ()) == 0
        assert_close(outputs[0], expected(formula, inputs, axis, numbers)[0], np.float32, shape)


@pytest.fixture
def threads() -> Iterator[None]:
    before = openaclnn.get_num_threads()
    yield
    openaclnn.set_num_threads(before)


@pytest.mark.usefixtures("threads")
def test_threads_compute_the_same_bits() -> None:
    formula = ROW_FORMULAS["softmax"]
    for shape, axis in (((300, 999), 1), ((3, 700, 100), 1), ((5000, 7), 1), ((5, 60000), 1)):
        (x,), (out,), _ = drawn(formula, shape, axis, np.float32)
        bits = set()
        for many in (1, 2, 5):
            openaclnn.set_num_threads(many)
            computed(formula, [x], [out], axis, {})
            bits.add(out.tobytes())
            out[...] = 0
        assert len(bits) == 1, shape


@pytest.mark.parametrize("smooths", [False, True])
def test_steps_of_cross_entropy_are_its_loss_and_gradient(smooths: bool) -> None:
    """Against the losses' definition in float64."""
    formula = ROW_FORMULAS["cross_entropy_weighted_step"]
    for shape in ((12, 7), (9, 200)):
        (x, target, weight, share), outputs, numbers = drawn(formula, shape, 1, np.float32)
        weight = np.abs(weight)
        smoothing = numbers["smoothing"] = 0.25 if smooths else 0.0
        numbers["smooths"] = smooths
        computed(formula, [x, target, weight, share], outputs, 1, numbers)
        wide = x.astype(np.float64)
        powers = np.exp(wide - wide.max(1, keepdims=True))
        log_prob = np.log(powers / powers.sum(1, keepdims=True))
        hit = np.arange(shape[1]) == target[:, None]
        parts = weight * ((1 - smoothing) * hit + smoothing / shape[1])
        counted = (target >= 0)[:, None]
        loss = -(parts * log_prob).sum(1, keepdims=True) * counted
        gradient = (
            (np.exp(log_prob) * parts.sum(1, keepdims=True) - parts) * share[:, None] * counted
        )
        assert_close(outputs[0], gradient, np.float32, shape)
        assert_close(outputs[1], loss[:, 0], np.float32, shape)
