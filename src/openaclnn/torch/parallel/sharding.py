"""Sharding rules of `torch.ops.openaclnn`: what the operators may do with the parts of DTensors, from their declarations.

Elements and rows know nothing of each other, so any part of them is served where it lies; what adds them up gives partial
sums. A mean over parts is not the mean: its tensors are gathered first, and the functions of `dtensors.py` are for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch.distributed.tensor import Partial, Placement, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

from openaclnn.core.declare import Operator
from openaclnn.core.interface import Kind, Parameter
from openaclnn.operators import registry
from openaclnn.operators.logits import CROSS_ENTROPY, CROSS_ENTROPY_GRAD
from openaclnn.torch.private import remember_options

__all__ = ["register_rules"]

Rule = tuple[list[Placement], list[Placement]]
ELSE_ONE = ", else "  # in the words on a shape: with a reduction it is one element


def register_rules() -> list[str]:
    """Give PyTorch the rules of all operators that are among its own; their names."""
    names = []
    for operator in (*registry(), CROSS_ENTROPY, CROSS_ENTROPY_GRAD):
        packet = getattr(torch.ops.openaclnn, operator.python_name, None)
        if packet is not None and not operator.output.in_place:
            _register(packet.default, operator)
            names.append(operator.python_name)
    return names


def _register(overload: Any, operator: Operator) -> None:
    parameters = _arguments(operator)
    first = next((n for n, p in enumerate(parameters) if not p.is_tensor), len(parameters))
    if remember_options(overload, first) or not any(p.choices for p in parameters):
        register_sharding(overload)(partial(_rules, operator, parameters))
        remember_options(overload, first)  # which registering overwrites


def _arguments(operator: Operator) -> list[Parameter]:
    return [p for group in operator.plain_parameters for p in group if p.kind is not Kind.OUTPUT]


def _rules(
    operator: Operator, parameters: Sequence[Parameter], *arguments: Any, **named: Any
) -> list[Rule]:
    """What PyTorch may choose from, for one dimension of a mesh: nothing divided, or one axis of all."""
    called = {"input" if p.python_name == "self" else p.python_name: p for p in parameters}
    values = dict(zip(called, arguments, strict=False)) | named
    tensors = [
        (called[n], value)
        for n, value in values.items()
        if called[n].is_tensor and value is not None
    ]
    choice = next((n for n, p in called.items() if p.choices), None)
    reduction = "none" if choice is None else values.get(choice, called[choice].default)
    rules: list[Rule] = [([Replicate()] * len(operator.outputs), [Replicate()] * len(tensors))]
    # A gradient that is told the total weight needs nothing else of other rows.
    if reduction == "mean" and values.get("total_weight") is None:
        return rules
    if any(_has_rows(p) for p, _ in tensors):
        return rules + _of_rows(operator, tensors, reduction)
    return rules + _of_elements(operator, [tensor.shape for _, tensor in tensors], reduction)


def _has_rows(parameter: Parameter) -> bool:
    return parameter.shape.startswith("(N")


def _of_rows(
    operator: Operator, tensors: list[tuple[Parameter, Any]], reduction: str
) -> list[Rule]:
    """The first axis divided of all that has rows."""

    def placed(parameter: Parameter, one: Placement) -> Placement:
        if _has_rows(parameter):
            return one if ELSE_ONE in parameter.shape and reduction != "none" else Shard(0)
        return Shard(0) if parameter.shape == "same as self" else one

    single = any(tensor.ndim < 2 for p, tensor in tensors if p.shape.startswith("(N, C)"))
    if single:
        return []
    outputs = [placed(p, Partial()) for p in operator.outputs]
    return [(outputs, [placed(p, Replicate()) for p, _ in tensors])]


def _of_elements(operator: Operator, shapes: Sequence[Sequence[int]], reduction: str) -> list[Rule]:
    """Any axis divided, where a tensor has it and is not stretched along it."""
    whole = torch.broadcast_shapes(*shapes)  # type: ignore[no-untyped-call]
    reduced = ELSE_ONE in operator.output.shape and reduction != "none"
    rules: list[Rule] = []
    for axis in range(len(whole)):
        inputs: list[Placement] = []
        for shape in shapes:
            aligned = axis - (len(whole) - len(shape))
            there = aligned >= 0 and shape[aligned] == whole[axis]
            inputs.append(Shard(aligned) if there else Replicate())
        rules.append(([Partial() if reduced else Shard(axis)], inputs))
    return rules
