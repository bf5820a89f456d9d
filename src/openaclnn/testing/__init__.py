"""Tools for tests of operators: data, golden values, verdicts and case lists.

    from openaclnn.testing import compare, draw, golden

    given = draw("elu_backward", (32, 128), "float16", seed=1, special=["nan", "zero"])
    assert compare(my_elu_backward(**given), golden("elu_backward", **given).float64)

`compare` judges an output by one of the field's precision standards. Its answer is true if the output passed, and
says what was found fault with when it is printed, as pytest does for a failing `assert`.

    for result in run_cases(read_cases("cases.csv")):
        assert result.ok, result.why
"""

from openaclnn.testing.compare import BadElement, Comparison, compare
from openaclnn.testing.distribution import Distribution
from openaclnn.testing.drawing import SPECIALS, draw
from openaclnn.testing.goldens import Golden, golden
from openaclnn.testing.levels import level_cases
from openaclnn.testing.limits import LEVELS, STANDARDS
from openaclnn.testing.lists import read_cases
from openaclnn.testing.recipe import Recipe
from openaclnn.testing.results import CaseResult
from openaclnn.testing.run import run_cases

__all__ = [
    "LEVELS", "SPECIALS", "STANDARDS", "BadElement", "CaseResult", "Comparison", "Distribution", "Golden", "Recipe",
    "compare", "draw", "golden", "level_cases", "read_cases", "run_cases",
]  # fmt: skip
