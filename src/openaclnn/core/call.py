"""Binding: `bind_plain` (a plain Python call) and `bind_arguments` (phase one) make a `Call` of a caller's arguments, which checks and plans
read by C parameter name. Its tensors are views without a copy, its attributes plain numbers."""

from __future__ import annotations

import functools
import operator as python_operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from openaclnn.core.dtypes import FLOAT, DType, float_of, is_int64, promote
from openaclnn.core.interface import REQUIRED, Interface, Kind, Parameter
from openaclnn.core.interop import (
    PRODUCER_ERRORS,
    as_tensor,
    is_number,
    is_tracked_leaf,
    viewers_now,
)
from openaclnn.core.products import PRODUCTS, Product, current_product, find_product
from openaclnn.core.status import AclnnError, Status, shown
from openaclnn.core.tensor import Scalar, Tensor


class _Auto:
    def __repr__(self) -> str:
        return "AUTO"


AUTO: Any = _Auto()
"""Stands for a tensor that the plain call leaves to us: the output to allocate, a value to compute."""

_INT64_LIMIT = 1 << 63
CONVERSION_ERRORS = (TypeError, *PRODUCER_ERRORS)
"""Exceptions that converting a value raises where it does not fit the parameter's C type."""
_INT64, _OUTPUT = Kind.INT64, Kind.OUTPUT  # looking a member up takes longer than comparing


@dataclass(slots=True, eq=False, repr=False)
class Call:
    """One call's bound values by C parameter name, and the product they are checked against."""

    operator: Interface
    values: dict[str, Any]
    product: Product
    workspace_size: bool = True  # whether phase one was given a pointer for this result
    executor: bool = True  # and for this one
    outputs_omitted: bool = False  # a plain call whose caller gave no output
    _reduction: Any = AUTO

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def tensor(self, name: str) -> Tensor:
        """A tensor argument that the checks have found present."""
        value: Tensor = self.values[name]
        return value

    def has_tensor(self, name: str) -> bool:
        """Whether a tensor was passed: neither null nor left to us."""
        return isinstance(self.values[name], Tensor)

    def axis(self, name: str) -> int | None:
        """The axis that a parameter numbers, counted from the front; None where its tensor has no such axis. A tensor of 0 dimensions
        counts as one of 1 dimension.
        """
        tensor = self.operator[name].axis
        if not tensor:
            raise TypeError(f"{self.operator.name}: {name} is declared without the tensor whose axis it is (axis=)")  # fmt: skip
        number, rank = self.values[name], len(self.tensor(tensor).shape) or 1
        return number % rank if -rank <= number < rank else None

    @property
    def reduction(self) -> str | None:
        """The reduction's name, or None where the value is not one."""
        if self._reduction is AUTO:
            self._reduction = self._reduction_named()
        return self._reduction  # type: ignore[no-any-return]

    def _reduction_named(self) -> str | None:
        parameter = self.operator.reduction
        assert parameter is not None, f"{self.operator.name} has no reduction"
        value = self.values[parameter.name]
        if parameter.kind is _INT64:
            known = isinstance(value, int) and 0 <= value < len(parameter.choices)
            return parameter.choices[value] if known else None
        if value is None:  # a null string takes the definition's default
            return str(parameter.default)
        return value if value in parameter.choices else None


def _refuse(operator: Interface, parameter: Parameter, expected: str, got: str) -> AclnnError:
    return AclnnError(Status.ACLNN_ERR_PARAM_INVALID, operator.name, parameter.name, expected, got)


def _scalar(parameter: Parameter, value: Any) -> Scalar | None:
    return None if value is None else Scalar.of(value)


def _bool(parameter: Parameter, value: Any) -> bool:
    if type(value) is bool:
        return value
    if isinstance(value, (bool, np.bool_)) or value in (0, 1):
        return bool(value)
    raise TypeError(f"a bool, got {value!r}")


def _int64(parameter: Parameter, value: Any) -> Any:
    if type(value) is int and is_int64(value):
        return value
    if parameter.choices and isinstance(value, str):
        if value in parameter.choices:
            return parameter.choices.index(value)
        return value  # left to the operator's own check, at its place in the order
    if isinstance(value, bool):
        raise TypeError(f"an integer, got {value}")
    number = python_operator.index(value)
    if not is_int64(number):
        raise TypeError(f"a 64-bit integer, got {number}")
    return number


def _double(parameter: Parameter, value: Any) -> float:
    if type(value) is float:
        return value
    if isinstance(value, (str, bytes)):
        raise TypeError(f"a number, got {value!r}")
    return float(value)


def _float(parameter: Parameter, value: Any) -> float:
    if type(value) is float:
        return float_of(value)
    if isinstance(value, (str, bytes)):
        raise TypeError(f"a number, got {value!r}")
    with np.errstate(over="ignore"):
        return float(np.float32(float(value)))  # an array interface is not asked for numbers


