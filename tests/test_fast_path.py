"""The fast path: which calls take it, which are left to the slow path, what it keeps, and that bits are the same."""

from __future__ import annotations

import contextlib
import copy
import ctypes
import gc
import math
import os
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import openaclnn
from conftest import (
    APART,
    OPERATORS,
    SIZED,
    assert_matches_oracle,
    each,
    families,
    has_targets,
    plain,
    run_python,
)
from openaclnn.calls import plain as calls_plain
from openaclnn.calls.plain import make_plain_function
from openaclnn.core import results
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import BFLOAT16, FLOAT, FLOAT16, FLOATS, DType
from openaclnn.core.status import AclnnError
from openaclnn.engines import dispatch
from openaclnn.engines.cpu.launching import pool
from openaclnn.engines.cpu.layouts import gathered
from openaclnn.engines.machine import callers, objects
from openaclnn.engines.machine.builtins import address_of_function
from openaclnn.engines.machine.callers import PythonBlock
from openaclnn.operators.activations import Activation
from openaclnn.repeat import slots as at
from openaclnn.repeat.cache import CallCache
from openaclnn.testing.goldens import plan_of
from test_interop import to_torch
from workloads import EVERYTHING, cases_of, cases_to_compile

pytestmark = pytest.mark.usefixtures("any_size")
ROADS = [op for op in APART if op.result_type is None]


def bits(tensor: Any) -> bytes:
    # A copy: of one element any stride is contiguous, and not to be viewed as bytes.
    elements = tensor.clone(memory_format=torch.contiguous_format).reshape(-1)
    data: bytes = elements.view(torch.uint8).numpy().tobytes()
    return data


def cache_of(operator: Operator) -> CallCache:
    road: CallCache = plain(operator).__globals__["_cache"]
    return road


@contextmanager
def counted_fast_paths(operators: list[Operator]) -> Iterator[list[bool]]:
    """Whether each call of these operators took the fast path; nothing is known at first, nor after."""
    counted: list[bool] = []
    roads = [cache_of(operator) for operator in operators]
    for operator, road in zip(operators, roads, strict=True):
        sample = operator.samples[0].arrays()
        plain(operator)(**sample)  # has it open
        tensors = {
            name: torch.from_numpy(value.copy()) if isinstance(value, np.ndarray) else value
            for name, value in sample.items()
        }
        plain(operator)(**tensors)  # and for tensors
        road.forget()
        call = road.call

        def counting(*arguments: Any, call: Any = call) -> Any:
            result = call(*arguments)
            counted.append(result is not NotImplemented)
            return result

        road.call = counting
        counting.call = call  # type: ignore[attr-defined]
    yield counted
    for road in roads:
        road.call = road.call.call  # type: ignore[attr-defined]
        road.forget()


@pytest.fixture
def taken() -> Iterator[list[bool]]:
    """Whether each call from here on took the fast path."""
    with counted_fast_paths(ROADS) as counted:
        yield counted


@pytest.mark.parametrize(
    ("operator", "dtype"),
    [(op, dtype) for op in SIZED for dtype in (FLOATS if op in families(SIZED) else (FLOAT,))],
    ids=lambda parameter: getattr(parameter, "python_name", str(parameter)),
)
@pytest.mark.in_turns
def test_every_case_has_the_same_bits(operator: Operator, dtype: Any, taken: list[bool]) -> None:
    rng = np.random.default_rng(9)
    for case in cases_to_compile(operator, rng, dtype):
        arguments = {name: to_torch(value) for name, value in case.items()}
        with openaclnn.use_engine("cpu"):  # the slow path alone
            first = plain(operator)(**arguments)
        assert bits(plain(operator)(**arguments)) == bits(first)
        taken.clear()
        assert bits(plain(operator)(**arguments)) == bits(first)
        assert taken == [True]
        out = torch.full_like(first, float("nan"))
        for _ in range(3):
            assert plain(operator)(**arguments, out=out) is out
        assert bits(out) == bits(first)
        assert taken[-2:] == [True, True]


SEVERAL = [operator for operator in APART if operator.result_type is not None]


