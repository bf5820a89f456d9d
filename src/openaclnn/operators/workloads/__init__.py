"""What to run each operator on: benchmark problems, the same computation in PyTorch, and what case lists and drawn data need.

A declaration's module has a module of the same name here. `likelihood.py` has functions that the negative log-likelihood losses share, `activations.py` makes
workloads of elementwise families from their declarations, and `words.py` has functions that all use. Each module has these names:

- `PATTERN`: which shapes the operator takes: "elementwise", "rows" (N, C), whose axis may be any where a parameter numbers it, or "pixels" (N, C, H, W); `RANKS`: how many dimensions
  it takes where those are not the pattern's;
- `VARIANTS`: option sets worth timing, by name, the most important one first;
- `make(rng, dtype, shape, variant)`: arguments of the plain call for a benchmark;
- `torch_peers(torch, arguments, out)`: PyTorch's ways to the same result, on the same memory, by name;
  `torch_formula(torch, arguments)`: the formula as a PyTorch expression, for `torch.compile`;
- `COMPOSITE`: True where PyTorch's autograd runs several operators for the same result;
- `ANY_SIZE`: False where a kernel serves one size alone; `SHAPES`: shapes to time with the elementwise operators, in place of the pattern's;
- `TRAINED`: the function's name in `torch.nn.functional` and `openaclnn.torch`, where models are trained with it;
- `KERNELS`, `DOMAINS`, `settle(arguments, chosen)`, `unread(numbers)`, where tools for tests need them: the kernels' names and attributes
  in case lists, the intervals of tensors' values, a function that computes tensors that follow from drawn ones, and tensors that are not read.

Cases for tests, and mistakes in calls, are in `tests/workloads/`.
"""
