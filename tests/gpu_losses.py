"""Losses on a real GPU: `python -m pytest tests/gpu_losses.py` (a name pytest does not collect)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import openaclnn
from conftest import assert_matches_oracle, assert_near_oracle, each, outliers, places_for
from openaclnn import acl, aclnn
from openaclnn.calls.plain import make_plain_function
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import FLOATS, DType
from openaclnn.core.interface import Kind
from openaclnn.operators.logits import CROSS_ENTROPY, CROSS_ENTROPY_GRAD
from workloads import cases_of
from workloads.logits import cases, grad_of

loss_of, gradient_of = (
    make_plain_function(operator) for operator in (CROSS_ENTROPY, CROSS_ENTROPY_GRAD)
)
dtypes = pytest.mark.parametrize("dtype", FLOATS, ids=str)
LOSSES = ("l1_loss", "smooth_l1_loss", "nll_loss", "nll_loss2d", "nll_loss_backward", "cross_entropy_loss")  # fmt: skip


def to_device(value: Any) -> Any:
    """Arrays as CUDA tensors of the same dtype; what is no array stays."""
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype.name == "bfloat16":
        return torch.from_numpy(value.astype(np.float32)).bfloat16().cuda()
    return torch.from_numpy(value.copy()).cuda()


def to_host(results: Any, dtype: DType) -> Any:
    """As arrays again; those of 16 bits as their own dtype."""
    arrays = []
    for result in each(results):
        kind = np.float32 if result.dtype == torch.float32 else dtype.numpy
        arrays.append(result.float().cpu().numpy().astype(kind))
    return tuple(arrays) if isinstance(results, tuple) else arrays[0]


def on_device(function: Callable[..., Any], arguments: dict[str, Any], dtype: DType) -> Any:
    moved = {name: to_device(value) for name, value in arguments.items()}
    first = function(**moved)
    for result, again in zip(each(first), each(function(**moved)), strict=True):
        assert (
            torch.equal(*(each.reshape(-1).view(torch.uint8) for each in (result, again)))
            or result.isnan().any()
        )
    return to_host(first, dtype)


@dtypes
@pytest.mark.parametrize(
    "shape",
    [
        (9, 7), (1, 1), (300, 4), (5, 1024), (3, 1029), (64, 32000), (2, 50257), (700, 5001), (2, 21, 9, 15),
        (4, 19, 129, 129), (2, 150, 64, 64), (1, 3, 1 << 20),
    ],
)  # fmt: skip
def test_cross_entropy_from_logits(dtype: DType, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    for case in cases(rng, dtype, shape):
        gradient = grad_of(rng, case)
        assert_matches_oracle(CROSS_ENTROPY, case, on_device(loss_of, case, dtype))
        assert_matches_oracle(CROSS_ENTROPY_GRAD, gradient, on_device(gradient_of, gradient, dtype))


@dtypes
@pytest.mark.parametrize("name", LOSSES)
def test_losses(name: str, dtype: DType) -> None:
    operator = openaclnn.find_operator(name)
    for arguments in cases_of(operator, np.random.default_rng(7), dtype):
        got = on_device(getattr(openaclnn, name), arguments, dtype)
        assert_matches_oracle(operator, arguments, got)


def drawn_loss(operator: Any, dtype: DType, draw: Any, turn: int, large: bool) -> dict[str, Any]:
    """Arguments of a loss: sizes and numbers that come up once."""
    work, most = operator.workloads, (2000, 3000, 40) if large else (40, 300, 6)
    sizes = {"elementwise": most[:2], "rows": most[:2], "pixels": (most[2],) * 4}[work.PATTERN]
    shape = tuple(int(size) for size in draw.integers(2, sizes))
    names = [*work.VARIANTS]
    arguments = work.make(draw, dtype, shape, names[turn % 3 % len(names)])
    arguments |= {name: 1 + turn % 2 for name in ("ignore_index",) if name in operator.signature()}
    arguments |= {name: 0.5 + turn / 64 for name in ("beta",) if name in operator.signature()}
    if "lse_square_scale_for_zloss" in operator.signature():
        arguments |= {"lse_square_scale_for_zloss": turn / 64 + 0.01, "return_zloss": turn % 2 == 0}
    return arguments


def turned(value: torch.Tensor, draw: Any) -> torch.Tensor:
    """The same with its axes in another order in memory, and gaps."""
    if value.ndim == 0:
        return value
    order = draw.permutation(value.ndim).tolist()
    steps = [int(step) for step in draw.integers(1, 3, value.ndim)]
    memory = value.new_zeros([value.shape[axis] * steps[axis] for axis in order])
    view = memory[tuple(slice(None, None, steps[axis]) for axis in order)]
    view = view.permute(*np.argsort(order).tolist())
    view.copy_(value)
    return view


@dtypes
@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("lying", ["dense", "large", "shifted", "anyhow"])
def test_losses_of_any_size_numbers_and_layout(name: str, dtype: DType, lying: str) -> None:
    """The fast path gives the slow path's bits, and what the oracle says."""
    operator, draw = openaclnn.find_operator(name), np.random.default_rng(len(name))
    call = getattr(openaclnn, name)
    for turn in range(8 if lying == "large" else 24):
        arguments = drawn_loss(
            operator, dtype, draw, turn, lying in ("large", "shifted") and turn < 8
        )
        moved = {key: to_device(value) for key, value in arguments.items()}
        for key, value in moved.items():
            if isinstance(value, torch.Tensor) and lying == "anyhow":
                moved[key] = turned(value, draw)
            elif isinstance(value, torch.Tensor) and lying == "shifted" and value.numel() > 1:
                moved[key] = value.new_zeros(value.numel() + 1)[1:].view(value.shape).copy_(value)
        got = call(**moved)
        with openaclnn.use_engine("triton"):
            expected = call(**moved)
        for value, known in zip(each(got), each(expected), strict=True):
            bits, others = (one.reshape(-1).view(torch.uint8) for one in (value, known))
            assert torch.equal(bits, others) or value.isnan().any(), (turn, value, known)
        if turn % 4 == 0:
            assert_matches_oracle(operator, arguments, to_host(got, dtype))


