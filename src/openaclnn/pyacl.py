"""A module shaped like pyACL's `acl`: `acl.rt.*`, `acl.util.*`, outputs first and the status last.

    from openaclnn import pyacl as acl      # or: openaclnn.pyacl.install(); import acl
    ret = acl.init()
    ret = acl.rt.set_device(0)
    ptr, ret = acl.rt.malloc(64, 0)

Pointers and handles are integers, as in pyACL; bad input gives a status, and `acl.get_recent_err_msg()`
says what was wrong with it. Every enumerator of the interface is a constant of this module.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from openaclnn import acl as _acl
from openaclnn.capi.glue import is_object as _is_object, is_result as _is_result
from openaclnn.capi.handles import table as _table
from openaclnn.capi.prototypes import Prototype as _Prototype, all_prototypes as _all_prototypes
from openaclnn.core.interface import snake_case as _snake_case
from openaclnn.core.status import AclError as _AclError
from openaclnn.runtime.enums import ENUMERATORS as _ENUMERATORS
from openaclnn.runtime.errors import report as _report
from openaclnn.runtime.memory import find_allocation as _find_allocation

__all__ = ["install", "rt", "util"]

# pyACL's names are those of C in snake case, but for these; and some functions it has not, or not among `rt`'s.
_OTHERWISE = {
    "aclrtSetCurrentContext": "set_context",
    "aclrtGetCurrentContext": "get_context",
    "aclrtUnSubscribeReport": "unsubscribe_report",
}
_NOT_IN_RT = ("aclrtMallocWithCfg", "aclrtPeekAtLastError", "aclrtGetLastError", "aclrtGetSocName")
# No status among these: they give a value, or a status alone.
_TOP = {
    "init": "aclInit",
    "finalize": "aclFinalize",
    "get_recent_err_msg": "aclGetRecentErrMsg",
    "get_soc_name": "aclrtGetSocName",
    "data_type_size": "aclDataTypeSize",
    "float16_to_float": "aclFloat16ToFloat",
    "float_to_float16": "aclFloatToFloat16",
}
_BY_NUMBER: dict[int, np.dtype[Any]] = {
    np.dtype(code).num: np.dtype(code) for code in np.typecodes["AllInteger"] + "?efdFD"
}
_PLAIN = (int, float, str, bytes, type(None))


def _outward(value: Any) -> Any:
    return value if isinstance(value, _PLAIN) else _table.handle_of(value)


def _forward(c_name: str) -> Callable[..., Any]:
    """The function of `openaclnn.acl`, which may be another one later."""

    @functools.wraps(getattr(_acl, c_name))
    def function(*arguments: Any, **named: Any) -> Any:
        return getattr(_acl, c_name)(*arguments, **named)

    return function


def _make(prototype: _Prototype) -> Callable[..., Any]:
    """A function of C's under its name in pyACL, with handles as numbers."""
    c_name = prototype.name
    body = _forward(c_name)
    inputs = [variable for variable in prototype.parameters if not _is_result(variable)]
    handles = [place for place, variable in enumerate(inputs) if _is_object(variable)]
    destroys = c_name.startswith("aclrtDestroy")
    # These end streams and events that are not named in the call.
    sweeps = c_name.startswith(("aclrtDestroyContext", "aclrtResetDevice"))

    def function(*arguments: Any) -> Any:
        values = list(arguments)
        for place in handles:
            if place < len(values) and (values[place] is None or isinstance(values[place], int)):
                values[place] = _table.find(values[place] or 0)
        answer = body(*values)
        if destroys and not getattr(values[0], "alive", True):
            _table.forget(arguments[0])
        if sweeps:
            _table.sweep()
        if not isinstance(answer, tuple):
            return answer
        status, value = answer
        results = value if isinstance(value, tuple) else (0 if value is None else _outward(value),)
        return (*results, status)

    function.__name__ = function.__qualname__ = _OTHERWISE.get(
        c_name, _snake_case(c_name.removeprefix("aclrt"))
    )
    function.__doc__ = f"{body.__doc__} ({c_name})"
    return function


