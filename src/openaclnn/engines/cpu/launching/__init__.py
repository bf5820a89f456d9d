"""How any kernel is started, whatever it computes: on the caller, on workers of the engine's own, or on a team of OpenMP's.

In the order to read: `control.py` says where the words lie that threads share, `sharing.py` how they share a kernel, `launcher.py` has the builtins that launch,
`pool.py` the threads, and `in_turn.py` makes one launch of two kernels.
"""
