"""Faults in ourselves: what a process can lack or suffer is injected at every point of a call, one point after the other.

`scenes.py` has the calls, `inject.py` the sweep over points, `faults.c` what fails. `make faults` sweeps completely; tests/test_faults.py is the short form.
"""
