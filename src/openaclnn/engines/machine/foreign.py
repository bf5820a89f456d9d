"""Functions that C++ calls as its own: what they return are objects, made where the caller has room for them, and a call
can be handed on as if this function had never been there, so that an exception passes none of its frames.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from openaclnn.engines.machine.cache import compiled
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.kinds import I64, STORED, VOID
from openaclnn.engines.machine.values import Value

__all__ = ["entry", "hand_on"]

_ROOM = "sret"  # LLVM's word for the caller's room


def entry(
    name: str, kinds: Sequence[str], emit: Callable[[Code, Array, Sequence[Value]], None]
) -> int:
    """The address of a function of arguments of these kinds, whose objects `emit(code, room, arguments)` makes."""
    signature = ir.FunctionType(VOID, [I64.as_pointer(), *[STORED[kind] for kind in kinds]])

    def whole(code: Code, arguments: Sequence[Value]) -> None:
        code.builder.function.args[0].add_attribute(_ROOM)
        room = code.builder.ptrtoint(arguments[0].value, I64)
        emit(code, code.slots(code.value(room)), arguments[1:])

    return compiled(name, whole, signature)


def hand_on(code: Code, function: Value, arguments: Sequence[Value]) -> None:
    """Let a function of this one's kind take its place, with other arguments but the same room."""
    builder, own = code.builder, code.builder.function
    given: list[Any] = [one.value for one in arguments]
    roomy = len(own.args) > len(given)
    there = builder.inttoptr(function.value, own.function_type.as_pointer())
    found = builder.call(
        there,
        [own.args[0], *given] if roomy else given,
        tail="musttail",
        arg_attrs={0: (_ROOM,)} if roomy else None,
    )
    code.leave(None if own.function_type.return_type == VOID else code.value(found))
