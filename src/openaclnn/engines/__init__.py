"""Kernels, one package per engine. They know plans and addresses, and nothing of documents or statuses.

`dispatch.py` chooses the engine of a plan: `cpu/`, `gpu/` or `numpy/`; `steps.py` runs plans of several steps on any of them, `arrays.py` steps that array libraries compute: matrix products. `formulas/` has elementwise computations, written once for all of them, `machine/` the
language of code that is compiled at run time; `threads.py` and `openmp.py` know how many threads there may be, and whose.
"""
