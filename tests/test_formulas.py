"""Formulas written once: what the language means on NumPy and on the CPU, and that tuned forms do the same."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import openaclnn
from openaclnn.core.dtypes import FLOAT, FLOATS, DType
from openaclnn.core.plan import Operand, Plan
from openaclnn.engines import cpu, formulas
from openaclnn.engines import numpy as numpy_engine
from openaclnn.engines.cpu import tuned
from openaclnn.engines.cpu.formulas import elementwise, forms
from openaclnn.engines.formulas import FORMULAS, Formula, words
from openaclnn.engines.formulas.words import Value

assert openaclnn.registry()  # operators bring their formulas
assert tuned.__doc__

Array = np.ndarray[Any, Any]
Run = Callable[..., Array]


@pytest.fixture
def known() -> Iterator[Callable[[Callable[..., Value]], Formula]]:
    """Makes functions known as formulas for one test."""
    before, kernels = dict(FORMULAS), dict(cpu.KERNELS)
    yield formulas.formula
    for registry, kept in ((FORMULAS, before), (cpu.KERNELS, kernels)):
        registry.clear()
        registry.update(kept)


def dense_plan(
    kernel: str, dtype: DType, count: int, inputs: int, numbers: Mapping[str, Any]
) -> Plan:
    operand = Operand("x", dtype, (1,))
    return Plan("", kernel, dtype, (count,), (operand,) * inputs, operand, numbers)


def evaluate(
    prepare: Callable[[Plan], Any], kernel: str, arrays: Sequence[Array], numbers: Mapping[str, Any]
) -> Array:
    """One kernel over dense arrays of one dtype."""
    dtype = next(own for own in FLOATS if own.numpy == arrays[0].dtype)
    out = np.full(arrays[0].size, np.nan, dtype.numpy)
    plan = dense_plan(kernel, dtype, out.size, len(arrays), numbers)
    prepare(plan)([*(array.ctypes.data for array in arrays), out.ctypes.data], 0)
    return out


def ulps(got: Array, exact: Array) -> float:
    """The largest error in units in the last place; infinities, zeros and NaN must be where they belong."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(np.float32)
        finite = np.isfinite(rounded)
        np.testing.assert_array_equal(got[~finite], rounded[~finite])
        unit = np.abs(np.spacing(rounded[finite])).astype(np.float64)
        return float((np.abs(got[finite].astype(np.float64) - exact[finite]) / unit).max())


SPECIAL = np.float32(
    [0.0, -0.0, 1, -1, 1e-45, -1e-45, 1e-38, 3.4e38, -3.4e38, np.inf, -np.inf, np.nan, 0.5, -0.99, 88.8]
)  # fmt: skip
EVERYWHERE = np.concatenate(
    [
        SPECIAL,
        np.linspace(-110, 90, 400_001, dtype=np.float32),
        np.geomspace(1e-45, 3e38, 200_001).astype(np.float32),
        -np.geomspace(1e-45, 3e38, 200_001).astype(np.float32),
    ]
)
MORE = ("where", "minimum", "maximum", "fma")  # of several values
BOUNDS = {"exp": 1.1, "expm1": 1.5, "log": 1.5, "log1p": 3.0, "tanh": 3.0}
"""In ulp; words that are not here are exact."""


@pytest.mark.parametrize("word", [w for w in words.WORDS if w not in MORE])
def test_words_of_one_value(word: str, known: Any) -> None:
    def one(x: Value) -> Value:
        return words.WORDS[word](x)

    one.__name__ = f"one_{word}"
    known(one)
    with np.errstate(all="ignore"):
        exact = words.WORDS[word](EVERYWHERE.astype(np.float64))
    got = evaluate(cpu.prepare, one.__name__, [EVERYWHERE], {})
    if word in BOUNDS:
        assert ulps(got, exact) <= BOUNDS[word]
    else:
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(got, words.WORDS[word](EVERYWHERE))
        assert not np.signbit(got[got == 0]).any() or word == "sqrt"
    theirs = evaluate(numpy_engine.prepare, one.__name__, [EVERYWHERE], {})
    assert ulps(theirs, exact) <= max(4.0, BOUNDS.get(word, 0))


