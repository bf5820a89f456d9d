"""Training as people write it, by our losses and by PyTorch's, step by step: in one process and in workers of a DataLoader (several
processes are in test_torch_parallel.py); and tensors that have no memory to be read.
"""

from __future__ import annotations

import contextlib
import copy
import io
import pickle
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

import openaclnn.torch as fast
from conftest import run_python
from openaclnn.torch import functional

CLASSES, IGNORED = 5, 255
WEIGHT = torch.tensor([0.5, 1.0, 2.0, 1.0, 0.1])


class Block(torch.nn.Module):
    def __init__(self, nn: Any) -> None:
        super().__init__()
        self.inner = torch.nn.Sequential(
            torch.nn.Conv2d(8, 8, 3, padding=1, bias=False),
            torch.nn.BatchNorm2d(8),
            nn.ELU(inplace=True),
        )

    def forward(self, x: Tensor) -> Any:
        return x + self.inner(x)


class Net(torch.nn.Module):
    """Classes of pixels, or of images."""

    def __init__(self, nn: Any, of_pixels: bool, reentrant: bool | None) -> None:
        super().__init__()
        self.stem, self.act, self.block = torch.nn.Conv2d(3, 8, 3), nn.ELU(0.5), Block(nn)
        self.head = torch.nn.Conv2d(8, CLASSES, 1)
        self.of_pixels, self.reentrant = of_pixels, reentrant

    def forward(self, x: Tensor) -> Any:
        x = self.act(self.stem(x))
        again = self.reentrant
        x = self.block(x) if again is None else checkpoint(self.block, x, use_reentrant=again)
        x = self.head(x)
        return x if self.of_pixels else x.mean((2, 3))


def trained(
    nn: Any, of_pixels: bool, reentrant: bool | None = None, autocast: bool = False, backend: str | None = None
) -> list[Tensor]:  # fmt: skip
    """The losses and gradients of a few steps with all that goes with them, and of the model read back."""
    torch.manual_seed(0)
    layout = torch.channels_last if of_pixels else torch.contiguous_format
    model: Any = Net(nn, of_pixels, reentrant).to(memory_format=layout)
    averaged = copy.deepcopy(model)
    entropy = nn.CrossEntropyLoss(weight=WEIGHT, ignore_index=IGNORED, label_smoothing=0.1)
    likelihood, smooth, absolute = nn.NLLLoss(WEIGHT, ignore_index=IGNORED), nn.SmoothL1Loss(beta=0.3), nn.L1Loss()  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, enabled=autocast)
    draw = torch.Generator().manual_seed(3)

    def objective(x: Tensor, target: Tensor) -> Any:
        logits = model(x)
        if reentrant is None:
            loss = entropy(logits, target)
        else:
            loss = checkpoint(entropy, logits, target, use_reentrant=reentrant)
        far = smooth(logits, torch.zeros_like(logits)) + absolute(logits, torch.ones_like(logits))
        return loss + likelihood(logits.float().log_softmax(1), target) + 0.1 * far

    step = (
        objective if backend is None else torch.compile(objective, backend=backend, fullgraph=True)
    )
    seen = []
    for number in range(4):
        x = torch.randn(4, 3, 8, 8, generator=draw).to(memory_format=layout)
        target = torch.randint(CLASSES, (4, 6, 6) if of_pixels else (4,), generator=draw)
        target.view(-1)[0] = IGNORED
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = step(x, target)
        scaler.scale(loss / 2).backward()
        seen.append(loss.detach())
        if number % 2:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            seen += [parameter.grad.clone() for parameter in model.parameters()]
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            with torch.no_grad():
                for mean, parameter in zip(averaged.parameters(), model.parameters(), strict=True):
                    mean.lerp_(parameter, 0.1)
    kept, other = io.BytesIO(), Net(nn, of_pixels, reentrant)
    torch.save(model.state_dict(), kept)
    kept.seek(0)
    other.load_state_dict(torch.load(kept))
    read, criterion = pickle.loads(pickle.dumps((model, entropy)))
    with torch.no_grad():
        results = [network.eval()(x) for network in (model, other, read, averaged)]
        assert torch.equal(results[0], results[1])
        assert torch.equal(results[0], results[2])
        return [*seen, criterion(results[0], target), entropy(results[3], target)]


