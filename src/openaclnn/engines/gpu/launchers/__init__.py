"""How each Triton kernel is launched: a launch function computes kernels, grids, arguments and constexprs from sizes and strides.

Each such function is written once, over numbers that are Python ints or values of machine code being written. Read first `geometry.py`, which has the inputs and the
result of launch functions and their helpers; then `launcher.py`, which turns a launch function into the runner of one plan, or into a runner of dynamic shapes or strides;
`code.py` makes the latter a builtin in machine code. The other modules have the launch functions, under the names of their kernels: `elementwise.py`, `row_formulas.py`,
`losses.py`, `gradients.py`, `reductions.py`, `axis_sums.py`, `pixels.py`, `multilabel.py`, `steps.py`, `fused_backward.py`, and `sums.py` for the sums that means divide by.
"""
