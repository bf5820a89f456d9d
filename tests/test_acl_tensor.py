"""Tensor descriptors, scalars, arrays and lists."""

import ctypes
import math

import numpy as np
import pytest

from openaclnn import acl
from openaclnn.core import dtypes
from openaclnn.core.tensor import Tensor

ND = acl.ACL_FORMAT_ND


pytestmark = pytest.mark.usefixtures("fresh_device")


def create(dims=(2, 3), dtype=0, stride=None, offset=0, format=ND, storage=(2, 3), data=0x10000):
    return acl.aclCreateTensor(dims, dtype, stride, offset, format, storage, data)


def test_descriptor_of_an_address():
    tensor = create((4, 3), acl.ACL_FLOAT16, [20, 2], 22, acl.ACL_FORMAT_NC, [10, 10], 0x7000)
    assert isinstance(tensor, Tensor)
    assert (tensor.base, tensor.raw, tensor.device, tensor.owner) == (0x7000, True, "cpu", None)
    assert acl.aclGetViewShape(tensor) == (0, (4, 3))
    assert acl.aclGetViewStrides(tensor) == (0, (20, 2))
    assert acl.aclGetViewOffset(tensor) == (0, 22)
    assert acl.aclGetStorageShape(tensor) == (0, (10, 10))
    assert acl.aclGetFormat(tensor) == (0, acl.ACL_FORMAT_NC)
    assert acl.aclGetDataType(tensor) == (0, acl.ACL_FLOAT16)
    assert acl.aclGetRawTensorAddr(tensor) == (0, 0x7000)


def test_defaults_and_scalars():
    assert acl.aclGetViewStrides(create((2, 3, 4))) == (0, (12, 4, 1))
    for dims in ((), None, []):
        tensor = create(dims, storage=None)
        assert acl.aclGetViewShape(tensor) == (0, ())
        assert tensor.size == 1
    for null in (None, 0, ctypes.c_void_p(0)):
        assert acl.aclGetRawTensorAddr(create(data=null)) == (0, 0)
    assert create((0, 5), storage=None) is not None
    assert create(np.array([2, 3])).shape == (2, 3)


def test_unknown_codes_are_kept_for_the_operator_to_reject():
    tensor = create(dtype=5, format=77)
    assert tensor.dtype is dtypes.UNDEFINED
    assert acl.aclGetDataType(tensor) == (0, -1)
    assert acl.aclGetFormat(tensor) == (0, 77)
    assert create((2,), acl.ACL_INT4, storage=(1,)) is not None


@pytest.mark.parametrize(
    "arguments",
    [
        {"dims": (2, -1)},
        {"dims": 3},
        {"dims": (2.5,)},
        {"dims": (2**63,)},
        {"dims": (2**32, 2**32)},
        {"dims": (2**61,)},  # fits as a count, not in bytes
        {"dims": (0, 2**62, 2**62)},
        {"stride": (1,)},
        {"stride": (1, 1, 1)},
        {"stride": (2**62, 2**62)},
        {"stride": ("a", 1)},
        {"stride": (-(2**62), 1)},
        {"offset": 2**63 - 1},
        {"offset": 2**64},
        {"offset": None},
        {"storage": (-1,)},
        {"storage": (2**40, 2**40)},
        {"dtype": None},
        {"format": "ND"},
        {"data": "address"},
        {"data": -8},
        {"data": 1.5},
    ],
)
def test_creation_refused(arguments):
    assert create(**arguments) is None
    message = acl.aclGetRecentErrMsg()
    assert "aclCreateTensor" in message
    assert "161002" in message


def test_an_array_may_stand_for_the_address():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    tensor = create(data=array)
    assert tensor.owner is array
    assert (tensor.base, tensor.raw, tensor.writable) == (array.ctypes.data, False, True)
    array.flags.writeable = False
    assert not create(data=array).writable
    assert create((2, 4), data=array) is None
    assert create((2, 3), acl.ACL_DOUBLE, data=array) is None
    assert create((2, 3), offset=1, data=array) is None
    assert create((2, 2), stride=(-1, 1), data=array) is None
    assert create((2, 2), stride=(-1, 1), offset=1, data=array) is not None
    assert create((3, 2), data=array.T) is None
    assert create((0,), offset=100, data=array) is not None


def test_init_tensor():
    tensor = create()
    assert acl.aclInitTensor(tensor, (5,), 1, None, 2, ND, (7,), 0x9000) == 0
    assert (tensor.shape, tensor.offset, tensor.base) == ((5,), 2, 0x9000)
    assert tensor.dtype is dtypes.FLOAT16
    assert acl.aclInitTensor(tensor, (-5,), 0, None, 0, ND, (7,), 0) == 161002
    assert tensor.shape == (5,), "a failure changes nothing"
    assert acl.aclInitTensor(None, (5,), 0, None, 0, ND, (5,), 0) == 161001


GETTERS = (
    acl.aclGetViewShape, acl.aclGetStorageShape, acl.aclGetViewStrides, acl.aclGetViewOffset,
    acl.aclGetFormat, acl.aclGetDataType, acl.aclGetRawTensorAddr,
)  # fmt: skip


@pytest.mark.parametrize("getter", GETTERS)
def test_getters_refuse_null_foreign_and_destroyed(getter):
    assert getter(None)[0] == 161001
    assert getter(0)[0] == 161001
    for garbage in (1234, "tensor", object(), acl.aclCreateScalar(1.0, 0)):
        assert getter(garbage)[0] == 161002
    tensor = create()
    assert acl.aclDestroyTensor(tensor) == 0
    assert getter(tensor)[0] == 161002
    assert "destroyed" in acl.aclGetRecentErrMsg()


