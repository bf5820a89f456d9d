"""The formulas' language in Triton: a formula's own source becomes a function that kernels call.

In the order to read: `translation.py` rewrites the source, `words.py` has the words that it may say, `source.py` makes functions of text,
`compiled.py` puts the three together, and `tuned.py` has faster forms for some numbers and dtypes. Of the engine's rooms it imports none.
"""
