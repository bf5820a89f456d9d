"""Kinds of calls: what is remembered of a call, written down as a record for machine code to compare.

In the order to read: `road.py` is the road of an operator, which has its kinds; `records.py` makes a record of a call; of what a record says,
`patterns.py` has how arrays lie, `numbers.py` the options, and which of them are free, `work.py` what runs the kind, and `making.py` what makes its outputs.
All that machine code does with them is in `code/`.
"""
