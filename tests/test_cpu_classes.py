"""The CPU engine's kernels with a class axis, against the float64 oracle and the NumPy engine's results."""

from __future__ import annotations

import ctypes
import itertools
import mmap
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import openaclnn
from conftest import (
    CANARY,
    LAYOUTS,
    WIDTHS,
    assert_matches_oracle,
    assert_same_but_nans,
    bits,
    fresh,
    laid_out,
    planned,
    spacing,
    vectors_of,
)
from openaclnn.core.dtypes import BFLOAT16, FLOAT, FLOAT16, FLOATS, DType, dtype_of_numpy
from openaclnn.core.plan import Plan
from openaclnn.engines import cpu, numpy as numpy_engine
from openaclnn.engines.cpu.classes import nll_gradient as nll, row_passes
from openaclnn.engines.cpu.launching import pool
from openaclnn.engines.cpu.registry import KERNELS, Runner
from openaclnn.operators import find_operator
from workloads import cases_to_compile

Array = np.ndarray[Any, Any]
CROSS_ENTROPY, NLL = (find_operator(n) for n in ("cross_entropy_loss_grad", "nll_loss2d_backward"))
BOTH = pytest.mark.parametrize("operator", [CROSS_ENTROPY, NLL], ids=lambda op: op.python_name)
DTYPES = pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.name)
INT64 = np.iinfo(np.int64)
THREADS = (1, 2, 3, 4)
FEW_AND_MANY = (40, 60)  # classes: of vectors of positions, and of rows
MAP_NORESERVE = 0x4000  # Linux; Python 3.13 names it


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """NumPy's own arithmetic on infinities is not what is tested here."""
    threads = pool.get_num_threads()
    with np.errstate(all="ignore"):
        yield
    openaclnn.set_num_threads(threads)


def run(operator: Any, out: Array, arguments: dict[str, Any]) -> int:
    """Run our kernel into `out`; its status."""
    plan, addresses = planned(operator, arguments | {"out": out})
    assert cpu.declines(plan) is None
    return runner_of(plan)(addresses, 0)


def runner_of(plan: Plan) -> Runner:
    return KERNELS[plan.kernel].runner(plan)


def shape_of(arguments: dict[str, Any]) -> tuple[int, ...]:
    shape: tuple[int, ...] = arguments["log_prob" if "log_prob" in arguments else "self"].shape
    return shape


def result(operator: Any, arguments: dict[str, Any], dtype: DType, status: int = 0) -> Array:
    """Our kernel's output in fresh memory."""
    out = fresh(shape_of(arguments), dtype.numpy)
    assert bool(run(operator, out, arguments)) == bool(status)
    return out


def expected(operator: Any, arguments: dict[str, Any], dtype: DType) -> Array:
    """What the NumPy engine writes."""
    out = fresh(shape_of(arguments), dtype.numpy)
    plan, addresses = planned(operator, arguments | {"out": out})
    numpy_engine.prepare(plan)(addresses, 0)
    return out


def assert_same_kind(case: dict[str, Any], got: Array) -> None:
    """NaN, infinities and zeros as NumPy has them, other values within the kernel's roundings of the oracle's.

    A row is p - s: p = factor * exp(logProb), s = smooth * weight. Where they cancel, what they lost on the way
    stays: p half an ulp for the factor, one for exp, half for the product; s half an ulp for its slope.
    """
    dtype = dtype_of_numpy(got.dtype)
    assert dtype is not None
    wanted = expected(CROSS_ENTROPY, case, dtype).astype(np.float64)
    values, exact = got.astype(np.float64), CROSS_ENTROPY.oracle(**case)
    np.testing.assert_array_equal(np.isnan(values), np.isnan(wanted))
    special = np.isnan(wanted) | np.isinf(wanted) | (wanted == 0)
    np.testing.assert_array_equal(values[special], wanted[special])
    smooth = case["grad_loss"].astype(np.float64) * case["label_smoothing"] / got.shape[1]
    s = np.abs(np.outer(smooth, case.get("weight", np.ones(got.shape[1]))))
    p = np.abs(exact) + s
    lost = np.finfo(np.float32).eps * (2 * p + 0.5 * s)
    if dtype is not FLOAT:  # the difference is rounded twice
        lost += 0.5 * spacing(exact, FLOAT)
    allowed = lost + 0.5 * spacing(exact, dtype)
    off = np.abs(values - exact)
    bad = ~special & ~(off <= allowed)
    assert not bad.any(), f"off by {off[bad][0]} where {allowed[bad][0]} is allowed"