@pytest.mark.parametrize("convert", [np.asarray, to_torch], ids=["numpy", "torch"])
@pytest.mark.parametrize("operator", SEVERAL, ids=lambda op: op.python_name)
@pytest.mark.in_turns
def test_several_outputs_are_made_on_the_road(
    operator: Operator, convert: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are written; each is new memory of its own, in the operator's own tuple."""
    taken: list[bool] = []

    def counting(call: Any) -> Any:
        def counted(*arguments: Any) -> Any:
            result = call(*arguments)
            taken.append(result is not NotImplemented)
            return result

        return counted

    rng, road, function = np.random.default_rng(9), cache_of(operator), plain(operator)
    road.forget()
    for case in cases_of(operator, rng, FLOAT):
        arguments = {
            name: convert(value) if isinstance(value, np.ndarray) else value
            for name, value in case.items()
        }
        with openaclnn.use_engine("cpu"):  # the slow path alone
            first = function(**arguments)
        function(**arguments)
        with monkeypatch.context() as patch:
            patch.setattr(road, "call", counting(road.call))
            again = function(**arguments)
        assert type(again) is type(first) is operator.result_type
        for output, other in zip(each(first), each(again), strict=True):
            np.testing.assert_array_equal(np.asarray(output), np.asarray(other))
            assert not np.shares_memory(np.asarray(output), np.asarray(other))
        assert taken[-1]
        assert [output is None for output in again] == [output is None for output in first]
        if all(output is not None for output in first):
            into = tuple([copy.copy(output) for output in first])
            assert function(**arguments, out=into)[0] is into[0]
    if has_targets(operator):
        with pytest.raises(AclnnError, match="class indices"):
            function(**{**arguments, "target": arguments["target"] * 0 + 100})


def elu(n: int = 16, dtype: Any = torch.float32) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(n)
    g, x = (torch.randn(n, generator=generator, dtype=torch.float32) for _ in range(2))
    return g.to(dtype), x.to(dtype)


def warm(*arguments: Any, **options: Any) -> Any:
    for _ in range(3):
        result = openaclnn.elu_backward(*arguments, **options)
    return result


def test_any_size_takes_the_road_any_other_kind_does_not(taken: list[bool]) -> None:
    g, x = elu()
    warm(g, x)
    assert taken == [False, True, True]
    pool.ensure_started()  # which the first large call does
    for a, b in (elu(17), elu(100_000), (g.reshape(4, 4), x.reshape(4, 4)), elu(1)):
        taken.clear()
        got = openaclnn.elu_backward(a, b)
        assert taken == [True]
        with openaclnn.use_engine("cpu"):
            np.testing.assert_array_equal(got.numpy(), openaclnn.elu_backward(a, b).numpy())
    others = [
        elu(16, torch.float16), (torch.randn(32)[::2], x), (g, torch.randn(32)[::2]),
        (g.numpy(), x.numpy()),
    ]  # fmt: skip
    for a, b in others:
        cache_of(openaclnn.find_operator("elu_backward")).forget()
        warm(g, x)
        taken.clear()
        got = openaclnn.elu_backward(a, b)
        assert taken == [False]
        fresh = openaclnn.elu_backward(np.asarray(a).copy(), np.asarray(b).copy())
        np.testing.assert_array_equal(np.asarray(got), fresh)
    with pytest.raises(AclnnError):
        openaclnn.elu_backward(g, torch.randn(3))
    with pytest.raises(AclnnError):
        openaclnn.elu_backward(g, x.reshape(4, 4))
    with pytest.raises((AclnnError, TypeError)):
        openaclnn.elu_backward(g, "x")
    assert bits(openaclnn.elu_backward(g, x)) == bits(warm(g, x))


def test_a_mean_follows_the_size(taken: list[bool]) -> None:
    for function in (openaclnn.l1_loss_backward, openaclnn.smooth_l1_loss_backward):
        for size in (7, 1, 30, 100_003):
            for dtype in (np.float32, np.float16):
                x, y = (
                    np.random.default_rng(size + k).normal(size=size).astype(dtype) for k in (0, 1)
                )
                gradient = np.ones((), dtype)
                got = function(gradient, x, y, reduction="mean")
                with openaclnn.use_engine("cpu"):
                    np.testing.assert_array_equal(got, function(gradient, x, y, reduction="mean"))
    assert sum(taken) >= 8


CLASS_SHAPES = {
    "rows": [(4, 5), (1, 5), (7, 1), (300, 33), (5, 70_000), (9000, 3), (1, 1), (64, 1000)],
    "pixels": [
        (2, 3, 4, 5), (1, 3, 4, 5), (2, 1, 4, 5), (2, 3, 1, 1), (3, 21, 40, 37), (1, 12, 300, 210),
        (2, 9, 16, 16), (5, 8, 33, 9), (1, 1, 1, 1), (2, 5, 210, 300), (300, 12, 1, 1), (9, 1, 1, 1), (3, 12, 100, 210),
    ],
}  # fmt: skip


with_classes = pytest.mark.parametrize(
    "operator",
    [op for op in ROADS if op.workloads.PATTERN != "elementwise"],
    ids=lambda op: op.python_name,
)


by_library = pytest.mark.parametrize(
    ("library", "dtype"),
    [
        ("numpy", FLOAT),
        ("torch", BFLOAT16),
        *[("torch", FLOAT), ("numpy", BFLOAT16), ("torch", FLOAT16)] * EVERYTHING,
    ],
    ids=str,
)


@by_library
@with_classes
@pytest.mark.in_turns
def test_classes_and_positions_of_any_number(
    operator: Operator, library: str, dtype: Any, taken: list[bool]
) -> None:
    """Each size has the bits of the slow path, whichever size the kind was remembered with; arrays of FLOAT have all of them, others
    every other."""
    rng = np.random.default_rng(31)
    pixels = operator.workloads.PATTERN == "pixels"
    first, *others = CLASS_SHAPES[operator.workloads.PATTERN]
    if (library, dtype) != ("numpy", FLOAT):
        others = others[library == "torch" :: 2]
    variants = [
        (variant, summed)
        for variant in operator.workloads.VARIANTS
        for summed in {False, pixels and "total_weight" in operator.signature()}
    ]
    for variant, summed in variants:
        cache_of(operator).forget()
        known: set[Any] = set()
        for shape in (first, *others):
            arguments = operator.workloads.make(rng, dtype, shape, variant)
            if summed:
                del arguments["total_weight"]
            if library == "torch":
                arguments = {name: to_torch(value) for name, value in arguments.items()}
            taken.clear()
            # Many elements that stretch by channels are another kind for each size, all others one.
            many = plan_of(operator, arguments).shape_specific and math.prod(shape) > gathered.MOST
            kind = shape if many else ()
            got = plain(operator)(**arguments)
            assert taken == [kind in known]
            known.add(kind)
            with openaclnn.use_engine("cpu"):
                expected = plain(operator)(**arguments)
            if library == "torch":
                assert bits(got) == bits(expected)
            else:
                np.testing.assert_array_equal(got.view(np.uint8), expected.view(np.uint8))


@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
def test_more_axes_than_a_record_has_take_the_slow_path(convert: Any, taken: list[bool]) -> None:
    """Weights are asked for their number of elements alone, so that they may have any number of axes."""
    arguments = {
        "grad_output": np.ones((2, 2, 2), np.float32), "self": np.zeros((2, 3, 2, 2), np.float32),
        "target": np.zeros((2, 2, 2), np.int64), "weight": np.ones((1,) * at.MAX_AXES + (3,), np.float32),
        "total_weight": np.ones(1, np.float32),
    }  # fmt: skip
    for _ in range(2):
        got = openaclnn.nll_loss2d_backward(
            **{name: convert(array) for name, array in arguments.items()}, reduction="none"
        )
        assert float(got.sum()) == -8
    assert taken == [False, False]


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
        assert taken == [False]
    with openaclnn.use_product("310"), pytest.raises(AclnnError):
        openaclnn.elu_backward(g.bfloat16(), x.bfloat16())


def test_rules_about_numbers_hold_after_calls_that_keep_them() -> None:
    x = np.ones(4, np.float32)
    for alpha in (0.5, 0.6, 0.6):
        openaclnn.celu(x, alpha=alpha)
        openaclnn.leaky_relu_backward(x, x, negative_slope=alpha, self_is_result=True)
    with pytest.raises(AclnnError, match="other than 0"):
        openaclnn.celu(x, alpha=0.0)
    with pytest.raises(AclnnError, match=">= 0 when selfIsResult"):
        openaclnn.leaky_relu_backward(x, x, negative_slope=-0.6, self_is_result=True)


def test_a_tensor_that_waits_for_its_negation(taken: list[bool]) -> None:
    z = torch.complex(*elu())
    warm(z.imag, z.imag)
    waiting = z.conj().imag
    assert waiting.is_neg()
    with pytest.raises((AclnnError, TypeError), match="negation"):
        openaclnn.elu_backward(waiting, waiting)


def test_a_negation_of_one_element_is_seen(taken: list[bool]) -> None:
    g, x = torch.ones(1), torch.tensor([2.0])
    warm(g, x)
    with pytest.raises((AclnnError, TypeError), match="negation"):
        openaclnn.elu_backward(g, torch._neg_view(x))


def test_in_place_takes_the_road_and_other_overlaps_are_refused(taken: list[bool]) -> None:
    g, x = elu()
    expected = bits(warm(g, x))
    warm(g, x, out=torch.empty_like(x))
    taken.clear()
    same = x.clone()
    assert openaclnn.elu_backward(g, same, out=same) is same
    assert bits(same) == expected
    assert taken == [True]
    memory = torch.empty(24)
    memory[:16] = x
    with pytest.raises(AclnnError, match="overlap"):
        openaclnn.elu_backward(g, memory[:16], out=memory[8:])


def test_cross_entropy_in_place_takes_the_road(taken: list[bool]) -> None:
    log_prob = torch.log_softmax(torch.randn(6, 9), 1)
    target, gradient = torch.arange(6), torch.tensor(1.0)
    expected = openaclnn.cross_entropy_loss_grad(gradient, log_prob, target)
    for _ in range(2):
        same = log_prob.clone()
        openaclnn.cross_entropy_loss_grad(gradient, same, target, out=same)
        assert bits(same) == bits(expected)
    assert taken[-1]


def test_a_target_out_of_range_is_refused_every_time(taken: list[bool]) -> None:
    log_prob = torch.log_softmax(torch.randn(4, 8), 1)
    target = torch.tensor([0, 1, 2, 3])
    gradient = torch.tensor(1.0)
    for _ in range(2):
        openaclnn.cross_entropy_loss_grad(gradient, log_prob, target)
    assert taken == [False, True]
    stray = torch.tensor([0, 1, 9, 3])
    for _ in range(2):
        with pytest.raises(AclnnError, match=r"9 at \(2,\)"):
            openaclnn.cross_entropy_loss_grad(gradient, log_prob, stray)
    assert taken == [False, True, False, False]
    # No number of refusals pushes other kinds out.
    arrays = [tensor.numpy() for tensor in (gradient, log_prob, target)]
    openaclnn.cross_entropy_loss_grad(*arrays)
    for _ in range(at.MAX_ENTRIES + 1):
        with pytest.raises(AclnnError):
            openaclnn.cross_entropy_loss_grad(gradient, log_prob, stray)
    taken.clear()
    openaclnn.cross_entropy_loss_grad(*arrays)
    openaclnn.cross_entropy_loss_grad(gradient, log_prob, target)
    assert taken == [True, True]


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


def test_what_an_allocation_raises_is_raised(taken: list[bool], monkeypatch: Any) -> None:
    operator = openaclnn.find_operator("elu_backward")
    g, x = (tensor.numpy() for tensor in elu())
    warm(g, x)

    def refuse(shape: Any, dtype: Any) -> Any:
        raise MemoryError(f"no room for {shape} of {dtype}")

    for slot in (at.MAKE, at.MAKE_LARGE):
        cache_of(operator).entries[0].words[slot] = id(refuse)
    before = [sys.getrefcount(value) for value in (g, x)]
    for _ in range(5):
        with pytest.raises(MemoryError, match=r"no room for \(16,\) of float32"):
            openaclnn.elu_backward(g, x)
    assert [sys.getrefcount(value) for value in (g, x)] == before


def test_what_a_runner_in_python_raises_is_raised() -> None:
    """And nothing is lost, garbage is collected as before, and the next call is served."""
    x, function = np.arange(-2, 4, dtype=np.int32), openaclnn.relu
    for _ in range(2):
        function(x)
    [entry] = cache_of(openaclnn.find_operator("relu")).entries
    [block] = [held for held in entry.relies_on if isinstance(held, PythonBlock)]
    [run] = block._held

    def refuse(addresses: Any, stream: int) -> int:
        raise ZeroDivisionError(f"{len(addresses)} addresses on {stream}")

    before = sys.getrefcount(x), sys.getrefcount(entry), gc.isenabled()
    for _ in range(5):
        block.fall_back(refuse)
        with pytest.raises(ZeroDivisionError, match="2 addresses on 0"):
            function(x)
    block.fall_back(run)
    assert function(x).tolist() == [0, 0, 0, 1, 2, 3]
    assert (sys.getrefcount(x), sys.getrefcount(entry), gc.isenabled()) == before


def test_what_is_no_call_of_its_own_is_left_alone(taken: list[bool]) -> None:
    g, x = elu()
    warm(g, x)
    call = cache_of(openaclnn.find_operator("elu_backward")).call
    for arguments in ((), (g, x), (g, x, None), (g, 5, None, 1.0, 1.0, 1.0, False, None)):
        assert call(*arguments) is NotImplemented


def test_numpy_arrays_have_a_builtin_too(taken: list[bool]) -> None:
    g, x = (tensor.numpy() for tensor in elu())
    expected = warm(g, x)
    assert taken == [False, True, True]
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
    memory = np.zeros(24, np.float32)
    memory[:16] = x
    with pytest.raises(AclnnError, match="overlap"):
        openaclnn.elu_backward(g, memory[:16], out=memory[8:])
    assert taken == [False] * 2
    same = x.copy()
    openaclnn.elu_backward(g, same, out=same)
    np.testing.assert_array_equal(same, expected)
    assert taken[-1]


def test_a_proxy_is_not_what_it_stands_for(taken: list[bool]) -> None:
    """The type itself decides: a proxy forwards `__class__`, and its own memory is not an array's."""
    g, x = (tensor.numpy() for tensor in elu())
    expected = warm(g, x)
    for other in (weakref.proxy(x), memoryview(x)):
        taken.clear()
        try:
            got = openaclnn.elu_backward(g, other)
        except (AclnnError, TypeError):
            continue
        np.testing.assert_array_equal(got, expected)
        assert taken == [False]


def test_a_meta_tensor_is_refused_after_calls_on_the_host(taken: list[bool]) -> None:
    g, x = elu()
    warm(g, x)
    with pytest.raises(AclnnError, match="data"):
        openaclnn.elu_backward(g.to("meta"), x.to("meta"))


def test_options_that_can_change_are_never_remembered(taken: list[bool]) -> None:
    g, x = (tensor.numpy() for tensor in elu())
    for scale in (np.float32(2), np.array(2.0)[()], 2):
        assert openaclnn.elu_backward(g, x, scale=scale).tobytes() == (
            openaclnn.elu_backward(g, x, scale=2.0).tobytes()
        )
    y = np.zeros_like(x)
    beta = torch.tensor(1.0)
    before = openaclnn.smooth_l1_loss_backward(g, x, y, beta=1.0)
    try:
        first = openaclnn.smooth_l1_loss_backward(g, x, y, beta=beta)
    except AclnnError:
        return
    beta.fill_(3.0)
    second = openaclnn.smooth_l1_loss_backward(g, x, y, beta=beta)
    np.testing.assert_array_equal(first, before)
    np.testing.assert_array_equal(second, openaclnn.smooth_l1_loss_backward(g, x, y, beta=3.0))


def test_numbers_of_the_same_value_take_the_road(taken: list[bool]) -> None:
    g, x = elu()
    openaclnn.elu_backward(g, x, alpha=float("1.25"))
    taken.clear()
    openaclnn.elu_backward(g, x, alpha=float("1.25"))
    openaclnn.elu_backward(g, x, alpha=0.0)  # which another form serves
    openaclnn.elu_backward(g, x, alpha=2)
    openaclnn.elu_backward(g, x, alpha=int("2"))
    with pytest.raises(AclnnError):
        openaclnn.elu_backward(g, x, alpha=2**70)
    assert taken == [True, False, False, True, False]


def test_more_kinds_than_there_is_room_for(taken: list[bool]) -> None:
    g, x = elu()
    results = {}
    for _ in range(2):
        for number in range(2 * at.MAX_ENTRIES + 3):
            got = bits(openaclnn.elu_backward(g, x, alpha=1.0 + number))
            assert results.setdefault(number, got) == got
    last = 1.0 + 2 * at.MAX_ENTRIES + 2
    taken.clear()
    openaclnn.elu_backward(g, x, alpha=last)
    assert taken == [True]


def test_an_unknown_numpy_has_no_fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where arrays lie otherwise than the probe expects, the slow path serves every call."""
    program = (
        "import numpy as np, openaclnn\n"
        "from openaclnn.engines.machine import objects\n"
        "objects.ARRAY_DTYPE -= 1\n"
        "x = np.float32([-1, 2])\n"
        "for _ in range(3): result = openaclnn.elu_backward(x, x)\n"
        "road = openaclnn.elu_backward.__globals__['_cache']\n"
        "print(result.round(3).tolist(), road._control is None)\n"
    )
    done = run_python(program)
    assert done.stdout.split()[-1] == "True"
    assert "2.0" in done.stdout
    assert objects.arrays_are_readable()


@pytest.mark.filterwarnings("ignore:Dynamo does not know:UserWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch's own
def test_a_compiled_caller_is_served(taken: list[bool]) -> None:
    """torch.compile may break its graph at the call, and no more."""
    g, x = elu()
    expected = bits(warm(g, x))

    def caller(g: Any, x: Any) -> Any:
        return openaclnn.elu_backward(g, x) + 0

    torch._dynamo.reset()
    compiled = torch.compile(caller, backend="eager")
    for _ in range(2):
        assert bits(compiled(g, x)) == expected
    builtin = cache_of(openaclnn.find_operator("elu_backward")).call.call  # type: ignore[attr-defined]
    assert isinstance(builtin.__module__, str)


SHAPES = [(1,), (5,), (16,), (3, 7), (2, 3, 4), (40_000,), ()]


@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_sequences_of_calls(data: st.DataObject) -> None:
    """Sizes, numbers, layouts, dtypes, libraries, in place or not, in any order: each as the oracle says."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    operators = [op for op in families(SIZED) if op.workloads.PATTERN == "elementwise"]
    for _ in range(data.draw(st.integers(2, 8))):
        operator = data.draw(st.sampled_from(operators))
        dtype = data.draw(st.sampled_from(FLOATS))
        shape = data.draw(st.sampled_from(SHAPES))
        options: dict[str, Any] = {
            name: data.draw(st.sampled_from([1.0, 0.5, 2, -0.0]))
            for name in ("alpha", "scale")
            if name in operator.signature()
        }
        if "reduction" in operator.signature():
            options = {"reduction": data.draw(st.sampled_from(["none", "mean", "sum"]))}
        tensors = [p.python_name for p in operator.tensors if p.python_name != "out"]
        arrays = {
            name: np.asarray(np.round(2 * rng.normal(size=shape), 1)).astype(dtype.numpy)
            for name in tensors
        }
        if operator.reduction and data.draw(st.booleans()):
            arrays[tensors[0]] = arrays[tensors[0]].reshape(-1)[:1].reshape(())
        if data.draw(st.booleans()) and shape:
            arrays[tensors[-1]] = np.repeat(arrays[tensors[-1]], 2, -1)[..., ::2]
        copies = {name: array.copy() for name, array in arrays.items()}
        place = data.draw(st.sampled_from(["fresh", "given", "in place"]))
        out = np.empty(shape, dtype.numpy)
        first = tensors[-2] if len(tensors) > 1 else tensors[-1]
        if place == "in place" and arrays[first].shape == shape:
            out = arrays[first]
        given_arrays: dict[str, Any] = {**arrays} | ({} if place == "fresh" else {"out": out})
        whole = all(array.ndim for array in arrays.values())
        if data.draw(st.booleans()) and (whole or dtype is not BFLOAT16):  # as NumPy has its bits
            given_arrays = {name: to_torch(array) for name, array in given_arrays.items()}
            if place == "in place" and out is arrays[first]:
                given_arrays["out"] = given_arrays[first]
        got = plain(operator)(**given_arrays, **options)
        if not isinstance(got, np.ndarray):
            got = (
                got.view(torch.uint8 if dtype is BFLOAT16 else got.dtype).numpy().view(dtype.numpy)
            )
            got = got.reshape(shape)
        assert_matches_oracle(operator, {**copies, **options}, np.asarray(got))


def test_threads_that_call_beside_each_other(taken: list[bool]) -> None:
    expected = {}
    for size in range(1, 40):
        g, x = (tensor.numpy() for tensor in elu(size))
        for alpha in (1.0, 2.0):
            expected[size, alpha] = openaclnn.elu_backward(g, x, alpha=alpha).tobytes()
    failures: list[Any] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(300):
            size, alpha = int(rng.integers(1, 40)), float(rng.integers(1, 3))
            g, x = (tensor.numpy() for tensor in elu(size))
            if openaclnn.elu_backward(g, x, alpha=alpha).tobytes() != expected[size, alpha]:
                failures.append((size, alpha))
            if rng.random() < 0.02:
                cache_of(openaclnn.find_operator("elu_backward")).forget()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


NUMBERS = [
    1.0, -1.0, 0.0, -0.0, 0.5, 1.5, 2.0, 0.7, -0.7, 1e-3, 1e-5, 3e-6, 1e-20, 1e-40, 1e20, 3e38, 1e39, 2.0**-16,
    2.0**-60, 2.0**60, 2.0**-61, 0.1, 1 / 3, 1.6732632423543772, 1.0507009873554805, np.inf, -np.inf, np.nan,
    1.0000000001, 0.99999999, 4.0, 2.0**-20, 2, 2**60 + 2**36 + 1, 3e-8, -2e-8, 6.1e-5, -4.2e-5, 65519.0, -65521.0,
]  # fmt: skip


def both_ways(function: Any, *arrays: Any, **options: Any) -> Any:
    """The same bits, or the same refusal, from the fast path if it serves the call and from the slow path."""
    results: list[Any] = []
    for way in (contextlib.nullcontext(), dispatch.use_engine("cpu")):
        with way:
            try:
                results.append(function(*arrays, **options))
            except AclnnError as error:
                results.append(str(error))
    plain_bits = [
        result
        if isinstance(result, str)
        else bits(result)
        if isinstance(result, torch.Tensor)
        else result.tobytes()
        for result in results
    ]
    assert plain_bits[0] == plain_bits[1], str(options)
    return results[0]


@pytest.mark.parametrize("dtype", [FLOAT, BFLOAT16], ids=str)
def test_any_numbers_have_the_bits_of_the_slow_path(dtype: Any, taken: list[bool]) -> None:
    """What a kind derives from other numbers is what the slow path makes of them, refusals included."""
    rng = np.random.default_rng(37)
    g, x, y = ((3 * rng.normal(size=200)).astype(dtype.numpy) for _ in range(3))

    with np.errstate(all="ignore"):
        for _ in range(1500):
            alpha, scale, inner = (NUMBERS[rng.integers(len(NUMBERS))] for _ in range(3))
            options = {"alpha": alpha, "scale": scale, "input_scale": inner}
            if rng.integers(2):
                options["input_scale"] = 1.0
            both_ways(openaclnn.elu_backward, g, x, **options, is_result=bool(rng.integers(2)))
            both_ways(openaclnn.elu, x, **options)
        for beta in NUMBERS * 3:
            for reduction in ("none", "mean"):
                options = {"beta": beta, "reduction": reduction}
                both_ways(openaclnn.smooth_l1_loss_backward, g, x, y, **options)
                both_ways(openaclnn.smooth_l1_loss, x, y, **options)
        served = sum(taken)
    assert served > 2000


def test_elu_has_a_kind_for_all_numbers(taken: list[bool]) -> None:
    """Whatever the formula takes: three numbers that change at once, of either form of the gradient."""
    rng, (g, x) = np.random.default_rng(43), elu()
    for function, arrays, more in (
        (openaclnn.elu, (x,), {}),
        (openaclnn.elu_backward, (g, x), {"is_result": False}),
        (openaclnn.elu_backward, (g, x), {"is_result": True}),
    ):
        for _ in range(20):
            options = dict(
                zip(("alpha", "scale", "input_scale"), 1.01 + rng.random(3), strict=True)
            )
            both_ways(function, *arrays, **{k: float(v) for k, v in options.items()}, **more)
        taken.clear()
        both_ways(function, *arrays, alpha=1.5, scale=1.25, input_scale=1.125, **more)
        assert taken == [True, False]  # and on the slow path


@pytest.mark.parametrize(
    ("operator", "dtype"),
    [
        (op, dtype)
        for op in OPERATORS
        if isinstance(op, Activation) and op.numbers and not op.output.in_place
        for dtype in FLOATS
        if dtype in op.tensors[0].dtypes
    ],
    ids=str,
)
def test_any_number_of_a_formula_needs_no_new_plan(
    operator: Activation, dtype: DType, taken: list[bool]
) -> None:
    """And has the bits of the slow path, refusals included."""
    rng = np.random.default_rng(44)
    options = [parameter.python_name for parameter in operator.numbers]
    arguments = operator.workloads.make(rng, dtype, (40,), next(iter(operator.workloads.VARIANTS)))
    with np.errstate(all="ignore"):
        for _ in range(60):
            drawn = {name: NUMBERS[rng.integers(len(NUMBERS))] for name in options}
            both_ways(plain(operator), **arguments | drawn)
        taken.clear()
        for _ in range(3):
            drawn = {name: 1.01 + float(rng.random()) for name in options}
            both_ways(plain(operator), **arguments | drawn)
        assert taken[2:] == [True, False] * 2
        taken.clear()
        for whole in (3, 2**53 - 1, 5, 2**53 + 1, 2**60 + 1, -(2**53) - 1, 7):
            both_ways(plain(operator), **arguments | dict.fromkeys(options, whole))
    if dtype is FLOAT or not operator.rounds_options:
        assert taken[4:6] + taken[-2:] == [True, False] * 2


CLASS_NUMBERS: dict[str, list[Any]] = {
    "ignore_index": [-100, -101, 0, 1, 2, 4, 7, 300, -1, 255, 2**40, -(2**40), 2**63 - 1, -(2**63), 2**63, 2**70, 1.0],
    "label_smoothing": [
        0.0, 0.1, 0.25, -0.0, 1.0, 1, 0, 1e-50, 1e-40, 0.3, 0.75, 1 / 3, 1.0000001, -0.1, -1e-50, 2, np.nan, np.inf,
    ],
    "lse_square_scale_for_zloss": [
        0.0, 1e-4, 0.5, -0.0, 3.0, -2.5, 1e-50, 1e39, 2, 2**60 + 1, 1e-40, np.nan, np.inf, -np.inf, 1e-3,
    ],
}  # fmt: skip


def class_call(
    operator: Operator, rng: Any, dtype: Any, shape: Any, variant: str
) -> dict[str, Any]:
    arguments: dict[str, Any] = operator.workloads.make(rng, dtype, shape, variant)
    if "lse_for_zloss" in operator.signature():
        arguments |= {"lse_for_zloss": rng.normal(size=shape[:1]).astype(dtype.numpy)}
    return arguments


@by_library
@with_classes
@pytest.mark.in_turns
def test_any_numbers_and_sizes_of_classes(
    operator: Operator, library: str, dtype: Any, taken: list[bool]
) -> None:
    """In any order, hitting targets or not, zero or not, refused or not: the slow path's bits, and the oracle's numbers."""
    rng = np.random.default_rng(41)
    names = [name for name in CLASS_NUMBERS if name in operator.signature()]
    shapes = {
        "rows": [(6, 5), (40, 3), (3, 33)],
        "pixels": [(2, 3, 4, 5), (3, 9, 2, 7), (1, 12, 1, 3)],
    }
    served = asked = 0
    for variant in operator.workloads.VARIANTS:
        for _ in range(20):
            shape = shapes[operator.workloads.PATTERN][rng.integers(3)]
            case = class_call(operator, rng, dtype, shape, variant)
            for name in names:
                numbers = CLASS_NUMBERS[name]
                case[name] = numbers[rng.integers(3 if rng.random() < 0.5 else len(numbers))]
            arguments = (
                {name: to_torch(value) for name, value in case.items()}
                if library == "torch"
                else case
            )
            taken.clear()
            with np.errstate(all="ignore"):
                got = both_ways(plain(operator), **arguments)
            if isinstance(got, str):
                assert taken == [False, False]
                continue
            served, asked = served + taken[0], asked + 1
            if library == "numpy":
                with np.errstate(all="ignore"):
                    assert_matches_oracle(operator, case, got)
    assert asked > 30
    assert served > asked // 2


def test_numbers_of_classes_are_no_part_of_a_kind(taken: list[bool]) -> None:
    log_prob = np.log(np.full((6, 4), 0.25, np.float32))
    target, gradient = np.arange(6) % 4, np.ones((), np.float32)
    lse = np.ones(6, np.float32)

    def call(**options: Any) -> Any:
        return both_ways(
            openaclnn.cross_entropy_loss_grad,
            gradient,
            log_prob,
            target,
            lse_for_zloss=lse,
            **options,
        )

    expected = []
    for options, known in (
        ({}, False), ({"ignore_index": 3}, True), ({"ignore_index": 77}, True), ({"label_smoothing": 0.1}, False),
        ({"label_smoothing": 0.2, "ignore_index": 1}, True), ({"label_smoothing": 1.0}, True), ({}, True),
        ({"label_smoothing": 1.5}, False), ({"lse_square_scale_for_zloss": 0.5}, False),
        ({"lse_square_scale_for_zloss": 2.0}, True), ({"lse_square_scale_for_zloss": 1e-60}, True),
    ):  # fmt: skip
        taken.clear()
        call(**options)
        expected.append((options, known))
        assert taken[0] == known, expected


def test_an_integer_of_more_than_64_bits_is_not_minus_one(taken: list[bool]) -> None:
    arguments = (np.ones((), np.float32), np.zeros((2, 3), np.float32), np.array([-1, 2]))
    for _ in range(2):
        openaclnn.cross_entropy_loss_grad(*arguments, ignore_index=-1)
    for number in (2**70, -(2**70)):
        with pytest.raises(AclnnError, match="64-bit"):
            openaclnn.cross_entropy_loss_grad(*arguments, ignore_index=number)
    assert taken == [False, True, False, False]


def test_a_product_s_own_rules_for_numbers_hold() -> None:
    """A product of the process's own has no block around its calls."""
    program = (
        "import numpy as np, openaclnn\n"
        "given = np.ones((), np.float32), np.zeros((2, 3), np.float32), np.array([1, 2])\n"
        "for _ in range(3): openaclnn.cross_entropy_loss_grad(*given)\n"
        "for numbers in ({'label_smoothing': 0.5}, {'label_smoothing': 1.0}):\n"
        "    try: openaclnn.cross_entropy_loss_grad(*given, **numbers)\n"
        "    except openaclnn.AclnnError as error: print('refused', error)\n"
    )
    done = run_python(program, OPENACLNN_PRODUCT="a2")
    assert done.stdout.count("refused") == 2


def test_a_sized_runner_serves_whatever_calls_it(taken: list[bool]) -> None:
    """Lists instead of tuples, without numbers, and in a child whose workers are gone."""
    operator = openaclnn.find_operator("cross_entropy_loss_grad")
    case = operator.workloads.make(np.random.default_rng(3), FLOAT, (5000, 33), "mean")
    expected = openaclnn.cross_entropy_loss_grad(**case)
    record = cache_of(operator).entries[0].relies_on
    run = next(kept for kept in record if callable(kept) and kept not in (np.empty, results.empty))
    out = np.empty_like(case["log_prob"])
    places = [case[name].ctypes.data for name in ("target", "grad_loss", "log_prob")]
    for arguments in (
        (places, 0, [5000, 33], []), (tuple(places), 0, (5000, 33)), (places, 0, (5000, 33), (-100, 0.0, 0)),
    ):  # fmt: skip
        out.fill(7)
        addresses = type(arguments[0])([*arguments[0], out.ctypes.data])
        assert run(addresses, *arguments[1:]) == 0
        np.testing.assert_array_equal(out, expected)
    child = os.fork()
    if not child:
        same = openaclnn.cross_entropy_loss_grad(**case).tobytes() == expected.tobytes()
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_road_reads_tensors_once_one_came() -> None:
    """Until then it takes no tensor for an array; arrays keep their kinds."""
    function = make_plain_function(openaclnn.find_operator("elu_backward"))
    x = np.float32([[-1, 2], [0, -3]])
    tensor = torch.from_numpy(x.copy())
    expected = openaclnn.elu_backward(x, x)

    def on_the_road(array: Any) -> Any:
        return function.cache.call(array, array, None, 1.0, 1.0, 1.0, False, None)

    assert on_the_road(x) is NotImplemented
    function(x, x)
    np.testing.assert_array_equal(on_the_road(x), expected)
    assert on_the_road(tensor) is NotImplemented
    function(tensor, tensor)
    for array in (x, tensor, x[:1], tensor[:1]):
        np.testing.assert_array_equal(np.asarray(on_the_road(array)), expected[: len(array)])


def test_dtypes_are_told_by_their_objects() -> None:
    """Two that are equal are two kinds, and both have a fast path."""
    x = np.linspace(-2, 2, 12, dtype=np.float32)
    other = x.view(np.dtype("float32", metadata={"of": "another"}))
    assert other.dtype is not x.dtype
    openaclnn.elu.cache.forget()
    for array in (x, other, x, other, x, x, other, other):
        np.testing.assert_array_equal(openaclnn.elu(array), openaclnn.elu(x))
    assert len(openaclnn.elu.cache.entries) == 2


@pytest.mark.parametrize("on_road", [True, False])
def test_options_that_are_equal_may_be_others(on_road: bool) -> None:
    """Another number, or none."""
    x = np.array([-1.0, 2.0, -3.0], np.float32)
    for first, second in ((0.0, -0.0), (-0.0, 0.0), (1, 1.0), (True, 1)):
        for scale in (first, first, first, second, second, second, first, second):
            if not on_road:
                openaclnn.elu.cache.forget()
            with np.errstate(all="ignore"):
                wanted = openaclnn.elu.operator.oracle(x, scale=scale).astype(np.float32)
            result = openaclnn.elu(x, scale=scale)
            np.testing.assert_array_equal(np.signbit(result), np.signbit(wanted))
            np.testing.assert_allclose(result, wanted, rtol=1e-6)
    for is_result in (False, False, 0, 0, 0.0, 0.0, True, True, 1, 1, 1.0, 1.0, False, True):
        if not on_road:
            openaclnn.elu_backward.cache.forget()
        result = openaclnn.elu_backward(x, x, is_result=is_result)
        wanted = openaclnn.elu_backward(x, x, is_result=bool(is_result))
        np.testing.assert_array_equal(result, wanted)


def test_an_option_that_may_change_is_read_in_each_call() -> None:
    x, target = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4), np.zeros(3, np.int64)
    smoothing = np.zeros((), np.float64)
    for _ in range(3):
        openaclnn.cross_entropy_loss(x, target, label_smoothing=smoothing)
    smoothing[...] = 7
    with pytest.raises(AclnnError, match="labelSmoothing"):
        openaclnn.cross_entropy_loss(x, target, label_smoothing=smoothing)


