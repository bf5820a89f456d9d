"""ATK lists: JSON, a case an object, its inputs in the prototype's order without the outputs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from openaclnn.core.declare import Operator
from openaclnn.core.interface import Kind, Parameter
from openaclnn.operators import find_operator
from openaclnn.testing.cases.case import Case, Drawn, Malformed, TensorSpec, parameter_named
from openaclnn.testing.cases.words import distribution_of, number_of
from openaclnn.testing.data.distribution import Distribution
from openaclnn.testing.files.sources import FileError, read_whole
from openaclnn.testing.words import dtype_named

__all__ = ["read_atk"]


def read_atk(path: Path) -> Iterator[Case | Malformed]:
    """The cases of a list, and in their places the entries that are none."""
    try:
        held = json.loads(read_whole(path).decode("utf-8-sig"))
    except FileError:
        raise
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path}: not a JSON file: {error}") from None
    if not isinstance(held, list):
        raise FileError(f"{path}: a list of cases is expected")
    for number, entry in enumerate(held):
        named = entry if isinstance(entry, dict) else {}
        name = str(named.get("name") or f"case_{named.get('id', number)}")
        identity = str(named.get("id", number))
        place = f"{path.name}, case {number}"
        try:
            if not named:
                raise ValueError(f"an object is expected, not {entry!r}"[:80])
            yield _case(named, name, identity, place, number)
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            told = str(error.args[0]) if isinstance(error, KeyError) else str(error)
            yield Malformed(name, place, told, number, identity, str(named.get("aclnn_name", "")))


def _case(entry: dict[str, Any], name: str, identity: str, place: str, number: int) -> Case:
    if "aclnn_name" not in entry:
        raise ValueError("aclnn_name: missing")
    operator = find_operator(str(entry["aclnn_name"]))
    inputs = entry.get("inputs")
    if not isinstance(inputs, list) or not all(isinstance(each, dict) for each in inputs):
        raise ValueError("inputs: a list of objects is expected")
    tensors: dict[str, TensorSpec | None] = {}
    attributes: dict[str, Any] = {}
    for parameter, given in _matched(operator, inputs):
        try:
            if parameter.is_read:
                tensors[parameter.name] = _tensor(given)
            else:
                attributes[parameter.name] = _value(parameter, given)
        except (ValueError, TypeError) as error:
            raise ValueError(f"inputs, {given.get('name', parameter.name)}: {error}") from None
    unread = getattr(operator.workloads, "unread", lambda numbers: ())(attributes)
    tensors |= {each: None for each in unread if each in tensors}
    return Case(
        name, operator.name, place, number, tensors, attributes, identity,
        products=tuple(str(each) for each in entry.get("soc_series") or ()),
    )  # fmt: skip


def _matched(
    operator: Operator, inputs: list[dict[str, Any]]
) -> list[tuple[Parameter, dict[str, Any]]]:
    """Inputs by place where all are there, else by name."""
    parameters = [p for p in operator.parameters if p.is_read or not p.is_tensor]
    if len(inputs) == len(parameters):
        return list(zip(parameters, inputs, strict=True))
    found = []
    for given in inputs:
        parameter = parameter_named(operator, str(given.get("name", "")))
        if parameter is None or parameter not in parameters:
            names = ", ".join(p.name for p in parameters)
            raise ValueError(f"inputs: {given.get('name')!r} is none of {names}")
        found.append((parameter, given))
    return found


def _tensor(given: dict[str, Any]) -> TensorSpec | None:
    if given.get("type") != "tensor":
        raise ValueError(f"a tensor is expected, not {given.get('type')!r}")
    shape = given.get("shape")
    if shape is None:
        return None
    if not isinstance(shape, list) or not all(type(size) is int for size in shape):
        raise ValueError(f"a shape of whole numbers is expected, not {shape!r}")
    dtype = dtype_named(str(given.get("dtype")))
    values = given.get("range_values")
    how = None if values is None else _distribution(values)
    return TensorSpec(tuple(shape), dtype, how)


def _distribution(values: Any) -> Distribution:
    if isinstance(values, dict):
        if values.get("name") != "nd":
            raise ValueError(f"unknown distribution {values.get('name')!r}")
        means, deviations = (_interval(values.get(word)) for word in ("mean", "std"))
        if deviations[0] < 0:
            raise ValueError(f"a deviation is 0 or more, not {deviations[0]:g}")
        return Distribution(means=means, deviations=deviations)
    return distribution_of(values)


def _interval(given: Any) -> tuple[float, float]:
    ends = given if isinstance(given, list) and len(given) == 2 else [given, given]
    low, high = (number_of(end) for end in ends)
    if not -1e300 < low <= high < 1e300:
        raise ValueError(f"an interval of numbers is expected, not {given!r}")
    return low, high


def _value(parameter: Parameter, given: dict[str, Any]) -> Any:
    values, dtype = given.get("range_values"), str(given.get("dtype"))
    if parameter.choices and (values is None or isinstance(values, str)):
        return parameter.default if values is None else values
    if isinstance(values, bool) or parameter.kind is Kind.BOOL:
        return values[0] if isinstance(values, list) and values else values
    how = _distribution(values)
    if parameter.kind is Kind.SCALAR:
        return Drawn(how, dtype_named(dtype))
    if how.low == how.high and how.means is None:
        return int(how.low) if parameter.kind is Kind.INT64 else how.low
    return Drawn(how, dtype_named("int64" if parameter.kind is Kind.INT64 else "float64"))
