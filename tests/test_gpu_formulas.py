"""Formulas as the Triton engine takes them: any number of inputs and numbers, and what it refuses.

Some of it wants a process that interprets: see `test_gpu.py`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from conftest import run_python
from openaclnn.core.dtypes import BFLOAT16, FLOAT, FLOAT16, FLOATS, DType
from openaclnn.core.interop import as_tensor
from openaclnn.core.plan import Plan, elementwise_plan
from openaclnn.engines import gpu, numpy
from openaclnn.engines.formulas import FORMULAS, Formula, described
from openaclnn.engines.formulas.l1_loss import smooth_l1_loss_backward
from openaclnn.engines.formulas.words import (
    WORDS,
    Value,
    abs,
    exp,
    expm1,
    fma,
    gate,
    gelu,
    gelu_slope,
    gelu_tanh,
    log,
    log1p,
    low_log,
    low_log1m,
    maximum,
    minimum,
    mish,
    sign,
    softened,
    softplus,
    sqrt,
    tanh,
    where,
)
from openaclnn.engines.gpu.formulas.translation import translated
from openaclnn.engines.gpu.formulas.tuned import CHOICES, form_of

if sys.platform != "linux":
    pytest.skip("Triton has wheels for Linux alone", allow_module_level=True)

MODE = os.environ.get("OPENACLNN_GPU_TESTS", "")
if MODE == "interpret":
    import interpreted  # noqa: F401

Array = np.ndarray[Any, Any]
HALF = 0.5
nan, inf = np.nan, np.inf
SPECIAL = np.array([0.0, -0.0, 1, -1, 2, -0.5, 1e-30, -1e-40, 3e38, inf, -inf, nan], np.float32)
NUMBERS = {"low": -0.7, "index": 1.1, "high": 0.9, "rows": 0.3, "UNIT": 1.7, "more": 3.0}


def bounded(x: Value, *, low: float, high: float, turned: bool) -> Value:
    """A helper with a switch of its own."""
    kept = maximum(minimum(x, high), low)
    return -kept if turned else kept


def four_and_six(
    gradient: Value, x: Value, out: Value, count: Value,
    *, low: float, index: float, flipped: bool, high: float, rows: float, UNIT: float,
) -> Value:  # fmt: skip
    """Four inputs, five numbers and a switch, by names that the kernels use as well."""
    slope = low * index + HALF
    inner = bounded(x / high, low=low, high=high, turned=flipped)
    if flipped:
        far = (inner + slope) * sqrt(abs(count))
    else:
        far: Value = -(gradient - slope) / (1 + count * count)
    near = where((x > out) & ~(count <= rows), sign(gradient), UNIT * out)
    return where(x == 0, -x, far * near + 2 / UNIT)


def one_and_none(x: Value) -> Value:
    return where(x < 0, x * HALF, 1 - x)


def word_exp(x: Value) -> Value:
    return exp(x)


def word_expm1(x: Value) -> Value:
    return expm1(x)


def word_log(x: Value) -> Value:
    return log(x)


def word_log1p(x: Value) -> Value:
    return log1p(x)


def word_sqrt(x: Value) -> Value:
    return sqrt(x)


def word_tanh(x: Value) -> Value:
    return tanh(x)


def word_gate(x: Value) -> Value:
    return gate(x, x)


def word_gelu(x: Value) -> Value:
    return gelu(x)


def word_gelu_slope(x: Value) -> Value:
    return gelu_slope(x)


def word_gelu_tanh(x: Value) -> Value:
    return gelu_tanh(x)


def word_mish(x: Value) -> Value:
    return mish(x)


def word_abs(x: Value) -> Value:
    return abs(x)


def word_sign(x: Value) -> Value:
    return sign(x)


def word_minimum(x: Value, y: Value) -> Value:
    return minimum(x, y)


def word_maximum(x: Value, y: Value) -> Value:
    return maximum(x, y)


def word_fma(x: Value, y: Value, z: Value) -> Value:
    return fma(x, y, z)


def term_softplus(x: Value, y: Value) -> Value:
    v = x * y
    return softplus(v, fma(x, y, -v))


def term_softened(x: Value, y: Value) -> Value:
    return softened(-abs(x))


def term_low_log1m(x: Value, y: Value) -> Value:
    return low_log1m(abs(x))


def term_low_log(x: Value, y: Value) -> Value:
    return low_log(abs(x) + 1e-40)


RANGES: dict[Callable[..., Any], list[tuple[float, ...]]] = {
    word_exp: [(-87, 88)],
    word_expm1: [(-87, 88), (-1, 1), (-1e-4, 1e-4)],
    word_log: [(1e-30, 1e30), (0.5, 2), (1e-44, 1e-37)],
    word_log1p: [(-0.999, 5), (-1e-3, 1e-3), (-1e-7, 1e-7), (1, 1e30)],
    word_tanh: [(-10, 10), (-1, 1), (-1e-4, 1e-4)],
    word_gate: [(-108, 5), (-1, 1)],  # as far as results are less than the least number
    word_gelu: [(-14.4, -0.5), (-0.5, 0.1, 2.5), (0.1, 1, 1.8), (1, 15, 0.9)],
    word_gelu_slope: [
        (-14.6, -1.3, 4.3),
        (-0.4, -0.1, 2.3),
        (-0.1, 15, 1.2),
    ],  # of others digits cancel
    word_gelu_tanh: [(-10.9, 5), (-1, 1)],
    word_mish: [(-108, 25), (-1, 1)],
}
"""Of words that nobody has to the last place; a third number is a bound other than 3 ulps."""


def assert_within_ulps(
    function: Callable[..., Any], x: Array, got: Array, bound: float = 3
) -> None:
    with np.errstate(all="ignore"):
        exact = function(x.astype(np.float64))
    ulp = np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
    assert np.max(np.abs(got - exact) / ulp) < bound


if not MODE:

    def test_what_is_rewritten() -> None:
        text = translated(four_and_six, frozenset())
        assert text.index("def four_and_six") < text.index("def bounded")
        assert "flipped: tl.constexpr" in text
        assert "ieee_divide(x, high, PRECISE=PRECISE)" in text
        assert "low * index + 0.5" in text  # numbers of the file as numbers, whole ones as FLOATs
        assert "1.0 + count * count" in text
        assert "x * -1.0" in text  # 0 - x would lose -0
        assert " / " not in text
        assert "Value" not in text

    def test_importing_the_engine_imports_neither_triton_nor_torch() -> None:
        code = (
            "import sys; from openaclnn.engines import gpu; "
            "from openaclnn.engines.gpu.formulas import translation, tuned; "
            "assert not {'triton', 'torch'} & {*sys.modules}"
        )
        run_python(code)


if MODE == "interpret":
    dtypes = pytest.mark.parametrize("dtype", FLOATS, ids=str)

    def enter(function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Formula:
        formula = described(function)
        monkeypatch.setitem(FORMULAS, formula.name, formula)
        return formula

    def plan_of(
        kernel: str, compute: DType, inputs: list[Array], output: Array, numbers: Any
    ) -> tuple[Plan, tuple[int, ...]]:
        tensors = [
            (f"t{number}", as_tensor(array)) for number, array in enumerate([*inputs, output])
        ]
        plan = elementwise_plan("aclnn", kernel, compute, tensors[:-1], tensors[-1], numbers)
        return plan, tuple(tensor.address for _, tensor in tensors)

    def both(kernel: str, dtype: DType, inputs: list[Array], out: Array, numbers: Any) -> Any:
        """By Triton, and by NumPy's own evaluation of the same formula."""
        plan, addresses = plan_of(kernel, dtype, inputs, out, numbers)
        assert gpu.declines(plan) is None
        with np.errstate(all="ignore"):
            assert gpu.prepare(plan)(addresses, 0) == 0
            got = out.copy()
            assert numpy.prepare(plan)(addresses, 0) == 0
        return got, out.copy()

    def some(rng: Any, shape: tuple[int, ...], dtype: DType) -> Array:
        values = np.where(rng.random(shape) < 0.1, 0.0, rng.normal(size=shape))
        return np.asarray(np.copysign(values, rng.normal(size=shape)), dtype.numpy)

    LAYOUTS: dict[str, Callable[[Array], Array]] = {
        "dense": lambda array: array,
        "every other": lambda array: np.repeat(array, 2, -1)[..., ::2],
        "transposed": lambda array: array.T.copy().T,
        "reversed": lambda array: array[::-1].copy()[::-1],
    }

    @dtypes
    @pytest.mark.parametrize("flipped", [False, True])
    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.in_turns
    def test_four_inputs_five_numbers_and_a_switch(
        layout: str, flipped: bool, dtype: DType, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        enter(four_and_six, monkeypatch)
        rng = np.random.default_rng(5)
        shape = (13, 90)
        inputs = [LAYOUTS[layout](some(rng, shape, dtype)) for _ in range(3)]
        inputs.append(some(rng, (1, 90), dtype) if layout != "dense" else some(rng, (), dtype))
        out = np.zeros(shape, dtype.numpy)
        got, expected = both("four_and_six", dtype, inputs, out, {**NUMBERS, "flipped": flipped})
        assert np.count_nonzero(expected) > 1000
        np.testing.assert_array_equal(got.view(np.uint8), expected.view(np.uint8))

    @dtypes
    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_one_input_and_no_number(
        layout: str, dtype: DType, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        enter(one_and_none, monkeypatch)
        x = LAYOUTS[layout](some(np.random.default_rng(6), (7, 170), dtype))
        got, expected = both("one_and_none", dtype, [x], np.zeros(x.shape, dtype.numpy), {})
        np.testing.assert_array_equal(got.view(np.uint8), expected.view(np.uint8))

    # Words: NumPy's bits where it has the last place, 3 ulps of the exact value where nobody has.

    def test_every_word_has_a_meaning() -> None:
        from openaclnn.engines.gpu.formulas import words

        assert set(words.WORDS) == set(WORDS)

    @pytest.mark.parametrize("function", [word_abs, word_sign, word_sqrt])
    def test_exact_words(function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
        formula = enter(function, monkeypatch)
        x = np.concatenate([SPECIAL, some(np.random.default_rng(1), (500,), FLOAT)])
        got, expected = both(formula.name, FLOAT, [x], np.zeros_like(x), {})
        np.testing.assert_array_equal(got, expected)
        there = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(got[there]), np.signbit(expected[there]))

    @pytest.mark.parametrize("function", [word_minimum, word_maximum])
    def test_minimum_and_maximum_keep_nan(
        function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        formula = enter(function, monkeypatch)
        x, y = (grid.copy() for grid in np.meshgrid(SPECIAL, SPECIAL))
        got, expected = both(formula.name, FLOAT, [x, y], np.zeros_like(x), {})
        np.testing.assert_array_equal(got, expected)
        assert np.isnan(got).sum() == 2 * len(SPECIAL) - 1

    def test_fma_rounds_once(monkeypatch: pytest.MonkeyPatch) -> None:
        formula = enter(word_fma, monkeypatch)
        x, y = np.float32([1 + 2.0**-12, 3.0]), np.float32([1 + 2.0**-12, 5.0])
        z = np.float32([-1 - 2.0**-11, -15.0])
        got, expected = both(formula.name, FLOAT, [x, y, z], np.zeros_like(x), {})
        np.testing.assert_array_equal(expected, np.float32([2.0**-24, 0.0]))
        np.testing.assert_array_equal(got, expected)

    @pytest.mark.parametrize("function", RANGES)
    @pytest.mark.in_turns
    def test_words_within_their_ulps(
        function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        formula = enter(function, monkeypatch)
        for low, high, *bound in RANGES[function]:
            x = np.linspace(low, high, 20001).astype(np.float32)
            got, _ = both(formula.name, FLOAT, [x], np.zeros_like(x), {})
            assert_within_ulps(function, x, got, *bound)
        got, expected = both(formula.name, FLOAT, [SPECIAL], np.zeros_like(SPECIAL), {})
        np.testing.assert_allclose(got, expected, rtol=4e-7)
        zero = expected == 0
        np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(expected[zero]))

    @dtypes
    @pytest.mark.parametrize(
        ("function", "high"),
        [(term_softplus, 9.5), (term_softened, 90.0), (term_low_log, 0.5), (term_low_log, 1e-3), (term_low_log, 1e-38), (term_low_log1m, 0.5)],
    )  # fmt: skip
    def test_words_of_what_is_added_up(
        function: Callable[..., Any], high: float, dtype: DType, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from openaclnn.engines.gpu.formulas import words

        for name, word in words.TERMS.items():
            monkeypatch.setitem(words.WORDS, name, word)
        formula = enter(function, monkeypatch)
        x = np.linspace(-high, high, 4001).astype(dtype.numpy).astype(np.float32)
        y = np.linspace(high, 0.7 * high, 4001).astype(dtype.numpy).astype(np.float32)
        # 16 bits are told by their computation type, and compared in FLOAT: more than their rounding must not show.
        got, _ = both(formula.name, dtype, [x.astype(dtype.numpy), y.astype(dtype.numpy)], np.zeros(x.shape, dtype.numpy), {})  # fmt: skip
        exact = function(x.astype(np.float64), y.astype(np.float64))
        unit = np.spacing(np.abs(exact).astype(dtype.numpy)).astype(np.float64)
        assert np.max(np.abs(got.astype(np.float64) - exact) / unit) < (
            2.5 if dtype is FLOAT else 0.53
        )
        special = np.float32([inf, -inf, nan, 0.0, 1.0]).astype(dtype.numpy)
        if function is term_softplus:
            got, expected = both(formula.name, dtype, [special, np.ones_like(special)], np.zeros_like(special), {})  # fmt: skip
            np.testing.assert_allclose(got.astype(float), expected.astype(float), rtol=0.01)

    # Tuned forms.

    def smooth_l1(beta: float, compute: DType) -> tuple[Plan, tuple[int, ...], Array, list[Array]]:
        rng = np.random.default_rng(9)
        wide = [some(rng, (4000,), compute) for _ in range(3)]
        with np.errstate(over="ignore"):
            grids = np.meshgrid(*[SPECIAL.astype(compute.numpy)] * 3)
        inputs = [np.concatenate([a, g.ravel()]) for a, g in zip(wide, grids, strict=True)]
        out = np.zeros(inputs[0].shape, compute.numpy)
        numbers = {"beta": beta, "mean_scale": 0.3}
        plan, addresses = plan_of("smooth_l1_loss_backward", compute, inputs, out, numbers)
        return plan, addresses, out, inputs

    def tuned_and_plain(
        beta: float, compute: DType, form: str, monkeypatch: pytest.MonkeyPatch
    ) -> tuple[Array, Array]:
        plan, addresses, out, _keep = smooth_l1(beta, compute)
        assert form_of(plan).formula.name == form
        with np.errstate(all="ignore"):
            assert gpu.prepare(plan)(addresses, 0) == 0
            tuned = out.copy()
            monkeypatch.setattr("openaclnn.engines.gpu.formulas.tuned.CHOICES", {})
            assert form_of(plan).formula is smooth_l1_loss_backward
            assert gpu.prepare(plan)(addresses, 0) == 0
        return tuned, out

    @dtypes
    @pytest.mark.parametrize("beta", [1.0, 0.25, 2.0**99])
    def test_clamped_has_the_formula_s_bits(
        beta: float, dtype: DType, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tuned, plain = tuned_and_plain(beta, dtype, "smooth_l1_clamped", monkeypatch)
        np.testing.assert_array_equal(tuned.view(np.uint8), plain.view(np.uint8))

    @pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16], ids=str)
    @pytest.mark.parametrize("beta", [0.7, 3.0])
    def test_product_is_within_1_ulp(
        beta: float, dtype: DType, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tuned, plain = tuned_and_plain(beta, dtype, "smooth_l1_product", monkeypatch)
        nans = np.isnan(plain.astype(np.float32))
        np.testing.assert_array_equal(np.isnan(tuned.astype(np.float32)), nans)
        bits = [result[~nans].view(np.int16).astype(np.int32) for result in (tuned, plain)]
        assert np.max(np.abs(bits[0] - bits[1])) <= 1  # of one sign, so neighbours by their bits

    @pytest.mark.parametrize(
        ("beta", "form"), [(1.0, "swish_product"), (-0.25, "swish_product"), (1.7, "swish"), (0.0, "swish")]
    )  # fmt: skip
    def test_swish_of_an_exact_product_is_a_gate(beta: float, form: str) -> None:
        x = np.linspace(-60, 60, 20001).astype(np.float32)
        plan, addresses = plan_of("swish", FLOAT, [x], out := np.zeros_like(x), {"beta": beta})
        assert form_of(plan).formula.name == form
        assert gpu.prepare(plan)(addresses, 0) == 0
        assert_within_ulps(lambda wide: gate(wide, np.float64(np.float32(beta)) * wide), x, out)
        got, expected = both("swish", FLOAT, [SPECIAL], np.zeros_like(SPECIAL), {"beta": beta})
        np.testing.assert_allclose(got, expected, rtol=4e-7)

    def test_where_no_tuned_form_serves() -> None:
        for beta in (0.7, 0.0, inf, 1e30):
            plan, *_ = smooth_l1(beta, FLOAT)
            assert form_of(plan).formula is smooth_l1_loss_backward
        plan, *_ = smooth_l1(1e300, FLOAT)
        assert form_of(plan).numbers[0] == inf
        assert form_of(replace(plan, kernel="smooth_l1_loss_backward")).switches == ()
        assert set(CHOICES) <= set(FORMULAS)
