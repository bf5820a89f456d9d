"""Where the elements of results lie: as PyTorch's own results do, which follow their inputs where these are not row-major.

Models in channels-last memory rely on that, and so does what PyTorch compiles: views of a result are made by its strides.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch

from openaclnn.core.declare import Operator
from openaclnn.core.results import undisturbed
from openaclnn.operators.activations import Activation
from openaclnn.torch.schema import arguments_of, made_by

__all__ = ["follows", "laid_like", "may_follow", "place_for"]

_ROW_MAJOR = frozenset(("smooth_l1_loss_backward",))  # in PyTorch, whatever its inputs are


@functools.cache
def may_follow(operator: Operator) -> bool:
    """Whether the operator's counterpart of PyTorch's gives results that lie like its inputs, as activations and losses of elements do; others are row-major."""
    if not isinstance(operator, Activation) or operator.python_name in _ROW_MAJOR:
        return False
    apart = operator.axis is None and not operator.output.in_place
    return apart and operator.read == operator.input_names


def follows(operator: Operator, arguments: Sequence[Any]) -> bool:
    """Whether the result of a call lies like its inputs: one with an element for each of theirs."""
    if not may_follow(operator):
        return False
    if operator.python_name.endswith("_backward"):
        return True
    pairs = zip(arguments_of(operator), arguments, strict=True)
    return all(value == "none" for parameter, value in pairs if parameter.choices)


def laid_like(tensors: Sequence[Any]) -> Any:
    """A tensor that lies as PyTorch has the results of arithmetic with these, which say by their order who decides."""
    if len(tensors) == 1:
        return torch.neg(tensors[0])
    return reduce(lambda later, tensor: torch.add(tensor, later), reversed(tensors))


def place_for(operator: Operator, places: Sequence[int], arguments: Sequence[Any]) -> Any:
    """Memory for the result of a call where that lies otherwise than row-major; None where it does not. `places` has those of the tensors
    among the arguments.
    """
    tensors = [arguments[place] for place in places if arguments[place] is not None]
    if not follows(operator, arguments) or all(map(_in_order, tensors)):
        return None
    first, [(shape, dtype)] = tensors[0], made_by(operator, arguments)
    with undisturbed():
        strides = first.stride()
        if not _alike(tensors):
            bare = [
                torch.empty_strided(tensor.shape, tensor.stride(), device="meta")
                for tensor in tensors
            ]
            strides = laid_like(bare).stride()
        return torch.empty_strided(shape, strides, dtype=dtype, device=first.device)


def _in_order(tensor: Any) -> bool:
    """Whether the axes lie in memory as those of row-major tensors do, whatever lies between elements: results do then, too."""
    if tensor.is_contiguous():
        return True
    moving = [s for n, s in zip(tensor.shape, tensor.stride(), strict=True) if n != 1 and s]
    return all(one > other for one, other in itertools.pairwise(moving))


def _alike(tensors: Sequence[Any]) -> bool:
    """Whether all are one piece of memory, in the same order."""
    first, *others = tensors
    same = all((other.shape, other.stride()) == (first.shape, first.stride()) for other in others)
    return same and _is_whole(first)


def _is_whole(tensor: Any) -> bool:
    """Whether the elements fill their memory, each a place of its own, in any order of axes."""
    reached = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride != reached and tensor.numel():
                return False
            reached *= size
    return True
