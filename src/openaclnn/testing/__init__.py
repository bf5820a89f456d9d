"""Tools for tests of operators: data, golden values, verdicts and case lists.

    from openaclnn.testing import compare, draw, golden

    given = draw("elu_backward", (32, 128), "float16", seed=1, special=["nan", "zero"])
    assert compare(my_elu_backward(**given), golden("elu_backward", **given).float64)

`compare` judges an output by one of the field's precision standards. Its answer is true if the output passed, and
says what was found fault with when it is printed, as pytest does for a failing `assert`.

    for result in run_cases(read_cases("cases.csv")):
        assert result.ok, result.why

These are the public names. They come from these packages, each of which imports from those below it:

    running/     cases made into calls, run and judged          programs.py  a call as the text of a program
    cases/       what a case is, and lists of them
    data/        arguments drawn from seeds, golden values
    judging/     verdicts by precision standards                files.py     arrays in files

Below them all, `extras.py` reads dtypes, shapes and values that are written, and has the libraries that only some tools need.
"""

from openaclnn.testing.cases import read_cases
from openaclnn.testing.data.drawing import SPECIALS, Distribution, Recipe, draw
from openaclnn.testing.data.goldens import Golden, golden
from openaclnn.testing.judging.compare import BadElement, Comparison, compare
from openaclnn.testing.judging.figures import LEVELS, STANDARDS
from openaclnn.testing.running.build import level_cases
from openaclnn.testing.running.run import CaseResult, run_cases

__all__ = [
    "LEVELS", "SPECIALS", "STANDARDS", "BadElement", "CaseResult", "Comparison", "Distribution", "Golden", "Recipe",
    "compare", "draw", "golden", "level_cases", "read_cases", "run_cases",
]  # fmt: skip
