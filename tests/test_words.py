"""The words of formulas: how exact they are on the CPU and in NumPy, whatever the width of vectors. `python -m tools.words` sweeps more."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from tools import words as measured

from openaclnn.core.dtypes import BFLOAT16, FLOAT16, FLOATS
from openaclnn.core.plan import Operand, Plan
from openaclnn.engines import cpu, numpy as numpy_engine
from openaclnn.engines.formulas import FORMULAS, described, special
from openaclnn.engines.formulas.words import BOUNDS, WORDS, sigmoid
from openaclnn.engines.machine import code
from openaclnn.engines.machine.host import Machine, machine, this_machine, written_for

Array = np.ndarray[Any, Any]
EXACT = {"where", "fma", "abs", "sign", "sqrt", "minimum", "maximum", "ratio"}
OF_OPERATORS = {
    "scaled_exp",
    "scaled_expm1",
    "scaled_gate",
    "low_log",
    "low_log1m",
    "softened",
    "gelu_slope",
    "gelu_tanh_slope",
}
every_word = pytest.mark.parametrize("word", BOUNDS)


@pytest.fixture(autouse=True)
def of_one_width() -> Iterator[None]:
    """Code is compiled once, and not for two widths: another test says that they agree."""
    with written_for(Machine(8, 32, *machine()[2:])):
        yield


def evaluate(prepare: Any, kernel: str, *arrays: Array, **numbers: float) -> Array:
    dtype = next(each for each in FLOATS if each.numpy == arrays[0].dtype)
    out, operand = np.empty_like(arrays[0]), Operand("x", dtype, (1,))
    plan = Plan("", kernel, dtype, out.shape, (operand,) * len(arrays), operand, numbers)
    prepare(plan)([*(array.ctypes.data for array in arrays), out.ctypes.data], 0)
    return out


def some_floats() -> Array:
    bits = np.random.default_rng(7).integers(0, 1 << 32, 20_000, np.uint32)
    return np.concatenate([bits.view(np.float32), measured.near(30)])


def test_every_word_is_exact_or_has_a_bound() -> None:
    """Those of three numbers, of few numbers, and one whose terms cancel, have theirs with the operators that they are for."""
    assert {*BOUNDS} | EXACT | OF_OPERATORS == {*WORDS}


@every_word
def test_float(word: str) -> None:
    x = some_floats()
    wanted = measured.exact(word, x)
    ours = measured.errors(measured.evaluate(cpu.prepare, word, x), wanted, x)
    assert ours.largest <= BOUNDS[word], ours
    theirs = measured.errors(measured.evaluate(numpy_engine.prepare, word, x), wanted, x)
    assert theirs.largest <= 0.501, theirs


@pytest.mark.parametrize(
    ("word", "dtype"),
    [(word, FLOAT16) for word in BOUNDS]
    + [(word, BFLOAT16) for word in ("exp", "sigmoid", "gate", "softplus", "tanh", "gelu", "mish")],
    ids=str,
)
def test_every_number_of_16_bits(word: str, dtype: Any) -> None:
    x = measured.every(dtype)
    errors = measured.errors(measured.evaluate(cpu.prepare, word, x), measured.exact(word, x), x)
    assert errors.largest <= measured.SHORT_BOUND, errors


@pytest.mark.parametrize("word", ["expm1", "gate", "softplus", "log1p", "erfinv", "gelu"])
def test_the_bits_are_those_of_any_width(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the processor's lookups have no more lanes than that."""
    x = np.concatenate([some_floats(), measured.near(1)])
    bits = set()
    for lanes in (16, 8, 4):
        other = Machine(lanes, 31, *machine()[2:])
        if lanes <= this_machine().lanes:
            monkeypatch.setattr(code, "this_machine", lambda other=other: other)
        with written_for(other):
            bits.add(measured.evaluate(cpu.prepare, word, x).tobytes())
    assert len(bits) == 1


SPLIT: dict[str, tuple[str, Callable[[Array], Array], float]] = {
    "exp": ("exp(v, rest)", np.exp, 0.9), "expm1": ("expm1(v, rest)", np.expm1, 1.1), "sigmoid": ("sigmoid(v, rest)", special.sigmoid, 0.9),
    "complement": ("sigmoid(-v, -rest)", lambda v: special.sigmoid(-v), 0.9), "gate": ("gate(1.0, v, rest)", special.sigmoid, 0.9),
    "softplus": ("softplus(v, rest)", special.softplus, 0.9),
}  # fmt: skip


