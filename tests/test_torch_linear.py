"""`openaclnn.torch.functional.linear_cross_entropy` beside the cross entropy of a linear layer's logits: values, gradients, memory, graphs."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import torch.nn.functional as theirs

import openaclnn
from conftest import assert_matches_sample
from openaclnn.calls.plain import make_plain_function
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import FLOATS
from openaclnn.core.interface import Kind
from openaclnn.operators.linear import SCALED, SOFT_CAP, SOFT_CAP_BACKWARD
from openaclnn.torch import functional, linear, nn, served, use

ROWS, FEATURES, CLASSES = 37, 24, 101
torch.manual_seed(5)
X, W, B = torch.randn(ROWS, FEATURES), torch.randn(CLASSES, FEATURES) / 3, torch.randn(CLASSES)
TARGET = torch.randint(0, CLASSES, (ROWS,))
TARGET[::5] = -100
SHARES, TOKENS = torch.rand(CLASSES) + 0.5, torch.rand(ROWS)
CASES: dict[str, dict[str, Any]] = {
    "mean": {},
    "sum": {"reduction": "sum"},
    "none": {"reduction": "none"},
    "weights": {"weight": SHARES},
    "weights, z-loss": {"weight": SHARES, "zloss_scale": 0.1},
    "smoothing": {"label_smoothing": 0.1, "weight": SHARES, "ignore_index": -100},
    "z-loss": {"zloss_scale": 0.1},
    "soft cap": {"softcap": 3.0},
    "tokens": {"token_weight": TOKENS},
    "tokens, none": {"token_weight": TOKENS, "reduction": "none", "softcap": 2.0},
    "denominator": {"denominator": 64.0, "token_weight": TOKENS, "zloss_scale": 0.1},
}


def expected(
    x: Any, w: Any, b: Any, target: Any = TARGET, *, softcap: float = 0.0, token_weight: Any = None, denominator: Any = None,
    reduction: str = "mean", weight: Any = None, **more: Any,
) -> Any:  # fmt: skip
    """From the logits, in the inputs' dtype, as the documentation says it."""
    logits = theirs.linear(x, w, b)
    logits = torch.tanh(logits / softcap) * softcap if softcap else logits
    weight = None if weight is None else weight.to(x.dtype)
    if token_weight is None and denominator is None:
        return functional.cross_entropy(logits, target, weight, reduction=reduction, **more)
    losses = functional.cross_entropy(logits, target, weight, reduction="none", **more)
    tokens = torch.ones(len(x)) if token_weight is None else token_weight
    losses = losses * tokens.to(x.dtype)
    if reduction == "mean":
        ignored = more.get("ignore_index", -100)
        return losses.sum() / (denominator or tokens[target != ignored].sum())
    return losses


def run(function: Any, dtype: torch.dtype, source: torch.dtype, **options: Any) -> list[Any]:
    """The loss and its gradients, computed in a dtype of numbers that another one can hold."""
    x, w, b = (tensor.clone().to(source).to(dtype).requires_grad_() for tensor in (X, W, B))
    loss = function(x, w, b, **options)
    outer = torch.linspace(0.5, 2, loss.numel(), dtype=dtype).reshape(loss.shape).to(source)
    return [loss.detach(), *torch.autograd.grad(loss, (x, w, b), outer.to(dtype))]


def ours(x: Any, w: Any, b: Any, target: Any = TARGET, **options: Any) -> Any:
    return functional.linear_cross_entropy(x, w, target, linear_bias=b, **options)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("rows", [None, 1, 8])
@pytest.mark.in_turns
def test_values_and_gradients(name: str, rows: int | None) -> None:
    """In chunks of any size they are those of the logits, in FLOAT and, hardly further off than PyTorch's, in BFLOAT16."""
    options = CASES[name]
    for dtype in (torch.float32, torch.bfloat16):
        chunk = {} if rows is None else {"memory": rows * CLASSES * dtype.itemsize}
        results = run(ours, dtype, dtype, **options, **chunk)
        plain = run(expected, dtype, dtype, **options)
        exact = run(expected, torch.float64, dtype, **options)
        for result, other, known in zip(results, plain, exact, strict=True):
            assert result.dtype is dtype
            error, allowed = ((each.double() - known).abs().max() for each in (result, other))
            assert error <= 1.25 * allowed + 2 * torch.finfo(dtype).eps * known.abs().max()


