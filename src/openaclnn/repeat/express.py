"""A remembered plain call as one builtin function: compare, allocate, run.

Asking an array from Python for its dtype, shape, strides, device and address takes 0.3 to 0.6 us, and a call
has two to seven arrays. Machine code reads a NumPy array as NumPy's C interface lays it out, and asks
PyTorch through DLPack's C interface for exchange, which it has since 2.10: 0.03 us each. Whatever differs
from the call that was remembered gives NotImplemented, and the call takes the longer way.
`code.py` writes the code; what both know of the memory is in `slots.py`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from openaclnn.core.plan import Operand
from openaclnn.engines.machine.objects import arrays_are_readable
from openaclnn.repeat import slots as at

__all__ = ["Express", "NumpyReader", "Reader", "TorchReader"]


class _Exchange(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("allocator", ctypes.c_void_p),
        ("managed_from_python", ctypes.c_void_p),
        ("managed_to_python", ctypes.c_void_p),
        ("from_python", ctypes.c_void_p),
        ("current_stream", ctypes.c_void_p),
    )


class Reader(Protocol):
    """How arrays of a library are told apart: by their class and by what machine code reads of them."""

    name: str
    classes: tuple[Any, Any]
    functions: tuple[int, int]

    def view(self, array: Any) -> Sequence[int]: ...

    def strides(self, array: Any) -> Sequence[int]: ...


class TorchReader:
    """PyTorch's tensors; AttributeError where this PyTorch has no exchange interface."""

    name = at.TORCH

    def __init__(self, torch: Any) -> None:
        get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
            ("PyCapsule_GetPointer", ctypes.pythonapi)
        )
        capsule = torch.Tensor.__dlpack_c_exchange_api__
        found = _Exchange.from_address(get(capsule, b"dlpack_exchange_api"))
        if found.major != 1 or not found.from_python or not found.current_stream:
            raise AttributeError(f"DLPack exchange interface {found.major}.{found.minor}")
        self.classes = torch.Tensor, torch.nn.Parameter
        self.functions = found.from_python, found.current_stream
        self._describe = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(
            found.from_python
        )

    def view(self, array: Any) -> Sequence[int]:
        found = np.zeros(at.VIEW_SLOTS, np.int64)
        self._describe(array, found.ctypes.data)
        return [int(word) for word in found]

    def strides(self, array: Any) -> Sequence[int]:
        strides: Sequence[int] = array.stride()
        return strides


class NumpyReader:
    """NumPy's arrays; AttributeError where they do not lie in memory as in every NumPy so far."""

    name = at.NUMPY
    classes = np.ndarray, np.ndarray
    functions = 0, 0

    def __init__(self) -> None:
        if not arrays_are_readable():
            raise AttributeError("an unknown layout of NumPy's arrays")

    def view(self, array: Any) -> Sequence[int]:
        return [0, id(array.dtype), array.ndim]

    def strides(self, array: Any) -> Sequence[int]:
        strides: Sequence[int] = array.strides
        return strides


class Express:
    """What the builtin compares with, and what it runs.

    `given` are the arrays of the call, None where there is none, the output last; `operands` says where
    among them the runner's operands are, in the runner's order. A fresh output is `make(*arguments)`.
    """

    def __init__(
        self,
        reader: Reader,
        given: Sequence[Any],
        result: Any,
        operands: Sequence[tuple[int, Operand]],
        make: Callable[..., Any],
        arguments: tuple[Any, ...],
        runner: Callable[..., int],
    ) -> None:
        from openaclnn.engines.machine.builtins import address_of_function

        api = ctypes.pythonapi
        self._reader = reader
        dtypes = [array.dtype for array in (*given, result) if array is not None]
        self._held = (make, arguments, runner, dtypes)  # the block has their addresses alone
        self._block = np.zeros(at.HEADER + at.STRIDE * len(given), np.int64)
        self._block[: at.ADDRESSES + 1] = [
            *reader.functions,
            *(
                address_of_function(function)
                for function in (
                    api.PyErr_Clear, api.PyTuple_New, api.PyTuple_SetItem, api.PyLong_FromLongLong,
                    api.PyObject_Call, api.PyObject_Vectorcall, api.Py_IncRef, api.Py_DecRef,
                )
            ),
            *(id(held) for held in (NotImplemented, None, *reader.classes, make, arguments, runner)),
            len(given), len(operands),
        ]  # fmt: skip
        for index, array in enumerate([*given[:-1], result]):
            block = self._argument(index)
            block[at.PLACE] = -1
            block[at.GIVEN] = int(given[index] is not None)
            if array is not None:
                block[[at.FIRST, at.SECOND]] = reader.view(array)[at.DEVICE : at.KIND + 1]
                block[at.SHAPE : at.SHAPE + array.ndim] = array.shape
                block[at.STRIDES : at.STRIDES + array.ndim] = reader.strides(array)
        for place, (index, operand) in enumerate(operands):
            self._argument(index)[[at.PLACE, at.LOW, at.HIGH]] = place, operand.low, operand.high

    @staticmethod
    def takes(arrays: Sequence[Any]) -> bool:
        """Whether a block has room for them."""
        fits = all(array is None or array.ndim <= at.MAX_AXES for array in arrays)
        return fits and len(arrays) <= at.MAX_ARRAYS

    def _argument(self, index: int) -> Any:
        return self._block[at.HEADER + index * at.STRIDE :][: at.STRIDE]

    def function(self) -> Callable[..., Any]:
        """The builtin `call(*arrays, out)`, which keeps this object."""
        from openaclnn.engines.machine.builtins import builtin
        from openaclnn.repeat.code import EMITTERS

        name = self._reader.name
        return builtin(name, EMITTERS[name], self._block.ctypes.data, self)
