"""Where results lie: as PyTorch's own do, on every way to the kernels."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the PyTorch face needs PyTorch")

import torch.nn.functional as theirs  # noqa: E402

from openaclnn.torch import functional, nn, served, use  # noqa: E402

aten = torch.ops.aten


def laid(shape: tuple[int, ...]) -> Iterator[Any]:
    """Row-major, in every order of axes, with gaps, and stretched."""
    axes = range(len(shape))
    for order in itertools.permutations(axes):
        drawn = torch.randn([shape[axis] for axis in order])
        yield drawn.permute([order.index(axis) for axis in axes])
    yield torch.randn([2 * length for length in shape])[tuple(slice(0, None, 2) for _ in shape)]
    yield torch.randn(*shape, 2)[..., 1]
    yield torch.randn(1, *shape[1:]).expand(shape)
    yield torch.randn(()).expand(shape)


def assert_like(actual: Any, expected: Any) -> None:
    torch.testing.assert_close(actual, expected)
    moving = [n for n, length in enumerate(expected.shape) if length > 1]
    assert [actual.stride(n) for n in moving] == [expected.stride(n) for n in moving]


SHAPES = ((5,), (3, 4), (2, 3, 4), (2, 3, 2, 4))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_elu(shape: tuple[int, ...]) -> None:
    for x in laid(shape):
        expected = theirs.elu(x, 0.7)
        for _ in range(2):
            assert_like(functional.elu(x, 0.7), expected)
            assert_like(torch.ops.openaclnn.elu(x, 0.7), expected)
            with use():
                assert_like(theirs.elu(x, 0.7), expected)
                assert not served()["elu"].reasons
        assert_like(functional.elu(x.double(), 0.7), theirs.elu(x.double(), 0.7))


@pytest.mark.parametrize("shape", SHAPES[:3], ids=str)
@pytest.mark.in_turns
def test_pairs(shape: tuple[int, ...]) -> None:
    """Of two layouts the first decides, unless it says nothing."""
    for x, y in itertools.product(laid(shape), repeat=2):
        smooth, absolute = (
            loss(x, y, reduction="none") for loss in (theirs.smooth_l1_loss, theirs.l1_loss)
        )
        elu, pair = aten.elu_backward(x, 1, 1, 1, False, y), aten.smooth_l1_loss_backward(x, x, y, 1, 1.0)  # fmt: skip
        for _ in range(2):
            assert_like(functional.smooth_l1_loss(x, y, reduction="none"), smooth)
            assert_like(functional.l1_loss(x, y, reduction="none"), absolute)
            with use():
                assert_like(theirs.smooth_l1_loss(x, y, reduction="none"), smooth)
                assert_like(aten.elu_backward(x, 1, 1, 1, False, y), elu)
                assert_like(aten.smooth_l1_loss_backward(x, x, y, 1, 1.0), pair)


def test_gradients_lie_like_pytorchs() -> None:
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    for name in ("l1_loss", "smooth_l1_loss", "mse_loss", "soft_margin_loss"):
        y = torch.randn_like(x)
        gradients = []
        for module in (theirs, functional):
            leaf = x.detach().clone().requires_grad_()
            loss = getattr(module, name)(leaf, y, reduction="none")
            gradients += torch.autograd.grad(loss.sum(), leaf)
        assert_like(gradients[1], gradients[0])
    for reduction in range(3):
        expected = aten.mse_loss_backward(x, x, y, reduction)
        for _ in range(2):
            with use():
                assert_like(aten.mse_loss_backward(x, x, y, reduction), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_of_images_against_shares_of_classes(dtype: Any) -> None:
    for shape, weighted in itertools.product(SHAPES, (False, True)):
        share = torch.rand(shape).to(dtype)
        weight = torch.rand(shape[min(1, len(shape) - 1)]).to(dtype) if weighted else None
        for x in laid(shape):
            logits = x.to(dtype).detach().requires_grad_()
            expected, own = (
                torch.autograd.grad(one(logits, share, weight), logits)[0]
                for one in (theirs.cross_entropy, functional.cross_entropy)
            )
            assert_like(own, expected)


def test_a_model_in_channels_last_memory() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.ELU(), torch.nn.Conv2d(4, 2, 1)
    ).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    x = torch.randn(2, 3, 6, 6).to(memory_format=torch.channels_last)
    expected = model(x)
    with use():
        assert_like(model(x), expected)
        kept = theirs.elu(x)
        assert kept.permute(0, 2, 3, 1).view(-1, 3).shape == (72, 3)  # which needs its strides
        assert served()["elu"].ours == 2
    model[1] = nn.ELU()
    assert_like(model(x), expected)


@pytest.mark.parametrize("replaced", [False, True])
def test_compiled_functions_rely_on_strides(replaced: bool) -> None:
    elu = theirs.elu if replaced else functional.elu

    def rows(x: Any) -> Any:
        return elu(x).permute(0, 2, 3, 1).reshape(-1, 3)

    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    expected = theirs.elu(x).permute(0, 2, 3, 1).reshape(-1, 3)
    torch._dynamo.reset()
    compiled = torch.compile(rows, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), expected)
    if replaced:
        with use():
            torch.testing.assert_close(compiled(x), expected)