def finalize() -> int:
    """End the runtime; handles of before are dead."""
    status = _acl.aclFinalize()
    _table.sweep()
    return status


def _module(name: str, functions: dict[str, Any], text: str) -> ModuleType:
    module = ModuleType(f"{__name__}.{name}", text)
    module.__dict__.update(functions, __all__=sorted(functions))
    return module


def numpy_to_ptr(array: Any) -> int:
    """The address of an array's data; it is good while the array lives. 0 for anything else."""
    if not isinstance(array, np.ndarray):
        return _refused("numpy_to_ptr", "array", "a NumPy array", repr(array))
    return int(array.__array_interface__["data"][0])


def numpy_contiguous_to_ptr(array: Any) -> int:
    """Like `numpy_to_ptr`, for an array without gaps."""
    if isinstance(array, np.ndarray) and not array.flags.c_contiguous:
        return _refused("numpy_contiguous_to_ptr", "array", "a contiguous array", "one with gaps")
    return numpy_to_ptr(array)


def bytes_to_ptr(data: Any) -> int:
    """The address of a bytes object's data, which is good while the object lives; 0 otherwise."""
    if not isinstance(data, bytes):
        return _refused("bytes_to_ptr", "bytes_data", "bytes", repr(data))
    return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0


def ptr_to_bytes(ptr: Any, size: Any) -> bytes:
    """A copy of `size` bytes of host memory; empty where that cannot be."""
    if not _readable("ptr_to_bytes", ptr, size):
        return b""
    return ctypes.string_at(ptr, size)


def ptr_to_numpy(ptr: Any, shape: Any, dtype: Any) -> Any:
    """An array over host memory, of a NumPy dtype or its number; None where that cannot be."""
    try:
        kind = _BY_NUMBER[dtype] if isinstance(dtype, int) else np.dtype(dtype)
        dims = tuple(int(size) for size in shape)
        count = int(np.prod(dims, dtype=object)) * kind.itemsize
    except (TypeError, ValueError, KeyError) as error:
        _refused("ptr_to_numpy", "shape", "a shape and a dtype", f"{shape!r}, {dtype!r}: {error}")
        return None
    if min(dims, default=1) < 0 or not _readable("ptr_to_numpy", ptr, count):
        return None
    block = _find_allocation(ptr)
    memory: Any = (ctypes.c_char * count).from_address(ptr)
    memory.owner = block  # memory of the runtime stays while the array looks at it
    return np.ndarray(dims, kind, memory)


def _readable(name: str, ptr: Any, size: Any) -> bool:
    whole = isinstance(ptr, int) and isinstance(size, int) and ptr > 0
    block = _find_allocation(ptr) if whole else None
    if not whole or size < 0 or (block is not None and ptr + size > block.end):
        _refused(name, "ptr", "an address and a size within its memory", f"{ptr!r}, {size!r}")
        return False
    return True


def _refused(name: str, argument: str, expected: str, got: str) -> int:
    code = _AclError.ACL_ERROR_INVALID_PARAM
    _report(code, f"acl.util.{name}: {argument}: expected {expected}, got {got}")
    return 0


rt = _module(
    "rt",
    {
        function.__name__: function
        for function in (
            _make(prototype)
            for prototype in _all_prototypes()
            if prototype.name.startswith("aclrt") and prototype.name not in _NOT_IN_RT
        )
    },
    "Devices, contexts, streams, events and memory.",
)
util = _module(
    "util",
    {
        function.__name__: function
        for function in (
            numpy_to_ptr, numpy_contiguous_to_ptr, bytes_to_ptr, ptr_to_bytes, ptr_to_numpy
        )
    },
    "Addresses of Python's data, and Python's data at addresses.",
)  # fmt: skip

for _name, _c_name in _TOP.items():
    if _name not in globals():
        globals()[_name] = _forward(_c_name)
globals().update(_ENUMERATORS)


def __getattr__(name: str) -> Any:
    """For type checkers, to which the names made above are invisible."""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def install() -> ModuleType:
    """Make `import acl` find this module; what was imported under that name before is replaced."""
    module = sys.modules[__name__]
    sys.modules.update({"acl": module, "acl.rt": rt, "acl.util": util})
    return module
