"""Log-probabilities, entropies, divergences and cross entropy against shares of classes: operators beside their float64 oracles, functions beside PyTorch's
operations, from logits and, chunk by chunk, from a linear layer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as theirs

import openaclnn
from conftest import assert_matches_oracle, expected_of, laid_out
from openaclnn.calls.plain import make_plain_function
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import BFLOAT16, FLOAT, FLOAT16, INT64
from openaclnn.core.interface import Kind
from openaclnn.operators.log_probs import DISTILLATION, LOG_PROBS
from openaclnn.torch import functional, linear, nn, served, use
from workloads import EVERYTHING

OPERATORS = (*LOG_PROBS, *DISTILLATION)
PAIRS = list(zip(OPERATORS[::2], OPERATORS[1::2], strict=True))
pairs = pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0].name)
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"excess": -0.5, "beta": 1.0, "keep": 0.75, "spread": 0.015625, "ignore_index": 3},
    {"excess": 1.5, "beta": 0.25},
)

# Each dtype with one kind of options: every kind is code of its own, which has to be compiled.
CASES = (
    ((3, 2, 7), FLOAT16, OPTIONS[0]), ((1,), FLOAT, OPTIONS[1]), ((4, 130), FLOAT, OPTIONS[1]), ((5, 1), BFLOAT16, OPTIONS[2]),
    ((2, 40000), BFLOAT16, OPTIONS[2]),
)  # fmt: skip


def drawn(operator: Operator, shape: tuple[int, ...], dtype: Any, options: dict[str, Any]) -> dict[str, Any]:  # fmt: skip
    """Arguments of an operator, but for what its forward gives."""
    rng, case = np.random.default_rng(sum(shape)), dict[str, Any]()
    for parameter in operator.parameters:
        name = parameter.python_name
        if name == "target":
            case[name] = rng.integers(0, shape[-1], shape[:-1]).astype(INT64.numpy)
            case[name].reshape(-1)[::3] = options.get("ignore_index", -100)
        elif name == "weight":
            case[name] = rng.random(shape[-1]).astype(np.float32) + np.float32(0.5)
        elif name == "share":
            share = rng.random(shape)
            case[name] = (share / share.sum(-1, keepdims=True)).astype(dtype.numpy)
        elif name in ("input", "teacher"):
            case[name] = (3 * rng.standard_normal(shape)).astype(dtype.numpy)
        elif name.startswith("grad_"):
            case[name] = rng.standard_normal(shape[:-1]).astype(np.float32)
        elif parameter.kind is not Kind.OUTPUT and name in options:
            case[name] = options[name]
    return case


def gradients_case(pair: tuple[Operator, Operator], case: dict[str, Any], results: Any, dtype: Any) -> dict[str, Any]:  # fmt: skip
    backward = pair[1]
    grads = drawn(backward, case["input"].shape, dtype, {})
    names = [p.python_name for p in backward.parameters if p.kind is not Kind.OUTPUT]
    return {name: value for name, value in {**grads, **case, **results._asdict()}.items() if name in names}  # fmt: skip


@pairs
@pytest.mark.in_turns
def test_operators_match_their_oracles(pair: tuple[Operator, Operator]) -> None:
    """On every engine for CPU memory: rows of all lengths, one with blocks on the CPU among them, and those that lie with gaps."""
    functions = [make_plain_function(operator) for operator in pair]
    for engine in ("numpy", "cpu"):
        with openaclnn.use_engine(engine):
            for operator, function in zip(pair, functions, strict=True):
                (sample,) = operator.samples
                exact, known = operator.reference(**sample.arrays()), expected_of(sample, np.float64)  # fmt: skip
                for got, wanted in zip(*(one if isinstance(one, tuple) else (one,) for one in (exact, known)), strict=True):  # fmt: skip
                    np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-7)
                assert_matches_oracle(operator, sample.arrays(), function(**sample.arrays()))
            for shape, dtype, options in CASES[engine == "cpu" :]:
                case = drawn(pair[0], shape, dtype, options)
                if shape == (4, 130):
                    case["input"] = laid_out(case["input"], "gaps in rows")[0]
                results = functions[0](**case)
                assert_matches_oracle(pair[0], case, results)
                gradient = gradients_case(pair, case, results, dtype)
                assert_matches_oracle(pair[1], gradient, functions[1](**gradient))


def test_special_logits() -> None:
    """A class that is none, rows without probabilities, and the largest logits."""
    inf, nan = np.inf, np.nan
    x = np.array([[0, 0, -inf], [inf, 0, 0], [-inf] * 3, [nan, 0, 0], [3e38, 0, -3e38]], np.float32)
    target = np.array([2, 0, 0, 1, 0])
    for engine in ("numpy", "cpu"):
        with openaclnn.use_engine(engine):
            log_prob, entropy, *_ = make_plain_function(LOG_PROBS[4])(x, target)
            np.testing.assert_array_equal(log_prob, [-inf, nan, nan, nan, 0])
            np.testing.assert_allclose(entropy, [np.log(2), nan, nan, nan, 0], rtol=1e-6)
            distilled = make_plain_function(DISTILLATION[4])(
                x[:1], np.array([[1, 1, -inf]], np.float32)
            )
            assert distilled.loss == 0
    with pytest.raises(IndexError, match="out of bounds"):
        functional.selected_log_probs(torch.zeros(2, 3), torch.tensor([0, 3]))


# Functions.


def chosen(x: Any, target: Any, temperature: float = 1.0) -> Any:
    """From the probabilities, as it is written."""
    log_p = torch.log_softmax(x / temperature, -1)
    counted = target != -100
    log_prob = log_p.gather(-1, torch.where(counted, target, 0)[..., None])[..., 0] * counted
    return log_prob, -(log_p.exp() * log_p).sum(-1) * counted


def divergence(student: Any, teacher: Any, temperature: float, beta: float) -> Any:
    p, q = (torch.log_softmax(logits / temperature, -1) for logits in (student, teacher))
    if beta in (0, 1):
        first, second = (p, q) if beta else (q, p)
        return (first.exp() * (first - second)).sum(-1)
    mean = torch.log(beta * q.exp() + (1 - beta) * p.exp())
    parts = [(log_prob.exp() * (log_prob - mean)).sum(-1) for log_prob in (q, p)]
    return beta * parts[0] + (1 - beta) * parts[1]


def assert_like(candidate: Callable[..., Any], known: Callable[..., Any], learnt: list[Any], dtype: torch.dtype) -> None:  # fmt: skip
    """Results and gradients no further from float64 than the same operations in FLOAT and, of gradients, the dtype."""
    sides = []
    for function, kind in ((candidate, dtype), (known, dtype), (known, torch.float64)):
        leaves = [tensor.to(dtype).to(kind).clone().requires_grad_() for tensor in learnt]
        results = function(*leaves)
        results = results if isinstance(results, tuple) else (results,)
        outer = [torch.linspace(0.5, 2, result.numel(), dtype=result.dtype).reshape(result.shape) for result in results]  # fmt: skip
        sides.append([*results, *torch.autograd.grad(results, leaves, outer)])
    for ours, other, exact in zip(*sides, strict=True):
        error, allowed = ((one.double() - exact).abs().max() for one in (ours, other))
        assert error <= 1.25 * allowed + (64 if dtype is torch.float64 else 4) * torch.finfo(dtype).eps * exact.abs().max()  # fmt: skip
    assert all(result.dtype is torch.promote_types(dtype, torch.float32) for result in sides[0][: -len(learnt)])  # fmt: skip


ROWS = torch.from_numpy(np.random.default_rng(5).standard_normal((2, 3, 50))) * 3
TARGET = torch.arange(6).reshape(2, 3) * 7
TARGET[0, 1] = -100


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_probability_of_1_has_a_logarithm_of_0(dtype: torch.dtype) -> None:
    """At every temperature: the class's value is rounded as the largest one is."""
    numbers = torch.Generator().manual_seed(2)
    for temperature, classes in itertools.product((1.0, 0.8, 1.3, 0.1), (2, 100, 3000)):
        x = torch.randn(32, classes, generator=numbers)
        target = torch.randint(0, classes, (32,), generator=numbers)
        x[torch.arange(32), target] = x.amax(1) + 100
        assert functional.selected_log_probs(x.to(dtype), target, temperature).eq(0).all()
        assert functional.log_probs_and_entropy(x.to(dtype), target, temperature)[0].eq(0).all()


