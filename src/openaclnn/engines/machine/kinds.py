"""The element types (kinds) of the language by their short names, as f32, with LLVM's type in memory and the size of each."""

from __future__ import annotations

from typing import Any

from openaclnn.engines.machine import assembly
from openaclnn.engines.machine.assembly import (
    F16,
    F32,
    F64,
    I1,
    I8,
    I16,
    I32,
    I64,
    PTR,
    VOID,
    FloatType,
    FunctionType,
    IntType,
    Operand,
    vector_type,
)

STORED: dict[str, Any] = {
    "f32": F32, "f64": F64, "f16": F16, "bf16": I16, "i64": I64, "i32": I32, "i16": I16, "u8": I8,
    "bool": I1, "ptr": PTR,
}  # fmt: skip
SIZE = {"f32": 4, "f64": 8, "f16": 2, "bf16": 2, "i64": 8, "i32": 4, "i16": 2, "u8": 1, "ptr": 8}


def constant(kind: Any, number: Any, lanes: int = 0) -> Any:
    """A number as an LLVM constant of a type; with `lanes`, a vector with the number in every lane."""
    if not isinstance(number, int if isinstance(kind, IntType) else (int, float)):
        raise TypeError(f"{number!r} is no constant of kind {kind}")
    if isinstance(kind, IntType):
        number = int(number)
        if not -(1 << kind.width - 1) <= number < 1 << kind.width:
            raise ValueError(f"{number} does not fit into {kind}")
    elif not isinstance(kind, FloatType):
        raise TypeError(f"{number!r} is a number, but {kind} holds none")
    one = assembly.constant(kind, number)
    return in_lanes(one, lanes) if lanes else one


_in_lanes: dict[tuple[Any, str, int], Operand] = {}


def in_lanes(one: Any, lanes: int) -> Any:
    """A vector with a constant in every lane, cached, since writing it takes long. The key is the constant's text, which tells -0 from 0."""
    key = one.type, one.text, lanes
    if key not in _in_lanes:
        _in_lanes[key] = assembly.constant(vector_type(one.type, lanes), [one] * lanes)
    return _in_lanes[key]


def signature(result: str | None, *arguments: str) -> Any:
    """A function's type, from the kinds of its result (None: it returns nothing) and its arguments."""
    kinds = [STORED[argument] for argument in arguments]
    return FunctionType(STORED[result] if result else VOID, kinds)
