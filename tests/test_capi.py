"""A ctypes client inside this very Python: the same libraries, handles, threads and bad input."""

from __future__ import annotations

import ctypes
import gc
import itertools
import math
import random
import re
import struct
import threading
from ctypes import byref, c_char_p, c_double, c_float, c_int64, c_size_t, c_uint64, c_void_p

import numpy as np
import pytest

import openaclnn
from conftest import OPERATORS, each, places_for, plain
from openaclnn.capi import glue
from openaclnn.capi.handles import HandleTable, table
from openaclnn.capi.prototypes import all_prototypes
from openaclnn.core.interface import Kind
from openaclnn.core.status import record_message
from test_capi_tools import installed

ND, FLOAT, HOST_TO_DEVICE, DEVICE_TO_HOST = 2, 0, 1, 2
NUMBERS = {
    "int32_t": ctypes.c_int32, "uint32_t": ctypes.c_uint32, "int64_t": c_int64, "uint64_t": c_uint64,
    "size_t": c_size_t, "float": c_float, "double": c_double, "uint8_t": ctypes.c_uint8,
    "uint16_t": ctypes.c_uint16, "uintptr_t": c_void_p,
}  # fmt: skip


def c_type(abi):
    return c_void_p if abi.endswith("*") else NUMBERS[abi]


class Client:
    """Every function of the interface, with its C types."""

    def __init__(self, path):
        self.library = ctypes.CDLL(str(path))
        for prototype in all_prototypes():
            function = self.library[prototype.name]
            function.argtypes = [c_type(glue._abi(v.type)) for v in prototype.parameters]
            # As careless clients do: the whole register, unsigned.
            returned = glue._returned(prototype)
            function.restype = c_uint64 if returned == "int64_t" else c_type(returned)
            setattr(self, prototype.name, function)
        self.aclGetRecentErrMsg.restype = c_char_p

    def message(self):
        text = self.aclGetRecentErrMsg()
        return "" if text is None else text.decode()

    def device(self, array):
        data = c_void_p()
        assert self.aclrtMalloc(byref(data), max(array.nbytes, 1), 0) == 0
        if array.nbytes:
            status = self.aclrtMemcpy(data, array.nbytes, array.ctypes.data, array.nbytes, 1)
            assert status == 0
        return data

    def tensor(self, array, code=FLOAT):
        shape = (c_int64 * array.ndim)(*array.shape)
        data = self.device(array)
        rank = array.ndim
        return self.aclCreateTensor(shape, rank, code, None, 0, ND, shape, rank, data), data

    def fetch(self, data, like):
        back = np.empty_like(like)
        status = self.aclrtMemcpy(back.ctypes.data, back.nbytes, data, back.nbytes, DEVICE_TO_HOST)
        assert status == 0
        return back


@pytest.fixture(scope="module")
def library():
    return Client(installed().library("ascendcl"))


@pytest.fixture
def c(library):
    assert library.aclInit(None) == 0
    assert library.aclrtSetDevice(0) == 0
    yield library
    library.aclFinalize()
    library.message()


def stream_of(c):
    stream = c_void_p()
    assert c.aclrtCreateStream(byref(stream)) == 0
    return stream


def codes():
    from openaclnn.core.dtypes import DTYPES

    return {dtype.numpy_name: dtype.code for dtype in DTYPES if dtype.numpy_name}


