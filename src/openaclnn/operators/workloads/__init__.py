"""What to run each operator on: benchmark problems, the same computation in PyTorch, and what case lists and drawn data need.

Each operator has the module of its declaration's name here; `likelihood.py` has what the negative log-likelihood losses share, `activations.py` makes those of elementwise families from their declarations,
`words.py` what all modules are written in. Each module has the same names:

- `PATTERN`: which shapes the operator takes: "elementwise", "rows" (N, C), whose axis may be any where a parameter numbers it, or "pixels" (N, C, H, W); `RANKS`: how many dimensions
  it takes where those are not the pattern's;
- `VARIANTS`: option sets worth timing, by name, the first one first in importance;
- `make(rng, dtype, shape, variant)`: arguments of the plain call for a benchmark;
- `torch_peers(torch, arguments, out)`: PyTorch's ways to the same result, on the same memory, by name;
  `torch_formula(torch, arguments)`: the formula as a PyTorch expression, for `torch.compile`;
- `COMPOSITE`: True where autograd runs several operators for it;
- `ANY_SIZE`: False where kernels are made for each size; `SHAPES`: those that are timed with the elementwise operators, where the pattern's are not;
- `TRAINED`, of what models are trained with: the name of the function in `torch.nn.functional` and in ours;
- `KERNELS`, `DOMAINS`, `settle(arguments, chosen)`, `unread(numbers)`, where tools for tests need them: the kernels' words
  in case lists, what a tensor's values lie in, tensors that follow from drawn ones, tensors that nothing reads.

Cases for tests, and mistakes in calls, are in `tests/workloads/`.
"""