OURS = types.SimpleNamespace(
    **{name: getattr(fast.nn, name) for name in ("ELU", "CrossEntropyLoss", "NLLLoss", "SmoothL1Loss", "L1Loss")}
)  # fmt: skip
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "checkpoints": {"reentrant": False},
    "reentrant checkpoints": {"reentrant": True},
    "autocast": {"autocast": True},
    "autocast, checkpoints": {"autocast": True, "reentrant": False},
}


def assert_alike(got: list[Tensor], wanted: list[Tensor], near: float) -> None:
    for one, other in zip(got, wanted, strict=True):
        assert (one.dtype, one.stride()) == (other.dtype, other.stride())
        torch.testing.assert_close(one, other, rtol=near, atol=near * 0.1)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize(
    ("variant", "of_pixels"),
    [*((name, True) for name in VARIANTS), ("plain", False), ("autocast, checkpoints", False)],
)
@pytest.mark.in_turns
def test_trains_as_pytorch(variant: str, of_pixels: bool) -> None:
    options = VARIANTS[variant]
    wanted, near = trained(torch.nn, of_pixels, **options), 5e-2 if options.get("autocast") else 1e-3  # fmt: skip
    assert_alike(trained(OURS, of_pixels, **options), wanted, near)
    with fast.use():
        assert_alike(trained(torch.nn, of_pixels, **options), wanted, near)
    assert fast.served()["cross_entropy_loss"].ours >= 4


@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_trains_compiled() -> None:
    """In one graph, as PyTorch's own. That is the measure, not PyTorch uncompiled: there checkpoints compute a block twice, and the
    statistics of batch normalization count every batch twice.
    """
    compiled: dict[str, Any] = {"backend": "aot_eager", "reentrant": False}
    wanted = trained(torch.nn, True, **compiled)
    assert_alike(trained(OURS, True, **compiled), wanted, 1e-3)
    torch._dynamo.reset()
    with fast.use():
        assert_alike(trained(torch.nn, True, **compiled), wanted, 1e-3)


LOADED_BY_WORKERS = """
import torch, torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
import openaclnn.torch as fast
from openaclnn.torch import functional

class Losses(Dataset):  # what workers compute themselves, with gradients
    def __len__(self):
        return 6
    def __getitem__(self, index):
        x = torch.full((4, 5), index - 2.5).requires_grad_()
        loss = functional.cross_entropy(x * x.detach().cumsum(1), torch.arange(4))
        loss = loss + F.smooth_l1_loss(F.elu(x), torch.zeros(4, 5))
        loss.backward()
        return loss.detach(), x.grad

large = torch.randn(2000, 500).requires_grad_()
with fast.use():
    F.cross_entropy(large, torch.zeros(2000, dtype=torch.int64)).backward()
    wanted = [Losses()[index] for index in range(6)]
    loader = DataLoader(Losses(), num_workers=2, batch_size=None, multiprocessing_context="fork", timeout=100)
    got = [*loader]
assert len(got) == 6
assert all(one.allclose(other) for own, known in zip(got, wanted) for one, other in zip(own, known))
"""


def test_workers_of_a_loader() -> None:
    """They are forked from a process whose kernels, and threads, have been at work.

    It sees no GPU: where there is one, PyTorch refuses gradients in a child of any process that had computed some.
    """
    run_python(LOADED_BY_WORKERS, timeout=170, CUDA_VISIBLE_DEVICES="")


# Tensors without memory.

X, TARGET = torch.linspace(-3, 3, 30).reshape(6, 5), torch.tensor([0, 4, 2, 1, -100, 3])
PIXELS, PIXEL_TARGET = torch.linspace(-2, 2, 40).reshape(2, 5, 2, 2), torch.ones(2, 2, 2).long()
Function = Callable[..., Any]
CALLS: dict[str, tuple[Tensor, Tensor, Function]] = {
    "elu": (X, X, lambda module, x, y: module.elu(x, 0.7)),
    "elu in place": (X, X, lambda module, x, y: module.elu(x * 1, 0.7, inplace=True)),
    "l1_loss": (X, X.flip(0), lambda module, x, y: module.l1_loss(x, y)),
    "smooth_l1_loss": (X, X.flip(0), lambda module, x, y: module.smooth_l1_loss(x, y)),
    "nll_loss": (X, TARGET, lambda module, x, y: module.nll_loss(x, y)),
    "nll_loss of pixels": (PIXELS, PIXEL_TARGET, lambda module, x, y: module.nll_loss(x, y)),
    "cross_entropy": (
        X,
        TARGET,
        lambda module, x, y: module.cross_entropy(x, y, label_smoothing=0.1),
    ),
}
each_call = pytest.mark.parametrize("name", CALLS)


