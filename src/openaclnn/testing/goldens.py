"""Golden values: the float64 oracle, as it is and rounded once to the output's dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from openaclnn.core.call import Call, bind_plain
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import BFLOAT16, DType
from openaclnn.core.plan import Plan
from openaclnn.core.products import PRODUCTS
from openaclnn.core.tensor import Tensor
from openaclnn.operators import find_operator
from openaclnn.testing.figures import spacing

__all__ = ["Golden", "golden", "operator_of", "plan_of", "result_of", "round_to"]

Array = np.ndarray[Any, Any]


class Golden(NamedTuple):
    """What an operator should give: in float64, and in the output's dtype."""

    float64: Array
    target: Array


def operator_of(operator: str | Operator | Callable[..., Any]) -> Operator:
    """An operator by its C or Python name, or by its plain function."""
    if isinstance(operator, Operator):
        return operator
    if isinstance(operator, str):
        return find_operator(operator)
    found = getattr(operator, "operator", None)
    if not isinstance(found, Operator):
        raise TypeError(
            f"an operator, its name or its plain function is expected, not {operator!r}"
        )
    return found


def golden(operator: str | Operator | Callable[..., Any], /, **arguments: Any) -> Golden:
    """The golden values of a plain call; AclnnError where the operator refuses it.

    `golden("elu_backward", grad_output=g, self_or_result=x).target` has the dtype that the call's result would have.
    """
    found = operator_of(operator)
    _, dtype = plan_of(found, arguments)
    exact = found.oracle(**arguments)
    return Golden(exact, round_to(exact, dtype))


def plan_of(operator: Operator, arguments: dict[str, Any]) -> tuple[Plan, DType]:
    """The plan of a plain call and the dtype of its output, once its checks have passed."""
    call = _checked(operator, arguments)
    return operator.plan(call), call.tensor(operator.output.name).dtype


def result_of(operator: Operator, arguments: dict[str, Any]) -> tuple[tuple[int, ...], DType]:
    """The shape and dtype of a plain call's output, once its checks have passed."""
    output = _checked(operator, arguments).tensor(operator.output.name)
    return output.shape, output.dtype


def _checked(operator: Operator, arguments: dict[str, Any]) -> Call:
    unknown = arguments.keys() - operator.plain_defaults.keys()
    if unknown:
        raise TypeError(f"{operator.python_name}() has no parameter {sorted(unknown)[0]!r}")
    call = bind_plain(operator, operator.plain_defaults | arguments, PRODUCTS[0])
    error = operator.first_violation(call)
    if error is not None:
        raise error
    output = operator.output.name
    if not isinstance(call[output], Tensor):
        call.values[output] = Tensor(*operator.result(call))
    return call


def round_to(exact: Array, dtype: DType) -> Array:
    """float64 values rounded once to a dtype, ties to even."""
    with np.errstate(all="ignore"):
        if (
            dtype is BFLOAT16
        ):  # its conversion rounds to float32 first; a multiple of the spacing is exact
            unit = spacing(np.asarray(exact), dtype)
            exact = np.where(np.isfinite(exact), np.rint(exact / unit) * unit, exact)
        return np.asarray(exact).astype(dtype.numpy)
