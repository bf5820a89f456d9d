"""Tensors and arrays that are not what they seem: refused by name, on both paths and in both phases; never read."""

from __future__ import annotations

import gc
import types
import unittest.mock
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import openaclnn
from openaclnn import AclnnError, acl, aclnn


def fake() -> Any:
    return FakeTensorMode().from_tensor(torch.ones(4))


def emptied() -> Any:
    tensor = torch.ones(4)
    tensor.untyped_storage().resize_(0)
    return tensor


def masked() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.masked.masked_tensor(torch.ones(4), torch.tensor([True, False, True, True]))


def nested() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([torch.ones(2), torch.ones(2)])


def quantised() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8)


class Null:
    """A DLPack producer that lost its data."""

    def __init__(self) -> None:
        self.array = np.ones(4, np.float32)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, **options: Any) -> Any:
        import ctypes

        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        try:
            capsule = self.array.__dlpack__(max_version=(1, 0))
            words = (ctypes.c_void_p * 5).from_address(get(capsule, b"dltensor_versioned"))
        except TypeError:  # before NumPy 2.1
            capsule = self.array.__dlpack__()
            words = (ctypes.c_void_p * 1).from_address(get(capsule, b"dltensor"))
        words[len(words) - 1] = (
            0  # after version, manager, deleter and flags, where there are those
        )
        self.kept = capsule
        return capsule


class Angry:
    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("not today")


class Wrong(Angry):
    def __dlpack__(self, **options: Any) -> Any:
        return "no capsule"


class Foreign(Angry):
    def __dlpack__(self, **options: Any) -> Any:
        import datetime

        return datetime.datetime_CAPI


