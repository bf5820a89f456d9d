"""How a case is run: in both phases, by the plain call, or by compiled C, called as a program would call it, tensors in device memory; and calls in
pieces along the first axis, where an operator's results do not depend on the rest: for arrays larger than memory, and for oracles whose float64 in between
should stay small.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from ctypes import byref, c_bool, c_char_p, c_double, c_float, c_int64, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any

import numpy as np

import openaclnn
from openaclnn import acl, aclnn
from openaclnn.core.call import product_of
from openaclnn.core.declare import Operator
from openaclnn.core.interface import Kind, Parameter
from openaclnn.core.plan import Plan
from openaclnn.core.products import Product, current_product
from openaclnn.core.status import AclnnError
from openaclnn.core.tensor import Scalar, Tensor, extent
from openaclnn.engines.threads import blocks_of, map_in_order
from openaclnn.testing.build import Built, out_argument
from openaclnn.testing.figures import Array, Computed
from openaclnn.testing.goldens import by_output, plan_of


def run_in_chunks(
    operator: Operator,
    arguments: Mapping[str, Any],
    outputs: Sequence[Array | None],
    elements: int,
    product: str | None = None,
    done: Callable[[int], None] = lambda count: None,
) -> bool:
    """Run a plain call into its outputs in pieces of about so many elements; all at once, and False, where that cannot
    be. None stands for an output that is not computed.

    The bits are those of the whole call: pieces are taken only where every element has its value without the others, so
    not for a mean.
    """
    function = getattr(openaclnn, operator.python_name)
    if operator.output.in_place:
        [memory] = outputs
        assert memory is not None
        name = operator.output.python_name
        memory[...] = arguments[name]
        arguments = {**arguments, name: memory}
    places = [place for place in outputs if place is not None]
    size = sum(place.size for place in places)
    dense = all(place.flags.c_contiguous for place in places)
    shapes = [place.shape for place in places]
    profile = product_of(operator, product)
    cut = _cut(operator, arguments, shapes, elements, profile) if dense else None
    if cut is None:
        function(**arguments, **out_argument(operator, outputs), product=product)
        done(size)
        return False
    targets = [None if place is None else cut.of(place) for place in outputs]
    for where, part in cut.pieces():
        pieces = [None if target is None else target[where] for target in targets]
        function(**part, **out_argument(operator, pieces), product=product)
        done(sum(piece.size for piece in pieces if piece is not None))
    return True


def oracle_in_chunks(
    operator: Operator, arguments: Mapping[str, Any]
) -> dict[str, Array | Computed]:
    """The oracle's answers by the outputs' C names; what is not computed is not among them.

    What an operator computes of each element is computed in blocks that threads share: when it is looked at, or at once where
    sums are made of it, which are added up in the blocks' order. The references of operators with classes have blocks of their own.
    """
    product = current_product()
    plan = plan_of(operator, arguments, product)
    whole = operator.reference_arguments(product=product, copied=False, **arguments)
    names = [operator[operand.parameter].python_name for operand in plan.inputs]
    if plan.empty or plan.classes or plan.steps or plan.shape_specific:
        return by_output(operator, operator.reference(**whole))
    shape = np.broadcast_shapes(*(whole[name].shape for name in names))
    count = math.prod(shape)
    blocks = blocks_of(count)
    if len(blocks) < 2:
        return by_output(operator, operator.reference(**whole))
    if plan.reduction or plan.reciprocal:  # the mean's division is of all elements
        [reduction] = [p.python_name for p in operator.parameters if p.choices]
        whole[reduction] = "sum"
    if operator.output.in_place:  # what is read now will be written over
        whole[operator.output.python_name] = whole[operator.output.python_name].copy()
    whole |= {name: whole[name].reshape(-1) for name in names if whole[name].size == 1}
    lines = {n: _line(np.broadcast_to(whole[n], shape)) for n in names if whole[n].size > 1}

    def exact(block: slice) -> Any:
        return operator.reference(**{**whole, **{n: line[block] for n, line in lines.items()}})

    if plan.reduction:
        sums = map_in_order(exact, blocks)
        with np.errstate(all="ignore"):
            total = np.array(list(sums)).sum()
            return {operator.output.name: total / count if plan.reduction == "mean" else total}
    share = 1.0 / count if plan.reciprocal else 1.0

    def compute(stretch: slice) -> Array:
        answer = np.empty(stretch.stop - stretch.start)
        with np.errstate(all="ignore"):
            for block in blocks_of(answer.size):
                here = slice(stretch.start + block.start, stretch.start + block.stop)
                np.multiply(exact(here), share, out=answer[block])
        return answer

    return {operator.output.name: Computed(shape, compute)}


def _line(array: Array) -> Any:
    """Elements that can be sliced in one line, without a copy of the whole."""
    return array.reshape(-1) if array.flags.c_contiguous else array.flat


@dataclass(frozen=True)
class _Cut:
    """How a call is cut: which arrays, into how many rows, and whether all axes were made one before."""

    arguments: dict[str, Any]
    sliced: list[str]
    flat: bool
    length: int
    rows: int

    def of(self, out: Array) -> Array:
        return out.reshape(-1) if self.flat else out

    def pieces(self) -> Iterator[tuple[slice, dict[str, Any]]]:
        for start in range(0, self.length, self.rows):
            where = slice(start, start + self.rows)
            part = {name: self.arguments[name][where] for name in self.sliced}
            yield where, {**self.arguments, **part}


def _cut(
    operator: Operator,
    arguments: Mapping[str, Any],
    shapes: Sequence[tuple[int, ...]],
    elements: int,
    product: Product,
) -> _Cut | None:
    """None where the call is small, or must be made whole: one result is of all elements."""
    shape = max(shapes, key=math.prod)
    size = math.prod(shape)
    if size <= elements:
        return None
    plan = plan_of(operator, arguments, product)
    reduced = plan.reciprocal or plan.reduction or plan.numbers.get("mean")
    if reduced or plan.empty or plan.fixed or plan.steps:
        return None
    if plan.class_axis == 0 or any(operand.role == "single" for operand in plan.outputs):
        return None
    sliced = _sliced(operator, arguments, shape, plan)
    if not sliced:
        return None
    values = dict(arguments)
    whole = [n for n, v in values.items() if n not in sliced and isinstance(v, np.ndarray)]
    dense = all(values[n].shape == shape and values[n].flags.c_contiguous for n in sliced)
    if plan.classes or plan.halved or not dense or any(values[name].size != 1 for name in whole):
        return _Cut(values, sliced, False, shape[0], max(elements * shape[0] // size, 1))
    values |= {name: values[name].reshape(-1) for name in sliced}
    values |= {name: values[name].reshape(()) for name in whole}
    return _Cut(values, sliced, True, size, elements)


def _sliced(
    operator: Operator, arguments: Mapping[str, Any], shape: tuple[int, ...], plan: Plan
) -> list[str]:
    """The arrays that are cut along the first axis with the output."""
    names = []
    for operand in plan.inputs:
        name = operator[operand.parameter].python_name
        array = arguments[name]
        if plan.classes:
            cut = operand.role not in ("classes", "single")
        else:
            whole = operand.role == "channels"
            cut = np.ndim(array) == len(shape) and array.shape[0] == shape[0] and not whole
        if cut:
            names.append(name)
    read = {operator[operand.parameter].python_name for operand in plan.inputs}
    for name, array in arguments.items():  # shapes are checked of tensors that are not read, too
        if name not in read and isinstance(array, np.ndarray) and array.shape == shape:
            names.append(name)
    return names


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
