"""The sizes that are timed, regime by regime; keyed by the workloads' `PATTERN`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Regime:
    """One size and layout, and how much of the table of variants and dtypes it is worth."""

    name: str
    shape: Shape
    layout: str = "contiguous"
    family: str = ""  # under which short tables count it; else its name
    near: Shape = ()  # the round size that it is compared with, in the same rounds
    headline: Shape = ()  # of the one that --headline shows: its shape there, where nobody waits long
    all_variants: bool = False  # else the first variant, the most important one; of a training step, with weights and with smoothing too
    all_dtypes: bool = True  # else FLOAT
    quick: bool = False  # part of --quick
    compiled: bool = False  # time torch.compile too: seconds of compilation each
    # Engines without threads only where they are asked for: they take a second a call.
    threaded: bool = False


def _layouts(shape: Shape, *names: str) -> list[Regime]:
    return [Regime(name, shape, name) for name in names]


# Operands that disagree on the walk through memory, that waste half of every cache line, or that are hardly read.
_STRETCHED = ("transposed", "sliced", "broadcast", "outer")


def _small(tiny: Shape, cache: Shape | None = None) -> list[Regime]:
    """16 elements, which are nothing but the cost of a call; and operands that fit a second-level cache, where neither call nor memory decides."""
    sizes = {"call": tiny} | ({"cache": cache} if cache else {})
    return [Regime(name, shape, quick=True) for name, shape in sizes.items()]


def _large(name: str, shape: Shape) -> Regime:
    """Far beyond every cache, twice the headline's."""
    return Regime(f"large {name}", shape, family="large", all_variants=True, threaded=True)


def _headline(name: str, shape: Shape, shown: Shape = ()) -> Regime:
    """Where memory decides; at the headline's own size nobody waits long."""
    return Regime(
        name, shape, headline=shown or shape, all_variants=True, quick=True, compiled=True
    )


def by_shape(*shapes: Shape, **worth: Any) -> tuple[Regime, ...]:
    """Sizes that no kernel is tuned for, from few classes to many, named by their shapes: rows, and with more than two axes images, of
    operators that take any axis, along axis 1."""
    return tuple(
        Regime(f"shape {'x'.join(map(str, shape))}", shape, family="shape", **worth)
        for shape in shapes
    )


def _odd(*shapes: Shape) -> list[Regime]:
    """Rows and planes that begin anywhere in a cache line, as people's sizes have it, beside multiples of 128."""
    regimes = []
    for shape in shapes:
        fixed = 2 if len(shape) == 4 else 1  # images and classes, or rows
        near = *shape[:fixed], *[128 * round(size / 128) for size in shape[fixed:]]
        regimes.append(Regime(f"odd {shape[fixed]}", shape, family="odd", near=near))
    return regimes


_ODD_LENGTH = (
    Regime("odd length", ((1 << 24) + 1,), family="odd", near=(1 << 24,)),
    # Views that start one element into their memory.
    Regime("odd start", (1 << 24,), "shifted", "odd", (1 << 24,)),
)


