"""The floating-point mode of the thread that runs a function: code that reads it, compares it with IEEE 754's default, and sets it.

Other modes (subnormals flushed to zero, other roundings, traps) are a few bits of MXCSR on x86-64 and of
FPCR on AArch64. Reading them takes a nanosecond.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from openaclnn.engines.machine.assembly import I64, VOID
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.host import on_arm
from openaclnn.engines.machine.values import Value, call_declared


class _Register(NamedTuple):
    read: str
    write: str
    by_address: bool
    mode: int  # the bits of the mode; the others are flags of past exceptions
    standard: int  # these bits for IEEE 754's default


_X86 = _Register("llvm.x86.sse.stmxcsr", "llvm.x86.sse.ldmxcsr", True, 0xFFC0, 0x1F80)
_ARM = _Register("llvm.aarch64.get.fpcr", "llvm.aarch64.set.fpcr", False, 0xFFFFFFFF, 0)


@functools.cache
def _register() -> _Register:
    return _ARM if on_arm() else _X86


def read_mode(code: Code) -> Value:
    """The register, as an int64."""
    register, builder = _register(), code.builder
    if not register.by_address:
        return code.value(call_declared(builder, register.read, I64))
    place = code.frame("i32", 1)
    call_declared(builder, register.read, VOID, place.place(0))
    return place.read(0).unsigned("i64")


def write_mode(code: Code, mode: Value) -> None:
    register, builder = _register(), code.builder
    if not register.by_address:
        call_declared(builder, register.write, VOID, mode.value)
        return
    place = code.frame("i32", 1)
    place.write(0, mode.to("i32"))
    call_declared(builder, register.write, VOID, place.place(0))


def is_standard(mode: Value) -> Value:
    register = _register()
    return (mode & register.mode) == register.standard


def set_standard(code: Code) -> None:
    """Compute as IEEE 754 says from here on."""
    write_mode(code, code.integer(_register().standard))