@pytest.mark.parametrize(("dtype", "temperature", "beta"), [(torch.float32, 1.0, 0.0), (torch.bfloat16, 0.7, 1.0), (torch.float64, 0.7, 0.25)], ids=str)  # fmt: skip
@pytest.mark.in_turns
def test_functions_of_logits(dtype: torch.dtype, temperature: float, beta: float) -> None:
    assert_like(lambda x: functional.log_probs_and_entropy(x, TARGET, temperature), lambda x: chosen(x, TARGET, temperature), [ROWS], dtype)  # fmt: skip
    assert_like(lambda x: functional.selected_log_probs(x, TARGET, temperature), lambda x: chosen(x, TARGET, temperature)[0], [ROWS], dtype)  # fmt: skip
    assert_like(lambda x: functional.entropy(x, temperature), lambda x: chosen(x, TARGET.clamp(min=0), temperature)[1], [ROWS], dtype)  # fmt: skip
    arguments = ROWS.flip(2).to(dtype), temperature, beta
    assert_like(lambda x: functional.distillation_kl(x, *arguments), lambda x: divergence(x, arguments[0].to(x.dtype), *arguments[1:]), [ROWS], dtype)  # fmt: skip


def test_derivatives_of_any_order_and_transforms() -> None:
    few, teacher = (logits[:, :4].clone().requires_grad_() for logits in ROWS)
    few_targets = torch.tensor([1, -100, 3])
    assert torch.autograd.gradgradcheck(lambda x: functional.log_probs_and_entropy(x, few_targets, 1.5), few)  # fmt: skip
    assert torch.autograd.gradcheck(lambda *logits: functional.distillation_kl(*logits, 2.0, 0.5), (few, teacher))  # fmt: skip
    x = ROWS[0].clone().requires_grad_()
    single = ROWS[0].float().requires_grad_()
    sides = []
    for function, leaf in ((functional.log_probs_and_entropy, single), (chosen, x)):
        first = torch.autograd.grad([result.sum() for result in function(leaf, TARGET[0])], leaf, create_graph=True)[0]  # fmt: skip
        sides.append(torch.autograd.grad(first.square().sum(), leaf)[0].double())
    torch.testing.assert_close(*sides, rtol=1e-4, atol=1e-6)
    rows = ROWS.flatten(0, 1).float()
    batched = torch.func.vmap(functional.entropy)(rows)
    torch.testing.assert_close(batched, functional.entropy(rows))
    torch.testing.assert_close(
        torch.func.jvp(functional.entropy, (rows,), (rows,))[1],
        (torch.func.grad(lambda logits: functional.entropy(logits).sum())(rows) * rows).sum(-1),
        rtol=1e-4, atol=1e-6,
    )  # fmt: skip


