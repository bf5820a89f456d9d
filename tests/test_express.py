"""Remembered calls on PyTorch tensors: what the builtin takes, what it leaves to the longer way, what it keeps."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

import numpy as np
import pytest
import torch

import openaclnn
from conftest import OPERATORS, plain
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import BFLOAT16, FLOAT, FLOAT16
from openaclnn.core.status import AclnnError
from openaclnn.engines.machine import objects
from openaclnn.repeat import express, recipes
from test_interop import to_torch

names = pytest.mark.parametrize("operator", OPERATORS, ids=lambda op: op.python_name)


def bits(tensor: Any) -> bytes:
    data: bytes = tensor.contiguous().view(torch.uint8).numpy().tobytes()
    return data


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Counts the calls that the builtin answers, of recipes made from here on."""
    recipes._recipes.clear()
    for operator in OPERATORS:
        plain(operator).__globals__["_last"][0] = (None,) * len(
            plain(operator).__globals__["_last"][0]
        )
    counted: list[Any] = []
    make = express.Express.function

    def function(self: Any) -> Any:
        call = make(self)

        def counting(*tensors: Any) -> Any:
            result = call(*tensors)
            counted.append(result is not NotImplemented)
            return result

        return counting

    monkeypatch.setattr(express.Express, "function", function)
    yield counted
    recipes._recipes.clear()


@names
@pytest.mark.parametrize("dtype", [FLOAT, FLOAT16, BFLOAT16], ids=str)
def test_every_case_has_the_same_bits(operator: Operator, dtype: Any, taken: list[bool]) -> None:
    rng = np.random.default_rng(9)
    for case in operator.workloads.cases(rng, dtype):
        arguments = {name: to_torch(value) for name, value in case.items()}
        first = plain(operator)(**arguments)
        second = plain(operator)(**arguments)
        taken.clear()
        third = plain(operator)(**arguments)
        assert bits(first) == bits(second) == bits(third)
        assert taken in ([True], []), "contiguous tensors are taken; others have no builtin"
        out = torch.full_like(first, float("nan"))
        for _ in range(3):
            assert plain(operator)(**arguments, out=out) is out
        assert bits(out) == bits(first)
    assert any(taken)


def elu(n: int = 16, dtype: Any = torch.float32) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(n)
    g, x = (torch.randn(n, generator=generator, dtype=torch.float32) for _ in range(2))
    return g.to(dtype), x.to(dtype)


def warm(*arguments: Any, **options: Any) -> Any:
    for _ in range(3):
        result = openaclnn.elu_backward(*arguments, **options)
    return result


def test_other_tensors_take_the_longer_way(taken: list[bool]) -> None:
    g, x = elu()
    warm(g, x)
    assert taken == [True]
    others = [
        elu(17), elu(16, torch.float16), (g.reshape(4, 4), x.reshape(4, 4)),
        (torch.randn(32)[::2], x), (g, torch.randn(32)[::2]), (g.numpy(), x.numpy()),
    ]  # fmt: skip
    for a, b in others:
        taken.clear()
        got = openaclnn.elu_backward(a, b)
        assert taken == [False]
        fresh = openaclnn.elu_backward(np.asarray(a).copy(), np.asarray(b).copy())
        np.testing.assert_array_equal(np.asarray(got), fresh)
        warm(g, x)
    with pytest.raises(AclnnError):
        openaclnn.elu_backward(g, torch.randn(3))
    with pytest.raises((AclnnError, TypeError)):
        openaclnn.elu_backward(g, "x")
    assert bits(openaclnn.elu_backward(g, x)) == bits(warm(g, x))


def test_options_are_told_apart(taken: list[bool]) -> None:
    g, x = elu()
    one = bits(warm(g, x, alpha=1.0))
    two = bits(warm(g, x, alpha=2.0))
    assert one != two
    assert bits(openaclnn.elu_backward(g, x, alpha=1.0)) == one
    for zero in (0.0, -0.0):
        expected = openaclnn.elu_backward(g.numpy(), x.numpy(), scale=zero)
        warm(g, x, scale=zero)
        got = openaclnn.elu_backward(g, x, scale=zero)
        np.testing.assert_array_equal(np.signbit(got.numpy()), np.signbit(expected))
    with openaclnn.use_engine("numpy"):
        taken.clear()
        openaclnn.elu_backward(g, x)
        assert taken == []
    with openaclnn.use_product("310"), pytest.raises(AclnnError):
        openaclnn.elu_backward(g.bfloat16(), x.bfloat16())


def test_a_tensor_that_waits_for_its_negation(taken: list[bool]) -> None:
    z = torch.complex(*elu())
    warm(z.imag, z.imag)
    waiting = z.conj().imag
    assert waiting.is_neg()
    with pytest.raises((AclnnError, TypeError), match="negation"):
        openaclnn.elu_backward(waiting, waiting)


def test_outputs_over_inputs_are_left_to_the_checks(taken: list[bool]) -> None:
    g, x = elu()
    expected = bits(warm(g, x))
    out = torch.empty_like(x)
    warm(g, x, out=out)
    taken.clear()
    same = x.clone()
    assert openaclnn.elu_backward(g, same, out=same) is same
    assert bits(same) == expected
    assert taken == [False]
    memory = torch.empty(24)
    memory[:16] = x
    with pytest.raises(AclnnError, match="overlap"):
        openaclnn.elu_backward(g, memory[:16], out=memory[8:])


