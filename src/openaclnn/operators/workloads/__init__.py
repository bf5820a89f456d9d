"""What to run each operator on: test cases, benchmark problems, the same computation in PyTorch, and mistakes.

Each operator has the module of its declaration's name here, and each module has the same names:

- `PATTERN`: which shapes the operator takes: "elementwise", "rows" (N, C) or "pixels" (N, C, H, W);
- `VARIANTS`: option sets worth timing, by name, the first one first in importance;
- `make(rng, dtype, shape, variant)`: arguments of the plain call for a benchmark;
- `cases(rng, dtype)`: small arguments that together reach every option, for tests;
- `torch_peers(torch, arguments, out)`: PyTorch's ways to the same result, on the same memory, by name;
  `torch_formula(torch, arguments)`: the formula as a PyTorch expression, for `torch.compile`;
- `ANY_SIZE`: False where kernels are made for each size;
- `WHOLE`, of losses: the options with which the result has the shape of the arguments;
- `TRAINED`, of what models are trained with: the name of the function in `torch.nn.functional` and in ours;
- `MODULE`, of what there is a module of: its name in `torch.nn` and in ours, and what it is given;
- `KERNELS`, `DOMAINS`, `settle(given, chosen)`, `unread(numbers)`, where tools for tests need them: the kernels' words
  in case lists, what a tensor's values lie in, tensors that follow from drawn ones, tensors that nothing reads;
- `sound()`: arguments of phase one by C name that break no rule;
  `MISTAKES`: one way or more to break each row of the checks, in their order, but for the product's row.
"""
