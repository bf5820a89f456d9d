"""From what a page sends to a call: tensors as specs, numbers as Python has them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from openaclnn.core.call import AUTO
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import DType
from openaclnn.core.interface import REQUIRED, Kind, Parameter
from openaclnn.core.products import PRODUCTS, Product, find_product
from openaclnn.core.tensor import Format
from openaclnn.explorer.refusals import Refused
from openaclnn.operators import find_operator
from openaclnn.testing.cases.case import Case, TensorSpec
from openaclnn.testing.words import dtype_named

__all__ = ["LEFT_OUT", "SMALL", "Asked", "may_be_left_out", "read_asked"]

SMALL = 4096
"""Elements, of all tensors together, up to which values are computed and shown."""

LEFT_OUT = "left out"
"""What stands for a tensor that the plain call would make."""

_RANK = 64  # more than any rule on dimensions has to see
_LARGEST = (1 << 63) - 1
_TEXT = 200  # characters of a number or a name


@dataclass(frozen=True)
class Asked:
    """A call: tensors and numbers by C name; tensors that the plain call would make are not among them."""

    operator: Operator
    product: Product
    tensors: Mapping[str, TensorSpec | None]
    numbers: Mapping[str, Any]
    seed: int = 0

    def descriptors(self) -> dict[str, Any]:
        """All values as phase one would be given them."""
        tensors = {
            p.name: AUTO if p.name not in self.tensors else _descriptor(self.tensors[p.name])
            for p in self.operator.tensors
        }
        return {**tensors, **self.numbers}

    def case(self) -> Case:
        """The call as a case, whose data can be drawn."""
        return Case(self.operator.name, self.operator.name, "", 0, self.tensors, self.numbers)

    @property
    def elements(self) -> int:
        """Of all storages together, and of the views, which may be larger."""
        given = [spec for spec in self.tensors.values() if spec is not None]
        return sum(max(spec.elements, math.prod(spec.shape)) for spec in given)


def _descriptor(spec: TensorSpec | None) -> Any:
    return None if spec is None else spec.descriptor()


def read_asked(held: Any) -> Asked:
    """The call that a request describes; Refused where it describes none."""
    if not isinstance(held, dict) or not isinstance(held.get("arguments", {}), dict):
        raise Refused(400, "a call is expected: operator, product and arguments")
    try:
        operator = find_operator(str(held.get("operator", "")))
        product = find_product(str(held.get("product", PRODUCTS[0].tag)))
    except (KeyError, ValueError) as error:
        raise Refused(400, str(error.args[0])) from None
    seed = held.get("seed", 0)
    if type(seed) is not int or not 0 <= seed <= _LARGEST:
        raise Refused(400, "a seed is a whole number, 0 or more")
    given = held.get("arguments", {})
    unknown = sorted(given.keys() - {p.name for p in operator.parameters})
    if unknown:
        raise Refused(400, f"{operator.name} has no parameter {unknown[0][:_TEXT]!r}")
    tensors: dict[str, TensorSpec | None] = {}
    numbers: dict[str, Any] = {}
    for parameter in operator.parameters:
        if parameter.is_tensor:
            value = given.get(parameter.name, LEFT_OUT if may_be_left_out(parameter) else None)  # fmt: skip
            if value != LEFT_OUT:
                tensors[parameter.name] = None if value is None else _tensor(parameter, value)
            elif not may_be_left_out(parameter):
                raise Refused(400, f"{parameter.name} cannot be left out", parameter.name, "mode")
        else:
            default = None if parameter.default is REQUIRED else parameter.default
            numbers[parameter.name] = _number(parameter, given.get(parameter.name, default))
    return Asked(operator, product, tensors, numbers, seed)


def may_be_left_out(parameter: Parameter) -> bool:
    """An output that is not read before, or what the plain call computes."""
    return parameter.computed or not parameter.is_read


def _tensor(parameter: Parameter, held: Any) -> TensorSpec:
    name = parameter.name
    if not isinstance(held, dict):
        raise Refused(400, f"{name}: a tensor has dtype and shape", name, "mode")
    field = "dtype"
    try:
        dtype = dtype_named(str(held.get("dtype", ""))[:_TEXT])
        field = "shape"
        shape = _integers(held.get("shape", ""))
        field = "strides"
        strides = _integers(held.get("strides")) if held.get("strides") not in (None, "") else None
        field = "offset"
        [offset] = _integers(held.get("offset") or 0)
        field = "format"
        layout = Format[f"ACL_FORMAT_{str(held.get('format') or 'ND')[:_TEXT].upper()}"]
        field = "strides" if strides is not None else "shape"
        spec = TensorSpec(shape, dtype, None, strides, offset, format=layout)
        field = "values"
        values = held.get("values")
        if values in (None, "", []):
            return spec
        return TensorSpec(shape, dtype, None, strides, offset, format=layout, values=_values(values, shape, dtype))  # fmt: skip
    except KeyError:
        raise Refused(400, f"{name}: unknown format", name, field) from None
    except (ValueError, OverflowError) as error:
        raise Refused(400, f"{name}: {error}", name, field) from None


def _words(given: Any) -> list[Any]:
    """Numbers, or text with them between commas, spaces, brackets or an x."""
    if isinstance(given, str):
        return given.translate(str.maketrans("()[]{},;x", " " * 9)).split()
    return given if isinstance(given, list) else [given]


def _integers(given: Any) -> tuple[int, ...]:
    words = _words(given)
    if len(words) > _RANK:
        raise ValueError(f"{len(words)} numbers where up to {_RANK} are read")
    numbers = []
    for word in words:
        if not isinstance(word, (int, str)) or isinstance(word, bool):
            raise ValueError("whole numbers are expected, as 2x3")
        try:
            numbers.append(int(word))
        except ValueError:
            raise ValueError(
                f"whole numbers are expected, as 2x3, not {str(word)[:40]!r}"
            ) from None
        if abs(numbers[-1]) > _LARGEST:
            raise ValueError("a number of 64 bits is expected")
    return tuple(numbers)


def _values(given: Any, shape: tuple[int, ...], dtype: DType) -> np.ndarray[Any, Any]:
    words = _words(given) if not isinstance(given, str) else _words(given.replace("x", "?"))
    count = math.prod(shape)
    if len(words) != count:
        raise ValueError(f"{len(words)} values for the {count} elements of shape {shape}")
    read: Any = complex if dtype.kind == "complex" else float if dtype.kind == "floating" else int
    try:
        numbers = [read(word) for word in words]
        if dtype.kind == "bool" and not set(numbers) <= {0, 1}:
            raise ValueError
        with np.errstate(over="ignore"):
            return np.array(numbers, dtype.numpy).reshape(shape)
    except (ValueError, TypeError, OverflowError):
        raise ValueError(f"numbers of {dtype.name} are expected") from None


def _number(parameter: Parameter, given: Any) -> Any:
    """A number, a truth, a name or null, from JSON or from text."""
    if given is None or isinstance(given, (bool, int, float)):
        return given
    if not isinstance(given, str) or len(given) > _TEXT:
        raise Refused(400, f"{parameter.name}: a number or a name is expected", parameter.name)
    text = given.strip()
    if text.lower() == "null":
        return None
    if parameter.kind is Kind.CSTRING:
        return text
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for read in (int, float, complex):
        try:
            return read(text)
        except ValueError:
            continue
    return text
