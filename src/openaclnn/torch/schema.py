"""What a declaration is in PyTorch's words: the order of its arguments, its schema, what it makes of shapes alone, and where results lie."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch

from openaclnn.core.call import AUTO, Call
from openaclnn.core.declare import ROW_MAJOR, Operator
from openaclnn.core.dtypes import DOUBLE, FLOAT, DType, dtype_of_torch
from openaclnn.core.interface import REQUIRED, Kind, Parameter
from openaclnn.core.plan import Plan
from openaclnn.core.products import current_product
from openaclnn.core.results import undisturbed
from openaclnn.core.tensor import Scalar, Tensor
from openaclnn.operators.activations import Activation

_TYPES = {
    Kind.SCALAR: "float", Kind.FLOAT: "float", Kind.DOUBLE: "float", Kind.INT64: "int", Kind.BOOL: "bool",
    Kind.CSTRING: "str",
}  # fmt: skip


@functools.cache
def arguments_of(operator: Operator) -> tuple[Parameter, ...]:
    """The plain call's parameters in its order, without `out`."""
    return tuple(
        p
        for group in operator.plain_parameters
        for p in group
        if p.kind is not Kind.OUTPUT or p.in_place
    )


def schema(operator: Operator) -> str:
    """`name(arguments) -> results`; what works in place gives nothing back, as graphs of PyTorch want it."""
    declared = ", ".join(map(_argument, arguments_of(operator)))
    results = "" if operator.output.in_place else ", ".join("Tensor" for _ in operator.outputs)
    return f"{operator.python_name}({declared}) -> ({results})"


def out_schema(operator: Operator) -> str:
    """The same with places for the results, by their names."""
    places = (f"Tensor({chr(97 + n)}!) {p.field}" for n, p in enumerate(operator.outputs))
    if operator.result_type is None:
        places = (f"Tensor(a!) {operator.output.python_name}" for _ in (0,))
    declared = ", ".join([*map(_argument, arguments_of(operator)), "*", *places])
    return f"{operator.python_name}.out({declared}) -> ()"


def name_of(parameter: Parameter) -> str:
    """PyTorch warns of arguments called self; its functions call that one input."""
    return "input" if parameter.python_name == "self" else parameter.python_name


def _argument(parameter: Parameter) -> str:
    name, default = name_of(parameter), parameter.default
    if parameter.in_place:
        return f"Tensor(a!) {name}"
    if parameter.is_tensor:
        return f"Tensor {name}" if default is REQUIRED else f"Tensor? {name}=None"
    kind = "str" if parameter.choices else _TYPES[parameter.kind]
    if parameter.kind is Kind.SCALAR and isinstance(default, int):
        kind = "Scalar"  # beside integers it is one: a float is refused
    if default is REQUIRED:
        return f"{kind} {name}"
    return f'{kind} {name}="{default}"' if kind == "str" else f"{kind} {name}={default}"


@functools.cache
def torch_dtype(dtype: DType) -> torch.dtype:
    known: torch.dtype = getattr(torch, dtype.torch_name)
    return known


def double_among(arguments: Sequence[Any]) -> bool:
    """Whether a tensor is float64: the interface has no such sums, PyTorch's own checks of gradients need them."""
    return any(isinstance(a, torch.Tensor) and a.dtype == torch.float64 for a in arguments)


def made_by(
    operator: Operator, arguments: Sequence[Any]
) -> list[tuple[tuple[int, ...], torch.dtype]]:
    """Shape and dtype of each result, after the operator's own checks; sizes may be symbols.

    For the checks float64 is FLOAT, and DOUBLE again in the results.
    """
    wide = double_among(arguments)
    return [
        (shape, torch_dtype(DOUBLE if wide and dtype is FLOAT else dtype))
        for shape, dtype in operator.results(_checked(operator, arguments))
    ]


def plan_of(operator: Operator, arguments: Sequence[Any]) -> Plan:
    """The plan of a call with such arguments, after the same checks."""
    call = _checked(operator, arguments)
    operator.outline(call)
    return operator.plan(call)


def _checked(operator: Operator, arguments: Sequence[Any]) -> Call:
    values: dict[str, Any] = {p.name: AUTO for p in operator.outputs}
    for parameter, value in zip(arguments_of(operator), arguments, strict=True):
        values[parameter.name] = _bound(parameter, value)
    call = Call(operator, {p.name: values[p.name] for p in operator.parameters}, current_product())
    operator.verify(call)
    return call


def _bound(parameter: Parameter, value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        dtype = dtype_of_torch(value.dtype)
        if dtype is None:
            raise TypeError(f"{parameter.python_name}: no operator takes {value.dtype}")
        return Tensor(tuple(value.shape), FLOAT if dtype is DOUBLE else dtype)
    if value is None:
        return AUTO if parameter.computed else None
    if parameter.kind is Kind.SCALAR:
        kinds = {torch.SymFloat: float, torch.SymInt: int}  # a graph is for one number, or all
        return Scalar.of(kinds.get(type(value), lambda number: number)(value))
    if parameter.kind is Kind.INT64 and value in parameter.choices:
        return parameter.choices.index(value)
    return value


# Where the elements of results lie: as PyTorch's own results do, which follow their inputs where these are not row-major.
#
# Models in channels-last memory rely on that, and so does what PyTorch compiles: views of a result are made by its strides.


@functools.cache
def may_follow(operator: Operator) -> bool:
    """Whether the operator's counterpart of PyTorch's gives results that lie like its inputs, as activations and losses of elements do; others are row-major."""
    if not isinstance(operator, Activation) or ROW_MAJOR in operator.aten_traits:
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
        bare = [torch.empty_strided(each.shape, each.stride(), device="meta") for each in tensors]
        strides = laid_like(bare).stride()
        return torch.empty_strided(shape, strides, dtype=dtype, device=first.device)


def _in_order(tensor: Any) -> bool:
    """Whether the axes lie in memory as those of row-major tensors do, whatever lies between elements: results do then, too."""
    if tensor.is_contiguous():
        return True
    moving = [s for n, s in zip(tensor.shape, tensor.stride(), strict=True) if n != 1 and s]
    return all(one > other for one, other in itertools.pairwise(moving))