@each_call
@pytest.mark.parametrize("inside", [False, True], ids=["outside the mode", "inside"])
def test_fake_tensors(name: str, inside: bool) -> None:
    """A FakeTensor is asked for its shape alone, forward and backward, in its mode and after it."""
    x, y, call = CALLS[name]
    mode = FakeTensorMode()
    outcomes = []
    for module in (functional, F):
        with mode if inside else contextlib.nullcontext():
            fake, other = mode.from_tensor(x).requires_grad_(), mode.from_tensor(y)
            value = call(module, fake, other)
            value.sum().backward()
        outcomes.append((type(value), value.shape, value.dtype, type(fake.grad), fake.grad.shape))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("name", ["l1_loss", "cross_entropy"])
def test_traced_in_a_block_and_after_it(name: str) -> None:
    """What PyTorch's tracer remembers of operators that were replaced above its derivatives ends with the block."""
    x, y, call = CALLS[name]

    def gradient(x: Tensor, y: Tensor) -> Any:
        x = x.detach().requires_grad_()
        call(F, x, y).backward()
        return x.grad

    operator = {"cross_entropy": "cross_entropy_loss"}.get(name, name)
    getattr(torch.ops.aten, operator).default._dispatch_cache.clear()
    with fast.use():
        inside = make_fx(gradient, tracing_mode="symbolic")(x, y)
    after = make_fx(gradient, tracing_mode="symbolic")(x, y)
    for graph in (inside, after):
        torch.testing.assert_close(graph(x / 2, y), gradient(x / 2, y))


@each_call
@pytest.mark.filterwarnings("ignore")  # PyTorch's, of shapes that are constants to the graph
def test_traced_by_torchscript(name: str) -> None:
    x, y, call = CALLS[name]
    traced = torch.jit.trace(lambda x: call(functional, x, y), x, check_trace=False)
    torch.testing.assert_close(traced(x / 2), call(F, x / 2, y))


@each_call
def test_memory_given_back(name: str) -> None:
    """What FSDP leaves of a parameter that it has freed is a tensor without memory: refused, where PyTorch's own reads crash."""
    x, y, call = CALLS[name]
    x = x.clone()
    x.untyped_storage().resize_(0)
    if name == "elu in place":
        with pytest.raises(RuntimeError, match="lies inside memory of its own"):
            functional.elu(x, inplace=True)
    else:
        with pytest.raises(RuntimeError, match="lies inside memory of its own"):
            call(functional, x, y)


def test_the_operator_of_log_probabilities_under_transforms() -> None:
    """Each level of torch.func differentiates it."""
    weight = torch.rand(5, generator=torch.Generator().manual_seed(0)) + 0.5

    def ours(x: Tensor) -> Any:
        return torch.ops.openaclnn.cross_entropy_loss(x, TARGET, weight, "mean", -100, 0.1)[0]

    def theirs(x: Tensor) -> Any:
        return F.cross_entropy(x, TARGET, weight, label_smoothing=0.1)

    grad, jacrev, vmap = torch.func.grad, torch.func.jacrev, torch.func.vmap
    batch = torch.stack([X, X / 2])
    torch.testing.assert_close(grad(ours)(X), grad(theirs)(X))
    torch.testing.assert_close(jacrev(grad(ours))(X), jacrev(grad(theirs))(X))
    torch.testing.assert_close(vmap(grad(ours))(batch), vmap(grad(theirs))(batch))
    with pytest.raises(RuntimeError, match=r"a z-loss has no derivative under torch\.func"):
        grad(lambda x: torch.ops.openaclnn.cross_entropy_loss(x, TARGET, lse_square_scale_for_zloss=0.1)[0])(X)  # fmt: skip
