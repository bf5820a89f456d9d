"""Arrays of other libraries: zero-copy in, the same kind out, bare numbers where one element is asked for."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import openaclnn
from conftest import (
    OPERATORS,
    assert_matches_oracle,
    assert_same_bits,
    each,
    families,
    plain,
    tensor_names,
)
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import FLOATS, DType, dtype_of_numpy
from openaclnn.core.interop import as_tensor, device_name
from workloads import cases_of, cases_to_compile

names = pytest.mark.parametrize("operator", families(OPERATORS), ids=lambda op: op.python_name)
dtypes = pytest.mark.parametrize("dtype", FLOATS, ids=str)


def to_torch(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(value.view(np.uint16).copy()).view(torch.bfloat16)
    return torch.from_numpy(value.copy())


class DLPackOnly:
    """An array that offers DLPack and nothing else, like a library we have never heard of."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __dlpack__(self, **options: Any) -> Any:
        return self.tensor.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.tensor.__dlpack_device__()


class ArrayInterfaceOnly:
    def __init__(self, array: np.ndarray) -> None:
        self.__array_interface__ = array.__array_interface__
        self.array = array


def unset(like: Any) -> Any:
    """A place whose elements are no result."""
    return torch.full_like(like, float("nan") if like.is_floating_point() else -1)


@names
@dtypes
@pytest.mark.in_turns
def test_torch_in_torch_out(operator: Operator, dtype: DType) -> None:
    for arguments in cases_to_compile(operator, np.random.default_rng(31), dtype):
        expected = plain(operator)(**arguments)
        tensors = {name: to_torch(value) for name, value in arguments.items()}
        results = plain(operator)(**tensors)
        for got, known in zip(each(results), each(expected), strict=True):
            assert isinstance(got, torch.Tensor)
            kind = dtype_of_numpy(known.dtype)
            assert kind is not None
            assert str(got.dtype) == f"torch.{kind.torch_name}"
            np.testing.assert_array_equal(got.double().numpy(), known.astype(np.float64))
        outs = [unset(got).t() if got.ndim == 2 else unset(got) for got in each(results)]
        if any(out.shape != got.shape for out, got in zip(outs, each(results), strict=True)):
            continue
        if operator.result_type is None:
            assert plain(operator)(**tensors, out=outs[0]) is outs[0]
        else:
            places = iter(outs)
            whole = tuple(None if result is None else next(places) for result in results)
            assert all(
                a is b for a, b in zip(plain(operator)(**tensors, out=whole), whole, strict=True)
            )
        for out, known in zip(outs, each(expected), strict=True):
            np.testing.assert_array_equal(out.double().numpy(), known.astype(np.float64))


def test_torch_views_are_not_copied() -> None:
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    view = base.t()[1::2, ::2]
    tensor = as_tensor(view)
    assert tensor.address == view.data_ptr()
    assert (tensor.shape, tensor.strides) == (tuple(view.shape), view.stride())
    got = openaclnn.elu_backward(view, view)
    torch.testing.assert_close(got, torch.where(view > 0, view, view * view.exp()))
    leaf = torch.ones(3, requires_grad=True)
    assert isinstance(openaclnn.elu_backward(leaf, leaf), torch.Tensor)


@names
@dtypes
def test_dlpack(operator: Operator, dtype: DType) -> None:
    arguments = next(iter(cases_of(operator, np.random.default_rng(37), dtype)))
    expected = plain(operator)(**arguments)
    tensors = {
        name: to_torch(arguments[name]) for name in tensor_names(operator) if name in arguments
    }
    wrapped = {name: DLPackOnly(value) for name, value in tensors.items() if value is not None}
    assert all(as_tensor(w).address == w.tensor.data_ptr() for w in wrapped.values())
    if operator.output.in_place:  # what offers nothing else cannot be written to
        return
    got = plain(operator)(**{**arguments, **wrapped})
    assert_same_bits(got, expected)


def test_an_unversioned_dlpack_array_is_not_written_to() -> None:
    x = np.ones(3, np.float32)
    with pytest.raises(openaclnn.AclnnError, match="writable") as caught:
        openaclnn.elu_backward(x, x, out=DLPackOnly(torch.zeros(3)))
    assert caught.value.parameter == "gradInput"


class Namespaced(DLPackOnly):
    """A DLPack array with an array namespace, as JAX and CuPy have: results come back through it."""

    def __array_namespace__(self) -> Any:
        class Namespace:
            @staticmethod
            def asarray(value: np.ndarray) -> Any:
                return Namespaced(to_torch(value))

        return Namespace


def test_result_comes_back_through_the_array_namespace() -> None:
    x = Namespaced(torch.tensor([-1.0, 2.0]))
    got = openaclnn.elu_backward(x, x)
    assert isinstance(got, Namespaced)
    exact = np.float32([-np.exp(-1), 2])
    np.testing.assert_array_almost_equal_nulp(got.tensor.numpy(), exact, 2)


def test_array_interface() -> None:
    x = np.array([-1.0, 2.0, 3.0, -4.0], np.float32)[::-2]
    got = openaclnn.elu_backward(ArrayInterfaceOnly(x), x)
    np.testing.assert_array_equal(got, openaclnn.elu_backward(x, x))
    assert as_tensor(ArrayInterfaceOnly(x)).address == x.__array_interface__["data"][0]