def test_graphs_shapes_and_casts() -> None:
    x, weight = ROWS[0].float().requires_grad_(), torch.randn(50, 50, requires_grad=True)

    def loss(x: Any) -> Any:
        log_prob, entropy = functional.log_probs_and_entropy(x, TARGET[0], 2.0)
        kept, kept_entropy = functional.linear_log_probs_and_entropy(x, weight, TARGET[0], memory=400)  # fmt: skip
        soft = functional.cross_entropy(x, torch.softmax(x.detach().flip(1), 1))
        return (log_prob + entropy + functional.distillation_kl(x, x.detach().flip(1)) + kept - kept_entropy).sum() + soft  # fmt: skip

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    gradients, known = (torch.autograd.grad(f(x), (x, weight)) for f in (compiled, loss))
    for ours, other in zip(gradients, known, strict=True):
        torch.testing.assert_close(ours, other)
    assert functional.entropy(torch.zeros((1,) * 8 + (2, 3))).shape == (1,) * 8 + (2,)
    assert functional.entropy(torch.zeros(0, 5)).shape == (0,)
    assert functional.entropy(torch.zeros(5)).shape == ()
    assert functional.entropy(torch.zeros(4, 5, device="meta")).shape == (4,)
    shifted = ROWS.float()[:, :-1]  # rows with gaps, as of logits of all tokens but the last
    torch.testing.assert_close(functional.entropy(shifted), functional.entropy(shifted.contiguous()))  # fmt: skip
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert functional.entropy(x.bfloat16()).dtype is torch.float32
        assert functional.linear_entropy(x, weight).dtype is torch.float32
        assert functional.cross_entropy(x.bfloat16(), torch.softmax(x, 1).bfloat16()).dtype is torch.float32  # fmt: skip


