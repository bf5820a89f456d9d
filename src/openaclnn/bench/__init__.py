"""Benchmarks of every operator on every engine, beside PyTorch and a plain copy: `openaclnn bench` runs them."""
