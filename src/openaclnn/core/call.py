"""Bind: arguments become a `Call`, whose tensors are zero-copy views and whose attributes are plain numbers."""

from __future__ import annotations

import operator as python_operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from openaclnn.core.dtypes import FLOAT, DType, promote
from openaclnn.core.interface import REQUIRED, Interface, Kind, Parameter
from openaclnn.core.interop import as_tensor, is_number, to_numpy
from openaclnn.core.products import Product
from openaclnn.core.status import AclnnError, Status
from openaclnn.core.tensor import Scalar, Tensor

__all__ = ["AUTO", "Call", "bind_arguments", "bind_plain", "oracle_arguments"]


class _Auto:
    def __repr__(self) -> str:
        return "AUTO"


AUTO: Any = _Auto()
"""Stands for a tensor that the plain call leaves to us: the output to allocate, a value to compute."""

_INT64_LIMIT = 1 << 63


class Call:
    """One call's bound values by C parameter name, and the product they are checked against."""

    __slots__ = ("executor", "operator", "product", "values", "workspace_size")

    def __init__(
        self,
        operator: Interface,
        values: dict[str, Any],
        product: Product,
        workspace_size: bool = True,
        executor: bool = True,
    ) -> None:
        self.operator = operator
        self.values = values
        self.product = product
        self.workspace_size = workspace_size  # whether phase one was given a place for each result
        self.executor = executor

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def tensor(self, name: str) -> Tensor:
        """A tensor argument that the checks have found present."""
        value = self.values[name]
        assert isinstance(value, Tensor), name
        return value

    def given(self, name: str) -> bool:
        """Whether a tensor was passed: neither null nor left to us."""
        return isinstance(self.values[name], Tensor)

    @property
    def reduction(self) -> str | None:
        """The reduction's name, or None where the value is not one."""
        parameter = self.operator.reduction
        value = self.values[parameter.name]
        if parameter.kind is Kind.INT64:
            known = isinstance(value, int) and 0 <= value < len(parameter.choices)
            return parameter.choices[value] if known else None
        if value is None:  # a null string takes the definition's default
            return str(parameter.default)
        return value if value in parameter.choices else None


def _refuse(operator: Interface, parameter: Parameter, expected: str, got: str) -> AclnnError:
    return AclnnError(Status.ACLNN_ERR_PARAM_INVALID, operator.name, parameter.name, expected, got)


def _attribute(operator: Interface, parameter: Parameter, value: Any) -> Any:
    """An attribute as the C type would hold it; values of another type are refused here."""
    try:
        if parameter.kind is Kind.SCALAR:
            return None if value is None else Scalar.of(value)
        if parameter.kind is Kind.BOOL:
            if isinstance(value, (bool, np.bool_)) or value in (0, 1):
                return bool(value)
            raise TypeError(f"a bool, got {value!r}")
        if parameter.kind is Kind.CSTRING:
            return _name(parameter, value)
        if parameter.kind is Kind.INT64:
            if isinstance(value, str) and value in parameter.choices:
                return parameter.choices.index(value)
            if isinstance(value, str) and parameter.choices:
                return value  # left to the operator's own check, at its place in the order
            number = python_operator.index(value)
            if not -_INT64_LIMIT <= number < _INT64_LIMIT:
                raise TypeError(f"a 64-bit integer, got {number}")
            return number
        if isinstance(value, (str, bytes)):
            raise TypeError(f"a number, got {value!r}")
        with np.errstate(over="ignore"):
            # FLOAT holds it by its C type; the kernels of DOUBLE parameters see it as FLOAT too.
            return float(np.float32(value)) if parameter.kind is Kind.FLOAT else float(value)
    except (TypeError, ValueError) as error:
        expected, _, got = str(error).rpartition(", got ")
        if not expected:
            kinds = {Kind.INT64: "an integer", Kind.FLOAT: "a number", Kind.DOUBLE: "a number"}
            expected, got = kinds.get(parameter.kind, "a value"), type(value).__name__
        raise _refuse(operator, parameter, expected, got) from None


def _name(parameter: Parameter, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, str):
        return value
    if isinstance(value, (int, np.integer)) and 0 <= int(value) < len(parameter.choices):
        return parameter.choices[int(value)]
    if isinstance(value, (int, np.integer)):
        return str(int(value))  # left to the operator's own check
    raise TypeError(f"a string, got {type(value).__name__}")