@dtypes
@pytest.mark.parametrize("number", [3, 4, 9])
def test_images_of_any_size(number: int, dtype: DType) -> None:
    """They are of one kind for each number of axes, and the fast path gives the slow path's bits."""
    for function in (loss_of, gradient_of):
        function.cache.forget()
    for shape in (
        (2, 5, 3, 4), (1, 19, 130, 77), (3, 5, 16, 48), (4, 6, 1, 1), (2, 7, 300), (5, 33, 256), (3, 1, 40), (2, 4, 1024, 1024),
        (4, 3, 16, 48),
    ):  # fmt: skip
        rng = np.random.default_rng(3)
        case = [*cases(rng, dtype, shape)][number]
        for function, arguments in ((loss_of, case), (gradient_of, grad_of(rng, case))):
            moved = {name: to_device(value) for name, value in arguments.items()}
            with openaclnn.use_engine("triton"):
                expected = function(**moved)
            for _ in range(2):  # by Python, then by machine code
                for result, known in zip(each(function(**moved)), each(expected), strict=True):
                    bits, others = (one.reshape(-1).view(torch.uint8) for one in (result, known))
                    assert torch.equal(bits, others), shape
    assert len(loss_of.cache.entries) == len(gradient_of.cache.entries) == 2


@dtypes
@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("name", ["nll_loss", "nll_loss2d", "cross_entropy_loss"])
def test_given_outputs_of_any_size(name: str, reduction: str, dtype: DType) -> None:
    """Into `out=` and in two phases: the bits of the outputs that the call makes itself, one way after the other."""
    operator = openaclnn.find_operator(name)
    for size in (6, 40, 200, 31):
        shape = (2, 3, size, 3) if operator.workloads.PATTERN == "pixels" else (size, 5)
        variant = next(iter(operator.workloads.VARIANTS))
        arguments = operator.workloads.make(np.random.default_rng(size), dtype, shape, variant)
        arguments["reduction"] = reduction
        moved = {key: to_device(value) for key, value in arguments.items()}
        expected = getattr(openaclnn, name)(**moved)
        places = [np.full_like(output, 0.1875) for output in places_for(operator, arguments)]
        for write in (_into, _in_two_phases):
            out = tuple(map(to_device, places))
            write(operator, moved, out)
            for output, wanted, before in zip(out, expected, places, strict=True):
                known = to_device(before) if wanted is None else wanted
                assert torch.equal(output, known), (write.__name__, size)


