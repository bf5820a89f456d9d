"""How any kernel is started, whatever it computes: on the caller, on workers of the engine's own, or on a team of OpenMP's.

In the order to read: `control.py` says where the words lie that threads share, `launcher.py` has the builtins that launch and how threads share a kernel,
`pool.py` the threads.
"""