@pytest.mark.parametrize("word", ["minimum", "maximum"])
def test_words_of_two_values(word: str, known: Any) -> None:
    def two(x: Value, y: Value) -> Value:
        return words.WORDS[word](x, y)

    two.__name__ = f"two_{word}"
    known(two)
    x, y = (np.ascontiguousarray(a.ravel()) for a in np.meshgrid(SPECIAL, SPECIAL))
    got = evaluate(cpu.prepare, two.__name__, [x, y], {})
    np.testing.assert_array_equal(got, words.WORDS[word](x, y))


def test_fma_rounds_once(known: Any) -> None:
    @known
    def multiply_add(x: Value, y: Value, z: Value) -> Value:
        return words.fma(x, y, z)

    x = np.float32([1 + 2.0**-12, 3.0, np.inf])
    y, z = np.float32([1 + 2.0**-12, 5.0, 1.0]), np.float32([-1 - 2.0**-11, -15.0, 1.0])
    got = evaluate(cpu.prepare, multiply_add.name, [x, y, z], {})
    np.testing.assert_array_equal(got, np.float32([2.0**-24, 0.0, np.inf]))
    theirs = evaluate(numpy_engine.prepare, multiply_add.name, [x, y, z], {})
    np.testing.assert_array_equal(theirs, got)


