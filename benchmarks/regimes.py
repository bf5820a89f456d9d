"""The sizes that are timed, regime by regime, each with its reason; keyed by the workloads' `PATTERN`."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["FREE_AXES", "LAYOUTS", "REGIMES", "Regime", "shrink"]

LAYOUTS = ("contiguous", "transposed", "sliced", "broadcast", "outer")

FREE_AXES = {"elementwise": (0, 1), "rows": (0,), "pixels": (0, 2, 3)}
"""The axes that may shrink without changing what kind of problem it is: never the classes."""


@dataclass(frozen=True)
class Regime:
    """One size and layout, and how much of the table of variants and dtypes it is worth."""

    name: str
    shape: tuple[int, ...]
    reason: str
    layout: str = "contiguous"
    all_variants: bool = False  # else the first variant, the most important one
    all_dtypes: bool = True  # else FLOAT
    quick: bool = False  # part of --quick
    two_phase: bool = False  # time a repeatable executor too
    compiled: bool = False  # time torch.compile too: seconds of compilation each


_CALL = "16 elements: nothing but the cost of a call"
_CACHE = "operands fit a second-level cache: neither call nor memory decides"
_TRANSPOSED = "one operand lies transposed: two walks through memory that disagree"
_SLICED = "every second element: half of every cache line is wasted"
_ROW = "one row stretched over all others: stride 0"
_OUTER = "a column against a row: two operands that are hardly read"
_SCALING = "where call cost ends and bandwidth begins"


def _tiny(shape: tuple[int, ...]) -> Regime:
    return Regime("call", shape, _CALL, quick=True, two_phase=True)


def _scaling(name: str, shape: tuple[int, ...]) -> Regime:
    return Regime(f"scaling {name}", shape, _SCALING, all_dtypes=False)


def _headline(name: str, shape: tuple[int, ...], reason: str) -> Regime:
    return Regime(name, shape, reason, all_variants=True, quick=True, compiled=True)


_POWERS = range(10, 27, 2)

_CPU: dict[str, tuple[Regime, ...]] = {
    "elementwise": (
        _tiny((16,)),
        Regime("cache", (1 << 16,), _CACHE, quick=True, two_phase=True),
        _headline("bandwidth", (1 << 24,), "far beyond every cache: memory decides"),
        Regime("transposed", (4096, 4096), _TRANSPOSED, "transposed"),
        Regime("sliced", (4096, 4096), _SLICED, "sliced"),
        Regime("broadcast", (4096, 4096), _ROW, "broadcast"),
        Regime("outer", (4096, 4096), _OUTER, "outer"),
        *(_scaling(f"2^{power}", (1 << power,)) for power in _POWERS),
    ),
    "rows": (
        _tiny((2, 8)),
        Regime("cache", (16, 4096), _CACHE, quick=True, two_phase=True),
        Regime("square", (4096, 4096), "as many rows as classes"),
        _headline("vocabulary 32k", (512, 32000), "the vocabulary of many language models"),
        Regime("vocabulary 128k", (128, 128256), "a large vocabulary: few, long rows"),
        Regime("transposed", (4096, 4096), _TRANSPOSED, "transposed"),
        Regime("sliced", (512, 32000), _SLICED, "sliced"),
        *(_scaling(f"2^{power}", (1 << (power - 10), 1 << 10)) for power in _POWERS),
    ),
    "pixels": (
        _tiny((1, 4, 2, 2)),
        Regime("cache", (1, 16, 64, 64), _CACHE, quick=True, two_phase=True),
        _headline("21 classes", (8, 21, 512, 512), "segmentation of everyday scenes"),
        Regime("150 classes", (2, 150, 512, 512), "segmentation with many classes", compiled=True),
        Regime("2 classes", (16, 2, 1024, 1024), "foreground and background: targets dominate"),
        Regime("transposed", (8, 21, 512, 512), _TRANSPOSED, "transposed"),
        Regime("sliced", (8, 21, 512, 512), _SLICED, "sliced"),
        *(
            _scaling(f"2^{power}", (1, 16, 1 << (power // 2 - 2), 1 << (power // 2 - 2)))
            for power in _POWERS
        ),
    ),
}

_CUDA: dict[str, tuple[Regime, ...]] = {
    "elementwise": (
        _tiny((16,)),
        Regime("cache", (1 << 20,), _CACHE, quick=True, two_phase=True),
        _headline("bandwidth", (1 << 28,), "milliseconds of traffic: launch cost vanishes"),
        Regime("transposed", (16384, 8192), _TRANSPOSED, "transposed"),
        Regime("sliced", (16384, 8192), _SLICED, "sliced"),
        Regime("broadcast", (16384, 8192), _ROW, "broadcast"),
        Regime("outer", (16384, 8192), _OUTER, "outer"),
    ),
    "rows": (
        _tiny((2, 8)),
        Regime("square", (16384, 4096), "many short rows"),
        _headline("vocabulary 32k", (8192, 32000), "the vocabulary of many language models"),
        Regime("vocabulary 128k", (4096, 128256), "a large vocabulary: long rows", compiled=True),
        Regime("transposed", (16384, 4096), _TRANSPOSED, "transposed"),
        Regime("sliced", (8192, 16000), _SLICED, "sliced"),
    ),
    "pixels": (
        _tiny((1, 4, 2, 2)),
        _headline("21 classes", (32, 21, 512, 1024), "segmentation of street scenes"),
        Regime("150 classes", (8, 150, 512, 512), "segmentation with many classes", compiled=True),
        Regime("transposed", (32, 21, 512, 512), _TRANSPOSED, "transposed"),
        Regime("sliced", (32, 21, 512, 512), _SLICED, "sliced"),
    ),
}

REGIMES: dict[str, dict[str, tuple[Regime, ...]]] = {"cpu": _CPU, "cuda": _CUDA}
"""Regimes by device, then by pattern."""


def shrink(pattern: str, shape: tuple[int, ...], limit: int) -> tuple[int, ...]:
    """A shape of the same kind with at most `limit` elements, if its free axes allow."""
    small = list(shape)
    axes = [axis for axis in FREE_AXES[pattern] if axis < len(small)]
    while math.prod(small) > limit:
        widest = max(axes, key=lambda axis: small[axis])
        if small[widest] == 1:
            break
        small[widest] //= 2
    return tuple(small)