def _into(operator: Operator, arguments: dict[str, Any], out: tuple[Any, ...]) -> None:
    got = getattr(openaclnn, operator.python_name)(**arguments, out=out)
    assert all(output is place for output, place in zip(got, out, strict=True))


def _in_two_phases(operator: Operator, arguments: dict[str, Any], out: tuple[Any, ...]) -> None:
    values, outputs = operator.plain_defaults | arguments, iter(out)
    passed = []
    for parameter in operator.parameters:
        value = next(outputs) if parameter.kind is Kind.OUTPUT else values[parameter.python_name]
        number = parameter.choices and parameter.kind is Kind.INT64
        passed.append(parameter.choices.index(value) if number else value)
    status, size, executor = getattr(aclnn, f"{operator.name}GetWorkspaceSize")(*passed)
    assert status == 0, aclnn.aclGetRecentErrMsg()
    assert getattr(aclnn, operator.name)(None, size, executor, None) == 0
    assert acl.aclrtSynchronizeStream(None) == 0
    torch.cuda.synchronize()


def test_confident_rows_keep_their_digits() -> None:
    for classes, gap in itertools.product((2, 40, 5000, 50257), (3.0, 20.0, 60.0)):
        place = np.array([0, 1, classes // 2, classes - 1])
        x = np.zeros((4, classes), np.float32)
        x[np.arange(4), place] = gap
        case = {"input": x, "target": place, "reduction": "none"}
        exact = CROSS_ENTROPY.oracle(**case)
        loss, top, rest = (output.cpu().numpy() for output in loss_of(**dict(zip(case, map(to_device, case.values()), strict=True))))  # fmt: skip
        np.testing.assert_allclose(loss, exact.loss, rtol=1e-5)
        gradient = case | {"grad_loss": np.ones(4, np.float32), "top": top, "rest": rest}
        actual = gradient_of(**{name: to_device(value) for name, value in gradient.items()})
        lost = np.expm1(-rest.astype(np.float64))
        np.testing.assert_allclose(actual.cpu().numpy()[np.arange(4), place], lost, rtol=1e-6)


@dtypes
@pytest.mark.parametrize("classes", [2, 3, 7, 16, 33, 1000, 5001, 32000, 128256])
def test_classes_far_from_the_others_are_smoothed(dtype: DType, classes: int) -> None:
    """Masked classes, in rows and in pixels."""
    whole = openaclnn.find_operator("cross_entropy_loss")
    for case in outliers(dtype, classes):
        assert_near_oracle(CROSS_ENTROPY, case, on_device(loss_of, case, dtype)[0])
        inputs = {name: to_device(value) for name, value in case.items()}
        loss = openaclnn.cross_entropy_loss(**inputs).loss
        assert_near_oracle(whole, case, to_host(loss, dtype))
        image = np.ascontiguousarray(case["input"].T)[None]
        pixels = case | {"input": image, "target": case["target"][None]}
        assert_near_oracle(CROSS_ENTROPY, pixels, on_device(loss_of, pixels, dtype)[0])


def test_the_gradient_may_be_written_over_the_logits_and_nothing_of_their_size_is_kept() -> None:
    x = torch.randn(2048, 32000, device="cuda", dtype=torch.bfloat16)
    target, one = (
        torch.randint(0, 32000, (2048,), device="cuda"),
        torch.ones((), device="cuda", dtype=x.dtype),
    )
    loss_of(x, target)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    _, top, rest = loss_of(x, target)
    expected = gradient_of(one, x[:4], top[:4], rest[:4], target[:4], reduction="sum")
    assert gradient_of(one, x, top, rest, target, reduction="sum", out=x) is x
    assert torch.equal(x[:4], expected)
    assert torch.cuda.max_memory_allocated() - before < x.nbytes // 50


def test_captured_in_a_graph() -> None:
    x = torch.randn(64, 5001, device="cuda")
    target, one = torch.randint(0, 5001, (64,), device="cuda"), torch.ones((), device="cuda")

    def both() -> Any:
        loss, top, rest = loss_of(x, target)
        return loss, gradient_of(one, x, top, rest, target)

    both()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = both()
    x.copy_(torch.randn_like(x))
    graph.replay()
    for replayed, known in zip(captured, both(), strict=True):
        assert torch.equal(replayed, known)
