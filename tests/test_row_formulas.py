"""The language of row formulas: what its words mean, what its graphs are like, and what is refused, with line and reason."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import openaclnn
from openaclnn.engines.formulas import cross_entropy, rows, words
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
    log_sum_exp,
    row_formula,
    total,
)
from openaclnn.engines.formulas.words import exp, log, where
from openaclnn.engines.numpy.rows import evaluate
from test_formulas import formulas_of_the_package, written

assert openaclnn.registry()  # operators bring their formulas
KINDS = {name: getattr(rows, name) for name in ("Row", "PerClass", "PerRow", "Target")}
X = np.random.default_rng(5).normal(size=(6, 9))


@pytest.fixture
def known() -> Iterator[Any]:
    """Makes functions known as row formulas for one test."""
    before = dict(ROW_FORMULAS)
    yield row_formula
    ROW_FORMULAS.clear()
    ROW_FORMULAS.update(before)


def results(formula: RowFormula, inputs: dict[str, Any], **numbers: Any) -> list[Any]:
    outputs: list[Any] = evaluate(formula.graph(numbers), inputs, numbers, np.float64)
    return outputs


def test_rows_numbers_a_class_and_a_row_switches_and_both_sorts_of_results() -> None:
    def mixed(
        x: Row, weight: PerClass, share: PerRow, *, scale: float, centred: bool
    ) -> tuple[Row, PerRow]:
        if centred:
            x = x - total(x) * 0.125
        return x * weight * scale + share, largest(x) - total(share)

    formula = described(mixed)
    assert formula.operands == (("x", "Row"), ("weight", "PerClass"), ("share", "PerRow"))
    assert (formula.numbers, formula.switches) == (("scale",), ("centred",))
    assert formula.roles == ("full", "classes", "positions")
    weight, share = np.arange(9.0)[None], np.arange(6.0)[:, None]
    for centred in (False, True):
        got = results(
            formula, {"x": X, "weight": weight, "share": share}, scale=2.0, centred=centred
        )
        shifted = X - X.sum(1, keepdims=True) / 8 if centred else X
        np.testing.assert_allclose(got[0], shifted * weight * 2 + share, rtol=1e-14)
        # What is the same for all classes counts for each of them.
        np.testing.assert_allclose(got[1], shifted.max(1, keepdims=True) - 9 * share, rtol=1e-14)


def test_log_sum_exp() -> None:
    def entropy(x: Row) -> PerRow:
        return log_sum_exp(x)

    formula = described(entropy)
    graph = formula.graph({})
    assert graph.levels == 1  # largest and sum in one pass
    assert [node.online is not None for node in graph.nodes if node.what == "total"] == [True]
    for shift in (0, 800, -800):
        (got,) = results(formula, {"x": X + shift})
        known = np.log(np.exp(X).sum(1, keepdims=True)) + shift
        np.testing.assert_allclose(got, known, rtol=1e-14)
    with np.errstate(invalid="ignore"):
        special = np.array([[-np.inf, 1], [np.inf, 1], [np.nan, 1], [-np.inf, -np.inf]])
        np.testing.assert_array_equal(results(formula, {"x": special})[0][:, 0], [1, np.nan, np.nan, np.nan])  # fmt: skip


def test_what_is_computed_twice_is_one_value_and_levels_follow() -> None:
    def twice(x: Row) -> Row:
        return exp(x - largest(x)) / total(exp(x - largest(x)))

    graph = described(twice).graph({})
    softmax = ROW_FORMULAS["softmax"].graph({})
    assert [node.what for node in graph.nodes] == [node.what for node in softmax.nodes]
    assert graph.levels == 1

    def deviation(x: Row) -> PerRow:
        apart = x - total(x) * 0.125
        return total(apart * apart)

    assert described(deviation).graph({}).levels == 2


def test_targets() -> None:
    def picked(x: Row, target: Target) -> PerRow:
        return where(is_counted(target), at(x, target) - total(where(is_target(target), 0.0, x)), 0.0)  # fmt: skip

    target = np.array([0, 8, -1, 9, 3, 2])[:, None]
    (got,) = results(described(picked), {"x": X, "target": target}, ignore_index=3)
    chosen = [2 * X[n, t] - X[n].sum() if 0 <= t < 9 and t != 3 else 0 for n, t in enumerate(target[:, 0])]  # fmt: skip
    np.testing.assert_allclose(got[:, 0], chosen, rtol=1e-12)


HEAD = "def own(x: Row, weight: PerClass, share: PerRow, target: Target, *, scale: float, way: bool) -> Row:\n"
REFUSED = {
    "for each in x:\n    pass\nreturn x": "loop",
    "return x ** 2": "`**`",
    "return x if x > 0 else 0": "`if x > 0`",
    "x += 1\nreturn x": "changes a value in place",
    "a, b = x, x\nreturn a": "give one name one value",
    "return np.exp(x)": "`np.exp`",
    "return x.sum()": "`x.sum`",
    "if way:\n    return x\nreturn x": "`return` before the end",
    "return print(x)": "`print`",
    "return x * target": "target is a class index: write `is_target` or `at`",
    "return total(target)": "target is a class index",
    "return at(x, share)": "declared `Target`",
    "return where(is_target(x), x, 0.0)": "declared `Target`",
    "return (x > 0) * x": "number that is a comparison",
    "return total(x > 0)": "number that is a comparison",
    "return x > share": "number that is a comparison",
    "return where(x, x, 0.0)": "chooses by a comparison",
    "return where(x & share, x, 0.0)": "for comparisons alone",
    "return weight * scale": "the same for every row",
    "return x, weight": "the same for every row",
    "return scale": "the same for every row",
    "return total(x, x)": "positional argument",
    "return (x, (x, x))": "values and numbers",
    "return": "without a value",
}


@pytest.mark.parametrize("body", REFUSED)
def test_what_not_all_engines_have_is_refused_where_it_stands(body: str) -> None:
    lines = HEAD + "\n".join(f"    {line}" for line in body.splitlines()) + "\n"
    function = written(lines, scope=rows.ROW_WORDS | KINDS)
    with pytest.raises(TypeError, match=re.escape(REFUSED[body])) as caught:
        described(function)
    place = re.search(r"^own \(<\w+>, line (\d+)\): ", str(caught.value))
    assert place is not None, caught.value
    # The function's first line where a result is wrong: it is all the ways to it.
    assert int(place[1]) <= len(lines.splitlines())
    if "loop" in str(caught.value) or "target is" in str(caught.value):
        assert int(place[1]) == 2


def test_what_it_takes_is_said_by_annotations() -> None:
    def unknown(x: Row, y: float) -> Row:
        return x

    def number(x: Row, *, scale: int) -> Row:
        return x

    def rowless(x: PerRow) -> PerRow:
        return x

    def evaluated(x: Row) -> Row:
        return x

    evaluated.__annotations__["x"] = Row  # as without `from __future__ import annotations`
    for function, told in (
        (evaluated, "begin with `from __future__ import annotations`"),
        (unknown, "y: expected one of Row, PerClass, PerRow, Target, got float"),
        (number, "scale: expected a float or a bool, got int"),
        (rowless, "expected a Row among its operands"),
    ):
        with pytest.raises(TypeError, match=told):
            described(function)


def test_words_are_for_formulas() -> None:
    for word in rows.ROW_WORDS.values():
        with pytest.raises(TypeError, match="word of row formulas"):
            word(*[1.0] * (word.__wrapped__.__code__.co_argcount))
    node = ROW_FORMULAS["softmax"].graph({}).nodes[0]
    with pytest.raises(TypeError, match="no decision by its values"):
        bool(node > 0)
    with pytest.raises(AttributeError, match="sinh"):
        node.graph.sinh(node)


def test_a_name_is_one_formula_s(known: Any) -> None:
    def softmax(x: Row) -> Row:
        return x

    with pytest.raises(ValueError, match="softmax is a row formula of openaclnn"):
        known(softmax)

    def turned(x: Row, *, negative: bool) -> Row:
        return -x if negative else x

    assert known(turned) is ROW_FORMULAS["turned"]
    with pytest.raises(TypeError, match="turned takes negative: the plan's numbers are other"):
        ROW_FORMULAS["turned"].graph({"other": 1.0})


def test_elementwise_words_mean_the_same() -> None:
    """Words in a row formula are NumPy's of the same names."""
    one, two, three = np.abs(X) + 0.5, np.abs(X[::-1]) + 0.5, X
    counts = {"where": 3, "fma": 3, "minimum": 2, "maximum": 2, "exp": 1, "expm1": 1, "log": 1, "log1p": 1, "sqrt": 1, "tanh": 1}  # fmt: skip
    for name, count in counts.items():
        word = words.WORDS[name]
        inputs = [one, two, three][:count]
        graph = rows.traced(
            lambda *values, word=word, name=name: word(values[0] > 1.0, *values[1:]) if name == "where" else word(*values),
            [(f"x{n}", "Row") for n in range(count)], (), {},
        )  # fmt: skip
        with np.errstate(all="ignore"):
            (got,) = evaluate(
                graph, {f"x{n}": array for n, array in enumerate(inputs)}, {}, np.float64
            )
            known = word(inputs[0] > 1.0, *inputs[1:]) if name == "where" else word(*inputs)
        np.testing.assert_allclose(got, known, rtol=1e-6)
    assert log(1.0) == 0


def test_the_packages_formulas_are_of_the_language_on_every_way() -> None:
    """Importing them does not read their sources, and tries two ways of their switches."""
    ours = formulas_of_the_package(RowFormula)
    assert len(ours) > 30
    assert cross_entropy.cross_entropy_loss in ours
    for formula in ours:
        rows.check(formula)
