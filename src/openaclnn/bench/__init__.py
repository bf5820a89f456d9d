"""Benchmarks of every operator on every engine, beside PyTorch and a plain copy: `openaclnn bench` runs them.

In the order to read, each importing from those above it:

- what is timed: `problems.py` makes an operator's arguments, `regimes.py` has the sizes;
- how: `timing.py` describes cases and contenders, times them in turns, and again what met a slow machine; `contenders.py` says who computes a
  problem, and whether that is right;
- the sections: `calls.py` has calls that change, `training.py` steps of training, modules and PyTorch's operators replaced, `runner.py` operators by size, all
  elementwise operators and first calls, each in a process that runs `processes.py`; it chooses the cases, runs them all and says on what machine;
- what is read: `reports.py` makes tables of results, a page, CSV and pictures.

Results are plain dicts, as the JSON file holds them.
"""