def _name(parameter: Parameter, value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, (int, np.integer)) and 0 <= int(value) < len(parameter.choices):
        return parameter.choices[int(value)]
    if isinstance(value, (int, np.integer)):
        return str(int(value))  # left to the operator's own check
    raise TypeError(f"a string, got {type(value).__name__}")


# A FLOAT parameter is rounded here, as by its C type; one of DOUBLE is rounded to FLOAT by the plan.
_CONVERT: dict[Kind, Callable[[Parameter, Any], Any]] = {
    Kind.SCALAR: _scalar, Kind.BOOL: _bool, Kind.CSTRING: _name, Kind.INT64: _int64,
    Kind.FLOAT: _float, Kind.DOUBLE: _double,
}  # fmt: skip


_Binding = tuple[str, str, Parameter, Callable[[Parameter, Any], Any] | None, Any, bool, bool]
"""How one parameter is bound: its C name, its Python name, the parameter, its converter (None for tensors), what None means
in the plain call, whether it is an input tensor, and whether a bare number will do. A bare tuple unpacks fastest."""


@functools.cache
def _bindings(operator: Interface) -> tuple[_Binding, ...]:
    single = operator.result_type is None
    return tuple(
        (
            p.name, p.python_name if single or p.kind is not Kind.OUTPUT else p.field, p,
            None if p.is_tensor else _CONVERT[p.kind],
            AUTO if p.computed or (p.kind is Kind.OUTPUT and not p.in_place) else None,
            p.kind is Kind.TENSOR, p.weak,
        )
        for p in operator.parameters
    )  # fmt: skip


