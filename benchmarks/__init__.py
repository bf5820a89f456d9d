"""Benchmarks of every operator on every engine, beside PyTorch: `python -m benchmarks --help`."""
