"""Our kernels for PyTorch's operators as machine code: the block of each, with what it calls and knows.

A kernel in Python takes 2 to 3 us before its first line runs, as long as PyTorch's operators take in all.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from openaclnn.core import results
from openaclnn.core.interface import REDUCTIONS
from openaclnn.repeat.cache import Road
from openaclnn.repeat.words import native as at
from openaclnn.repeat.words.readers import HANDLE
from openaclnn.repeat.words.tensors import (
    DEVICES,
    TensorWords,
    dtype_number,
    dtype_words,
    tensor_words,
)
from openaclnn.torch.dispatcher import (
    Entered,
    Functions,
    address,
    entered,
    functions,
    is_theirs,
    stream_function,
)
from openaclnn.torch.signatures import FLOAT, INTEGER, SCALAR, SYMBOL, Signature

__all__ = ["Native", "native_for"]

_MANY = 1 << 20  # references that nobody counts down to 0
_TYPES = {SCALAR: float, FLOAT: float, INTEGER: int, SYMBOL: int}


def native_for(
    name: str, device: str, road: Road | None, signature: Signature, original: Any
) -> Native | None:
    """None where a kernel in Python has to do."""
    found, theirs = functions(), entered(original)
    plain = theirs.unboxed or theirs.of_symbols
    if found is None or road is None or (theirs.unboxed and theirs.of_symbols):
        return None
    where = tensor_words()
    if where is None or stream_function(device) is None:
        return None
    if not is_theirs(theirs.boxed) or not is_theirs(plain):
        return None
    if theirs.of_symbols:
        signature = signature._replace(kinds=signature.kinds.replace(INTEGER, SYMBOL))
    return Native(found, where, name, device, road, signature, theirs)


class Native:
    """The machine code of one of PyTorch's operators on a device. It enters the dispatcher and leaves it; its block stays."""

    def __init__(
        self, found: Functions, where: TensorWords, name: str, device: str, road: Road, signature: Signature, original: Entered
    ) -> None:  # fmt: skip
        from openaclnn.repeat.code.native import Arguments, native_road
        from openaclnn.repeat.code.published import Readers
        from openaclnn.torch.entries import boxed_entry, native_entry

        self._functions, self._name, self._device, self._road = found, name, device, road
        self._block = block = (ctypes.c_int64 * at.BLOCK_SLOTS)()
        # C++ may hold it to the very end.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(block))
        own, boxed = native_entry(name, signature, where), boxed_entry()
        plain = (0, own) if SYMBOL in signature.kinds else (own, 0)
        self._entered = Entered(ctypes.addressof(block), boxed, *plain)
        self._ones: list[Any] = []
        records = road.published()
        block[at.RECORDS] = records.address
        self._readers = Readers(self._slot(at.COUNT))
        records.admit(self._readers)
        block[at.REFERENCES], block[at.WEAK_REFERENCES] = _MANY << 32 | _MANY, _MANY
        block[at.CORE] = native_road(where, Arguments(*signature.words))
        block[at.TENSOR_TABLE], block[at.STORAGE_TABLE] = where.table, where.storage_table
        block[at.ORIGINAL] = original.unboxed or original.of_symbols
        block[at.ORIGINAL_SELF] = original.functor
        self._write_functions()
        for place, source in enumerate(signature.order[signature.arrays :]):
            kind = _TYPES.get(signature.kinds[source])
            block[at.OPTION_TYPES + place] = 0 if kind is None else id(kind)

    def _write_functions(self) -> None:
        block, api, kind = self._block, ctypes.pythonapi, DEVICES.index(self._device)
        for where, function in (
            (at.ENSURE, api.PyGILState_Ensure), (at.RELEASE, api.PyGILState_Release),
            (at.CLEAR, api.PyErr_Clear), (at.FROM_DOUBLE, api.PyFloat_FromDouble),
            (at.FROM_INT64, api.PyLong_FromLongLong), (at.FROM_BOOL, api.PyBool_FromLong),
            (at.VECTORCALL, api.PyObject_Vectorcall), (at.INCREF, api.Py_IncRef), (at.DECREF, api.Py_DecRef),
            (at.FETCH, api.PyErr_Fetch), (at.NORMALIZE, api.PyErr_NormalizeException),
            (at.SET_LATER, api.PyThreadState_SetAsyncExc), (at.THREAD, api.PyThread_get_thread_ident),
        ):  # fmt: skip
            block[where] = address(function)
        for where, held in (
            (at.NONE, None), (at.NOT_IMPLEMENTED, NotImplemented), (at.TRUE, True), (at.FALSE, False),
            (at.KEPT, results.empty_tensor), (at.LATER, _class_of),
        ):  # fmt: skip
            block[where] = id(held)
        block[at.WRAP : at.UNDEFINED + 1] = list(self._functions.tensors)
        block[at.REDUCTIONS : at.REDUCTIONS + len(REDUCTIONS)] = [id(own) for own in REDUCTIONS]
        devices, words = dtype_words()
        for number, word in words.items():
            block[at.DTYPES + number] = word
        block[at.DEVICE_KIND], block[at.DEVICE_WORD] = kind, devices[kind]
        block[at.STREAM] = stream_function(self._device) or 0

    def enter(self, asked: Callable[..., Any], below: Any) -> None:
        """Above a kernel in Python, which serves arguments on a stack; `asked` is that for others."""
        block, python = self._block, entered(below)
        self._asked = asked
        block[at.ASKED], self._served_before = id(asked), self._readers.served
        block[at.BOXED], block[at.BOXED_SELF] = python.boxed, python.functor
        self.learn(None)
        self.leave = self._functions.enter(self._name, self._device, self._entered)

    def learn(self, ones: Any) -> None:
        """What may have come with a call: the short road, which opens with its first, and ones for so many classes."""
        from openaclnn.engines.machine.shared import publish

        block = self._block
        publish(self._slot(at.ROAD), self._road.control_for_tensors())
        many = len(self._ones)
        if ones is None or many == at.MAX_ONES or any(own is ones for own in self._ones):
            return
        self._ones.append(ones)  # for good: a call may be using them
        first, index = at.ONES + many * at.ONES_SLOTS, ones.device.index or 0
        words = [len(ones), dtype_number(ones.dtype), index, id(ones) + HANDLE]
        block[first : first + at.ONES_SLOTS] = words
        publish(self._slot(at.MANY_ONES), many + 1)

    def _slot(self, place: int) -> int:
        return ctypes.addressof(self._block) + ctypes.sizeof(ctypes.c_int64) * place

    @property
    def served(self) -> int:
        """Calls since it entered that took the short road."""
        return self._readers.served - self._served_before


def _class_of(error: BaseException) -> type[BaseException]:
    """A class that has this one instance: what a thread is told to raise is a class. Where an exception is being handled, Python 3.11
    calls it once more, with the instance.
    """
    return type(type(error).__name__, (BaseException,), {"__new__": lambda kind, *again: error})
