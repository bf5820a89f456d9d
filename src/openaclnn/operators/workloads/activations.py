"""Workloads of elementwise activations and their gradients, from their declarations."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DType
from openaclnn.core.interface import Kind
from openaclnn.operators.workloads.words import Arguments, KernelForm, Peers, Variants, normal

__all__ = ["workload_of"]


class Workload:
    """What the modules of other operators have."""

    PATTERN = "elementwise"

    def __init__(self, operator: Any) -> None:
        self.operator = operator
        self.VARIANTS: Variants = {name: dict(own) for name, own in operator.variants.items()}
        self.KERNELS: tuple[KernelForm, ...] = operator.kernels
        self.DOMAINS = dict.fromkeys(operator.read, operator.domain) if operator.domain else {}

    def make(
        self, rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], variant: str
    ) -> Arguments:
        """Normal numbers, or such that lie in the function's domain."""
        arguments: Arguments = {}
        for parameter in self.operator.tensors:
            if parameter.is_read:
                arguments[parameter.python_name] = self._drawn(rng, dtype, shape)
        return {**arguments, **self.VARIANTS[variant]}

    def _drawn(self, rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> Any:
        if self.operator.domain is None:
            return normal(rng, dtype, shape)
        low, high = self.operator.domain
        inside = low + (high - low) * rng.random(shape, np.float32)
        return np.asarray(inside).astype(dtype.numpy)

    def torch_peers(self, torch: Any, given: Mapping[str, Any], out: Any) -> Peers:
        """aten's own function, where it has one."""
        if not self.operator.peer:
            return {}
        function = getattr(torch.ops.aten, self.operator.peer)
        arguments = self._arguments(given)
        return {"torch": lambda: function(*arguments)}

    def _arguments(self, given: Mapping[str, Any]) -> list[Any]:
        names = [p for p in self.operator.parameters if p.kind is not Kind.OUTPUT or p.in_place]
        return [given.get(p.python_name, p.default) for p in names]

    def torch_formula(self, torch: Any, given: Mapping[str, Any]) -> Any:
        """The same by PyTorch's own function, for `torch.compile`."""
        function = getattr(torch.ops.aten, self.operator.peer)
        return function(*self._arguments(given))


@functools.cache
def workload_of(operator: Any) -> Workload:
    return Workload(operator)
