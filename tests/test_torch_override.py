"""PyTorch's own functions by our kernels: what is replaced, what is counted, and that all is as before afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as theirs

from openaclnn.torch import disable, enable, served, use
from openaclnn.torch.override import OVERRIDES


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    disable()


def kernels() -> dict[str, str]:
    return {name: repr(torch.library.get_kernel(f"aten::{name}", "CPU")) for name in OVERRIDES}


def run(x: Any) -> list[Any]:
    """Every operator that can be replaced, forward and backward."""
    torch.manual_seed(0)
    x = x.detach().clone().requires_grad_()
    target, pixels = torch.tensor([0, 1, -100, 3]), torch.randint(0, 5, (1, 2, 2))
    images = x.reshape(1, 5, 4)[:, :, :].reshape(1, 5, 2, 2)
    values = [
        theirs.elu(x, 1.3), theirs.elu_(x * 1, 0.7), theirs.selu(x), theirs.celu(x, 2.0), theirs.smooth_l1_loss(x, x.detach() + 0.5, beta=0.7),
        theirs.nll_loss(x, target), theirs.cross_entropy(x, target), theirs.nll_loss(images, pixels), theirs.nll_loss(x, target, reduction="none"),
    ]  # fmt: skip
    return [*values, *torch.autograd.grad(sum(v.sum() for v in values), x)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_a_model_that_nobody_edits(dtype: torch.dtype) -> None:
    x = torch.randn(4, 5).to(dtype)
    known, before = run(x), kernels()
    with use():
        assert set(kernels().items()).isdisjoint(before.items())
        got = run(x)
    report = served()
    assert kernels() == before
    for own, other, exact in zip(got, known, run(x.double()), strict=True):
        apart, allowed = ((v.double() - exact).abs() for v in (own, other))
        unit = torch.finfo(dtype).eps * exact.abs().max()
        assert own.dtype is other.dtype
        assert (apart <= allowed.max() + unit).all()
    assert report.keys() == OVERRIDES.keys()
    assert all(own.ours == own.calls > 0 for own in report.values()), report
    assert run(x)[0].equal(known[0])
    assert served() == report


def test_what_is_not_served_is_pytorchs() -> None:
    x = torch.randn(4, 5)
    target = torch.tensor([0, 1, 2, 9])
    enable()
    assert torch.equal(theirs.elu(x.double()), theirs.elu_(x.double().clone()))
    with pytest.raises(IndexError, match="Target 9 is out of bounds"):
        theirs.nll_loss(x, target)
    with pytest.raises(RuntimeError, match="not implemented for"):
        theirs.elu(target)
    assert theirs.nll_loss(x[:0], target[:0]).isnan()
    found = served()
    assert found["elu"].calls == 2
    assert found["elu"].ours == 0
    assert found["elu"].reasons == {"torch.float64": 1, "torch.int64": 1}
    assert found["nll_loss_forward"].ours == 0
    assert set(found["nll_loss_forward"].reasons) >= {"no elements"}


def test_some_of_them() -> None:
    x = torch.randn(3)
    before = kernels()
    with use(only=["elu"]):
        theirs.elu(x)
        theirs.smooth_l1_loss(x, x + 1)
        assert {name: own.ours for name, own in served().items()} == {"elu": 1}
        with use(exclude=["elu"]):
            theirs.elu(x)
            assert "elu" not in served()
        theirs.elu(x)
        assert served()["elu"].calls == 1  # counted anew
    assert kernels() == before
    with pytest.raises(ValueError, match="'mse_loss' is none of elu, elu_"):
        enable(only=["mse_loss"])
    assert kernels() == before


def test_it_steps_aside_for_compilers_and_modes() -> None:
    x = torch.randn(4, 5)
    known = theirs.elu(x) + 1
    seen = []

    def backend(graph: Any, inputs: Any) -> Any:
        seen.append(graph)
        return graph.forward

    with use():
        made = torch.compile(lambda x: theirs.elu(x) + 1, fullgraph=True, backend=backend)
        assert torch.equal(made(x), theirs.elu(x) + 1)
        graph = torch.fx.experimental.proxy_tensor.make_fx(lambda x: theirs.elu(x))(x)
        assert "torch.ops.aten.elu.default" in graph.code
        fake = torch._subclasses.FakeTensorMode()
        with fake:
            assert theirs.elu(fake.from_tensor(x)).shape == x.shape
        assert torch.equal(torch.vmap(theirs.elu)(x), theirs.elu(x))
    assert any("elu" in str(node.target) for node in seen[0].graph.nodes)
    torch.testing.assert_close(made(x), known)