def _tensor(operator: Interface, parameter: Parameter, value: Any) -> Tensor:
    try:
        tensor = as_tensor(value)
    except TypeError as error:
        expected, _, got = str(error).rpartition(", got ")
        raise _refuse(operator, parameter, expected or "an array", got) from None
    if not tensor.alive:
        raise _refuse(operator, parameter, "a live tensor", "a destroyed one")
    if parameter.kind is Kind.OUTPUT and not tensor.writable:
        raise _refuse(operator, parameter, "a writable array", "a read-only one")
    return tensor


def bind_arguments(
    operator: Interface,
    arguments: Sequence[Any],
    product: Product,
    workspace_size: bool = True,
    executor: bool = True,
) -> Call:
    """Bind phase one's arguments, in C order; None stands for a null pointer."""
    values: dict[str, Any] = {}
    for parameter, value in zip(operator.parameters, arguments, strict=True):
        if parameter.is_tensor:
            values[parameter.name] = None if value is None else _tensor(operator, parameter, value)
        else:
            values[parameter.name] = _attribute(operator, parameter, value)
            if isinstance(values[parameter.name], Scalar) and not values[parameter.name].alive:
                raise _refuse(operator, parameter, "a live scalar", "a destroyed one")
    return Call(operator, values, product, workspace_size, executor)


def bind_plain(operator: Interface, arguments: Mapping[str, Any], product: Product) -> Call:
    """Bind the plain call's arguments, by Python name; `out=None` and computed values become AUTO."""
    values: dict[str, Any] = {}
    numbers: dict[str, Any] = {}
    for parameter in operator.parameters:
        value = arguments[parameter.python_name]
        if not parameter.is_tensor:
            values[parameter.name] = _attribute(operator, parameter, value)
        elif value is None:
            automatic = parameter.kind is Kind.OUTPUT or parameter.computed
            values[parameter.name] = AUTO if automatic else None
        elif parameter.weak and is_number(value):
            numbers[parameter.name] = value
            values[parameter.name] = None
        else:
            values[parameter.name] = _tensor(operator, parameter, value)
    if numbers:
        weak = _weak_dtype(operator, values)
        for name, number in numbers.items():
            with np.errstate(over="ignore"):
                values[name] = Tensor.from_numpy(np.asarray(number).astype(weak.numpy))
    return Call(operator, values, product)


def _weak_dtype(operator: Interface, values: Mapping[str, Any]) -> DType:
    """The dtype a bare number takes: the promotion of the floating tensors beside it, FLOAT if none."""
    found: DType | None = None
    for parameter in operator.parameters:
        value = values[parameter.name]
        if parameter.kind is Kind.TENSOR and parameter.weak and isinstance(value, Tensor):
            if value.dtype.kind == "floating":
                found = value.dtype if found is None else promote(found, value.dtype)
    return found or FLOAT


def oracle_arguments(
    operator: Interface, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """The reference's arguments: arrays as NumPy arrays of their own dtype, attributes as FLOAT holds them."""
    positional, keywords = operator.plain_parameters
    names = [parameter.python_name for parameter in positional]
    given = dict(zip(names, args, strict=False)) | dict(kwargs)
    given.pop("out", None)
    given.pop("product", None)
    arguments: dict[str, Any] = {}
    for parameter in [*positional, *keywords]:
        if parameter.kind is Kind.OUTPUT:
            continue
        value = given.pop(parameter.python_name, parameter.default)
        if value is REQUIRED:
            raise TypeError(f"{operator.python_name}() needs {parameter.python_name}")
        if parameter.kind is Kind.TENSOR:
            arguments[parameter.python_name] = None if value is None else to_numpy(value)
        elif parameter.choices:
            arguments[parameter.python_name] = (
                value if isinstance(value, str) else parameter.choices[value]
            )
        else:
            bound = _attribute(operator, parameter, value)
            if isinstance(bound, Scalar):
                bound = bound.float32()
            arguments[parameter.python_name] = (
                float(np.float32(bound)) if parameter.kind is Kind.DOUBLE else bound
            )
    if given:
        raise TypeError(f"{operator.python_name}() has no parameter {sorted(given)[0]!r}")
    return arguments
