"""Workloads of losses of elements and their gradients, from their declarations."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DType
from openaclnn.operators.workloads import activations
from openaclnn.operators.workloads.words import Arguments, Peers, normal

__all__ = ["drawn", "workload_of"]


def drawn(
    operator: Any, rng: np.random.Generator, dtype: DType, name: str, shape: tuple[int, ...]
) -> Any:
    """Numbers for a tensor, such as lie in its domain if it has one."""
    if name not in operator.domains:
        return normal(rng, dtype, shape)
    low, high = operator.domains[name]
    inside = low + (high - low) * (0.01 + 0.98 * rng.random(shape, np.float32))
    return np.asarray(inside).astype(dtype.numpy)


class Workload(activations.Workload):
    """Optional tensors are there in the variant `weights` alone; one gradient is there for all elements where these are reduced."""

    def __init__(self, operator: Any) -> None:
        super().__init__(operator)
        self.DOMAINS = dict(operator.domains)

    def make(
        self, rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], variant: str
    ) -> Arguments:
        operator, options = self.operator, self.VARIANTS[variant]
        arguments: Arguments = {}
        for parameter in operator.tensors:
            if parameter.is_read and (variant == "weights" or not parameter.optional):
                one = parameter.name.startswith("gradOut") and options["reduction"] != "none"
                name = parameter.python_name
                arguments[name] = drawn(operator, rng, dtype, parameter.name, () if one else shape)
        return {**arguments, **options}

    def torch_peers(self, torch: Any, values: Mapping[str, Any], out: Any) -> Peers:
        """Of losses that are reduced without `out`, which not all of PyTorch's reduce into."""
        if self.operator.is_gradient or values.get("reduction") == "none":
            return super().torch_peers(torch, values, out)
        return {"torch": lambda: self._peer(torch, self._arguments(values))}

    def _arguments(self, values: Mapping[str, Any]) -> list[Any]:
        """A reduction by its number, as PyTorch's operators take it; its functions, by its name."""
        arguments = super()._arguments(values)
        if callable(self.peer):
            return arguments
        choices = self.operator.reduction.choices
        return [choices.index(value) if isinstance(value, str) else value for value in arguments]


@functools.cache
def workload_of(operator: Any) -> Workload:
    return Workload(operator)
