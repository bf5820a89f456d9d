"""Kinds of calls: what is remembered of a call that was checked, planned and run, for the next one of its kind.

A kind is the operator, the arrays' library, dtypes and device, which arrays there are and how they lie, and the
options by value. Where all arrays are row-major and of one shape (some perhaps one element, or over what their roles
name), sizes are no part of it: the next call may have any. Of few elements that lie otherwise, strides are not either.
Beyond, shapes and strides must be the very same.
`code.py` writes the builtin that finds a call's kind by reading its arguments; docs/calls.md says why that is enough.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import operator
import struct
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from openaclnn.core import products
from openaclnn.core.declare import Operator
from openaclnn.core.interface import Parameter
from openaclnn.core.plan import Plan
from openaclnn.engines import dispatch
from openaclnn.engines.dispatch import Choice
from openaclnn.repeat import slots as at
from openaclnn.repeat.readers import numpy_is_readable, torch_functions
from openaclnn.repeat.records import library_of, record_of

__all__ = ["Road", "nothing_chosen"]

_SLOT = 8  # bytes

BY_VALUE = frozenset((float, int, bool, str, type(None)))
"""Types of options that a kind may have: what cannot change."""


class Road:
    """The short road of an operator's plain calls: `call(*arrays, *options, product)`, or NotImplemented.

    Several results are a tuple.
    """

    def __init__(self, declared: Operator) -> None:
        parameters = self._parameters(declared)
        self._arrays = [p for p in parameters if p.is_tensor]
        if declared.output.in_place:  # what is read and what is written, in one
            self._arrays.append(declared.output)
        self._names = [p.name for p in self._arrays]
        self._arrays_of = _getter([p.python_name for p in self._arrays])
        self._options = tuple([p.python_name for p in parameters if not p.is_tensor])
        self._options_of = _getter(self._options)
        self._fits = len(self._arrays) <= at.MAX_ARRAYS and len(self._options) <= at.MAX_OPTIONS
        self._known_places: dict[tuple[str, ...], list[int]] = {}
        self._control: Any = None
        self._kept: list[Any] = [None] * at.MAX_KINDS  # what each record relies on
        self._next = 0
        self._lock = threading.RLock()  # a finaliser may come in between
        arrays_end = at.FIRST_ARRAY + len(self._arrays) * at.ARRAY_SLOTS
        gap, options = at.FIRST_OPTION - arrays_end, len(self._options) * at.OPTION_SLOTS
        self._layout = struct.Struct(f"{arrays_end}q{max(gap, 0) * 8}x{options}q")
        self.call: Callable[..., Any] = _no_road
        self.without_objects = False  # whether callers that are not Python use it, too
        products.listeners.append(self.forget)

    def _parameters(self, declared: Operator) -> list[Parameter]:
        return [p for group in declared.plain_parameters for p in group]

    def _code(self) -> tuple[str, Any]:
        """The name of the builtin, and what writes it."""
        from openaclnn.repeat.code import emit_road

        return "road", emit_road

    def forget(self) -> None:
        """Nothing is known any more."""
        with self._lock:
            if self._control is not None:
                self._control[at.KINDS] = 0
                self._table[:] = 0
            self._kept = [None] * at.MAX_KINDS
            self._next = 0

    def remember(
        self, plan: Plan, choice: Choice, arguments: Mapping[str, Any], *results: Any
    ) -> None:
        """Let the next call of this kind take the road, if it can: with several results, which it makes."""
        arrays, options = self._arrays_of(arguments), self._options_of(arguments)
        library = self._library([*arrays[:-1], *results], options)
        if not library:
            return
        record, kept = record_of(
            self._places(plan),
            plan,
            choice,
            arrays,
            options,
            self._options,
            results,
            library,
            self.without_objects,
        )
        self._enter(record, kept, library)

    def _library(self, arrays: Sequence[Any], options: Sequence[Any]) -> int:
        """The arrays' library; 0 where a record cannot say what they and the options are."""
        whole = [array for array in arrays if array is not None]
        library = library_of(whole)
        plain = BY_VALUE.issuperset(map(type, options))
        if not (library and self._fits and plain and _compiler()):
            return 0
        return library if max([array.ndim for array in whole]) <= at.MAX_AXES else 0

    def _places(self, plan: Plan) -> list[int]:
        """Where each of the call's arrays stands among the plan's operands; -1 for those it does not read."""
        read = tuple([operand.parameter for operand in plan.inputs])
        places = self._known_places.get(read)
        if places is None:
            order = {name: place for place, name in enumerate(read)}
            before = [order.get(name, -1) for name in self._names[:-1]]
            places = self._known_places[read] = [*before, len(read)]
        return places

    def _enter(self, record: list[int], kept: Any, library: int) -> None:
        if self._control is None:
            self._open()
        if library == at.TORCH and not self._control[at.TENSOR]:
            self._admit_torch()
        held = [kept]  # one object, whose address is the record's
        record[at.KEEP] = id(held)
        with self._lock:
            index = self._next % at.MAX_KINDS
            self._next += 1
            # In one step, as others may be reading; and before what the old record relies on may go.
            self._layout.pack_into(self._words, index * _SLOT * at.RECORD_SLOTS, *record)
            self._kept[index] = held
            if self._next <= at.MAX_KINDS:
                self._control[at.KINDS] = self._next

    def _open(self) -> None:
        from openaclnn.engines.cpu import pool
        from openaclnn.engines.machine.builtins import address_of_function, builtin

        api = ctypes.pythonapi
        control = np.zeros(at.CONTROL_SLOTS, np.int64)
        for where, function in (
            (at.CLEAR, api.PyErr_Clear), (at.TUPLE_NEW, api.PyTuple_New),
            (at.TUPLE_SET, api.PyTuple_SetItem), (at.FROM_INT64, api.PyLong_FromLongLong),
            (at.VECTORCALL, api.PyObject_Vectorcall), (at.GET_VARIABLE, api.PyContextVar_Get), (at.AS_INT64, api.PyLong_AsLongLong),
            (at.INCREF, api.Py_IncRef), (at.DECREF, api.Py_DecRef), (at.ERROR, api.PyErr_Occurred),
        ):  # fmt: skip
            control[where] = address_of_function(function)
        for where, held in (
            (at.NOT_IMPLEMENTED, NotImplemented), (at.NONE, None), (at.FALSE, False),
            (at.FLOAT, float),
            (at.PRODUCT, products.product_variable), (at.ENGINE, dispatch.engine_variable),
        ):  # fmt: skip
            control[where] = id(held)
        if numpy_is_readable():
            control[at.NDARRAY] = id(np.ndarray)
        self._table = np.zeros((at.MAX_KINDS, at.RECORD_SLOTS), np.int64)
        control[at.POOL] = pool.control_address()
        control[at.TABLE] = self._table.ctypes.data
        control[at.ARRAYS], control[at.OPTIONS] = len(self._arrays), len(self._options)
        self._words = self._table.data
        self._control = control
        name, emit = self._code()
        self.call = builtin(name, emit, control.ctypes.data, self)

    def control_for_tensors(self) -> int:
        """Where its control block is; 0 before it reads PyTorch's tensors."""
        opened = self._control is not None and self._control[at.TENSOR]
        return int(self._control.ctypes.data) if opened else 0

    def _admit_torch(self) -> None:
        tensor, functions = sys.modules["torch"].Tensor, torch_functions()
        assert functions is not None
        increment = sys.modules["torch"].autograd.graph.increment_version
        # The block has their addresses alone.
        self._asked = (tensor.is_neg, tensor.requires_grad.__get__, increment)
        control = self._control
        control[at.FROM_PYTHON], control[at.CURRENT_STREAM] = functions[:2]
        control[at.STORAGE_SIZE : at.GRAPH_KEYS + 1] = functions[2:]
        for where, function in zip(
            (at.IS_NEGATED, at.REQUIRES_GRAD, at.WRITTEN), self._asked, strict=True
        ):
            control[where] = id(function)
        control[at.PARAMETER] = id(sys.modules["torch"].nn.Parameter)
        control[at.TENSOR] = id(tensor)
        from openaclnn.engines.cpu import pool

        pool.reconsider()


def _getter(names: Sequence[str]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """What gives the arguments of these names."""
    if len(names) > 1:
        return operator.itemgetter(*names)
    return lambda arguments: tuple([arguments[name] for name in names])


def nothing_chosen() -> bool:
    """No `use_product` and no `use_engine` block is around: what the road itself asks at every call."""
    return products.chosen_product() is None and dispatch.chosen_engine() is None


def _no_road(*arguments: Any) -> Any:
    return NotImplemented


@functools.cache
def _compiler() -> bool:
    return importlib.util.find_spec("llvmlite") is not None
