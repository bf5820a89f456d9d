"""Where the words lie that machine code reads, and what must hold before it may.

In the order to read: `slots.py` has the cache's own, which Python fills, `readers.py` those of NumPy's arrays and what to ask PyTorch, and `native.py` those
of a kernel in PyTorch's dispatcher.
"""
