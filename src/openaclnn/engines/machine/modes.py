"""The floating-point mode of the thread that runs a function: read it, compare it, set it.

What is not IEEE 754's own (subnormals flushed, other roundings, traps) are a few bits of MXCSR on x86-64 and of
FPCR on AArch64. Reading them takes a nanosecond.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from llvmlite import ir

from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.host import on_arm
from openaclnn.engines.machine.kinds import I64, PTR, VOID
from openaclnn.engines.machine.values import Value

__all__ = ["is_standard", "read_mode", "set_standard", "write_mode"]


class _Register(NamedTuple):
    read: str
    write: str
    by_address: bool
    mode: int  # the bits that say how to compute; the others tell what happened
    standard: int


_X86 = _Register("llvm.x86.sse.stmxcsr", "llvm.x86.sse.ldmxcsr", True, 0xFFC0, 0x1F80)
_ARM = _Register("llvm.aarch64.get.fpcr", "llvm.aarch64.set.fpcr", False, 0xFFFFFFFF, 0)


@functools.cache
def _register() -> _Register:
    return _ARM if on_arm() else _X86


def _declared(code: Code, name: str, signature: Any) -> Any:
    module = code.builder.module
    known = module.globals.get(name)
    return ir.Function(module, signature, name) if known is None else known


def read_mode(code: Code) -> Value:
    """The register, as an int64."""
    own, builder = _register(), code.builder
    if not own.by_address:
        return code.value(builder.call(_declared(code, own.read, ir.FunctionType(I64, [])), []))
    place = code.frame("i32", 1)
    reader = _declared(code, own.read, ir.FunctionType(VOID, [PTR]))
    builder.call(reader, [place.place(0)])
    return place.read(0).unsigned("i64")


def write_mode(code: Code, mode: Value) -> None:
    own, builder = _register(), code.builder
    if not own.by_address:
        writer = _declared(code, own.write, ir.FunctionType(VOID, [I64]))
        builder.call(writer, [mode.value])
        return
    place = code.frame("i32", 1)
    place.write(0, mode.to("i32"))
    builder.call(_declared(code, own.write, ir.FunctionType(VOID, [PTR])), [place.place(0)])


def is_standard(mode: Value) -> Value:
    own = _register()
    return (mode & own.mode) == own.standard


def set_standard(code: Code) -> None:
    """Compute as IEEE 754 says from here on."""
    write_mode(code, code.integer(_register().standard))
