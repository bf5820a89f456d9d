"""Launches, each said once: a function from sizes and strides to kernels, grids, arguments and constexprs.

In the order to read: `geometry.py` has what such functions are written in, over Python's ints or values of machine code, what they get and
what they give; `launcher.py` makes of one the launches of a plan, a runner of any sizes or of any strides, and the builtin of that, which
`code.py`, `blocks.py` and `words.py` write. Then the launches: `elementwise.py`, by tiles too; `reductions.py`, which launches the kernels of
summed formulas and of the negative log-likelihood; `rows.py`, `pixels.py`, which launches those of odd planes, `logits.py`, which launches
those of short rows, `logit_pixels.py`, `sums.py` for those that divide by them, and `ahead.py`.
"""