def test_any_number_of_values_numbers_and_switches(known: Any) -> None:
    @known
    def many(
        a: Value, b: Value, c: Value, d: Value, *, p: float, q: float, r: float, s: float, t: float,
        turned: bool,
    ) -> Value:  # fmt: skip
        first = words.where((a > b) & ~(c > d) | (a == d), a * p - q, -(b / r))
        if turned:
            first = words.maximum(1.0 - first, s)
        return first * t + words.where(a != b, 1.0, 2.0)

    rng = np.random.default_rng(3)
    numbers = {"p": 1.5, "q": 0.3, "r": 0.7, "s": -0.2, "t": 3.1}
    for dtype, turned in itertools.product(FLOATS, (False, True)):
        arrays = [rng.normal(size=1003).astype(dtype.numpy) for _ in range(4)]
        given = {**numbers, "turned": turned}
        got, expected = (
            evaluate(prepare, many.name, arrays, given)
            for prepare in (cpu.prepare, numpy_engine.prepare)
        )
        np.testing.assert_array_equal(got.view(np.uint8), expected.view(np.uint8))


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "a branch": (lambda x, y: x if x > 0 else -x, "no decision by its values"),
    "or": (lambda x, y: words.where(x > 0 or y > 0, x, y), r"nor `and`, `or`, `not` \(write `where`"),
    "three compared": (lambda x, y: words.where(0 < x < y, x, y), r"write `where`, `&`"),
    "the builtin max": (lambda x, y: max(x, y), "no decision"),
    "the builtin abs": (lambda x, y: abs(x), "no `abs` but the one of"),
    "a power": (lambda x, y: x**2, r"no `\*\*` \(write a product"),
    "an exponent": (lambda x, y: 2.0**x, r"no `\*\*`"),
    "a remainder": (lambda x, y: x % y, "unsupported operand"),
    "in place": (lambda x, y: operator.imul(x, y), "changes a value in place"),
    "NumPy": (lambda x, y: np.exp(x), "does not support ufuncs"),
    "a method": (lambda x, y: x.sum(), "values have no `sum`"),
    "a product of a comparison": (lambda x, y: x * (x > y), "no number that is a comparison"),
    "a word of a comparison": (lambda x, y: words.exp(x > y), "no number that is a comparison"),
    "comparisons without parentheses": (lambda x, y: x > 0 | y > 0, "each in parentheses"),
    "a comparison and a value": (lambda x, y: (x > y) & x, "each in parentheses|two comparisons"),
    "a choice by a value": (lambda x, y: words.where(x, x, y), "chooses by a comparison"),
    "a text": (lambda x, y: x * "2", "values and numbers, not '2'"),
    "a comparison for a result": (lambda x, y: x > y, "no value of its elements"),
    "nothing": (lambda x, y: None, "returns None"),
    "a number": (lambda x, y: 1.0, "returns 1.0"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_no_formula_has_is_told_before_any_engine_meets_it(what: str) -> None:
    function, said = REFUSED[what]
    with pytest.raises((TypeError, AttributeError), match=said):
        formulas.described(function)


def test_every_way_of_a_switch_is_tried() -> None:
    def squared(x: Value, *, twice: bool, half: bool) -> Value:
        return x**2 if twice and half else x

    with pytest.raises(TypeError, match="write a product"):
        formulas.described(squared)


def test_numbers_stand_behind_the_star_and_in_the_plan(known: Any) -> None:
    def clamped(x: Value, low: float) -> Value:
        return words.maximum(x, low)

    with pytest.raises(TypeError, match=r"clamped: low, a float, must stand behind `\*`"):
        known(clamped)
    clamped.__annotations__.update(x=Value, low=float)  # not put off: classes, not their names
    with pytest.raises(TypeError, match="must stand behind"):
        known(clamped)

    @known
    def above(x: Value, *, low: float) -> Value:
        return words.maximum(x, low)

    for prepare in (cpu.prepare, numpy_engine.prepare):
        with pytest.raises(TypeError, match=r"the formula above takes low: .* numbers are least"):
            evaluate(prepare, above.name, [np.ones(3, np.float32)], {"least": 1.0})


def test_a_formula_without_numbers(known: Any) -> None:
    @known
    def square(x: Value) -> Value:
        return x * x

    x = np.linspace(-3, 3, 101, dtype=np.float32)
    np.testing.assert_array_equal(evaluate(cpu.prepare, square.name, [x], {}), x * x)


def test_two_formulas_of_one_name_are_refused(known: Any) -> None:
    def elu_backward(x: Value) -> Value:
        return x

    with pytest.raises(ValueError, match=r"elu_backward is a formula of .*formulas\.elu already"):
        known(elu_backward)

    def odd(x: Value, *, kind: str) -> Value:
        return x

    with pytest.raises(TypeError, match="odd: kind must be a float or a bool"):
        known(odd)


def test_the_probe_finds_the_words_of_the_way_that_is_taken() -> None:
    elu = FORMULAS["elu_backward"]
    assert elu.words({"is_result": False}) == {"exp", "where"}
    assert elu.words({"is_result": True}) == {"where"}


# --- tuned forms ------------------------------------------------------------------------------------------

TUNED = [
    pytest.param(name, form, id=f"{name}-{form.choose.__name__}")
    for name, own in forms.TUNED.items()
    for form in own
]
BOUNDED = {"folded": 3.5, "clamped": 2.0}
"""Forms that may differ from the plain one, by so many units in the last place; all others give its bits.

ELU's plain form rounds alpha * scale, inputScale * x and each product; the folded one rounds less. Once in millions
smooth L1's quotient is the neighbour of the divided one, and the products round it anew.
"""


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(("kernel", "form"), TUNED)
def test_tuned_forms_do_what_the_plain_form_does(
    kernel: str, form: forms.Tuned, dtype: DType
) -> None:
    rng = np.random.default_rng(11)
    count, inputs = 40_001, len(FORMULAS[kernel].values)
    arrays = [np.round(3 * rng.normal(size=count), 1).astype(dtype.numpy) for _ in range(inputs)]
    served = 0
    for numbers in form.examples:
        plan = dense_plan(kernel, dtype, count, inputs, numbers)
        chosen = form.choose(plan)
        if chosen is None:
            continue
        served += 1
        got, expected = (
            evaluate(
                lambda plan, own=own: elementwise.runner_of(plan, own), kernel, arrays, numbers
            )
            for own in (chosen, elementwise.plain_form(plan))
        )
        bound = BOUNDED.get(form.choose.__name__, 0.0)
        if not bound:
            np.testing.assert_array_equal(got.view(np.uint8), expected.view(np.uint8))
            continue
        wide, plain = got.astype(np.float64), expected.astype(np.float64)
        scale = float(np.ldexp(1.0, -23 if dtype is FLOAT else -10 if dtype.short == "f16" else -7))
        floor = (
            float(np.finfo(np.float16).smallest_subnormal) if dtype.short == "f16" else 2.0**-126
        )
        allowed = (bound if dtype is FLOAT else 1.0) * scale * np.abs(plain) + floor
        assert (np.abs(wide - plain) <= allowed).all()
    assert served or dtype is FLOAT
    assert form.gain
