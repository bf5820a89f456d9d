"""The page on numerics and the kernels keep in step: a short search finds no error above the page's."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tools.accuracy import FILES, Search, searched
from tools.hard import HARD
from tools.words import ulps

from openaclnn.operators import find_operator

TABLE = Path(__file__).parents[1] / "docs" / FILES[0]
BOUNDS = {
    (operator, where): (float(of_cpu), float(of_numpy))
    for operator, where, of_cpu, of_numpy, _ in [*csv.reader(TABLE.read_text().splitlines())][1:]
}
OPERATORS = [*HARD]


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.in_turns
def test_a_short_search_stays_within_the_page(name: str) -> None:
    for place in searched(3, f" {name} "):
        operator, where, *_ = place.row()
        of_cpu, of_numpy = BOUNDS[operator, where]
        for engine, worst in place.by_engine.items():
            assert worst.ours <= (of_numpy if engine == "numpy" else of_cpu), (where, worst)


def test_no_row_of_the_page_is_of_a_place_that_is_gone() -> None:
    places = {
        (operator.name, place or "as it is")
        for operator in map(find_operator, HARD)
        for place in HARD[operator.python_name]
    }
    assert BOUNDS
    for operator, where in BOUNDS:
        assert any(operator == name and where.startswith(place) for name, place in places)


def test_errors_count_subnormal_results_and_misplaced_infinities() -> None:
    exact = np.array([1.0, 2.0**-149, 0.0, 1e39, 1.0, np.nan])
    got = np.float32([1 + 2.0**-23, 2 * 2.0**-149, 2.0**-149, np.inf, np.inf, np.nan])
    np.testing.assert_array_equal(ulps(got, exact), [1, 1, 1, 0, np.inf, 0])


def test_the_search_sees_a_kernel_that_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a reference that is off by 2^-20 of itself, that is what the search reports."""
    operator = find_operator("l1_loss")

    def off(_: object, /, **inputs: Any) -> Any:
        return np.abs(inputs["self"].astype(np.float64) - inputs["target"]) * (1 + 2.0**-20)

    monkeypatch.setattr(type(operator), "oracle", off)
    worst = Search(operator, "").run(1, ("numpy",))["numpy"][""]
    assert worst.ours > 8
