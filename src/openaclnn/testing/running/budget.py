"""How much memory cases need, and how much they may have."""

from __future__ import annotations

import math
from contextlib import suppress

import numpy as np

from openaclnn.core.results import usable_memory
from openaclnn.testing.cases.case import Case, Malformed
from openaclnn.testing.running.levels import LevelCase

__all__ = ["default_memory", "in_words", "memory_of"]

_GOLDEN = 8  # bytes of an element in float64
_BESIDES = 8 * _GOLDEN  # of a row's or a block's elements, for what the oracle computes in between


def default_memory() -> int:
    """Half of what the process may use."""
    return usable_memory() // 2


def memory_of(case: Case | LevelCase | Malformed) -> int:
    """About how many bytes a case needs: its tensors, its output, golden values in float64, and a row in between."""
    if isinstance(case, Malformed):
        return 0
    if isinstance(case, LevelCase):
        return case.elements * (4 + _GOLDEN)
    specs = {name: spec for name, spec in case.tensors.items() if spec is not None}
    if not specs:
        return 0
    largest = max(specs.values(), key=lambda spec: math.prod(spec.shape))
    shape, row = largest.shape, math.prod(largest.shape[1:])
    if case.operator.workloads.PATTERN == "elementwise":
        row = 0
        with suppress(ValueError):  # which the operator will refuse
            shape = np.broadcast_shapes(*(spec.shape for spec in specs.values()))
    listed = case.operator.output.name in specs
    output = math.prod(shape) * ((0 if listed else largest.dtype.itemsize) + _GOLDEN)
    stored = sum(spec.elements * spec.dtype.itemsize for spec in specs.values())
    return stored + output + row * _BESIDES


def in_words(size: int) -> str:
    """A number of bytes."""
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"