def _square(power: int) -> Shape:
    """So many elements as an image of 16 classes."""
    return 1, 16, 1 << (power // 2 - 2), 1 << ((power + 1) // 2 - 2)


def _sizes(shape_of: Callable[[int], Shape]) -> tuple[Regime, ...]:
    """By powers of two: those from where call cost ends to where bandwidth begins, and those of tens of microseconds, where waking threads
    costs as much as the work."""
    scaling = [
        Regime(f"scaling 2^{power}", shape_of(power), family="scaling", all_dtypes=False)
        for power in range(10, 27, 2)
    ]
    middle = [
        Regime(f"middle 2^{power}", shape_of(power), family="middle", all_variants=True)
        for power in range(17, 21)
    ]
    return (*scaling, *middle)


_CPU: dict[str, tuple[Regime, ...]] = {
    "elementwise": (
        *_small((16,), (1 << 16,)),
        _headline("bandwidth", (1 << 24,), (1 << 23,)),
        *_layouts((4096, 4096), *_STRETCHED),
        *_sizes(lambda power: (1 << power,)),
        _large("2^25", (1 << 25,)),
        *_ODD_LENGTH,
    ),
    "rows": (
        *_small((2, 8), (16, 4096)),
        Regime("square", (4096, 4096)),
        _headline("vocabulary 32k", (512, 32000), (256, 32000)),
        Regime("vocabulary 128k", (128, 128256)),
        *_layouts((4096, 4096), "transposed", "output transposed"),
        *_layouts((512, 32000), "sliced"),
        *_sizes(lambda power: (1 << (power - 10), 1 << 10)),
        _large("32k", (1024, 32000)),
        *_odd((2048, 5001), (256, 50257), (96, 151643)),
        *by_shape((4096, 1000), (4, 19, 256, 256), quick=True),
        *by_shape((256, 1000), (4000, 150), (8000, 64), (20000, 21), (300000, 21), (64, 50257)),
        *by_shape((1, 19, 64, 64), (2, 21, 225, 225), (64, 3, 65, 65), (16, 19, 512, 512)),
        *by_shape((4, 150, 64, 64), (32, 1000, 7, 7), (8, 1000, 16, 16)),
    ),
    "pixels": (
        *_small((1, 4, 2, 2), (1, 16, 64, 64)),
        _headline("21 classes", (8, 21, 512, 512), (2, 21, 512, 512)),
        Regime("150 classes", (2, 150, 512, 512), compiled=True),
        Regime("2 classes", (16, 2, 1024, 1024)),  # targets dominate
        *_layouts((8, 21, 512, 512), "transposed", "sliced"),
        *_sizes(_square),
        *_odd((2, 19, 769, 769), (4, 21, 513, 513), (1, 19, 1025, 2049)),
    ),
}

_CUDA: dict[str, tuple[Regime, ...]] = {
    "elementwise": (
        *_small((16,), (1 << 20,)),
        _headline("bandwidth", (1 << 28,)),  # milliseconds, beside which launches cost nothing
        *_layouts((16384, 8192), *_STRETCHED),
        *_ODD_LENGTH,
    ),
    "rows": (
        *_small((2, 8)),
        Regime("square", (16384, 4096)),
        _headline("vocabulary 32k", (8192, 32000)),
        Regime("vocabulary 128k", (4096, 128256), compiled=True),
        *_layouts((16384, 4096), "transposed", "output transposed"),
        *_layouts((8192, 16000), "sliced"),
        *_odd((30000, 5001), (1000, 50257), (1000, 151643)),
        *by_shape((65536, 1000), (2048, 32768), all_variants=True, quick=True, compiled=True),
        *by_shape((512, 131072), (8, 19, 713, 713), quick=True, compiled=True),
        *by_shape((131072, 500), (8192, 8192), (4096, 16384), (1024, 65536), compiled=True),
        *by_shape((32, 1000, 16, 16), compiled=True),
    ),
    "pixels": (
        *_small((1, 4, 2, 2)),
        _headline("21 classes", (32, 21, 512, 1024)),
        Regime("150 classes", (8, 150, 512, 512), compiled=True),
        *_layouts((32, 21, 512, 512), "transposed", "sliced"),
        *_odd((16, 19, 769, 769), (16, 21, 513, 513), (4, 19, 1025, 2049)),
    ),
}

REGIMES: dict[str, dict[str, tuple[Regime, ...]]] = {"cpu": _CPU, "cuda": _CUDA}
"""Of operators by size: by device, then by pattern."""

ELEMENTWISE = {
    "cpu": (
        Regime("2^20", (1024, 1024), threaded=True),
        Regime("2^24", (4096, 4096), threaded=True),
    ),
    "cuda": (Regime("2^25", (4096, 8192), compiled=True),),
}
"""Of the section that has all elementwise operators, by device; with two axes, of which gated units halve one."""

STEPS: dict[str, dict[str, tuple[Regime, ...]]] = {
    "cpu": {
        "elementwise": (Regime("bandwidth", (1 << 24,), quick=True),),
        "rows": (
            Regime("vocabulary 32k", (512, 32000), quick=True),
            Regime("segmentation", (8, 21, 512, 512), quick=True),
            *by_shape((4096, 1000), (4, 19, 256, 256), all_variants=True, quick=True),
            *by_shape((100000, 2), (20000, 21), (4001, 151), (1000, 4999)),
            *by_shape((8, 3, 225, 225), (2, 150, 129, 129), (8, 1000, 16, 16)),
        ),
        "pixels": (Regime("21 classes", (8, 21, 512, 512)),),
        "linear": (Regime("vocabulary 32k", (1024, 512, 32000)),),
    },
    "cuda": {
        "elementwise": (Regime("bandwidth", (1 << 26,)),),
        "rows": (
            Regime("vocabulary 32k", (8192, 32000), quick=True),
            Regime("vocabulary 128k", (4096, 128256)),
            Regime("odd 50257", (16384, 50257), quick=True),
            Regime("segmentation", (32, 21, 512, 512)),
            *by_shape((40000, 1000), (8, 19, 713, 713), all_variants=True, quick=True),
            *by_shape(
                (300000, 21), (200000, 150), (32, 1000, 16, 16), (6, 150, 641, 641), quick=True
            ),
            *by_shape((1000000, 2), (250000, 10), (100003, 257), (20001, 2003), (9999, 5000)),
            *by_shape((16, 2, 1024, 1024), (64, 3, 225, 225), (4, 33, 511, 513), (16, 100, 63, 65)),
        ),
        "pixels": (Regime("21 classes", (32, 21, 512, 512)),),
        "linear": (
            Regime("vocabulary 128k", (8192, 4096, 128256)),
            Regime("vocabulary 152k", (4096, 2048, 151936)),
            Regime("odd 50257", (16384, 2048, 50257)),
        ),
    },
}
"""Of training steps, by device and the workloads' pattern; of linear layers tokens, features and words."""
