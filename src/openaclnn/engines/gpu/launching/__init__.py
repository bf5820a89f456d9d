"""How a kernel is started, whatever it computes: from a `Launch` to the call of the CUDA driver. Imports no other package of the engine.

In the order to read: `launch.py` defines a launch, and the pointers that it takes from a plan; `variants.py` compiles kernels; `scratch.py` allocates memory that lives
between two launches; `runners.py` queues launches by Python, on each device; `native.py` has the driver's data structures, and `code.py` the machine code that queues
launches without Python.
"""
