"""The sections of a run, each with cases of its own and what times one of them.

In the order to read: `cases.py` is the large table; `calls.py` has calls that change, `training.py` steps of training (`steps.py` is one),
`modules.py` those of modules on few elements, `overrides.py` PyTorch's own operators (`pairs.py` times both of these), `first_call.py` first calls
and memory; `selection.py` chooses the cases, `runner.py` runs them all. Results are plain dicts, as the JSON file holds them: how they are
shown is not known here.
"""