def test_destroy_tensor():
    tensor = create()
    assert acl.aclDestroyTensor(None) == 0
    assert acl.aclDestroyTensor(tensor) == 0
    assert not tensor.alive
    assert acl.aclDestroyTensor(tensor) == 161002
    assert acl.aclDestroyTensor(42) == 161002
    assert acl.aclInitTensor(tensor, (5,), 0, None, 0, ND, (5,), 0) == 161002
    assert acl.aclSetRawTensorAddr(tensor, 0x8000) == 161002


def test_raw_address():
    array = np.zeros(6, np.float32)
    tensor = create(data=array)
    assert acl.aclSetRawTensorAddr(tensor, 0x8000) == 0
    assert (tensor.base, tensor.raw, tensor.owner) == (0x8000, True, None)
    assert acl.aclSetRawTensorAddr(tensor, array) == 0
    assert (tensor.base, tensor.raw, tensor.owner is array) == (array.ctypes.data, False, True)
    assert acl.aclSetRawTensorAddr(tensor, None) == 161001
    assert acl.aclSetRawTensorAddr(None, 0x8000) == 161001
    assert acl.aclSetRawTensorAddr(tensor, "x") == 161002
    assert acl.aclSetRawTensorAddr(tensor, array[:2]) == 161002
    assert tensor.owner is array


def test_scalars():
    for code, value in (
        (acl.ACL_FLOAT, 1.5), (acl.ACL_DOUBLE, 0.1), (acl.ACL_FLOAT16, 0.5), (acl.ACL_BF16, 2.0),
        (acl.ACL_INT8, -7), (acl.ACL_UINT64, 2**64 - 1), (acl.ACL_BOOL, True),
        (acl.ACL_COMPLEX64, 1 + 2j), (acl.ACL_INT32, np.int64(5)), (acl.ACL_FLOAT, np.array(2.5)),
    ):  # fmt: skip
        scalar = acl.aclCreateScalar(value, code)
        assert scalar.value == value
        assert scalar.dtype.code == code
        assert acl.aclDestroyScalar(scalar) == 0
        assert not scalar.alive
        assert acl.aclDestroyScalar(scalar) == 161002
    assert acl.aclCreateScalar(0.1, acl.ACL_FLOAT).value == np.float32(0.1)
    assert math.isinf(acl.aclCreateScalar(1e30, acl.ACL_FLOAT16).value)
    assert acl.aclDestroyScalar(None) == 0
    assert acl.aclDestroyScalar(create()) == 161002


def test_scalars_refused():
    assert acl.aclCreateScalar(None, 0) is None
    assert "161001" in acl.aclGetRecentErrMsg()
    for code in (13, 29, 30, 33, 34, 35, 36, 37, 38, 40, 42, -1, 5, 999, None, "x"):
        assert acl.aclCreateScalar(1, code) is None
        assert "161002" in acl.aclGetRecentErrMsg()
    for value, code in (
        ("1", 0), (object(), 0), (1j, 0), (300, 2), (-1, 8), (math.nan, 9), ([1, 2], 0),
        (np.zeros(2), 0),
    ):  # fmt: skip
        assert acl.aclCreateScalar(value, code) is None
        assert "aclCreateScalar" in acl.aclGetRecentErrMsg()


ARRAYS = {
    "Int": ([1, -2, 2**63 - 1], [2**63], [1.5], ["a"]),
    "Float": ([1.5, -2, math.inf], ["a"], [None], [1j]),
    "Bool": ([True, False, 1], [0.5], ["a"], [None]),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays(name):
    create_array = getattr(acl, f"aclCreate{name}Array")
    destroy = getattr(acl, f"aclDestroy{name}Array")
    size = getattr(acl, f"aclGet{name}ArraySize")
    good, *bad = ARRAYS[name]
    array = create_array(good)
    assert list(array.values) == good
    assert size(array) == (0, 3)
    assert size(create_array([])) == (0, 0)
    for values in (*bad, None, 3):
        assert create_array(values) is None
        assert f"aclCreate{name}Array" in acl.aclGetRecentErrMsg()
    assert size(None) == (161001, 0)
    assert size(create()) == (161002, 0)
    assert destroy(None) == 0
    assert destroy("x") == 161002
    assert destroy(array) == 0
    assert destroy(array) == 161002
    assert size(array) == (161002, 0)


def test_float_array_rounds_to_float():
    assert acl.aclCreateFloatArray([0.1, 1e300]).values == (float(np.float32(0.1)), math.inf)


@pytest.mark.parametrize(
    ("name", "make"), [("Tensor", create), ("Scalar", lambda: acl.aclCreateScalar(1.0, 0))]
)
def test_lists_own_their_members(name, make):
    create_list = getattr(acl, f"aclCreate{name}List")
    destroy = getattr(acl, f"aclDestroy{name}List")
    size = getattr(acl, f"aclGet{name}ListSize")
    members = [make(), make()]
    handles = create_list([*members, members[0]])
    assert size(handles) == (0, 3)
    assert size(create_list([])) == (0, 0)
    assert destroy(handles) == 0
    assert not any(member.alive for member in members)
    assert getattr(acl, f"aclDestroy{name}")(members[0]) == 161002
    assert destroy(handles) == 161002
    assert size(handles) == (161002, 0)
    assert destroy(None) == 0
    for values in (None, 3, [None], ["x"], members):
        assert create_list(values) is None
