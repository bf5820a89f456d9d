"""Kernels that compute a formula, at each element or added up over all.

In the order to read: `words.py` has the words of formulas as vector code, `forms.py` makes a kernel of them, `elementwise.py` chooses a form for a plan and runs it,
`sums.py` adds up what it gives, and `axis_sums.py` few of it along some axes. Forms that are faster for some plans are in `tuned/`.
"""
