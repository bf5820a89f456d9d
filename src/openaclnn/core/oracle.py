"""Between a plain call and the float64 reference: the same arguments, checked as the plain call checks them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from openaclnn.core.call import Call
from openaclnn.core.dtypes import float_of
from openaclnn.core.interface import Kind
from openaclnn.core.interop import view_memory
from openaclnn.core.plan import Plan
from openaclnn.core.status import AclnnError, Status
from openaclnn.core.tensor import Scalar, Tensor

__all__ = ["reference_arguments", "stray_target"]


def reference_arguments(
    call: Call, given: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """A bound call as the reference takes it: arrays of their own dtype, attributes as FLOAT holds them.

    NumPy's arrays among those given, by Python name, are taken as they are; other tensors' values are copied.
    """
    arguments: dict[str, Any] = {}
    for parameter in call.operator.parameters:
        value = call[parameter.name]
        if parameter.kind is Kind.OUTPUT and not parameter.in_place:
            continue
        if parameter.is_tensor:
            known = given.get(parameter.python_name)
            if isinstance(known, np.ndarray):
                value = known
            else:
                value = _array(call, parameter.name, value) if isinstance(value, Tensor) else None
        elif parameter.choices:
            value = call.reduction
        elif isinstance(value, Scalar):
            value = value.float32()
        elif parameter.kind is Kind.DOUBLE:
            value = float_of(value)
        arguments[parameter.python_name] = value
    return arguments


def _array(call: Call, name: str, tensor: Tensor) -> np.ndarray[Any, Any]:
    """A tensor's values, which outlive it."""
    if tensor.device != "cpu" or tensor.raw:
        got = "memory known by its address alone" if tensor.raw else tensor.device
        raise AclnnError(
            Status.ACLNN_ERR_PARAM_INVALID, call.operator.name, name, "an array in CPU memory", got
        )
    return view_memory(tensor).copy()


def stray_target(plan: Plan, tensor: Tensor) -> AclnnError | None:
    """The refusal of a class index that is neither in range nor ignored: where it is, and what."""
    target = view_memory(tensor).astype(np.int64)
    ignored = plan.numbers["ignore_index"]
    bad = ((target < 0) | (target >= plan.classes)) & (target != ignored)
    if not bad.any():
        return None
    place = tuple(int(index) for index in np.argwhere(bad)[0])
    return AclnnError(
        Status.ACLNN_ERR_PARAM_INVALID, plan.operator, plan.inputs[plan.targets].parameter,
        f"class indices in [0, {plan.classes}) or ignoreIndex {ignored}",
        f"{target[place]} at {place}",
    )  # fmt: skip
