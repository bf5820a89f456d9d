"""Python literals in cells: read, never evaluated; `inf` and `nan` are numbers."""

from __future__ import annotations

import ast
import math
from typing import Any

__all__ = ["read_literal"]

_NAMES = {
    "inf": math.inf,
    "nan": math.nan,
    "null": None,
    "none": None,
    "true": True,
    "false": False,
}
_LONGEST = 1 << 20


def read_literal(text: str) -> Any:
    """A number, string, tuple, list, dict or None; ValueError where the text is anything else."""
    if len(text) > _LONGEST:
        raise ValueError(f"a cell of {len(text)} characters is not read")
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"not a Python literal: {text[:60]!r}") from None


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=value) if (
            not isinstance(value, (bytes, complex)) and value is not ...
        ):
            return value
        case ast.Tuple(elts=parts):
            return tuple(_value(part) for part in parts)
        case ast.List(elts=parts):
            return [_value(part) for part in parts]
        case ast.Dict(keys=keys, values=values) if None not in keys:
            pairs = zip(keys, values, strict=True)
            return {_key(key): _value(value) for key, value in pairs}
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
            number = _value(operand)
            if isinstance(number, (int, float)) and not isinstance(number, bool):
                return -number if isinstance(sign, ast.USub) else number
        case ast.Name(id=name) if name.lower() in _NAMES:
            return _NAMES[name.lower()]
    raise ValueError(f"not a Python literal: {ast.unparse(node)[:60]!r}")


def _key(node: Any) -> str:
    key = _value(node)
    if not isinstance(key, str):
        raise ValueError(f"names are expected before colons, not {key!r}")
    return key