def call_operator(c, operator, arguments, stream):
    """Both phases from plain Python arguments; the output arrays, and the plain call's."""
    values = arguments or operator.samples[0].arrays()
    dtype_codes = codes()
    c_arguments, tensors, memory, scalars, keep, outputs = [], [], [], [], [], []
    expected = plain(operator)(**values)
    places = places_for(operator, values)
    for parameter in operator.parameters:
        value = values.get(parameter.python_name, parameter.default)
        if parameter.is_tensor:
            if parameter.kind is Kind.OUTPUT:
                outputs.append(len(memory))
                if not parameter.in_place:
                    value = next(places)
            if value is None:
                c_arguments.append(None)
                continue
            array = np.ascontiguousarray(value).reshape(np.shape(value))
            tensor, data = c.tensor(array, dtype_codes[array.dtype.name])
            c_arguments.append(tensor)
            tensors.append(tensor)
            memory.append(data)
        elif parameter.kind is Kind.SCALAR:
            number = c_double(value)
            scalars.append(c.aclCreateScalar(byref(number), dtype_codes["float64"]))
            c_arguments.append(scalars[-1])
        elif parameter.kind is Kind.CSTRING:
            keep.append(ctypes.create_string_buffer(value.encode()))
            c_arguments.append(ctypes.cast(keep[-1], c_void_p))
        elif parameter.kind is Kind.INT64 and isinstance(value, str):
            c_arguments.append(parameter.choices.index(value))
        else:
            c_arguments.append(value)
    size, executor = c_uint64(99), c_void_p()
    phase_one = getattr(c, f"{operator.name}GetWorkspaceSize")
    assert phase_one(*c_arguments, byref(size), byref(executor)) == 0, c.message()
    assert size.value == 0
    assert getattr(c, operator.name)(None, size, executor, stream) == 0, c.message()
    # Descriptors end as soon as phase two has returned, and the executor is destroyed late.
    assert [c.aclDestroyTensor(tensor) for tensor in tensors] == [0] * len(tensors)
    assert [c.aclDestroyScalar(scalar) for scalar in scalars] == [0] * len(scalars)
    assert c.aclrtSynchronizeStream(stream) == 0, c.message()
    assert c.aclDestroyAclOpExecutor(executor) == 0
    known = each(expected)
    got = [
        c.fetch(memory[place], np.empty_like(template))
        for place, template in zip(outputs, known, strict=False)
    ]
    for data in memory:
        assert c.aclrtFree(data) == 0
    return got, known


def float_samples():
    for operator in openaclnn.registry():
        for sample in operator.samples:
            arrays = sample.arrays().values()
            kinds = {a.dtype.name for a in arrays if isinstance(a, np.ndarray)}
            complete = all(
                p.python_name in sample.arguments for p in operator.parameters if p.computed
            )
            if "float32" in kinds and complete:
                yield pytest.param(operator, sample, id=f"{operator.python_name}-{sample.title}")


@pytest.mark.parametrize(("operator", "sample"), list(float_samples()))
def test_samples_through_c(c, operator, sample):
    stream = stream_of(c)
    got, expected = call_operator(c, operator, sample.arrays(), stream)
    assert [array.tobytes() for array in got] == [array.tobytes() for array in expected]


def test_many_threads_at_once(c):
    failures = []
    operators = openaclnn.registry()

    def work(index):
        try:
            assert c.aclrtSetDevice(0) == 0
            stream = stream_of(c)
            for turn in range(12):
                operator = operators[(index + turn) % len(operators)]
                got, expected = call_operator(c, operator, {}, stream)
                assert [array.tobytes() for array in got] == [array.tobytes() for array in expected]
            assert c.aclrtSynchronizeStream(0x1234) == 107017
            assert c.message().count("aclrtSynchronizeStream: stream: expected a stream") == 1
            assert c.message() == ""
            assert c.aclrtDestroyStream(stream) == 0
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_scalars_of_every_type(c):
    values = {
        0: struct.pack("f", 2.5), 1: np.float16(2.5).tobytes(), 2: b"\xfe", 3: struct.pack("i", -2),
        4: b"\xfe", 6: struct.pack("h", -2), 9: struct.pack("q", -(2**40)), 10: b"\xff" * 8,
        11: struct.pack("d", math.pi), 12: b"\x01", 16: struct.pack("ff", 1, 2), 27: b"\x20\x40",
    }  # fmt: skip
    expected = {
        0: 2.5, 1: 2.5, 2: -2, 3: -2, 4: 254, 6: -2, 9: -(2**40), 10: 2**64 - 1, 11: math.pi,
        12: True, 16: 1 + 2j, 27: 2.5,
    }  # fmt: skip
    for code, data in values.items():
        handle = c.aclCreateScalar(ctypes.create_string_buffer(data), code)
        assert handle, (code, c.message())
        assert table.find(handle).value == expected[code]
        assert c.aclDestroyScalar(handle) == 0
    buffer = ctypes.create_string_buffer(16)
    for refused in (13, 33, 35, 999, -1):
        assert c.aclCreateScalar(buffer, refused) is None
        assert "aclCreateScalar: dataType" in c.message()
    assert c.aclCreateScalar(None, 0) is None
    assert c.aclCreateScalar(c_void_p(16), 0) is None