@pytest.mark.parametrize(
    "status", [callers.RAISED, callers.RAISED_LATE, callers.NOT_READY, 0], ids=str
)
def test_a_runner_that_raised_in_words_is_asked_once_more_unless_all_was_done(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it raised is raised by its builtin then; what was raised behind the work is nobody's."""
    asked = []

    def fall_back(*call: Any) -> int:
        asked.append(call)
        return 0

    def emit(code: Any, arguments: Any) -> None:
        if status in (callers.RAISED, callers.RAISED_LATE):
            code.call_symbol("test_no_memory", "i64")
        code.leave(code.integer(status))

    llvm.add_symbol("test_no_memory", address_of_function(ctypes.pythonapi.PyErr_NoMemory))
    block = callers.CallBlock(callers.CALL_HEADER, callers.SHAPE | callers.FREE_NUMBERS)
    run = block.callable(f"test.in_words.{status}", emit, fall_back)

    def choose(plan: Any, device: str) -> Any:
        choice = dispatch.choose_engine(plan, device)
        return choice._replace(flat=None, dynamic_shapes=lambda plan: run)

    monkeypatch.setattr(calls_plain, "choose_engine", choose)
    elu, x = make_plain_function(openaclnn.elu.operator), np.ones((3, 4), np.float32)
    for _ in range(2):
        if status == callers.RAISED:
            with pytest.raises(MemoryError):
                elu(x)
        else:
            elu(x)
    shapes = [call[2] for call in asked]
    assert shapes == ([(3, 4)] * 2 if status == callers.NOT_READY else [])