@pytest.mark.parametrize("name", SPLIT)
def test_a_rest_is_what_rounding_left(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, function, bound = SPLIT[name]
    scope: dict[str, Any] = dict(WORDS)
    lines = (f"def rest_{name}(x, *, beta: float):", "v = beta * x", "rest = fma(x, beta, -v)", f"return {text}")  # fmt: skip
    exec("\n ".join(lines), scope)
    kernel = described(scope[f"rest_{name}"])
    monkeypatch.setitem(FORMULAS, kernel.name, kernel)
    x = np.random.default_rng(3).uniform(-60, 60, 10_000).astype(np.float32)
    x[:8] = np.inf, -np.inf, np.nan, 3e38, -3e38, 0.0, -0.0, 1e-40
    beta = np.float32(1.3)
    with np.errstate(all="ignore"):
        wanted = function(x.astype(np.float64) * np.float64(beta))
    for prepare, allowed in ((cpu.prepare, bound), (numpy_engine.prepare, 0.501)):
        errors = measured.errors(evaluate(prepare, kernel.name, x, beta=float(beta)), wanted, x)
        assert errors.largest <= allowed, errors


# By mpmath, with 40 digits.
GOLDEN: dict[str, dict[float, float]] = {
    "erf": {1e-300: 1.1283791670955126e-300, 0.3: 0.3286267594591274, 0.99: 0.8385080695553698, 1.01: 0.8468104962282768, 2.5: 0.999593047982555, -5.8: -0.9999999999999998},
    "erfc": {-3.0: 1.9999779095030015, 0.39: 0.5812612999302039, 0.41: 0.5620309098445605, 1.7: 0.01620954140922544, 9.3: 1.653244184030135e-39, 26.0: 5.663192408856143e-296},
    "erfinv": {1e-12: 8.86226925452758e-13, 0.3: 0.2724627147267543, -0.75: -0.8134198475976185, 0.9999: 2.75106390571208, 0.9999999999: 4.572824958544925},
    "normal_cdf": {-37.0: 5.725571222524577e-300, -8.5: 9.479534822203318e-18, -0.7: 0.24196365222307303, 0.2: 0.579259709439103, 3.0: 0.9986501019683699},
    "normal_pdf": {-37.0: 2.1200065515246056e-298, -8.5: 8.16623563166955e-17, 0.7: 0.31225393336676127},
    "sigmoid": {-740.0: 4.2e-322, -30.5: 5.6756852326324e-14, -0.1: 0.47502081252106, 12.0: 0.9999938558253978},
    "log_sigmoid": {-50.0: -50.0, -0.3: -0.8543552444685271, 3.0: -0.04858735157374206, 600.0: -2.6503965530043108e-261},
    "softplus": {-600.0: 2.6503965530043108e-261, -3.0: 0.04858735157374206, 0.3: 0.8543552444685271, 50.0: 50.0},
}  # fmt: skip


@pytest.mark.parametrize("name", GOLDEN)
def test_float64(name: str) -> None:
    x = np.array([*GOLDEN[name]])
    got = WORDS[name](x)
    assert got.dtype == np.float64
    np.testing.assert_array_max_ulp(got, np.array([*GOLDEN[name].values()]), 6)


def test_sigmoid_of_complex_numbers() -> None:
    x = np.array([1 + 2j, -3 + 0.5j, -800 + 1j, 800 - 1j], np.complex64)
    got = sigmoid(x)
    assert got.dtype == np.complex64
    small = x[:2].astype(np.complex128)
    np.testing.assert_allclose(got[:2], 1 / (1 + np.exp(-small)), rtol=1e-6)
    np.testing.assert_array_equal(got[2:], [0, 1])


@every_word
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_a_nan_has_the_same_bits_wherever_it_stands(word: str, dtype: Any) -> None:
    """In vectors and in what they leave over, beside any number of others."""
    for other, sign in itertools.product((machine(), this_machine()), (1.0, -1.0)):
        nan = np.full(101, np.nan, dtype.numpy)
        np.copysign(nan, nan.dtype.type(sign), out=nan)
        with written_for(other):
            results = [measured.evaluate(cpu.prepare, word, nan[:n]) for n in (1, 7, 8, 33, 101)]
        assert len({each.tobytes() for each in np.concatenate(results)}) == 1, (other, sign)
