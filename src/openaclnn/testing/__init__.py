"""Tools for tests of operators: data, golden values, verdicts and case lists.

    from openaclnn.testing import compare
    assert compare(output, golden, standard="mixed")

`compare` judges an output by one of the field's precision standards. Its answer is true if the output passed, and
says what was found fault with when it is printed, as pytest does for a failing `assert`.
"""

from openaclnn.testing.compare import BadElement, Comparison, compare
from openaclnn.testing.limits import LEVELS, STANDARDS

__all__ = ["LEVELS", "STANDARDS", "BadElement", "Comparison", "compare"]
