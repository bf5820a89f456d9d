"""Launches, each said once: a function from sizes and strides to kernels, grids, arguments and constexprs.

In the order to read: `numbers.py` has the words that such functions are written in, `launcher.py` what they give and what is made of one:
the launches of a plan, a runner of any size or of any strides, and the builtin of that, which `code.py`, `words.py` and `fitted.py` write.
The other files have the launches, under the kernels' names.
"""