def test_tensor_getters(c):
    dims, strides, storage = (c_int64 * 2)(2, 3), (c_int64 * 2)(8, 2), (c_int64 * 1)(40)
    tensor = c.aclCreateTensor(dims, 2, FLOAT, strides, 4, ND, storage, 1, None)
    assert tensor
    libc = ctypes.CDLL(None)
    for name, expected in (
        ("aclGetViewShape", [2, 3]), ("aclGetViewStrides", [8, 2]), ("aclGetStorageShape", [40])
    ):  # fmt: skip
        values, count = ctypes.POINTER(c_int64)(), c_uint64()
        assert getattr(c, name)(tensor, byref(values), byref(count)) == 0
        assert values[: count.value] == expected
        libc.free(values)
        assert getattr(c, name)(tensor, None, byref(count)) == 161001
        assert getattr(c, name)(tensor, byref(values), None) == 161001
        assert getattr(c, name)(None, byref(values), byref(count)) == 161001
    offset, address = c_int64(), c_void_p()
    assert c.aclGetViewOffset(tensor, byref(offset)) == 0
    assert offset.value == 4
    assert c.aclSetRawTensorAddr(tensor, c_void_p(0x10000)) == 0
    assert c.aclGetRawTensorAddr(tensor, byref(address)) == 0
    assert address.value == 0x10000
    assert c.aclDestroyTensor(tensor) == 0
    assert c.aclGetViewOffset(tensor, byref(offset)) == 161002


def test_arrays_and_lists(c):
    numbers = (c_int64 * 3)(1, -2, 3)
    array, size = c.aclCreateIntArray(numbers, 3), c_uint64()
    assert c.aclGetIntArraySize(array, byref(size)) == 0
    assert size.value == 3
    assert c.aclDestroyIntArray(array) == 0
    assert c.aclCreateIntArray(None, 3) is None
    assert c.aclCreateIntArray(numbers, 1 << 40) is None
    assert "aclCreateIntArray: value" in c.message()
    tensors = [c.tensor(np.zeros(2, np.float32))[0] for _ in range(2)]
    members = c.aclCreateTensorList((c_void_p * 2)(*tensors), 2)
    assert c.aclGetTensorListSize(members, byref(size)) == 0
    assert c.aclDestroyTensorList(members) == 0
    assert [c.aclDestroyTensor(tensor) for tensor in tensors] == [161002, 161002]
    assert c.aclCreateTensorList((c_void_p * 1)(0x999), 1) is None
    for kind in ("TensorList", "ScalarList", "IntArray", "BoolArray"):
        empty = getattr(c, f"aclCreate{kind}")(None, 0)
        size.value = 7
        assert getattr(c, f"aclGet{kind}Size")(empty, byref(size)) == 0
        assert (size.value, getattr(c, f"aclDestroy{kind}")(empty)) == (0, 0)
        assert getattr(c, f"aclCreate{kind}")(None, 1) is None


