"""Golden values: the float64 oracle, as it is and rounded once to the output's dtype."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from openaclnn.core.call import Call, bind_plain
from openaclnn.core.declare import Operator, OutputSpec
from openaclnn.core.dtypes import dtype_of_numpy
from openaclnn.core.plan import Plan
from openaclnn.core.products import PRODUCTS, Product, current_product
from openaclnn.core.tensor import Tensor
from openaclnn.operators import find_operator
from openaclnn.testing.figures import round_to

Array = np.ndarray[Any, Any]


class Golden(NamedTuple):
    """What an operator should give: in float64, and in the output's dtype.

    Of an operator with several outputs both are its named tuple; what a call does not compute is None in them.
    """

    float64: Any
    target: Any


def operator_of(operator: str | Operator | Callable[..., Any]) -> Operator:
    """An operator by its C or Python name, or by its plain function."""
    if isinstance(operator, Operator):
        return operator
    if isinstance(operator, str):
        return find_operator(operator)
    declared = getattr(operator, "operator", None)
    if not isinstance(declared, Operator):
        raise TypeError(
            f"an operator, its name or its plain function is expected, not {operator!r}"
        )
    return declared


def golden(operator: str | Operator | Callable[..., Any], /, **arguments: Any) -> Golden:
    """The golden values of a plain call; AclnnError where the operator refuses it.

    `golden("elu_backward", grad_output=g, self_or_result=x).target` has the dtype that the call's result would have.
    """
    operator = operator_of(operator)
    computed = planned(operator, arguments, current_product()).computed
    exact = operator.oracle(**arguments)
    outputs = by_output(operator, exact)
    rounded = {name: round_to(values, computed[name][1]) for name, values in outputs.items()}
    if operator.result_type is None:
        return Golden(exact, rounded[operator.output.name])
    return Golden(exact, operator.result_type(*[rounded.get(p.name) for p in operator.outputs]))


def by_output(operator: Operator, results: Any) -> dict[str, Any]:
    """A call's result or results by the outputs' C names, without those that are not computed."""
    each = (results,) if operator.result_type is None else results
    pairs = zip(operator.outputs, each, strict=True)
    return {parameter.name: value for parameter, value in pairs if value is not None}


class Planned(NamedTuple):
    """A sound plain call with its plan; outputs that are left to us are described in the call."""

    call: Call
    plan: Plan

    @property
    def outputs(self) -> dict[str, OutputSpec]:
        """The shape and dtype of every output by C name, which both phases must be given whether they compute it or not; not of those that
        are null."""
        tensors = {output.name: self.call[output.name] for output in self.call.operator.outputs}
        return {
            name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items() if tensor is not None
        }  # fmt: skip

    @property
    def computed(self) -> dict[str, OutputSpec]:
        """Those that it computes."""
        spared = {operand.parameter for operand in self.plan.spared}
        return {name: spec for name, spec in self.outputs.items() if name not in spared}


def planned(operator: Operator, arguments: Mapping[str, Any], product: Product = PRODUCTS[0]) -> Planned:  # fmt: skip
    """A plain call, bound, checked and planned; AclnnError where the operator refuses it."""
    unknown = arguments.keys() - operator.plain_defaults.keys()
    if unknown:
        raise TypeError(f"{operator.python_name}() has no parameter {sorted(unknown)[0]!r}")
    named = {**operator.plain_defaults, **arguments}
    if operator.output.in_place:
        name = operator.output.python_name
        named[name] = _as_if_writable(named[name])
    call = bind_plain(operator, named, product)
    operator.verify(call)
    operator.outline(call)
    return Planned(call, operator.plan(call))


def plan_of(
    operator: Operator, arguments: Mapping[str, Any], product: Product = PRODUCTS[0]
) -> Plan:
    """The plan of a plain call, once its checks have passed."""
    return planned(operator, arguments, product).plan


def _as_if_writable(value: Any) -> Any:
    """An array that will be written elsewhere: checks alone may see a mapped file as one that can be."""
    if not isinstance(value, np.ndarray) or dtype_of_numpy(value.dtype) is None:
        return value
    tensor = Tensor.from_numpy(value)
    tensor.writable = True
    return tensor
