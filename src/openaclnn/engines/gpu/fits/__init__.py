"""Which compiled kernel fits a call, and with which numbers: machine code that computes what `sizes/` computes in Python, and launches it.

In the order to read: `fitting.py` chooses a fit for a plan, `fitted.py` makes a builtin of it, `code.py` and `words.py` write its machine
code; the fits are `flat.py`, `classes.py`, `strided.py`, `logits.py`, `logit_pixels.py` and `reductions.py`. Tests hold each to Python, word for word. All but
`fitting.py` import llvmlite. They know the launches of `plans/`, not who asks.
"""
