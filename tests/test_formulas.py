"""Formulas written once: what the language means on NumPy and on the CPU, and that tuned forms do the same."""

from __future__ import annotations

import functools
import hashlib
import itertools
import linecache
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import openaclnn
from openaclnn.core.dtypes import FLOAT, FLOATS, DType
from openaclnn.core.plan import Operand, Plan
from openaclnn.engines import cpu, formulas, numpy as numpy_engine
from openaclnn.engines.cpu import tuned
from openaclnn.engines.cpu.formulas import elementwise, forms
from openaclnn.engines.formulas import FORMULAS, Formula, rows, words
from openaclnn.engines.formulas.language import is_of_the_package
from openaclnn.engines.formulas.words import Value, fma, maximum, where
from openaclnn.operators import registry as every_operator

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


def written(
    text: str, kept: bool = True, scope: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """The last of a text's functions; its source is found again as if it lay in a file, if it is kept. It may call what a scope has."""
    file = f"<{hashlib.sha256(text.encode()).hexdigest()}>"
    if kept:
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names: dict[str, Any] = {**words.WORDS, **(scope or {}), "np": np, "__name__": "written"}
    exec(compile(text, file, "exec"), names)
    function: Callable[..., Any] = [*names.values()][-1]
    return function


def dense_plan(
    kernel: str, dtype: DType, count: int, inputs: int, numbers: Mapping[str, Any]
) -> Plan:
    operand = Operand("x", dtype, (1,))
    return Plan("", kernel, dtype, (count,), (operand,) * inputs, operand, numbers)


def evaluate(
    prepare: Callable[[Plan], Any], kernel: str, arrays: Sequence[Array], numbers: Mapping[str, Any]
) -> Array:
    """One kernel over dense arrays of one dtype."""
    dtype = next(dtype for dtype in FLOATS if dtype.numpy == arrays[0].dtype)
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


@pytest.mark.parametrize("word", ["abs", "sign", "sqrt"])
def test_words_of_one_value(word: str, known: Any) -> None:
    one = known(written(f"def one_{word}(x):\n    return {word}(x)"))
    got, theirs = (
        evaluate(engine.prepare, one.name, [EVERYWHERE], {}) for engine in (cpu, numpy_engine)
    )
    np.testing.assert_array_equal(got, theirs)
    assert not np.signbit(got[got == 0]).any() or word == "sqrt"


@pytest.mark.parametrize("word", ["minimum", "maximum"])
def test_words_of_two_values(word: str, known: Any) -> None:
    two = known(written(f"def two_{word}(x, y):\n    return {word}(x, y)"))
    x, y = (np.ascontiguousarray(a.ravel()) for a in np.meshgrid(SPECIAL, SPECIAL))
    got = evaluate(cpu.prepare, two.name, [x, y], {})
    np.testing.assert_array_equal(got, words.WORDS[word](x, y))


@pytest.mark.parametrize("word", ["scaled_exp", "scaled_expm1"])
def test_words_of_a_multiplier_a_factor_and_a_value(word: str, known: Any) -> None:
    """Exponents beyond FLOAT's, subnormal multipliers, and factors that are no vectors: within 2.5 ulp, zeros with their signs."""
    three = known(written(f"def three_{word}(m, f, x):\n    return {word}(m, f, x)"))
    rng = np.random.default_rng(9)
    count = 40_000
    most = 170 if word == "scaled_exp" else 88
    factor = (rng.choice((-1, 1), count) * 2.0 ** rng.uniform(-20, 20, count)).astype(np.float32)
    x = (rng.uniform(-most, most, count) / factor).astype(np.float32)
    small = rng.random(count) < 0.2
    x[small] = (2.0 ** rng.uniform(-140, 0, small.sum()) / factor[small]).astype(np.float32)
    x[:4] = 0.0, -0.0, 0.0, -0.0
    low = -126 if word == "scaled_exp" else -60
    multiplier = (2.0 ** rng.uniform(low, 60, count)).astype(np.float32)
    with np.errstate(all="ignore"):
        exponent = factor.astype(np.float64) * x
        exact = multiplier * (np.exp if word == "scaled_exp" else np.expm1)(exponent)
    for prepare in (cpu.prepare, numpy_engine.prepare):
        got = evaluate(prepare, three.name, [multiplier, factor, x], {})
        assert ulps(got, exact) <= 2.5
        np.testing.assert_array_equal(np.signbit(got[:4]), np.signbit(exact[:4]))


def test_fma_rounds_once(known: Any) -> None:
    @known
    def multiply_add(x: Value, y: Value, z: Value) -> Value:
        return fma(x, y, z)

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
        first = where((a > b) & ~(c > d) | (a == d), a * p - q, -(b / r))
        if turned:
            first = maximum(1.0 - first, s)
        return first * t + where(a != b, 1.0, 2.0)

    rng = np.random.default_rng(3)
    numbers = {"p": 1.5, "q": 0.3, "r": 0.7, "s": -0.2, "t": 3.1}
    for dtype, turned in itertools.product(FLOATS, (False, True)):
        arrays = [rng.normal(size=1003).astype(dtype.numpy) for _ in range(4)]
        options = {**numbers, "turned": turned}
        got, expected = (
            evaluate(prepare, many.name, arrays, options)
            for prepare in (cpu.prepare, numpy_engine.prepare)
        )
        np.testing.assert_array_equal(got.view(np.uint8), expected.view(np.uint8))


REFUSED = {
    # The source: the line that leaves the language, and what is said of it.
    "a loop": ("for _ in range(3):\n    x = x * x\nreturn x", 0, "loop (write its turns one after another)"),
    "a loop to a condition": ("while x > y:\n    x = x * y\nreturn x", 0, "loop (write its turns"),
    "a comprehension": ("return sum(x for _ in range(3))", 0, "loop (write its turns"),
    "a lambda inside": ("twice = lambda v: v + v\nreturn twice(x)", 0, "`lambda` (write a function with `def`"),
    "an early return": ("if s:\n    return x\nreturn y", 1, "`return` before the end, nor without a value (write"),
    "an empty return": ("return", 0, "`return` before the end, nor without a value"),
    "a branch by a value": ("if x > 0:\n    x = x + 1\nreturn x", 0, "`if x > 0`: only for its `bool`s (write `where`)"),
    "a choice by a value": ("return x if x > 0 else -x", 0, "`if x > 0`: only for its `bool`s (write `where`)"),
    "a switch that is not": ("return x if not s else y", 0, "`not` (exchange the two branches"),
    "two switches": ("return x if s and s else y", 0, "`and` (write `&`"),
    "or": ("return where(x > 0 or y > 0, x, y)", 0, "`or` (write `|` between comparisons"),
    "three compared": ("return where(0 < x < y, x, y)", 0, "comparison of three (write two, and `&`"),
    "a builtin": ("y = x\nreturn max(x, y)", 1, "`max` (it calls where, fma, exp"),
    "NumPy": ("return np.exp(x)", 0, "`np.exp` (it calls where, fma, exp"),
    "a method": ("return x.sum()", 0, "`x.sum` (it calls where, fma, exp"),
    "an attribute": ("return x * np.pi", 0, "dot (import the word"),
    "what is no number": ("return x * np", 0, "`np` (names are its own, or numbers of its file)"),
    "a text": ("return x * '2'", 0, "`'2'`"),
    "a truth value": ("return x * True", 0, "`True`"),
    "a power": ("return x**2", 0, "`**` (write a product"),
    "a remainder": ("return x % y", 0, "operator of `x % y`"),
    "in place": ("x *= y\nreturn x", 0, "assignment that changes a value in place (write"),
    "no return": ("z = x * y", 0, "end without `return`"),
    "a way without a return": ("if s:\n    return x", 0, "end without `return`, which one way of this `if` has"),
    "itself": ("return f(x, y, s=s)", 0, "function that calls itself"),
    "what FLOAT has not": ("return x * 1e39", 0, "`1e+39`, which is beyond FLOAT's range"),
    "a function inside": ("def g(v):\n    return v\nreturn g(x)", 0, "`def g(v):`"),
    "two names": ("u = v = x\nreturn u + v", 0, "`u = v = x` (give one name one value)"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_no_formula_says_is_told_with_its_line_before_any_engine_meets_it(what: str) -> None:
    body, line, said = REFUSED[what]
    function = written(f"def f(x, y, *, s: bool):\n{textwrap.indent(body, '    ')}\n")
    with pytest.raises(TypeError) as refusal:
        formulas.described(function)
    file = function.__code__.co_filename
    assert str(refusal.value).startswith(f"f ({file}, line {2 + line}): a formula has no {said}")


def test_a_formula_is_a_function_without_defaults() -> None:
    (short,) = [lambda x: x]
    line = short.__code__.co_firstlineno
    with pytest.raises(TypeError, match=rf"{__file__}, line {line}\): a formula has no `lambda`"):
        formulas.described(short)
    for head in ("x, *, low: float = 0.0", "*x", "x, **low"):
        with pytest.raises(TypeError, match=r"line 1\): a formula has no `\*`, `\*\*` or defaults"):
            formulas.described(written(f"def f({head}):\n    return x"))


def test_helpers_are_read_as_well() -> None:
    with pytest.raises(TypeError, match=r"helper \(.*, line 2\): a formula has no `\*\*`"):
        formulas.described(
            written("def helper(x):\n    return x**2\ndef f(x):\n    return helper(x)\n")
        )


def test_functions_that_call_each_other_are_refused(known: Any) -> None:
    text = "def g(x, one: bool, other: bool):\n    return h(x, other, one) if one else x\n\ndef h(x, one: bool, other: bool):\n    return g(x, one, other)\n\ndef f(x, *, one: bool, other: bool):\n    return g(x, one, other)\n"
    said = r"g \(.*, line 1\): a formula has no function that calls itself: g calls h calls g"
    with pytest.raises(TypeError, match=said):
        formulas.described(written(text))
    endless = "def f(x):\n    return f(x) + 1.0\n"
    with pytest.raises(TypeError, match=r"f \(.*, line 2\): a formula has no function that calls"):
        formulas.described(written(endless, kept=False))


TRIED = {
    "a name that one way gives no value": ("if s:\n    z = x\nreturn x * z", 2, "cannot access local variable 'z'"),
    "a division by nothing": ("z = 1 / 0\nreturn x * z", 0, "division by zero"),
    "a word of one value too many": ("return exp(x, y, x)", 0, "`exp` takes 1 or 2 values, not 3"),
    "a word of one value too few": ("z = x\nreturn maximum(z)", 1, "`maximum` takes 2 values, not 1"),
    "a choice of one": ("return where(x > y, x)", 0, "`where` takes 3 values, not 2"),
    "a comparison for a condition": ("z = x\nreturn (\n    y + where(z, x, y)\n)", 2, "a formula chooses by a comparison"),
    "a number for every element": ("return 1.0", -2, "a formula returns no number that is the same"),
    "more results one way": ("if s:\n    return x, y\nelse:\n    return x", -2, "a formula returns as many results"),
    "a switch for a number": ("return x * s", 0, "a formula computes with values and numbers, not False"),
}  # fmt: skip


@pytest.mark.parametrize("what", TRIED)
def test_what_is_found_by_a_trial_is_told_with_its_line(what: str) -> None:
    body, line, said = TRIED[what]
    head = "# a comment\ndef f(\n    x, y, *, s: bool\n):\n"
    function = written(head + textwrap.indent(body, "    ") + "\n")
    with pytest.raises(TypeError) as refusal:
        formulas.described(function)
    file, first = function.__code__.co_filename, 5 + line if line >= 0 else 2
    assert str(refusal.value).startswith(f"f ({file}, line {first}): ")
    assert said in str(refusal.value)


def test_a_trial_names_the_helper_that_is_wrong(known: Any) -> None:
    text = "def helper(x):\n    y = x\n    return where(x, x, y)\ndef f(x):\n    return 1.0 - helper(x)\n"
    with pytest.raises(TypeError, match=r"^helper \(.*, line 3\): a formula chooses by a compar"):
        formulas.described(written(text))


def test_a_formula_of_the_package_is_told_as_well_what_to_write() -> None:
    """Their sources are not read at import, unless a trial finds something."""
    function = written("def f(x):\n    return np.exp(x)\n")
    function.__module__ = f"{formulas.__name__}.written"
    with pytest.raises(TypeError, match=r"f \(.*, line 2\): a formula has no `np.exp` \(it calls"):
        formulas.described(function)
    assert formulas.described(written("def f(x):\n    return x * x")).values == ("x",)


@pytest.mark.parametrize("what", [3, Value, functools.partial(abs)])
def test_a_formula_is_a_function(what: Any) -> None:
    for describe in (formulas.described, rows.described):
        with pytest.raises(TypeError, match="a formula is a function, not"):
            describe(what)


MISUSED = {
    "a product of a comparison": ("x * (x > y)", "no number that is a comparison"),
    "a word of a comparison": ("exp(x > y)", "no number that is a comparison"),
    "a comparison and a value": ("where((x > 0) | y, x, y)", "for comparisons alone"),
    "a value and a comparison": ("where(x | y > 0, x, y)", "comparisons alone, in parentheses"),
    "a choice by a value": ("where(x, x, y)", "chooses by a comparison"),
    "a comparison for a result": ("x > y", "no number that is a comparison"),
    "a number": ("1.0", "the same for every element"),
}


@pytest.mark.parametrize("what", MISUSED)
def test_values_are_told_from_comparisons(what: str) -> None:
    expression, said = MISUSED[what]
    with pytest.raises(TypeError, match=said):
        formulas.described(written(f"def f(x, y):\n    return {expression}\n"))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return x if x > 0 else -x", "no decision by its values"),
        ("x *= y; return x", "changes a value in place"),
        ("return np.exp(x)", "does not support ufuncs"),
        ("return x**2", "unsupported operand"),
    ],
)
def test_without_a_source_nothing_wrong_passes(body: str, said: str) -> None:
    """As in an application that is packed without sources, or typed at a prompt."""
    with pytest.raises(TypeError, match=said):
        formulas.described(written(f"def f(x, y): {body}", kept=False))
    assert formulas.described(written("def f(x, y): return x", kept=False)).values == ("x", "y")


def test_every_way_of_a_switch_is_tried() -> None:
    def compared(x: Value, *, one: bool, other: bool) -> Value:
        if one:
            x = x > 0 if other else x
        return x

    with pytest.raises(TypeError, match="no number that is a comparison"):
        formulas.described(compared)


def test_numbers_stand_behind_the_star_and_in_the_plan(known: Any) -> None:
    def clamped(x: Value, low: float) -> Value:
        return maximum(x, low)

    with pytest.raises(TypeError, match=r"clamped \(.*\): low, a float, must stand behind `\*`"):
        known(clamped)
    clamped.__annotations__.update(x=Value, low=float)  # not put off: classes, not their names
    with pytest.raises(TypeError, match="must stand behind"):
        known(clamped)

    @known
    def above(x: Value, *, low: float) -> Value:
        return maximum(x, low)

    for prepare in (cpu.prepare, numpy_engine.prepare):
        with pytest.raises(TypeError, match=r"the formula above takes low: .* numbers are least"):
            evaluate(prepare, above.name, [np.ones(3, np.float32)], {"least": 1.0})


def test_a_formula_without_numbers(known: Any) -> None:
    @known
    def square(x: Value) -> Value:
        return x * x

    x = np.linspace(-3, 3, 101, dtype=np.float32)
    np.testing.assert_array_equal(evaluate(cpu.prepare, square.name, [x], {}), x * x)


def formulas_of_the_package(kind: type) -> list[Any]:
    """Formulas that stand in its modules, tuned forms' among them."""
    every_operator()
    modules = [sys.modules[name] for name in [*sys.modules] if name.startswith("openaclnn.")]
    found = {id(each): each for module in modules for each in vars(module).values() if isinstance(each, kind)}  # fmt: skip
    return [*found.values()]


def test_the_packages_formulas_are_of_the_language() -> None:
    """Importing them does not read their sources."""
    ours = [each for each in formulas_of_the_package(formulas.Formula) if is_of_the_package(each.function)]  # fmt: skip
    assert len(ours) > 30
    assert any(".tuned." in each.function.__module__ for each in ours)
    for formula in ours:
        formulas.read(formula.function)


def test_two_formulas_of_one_name_are_refused(known: Any) -> None:
    def elu_backward(x: Value) -> Value:
        return x

    with pytest.raises(ValueError, match=r"elu_backward is a formula of .*formulas\.elu already"):
        known(elu_backward)

    def odd(x: Value, *, kind: str) -> Value:
        return x

    with pytest.raises(TypeError, match=r"odd \(.*\): kind must be a float or a bool"):
        known(odd)


def test_a_formula_tells_the_words_of_the_way_that_is_taken() -> None:
    elu = FORMULAS["elu_backward"]
    assert elu.words({"is_result": False}) == {"scaled_exp", "where"}
    assert elu.words({"is_result": True}) == {"where"}


# --- tuned forms ------------------------------------------------------------------------------------------

TUNED = [
    pytest.param(name, form, id=f"{name}-{form.choose.__name__}")
    for name, tuned in forms.TUNED.items()
    for form in tuned
]
BOUNDED = {"folded": 3.5, "forward": 2.0, "clamped": 2.0, "loss": 2.0}
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
                lambda plan, variant=variant: elementwise.runner_of(plan, variant),
                kernel,
                arrays,
                numbers,
            )
            for variant in (chosen, elementwise.plain_form(plan))
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