def test_any_byte_but_0_is_true(c):
    """As in a C bool that nobody set."""
    array = c.aclCreateBoolArray((ctypes.c_uint8 * 4)(0, 1, 2, 255), 4)
    assert table.find(array).values == (False, True, True, True)
    x = np.array([-0.5, 2.0], np.float32)
    tensor, _ = c.tensor(x)
    one, size, executor = c_float(1), c_uint64(), c_void_p()
    scalar, results = c.aclCreateScalar(byref(one), FLOAT), []
    for byte in (0, 1, 2, 128, 255):
        out, where = c.tensor(np.zeros_like(x))
        arguments = (tensor, scalar, scalar, scalar, byte, tensor, out)
        assert c.aclnnEluBackwardGetWorkspaceSize(*arguments, byref(size), byref(executor)) == 0
        assert c.aclnnEluBackward(None, 0, executor, None) == 0
        assert c.aclrtSynchronizeStream(None) == 0
        results.append(c.fetch(where, x).tolist())
    assert results == [
        openaclnn.elu_backward(x, x, is_result=number > 0).tolist() for number in range(5)
    ]


def test_counts_that_cannot_be(c):
    dims = (c_int64 * 2)(2, 2)
    assert c.aclCreateTensor(None, 2, FLOAT, None, 0, ND, dims, 2, None) is None
    assert c.aclCreateTensor(dims, 2, FLOAT, None, 0, ND, None, 2, None) is None
    assert c.aclCreateTensor(dims, 2**64 - 1, FLOAT, None, 0, ND, dims, 2, None) is None
    assert "aclCreateTensor: viewDims: expected at most" in c.message()
    huge = (c_int64 * 2)(2**62, 2**62)
    assert c.aclCreateTensor(huge, 2, FLOAT, None, 0, ND, huge, 2, None) is None
    assert c.aclCreateTensor((c_int64 * 1)(-1), 1, FLOAT, None, 0, ND, None, 0, None) is None


def test_a_view_may_reach_into_the_padding(c):
    """An example of the documents does so, with floats where BF16 and INT64 are declared."""
    operator = openaclnn.find_operator("cross_entropy_loss_grad")
    stream, memory = stream_of(c), []

    def raw(values, shape, code):
        data = c.device(np.array(values, np.float32))
        extra = 4 * len(values)
        assert c.aclrtMemset(data.value + extra, 32, 0, 24) == 0  # the padding, for the test's sake
        memory.append(data)
        dims = (c_int64 * len(shape))(*shape)
        return c.aclCreateTensor(dims, len(shape), code, None, 0, ND, dims, len(shape), data)

    before = [-0.0091, 0.0409, 0.0409] * 2
    tensors = [
        raw([0.1], (), 27), raw([-0.2] * 6, (2, 3), 27), raw([0, 0], (2,), 9),
        raw([1, 1, 1], (3,), FLOAT),
    ]  # fmt: skip
    out = raw(before, (2, 3), 27)
    size, executor = c_uint64(), c_void_p()
    mean = ctypes.create_string_buffer(b"mean")
    arguments = [*tensors, None, None, ctypes.cast(mean, c_void_p), -100, 0.0, 0.0, out]
    phase_one = getattr(c, f"{operator.name}GetWorkspaceSize")
    assert phase_one(*arguments, byref(size), byref(executor)) == 0
    assert getattr(c, operator.name)(None, 0, executor, stream) == 0, c.message()
    assert c.aclrtSynchronizeStream(stream) == 0
    got = c.fetch(memory[-1], np.empty(6, np.float32))
    assert got[:3].tolist() == [-44118324.0, 9732096.0, -44171264.0]
    assert got[3:].tolist() == np.float32(before[3:]).tolist()


def test_null_everywhere_gives_a_status(c):
    """Not one function falls over its nulls; those that must not succeed do not."""
    for prototype in all_prototypes():
        if prototype.name in ("aclInit", "aclFinalize", "aclFinalizeReference"):
            continue
        arguments = [c_type(glue._abi(v.type))() for v in prototype.parameters]
        answer = getattr(c, prototype.name)(*arguments)
        if any(map(glue.is_result, prototype.parameters)):
            known = 100000 if prototype.returns == "aclError" else 161001
            assert answer == known, prototype
            assert prototype.name.removesuffix("GetWorkspaceSize") in c.message()


