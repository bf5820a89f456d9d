"""Launches, each said once: a function from sizes and strides to kernels, grids, arguments and constexprs.

In the order to read: `numbers.py` has the words that such functions are written in, over Python's ints or values of machine code; `geometry.py`
says what they get and give, `launcher.py` makes of one the launches of a plan, a runner of any sizes or of any strides, and the builtin of that, which
`code.py`, `blocks.py` and `words.py` write; `formulas.py` does so for kernels that are made from formulas. Then the launches, under the kernels'
names: `elementwise.py` and `tiles.py`; `reductions.py`, which launches the kernels of summed formulas too; `rows.py`, `pixels.py`, which launches those of odd planes,
`logits.py`, which launches those of short rows, `logit_pixels.py`, `sums.py` for those that divide by them, and `ahead.py`.
"""
