"""How any kernel is started, whatever it computes: from a launch to the call of the CUDA driver.

In the order to read: `launch.py` says what a launch is and which pointers it takes from a plan, `variants.py` compiles, `scratch.py` has
memory for what lies between two launches, `runners.py` queues them by Python, on each device that there is; `native.py` says how the driver takes them, and `code.py`
makes builtins of them. It imports no other package of the engine.
"""
