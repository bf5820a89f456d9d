"""What to run each operator on: test cases, benchmark problems, and the same computation in PyTorch.

Each module has the same five names:

- `PATTERN`: which shapes the operator takes: "elementwise", "rows" (N, C) or "pixels" (N, C, H, W);
- `VARIANTS`: option sets worth timing, by name, the first one first in importance;
- `make(rng, dtype, shape, variant)`: arguments of the plain call for a benchmark;
- `cases(rng, dtype)`: small arguments that together reach every option, for tests;
- `torch_peers(torch, arguments, out)`: PyTorch's ways to the same result, on the same memory, by name;
  `torch_formula(torch, arguments)`: the formula as a PyTorch expression, for `torch.compile`.
"""