@pytest.mark.parametrize("instructions", [True, False])
def test_16_bits_are_no_further_from_float64_than_pytorchs(
    instructions: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the norm of what they are off, with the CPU's products of 16 bits or with those of FLOAT; chunks are added up without a rounding in between."""
    monkeypatch.setattr(linear, "_has_instructions", lambda dtype: instructions)
    monkeypatch.setattr(linear, "BLOCK", 10_000)
    numbers = torch.Generator().manual_seed(3)
    rows, features, classes = 150, 16, 251
    x, w, b = (torch.randn(shape, generator=numbers) for shape in ((rows, features), (classes, features), (classes,)))  # fmt: skip
    target = torch.randint(0, classes, (rows,), generator=numbers)
    target[::7] = -100

    def of_logits(
        x: Any, w: Any, target: Any, linear_bias: Any, softcap: float = 0.0, **more: Any
    ) -> Any:
        logits = theirs.linear(x, w, linear_bias)
        logits = torch.tanh(logits / softcap) * softcap if softcap else logits
        return theirs.cross_entropy(logits, target, **more)

    sides = functional.linear_cross_entropy, of_logits
    for dtype, options in itertools.product(
        (torch.bfloat16, torch.float16),
        ({}, {"reduction": "sum"}, {"reduction": "none"}, {"label_smoothing": 0.1}, {"softcap": 5.0}),
    ):  # fmt: skip

        def gradients(function: Any, computed: torch.dtype) -> Any:
            learnt = [(tensor / 6 if tensor is w else tensor).to(dtype).to(computed).requires_grad_() for tensor in (x, w, b)]  # noqa: B023  # fmt: skip
            loss = function(*learnt[:2], target, linear_bias=learnt[2], **options)  # noqa: B023
            outer = torch.linspace(0.5, 2, loss.numel()).to(dtype).to(computed)  # noqa: B023
            return torch.autograd.grad(loss, learnt, outer.reshape(loss.shape))

        exact = gradients(sides[1], torch.float64)
        for gradient, other, known in zip(*(gradients(side, dtype) for side in sides), exact, strict=True):  # fmt: skip
            error, allowed = ((each.double() - known).norm() for each in (gradient, other))
            assert error <= 1.01 * allowed


@pytest.mark.parametrize("name", CASES)
def test_classes_filled_up(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: columns that are no classes change nothing."""
    known = run(ours, torch.float32, torch.float32, **CASES[name])
    monkeypatch.setattr(linear, "_pitch", lambda classes, aligned: classes + 3)
    results = run(ours, torch.float32, torch.float32, **CASES[name])
    for result, other in zip(results, known, strict=True):
        torch.testing.assert_close(result, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["z-loss", "weights, z-loss", "denominator"])
def test_the_part_of_the_z_loss(name: str) -> None:
    """It is that of the logits' cross entropy, has no gradient, and is a part of graphs, too; without a z-loss it is 0."""
    options, x = CASES[name], X.clone().requires_grad_()

    def both(x: Any, **more: Any) -> Any:
        return functional.linear_cross_entropy(x, W, TARGET, return_z_loss=True, **more)

    for reduction in ("mean", "none"):
        known = functional.cross_entropy(theirs.linear(X, W), TARGET, return_z_loss=True, reduction=reduction, **options)  # fmt: skip
        for function in (both, torch.compile(both, fullgraph=True, backend="aot_eager")):
            parts = function(x, reduction=reduction, **options)
            torch.testing.assert_close(parts, known)
            assert [part.requires_grad for part in parts] == [True, False]
    assert both(X)[1] == 0


def test_only_a_chunk_of_logits_is_in_memory() -> None:
    rows, classes = 512, 1003
    x, w = (
        torch.randn(rows, 16, requires_grad=True),
        torch.randn(classes, 16, requires_grad=True),
    )
    target = torch.randint(0, classes, (rows,))
    for options, allowed in (({}, rows // 4), ({"memory": 32 * classes * 4}, 32)):
        cpu = [torch.profiler.ProfilerActivity.CPU]
        with torch.profiler.profile(activities=cpu, profile_memory=True) as profile:
            functional.linear_cross_entropy(x, w, target, **options).backward()
        largest = max(event.self_cpu_memory_usage for event in profile.events())
        assert largest == max(allowed * classes, classes * 16) * 4


def test_gradients_are_asked_for_again_or_not_at_all() -> None:
    x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
    loss = functional.linear_cross_entropy(x, w, TARGET, memory=4 * CLASSES * 4)
    first = torch.autograd.grad(loss, (x, w), retain_graph=True)
    again = torch.autograd.grad(2 * loss, (x, w))
    assert all(torch.equal(2 * a, b) for a, b in zip(first, again, strict=True))
    (alone,) = torch.autograd.grad(functional.linear_cross_entropy(x, W, TARGET), x)
    torch.testing.assert_close(alone, first[0])
    with torch.no_grad():
        assert functional.linear_cross_entropy(x, w, TARGET).grad_fn is None
    actual, known = (
        torch.autograd.grad(
            torch.autograd.grad(f(x, w), x, create_graph=True)[0].square().sum(), (x, w)
        )
        for f in (
            lambda x, w: functional.linear_cross_entropy(x, w, TARGET),
            lambda x, w: theirs.cross_entropy(x @ w.t(), TARGET),
        )
    )
    for a, b in zip(actual, known, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_graphs(reduction: str) -> None:
    """One graph when PyTorch compiles it, with other numbers of rows as well; and an operator when it exports."""
    w = W.clone().requires_grad_()

    def loss(x: Any, target: Any) -> Any:
        return functional.linear_cross_entropy(x, w, target, reduction=reduction).sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager", dynamic=True)
    for rows in (ROWS, 12):
        actual, known = (
            torch.autograd.grad(f(X[:rows], TARGET[:rows]), w)[0] for f in (compiled, loss)
        )
        torch.testing.assert_close(actual, known)
    module = nn.LinearCrossEntropyLoss(FEATURES, CLASSES, reduction=reduction, zloss_scale=0.1)
    exported = torch.export.export(module, (X, TARGET))
    assert "openaclnn.linear_cross_entropy" in str(exported.graph)
    torch.testing.assert_close(exported.module()(X, TARGET), module(X, TARGET))


def test_shapes_modules_and_casts() -> None:
    images = X[:36].reshape(3, 4, 3, FEATURES)
    target = TARGET[:36].reshape(3, 4, 3)
    loss = functional.linear_cross_entropy(images, W, target, reduction="none")
    known = theirs.cross_entropy(theirs.linear(X[:36], W), TARGET[:36], reduction="none")
    torch.testing.assert_close(loss, known.reshape(3, 4, 3))
    torch.testing.assert_close(
        functional.linear_cross_entropy(X[1], W, TARGET[1]),
        theirs.cross_entropy(W @ X[1], TARGET[1]),
    )
    module = nn.LinearCrossEntropyLoss(FEATURES, 10, out_features=(3,), bias=True)
    several = module(X, torch.randint(0, 10, (ROWS, 3)))
    assert several.shape == () and several.requires_grad  # noqa: PT018
    shares = torch.softmax(torch.randn(ROWS, CLASSES), 1)
    torch.testing.assert_close(
        functional.linear_cross_entropy(X, W, shares), theirs.cross_entropy(X @ W.t(), shares)
    )
    if hasattr(torch.nn, "LinearCrossEntropyLoss"):
        other = torch.nn.LinearCrossEntropyLoss(FEATURES, CLASSES, bias=True, label_smoothing=0.1)
        same = nn.LinearCrossEntropyLoss(FEATURES, CLASSES, bias=True, label_smoothing=0.1)
        same.load_state_dict(other.state_dict())
        torch.testing.assert_close(same(X, TARGET), other(X, TARGET))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = functional.linear_cross_entropy(X, W, TARGET)
    assert cast.dtype is torch.float32
    torch.testing.assert_close(cast, theirs.cross_entropy(X @ W.t(), TARGET), rtol=1e-2, atol=0)
    grad = torch.func.grad(lambda x: functional.linear_cross_entropy(x, W, TARGET))(X)
    leaf = X.clone().requires_grad_()
    functional.linear_cross_entropy(leaf, W, TARGET).backward()
    torch.testing.assert_close(grad, leaf.grad)
    assert served()["functional.linear_cross_entropy"].ours > 0


def test_refusals() -> None:
    with pytest.raises(RuntimeError, match=r"in_features\), got 24 and 23"):
        functional.linear_cross_entropy(X, W[:, :23], TARGET)
    with pytest.raises(RuntimeError, match=r"token_weight of the shape of target, \(37,\), got \(36,\)"):  # fmt: skip
        functional.linear_cross_entropy(X, W, TARGET, token_weight=TOKENS[:36])
    with pytest.raises(RuntimeError, match="memory to be a number of bytes above 0, got 0"):
        functional.linear_cross_entropy(X, W, TARGET, memory=0)
    with pytest.raises(RuntimeError, match="linear_bias shape"):
        functional.linear_cross_entropy(X, W, TARGET, linear_bias=B[:5])
    with pytest.raises(IndexError, match="out of bounds"):
        functional.linear_cross_entropy(X, W, TARGET + CLASSES)


@pytest.mark.parametrize("operator", [SCALED, SOFT_CAP, SOFT_CAP_BACKWARD], ids=lambda op: op.name)
def test_what_is_done_to_a_chunk(operator: Operator) -> None:
    """On every engine for CPU memory, in every dtype, with a place for the result that is one of the inputs."""
    rng, (sample,) = np.random.default_rng(3), operator.samples
    function = make_plain_function(operator)
    for engine in ("numpy", "cpu"):
        with openaclnn.use_engine(engine):
            assert_matches_sample(operator, sample, function(**sample.arrays()))
            for dtype in FLOATS:
                tensors = [p.python_name for p in operator.parameters if p.kind is Kind.TENSOR]
                case = {
                    name: (3 * rng.standard_normal((7, 33))).astype(dtype.numpy) for name in tensors
                }
                known = operator.oracle(**case)
                assert function(**case, out=case[tensors[0]]) is case[tensors[0]]
                error = np.abs(case[tensors[0]].astype(np.float64) - known)
                assert (error <= 2 * float(ml_dtypes.finfo(dtype.numpy).eps) * np.abs(known)).all()


@pytest.mark.skipif(not hasattr(theirs, "linear_cross_entropy"), reason="PyTorch has no such function")  # fmt: skip
def test_in_place_of_pytorchs() -> None:
    """Under `use` PyTorch's function is ours where that serves, in graphs too, and PyTorch's again behind it."""
    function, x = theirs.linear_cross_entropy, X.clone().requires_grad_()
    known = function(x, W, TARGET)
    (gradient,) = torch.autograd.grad(known, x)
    with use(only="linear_cross_entropy"):
        assert theirs.linear_cross_entropy is not function
        loss = theirs.linear_cross_entropy(x, W, TARGET)
        torch.testing.assert_close(torch.autograd.grad(loss, x)[0], gradient)
        compiled = torch.compile(lambda *arguments: theirs.linear_cross_entropy(*arguments), fullgraph=True, backend="aot_eager")  # fmt: skip
        torch.testing.assert_close(compiled(x, W, TARGET), known)
        wide = theirs.linear_cross_entropy(X.double(), W.double(), TARGET)
        assert torch.equal(wide, function(X.double(), W.double(), TARGET))
        with pytest.raises(RuntimeError, match="dimensionality 1 or 2, got 3"):
            theirs.linear_cross_entropy(X[None], W, TARGET[None])
        count = served()["linear_cross_entropy"]
        assert (count.calls, count.ours, count.reasons["torch.float64"]) == (3, 1, 1)
    assert theirs.linear_cross_entropy is function
