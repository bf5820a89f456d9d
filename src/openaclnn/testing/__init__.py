"""Tools for tests of operators: data, golden values, verdicts and case lists.

    from openaclnn.testing import compare, draw, golden

    given = draw("elu_backward", (32, 128), "float16", seed=1, special=["nan", "zero"])
    assert compare(my_elu_backward(**given), golden("elu_backward", **given).float64)

`compare` judges an output by one of the field's precision standards. Its answer is true if the output passed, and
says what was found fault with when it is printed, as pytest does for a failing `assert`.

    for result in run_cases(read_cases("cases.csv")):
        assert result.ok, result.why

These are the public names. They come from these files, each of which imports from those below it:

    run.py       `run_cases`: draws, runs and judges              programs.py  a call as the text of a program
    calls.py     makes a call, whole or in pieces
    build.py     a case made into a call with its data, or what it would be told without
    cases/       what a case is, and lists of them                manifest.py  golden values in folders, written as a whole
    drawing.py   arguments drawn from seeds, recipes of cases
    goldens.py   what they should give
    verdicts.py  the standards' verdicts, and their pictures      files.py     arrays in files
    figures.py   what the standards allow, measured in one pass

Below them all, `extras.py` reads dtypes, shapes and values that are written, and has the libraries that only some tools need.
"""

from openaclnn.testing.build import level_cases
from openaclnn.testing.cases import read_cases
from openaclnn.testing.drawing import SPECIALS, Distribution, Recipe, draw
from openaclnn.testing.figures import LEVELS, STANDARDS
from openaclnn.testing.goldens import Golden, golden
from openaclnn.testing.run import CaseResult, run_cases
from openaclnn.testing.verdicts import BadElement, Comparison, compare

__all__ = [
    "LEVELS", "SPECIALS", "STANDARDS", "BadElement", "CaseResult", "Comparison", "Distribution", "Golden", "Recipe",
    "compare", "draw", "golden", "level_cases", "read_cases", "run_cases",
]  # fmt: skip
