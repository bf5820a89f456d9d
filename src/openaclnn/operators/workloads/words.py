"""What workloads are written in: kernels and modules by name, normal numbers, PyTorch's operators in both their ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from openaclnn.core.dtypes import DType

__all__ = [
    "Arguments",
    "HardPlaces",
    "KernelForm",
    "Module",
    "Peers",
    "Variants",
    "allocating_and_into",
    "any_number",
    "any_size",
    "hard_gradients",
    "normal",
]

Arguments = dict[str, Any]
Peers = dict[str, Callable[[], Any]]
Variants = dict[str, dict[str, Any]]
HardPlaces = dict[str, Callable[["np.random.Generator", int], Arguments]]
"""Makers of FLOAT arguments for so many elements or rows, whose results are hard to get right."""


@dataclass(frozen=True)
class KernelForm:
    """A kernel below the interface as case lists call it, with the interface's C names."""

    name: str
    inputs: Mapping[str, str]  # in the kernel's order, by the kernel's names
    renamed: Mapping[str, str] = field(default_factory=dict)  # attributes with other names
    unread: tuple[str, ...] = ()  # inputs behind those that say nothing to the interface
    # Arguments that the kernel has no attribute for, or another default.
    values: Mapping[str, Any] = field(default_factory=dict)
    # Attributes that this interface has one value of.
    only: Mapping[str, Any] = field(default_factory=dict)
    # Attributes that have names where the interface has numbers, in their order.
    numbered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # Optional here, weights of one for the interface: each with the tensor whose classes and dtype it has.
    ones: Mapping[str, str] = field(default_factory=dict)


class Module(NamedTuple):
    """The module of `torch.nn`, and of ours, by its name, and what it is given: `elementwise`, `rows`, `pixels`."""

    name: str
    patterns: tuple[str, ...]


def normal(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> Any:
    """Normal numbers of a dtype."""
    return np.asarray(rng.standard_normal(shape, np.float32)).astype(dtype.numpy)


def any_size(
    rng: np.random.Generator, count: int, low: float = -149, high: float = 128
) -> np.ndarray[Any, Any]:
    """FLOATs of both signs with any exponent between two, subnormal ones too."""
    sizes = np.exp2(rng.uniform(low, high, count)) * rng.choice((-1, 1), count)
    return np.asarray(sizes, np.float32)


def hard_gradients(rng: np.random.Generator, count: int, *factors: float) -> np.ndarray[Any, Any]:
    """Half of them around 1, half of any size; those whose products with some factors are normal FLOATs."""
    sizes = np.where(rng.random(count) < 0.5, any_size(rng, count), any_size(rng, count, -8, 8))
    sizes = sizes.astype(np.float64)
    for factor in map(abs, factors):
        sizes = np.sign(sizes) * np.abs(sizes).clip(2.0**-125 / factor, 2.0**127 / factor)
    return sizes.clip(-(2.0**127), 2.0**127).astype(np.float32)


def any_number(rng: np.random.Generator, low: float, high: float) -> float:
    """A positive FLOAT with any exponent between two; now and then a decimal or a power of two, as people write them."""
    number = 2.0 ** rng.uniform(low, high)
    shape = rng.integers(4)
    if shape == 0:
        number = float(f"{number:.0e}")
    elif shape == 1:
        number = 2.0 ** round(np.log2(number))
    return float(np.float32(number))


def allocating_and_into(
    operator: Any,
    arguments: tuple[Any, ...],
    out: Any,
    overload: str = "grad_input",
    name: str = "",
) -> Peers:
    """aten's own operator, allocating, and writing into `out`, which is named as the overload that takes it, or otherwise."""
    into = getattr(operator, overload)
    return {
        "torch": lambda: operator(*arguments),
        "torch out=": lambda: into(*arguments, **{name or overload: out}),
    }
