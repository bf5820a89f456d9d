"""Verdicts: whether an output is as good as a precision standard asks.

In the order to read: `limits.py` has what the standards allow, `figures.py` measures in one pass over both arrays, `rules.py` says what is
bad, `cross_check.py` is the commercial standard, which looks at a third party's output too; `compare.py` puts these together, and
`sights.py` and `picture.py` show what it found. Any two arrays can be judged: nothing is known here of operators.
"""
