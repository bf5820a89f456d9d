"""Who computes a problem, whether that is right, and how long it takes.

In the order to read: `contenders.py` says who computes a problem, `sequences.py` who makes calls that change, `verify.py` whether their results
are right; `measure.py` times them in turns, `steady.py` times again what met a slow machine; `teams.py` says whose threads ran, `machine.py` what
else results depend on. Only `problems/` lies below.
"""
