"""What operators are declared with and calls are described by. It is the lowest package, and imports no other of openaclnn.

- Values: `dtypes.py`, `tensor.py`, `products.py`, `status.py` (status codes, `AclnnError`, messages).
- An operator: `interface.py` (names and parameters), `checks.py` (its rules), `declare.py` (the declaration and the registry).
- A call: `interop.py` (views of other libraries' arrays), `call.py` (arguments bound to parameters), `plan.py` (what a kernel has to
  compute), `steps.py` (plans of several steps), `results.py` (memory for results).
- The process: `forks.py` (forks and threads), `rounding.py` (the floating-point mode), `writing.py` (files that are written whole),
  `trust.py` (whose compiled code is run), `torch_names.py` (PyTorch's private names), `version.py`.
"""
