"""Benchmarks of every operator on every engine, beside PyTorch and a plain copy: `openaclnn bench` runs them.

Each of these rooms imports from those below it:

    reports/     what is read: the terminal, a page, pictures, a sheet
    tables/      results as tables, whoever shows them
    sections/    the parts of a run, and the run
    timing/      who computes a problem, whether that is right, how long it takes
    problems/    what is timed

Beside `reports/`, `accuracy.py` is a program of its own: how exact results are.
"""
