"""Launches, each said once: a function from sizes and strides to kernels, grids, arguments and constexprs.

In the order to read: `geometry.py` has what such functions are written in, over Python's ints or values of machine code, what they get and
what they give; `launcher.py` makes of one the launches of a plan, a runner of any sizes or of any strides, and the builtin of that, which
`code.py` makes. Then the launches, under the kernels' names: `elementwise.py`, `row_formulas.py`, `losses.py`, `gradients.py`, `reductions.py`, `axis_sums.py`,
`pixels.py`, `multilabel.py`, `sums.py` for those that divide by them, `steps.py` and `fused_backward.py`.
"""
