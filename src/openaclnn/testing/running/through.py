"""The ways a case can be run: both phases, the plain call, and compiled C, called as a program would call it, tensors in device memory."""

from __future__ import annotations

import ctypes
import functools
from ctypes import byref, c_bool, c_char_p, c_double, c_float, c_int64, c_uint64, c_void_p
from typing import Any

import openaclnn
from openaclnn import acl, aclnn
from openaclnn.core.interface import Kind, Parameter
from openaclnn.core.status import AclnnError
from openaclnn.core.tensor import Scalar, Tensor, extent
from openaclnn.testing.running.build import Built

__all__ = ["WAYS", "run_through"]

WAYS = ("two-phase", "plain", "c")
"""The ways by name; the first is the default."""


def run_through(way: str, built: Built) -> tuple[int, str]:
    """Run a case, which writes its outputs; the status, and what was told where that is not 0."""
    return {"two-phase": _two_phase, "plain": _plain, "c": _run_c}[way](built)


def _two_phase(built: Built) -> tuple[int, str]:
    name = built.operator.name
    status, size, executor = getattr(aclnn, f"{name}GetWorkspaceSize")(*built.values)
    if status == 0:
        status = getattr(aclnn, name)(bytearray(size) or None, size, executor, None)
    if status == 0:
        status = acl.aclrtSynchronizeStream(None)
    return int(status), "" if status == 0 else str(acl.aclGetRecentErrMsg())


def _plain(built: Built) -> tuple[int, str]:
    try:
        getattr(openaclnn, built.operator.python_name)(**built.whole)
    except AclnnError as error:
        return error.status, str(error)
    return 0, ""


_NUMBERS: dict[Kind, Any] = {Kind.INT64: c_int64, Kind.FLOAT: c_float, Kind.DOUBLE: c_double, Kind.BOOL: c_bool}  # fmt: skip
_TO_DEVICE, _TO_HOST = 1, 2


class _Session:
    """The library, initialised once in a process, with a stream."""

    def __init__(self) -> None:
        from openaclnn.capi.build import BuildError, installation

        try:
            path = installation().lib / "libascendcl.so"
        except BuildError as error:
            raise OSError(f"the C library cannot be built: {error}") from error
        self.library = ctypes.CDLL(str(path))
        for name in ("aclCreateTensor", "aclCreateScalar"):
            getattr(self.library, name).restype = c_void_p
        self.library.aclGetRecentErrMsg.restype = c_char_p
        self.library.aclInit(None)
        self.must(self.library.aclrtSetDevice(0))
        self.stream = c_void_p()
        self.must(self.library.aclrtCreateStream(byref(self.stream)))

    def must(self, status: int) -> None:
        if status:
            raise OSError(f"the runtime gave status {status}: {self.message()}")

    def message(self) -> str:
        text = self.library.aclGetRecentErrMsg()
        return "" if text is None else text.decode("utf-8", "replace")


@functools.cache
def _session() -> _Session:
    return _Session()


class _Call:
    """One call's handles and device memory, released when it is over."""

    def __init__(self, session: _Session) -> None:
        self.c = session
        self.kept: list[Any] = []
        self.tensors: list[tuple[c_void_p, c_void_p]] = []
        self.outputs: list[tuple[c_void_p, Tensor]] = []
        self.scalars: list[c_void_p] = []

    def tensor(self, tensor: Tensor, written: bool) -> c_void_p:
        """A copy of what the view covers, and a descriptor of it."""
        low, high = extent(tensor)
        size = high - low
        data = c_void_p()
        library = self.c.library
        self.c.must(library.aclrtMalloc(byref(data), c_uint64(max(size, 1)), 0))
        if size:
            host = c_void_p(tensor.address + low)
            self.c.must(library.aclrtMemcpy(data, c_uint64(size), host, c_uint64(size), _TO_DEVICE))
        rank, itemsize = len(tensor.shape), tensor.dtype.itemsize
        shape = (c_int64 * rank)(*tensor.shape)
        strides = (c_int64 * rank)(*tensor.strides)
        storage = (c_int64 * 1)(size // itemsize)
        handle = c_void_p(library.aclCreateTensor(
            shape, c_uint64(rank), tensor.dtype.code, strides, c_int64(-low // itemsize),
            int(tensor.format), storage, c_uint64(1), data,
        ))  # fmt: skip
        self.tensors.append((handle, data))
        if written:
            self.outputs.append((data, tensor))
        return handle

    def argument(self, parameter: Parameter, value: Any) -> Any:
        if value is None:
            return None
        if parameter.is_tensor:
            return self.tensor(value, parameter.kind is Kind.OUTPUT)
        if parameter.kind is Kind.SCALAR:
            scalar = Scalar.of(value)
            memory = ctypes.create_string_buffer(scalar.value.tobytes())
            self.scalars.append(c_void_p(self.c.library.aclCreateScalar(memory, scalar.dtype.code)))
            return self.scalars[-1]
        if parameter.kind is Kind.CSTRING:
            name = parameter.choices[value] if isinstance(value, int) else str(value)
            return c_char_p(name.encode())
        if isinstance(value, str):
            value = parameter.choices.index(value)
        return _NUMBERS[parameter.kind](value)

    def fetch(self) -> None:
        """The outputs' bytes back to the host."""
        for data, tensor in self.outputs:
            low, high = extent(tensor)
            if high - low:
                host, size = c_void_p(tensor.address + low), c_uint64(high - low)
                self.c.must(self.c.library.aclrtMemcpy(host, size, data, size, _TO_HOST))

    def release(self) -> None:
        for handle, data in self.tensors:
            self.c.library.aclDestroyTensor(handle)
            self.c.library.aclrtFree(data)
        for scalar in self.scalars:
            self.c.library.aclDestroyScalar(scalar)


def _run_c(built: Built) -> tuple[int, str]:
    """Both phases in C; the outputs are copied back where they succeed."""
    session = _session()
    operator, library = built.operator, session.library
    call = _Call(session)
    try:
        pairs = zip(operator.parameters, built.values, strict=True)
        passed = [call.argument(parameter, value) for parameter, value in pairs]
        size, executor = c_uint64(), c_void_p()
        status = getattr(library, f"{operator.name}GetWorkspaceSize")(
            *passed, byref(size), byref(executor)
        )
        if status == 0:
            status = getattr(library, operator.name)(None, size, executor, session.stream)
        if status == 0:
            status = library.aclrtSynchronizeStream(session.stream)
        if status:
            return int(status), session.message()
        call.fetch()
        return 0, ""
    finally:
        call.release()
