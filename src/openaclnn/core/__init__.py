"""The words declarations are written in; imports nothing of the package above it.

- Values: `dtypes.py`, `tensor.py`, `products.py`, `status.py` (codes, the exception, messages).
- An operator: `interface.py` (names and parameters), `checks.py` (its rules), `declare.py` (the declaration and the registry).
- A call: `interop.py` (arrays of other libraries), `call.py` (arguments bound to parameters), `plan.py` (what a kernel is to do),
  `steps.py` (plans of several steps), `results.py` (memory for what it gives).
- The process: `forks.py` (forks and threads), `rounding.py`, `writing.py` (files whole or not at all), `trust.py` (whose files are
  run), `torch_names.py` (PyTorch's private names), `version.py`.
"""