def rows(
    dtype: DType, count: int = 7, classes: int = 13, seed: int = 0, **options: Any
) -> dict[str, Any]:
    """A cross entropy call: about a fifth of the rows ignored, per-row gradients unless reduced."""
    rng = np.random.default_rng(seed)
    logits = 3 * rng.standard_normal((count, classes))
    log_prob = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    target = rng.integers(0, classes, count)
    target[rng.random(count) < 0.2] = -100
    reduction = options.get("reduction", "none")
    gradient = rng.standard_normal(count) if reduction == "none" else np.asarray(0.75)
    return {
        "grad_loss": gradient.astype(dtype.numpy),
        "log_prob": log_prob.astype(dtype.numpy),
        "target": target,
        "reduction": "none",
        **options,
    }


def pixels(
    dtype: DType, shape: tuple[int, ...] = (2, 5, 6, 9), seed: int = 0, **options: Any
) -> dict[str, Any]:
    """A call with targets partly alike in runs, partly random, some of them ignored."""
    rng = np.random.default_rng(seed)
    batch, classes, height, width = shape
    target = rng.integers(0, classes, (batch, height, width))
    target[:, : height // 2] = target[:, :1, :1]
    target[rng.random(target.shape) < 0.1] = -100
    reduction = options.get("reduction", "none")
    size = target.shape if reduction == "none" else (1,)
    return {
        "grad_output": rng.standard_normal(size).astype(dtype.numpy),
        "self": np.zeros(shape, dtype.numpy),
        "target": target,
        "weight": (0.5 + rng.random(classes)).astype(dtype.numpy),
        "reduction": "none",
        **options,
    }


@BOTH
@DTYPES
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_case_in_every_layout(operator: Any, dtype: DType, layout: str) -> None:
    for case in cases_to_compile(operator, np.random.default_rng(3), dtype):
        moved = {
            name: laid_out(value, layout)[0] if isinstance(value, np.ndarray) else value
            for name, value in case.items()
        }
        out, memory = laid_out(np.zeros(shape_of(case), dtype.numpy), layout)
        memory.view(np.uint8).reshape(-1)[...] = CANARY
        assert run(operator, out, moved) == 0
        assert_matches_oracle(operator, case, out)
        assert_same_but_nans(out, result(operator, case, dtype))
        out[...] = np.frombuffer(bytes([CANARY] * dtype.itemsize), dtype.numpy)[0]
        assert (memory.view(np.uint8) == CANARY).all(), "a gap was written"


@DTYPES
@pytest.mark.parametrize("wide", [3, 5, 21])
def test_channels_last_and_mixed_layouts(dtype: DType, wide: int) -> None:
    case = pixels(dtype, (2, wide, 7, 11))
    wanted = expected(NLL, case, dtype)
    for order in ((0, 2, 3, 1), (1, 0, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)):
        memory = fresh(tuple(wanted.shape[axis] for axis in order), dtype.numpy)
        out = memory.transpose(np.argsort(order))
        assert run(NLL, out, case) == 0
        assert_same_but_nans(out, wanted)


@DTYPES
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.in_turns
def test_class_counts_around_vector_widths(dtype: DType, smoothing: float, weighted: bool) -> None:
    for count in (*range(1, 71), 1023, 1024, 1025, 2100):
        case = rows(dtype, 3, count, seed=count, label_smoothing=smoothing)
        if weighted:
            case["weight"] = (0.5 + np.random.default_rng(1).random(count)).astype(np.float32)
        assert_matches_oracle(CROSS_ENTROPY, case, result(CROSS_ENTROPY, case, dtype))


@DTYPES
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_pixel_classes_and_widths_give_numpys_bits(dtype: DType, reduction: str) -> None:
    for count in (1, 2, 3, 7, 8, 9, 21):
        for width in (1, 3, 8, 15, 16, 31, 32, 33, 70):
            case = pixels(dtype, (2, count, 2, width), seed=width, reduction=reduction)
            assert_same_but_nans(result(NLL, case, dtype), expected(NLL, case, dtype))


@DTYPES
@pytest.mark.parametrize("cache", [0, 1 << 20, 1 << 40])
@pytest.mark.in_turns
def test_planes_give_numpys_bits_compared_or_scattered(
    dtype: DType, cache: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As outputs leave the caches or fit into them, by plans and at any size: code for other caches has its own name."""
    monkeypatch.setattr(nll, "last_cache", lambda: cache)

    class Gradient(nll.GradientKernel):
        def __init__(self, *described: Any) -> None:
            super().__init__(*described)
            self.name += f".{cache}"

    registered = nll.KERNELS[NLL.python_name]
    kernel = nll.NllGradient(registered.formula, registered.plan, **registered.switches)
    kernel.kernel = Gradient
    for count, width in ((nll.FEW + 1, 65), (21, 65), (nll.MANY, 3), (nll.MANY + 1, 3), (21, 1)):
        for height in (1, 64):
            shape = (2, count, height, width)
            case = pixels(dtype, shape, seed=count, ignore_index=3)
            case["target"] = np.abs(case["target"]) % count
            wanted, out = expected(NLL, case, dtype), fresh(shape, dtype.numpy)
            plan, addresses = planned(NLL, case | {"out": out})
            for run, more in (kernel.runner(plan), ()), (kernel.dynamic_shapes(plan), (shape, ())):
                out[...] = 7
                assert run(tuple(addresses), 0, *more) == 0
                assert_same_but_nans(out, wanted)


@DTYPES
@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
@pytest.mark.parametrize("count", [4, 21])
def test_target_types(dtype: DType, kind: Any, count: int) -> None:
    case = pixels(dtype, (2, count, 5, 40), reduction="mean", ignore_index=2)
    case["target"] = np.abs(case["target"]).astype(kind) % (count - 1)
    assert_same_but_nans(result(NLL, case, dtype), expected(NLL, case, dtype))
    case |= {"total_weight": np.asarray([3.25], dtype.numpy)}
    assert_same_but_nans(result(NLL, case, dtype), expected(NLL, case, dtype))


STRAYS = (-1, 13, (1 << 16) + 1, 1 << 31, (1 << 32) + 1, INT64.min, INT64.max, -(1 << 31))


@DTYPES
@pytest.mark.parametrize("stray", STRAYS)
def test_a_stray_target_is_reported_and_counts_for_nothing(dtype: DType, stray: int) -> None:
    case = rows(dtype, 9, 13, reduction="mean", label_smoothing=0.1)
    case["target"][4] = stray
    ignored = case | {"target": np.where(case["target"] == stray, -100, case["target"])}
    assert_same_but_nans(
        result(CROSS_ENTROPY, case, dtype, status=1), result(CROSS_ENTROPY, ignored, dtype)
    )
    for count in (4, 13):
        case = pixels(dtype, (1, count, 6, 40), reduction="mean")
        case["target"][0, 3, 5] = case["target"][0, 5, 39] = stray
        ignored = case | {"target": np.where(case["target"] == stray, -100, case["target"])}
        assert_same_but_nans(result(NLL, case, dtype, status=1), result(NLL, ignored, dtype))


@DTYPES
def test_an_ignored_value_may_be_any_number(dtype: DType) -> None:
    for ignored in (*STRAYS, 0, 3, 255):
        case = rows(dtype, 9, 13, ignore_index=ignored)
        case["target"][case["target"] == -100] = ignored
        assert_matches_oracle(CROSS_ENTROPY, case, result(CROSS_ENTROPY, case, dtype))
        for count in (4, 13):
            case = pixels(dtype, (1, count, 6, 40), ignore_index=ignored)
            case["target"][case["target"] == -100] = ignored
            assert_same_but_nans(result(NLL, case, dtype), expected(NLL, case, dtype))


@DTYPES
def test_all_ignored(dtype: DType) -> None:
    for classes in FEW_AND_MANY:
        case = rows(dtype, 5, classes)
        case["target"][...] = -100
        assert not result(CROSS_ENTROPY, case, dtype).astype(np.float32).any()
        case |= {"reduction": "mean", "grad_loss": np.asarray(1, dtype.numpy)}
        assert np.isnan(result(CROSS_ENTROPY, case, dtype).astype(np.float32)).all()
    for reduction in ("none", "mean"):
        case = pixels(dtype, reduction=reduction)
        case["target"][...] = -100
        assert not bits(result(NLL, case, dtype)).any()


@DTYPES
@pytest.mark.parametrize("smoothing", [0.0, 0.25])
def test_special_log_probabilities(dtype: DType, smoothing: float) -> None:
    """In counted and in ignored rows; the second row has nothing special."""
    special = [
        np.nan,
        -np.nan,
        np.inf,
        -np.inf,
        0.0,
        -0.0,
        1.0,
        88.0,
        -87.5,
        -103.0,
        -110.0,
        1e30,
        -1e30,
    ]
    for length in (14, 64, 2050):
        case = rows(dtype, 4, length, label_smoothing=smoothing)
        case["target"][:] = 5, 2, -100, -100
        for row in (0, 2):
            case["log_prob"][row, -len(special) :] = np.asarray(special, dtype.numpy)
        got = result(CROSS_ENTROPY, case, dtype)
        assert_same_kind(case, got)
        ignored = got[2].astype(np.float32)
        wanted_nan = ~(case["log_prob"][2].astype(np.float32) < 88.7)
        np.testing.assert_array_equal(np.isnan(ignored), wanted_nan)
        assert not got[3].astype(np.float32).any()


@DTYPES
@pytest.mark.parametrize("smoothing", [0.0, 0.25])
@pytest.mark.parametrize("gradient", [np.inf, -np.inf, np.nan, 0.0, -0.0, 6e4, 1e-7, -1e-7])
def test_special_gradients(dtype: DType, smoothing: float, gradient: float) -> None:
    for classes in FEW_AND_MANY:
        case = rows(dtype, 4, classes, label_smoothing=smoothing)
        case["grad_loss"][1] = gradient
        assert_same_kind(case, result(CROSS_ENTROPY, case, dtype))
    case = pixels(dtype, (1, 9, 4, 8))
    case["grad_output"][0, 1] = gradient
    assert_same_but_nans(result(NLL, case, dtype), expected(NLL, case, dtype))


@DTYPES
@pytest.mark.parametrize("pattern", [0xFFFFFFFF, 0x7F800001, 0x7F800000, 0xFF800000, 0x00000000])
@pytest.mark.parametrize("smoothing", [0.0, 0.25])
def test_special_weights(dtype: DType, pattern: int, smoothing: float) -> None:
    for classes in FEW_AND_MANY:
        case = rows(dtype, 4, classes, label_smoothing=smoothing)
        weight = np.full(classes, 0.5, np.float32)
        weight[7] = np.asarray(pattern, np.uint32).view(np.float32)
        case["weight"] = weight
        case["target"][0] = 7
        assert_same_kind(case, result(CROSS_ENTROPY, case, dtype))


def test_mean_over_no_weight_is_nan() -> None:
    for classes in FEW_AND_MANY:
        weight = np.zeros(classes, np.float32)
        case = rows(FLOAT, 4, classes, reduction="mean", weight=weight)
        assert np.isnan(result(CROSS_ENTROPY, case, FLOAT)).all()


@pytest.mark.parametrize("gradient", [1.0, -3.7, 1e-30, 1e30, 1e-20, 3e37])
def test_float_is_within_two_ulp(gradient: float) -> None:
    """From exp's subnormal results to where it overflows; class 0 is the target and not looked at."""
    # Factors past 2^80 multiply what exp gives: there only its normal results are exact.
    lowest = -104.5 if abs(gradient) < 2**80 else -87.3
    x = np.linspace(lowest, 88.7, 1 << 16, dtype=np.float32)
    case = {
        "grad_loss": np.asarray([gradient], np.float32),
        "log_prob": np.concatenate([[np.float32(-1)], x])[None],
        "target": np.zeros(1, np.int64),
        "reduction": "none",
    }
    got = result(CROSS_ENTROPY, case, FLOAT)[0, 1:].astype(np.float64)
    exact = np.exp(x.astype(np.float64)) * np.float32(gradient)
    exact = np.where(
        np.abs(exact) > float(np.finfo(np.float32).max), np.sign(gradient) * np.inf, exact
    )
    finite = np.isfinite(exact)
    np.testing.assert_array_equal(got[~finite], exact[~finite])
    distance = np.maximum(np.abs(exact[finite]), np.finfo(np.float32).smallest_normal)
    ulp = np.exp2(np.floor(np.log2(distance)) - 23)
    assert (np.abs(got[finite] - exact[finite]) / ulp).max() <= 2


@pytest.mark.parametrize("dtype", [BFLOAT16, FLOAT16], ids=lambda dtype: dtype.name)
def test_every_16_bit_pattern(dtype: DType) -> None:
    """All log-probabilities there are: the FLOAT product, correctly rounded; NaN where exp is infinite in FLOAT64."""
    patterns = np.arange(1 << 16, dtype=np.uint16).view(dtype.numpy)
    case = {
        "grad_loss": np.asarray([-1.25], dtype.numpy),
        "log_prob": np.concatenate([np.zeros(1, dtype.numpy), patterns])[None],
        "target": np.zeros(1, np.int64),
        "reduction": "none",
    }
    got = result(CROSS_ENTROPY, case, dtype)[0, 1:]
    exact = np.exp(patterns.astype(np.float64))
    exp = np.where(np.isinf(exact), np.nan, exact).astype(np.float32)
    wanted = (exp * np.float32(-1.25)).astype(dtype.numpy)
    nan = np.isnan(wanted.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(got.astype(np.float32)), nan)
    assert_same_but_nans(got[~nan], wanted[~nan])


def test_the_targets_element_keeps_its_digits() -> None:
    """p - 1 for p next to 1."""
    x = -np.exp2(-np.arange(1, 24, dtype=np.float32))
    case = {
        "grad_loss": np.ones(23, np.float32),
        "log_prob": np.stack([x, np.full(23, -9, np.float32)], 1),
        "target": np.zeros(23, np.int64),
        "reduction": "none",
    }
    got = result(CROSS_ENTROPY, case, FLOAT)[:, 0]
    np.testing.assert_allclose(got, np.expm1(x.astype(np.float64)), rtol=1e-7)


@DTYPES
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_an_elements_bits_do_not_depend_on_its_place(dtype: DType, smoothing: float) -> None:
    case = rows(dtype, 1, 150, label_smoothing=smoothing)
    case["log_prob"][0, 40] = -np.inf
    case["target"][0] = 149
    whole = result(CROSS_ENTROPY, case, dtype)[0]
    for shift in (1, 5, 37):
        order = np.r_[np.roll(np.arange(149), shift), 149]
        moved = case | {"log_prob": np.ascontiguousarray(case["log_prob"][:, order])}
        assert_same_but_nans(result(CROSS_ENTROPY, moved, dtype)[0], whole[order])


EDGES = (np.nan, np.inf, -np.inf, 0.0, -0.0, 88.72283, 88.72284, 89.0, -103.9, -104.1, -110.0)


@DTYPES
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.in_turns
def test_few_classes_have_the_bits_of_many(
    dtype: DType, smoothing: float, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two kernels, for every way that a row's factor goes, with and without z-loss."""
    sizes = (1.0, 0.0, -0.0, 1e-30, 1e30, 1e-7, np.inf, np.nan)
    rng = np.random.default_rng(11)
    for classes, zloss in itertools.product((4, 5, 11), (0.0, 0.3)):
        case = rows(dtype, 61, classes, label_smoothing=smoothing)
        case["log_prob"][rng.random((61, classes)) < 0.05] = 88.72284
        case["log_prob"].flat[: len(EDGES)] = np.asarray(EDGES, dtype.numpy)[: 61 * classes]
        with np.errstate(over="ignore", invalid="ignore"):
            case["grad_loss"] *= np.resize(sizes, 61).astype(dtype.numpy)
        case["lse_square_scale_for_zloss"] = zloss
        case["lse_for_zloss"] = rng.standard_normal(61).astype(dtype.numpy)
        if weighted:
            case["weight"] = (0.5 + rng.random(classes)).astype(np.float32)
        with vectors_of(4), monkeypatch.context() as patch:
            few = result(CROSS_ENTROPY, case, dtype)
            patch.setattr(row_passes.Schedule, "short", 1)
            assert_same_but_nans(few, result(CROSS_ENTROPY, case, dtype))


def large(operator: Any, dtype: DType, seed: int = 0) -> list[dict[str, Any]]:
    """Calls that are shared between threads, in one launch and in several."""
    weight = (0.5 + np.random.default_rng(5).random(9000)).astype(np.float32)
    if operator is CROSS_ENTROPY:
        return [
            rows(dtype, 90, 700, seed, reduction="mean"),
            rows(dtype, 9000, 60, seed, reduction="mean", weight=weight[:60], label_smoothing=0.1),
            rows(dtype, 9000, 17, seed, reduction="mean", weight=weight[:17], label_smoothing=0.1),
            rows(dtype, 7, 9000, seed, reduction="mean", weight=weight, label_smoothing=0.1),
            rows(dtype, 2, 70000, seed),
        ]
    return [
        pixels(dtype, (3, 21, 50, 90), seed, reduction="mean"),
        pixels(dtype, (3, 21, 50, 90), seed),
        pixels(dtype, (40, 12, 16, 20), seed),
        pixels(dtype, (3, 4, 100, 70), seed, reduction="mean"),
    ]


@BOTH
@DTYPES
@pytest.mark.in_turns
def test_the_same_bits_for_any_number_of_threads(operator: Any, dtype: DType) -> None:
    for case in large(operator, dtype):
        got = []
        for threads in THREADS:
            openaclnn.set_num_threads(threads)
            got.append(result(operator, case, dtype))
        for other in got[1:]:
            assert_same_but_nans(other, got[0])
        if operator is NLL:
            assert_same_but_nans(got[0], expected(operator, case, dtype))
        else:
            assert_matches_oracle(operator, case, got[0])


@BOTH
@pytest.mark.parametrize(
    ("dtype", "lanes"),
    [*((FLOAT, lanes) for lanes in (1, *WIDTHS)), (FLOAT16, 1), (BFLOAT16, 4), (FLOAT16, 8), (BFLOAT16, 16)],
)  # fmt: skip
@pytest.mark.in_turns
def test_vector_widths_give_the_same_bits(operator: Any, dtype: DType, lanes: int) -> None:
    if operator is CROSS_ENTROPY:
        weight = np.linspace(0.5, 2, 77, dtype=np.float32)
        cases = [
            rows(dtype, 5, 77),
            rows(dtype, 5, 77, label_smoothing=0.1),
            rows(dtype, 5, 77, label_smoothing=0.1, weight=weight),
        ]
        cases[0]["log_prob"][1, 70] = -np.inf
        cases += [
            rows(dtype, 37, 5),
            rows(dtype, 37, 5, label_smoothing=0.1, weight=weight[:5]),
        ]
    else:
        cases = [pixels(dtype, (2, count, 4, 37)) for count in (3, 12)]
    for case in cases:
        here = result(operator, case, dtype)
        with vectors_of(lanes):
            assert_same_but_nans(result(operator, case, dtype), here)


@DTYPES
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "sliced", "reversed"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_in_place(dtype: DType, layout: str, smoothing: float) -> None:
    for special, shape in itertools.product((-1.0, np.nan), ((6, 150), (37, 5))):
        case = rows(dtype, *shape, label_smoothing=smoothing)
        case["log_prob"][2, -2] = special
        wanted = result(CROSS_ENTROPY, case, dtype)
        both, _ = laid_out(case["log_prob"], layout)
        assert run(CROSS_ENTROPY, both, case | {"log_prob": both}) == 0
        assert_same_but_nans(both, wanted)


@BOTH
def test_callers_on_many_threads(operator: Any) -> None:
    """One runner, called at once with different memory."""
    cases = [large(operator, FLOAT, seed)[1] for seed in range(4)]
    wanted = [result(operator, case, FLOAT) for case in cases]
    outs = [np.empty_like(out) for out in wanted]
    prepared = [
        planned(operator, case | {"out": out}) for out, case in zip(outs, cases, strict=True)
    ]
    runner = runner_of(prepared[0][0])

    def call(index: int) -> None:
        for _ in range(8):
            runner(prepared[index][1], 0)

    callers = [threading.Thread(target=call, args=(index,)) for index in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    for out, right in zip(outs, wanted, strict=True):
        assert_same_but_nans(out, right)


def at_the_end_of_memory(array: Array) -> Array:
    """A copy whose last byte is the last one before memory that must not be touched."""
    page = mmap.PAGESIZE
    pages = -(-array.nbytes // page)
    memory = mmap.mmap(-1, (pages + 1) * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    failed = ctypes.CDLL(None).mprotect(ctypes.c_void_p(start + pages * page), page, 0)
    assert failed == 0
    offset = pages * page - array.nbytes
    copy = np.frombuffer(memory, array.dtype, array.size, offset).reshape(array.shape)
    copy[...] = array
    return copy


@BOTH
@DTYPES
def test_nothing_past_the_end_is_touched(operator: Any, dtype: DType) -> None:
    for size in (1, 7, 33, 70):
        if operator is CROSS_ENTROPY:
            weight = np.ones(size, np.float32)
            case = rows(dtype, 3, size, label_smoothing=0.1, weight=weight)
        else:
            case = pixels(dtype, (1, 3 if size % 2 else 11, 1, size))
        guarded = {
            name: at_the_end_of_memory(value) if isinstance(value, np.ndarray) else value
            for name, value in case.items()
        }
        out = at_the_end_of_memory(np.zeros(shape_of(case), dtype.numpy))
        assert run(operator, out, guarded) == 0
        assert_same_but_nans(out, result(operator, case, dtype))


def far_apart(shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType) -> Array:
    """An array over more than 2^32 bytes of memory that nobody has touched yet."""
    reach = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) + 1
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
    memory = mmap.mmap(-1, reach * dtype.itemsize, flags=flags)
    steps = tuple(stride * dtype.itemsize for stride in strides)
    return np.ndarray(shape, dtype.numpy, memory, 0, steps)


@DTYPES
def test_addresses_have_64_bits(dtype: DType) -> None:
    far = (1 << 32) // dtype.itemsize + 3
    for classes, strides in itertools.product(FEW_AND_MANY, ((far, 1), (1, far // 30))):
        case = rows(dtype, 3, classes)
        wanted = result(CROSS_ENTROPY, case, dtype)
        moved, out = (far_apart((3, classes), strides, dtype) for _ in range(2))
        moved[...] = case["log_prob"]
        assert run(CROSS_ENTROPY, out, case | {"log_prob": moved}) == 0
        assert_same_but_nans(out, wanted)
    for count in (3, 9):
        case = pixels(dtype, (2, count, 3, 8))
        for strides in ((far, 24, 8, 1), (24, far, 8, 1)):
            out = far_apart((2, count, 3, 8), strides, dtype)
            assert run(NLL, out, case) == 0
            assert_same_but_nans(out, expected(NLL, case, dtype))


@settings(max_examples=30, deadline=None)
@given(
    st.data(),
    st.sampled_from(FLOATS),
    st.integers(1, 12),
    st.integers(1, 70),
    st.sampled_from(["none", "mean", "sum"]),
)
def test_any_call_agrees_with_the_oracle(
    data: st.DataObject, dtype: DType, count: int, width: int, reduction: str
) -> None:
    options: dict[str, Any] = {"reduction": reduction}
    seed = data.draw(st.integers(0, 1 << 20))
    case = rows(
        dtype, count, width, seed, **options, label_smoothing=data.draw(st.sampled_from([0.0, 0.3]))
    )
    if data.draw(st.booleans()):
        case["weight"] = np.linspace(0.25, 2, width, dtype=np.float32)
    if data.draw(st.booleans()):
        case["lse_square_scale_for_zloss"] = 0.125
        case["lse_for_zloss"] = np.linspace(-1, 3, count).astype(dtype.numpy)
    with np.errstate(all="ignore"):
        assert_matches_oracle(CROSS_ENTROPY, case, result(CROSS_ENTROPY, case, dtype))
        case = pixels(dtype, (count, data.draw(st.integers(1, 12)), 2, width), seed, **options)
        assert_same_but_nans(result(NLL, case, dtype), expected(NLL, case, dtype))


def test_plans_for_compiling_ahead_are_served() -> None:
    for operator in (CROSS_ENTROPY, NLL):
        kernel = cpu.kernel_named(operator.python_name)
        assert kernel is not None
        plans = list(kernel.variants())
        assert {plan.kernel for plan in plans} == {operator.python_name}
        for plan in plans:
            assert kernel.declines(plan) is None
            kernel.runner(plan)


def test_other_kernels_are_declined() -> None:
    plan, _ = planned(NLL, pixels(FLOAT) | {"out": np.zeros((2, 5, 6, 9), np.float32)})
    other = Plan(plan.operator, "another", FLOAT, (1,), (), plan.output, {}, 3)
    assert "another" in (cpu.declines(other) or "")