def test_random_handles_give_a_status(c):
    """Random, stale and foreign handles in every place that takes one."""
    draw = random.Random(7)
    scalar_value = c_float(1)
    foreign = c.aclCreateScalar(byref(scalar_value), 0)
    stale, _ = c.tensor(np.zeros(2, np.float32))
    assert c.aclDestroyTensor(stale) == 0
    buffers = [ctypes.create_string_buffer(64) for _ in range(4)]
    for prototype in all_prototypes():
        objects = [
            v for v in prototype.parameters if glue.is_object(v) and not glue.is_result(v)
        ]  # fmt: skip
        # A copy of nothing succeeds before anything else is looked at, by the interface's own order.
        if not objects or objects[0].name == "cfg" or prototype.name.endswith("Async"):
            continue
        for make in (lambda: draw.getrandbits(64) | 1, lambda: stale, lambda: foreign):
            wrong = make()
            if wrong == foreign and "aclScalar" in objects[0].type:
                continue
            free, arguments = iter(buffers), []
            for variable in prototype.parameters:
                if glue.is_result(variable):
                    arguments.append(next(free))
                elif variable in objects:
                    arguments.append(c_void_p(wrong))
                else:
                    arguments.append(c_type(glue._abi(variable.type))())
            answer = getattr(c, prototype.name)(*arguments)
            assert answer not in (0, 500000, 561000), (prototype, answer, c.message())
            assert prototype.name.removesuffix("GetWorkspaceSize")[1:] in c.message()


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.python_name)
def test_null_is_told_before_handles_that_are_stale_or_of_another_kind(c, operator):
    phase_one = getattr(c, f"{operator.name}GetWorkspaceSize")
    stale, _ = c.tensor(np.zeros(2, np.float32))
    assert c.aclDestroyTensor(stale) == 0
    array = c.aclCreateIntArray((c_int64 * 1)(1), 1)
    # Of those that are asked for before anything else: AddRelu in place asks for its number after comparing shapes.
    first = itertools.takewhile(lambda check: check.status == 161001, operator.checks)
    required = {name for check in first for name in check.names}
    assert required
    size, executor = c_uint64(), c_void_p()
    for wrong in (stale, array):
        arguments = {p.name: 0 for p in operator.parameters}
        handles = [p.name for p in operator.parameters if p.is_tensor or p.kind is Kind.SCALAR]
        arguments |= dict.fromkeys(handles, c_void_p(wrong))
        places = (byref(size), byref(executor))
        words = [p for p in operator.parameters if p.kind is Kind.CSTRING]
        arguments |= {p.name: p.default.encode() if p.name in required else None for p in words}
        for name in required & set(handles):
            assert phase_one(*(arguments | {name: None}).values(), *places) == 161001
            assert f"{operator.name}: {name}: expected a" in c.message()
        for name, pair in (("workspaceSize", (None, places[1])), ("executor", (places[0], None))):
            assert phase_one(*arguments.values(), *pair) == 161001
            assert f"{operator.name}: {name}: expected a pointer, got null" in c.message()
        assert phase_one(*arguments.values(), *places) == 161002
        assert f"{operator.name}: {handles[0]}: expected a" in c.message()


def test_a_status_leaves_the_register_clean(c):
    for _ in range(3):
        assert c.aclrtFree(None) == 100000
        assert c.aclrtSetDevice(0) == 0


def test_the_message_stays_until_the_next_call(c):
    c.library.aclGetRecentErrMsg.restype = c_void_p
    try:
        assert c.aclrtFree(None) == 100000
        first = c.aclGetRecentErrMsg()
        gc.collect()
        for _ in range(100):
            assert c.aclrtSetDevice(0) == 0
            assert c.aclrtFree(None) == 100000
        text = ctypes.string_at(first).decode()
        assert text.endswith("[100000 ACL_ERROR_INVALID_PARAM]")
    finally:
        c.library.aclGetRecentErrMsg.restype = c_char_p


