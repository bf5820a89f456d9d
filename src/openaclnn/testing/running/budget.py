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


def memory_of(case: Case | LevelCase | Malformed, golden_files: bool = False) -> int:
    """About how many bytes a case needs: its tensors, its output, golden values in float64 and a row in between. Those of each
    element by itself are computed when they are looked at, unless files are made of them.
    """
    if isinstance(case, Malformed):
        return 0
    if isinstance(case, LevelCase):
        return case.elements * (4 + _GOLDEN)
    specs = {name: spec for name, spec in case.tensors.items() if spec is not None}
    if not specs:
        return 0
    largest = max(specs.values(), key=lambda spec: math.prod(spec.shape))
    shape, row, golden = largest.shape, math.prod(largest.shape[1:]), _GOLDEN
    if case.operator.workloads.PATTERN == "elementwise":
        row, golden = 0, golden if golden_files else 0
        with suppress(ValueError):  # which the operator will refuse
            shape = np.broadcast_shapes(*(spec.shape for spec in specs.values()))
    output = case.operator.output
    listed = output.name in specs and not output.in_place  # of which the oracle has a copy
    written = math.prod(shape) * ((0 if listed else largest.dtype.itemsize) + golden)
    stored = sum(spec.elements * spec.dtype.itemsize for spec in specs.values())
    return stored + written + row * _BESIDES


def in_words(size: int) -> str:
    """A number of bytes."""
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"
