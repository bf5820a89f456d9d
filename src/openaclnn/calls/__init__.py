"""How a call is made on the slow path: `plain.py` has the plain calls, `executor.py` the two phases, `guard.py` the rules about memory, and `explain.py` tells what
would happen to a call.
"""
