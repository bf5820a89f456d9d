"""The formulas' language in Triton: a formula's own source becomes a function that kernels call.

In the order to read: `translation.py` rewrites the source, `words.py` has the words that it may say, `compiled.py` makes functions of text,
and of formulas, and `tuned.py` has faster forms for some numbers and dtypes. It imports no other package of the engine.
"""