@pytest.mark.parametrize("shape", [(5,), (4, 7), (2, 5, 3, 2)], ids=str)
def test_cross_entropy_against_shares(shape: tuple[int, ...]) -> None:
    axis = min(1, len(shape) - 1)
    x = torch.from_numpy(np.random.default_rng(3).standard_normal(shape)) * 2
    weight = torch.rand(shape[axis], dtype=torch.float64)
    for dtype in (torch.float32, torch.bfloat16)[:: 1 if len(shape) == 2 else 2]:
        share = torch.softmax(x.flip(axis), axis).to(dtype)
        for options in ({}, {"label_smoothing": 0.1}, {"weight": weight.to(dtype), "label_smoothing": 0.2}):  # fmt: skip
            for reduction in ("none", "mean", "sum"):
                sides = []
                for function, kind in ((functional.cross_entropy, dtype), (theirs.cross_entropy, dtype), (theirs.cross_entropy, torch.float64)):  # fmt: skip
                    leaf = x.to(dtype).to(kind).requires_grad_()
                    of_kind = {name: value.to(kind) if name == "weight" else value for name, value in options.items()}  # fmt: skip
                    loss = function(leaf, share.to(kind), reduction=reduction, **of_kind)
                    sides.append((loss.detach(), torch.autograd.grad(loss.sum(), leaf)[0]))
                for ours, other, exact in zip(*sides, strict=True):
                    assert ours.dtype is dtype
                    assert ours.shape == exact.shape
                    error, allowed = ((one.double() - exact).abs().max() for one in (ours, other))
                    assert error <= allowed + 2 * torch.finfo(dtype).eps * exact.abs().max()
    single = x.float(), torch.softmax(x.float(), axis)
    with use(only=["cross_entropy_loss"]):
        torch.testing.assert_close(theirs.cross_entropy(*single), functional.cross_entropy(*single))
        assert served()["cross_entropy_loss"].ours == served()["functional.cross_entropy"].ours == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("more", [0, 3])
