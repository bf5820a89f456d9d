"""What is timed: which operators at which sizes, and what changes from call to call.

In the order to read: `problem.py` makes an operator's arguments, `regimes.py` has the sizes, `changes.py` the sequences of small problems. It
imports no other room.
"""