def test_bare_numbers_where_one_element_is_asked_for() -> None:
    for dtype in FLOATS:
        x = np.array([1, 2, 3], dtype.numpy)
        y = np.array([2, 2, 2], dtype.numpy)
        for one in (3, 3.0, np.float64(3), np.int32(3), np.float16(3)):
            got = openaclnn.l1_loss_backward(one, x, y)
            assert got.dtype == x.dtype
            np.testing.assert_array_equal(got.astype(np.float64), [-1, 0, 1])
        got = openaclnn.l1_loss_backward(3.0, x, 2)
        np.testing.assert_array_equal(got.astype(np.float64), [-1, 0, 1])
        log_prob = np.zeros((2, 3), dtype.numpy)
        got = openaclnn.cross_entropy_loss_grad(2.0, log_prob, np.array([0, 1]))
        assert got.dtype == x.dtype
        pixels = np.zeros((1, 3, 1, 2), dtype.numpy)
        target = np.array([[[0, 2]]])
        got = openaclnn.nll_loss2d_backward(2, pixels, target, x, total_weight=4.0)
        np.testing.assert_array_equal(
            got[0, :, 0].astype(np.float64), [[-0.5, 0], [0, 0], [0, -1.5]]
        )
    assert openaclnn.elu_backward(2.0, 1.0) == np.float32(2.0)


@names
@pytest.mark.in_turns
def test_reduction_by_name_or_number(operator: Operator) -> None:
    if not any(p.choices for p in operator.parameters):
        return
    for arguments in cases_of(operator, np.random.default_rng(41), FLOATS[0]):
        by_name = plain(operator)(**arguments)
        number = ("none", "mean", "sum").index(arguments["reduction"])
        by_number = plain(operator)(**{**arguments, "reduction": number})
        assert_same_bits(by_name, by_number)
    any_number = any(check.rule.startswith("reduction is any number") for check in operator.checks)
    for wrong in ("avg", "MEAN", *(() if any_number else (3, -1))):
        with pytest.raises(openaclnn.AclnnError, match="reduction"):
            plain(operator)(**{**arguments, "reduction": wrong})


@pytest.mark.parametrize(
    ("value", "match"),
    [
        ([1.0, 2.0], "list"),
        ("x", "str"),
        (object(), "object"),
        (np.array(["a", "b"]), "dtype"),
        (np.array([1.0, 2.0]), "DOUBLE"),
        (np.array([1.0, 2.0], ">f4"), "dtype"),
        (np.array([1, 2], np.int32), "INT32"),
        (np.zeros(2, [("a", "f4"), ("b", "i2")])["a"], "strides"),
        (torch.tensor([1.0, 2.0], dtype=torch.float64), "DOUBLE"),
        (torch.tensor([1.0, 2.0]).to_sparse(), "strided"),
        (torch.empty(2, device="meta"), "meta"),
    ],
    ids=lambda parameter: parameter if isinstance(parameter, str) else type(parameter).__name__,
)
def test_what_cannot_be_taken_is_refused_by_name(value: Any, match: str) -> None:
    x = np.ones(2, np.float32)
    with pytest.raises(openaclnn.AclnnError, match=match) as caught:
        openaclnn.elu_backward(value, x)
    error = caught.value
    assert error.status == 161002
    assert error.operator == "aclnnEluBackward"
    assert isinstance(error, ValueError)


def test_read_only_output_is_refused() -> None:
    x = np.ones(2, np.float32)
    locked = np.zeros(2, np.float32)
    locked.setflags(write=False)
    with pytest.raises(openaclnn.AclnnError, match="read-only"):
        openaclnn.elu_backward(x, x, out=locked)
    assert openaclnn.elu_backward(locked, locked).shape == (2,)  # an input may be


def test_unaligned_memory() -> None:
    raw = np.zeros(4 * 9 + 1, np.uint8)
    x = raw[1:].view(np.float32)
    x[...] = np.linspace(-2, 2, 9)
    got = openaclnn.elu_backward(x, x)
    np.testing.assert_array_equal(got, openaclnn.elu_backward(x.copy(), x.copy()))
    assert x.ctypes.data % ctypes.sizeof(ctypes.c_float)


def test_names_work_as_keywords() -> None:
    x = np.ones(2, np.float32)
    got = openaclnn.elu_backward(self_or_result=x, grad_output=2 * x)
    np.testing.assert_array_equal(got, 2 * x)
    assert_matches_oracle(
        openaclnn.find_operator("elu_backward"), {"grad_output": 2 * x, "self_or_result": x}, got
    )
    with pytest.raises(TypeError):
        openaclnn.elu_backward(x)
    with pytest.raises(TypeError):
        openaclnn.elu_backward(x, x, alfa=1.0)


def test_a_device_has_one_name() -> None:
    """The short cut of two phases compares names by identity."""
    names = {id(device_name(kind, index)) for kind, index in [("cuda", 0)] * 3}
    assert len(names) == 1
    assert sys.intern(device_name("cuda", 0)) is device_name("cuda", 0)