def test_a_message_that_is_no_utf8_is_told(c):
    record_message(100003, "aclInit: configPath: expected a file, got \udcff")
    assert "got \\udcff [100003" in c.message()


def test_executors_never_run_and_never_reused(c):
    operator = openaclnn.registry()[1]
    stream = stream_of(c)
    call_operator(c, operator, {}, stream)
    before = len(table.objects)
    for _ in range(50):
        call_operator(c, operator, {}, stream)
    assert len(table.objects) == before


def test_handles_end_with_their_context(c):
    context, stream, current = c_void_p(), c_void_p(), c_void_p()
    assert c.aclrtGetCurrentContext(byref(current)) == 0
    before = len(table.objects)
    assert c.aclrtCreateContext(byref(context), 0) == 0
    assert c.aclrtCreateStream(byref(stream)) == 0
    assert c.aclrtDestroyContext(context) == 0
    assert len(table.objects) == before
    assert c.aclrtSetCurrentContext(context) == 107017
    assert c.aclrtSetCurrentContext(current) == 0
    assert c.aclrtSynchronizeStream(stream) == 107017
    again = c_void_p()
    assert c.aclrtGetCurrentContext(byref(again)) == 0
    assert again.value == current.value


def test_a_table_remembers_only_the_newest_retired_handles():
    handles = HandleTable()
    first = handles.add(object())
    handles.retire(first)
    assert (
        repr(handles.find(first)) == f"{first:#x}, which has run already; phase one makes a new one"
    )
    assert handles.was_retired(first)
    assert not handles.was_retired(first)
    assert repr(handles.find(first)).endswith("is unknown or already destroyed")
    kept = [handles.add(object()) for _ in range(5000)]
    for handle in kept:
        handles.retire(handle)
    assert not handles.was_retired(kept[0])
    assert handles.was_retired(kept[-1])
    assert not handles.objects
    assert handles.add(None) == 0


def test_messages_name_handles_by_their_c_types(c):
    """Every function that takes handles, with live ones of every other kind."""
    event, context, size, executor = c_void_p(), c_void_p(), c_uint64(), c_void_p()
    assert c.aclrtCreateEvent(byref(event)) == 0
    assert c.aclrtGetCurrentContext(byref(context)) == 0
    tensors = [c.tensor(np.zeros(2, np.float32))[0] for _ in range(4)]
    phase_one = c.aclnnL1LossBackwardGetWorkspaceSize
    assert phase_one(*tensors[:3], 0, tensors[3], byref(size), byref(executor)) == 0
    kinds = {
        "aclTensor": tensors[0], "aclScalar": c.aclCreateScalar(byref(c_float(1)), FLOAT),
        "aclIntArray": c.aclCreateIntArray((c_int64 * 2)(1, 2), 2), "aclrtEvent": event.value,
        "aclrtContext": context.value, "aclrtStream": stream_of(c).value,
        "aclOpExecutor": executor.value,
    }  # fmt: skip
    python = re.compile(r"<|object at|openaclnn\.|NumPy|\b(Tensor|Scalar|IntArray|Stream|Event)\b")
    buffers = [ctypes.create_string_buffer(64) for _ in range(4)]
    seen = set()
    for prototype in all_prototypes():
        objects = [v for v in prototype.parameters if glue.is_object(v) and not glue.is_result(v)]
        if not objects or objects[0].name == "cfg" or prototype.name.endswith("Async"):
            continue
        for kind, handle in kinds.items():
            if kind in objects[0].type:
                continue
            free = iter(buffers)
            arguments = [
                next(free) if glue.is_result(v)
                else c_void_p(handle) if v in objects
                else c_type(glue._abi(v.type))()
                for v in prototype.parameters
            ]  # fmt: skip
            assert getattr(c, prototype.name)(*arguments) != 0
            message = c.message()
            assert not python.search(message), message
            if f"got an {kind}" in message:
                seen.add((prototype.name, kind))
    assert len({name for name, _ in seen}) > 40
    assert {kind for _, kind in seen} == set(kinds)
