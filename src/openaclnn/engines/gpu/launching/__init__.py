"""How any kernel is started, whatever it computes: from a launch to the call of the CUDA driver.

In the order to read: `launch.py` says what a launch is, `operands.py` which pointers and strides it takes from a plan, `scratch.py` has memory
for what lies between two; `variants.py` compiles, `steps.py` puts addresses in, `runners.py` queues all launches of a plan; `native.py` and
`native_code.py` make one builtin of these; `queues.py` queues launches whose sizes are told in the call. It imports no other room.
"""