def test_a_target_out_of_range_is_refused_every_time(taken: list[bool]) -> None:
    log_prob = torch.log_softmax(torch.randn(4, 8), 1)
    target = torch.tensor([0, 1, 2, 3])
    gradient = torch.tensor(1.0)
    for _ in range(3):
        openaclnn.cross_entropy_loss_grad(gradient, log_prob, target)
    assert taken == [True]
    stray = torch.tensor([0, 1, 9, 3])
    for _ in range(2):
        with pytest.raises(AclnnError, match=r"9 at \(2,\)"):
            openaclnn.cross_entropy_loss_grad(gradient, log_prob, stray)
    assert taken == [True, False, False]


def test_subclasses_and_parameters(taken: list[bool]) -> None:
    g, x = elu()
    expected = bits(warm(g, x))
    taken.clear()
    assert bits(openaclnn.elu_backward(torch.nn.Parameter(g), x).detach()) == expected
    assert taken == [True]

    class Odd(torch.Tensor):
        pass

    assert bits(openaclnn.elu_backward(g.as_subclass(Odd), x).as_subclass(torch.Tensor)) == expected
    assert taken == [True, False]


def test_nothing_is_kept_and_nothing_is_lost(taken: list[bool]) -> None:
    g, x = elu()
    out = torch.empty_like(x)
    warm(g, x)
    warm(g, x, out=out)
    counts = [sys.getrefcount(value) for value in (g, x, out, None, NotImplemented)]
    for _ in range(200):
        openaclnn.elu_backward(g, x, out=out)
        openaclnn.elu_backward(g, x)
    after = [sys.getrefcount(value) for value in (g, x, out, None, NotImplemented)]
    assert after[:3] == counts[:3]
    result = openaclnn.elu_backward(g, x)
    gone = weakref.ref(result)
    del result
    gc.collect()
    assert gone() is None


def test_what_a_runner_raises_is_raised() -> None:
    g, x = elu()
    out = torch.empty_like(x)

    def runner(addresses: Any, stream: int) -> int:
        raise MemoryError(f"{len(addresses)} addresses on stream {stream}")

    operand = type("Operand", (), {"low": 0, "high": 64})
    places = [(0, operand), (1, operand), (2, operand)]
    reader = express.TorchReader(torch)
    call = express.Express(
        reader, (g, x, out), out, places, torch.empty, ((16,),), runner
    ).function()
    before = sys.getrefcount(out)
    with pytest.raises(MemoryError, match="3 addresses on stream 0"):
        call(g, x, out)
    assert sys.getrefcount(out) == before
    assert call(g, x) is NotImplemented
    assert call(g, x, None) is NotImplemented
    assert call(g, 5, out) is NotImplemented
    assert call() is NotImplemented


def test_numpy_arrays_have_a_builtin_too(taken: list[bool]) -> None:
    g, x = (tensor.numpy() for tensor in elu())
    expected = warm(g, x)
    assert taken == [True]
    out = np.zeros_like(x)
    warm(g, x, out=out)
    np.testing.assert_array_equal(out, expected)
    strided = np.repeat(x, 2)[::2]
    backwards = x[::-1].copy()[::-1]
    for other in (strided, backwards):
        got = warm(g, other)
        taken.clear()
        np.testing.assert_array_equal(openaclnn.elu_backward(g, other), expected)
        assert taken == [True]
        np.testing.assert_array_equal(got, expected)


def test_numpy_arrays_that_take_the_longer_way(taken: list[bool]) -> None:
    g, x = (tensor.numpy() for tensor in elu())
    expected = warm(g, x)

    class Odd(np.ndarray):
        pass

    longer = [
        (g, x[::-1]),
        (g.astype(np.float16), x.astype(np.float16)),
        (g[:8], x[:8]),
        (g, torch.from_numpy(x)),
    ]
    longer += [(g, x.view(Odd))]
    for a, b in longer:
        taken.clear()
        openaclnn.elu_backward(a, b)
        assert True not in taken
        np.testing.assert_array_equal(warm(g, x), expected)
    with pytest.raises(AclnnError):
        openaclnn.elu_backward(g, x.astype(">f4"))
    out = np.zeros_like(x)
    warm(g, x, out=out)
    taken.clear()
    locked = np.zeros_like(x)
    locked.flags.writeable = False
    with pytest.raises(AclnnError, match="writ"):
        openaclnn.elu_backward(g, x, out=locked)
    assert not locked.any()
    same = x.copy()
    openaclnn.elu_backward(g, same, out=same)
    np.testing.assert_array_equal(same, expected)
    memory = np.zeros(24, np.float32)
    memory[:16] = x
    with pytest.raises(AclnnError, match="overlap"):
        openaclnn.elu_backward(g, memory[:16], out=memory[8:])
    assert taken == [False] * 3


def test_unknown_layouts_have_no_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "ARRAY_DTYPE", objects.ARRAY_DTYPE - 1)
    with pytest.raises(AttributeError, match="layout"):
        express.NumpyReader()
    with pytest.raises(AttributeError):
        express.TorchReader(type("torch", (), {"Tensor": object}))