def _outputs_by_name(operator: Interface, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a plain call with several outputs, where the arrays of the tuple `out` stand under the outputs' names."""
    names, outputs = operator.result_type._fields, arguments["out"]
    if outputs is None:
        return {**arguments, **dict.fromkeys(names)}
    if not isinstance(outputs, (tuple, list)) or len(outputs) != len(names):
        expected = f"{len(names)} arrays ({', '.join(names)}), each of which may be None"
        got = f"{len(outputs)}" if isinstance(outputs, (tuple, list)) else type(outputs).__name__
        raise AclnnError(Status.ACLNN_ERR_PARAM_INVALID, operator.name, "out", expected, got)
    return {**arguments, **dict(zip(names, outputs, strict=True))}


def _misfit(operator: Interface, parameter: Parameter, value: Any, error: Exception) -> AclnnError:
    """The refusal of an attribute that could not be converted to its C type."""
    if hasattr(type(value), "c_name"):  # a handle of another kind
        return _refuse(operator, parameter, _EXPECTED.get(parameter.kind, "a value"), shown(value))
    expected, _, got = str(error).rpartition(", got ")
    if not expected:
        plain = isinstance(value, (str, bytes, bool, int, float, complex))
        got = shown(value) if plain else type(value).__name__
        expected = _EXPECTED.get(parameter.kind, "a value")
    return _refuse(operator, parameter, expected, got)


_EXPECTED = {
    Kind.SCALAR: "an aclScalar", Kind.INT64: "an integer", Kind.FLOAT: "a number",
    Kind.DOUBLE: "a number",
}  # fmt: skip


def _tensor(operator: Interface, parameter: Parameter, value: Any) -> Tensor:
    try:
        tensor = as_tensor(value)
    except TypeError as error:
        expected, _, got = str(error).rpartition(", got ")
        if hasattr(type(value), "c_name"):  # a handle of another kind
            expected, got = "an aclTensor", shown(value)
        raise _refuse(operator, parameter, expected or "an array", got) from None
    if not tensor.alive:
        raise _refuse(operator, parameter, "a live tensor", "a destroyed one")
    if parameter.kind is _OUTPUT:
        _check_writable(operator, parameter, value, tensor)
    return tensor


def _check_writable(operator: Interface, parameter: Parameter, value: Any, tensor: Tensor) -> None:
    """Refuse an output that is no array, or that may not be written."""
    if type(value) is np.ndarray and tensor.writable:
        return
    if isinstance(value, np.generic):  # what is written to it would be lost
        raise _refuse(operator, parameter, "an array", type(value).__name__)
    if not tensor.writable:
        raise _refuse(operator, parameter, "a writable array", "a read-only one")
    if is_tracked_leaf(value):
        expected = "a tensor that autograd lets be written (or torch.no_grad())"
        raise _refuse(operator, parameter, expected, "a leaf that requires grad")


def bind_arguments(
    operator: Interface, arguments: Sequence[Any], product: Product, *results: bool
) -> Call:
    """Bind phase one's arguments, in C order; None stands for a null pointer. `results`: whether there is a pointer for workspace size and executor."""
    values: dict[str, Any] = {}
    for binding, value in zip(_bindings(operator), arguments, strict=True):
        name, _, parameter, convert = binding[:4]
        if convert is None:
            values[name] = None if value is None else _tensor(operator, parameter, value)
            continue
        try:
            values[name] = bound = convert(parameter, value)
        except CONVERSION_ERRORS as error:
            raise _misfit(operator, parameter, value, error) from None
        if isinstance(bound, Scalar) and not bound.alive:
            raise _refuse(operator, parameter, "a live scalar", "a destroyed one")
    return Call(operator, values, product, *results)


def bind_leniently(
    operator: Interface, arguments: Sequence[Any], product: Product, *results: bool
) -> Call:
    """A call of arguments that cannot all be bound, for the rules about null: tensors stay as they are, a value of no number becomes the default."""
    values: dict[str, Any] = {}
    for binding, value in zip(_bindings(operator), arguments, strict=True):
        name, _, parameter, convert = binding[:4]
        try:
            values[name] = value if convert is None else convert(parameter, value)
        except CONVERSION_ERRORS:
            values[name] = parameter.default
    return Call(operator, values, product, *results)


def bind_plain(operator: Interface, arguments: Mapping[str, Any], product: Product) -> Call:
    """Bind the plain call's arguments, by Python name; `out=None` and computed values become AUTO."""
    values: dict[str, Any] = {}
    numbers: dict[str, Any] = {}
    if operator.result_type is not None:
        arguments = _outputs_by_name(operator, arguments)
    views = viewers_now()
    for name, python_name, parameter, convert, absent, read, weak in _bindings(operator):
        value = arguments[python_name]
        if convert is not None:
            try:
                values[name] = convert(parameter, value)
            except CONVERSION_ERRORS as error:
                raise _misfit(operator, parameter, value, error) from None
        elif value is None:
            values[name] = absent
        elif type(value) in views:
            try:
                values[name] = tensor = views[type(value)](value)
            except CONVERSION_ERRORS:
                values[name] = tensor = _tensor(operator, parameter, value)  # says what is wrong
            if not read:
                _check_writable(operator, parameter, value, tensor)
        elif read and weak and is_number(value):
            numbers[name] = value
            values[name] = None
        else:
            values[name] = _tensor(operator, parameter, value)
    if numbers:
        dtype = _weak_dtype(operator, values)
        for name, number in numbers.items():
            if isinstance(number, int) and not -_INT64_LIMIT <= number < 2 * _INT64_LIMIT:
                expected = "an array, or a number of 64 bits (or a float)"
                raise _refuse(operator, operator[name], expected, str(number))
            with np.errstate(over="ignore"):
                values[name] = Tensor.from_numpy(np.asarray(number).astype(dtype.numpy))
    outputs_omitted = {values[name] for name in operator.output_names} == {AUTO}
    return Call(operator, values, product, outputs_omitted=outputs_omitted)


def _weak_dtype(operator: Interface, values: Mapping[str, Any]) -> DType:
    """The dtype a bare number takes: the promotion of the floating tensors beside it, FLOAT if none."""
    common: DType | None = None
    for parameter in operator.parameters:
        value = values[parameter.name]
        if parameter.kind is Kind.TENSOR and parameter.weak and isinstance(value, Tensor):
            if value.dtype.kind == "floating":
                common = value.dtype if common is None else promote(common, value.dtype)
    return common or FLOAT


def plain_arguments(
    operator: Interface, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """A plain call's arguments by Python name, as its own signature takes them."""
    names = [parameter.python_name for parameter in operator.plain_parameters[0]]
    positional = dict(zip(names, args, strict=False))
    twice = sorted(positional.keys() & kwargs.keys())
    if len(args) > len(names):
        raise TypeError(f"{operator.python_name}() takes {len(names)} positional arguments")
    if twice:
        raise TypeError(f"{operator.python_name}() was given {twice[0]} twice")
    arguments = operator.plain_defaults | positional | dict(kwargs)
    for name, value in arguments.items():
        if name not in operator.plain_defaults:
            raise TypeError(f"{operator.python_name}() has no parameter {name!r}")
        if value is REQUIRED:
            raise TypeError(f"{operator.python_name}() needs {name}")
    return arguments


def product_of(operator: Interface, product: str | Product | None) -> Product:
    """The product profile that the argument `product` names, or the one in force where it is None."""
    if product is None:
        return current_product()
    if isinstance(product, Product):
        return product
    try:
        return find_product(product)
    except (AttributeError, TypeError, ValueError):
        known = ", ".join(each.tag for each in PRODUCTS)
        code, expected = Status.ACLNN_ERR_PARAM_INVALID, f"one of {known}"
        raise AclnnError(code, operator.name, "product", expected, repr(product)) from None