def test_functions_of_a_linear_layer(dtype: torch.dtype, more: int, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """In chunks, with columns that are no classes, as on a GPU, and without."""
    rng = np.random.default_rng(7)
    x, w, b = (torch.from_numpy(rng.standard_normal(shape)) for shape in ((2, 3, 8), (50, 8), (50,)))  # fmt: skip
    monkeypatch.setattr(linear, "_pitch", lambda classes, aligned: classes + more)
    for options in ({"memory": 2 * (50 + more) * dtype.itemsize}, {"temperature": 0.5, "softcap": 4.0}):  # fmt: skip
        temperature, cap = options.get("temperature", 1.0), options.get("softcap", 0.0)

        def known(x: Any, w: Any, b: Any) -> Any:
            logits = theirs.linear(x, w, b)
            logits = torch.tanh(logits / cap) * cap if cap else logits  # noqa: B023
            results = chosen(logits, TARGET, temperature)  # noqa: B023
            return tuple(
                result.to(torch.promote_types(result.dtype, torch.float32)) for result in results
            )

        def ours(x: Any, w: Any, b: Any) -> Any:
            return functional.linear_log_probs_and_entropy(x, w, TARGET, linear_bias=b, **options)  # noqa: B023  # fmt: skip

        assert_like(ours, known, [x, w, b], dtype)
        one = functional.linear_selected_log_probs(*(tensor.to(dtype) for tensor in (x, w)), TARGET, linear_bias=b.to(dtype), **options)  # fmt: skip
        torch.testing.assert_close(one, ours(*(tensor.to(dtype) for tensor in (x, w, b)))[0])
    leaf = w.to(dtype).requires_grad_()
    (alone,) = torch.autograd.grad(functional.linear_entropy(x.to(dtype), leaf).sum(), leaf)
    assert alone.shape == w.shape
    with pytest.raises(RuntimeError, match=r"expected target of shape \(2, 3\), got \(2,\)"):
        functional.linear_selected_log_probs(x, w, TARGET[:, 0])
    with pytest.raises(RuntimeError, match="temperature to be a number above 0, got 0"):
        functional.linear_entropy(x, w, temperature=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_cross_entropy_of_tokens(dtype: torch.dtype) -> None:
    """Factors of tokens, a denominator, and the z-loss beside the loss, as the documentation says them, and as linear cross entropy has them."""
    x, target = ROWS.movedim(2, 1), TARGET
    tokens, weight, counted = torch.rand(2, 3), torch.rand(50) + 0.5, TARGET != -100
    for place, reduction in enumerate(("none", "sum", "mean")):
        every = ({"token_weight": tokens}, {"denominator": 7.0, "weight": weight}, {"token_weight": tokens, "weight": weight}, {})  # fmt: skip
        for options in every if EVERYTHING or dtype is torch.float32 else every[place::3]:
            shares, number = (
                options.get("token_weight", torch.ones(2, 3)),
                options.get("denominator"),
            )
            sides = []
            for kind in (dtype, torch.float64):
                leaf = x.to(dtype).to(kind).clone().requires_grad_()
                weights = options.get("weight", torch.ones(50)).to(kind)
                if kind is dtype:
                    arguments = {**options, "weight": weights} if "weight" in options else options
                    loss, square = functional.cross_entropy(leaf, target, ignore_index=-100, reduction=reduction, zloss_scale=0.1, return_z_loss=True, **arguments)  # fmt: skip
                else:
                    rows = theirs.cross_entropy(leaf, target, weights, reduction="none")
                    square = (0.1 * torch.logsumexp(leaf, 1).square() * counted * shares).detach()
                    loss = rows * shares + 0.1 * torch.logsumexp(leaf, 1).square() * counted * shares  # fmt: skip
                    if reduction != "none":
                        loss, square = loss.sum(), square.sum()
                    if reduction == "mean":
                        whole = number or (weights[target.clamp(min=0)] * shares * counted).sum()
                        loss, square = loss / whole, square / whole
                assert not square.requires_grad
                sides.append([loss.detach(), square, torch.autograd.grad(loss.sum(), leaf)[0]])
            for ours, exact in zip(*sides, strict=True):
                assert ours.dtype is dtype
                torch.testing.assert_close(ours.double(), exact, rtol=4 * torch.finfo(dtype).eps, atol=4 * torch.finfo(dtype).eps * exact.abs().max().item())  # fmt: skip
    module = nn.CrossEntropyLoss(zloss_scale=0.1, return_z_loss=True)
    loss, square = module(x.to(dtype), target, token_weight=tokens, denominator=torch.tensor(5.0))
    flat = ROWS.flatten(0, 1).float()
    known = functional.linear_cross_entropy(torch.eye(6), flat.t(), target.flatten(), zloss_scale=0.1, token_weight=tokens.flatten(), denominator=5.0)  # fmt: skip
    torch.testing.assert_close(loss.float(), known, rtol=4 * torch.finfo(dtype).eps, atol=0)
    assert 0 < square < loss
    with pytest.raises(
        RuntimeError, match=r"token_weight of the shape of target, \(2, 3\), got \(3,\)"
    ):
        functional.cross_entropy(x, target, token_weight=tokens[0])
    with pytest.raises(RuntimeError, match="for floating logits and class indices"):
        functional.cross_entropy(flat, flat, denominator=2.0)
