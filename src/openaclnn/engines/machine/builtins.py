"""Machine code as a builtin function of the interpreter: a call costs 0.2 us, where ctypes takes 1.8."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir

from openaclnn.engines.machine import cache
from openaclnn.engines.machine.words import I64, PTR, read_slot

__all__ = ["ENTRY", "address_of_function", "as_int64", "builtin", "call_slot"]

ENTRY = ir.FunctionType(PTR, [PTR, PTR, I64])
"""CPython's fast calling convention: self, an array of arguments, their number."""

_AS_INT64 = "openaclnn_as_int64"  # PyLong_AsLongLong under a name of ours
_METH_FASTCALL = 0x80


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


def address_of_function(function: Any) -> int:
    """Where a function of a shared library, or a ctypes callback, lies."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def as_int64(builder: Any) -> Any:
    """The function that reads a Python integer, declared in the module being written."""
    known = builder.module.globals.get(_AS_INT64)
    return known or ir.Function(builder.module, ir.FunctionType(I64, [PTR]), _AS_INT64)


def call_slot(builder: Any, control: Any, where: int, result: Any, *values: Any) -> Any:
    """Call the function whose address lies in a slot of a control block."""
    kind = ir.FunctionType(result, [value.type for value in values])
    address = builder.inttoptr(read_slot(builder, control, where), kind.as_pointer())
    return builder.call(address, values)


_definitions: dict[str, _MethodDef] = {}


def builtin(name: str, emit: cache.Emit, control: int, keep: Any = None) -> Callable[..., Any]:
    """The function that `emit(builder, (self, arguments, number))` writes; self is a control block's address.

    `keep` lives as long as the function: CPython holds it in the place of the function's module.
    """
    if name not in _definitions:
        llvm.add_symbol(_AS_INT64, address_of_function(ctypes.pythonapi.PyLong_AsLongLong))
        code = cache.compiled(name, emit, ENTRY)
        definition = _MethodDef(b"launch", code, _METH_FASTCALL, None)
        # The function reads it when it ends, which may be after this module's own end.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(definition))
        _definitions[name] = definition
    create = ctypes.PYFUNCTYPE(
        ctypes.py_object, ctypes.POINTER(_MethodDef), ctypes.py_object, ctypes.py_object
    )(("PyCFunction_NewEx", ctypes.pythonapi))
    made: Callable[..., Any] = create(ctypes.pointer(_definitions[name]), control, keep)
    return made
