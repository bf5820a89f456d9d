"""Makes machine code callable: as builtins of the interpreter, whose calls take 0.2 us where ctypes takes 1.8, and as functions for C++. Also calls of CPython from machine code."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.binding as llvm

from openaclnn.engines.machine import cache
from openaclnn.engines.machine.assembly import I64
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.kinds import signature
from openaclnn.engines.machine.modes import is_standard, read_mode, set_standard, write_mode
from openaclnn.engines.machine.values import Value

EmitBuiltin = Callable[[Code, Array, Array, Value], None]
"""Writes a builtin's code, given its control block, the array of its arguments' addresses, and their number."""

ENTRY = signature("i64", "i64", "i64", "i64")
"""CPython's fast calling convention: self, an array of arguments, their number; addresses are integers here."""

_METH_FASTCALL = 0x80


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


class _Block(int):
    """The address of a control block, as a builtin's `self`, with what the block relies on."""

    keep: Any

    def __new__(cls, address: int, keep: Any) -> _Block:
        block = super().__new__(cls, address)
        block.keep = keep
        return block


def address_of_function(function: Any) -> int:
    """The address of a function of a shared library, or of a ctypes callback."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


# The functions of CPython that machine code calls, as symbols with a prefix: a program that embeds Python need not export CPython's own symbols.
_FUNCTIONS = (
    "PyBytes_AsString", "PyBytes_FromStringAndSize", "PyContextVar_Get", "PyErr_Clear", "PyErr_NoMemory", "PyErr_Occurred", "PyEval_RestoreThread",
    "PyEval_SaveThread", "PyFloat_FromDouble", "PyGC_Disable", "PyGC_Enable", "PyGILState_Ensure", "PyGILState_Release", "PyLong_AsLongLong", "PyLong_FromLongLong", "PyMem_RawFree",
    "PyMem_RawMalloc", "PyObject_GetAttr", "PyObject_Size", "PyObject_Vectorcall", "PyThreadState_SetAsyncExc", "PyThread_get_thread_ident", "PyTuple_New",
    "PyTuple_SetItem", "Py_DecRef", "Py_IncRef",
)  # fmt: skip
_OBJECTS = {"None": None, "True": True, "False": False, "NotImplemented": NotImplemented, "float": float, "int": int, "tuple": tuple}  # fmt: skip


def python(code: Code, name: str, result: str | None, *values: Value | Array | int) -> Value:
    """Call a function of CPython."""
    assert name in _FUNCTIONS, name
    return code.call_symbol(f"openaclnn_{name}", result, *values)


def object_of_python(code: Code, name: str) -> Value:
    """The address of one of Python's own objects."""
    assert name in _OBJECTS, name
    return external_block(code, f"openaclnn_{name}").address()


def integer_of(code: Code, item: Value) -> Value:
    """The value of the Python integer at an address, as an int64."""
    return python(code, "PyLong_AsLongLong", "i64", item)


# Added at import, since cached code that needs the symbols may be loaded before any builtin is made.
for _name in _FUNCTIONS:
    llvm.add_symbol(f"openaclnn_{_name}", address_of_function(getattr(ctypes.pythonapi, _name)))
for _name, _object in _OBJECTS.items():
    llvm.add_symbol(f"openaclnn_{_name}", id(_object))

_definitions: dict[str, int] = {}
_create = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.py_object)(
    ("PyCFunction_NewEx", ctypes.pythonapi)
)


def builtin(name: str, emit: EmitBuiltin, control: int, keep: Any = None) -> Callable[..., Any]:
    """The function that `emit(code, control block, arguments, number)` writes; it returns an object's address.

    It computes as IEEE 754 says, whatever the mode of its caller. `keep` lives as long as the function.
    """
    definition = _definitions.get(name)
    if definition is None:
        definition = _definitions[name] = _defined(name, emit)
    function: Callable[..., Any] = _create(definition, _Block(control, keep), "openaclnn")
    return function


def _defined(name: str, emit: EmitBuiltin) -> int:
    """The address of a method definition, which is never freed: a function reads it when it ends, which may be after this
    module's own end.
    """

    def whole(code: Code, arguments: Sequence[Value]) -> None:
        self, passed, number = arguments
        mode = read_mode(code)
        with code.when(~is_standard(mode), likely=False):  # it calls itself in the standard mode
            set_standard(code)
            result = code.call_self(self, passed, number)
            write_mode(code, mode)
            code.leave(result)
        emit(code, code.slots(integer_of(code, self)), code.slots(passed), number)

    function = cache.compiled(name, whole, ENTRY)
    definition = _MethodDef(b"launch", function, _METH_FASTCALL, None)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(definition))
    return ctypes.addressof(definition)


# Functions that C++ calls: no control block is passed to them, and C++ that they call may throw an exception.


def name_block(name: str, address: int) -> None:
    """Make a control block a symbol, by which functions refer to it, so that their code is the same in every process."""
    llvm.add_symbol(name, address)


def external_block(code: Code, name: str) -> Array:
    """The control block with this symbol."""
    block = code.builder.module.external(name)
    return code.slots(code.value(code.builder.ptrtoint(block, I64)))


def let_exceptions_pass(code: Code) -> None:
    """Let C++ exceptions unwind through the function being written."""
    attributes = code.builder.function.attributes
    attributes.discard("nounwind")
    attributes.add("uwtable")


# Words that some threads read while another writes them, with no lock between them.


def publish(address: int, word: int) -> None:
    """Write a word with full barriers: a thread that reads it also sees all that was written before it, and later reads here come after it."""
    _publish()(address, word)


@functools.cache
def _publish() -> Callable[[int, int], None]:
    def emit(code: Code, arguments: Sequence[Value]) -> None:
        address, word = arguments
        code.settle()
        code.slots(address).write(0, word)
        code.settle()
        code.leave()

    address_of_code = cache.compiled("shared.publish", emit, signature(None, "i64", "i64"))
    return ctypes.PYFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)(address_of_code)