class Raising:
    """Whatever it is asked for raises."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("no attribute")


def dead() -> Any:
    return weakref.proxy(np.ones(4, np.float32))


def liar(**wrong: Any) -> Callable[[], Any]:
    array = np.ones(4, np.float32)
    return lambda: types.SimpleNamespace(
        kept=array, __array_interface__={**array.__array_interface__, **wrong}
    )


STRANGE: dict[str, tuple[Callable[[], Any], str]] = {
    "fake": (fake, "FakeTensor"),
    "zero": (lambda: torch._efficientzerotensor(4), "memory of its own"),
    "emptied": (emptied, "memory of its own"),
    "masked tensor": (masked, "Tensor"),
    "meta": (lambda: torch.ones(4, device="meta"), "meta"),
    "sparse": (lambda: torch.ones(4).to_sparse(), "sparse"),
    "mkldnn": (lambda: torch.ones(4).to_mkldnn(), "mkldnn"),
    "nested": (nested, "Nested"),
    "quantised": (quantised, "qint8"),
    "masked array": (lambda: np.ma.masked_array(np.ones(4, np.float32), [0, 1, 0, 0]), "masked"),
    "bare bytes": (lambda: np.ones(4, np.float16).view("V2"), r"ml_dtypes\.bfloat16"),
    "null": (Null, "null address"),
    "angry": (Angry, "not today"),
    "wrong": (Wrong, "DLPack"),
    "a capsule of something else": (Foreign, "capsule called"),
    "raising": (Raising, "no attribute"),
    "dead": (dead, "no longer exists"),
    "mock": (lambda: unittest.mock.Mock(spec=np.ndarray), "Mock"),
    "wrong typestr": (liar(typestr="<q9"), "array"),
    "wrong shape": (liar(shape="x"), "array"),
    "wrong strides": (liar(strides=(1, 2, 3)), "array"),
}


@pytest.mark.parametrize("name", STRANGE)
def test_strange_arrays_are_refused_by_name(name: str) -> None:
    make, said = STRANGE[name]
    good = torch.ones(4)
    for _ in range(3):
        openaclnn.elu_backward(good, good)  # so that a fast path is open
    for _ in range(2):
        with pytest.raises(openaclnn.AclnnError, match=said) as caught:
            openaclnn.elu_backward(good, make())
        assert caught.value.parameter == "selfOrResult"
        with pytest.raises(openaclnn.AclnnError, match=said):
            openaclnn.elu_backward(good, good, out=make())
    out = np.zeros(4, np.float32)
    status, _, executor = aclnn.aclnnEluBackwardGetWorkspaceSize(
        good, 1.0, 1.0, 1.0, False, make(), out
    )
    assert (status, executor) == (161002, None)
    assert "selfOrResult" in (aclnn.aclGetRecentErrMsg() or "")


@pytest.mark.parametrize("sizes", [(4,), (2, 3), (1,), (0,)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_a_view_past_its_storage_is_refused(sizes: tuple[int, ...], dtype: Any) -> None:
    """On the slow path, and on the fast path that was open before the storage was made shorter."""
    good, item = torch.ones(sizes, dtype=dtype), dtype.itemsize
    views: list[Callable[[Any], Any]] = [
        lambda base: base[: good.numel()].view(sizes),
        lambda base: base[3 : 3 + good.numel()].view(sizes),
        lambda base: base[::2][: good.numel()].view(sizes),
    ]
    for view in views:
        for wrap in (lambda t: t, torch.nn.Parameter):
            base = torch.ones(2 * good.numel() + 3, dtype=dtype)
            inside = wrap(view(base))
            last = sum((n - 1) * step for n, step in zip(sizes, inside.stride(), strict=True))
            needed = max(inside.storage_offset() + last + 1, 0) * item
            for _ in range(3):
                openaclnn.elu_backward(good, inside)
                openaclnn.elu_backward(good, good, out=inside.detach())
            base.untyped_storage().resize_(needed)
            openaclnn.elu_backward(good, inside)
            for left in (max(needed - 1, 0), item, 0):
                base.untyped_storage().resize_(left)
                if not good.numel() or left >= needed:
                    openaclnn.elu_backward(good, inside)
                    continue
                for arguments in (
                    {"self_or_result": inside},
                    {"self_or_result": good, "out": inside.detach()},
                ):
                    with pytest.raises(openaclnn.AclnnError, match="inside memory of its own"):
                        openaclnn.elu_backward(good, **arguments)


class Vain(np.ndarray):
    """Says that it is larger than it is."""

    shape = property(lambda self: (1 << 20,))  # type: ignore[assignment]
    strides = property(lambda self: (4,))  # type: ignore[assignment]


class VainTensor(torch.Tensor):
    shape = property(lambda self: torch.Size((1 << 20,)))  # type: ignore[assignment]


def test_a_class_that_says_it_is_larger_is_not_believed() -> None:
    """Its memory is not: what was behind it was read, and written."""
    array, tensor = np.ones(4, np.float32), torch.ones(4)
    large = np.ones(1 << 20, np.float32)
    assert openaclnn.elu(array.view(Vain)).shape == (4,)
    assert openaclnn.inplace_elu(array.view(Vain)) is not None
    with pytest.raises(AclnnError, match=r"out: expected shape \(1048576,\)"):
        openaclnn.elu(large, out=array.view(Vain))
    vain = tensor.as_subclass(VainTensor)
    for call in (
        lambda: openaclnn.elu(vain),
        lambda: openaclnn.inplace_elu(vain),
        lambda: openaclnn.elu(torch.from_numpy(large), out=vain),
    ):
        with pytest.raises(AclnnError, match="inside memory of its own, got a VainTensor"):
            call()


def test_wrapped_tensors_are_refused() -> None:
    seen = []

    def inside(x: Any) -> Any:
        with pytest.raises(openaclnn.AclnnError, match="memory of its own"):
            openaclnn.elu_backward(x, x)
        seen.append(True)
        return x.sum()

    torch.func.vmap(inside)(torch.ones(3, 4))
    torch.func.grad(inside)(torch.ones(4))
    assert len(seen) == 2


def test_the_storage_is_kept_not_the_tensor() -> None:
    """Between the phases a tensor may get other data; what was checked is what is read."""
    x, gradient = torch.full((100_000,), 2.0), torch.ones(100_000)
    out = np.zeros(100_000, np.float32)
    status, _, executor = aclnn.aclnnEluBackwardGetWorkspaceSize(
        gradient, 1.0, 1.0, 1.0, False, x, out
    )
    assert status == 0
    x.data = torch.zeros(1)
    gc.collect()
    filler = [torch.full((100_000,), -5.0) for _ in range(8)]
    assert aclnn.aclnnEluBackward(None, 0, executor, None) == 0
    assert acl.aclrtSynchronizeStream(None) == 0
    assert (out == 1).all()
    del filler


def test_the_oracle_owns_what_it_reads() -> None:
    operator = openaclnn.find_operator("l1_loss_backward")
    scalar = ml_dtypes.bfloat16(3.0)
    x = np.ones(4, ml_dtypes.bfloat16)
    for _ in range(50):
        got = operator.oracle(np.asarray(1, ml_dtypes.bfloat16), x, scalar, reduction="none")
        np.testing.assert_array_equal(got, -1.0)


def test_odd_products_and_numbers_are_refused_with_all_four_words() -> None:
    x = np.ones(3, np.float32)
    with pytest.raises(openaclnn.AclnnError, match=r"product: expected one of default, .*, got 5"):
        openaclnn.elu_backward(x, x, product=5)
    for odd in (b"910b", bytearray(b"910b")):
        with pytest.raises(openaclnn.AclnnError, match=r"product: expected one of .*910b"):
            openaclnn.elu_backward(x, x, product=odd)  # type: ignore[arg-type]
    pretender = types.SimpleNamespace(__array_interface__=x[:1].__array_interface__)
    with pytest.raises(openaclnn.AclnnError, match=r"beta: expected a number, got SimpleNamespace"):
        openaclnn.smooth_l1_loss(x, x, beta=pretender)
    with pytest.raises(openaclnn.AclnnError, match=r"product: expected one of .*, got 'abacus'"):
        openaclnn.elu_backward(x, x, product="abacus")
    with pytest.raises(openaclnn.AclnnError, match=f"alpha: expected .*64 bits.*, got {2**64}"):
        openaclnn.elu_backward(x, x, alpha=2**64)
    for dtype in (np.float32, np.float16, ml_dtypes.bfloat16):
        for large in (2**64, -(2**63) - 1, 10**400):
            with pytest.raises(openaclnn.AclnnError, match=r"gradOutput: expected .*64 bits"):
                openaclnn.l1_loss_backward(large, x.astype(dtype), x.astype(dtype))


def test_autograd_hears_of_what_is_written() -> None:
    """A tensor saved for backward and then written: PyTorch must say so, on both paths."""
    gradient, x = torch.ones(4), torch.ones(4)
    for turn in range(4):
        weight = torch.ones(4, requires_grad=True)
        saved = torch.full((4,), 3.0)
        loss = (weight * saved).sum()
        before = saved._version
        openaclnn.elu_backward(gradient, x, out=saved)
        assert saved._version > before, turn
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_what_was_made_in_inference_mode_is_written() -> None:
    """Autograd counts no changes of it, and C++ would raise an exception if asked to."""
    gradient, x = torch.ones(4), torch.ones(4)
    with torch.inference_mode():
        out = torch.zeros(4)
    for _ in range(3):
        openaclnn.elu_backward(gradient, x, out=torch.empty(4))
        with torch.inference_mode():
            assert openaclnn.elu_backward(gradient, x, out=out) is out
        assert (out == 1).all()
        openaclnn.elu_backward(gradient, x, out=out)


def test_a_leaf_that_requires_grad_is_not_written() -> None:
    gradient, x = torch.ones(4), torch.ones(4)
    leaf = torch.zeros(4, requires_grad=True)
    for _ in range(3):
        openaclnn.elu_backward(gradient, x, out=torch.empty(4))  # so that a fast path is open
        with pytest.raises(openaclnn.AclnnError, match="a leaf that requires grad"):
            openaclnn.elu_backward(gradient, x, out=leaf)
        with torch.no_grad():
            openaclnn.elu_backward(gradient, x, out=leaf)
        assert (leaf.detach() == 1).all()
        with torch.no_grad():
            leaf.zero_()
    status, _, _ = aclnn.aclnnEluBackwardGetWorkspaceSize(gradient, 1.0, 1.0, 1.0, False, x, leaf)
    assert status == 161002


class Refusing(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise ValueError("not in this mode")


class Wrapping(TorchDispatchMode):
    """As fake modes do: what is made has no memory."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return torch.empty(3, device="meta")


