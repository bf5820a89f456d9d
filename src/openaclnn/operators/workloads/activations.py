"""Workloads of elementwise activations, losses of elements and their gradients, from their declarations."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DType, float_of
from openaclnn.core.interface import Kind
from openaclnn.operators.workloads.words import (
    Arguments,
    KernelForm,
    Peers,
    Variants,
    allocating_and_into,
    normal,
)


def drawn(
    rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], domain: tuple[float, float] | None
) -> Any:  # fmt: skip
    """Normal numbers, or uniform ones from a domain."""
    if domain is None:
        return normal(rng, dtype, shape)
    low, high = domain
    inside = low + (high - low) * (0.01 + 0.98 * rng.random(shape, np.float32))
    return np.asarray(inside).astype(dtype.numpy)


class Workload:
    """The names of a workload module, as attributes."""

    PATTERN = "elementwise"

    def __init__(self, operator: Any) -> None:
        self.operator, self.peer = operator, operator.peer or operator.aten
        self.VARIANTS: Variants = {name: dict(each) for name, each in operator.variants.items()}
        self.KERNELS: tuple[KernelForm, ...] = operator.kernels
        self.ANY_SIZE = operator.axis is None
        self.DOMAINS = dict.fromkeys(operator.read, operator.domain) if operator.domain else {}
        if operator.trained:
            self.TRAINED = operator.trained
        # Numbers are rounded to FLOAT here, since `torch.compile` cannot trace that.
        taken = [p for p in operator.parameters if p.kind is not Kind.OUTPUT or p.in_place]
        rounded = [
            float_of(p.default) if isinstance(p.default, float) else p.default for p in taken
        ]
        self._defaults = [(p.python_name, each) for p, each in zip(taken, rounded, strict=True)]

    def make(
        self, rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], variant: str
    ) -> Arguments:
        """Normal numbers, or such that lie in the function's domain."""
        arguments: Arguments = {}
        options = self.VARIANTS[variant]
        for parameter in self.operator.tensors:
            if parameter.is_read:
                each = self.operator.shape_of(parameter.name, shape, options)
                arguments[parameter.python_name] = drawn(rng, dtype, each, self.operator.domain)
        return {**arguments, **options}

    def torch_peers(self, torch: Any, values: Mapping[str, Any], out: Any) -> Peers:
        """PyTorch's function, also into `out` where it takes one, or an expression of several."""
        arguments, peer = self._arguments(values), self.peer
        if self.operator.output.in_place and (name := self.operator.aten):
            return {"torch": lambda: getattr(torch.ops.aten, name)(*arguments)}
        if isinstance(peer, str) and not self.operator.output.in_place:  # which has one output
            function = getattr(torch.ops.aten, peer)
            for overload in ("out", "grad_input"):
                if overload in function.overloads():
                    return allocating_and_into(function, tuple(arguments), out, overload)
        peers: Peers = {"torch": lambda: self._peer(torch, arguments)}
        if (into := self.operator.peer_into) is not None:
            peers["torch out="] = lambda: into(torch, *arguments, out)
        return peers

    def _peer(self, torch: Any, arguments: list[Any]) -> Any:
        peer = self.peer
        return (
            peer(torch, *arguments) if callable(peer) else getattr(torch.ops.aten, peer)(*arguments)
        )

    def _arguments(self, values: Mapping[str, Any]) -> list[Any]:
        """The arguments in the order of the operator's parameters."""
        return [values.get(name, default) for name, default in self._defaults]

    def torch_formula(self, torch: Any, values: Mapping[str, Any]) -> Any:
        """PyTorch's function computed in FLOAT, for `torch.compile`."""
        arguments = self._arguments(values)
        first = next(value for value in arguments if isinstance(value, torch.Tensor))
        wide = [value.float() if isinstance(value, torch.Tensor) else value for value in arguments]
        result = self._peer(torch, wide)
        if self.operator.result_type is not None:
            return tuple(value.to(first.dtype) for value in result)
        return result.to(first.dtype)


class LossWorkload(Workload):
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
                domain = operator.domains.get(parameter.name)
                arguments[parameter.python_name] = drawn(rng, dtype, () if one else shape, domain)
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
    """Of an operator that `declare` of `activations.py` or of `losses.py` made."""
    return (LossWorkload if hasattr(operator, "domains") else Workload)(operator)
