"""float64, which the interface does not compute in and PyTorch's own checks of gradients need: by PyTorch's operations
(`wide_formulas`), else by the operators' references on the host.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from openaclnn.core.declare import Operator
from openaclnn.core.status import AclnnError
from openaclnn.torch.layouts import follows
from openaclnn.torch.refusals import in_torch_words
from openaclnn.torch.schema import arguments_of, made_by
from openaclnn.torch.wide_formulas import WIDE

__all__ = ["by_reference", "in_float64"]


def in_float64(operator: Operator, arguments: tuple[Any, ...]) -> Any:
    """The results for the schema's arguments, checked as every call's are."""
    formula = WIDE.get(operator.python_name)
    return (
        by_reference(operator, arguments) if formula is None else _by(formula, operator, arguments)
    )


def _by(formula: Callable[..., Any], operator: Operator, arguments: tuple[Any, ...]) -> Any:
    try:
        made = made_by(operator, arguments)
    except AclnnError as error:
        raise in_torch_words(error) from None
    own = [
        a.detach().double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a
        for a in arguments
    ]
    found = formula(*own)
    laid = follows(operator, arguments)  # PyTorch's operations lay their results so
    results = tuple(
        one.to(dtype) if laid else one.to(dtype).reshape(shape).contiguous()
        for one, (shape, dtype) in zip(
            (found,) if operator.result_type is None else found, made, strict=True
        )
    )
    return results[0] if operator.result_type is None else results


def by_reference(operator: Operator, arguments: tuple[Any, ...]) -> Any:
    """The same on the host, by the formulas that every engine is held to."""
    names = [p.python_name for p in arguments_of(operator)]
    given, narrow = dict(zip(names, arguments, strict=True)), {}
    for name, value in given.items():
        if isinstance(value, torch.Tensor):
            host = value.detach().cpu().resolve_neg()
            given[name] = (host.double() if host.is_floating_point() else host).numpy()
            narrow[name] = (host.float() if host.is_floating_point() else host).numpy()
    try:
        made = made_by(operator, arguments)
        operator.reference_arguments(**{**given, **narrow})  # refuses what calls refuse
    except AclnnError as error:
        raise in_torch_words(error) from None
    found = operator.reference(**given)
    first = next(own for own in arguments if isinstance(own, torch.Tensor))
    results = tuple(
        first.new_zeros(shape, dtype=dtype)
        if own is None
        else torch.from_numpy(np.ascontiguousarray(own)).to(first.device, dtype).reshape(shape)
        for own, (shape, dtype) in zip(
            (found,) if operator.result_type is None else found, made, strict=True
        )
    )
    if operator.output.in_place:
        first.copy_(results[0])
        return None
    return results[0] if operator.result_type is None else results