def inside(block: Any, call: Callable[[], Any]) -> Any:
    with block:
        return call()


def transformed(transform: Any, call: Callable[[], Any]) -> Any:
    results: list[Any] = []
    transform(lambda x: (results.append(call()), x.sum())[1])(torch.ones(2, 3))
    return results[0]


BETWEEN: dict[str, Callable[[Callable[[], Any]], Any]] = {
    "fake": lambda call: inside(FakeTensorMode(allow_non_fake_inputs=True), call),
    "a dispatch mode": lambda call: inside(Wrapping(), call),
    "a default device": lambda call: inside(torch.device("meta"), call),
    "inference": lambda call: inside(torch.inference_mode(), call),
    "vmap": lambda call: transformed(torch.func.vmap, call),
    "grad": lambda call: transformed(torch.func.grad, call),
    "functionalize": lambda call: transformed(torch.func.functionalize, call),
}


@pytest.mark.parametrize("name", BETWEEN)
def test_results_are_memory_whoever_stands_between(name: str) -> None:
    """On the slow path, in memory that is kept, and again."""
    for shape in ((4,), (3, 5), (1 << 21,)):
        x = torch.full(shape, 2.0)
        for _ in range(2):
            got = BETWEEN[name](lambda x=x: openaclnn.elu(x, product="910b"))
            assert type(got) is torch.Tensor
            assert torch.equal(got, x)
            assert torch.equal(BETWEEN[name](lambda x=x: openaclnn.elu(x)), x)
