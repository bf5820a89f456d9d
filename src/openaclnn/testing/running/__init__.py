"""Cases made into calls, run and judged.

In the order to read: `run.py` is `run_cases`, which draws, runs and judges; `build.py` makes a case into a call with its data, or says what it
would be told without; `through.py` makes the call, `chunks.py` makes calls and computes golden values in pieces.
"""
