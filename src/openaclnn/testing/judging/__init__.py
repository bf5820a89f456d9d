"""Verdicts: whether an output is as good as a precision standard asks.

In the order to read: `figures.py` has what the standards allow and measures in one pass over both arrays, `compare.py` has the standards' rules
and the verdict, `picture.py` shows what it found. Any two arrays can be judged: nothing is known here of operators.
"""
