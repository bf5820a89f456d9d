"""A remembered plain call as one builtin function: compare, allocate, run.

Asking an array from Python for its dtype, shape, strides, device and address takes 0.3 to 0.6 us, and a call
has two to seven arrays. Machine code reads a NumPy array as NumPy's C interface lays it out, and asks
PyTorch through DLPack's C interface for exchange, which it has since 2.10: 0.03 us each. Whatever differs
from the call that was remembered gives NotImplemented, and the call takes the longer way.
`code.py` writes the code; what both know of the memory is here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from openaclnn.core.plan import Operand
from openaclnn.engines.machine.objects import arrays_are_readable

__all__ = ["MAX_ARRAYS", "Express", "NumpyReader", "Reader", "TorchReader"]

MAX_ARRAYS, MAX_AXES = 12, 8

# The control block, one int64 a slot: functions and objects by address, then a block for each argument.
(
    FROM_PYTHON, CURRENT_STREAM, CLEAR, TUPLE_NEW, TUPLE_SET, FROM_INT64, CALL, VECTORCALL,
    INCREF, DECREF, NOT_IMPLEMENTED, NONE, CLASS, OTHER_CLASS, MAKE, MAKE_ARGUMENTS, RUNNER,
    COUNT, ADDRESSES,
) = range(19)  # fmt: skip
HEADER = 24
GIVEN, FIRST, SECOND, PLACE, LOW, HIGH, SHAPE, STRIDES = 0, 1, 2, 3, 4, 5, 6, 6 + MAX_AXES
STRIDE = 6 + 2 * MAX_AXES
# What is known of an array, by slots, as a DLTensor has it: data, device (type and number), kind (axes
# and dtype), shape, strides, offset. Of a NumPy array: data, dtype object, axes, shape, strides, 0.
DATA, DEVICE, KIND, SHAPE_AT, STRIDES_AT, OFFSET, VIEW_SLOTS = range(7)


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

    name = "express torch"

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
        found = np.zeros(VIEW_SLOTS, np.int64)
        self._describe(array, found.ctypes.data)
        return [int(word) for word in found]

    def strides(self, array: Any) -> Sequence[int]:
        strides: Sequence[int] = array.stride()
        return strides


class NumpyReader:
    """NumPy's arrays; AttributeError where they do not lie in memory as in every NumPy so far."""

    name = "express numpy"
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
        self._block = np.zeros(HEADER + STRIDE * len(given), np.int64)
        self._block[: ADDRESSES + 1] = [
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
            block[PLACE] = -1
            block[GIVEN] = int(given[index] is not None)
            if array is not None:
                block[[FIRST, SECOND]] = reader.view(array)[DEVICE : KIND + 1]
                block[SHAPE : SHAPE + array.ndim] = array.shape
                block[STRIDES : STRIDES + array.ndim] = reader.strides(array)
        for place, (index, operand) in enumerate(operands):
            self._argument(index)[[PLACE, LOW, HIGH]] = place, operand.low, operand.high

    @staticmethod
    def takes(arrays: Sequence[Any]) -> bool:
        """Whether a block has room for them."""
        fits = all(array is None or array.ndim <= MAX_AXES for array in arrays)
        return fits and len(arrays) <= MAX_ARRAYS

    def _argument(self, index: int) -> Any:
        return self._block[HEADER + index * STRIDE :][:STRIDE]

    def function(self) -> Callable[..., Any]:
        """The builtin `call(*arrays, out)`, which keeps this object."""
        from openaclnn.engines.machine.builtins import builtin
        from openaclnn.repeat.code import EMITTERS

        name = self._reader.name
        return builtin(name, EMITTERS[name], self._block.ctypes.data, self)
