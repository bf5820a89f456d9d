"""Results as tables, whoever shows them: made from what the JSON file holds.

In the order to read: `merge.py` makes one result of several, `cells.py` has what tables share, `summary.py` has all in short; `calls.py`,
`training.py` and `overrides.py` are the tables of the sections of those names, of which `pairs.py` has lines; `processes.py` has those of first
calls and of memory.
"""
