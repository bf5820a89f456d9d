"""Phase one's answer for a signature: checked, planned and given an engine once, then looked up.

Nothing in a plan depends on addresses, so a call like one before differs in its tensors alone.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable
from math import copysign
from typing import Any, NamedTuple

import numpy as np

from openaclnn.calls.guard import check_devices, check_output_layout
from openaclnn.core import rounding
from openaclnn.core.call import Call, bind_arguments
from openaclnn.core.declare import Operator
from openaclnn.core.interop import as_tensor, is_tracked_leaf
from openaclnn.core.plan import Plan
from openaclnn.core.products import chosen_product, current_product, listeners
from openaclnn.core.tensor import Scalar, Tensor
from openaclnn.engines.dispatch import Runner, choose_engine, chosen_engine

__all__ = ["Known", "planned"]


class Known(NamedTuple):
    """What one signature comes to; arguments by their number in C order."""

    plan: Plan
    runner: Runner | None
    operands: tuple[int, ...]
    inputs: tuple[int, ...]
    output: int
    device: str


_KEPT = 1024  # signatures: a training loop has a handful, a test suite thousands
_plans: dict[Hashable, Known] = {}
listeners.append(_plans.clear)


def planned(
    operator: Operator, arguments: tuple[Any, ...], workspace_size: bool, executor: bool
) -> tuple[Known, tuple[Any, ...]]:
    """Bind, check and plan, or find it done; with the arguments as tensors and plain numbers."""
    torch = sys.modules.get("torch")
    arrays = (np.ndarray,) if torch is None else (np.ndarray, torch.Tensor)
    arguments = tuple([_viewed(v) if type(v) in arrays else v for v in arguments])
    key = _signature(operator, arguments) if workspace_size and executor else None
    known = _plans.get(key) if key is not None else None
    if known is None:
        if not rounding.is_standard():
            with rounding.standard():
                return planned(operator, arguments, workspace_size, executor)
        call = bind_arguments(operator, arguments, current_product(), workspace_size, executor)
        known = _checked_plan(operator, call)
        arguments = tuple(call.values.values())
        if key is not None:
            if len(_plans) >= _KEPT:
                _plans.clear()
            _plans[key] = known
    return known, arguments


def _viewed(array: Any) -> Any:
    """An array as a tensor; what cannot be one, or not be written, is left for binding to refuse."""
    if is_tracked_leaf(array):
        return array
    try:
        return as_tensor(array)
    except TypeError:
        return array


def _checked_plan(operator: Operator, call: Call) -> Known:
    error = operator.first_violation(call)
    if error is not None:
        raise error
    output = operator.output.name
    check_output_layout(operator.name, output, call.tensor(output))
    device = check_devices(call)
    plan = operator.plan(call)
    operands = () if plan.empty else (*plan.inputs, plan.output)
    runner = None if plan.empty else choose_engine(plan, device).runner
    return Known(
        plan,
        runner,
        tuple([operator.places[operand.parameter] for operand in operands]),
        operator.input_places,
        operator.places[output],
        device,
    )


def _signature(operator: Operator, arguments: tuple[Any, ...]) -> Hashable:
    """What decides checks and plan: everything but addresses. None where it cannot be told cheaply."""
    key: list[Any] = [operator.name, chosen_product(), chosen_engine()]
    for value in arguments:
        kind = type(value)
        if kind is Tensor:
            if not value.alive:
                return None
            key += (value.shape, value.dtype, value.strides, value.format, value.device,
                    value.writable)  # fmt: skip
        elif kind is Scalar:
            if not value.alive:
                return None
            key += value.key
        elif kind is float:
            key += (value, copysign(1.0, value))
        elif value is None or kind in (int, bool, str, bytes):
            key += (kind, value)
        else:
            return None
    return tuple(key)
