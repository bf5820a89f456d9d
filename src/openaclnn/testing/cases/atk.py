"""ATK lists: JSON, a case an object, its inputs in the prototype's order without the outputs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from openaclnn.core.declare import Operator
from openaclnn.core.interface import REQUIRED, Kind, Parameter
from openaclnn.testing.cases.case import (
    Case,
    Drawn,
    Malformed,
    OneOf,
    Skip,
    TensorSpec,
    atk_range,
    check_range,
    dtype_of,
    is_unset,
    is_word,
    operator_named,
    parameter_named,
    power_of,
    telling,
    without_unread,
)
from openaclnn.testing.extras import dtype_named
from openaclnn.testing.files import FileError, read_json

_STANDARDS = {"default": "mixed", "single_bm": "stat_rel_err"}


def read_atk(path: Path) -> Iterator[Case | Malformed]:
    """The cases of a list, and in their places the entries that are none."""
    held = read_json(path)
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
            operator_name = str(named.get("aclnn_name", ""))
            yield Malformed.of(error, name, place, number, identity, operator_name)


def _case(entry: dict[str, Any], name: str, identity: str, place: str, number: int) -> Case:
    if "aclnn_name" not in entry:
        raise ValueError("aclnn_name: missing")
    operator = operator_named(str(entry["aclnn_name"]))
    inputs = entry.get("inputs")
    if not isinstance(inputs, list) or not all(isinstance(each, (dict, list)) for each in inputs):
        raise ValueError("inputs: a list of objects is expected")
    tensors: dict[str, TensorSpec | None] = {}
    attributes: dict[str, Any] = {}
    for parameter, item in _matched(operator, [_single(each) for each in inputs]):
        with telling(f"inputs, {parameter.name}"):
            if parameter.is_read:
                tensors[parameter.name] = _tensor(item)
            else:
                attributes[parameter.name] = _value(parameter, item)
    tensors = without_unread(operator, tensors, attributes)
    standard, relatives, notes = _standard(entry.get("standard"))
    return Case(
        name, operator.name, place, number, tensors, attributes, identity,
        standard=standard, relatives=relatives, notes=notes,
        products=_series(entry.get("soc_series")),
    )  # fmt: skip


def _series(item: Any) -> tuple[str, ...]:
    """The products that a case is meant for: one, or a list."""
    return tuple(str(each) for each in (item if isinstance(item, list) else [item]) if each)


def _single(item: Any) -> dict[str, Any]:
    """An input; a list of objects is an array, of which each has an element."""
    if isinstance(item, dict):
        return item
    if not item or not all(isinstance(each, dict) for each in item):
        raise ValueError(f"inputs: objects are expected in an array, not {item!r}"[:80])
    return {
        **item[0],
        "type": "array",
        "range_values": [each.get("range_values") for each in item],
    }


def _standard(item: Any) -> tuple[str, dict[str, float], tuple[str, ...]]:
    """The precision standard that a case names, T by dtype where it says so, and what is not known of it."""
    accuracy = item.get("acc") if isinstance(item, dict) else None
    if accuracy is None:
        return "", {}, ()
    name, about = accuracy, None
    if isinstance(accuracy, dict) and len(accuracy) == 1:
        [(name, about)] = accuracy.items()
    if not isinstance(name, str) or name not in _STANDARDS:
        return "", {}, (f"the standard {name!r} is not known",)
    relatives = {}
    for word, value in (about if isinstance(about, dict) else {}).items():
        short, suffix, _ = str(word).partition("_error")
        if suffix:
            relatives[dtype_named(short).name] = power_of(value)
    return _STANDARDS[name], relatives, ()


def _matched(
    operator: Operator, inputs: list[dict[str, Any]]
) -> list[tuple[Parameter, dict[str, Any]]]:
    """Inputs by place, whatever they are called; where some are left out, by name, or else as the next of its kind."""
    inputs = [each for each in inputs if each.get("dtype") != "non_param"]
    parameters = [p for p in operator.parameters if p.is_read or not p.is_tensor]
    if len(inputs) == len(parameters):
        return list(zip(parameters, inputs, strict=True))
    if len(inputs) > len(parameters):
        names = ", ".join(p.name for p in parameters)
        raise ValueError(f"inputs: {len(inputs)} for the parameters {names}")
    if not inputs:
        raise ValueError("inputs: none")
    pairs, left = [], parameters
    for item in inputs:
        fits = [p for p in left if p.is_tensor == (item.get("type") == "tensor")]
        named = parameter_named(operator, str(item.get("name") or ""))
        chosen = named if named in left else next(iter(fits), None)
        if chosen is None:
            raise ValueError(f"inputs: {item.get('name')!r} fits no parameter of {operator.name}")
        pairs.append((chosen, item))
        left.remove(chosen)
    return pairs


def _tensor(item: dict[str, Any]) -> TensorSpec | None:
    if item.get("type") != "tensor":
        raise ValueError(f"a tensor is expected, not {item.get('type')!r}")
    shape = item.get("shape")
    if shape is None:
        return None
    if not isinstance(shape, list) or not all(type(size) is int for size in shape):
        raise ValueError(f"a shape of whole numbers is expected, not {shape!r}")
    dtype = dtype_of(item.get("dtype"))
    how = atk_range(item.get("range_values"))
    check_range(how, dtype)
    return TensorSpec(tuple(shape), dtype, how)


def _value(parameter: Parameter, item: dict[str, Any]) -> Any:
    """An attribute: the value, or what it is drawn or chosen from."""
    values = item.get("range_values")
    if item.get("type") == "tensor":
        raise ValueError(f"a value is expected, not {item.get('type')!r}")
    if isinstance(values, list) and len(values) == 1:
        [values] = values
    if is_unset(values):
        return None if parameter.default is REQUIRED else parameter.default
    words = values if isinstance(values, list) else [values]
    if parameter.kind is Kind.BOOL:
        return _one_of([_switch(each) for each in words])
    if (parameter.choices or parameter.kind is Kind.CSTRING) and all(map(is_word, words)):
        return _one_of(words)
    how, whole = atk_range(values), parameter.kind in (Kind.INT64, Kind.CSTRING)
    assert how is not None
    kind = "int64" if whole else "float64"
    dtype = dtype_named(str(item.get("dtype")) if parameter.kind is Kind.SCALAR else kind)
    check_range(how, dtype)
    if parameter.kind is Kind.SCALAR or how.choices or how.means is not None or how.low < how.high:
        return Drawn(how, dtype)
    return int(how.low) if whole else how.low


def _one_of(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else OneOf(tuple(values))


def _switch(value: Any) -> Any:
    words = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}
    if str(value).lower() not in words:
        raise Skip("value", f"BOOL cannot hold {value!r}")
    return words[str(value).lower()]
