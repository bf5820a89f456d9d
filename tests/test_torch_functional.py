"""`openaclnn.torch.functional` and `.nn` beside PyTorch's own: values, gradients, errors, precision and memory."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
import re
import tomllib
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as theirs
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode

import openaclnn
from conftest import run_python
from openaclnn.torch import check_targets, functional, nn, refusals

FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
REDUCTIONS = ("none", "mean", "sum")
by_dtype = pytest.mark.parametrize("dtype", FLOATS, ids=str)
by_reduction = pytest.mark.parametrize("reduction", REDUCTIONS)
SHAPES = ((5,), (4, 5), (2, 5, 3), (2, 5, 3, 4), (2, 5, 2, 3, 2), (1, 5, 2, 1, 3, 2))


def both(function: Any, *tensors: Any) -> list[Any]:
    """The value and the gradients of what floats."""
    leaves = [t.detach().clone().requires_grad_(t.is_floating_point()) for t in tensors]
    value = function(*leaves)
    weights = torch.linspace(0.5, 1.5, value.numel(), dtype=value.dtype).reshape(value.shape)
    return [value, *torch.autograd.grad(value, [t for t in leaves if t.requires_grad], weights)]


def no_worse(
    name: str, arguments: tuple[Any, ...], tensors: tuple[Any, ...], **options: Any
) -> None:
    """Against float64, ours is as near as PyTorch's own, but for one rounding of a result's largest number."""

    def run(module: Any, cast: Any) -> list[Any]:
        function = getattr(module, name)
        converted = [cast(t) if t.is_floating_point() else t for t in tensors]
        rest = [cast(a) if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in arguments]  # fmt: skip
        floating = [t for t in converted if t.is_floating_point()]
        fixed = [t for t in converted if not t.is_floating_point()]
        return both(lambda *leaves: function(*leaves, *fixed, *rest, **options), *floating)

    same = lambda t: t  # noqa: E731
    ours, other, exact = run(functional, same), run(theirs, same), run(theirs, torch.Tensor.double)
    for mine, its, known in zip(ours, other, exact, strict=True):
        assert (mine.dtype, mine.shape) == (its.dtype, its.shape)
        if mine.dtype is torch.float64:  # nobody is more exact
            torch.testing.assert_close(mine, its)
            continue
        apart, allowed = ((v.double() - known).abs() for v in (mine, its))
        largest = known.abs().max(dim=-1, keepdim=True).values if known.dim() else known.abs()
        unit = torch.finfo(mine.dtype).eps * largest
        assert (apart <= allowed.max() + unit + torch.finfo(mine.dtype).tiny).all(), name


@by_dtype
def test_elu(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.randn(7, 9).to(dtype) * 3
    no_worse("elu", (1.3,), (x,))
    for alpha in (1.0, 0.5):
        ours, other = (
            both(lambda x, m=m, a=alpha: m.elu(x * 1, a, True), x) for m in (functional, theirs)
        )
        for mine, its in zip(ours, other, strict=True):
            torch.testing.assert_close(mine, its)
    tensor = x.clone()
    assert functional.elu(tensor, inplace=True) is tensor
    torch.testing.assert_close(tensor, theirs.elu(x))


@by_dtype
@by_reduction
@pytest.mark.in_turns
def test_pairs(dtype: torch.dtype, reduction: str) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(7, 9).to(dtype), torch.randn(7, 9).to(dtype)
    no_worse("l1_loss", (), (x, y), reduction=reduction)
    for beta in (1.0, 0.3, 0.0):
        no_worse("smooth_l1_loss", (), (x, y), reduction=reduction, beta=beta)


@by_dtype
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.in_turns
def test_classes(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Of FLOAT by every reduction, of other dtypes by one in turn."""
    turn = (SHAPES.index(shape) + FLOATS.index(dtype)) % len(REDUCTIONS)
    for reduction in REDUCTIONS if dtype is torch.float32 else REDUCTIONS[turn : turn + 1]:
        check_classes(shape, dtype, reduction)


def check_classes(shape: tuple[int, ...], dtype: torch.dtype, reduction: str) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(shape).to(dtype), (torch.rand(5) + 0.1).to(dtype)
    positions = shape[:1] + shape[2:] if len(shape) > 1 else ()
    target = torch.randint(0, 5, positions)
    if target.dim():
        target.view(-1)[0] = 2
        target = torch.where(torch.arange(target.numel()).reshape(positions) % 3 == 1, -7, target)
    for weights in (None, weight):
        no_worse("nll_loss", (weights,), (x, target), reduction=reduction, ignore_index=-7)
        for smoothing in (
            (0.0, 0.2) if dtype is torch.float32 else (0.0 if weights is None else 0.2,)
        ):
            no_worse(
                "cross_entropy", (weights,), (x, target), reduction=reduction, ignore_index=-7, label_smoothing=smoothing
            )  # fmt: skip


@pytest.mark.parametrize("classes", [2, 3, 7, 16, 33, 1000, 32000])
def test_classes_far_from_the_others_are_smoothed(classes: int) -> None:
    """Masked ones, in rows and in pixels, as PyTorch has them in float64."""
    torch.manual_seed(classes)
    lowest = torch.finfo(torch.float32).min
    for place, reduction in zip((0, classes // 2, classes - 1), REDUCTIONS, strict=True):
        weight = torch.rand(classes) + 0.5
        weight[place] = 0.0
        for far, weights in itertools.product((-1e4, -1e9, lowest, 1e4), (None, weight)):
            x = torch.randn(3, classes)
            x[:, place] = far
            target = torch.full((3,), (place + 1) % classes)
            options = {"reduction": reduction, "label_smoothing": 0.1}
            wide = None if weights is None else weights.double()
            known = theirs.cross_entropy(x.double(), target, wide, **options).float()
            ours = functional.cross_entropy(x, target, weights, **options)
            torch.testing.assert_close(ours, known, rtol=1e-6, atol=0)
            image = x.T.contiguous()[None]
            ours = functional.cross_entropy(image, target[None], weights, **options)
            torch.testing.assert_close(ours.reshape(known.shape), known, rtol=1e-6, atol=0)


def test_broadcasting_warns_as_pytorch_does() -> None:
    x, y = torch.randn(3, 4), torch.randn(4)
    for name in ("l1_loss", "smooth_l1_loss"):
        results = []
        for module in (functional, theirs):
            with pytest.warns(UserWarning, match="different to the input size"):
                results.append(both(getattr(module, name), x, y))
        for mine, its in zip(*results, strict=True):
            torch.testing.assert_close(mine, its)


def test_the_z_loss_is_its_formula() -> None:
    x = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    target = torch.tensor([0, 1, -100, 3, 4, 2])
    counted = target != -100
    for reduction, divisor in (("none", 1), ("sum", 1), ("mean", 5)):
        ours = functional.cross_entropy(x, target, reduction=reduction, zloss_scale=0.3)
        squares = 0.3 * torch.logsumexp(x, 1) ** 2 * counted
        known = theirs.cross_entropy(x, target, reduction=reduction)
        known = known + (squares if reduction == "none" else squares.sum() / divisor)
        torch.testing.assert_close(ours, known)
        torch.testing.assert_close(
            *(torch.autograd.grad(v.sum(), x, retain_graph=True)[0] for v in (ours, known))
        )
    with pytest.raises(RuntimeError, match="z-loss is for floating logits and class indices"):
        functional.cross_entropy(x, torch.softmax(x, 1), zloss_scale=0.1)


def test_class_probabilities_are_pytorchs_business() -> None:
    x, share = torch.randn(4, 5), torch.softmax(torch.randn(4, 5), 1)
    torch.testing.assert_close(functional.cross_entropy(x, share), theirs.cross_entropy(x, share))


@pytest.mark.parametrize("scale", [16, 40, 80])
def test_confident_predictions_keep_their_digits(scale: int) -> None:
    x = torch.tensor([[float(scale), 0.0, -1.0]], requires_grad=True)
    target = torch.tensor([0])
    value = functional.cross_entropy(x, target)
    (gradient,) = torch.autograd.grad(value, x)
    exact = x.detach().double().requires_grad_()
    # Of float64 too only this form tells the probability from 1.
    known = torch.log1p(torch.exp(exact[0, 1:] - exact[0, 0]).sum())
    (slope,) = torch.autograd.grad(known, exact)
    torch.testing.assert_close(value.double(), known, rtol=1e-6, atol=0)
    torch.testing.assert_close(gradient.double(), slope, rtol=2e-6, atol=0)


@pytest.mark.parametrize("kernels", [1, 2])
@pytest.mark.parametrize("layout", ["rows", "images", "channels last"])
def test_memory_is_the_gradient_and_little_more(
    layout: str, kernels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kernels == 2:
        monkeypatch.setattr(functional, "loss_of_rows", lambda *_: None)
    rows, classes = 1024, 256
    logits = torch.randn(rows, classes)
    if layout != "rows":
        logits = logits.reshape(4, 16, 16, classes).movedim(-1, 1)
    if layout == "images":
        logits = logits.contiguous()
    logits.requires_grad_()
    target = torch.randint(0, classes, logits.shape[:1] + logits.shape[2:])
    kept: list[int] = []

    def pack(tensor: Any) -> Any:
        if tensor.data_ptr() not in (logits.data_ptr(), target.data_ptr()):
            kept.append(tensor.nbytes)
        return tensor

    with warnings.catch_warnings():  # some releases warn of their own defaults
        warnings.simplefilter("ignore")
        with torch.profiler.profile(profile_memory=True) as profile:
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
                loss = functional.cross_entropy(logits, target)
            if kernels == 2:
                assert sum(side.nbytes for side in loss.grad_fn.kept[:2]) == 2 * 4 * rows
            loss.backward()
    assert sum(kept) == 0
    allocated = sum(max(event.self_cpu_memory_usage, 0) for event in profile.events())
    assert logits.nbytes <= allocated <= logits.nbytes + 64 * rows
    assert logits.grad is not None
    assert logits.grad.stride() == logits.stride()


@pytest.mark.parametrize("shape", [(6, 5), (1, 5, 2, 3)], ids=str)
def test_the_gradient_over_the_logits(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bits are those of the kernel that writes it elsewhere, behind the loss."""
    monkeypatch.setattr(functional, "loss_of_rows", lambda *_: None)
    x, target = torch.randn(shape, requires_grad=True), torch.tensor([0, 1, -100, 3, 4, 2])
    target = target.reshape(shape[:1] + shape[2:])
    (known,) = torch.autograd.grad(functional.cross_entropy(x * 2, target), x)
    logits = x * 2
    place = logits.data_ptr()
    loss = nn.CrossEntropyLoss(inplace=True)(logits, target)
    (gradient,) = torch.autograd.grad(loss, logits, retain_graph=True)
    assert gradient.data_ptr() == place
    assert torch.equal(gradient * 2, known)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(loss, logits)
    with pytest.raises(RuntimeError, match="a leaf that requires grad"):
        functional.cross_entropy(x, target, inplace=True)


def test_targets_of_images_have_three_axes_at_most() -> None:
    """Where a GPU adds them up for a gradient it walks no more."""
    logits = torch.randn(2, 7, 3, 4, 5, requires_grad=True)
    target = torch.randint(0, 7, (3, 5, 6, 7))[:2, :3, :4, :5]
    assert [tensor.dim() for tensor in functional._images(logits, target)] == [3, 2]
    loss = functional.cross_entropy(logits, target, label_smoothing=0.1)
    expected = theirs.cross_entropy(logits, target, label_smoothing=0.1)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(
        *(torch.autograd.grad(tensor, logits) for tensor in (loss, expected))
    )
    with torch.no_grad():
        torch.testing.assert_close(
            functional.nll_loss(logits, target), theirs.nll_loss(logits, target)
        )


def test_what_is_no_tensor_or_not_strided_is_refused_in_pytorchs_words() -> None:
    x, target = torch.randn(3, 4, requires_grad=True), torch.tensor([0, 1, 2])
    strange: list[tuple[Any, ...]] = [
        (x, target, [1.0] * 4),
        (x, [0, 1, 2]),
        (x, target.to_sparse()),
    ]
    for arguments in [*strange, (x.detach().to_sparse().requires_grad_(), target)]:
        with pytest.raises((TypeError, RuntimeError, NotImplementedError)) as known:
            theirs.cross_entropy(*arguments)
        with pytest.raises(known.type):
            functional.cross_entropy(*arguments)
        with pytest.raises((TypeError, RuntimeError, NotImplementedError)) as known:
            theirs.nll_loss(arguments[0].detach(), *arguments[1:])
        with pytest.raises(known.type):
            functional.nll_loss(arguments[0].detach(), *arguments[1:])


def test_images_have_gradients_of_gradients() -> None:
    x = torch.randn(2, 3, 2, 2, dtype=torch.float64, requires_grad=True)
    target, weight = torch.tensor([[[0, 2], [-100, 1]], [[1, 1], [0, 2]]]), torch.rand(3).double()
    for options in ({}, {"reduction": "none"}, {"label_smoothing": 0.2, "zloss_scale": 0.1}):
        loss = lambda x, o=options: functional.cross_entropy(x, target, weight, **o)  # noqa: E731
        assert torch.autograd.gradcheck(loss, (x,))
        assert torch.autograd.gradgradcheck(loss, (x,))


def test_modules_are_pytorchs() -> None:
    x, target = torch.randn(4, 5), torch.tensor([0, 1, 2, 3])
    images, pixels = torch.randn(2, 5, 3, 3), torch.randint(0, 5, (2, 3, 3))
    weight = torch.rand(5)
    for name, options, inputs in (
        ("ELU", {"alpha": 0.5}, (x,)),
        ("L1Loss", {"reduction": "sum"}, (x, x + 1)),
        ("SmoothL1Loss", {"beta": 0.5}, (x, x + 1)),
        ("NLLLoss", {"weight": weight, "ignore_index": 1}, (x, target)),
        ("NLLLoss", {"weight": weight}, (images, pixels)),
        ("CrossEntropyLoss", {"weight": weight, "label_smoothing": 0.1}, (x, target)),
        ("CrossEntropyLoss", {"reduction": "none"}, (images, pixels)),
    ):
        ours, other = getattr(nn, name)(**options), getattr(torch.nn, name)(**options)
        assert isinstance(ours, type(other))
        assert repr(ours) == f"openaclnn.{other!r}"
        assert ours.state_dict().keys() == other.state_dict().keys()
        torch.testing.assert_close(ours(*inputs), other(*inputs))
        ours.load_state_dict(other.state_dict())
        for again in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
            assert torch.equal(again(*inputs), ours(*inputs))
        compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(*inputs), ours(*inputs))
    torch.testing.assert_close(nn.NLLLoss2d()(images, pixels), theirs.nll_loss(images, pixels))


@pytest.mark.parametrize("kind", [nn.NLLLoss, nn.CrossEntropyLoss])
def test_a_derived_module_may_have_properties_for_attributes(kind: Any) -> None:
    class Derived(kind):  # type: ignore[misc]
        @property
        def ignore_index(self) -> int:
            return 2

        @ignore_index.setter
        def ignore_index(self, value: int) -> None: ...

    x, target, weight = torch.randn(4, 5), torch.tensor([0, 1, 2, 3]), torch.rand(5)
    assert torch.equal(Derived(weight)(x, target), kind(weight, ignore_index=2)(x, target))
    learned = kind(weight)
    del learned.weight
    learned.weight = torch.nn.Parameter(weight, requires_grad=False)
    assert torch.equal(learned(x, target), kind(weight)(x, target))


X, TARGET = torch.randn(4, 5), torch.tensor([0, 1, 2, 3])
WRONG: dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]] = {
    "batches": ("cross_entropy", (X, TARGET[:3]), {}),
    "batches of likelihoods": ("nll_loss", (X, TARGET[:3]), {}),
    "pixels": ("nll_loss", (X.reshape(1, 5, 4), TARGET[None, :3]), {}),
    "no dimensions": ("nll_loss", (X[0, 0], TARGET[0]), {}),
    "weights": ("cross_entropy", (X, TARGET, torch.ones(4)), {}),
    "smoothing": ("cross_entropy", (X, TARGET), {"label_smoothing": 1.5}),
    "reduction": ("l1_loss", (X, X), {"reduction": "average"}),
    "shapes": ("l1_loss", (X, X[:, :3]), {}),
    "beta": ("smooth_l1_loss", (X, X), {"beta": -1.0}),
    "out of range": ("nll_loss", (X, TARGET + 2), {}),
    "out of range, logits": ("cross_entropy", (X, TARGET + 2), {}),
    "negative": ("cross_entropy", (X, TARGET - 1), {}),
    "devices": ("l1_loss", (X, X.to("meta")), {}),
    "integers": ("elu", (TARGET,), {}),
    "floating targets": ("nll_loss", (X, X[:, 0]), {}),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.filterwarnings("ignore:Using a target size")
def test_wrong_use_raises_what_pytorch_raises(name: str) -> None:
    function, arguments, options = WRONG[name]
    with pytest.raises(Exception) as known:  # noqa: PT011
        getattr(theirs, function)(*arguments, **options)
    with pytest.raises(type(known.value)) as caught:
        getattr(functional, function)(*arguments, **options)
    assert type(caught.value) is type(known.value)


SOUND: dict[str, dict[str, Any]] = {
    "elu": {"input": X, "alpha": 0.5},
    "l1_loss": {"input": X, "target": X + 1},
    "smooth_l1_loss": {"input": X, "target": X + 1, "beta": 0.5},
    "nll_loss": {"input": X, "target": TARGET, "weight": torch.ones(5), "ignore_index": 1},
    "cross_entropy": {"input": X, "target": TARGET, "weight": torch.ones(5), "ignore_index": 1, "label_smoothing": 0.1},
}  # fmt: skip
NO_TENSORS = ([[1.0, 2.0]], "mean", X.numpy(), 1.5, object(), True, 10**400)
TAKEN: dict[type, tuple[str, ...]] = {
    float: ("alpha", "beta", "label_smoothing"), bool: ("alpha", "beta", "label_smoothing"),
}  # fmt: skip


@pytest.mark.parametrize("name", SOUND)
@pytest.mark.parametrize("wrong", NO_TENSORS, ids=lambda value: type(value).__name__)
def test_wrong_types_are_refused_in_pytorchs_words(name: str, wrong: Any) -> None:
    """Before a call of the kind was made and after, when the fast path would have it."""
    ours, other, sound = getattr(functional, name), getattr(theirs, name), SOUND[name]
    for _ in range(2):
        for parameter in sound:
            if parameter in TAKEN.get(type(wrong), ()):
                continue
            arguments = sound | {parameter: wrong}
            with pytest.raises(Exception) as known:  # noqa: PT011
                other(**arguments)
            with pytest.raises(type(known.value), match=f"^{re.escape(str(known.value))}$"):
                ours(**arguments)
        for _ in range(2):
            torch.testing.assert_close(ours(**sound), other(**sound))


def test_the_options_that_pytorch_has_not_are_refused_as_its_own_are() -> None:
    told = "zlossScale: expected a number, got list"
    with pytest.raises(TypeError, match=told):
        functional.cross_entropy(X, TARGET, zloss_scale=[1.0])  # type: ignore[arg-type]
    for more in ({"zloss_scale": 0.5}, {"inplace": True}):
        with pytest.raises(TypeError, match=r"'input' .* must be Tensor, not list"):
            functional.cross_entropy([1.0], TARGET, **more)  # type: ignore[arg-type]


def test_what_pytorch_takes_beside_memory_and_numbers_is_its_business() -> None:
    one = torch.tensor(0.5)
    assert functional.elu(X, one).equal(theirs.elu(X, one))  # type: ignore[arg-type]
    sparse = X.to_sparse()
    assert functional.l1_loss(X, sparse).equal(theirs.l1_loss(X, sparse))
    with warnings.catch_warnings(action="ignore"):  # PyTorch calls them a prototype
        nested = torch.nested.nested_tensor([X[0], X[0, :2]])
    for name in ("relu", "gelu", "silu"):
        ours = getattr(functional, name)(nested).unbind()
        assert all(map(torch.equal, ours, getattr(theirs, name)(nested).unbind()))
    with pytest.raises(NotImplementedError, match="NestedTensorCPU"):
        functional.elu(nested)


@pytest.mark.parametrize("name", ["nll_loss", "cross_entropy"])
def test_weights_that_should_learn_are_refused(name: str) -> None:
    """Neither PyTorch nor we have their gradient; a call that was made before must ask as well."""
    loss, weight = getattr(functional, name), torch.ones(5)
    known = [loss(X, TARGET, weight) for _ in range(2)]
    weight.requires_grad_()
    with pytest.raises(RuntimeError, match="not differentiable with respect to argument 'weight'"):
        loss(X, TARGET, weight)
    with torch.no_grad():
        assert loss(X, TARGET, weight).equal(known[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_tensors_without_data_have_shapes(dtype: torch.dtype) -> None:
    """A model on the meta device goes forward and backward, as those do that are only asked for their sizes."""
    for reduction in ("none", "mean"):
        x = torch.empty(4, 5, dtype=dtype, device="meta", requires_grad=True)
        images = x.reshape(1, 5, 2, 2)
        target, ones = TARGET.to("meta"), torch.ones(5, dtype=dtype, device="meta")
        for loss in (
            functional.elu(x),
            functional.elu(x * 1, inplace=True),
            functional.l1_loss(x, x.detach(), reduction=reduction),
            functional.smooth_l1_loss(x, x.detach(), reduction=reduction),
            functional.nll_loss(x, target, ones, reduction=reduction),
            functional.nll_loss(images, target.reshape(1, 2, 2), reduction=reduction),
            functional.cross_entropy(x, target, ones, reduction=reduction, zloss_scale=0.1),
            functional.cross_entropy(images, target.reshape(1, 2, 2), reduction=reduction),
            functional.linear_cross_entropy(x, x.detach(), target, reduction=reduction),
        ):
            assert (loss.device, loss.dtype) == (x.device, dtype)
            (gradient,) = torch.autograd.grad(loss.sum(), x)
            assert (gradient.device, gradient.shape, gradient.dtype) == (x.device, x.shape, dtype)


def test_transforms_and_autocast() -> None:
    x, target = torch.randn(3, 4, 5), torch.tensor([0, 1, 2, 3])
    loss = lambda x: functional.cross_entropy(functional.elu(x), target)  # noqa: E731
    known = lambda x: theirs.cross_entropy(theirs.elu(x), target)  # noqa: E731
    mine, its = (torch.vmap(torch.func.grad(function))(x) for function in (loss, known))
    torch.testing.assert_close(mine, its)
    half = x[0].bfloat16()
    with torch.autocast("cpu"):
        for module in (functional, theirs):
            assert module.cross_entropy(half, target).dtype is torch.float32
            assert module.l1_loss(half, half).dtype is torch.float32
            assert module.nll_loss(half, target).dtype is torch.float32
            assert module.elu(half).dtype is torch.bfloat16
    graph = torch.fx.symbolic_trace(lambda x: functional.elu(x) + 1)
    assert torch.equal(graph(x), functional.elu(x) + 1)


def losses(module: Any) -> dict[str, Any]:
    """One of each, of logits (5, 4)."""
    generator = torch.Generator().manual_seed(5)
    aim, target = torch.randn(5, 4, generator=generator), torch.tensor([0, 3, -100, 1, 2])
    weight = torch.rand(4, generator=generator) + 0.5
    return {
        "elu": lambda x: module.elu(x, 0.7),
        "l1": lambda x: module.l1_loss(x, aim.to(x.dtype)),
        "smooth l1": lambda x: module.smooth_l1_loss(x, aim.to(x.dtype), reduction="sum", beta=0.5),
        "nll": lambda x: module.nll_loss(x, target),
        "weighted nll": lambda x: module.nll_loss(x, target, weight.to(x.dtype), reduction="none"),
        "pixels": lambda x: module.nll_loss(x.reshape(1, 4, 5, 1), target.reshape(1, 5, 1)),
        "cross entropy": lambda x: module.cross_entropy(x, target, weight.to(x.dtype), label_smoothing=0.1),
    }  # fmt: skip


by_loss = pytest.mark.parametrize("name", losses(functional))


@by_loss
def test_what_was_called_before_is_the_same_again(name: str) -> None:
    """Calls of a kind take a shorter way from the second on: with and without autograd, in transforms and modes."""
    loss, x = losses(functional)[name], torch.randn(5, 4)
    first = both(loss, x)
    for _ in range(3):
        for mine, known in zip(both(loss, x), first, strict=True):
            assert torch.equal(mine, known)
        assert torch.equal(loss(x), first[0])
        assert not loss(x).requires_grad
    tracked = x.clone().requires_grad_()
    with torch.no_grad():
        assert not loss(tracked).requires_grad
    value = loss(tracked)
    with torch.no_grad():
        tracked.mul_(2)
    if name not in (
        "l1",
        "nll",
        "weighted nll",
        "pixels",
    ):  # PyTorch's do not look at their values either
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            value.sum().backward()
    tracked = x.clone().requires_grad_()
    gradient = torch.func.grad(lambda k: (loss(tracked) * k).sum())(torch.ones(()))
    torch.testing.assert_close(gradient, first[0].detach().sum())
    with torch.autocast("cpu", torch.bfloat16):
        assert loss(x.bfloat16()).dtype is (torch.bfloat16 if name == "elu" else torch.float32)
    seen: list[Any] = []

    class Watching(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # fmt: skip
            seen.append(function)
            return function(*args, **(kwargs or {}))

    with Watching():
        loss(x)
    assert any(member in seen for member in vars(functional).values() if callable(member))


@by_loss
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # PyTorch's own use
def test_derivatives_in_forward_mode_and_twice(name: str) -> None:
    x, v = torch.randn(5, 4), torch.randn(5, 4)
    ours, other = losses(functional)[name], losses(theirs)[name]
    ours(x)  # a kind that is known
    for transform in (
        lambda loss: torch.func.jvp(loss, (x,), (v,))[1],
        lambda loss: torch.func.hessian(lambda x: loss(x).sum())(x),
        lambda loss: torch.func.vmap(loss)(torch.stack([x, v])),
        lambda loss: torch.func.grad(lambda x: loss(x).square().sum())(x),
    ):
        torch.testing.assert_close(transform(ours), transform(other))
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, v)
        got, known = (forward_ad.unpack_dual(loss(dual)).tangent for loss in (ours, other))
        torch.testing.assert_close(got, known)
    twice = []
    for loss in (ours, other):
        leaf = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(leaf).sum(), leaf, create_graph=True)
        twice += torch.autograd.grad(gradient.square().sum(), leaf)
    torch.testing.assert_close(*twice)


@pytest.mark.filterwarnings("ignore")  # PyTorch's own
def test_backward_passes_that_pytorch_compiles() -> None:
    """Numbers are part of what is compiled: another alpha is another pass."""
    from torch._dynamo import compiled_autograd  # not where every test's process would load it: 3 s

    x = torch.randn(5, 4, requires_grad=True)

    def gradient(alpha: float) -> Any:
        x.grad = None
        functional.cross_entropy(functional.elu(x * 1, alpha), torch.arange(5) % 4).backward()
        return x.grad.clone()

    known = [gradient(alpha) for alpha in (1.0, 0.5)]
    with compiled_autograd._enable(torch.compile(backend="eager")):
        for alpha, expected in zip((1.0, 0.5), known, strict=True):
            torch.testing.assert_close(gradient(alpha), expected)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # PyTorch's own use
def test_forward_mode_is_refused_where_there_is_none() -> None:
    x, v = torch.randn(5, 4), torch.randn(5, 4)
    leaf = x.clone().requires_grad_()
    value = functional.elu(leaf)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, v)
        with pytest.raises(RuntimeError, match="openaclnn::elu has no derivative in forward mode"):
            torch.ops.openaclnn.elu(dual)
        with pytest.raises(RuntimeError, match="elu_backward has no derivative in forward mode"):
            torch.autograd.grad(value, leaf, dual)
        with pytest.raises(RuntimeError, match="not in forward mode"):
            functional.cross_entropy(dual, torch.zeros(5, dtype=torch.long), zloss_scale=0.1)
        torch.testing.assert_close(torch.ops.openaclnn.elu(x), functional.elu(x))


def test_targets_are_looked_at_on_cuda_only_when_asked() -> None:
    check_targets(True)  # changes nothing here: on the CPU they always are
    try:
        with pytest.raises(IndexError, match=r"Target 9 is out of bounds. \((aclnn\w+: )?target: "):
            functional.cross_entropy(X, TARGET + 9)
    finally:
        check_targets(False)


def test_versions_that_will_not_do() -> None:
    refusals.check_version("2.11.0+cu128")
    refusals.check_version("3.0.0a0")
    with pytest.raises(ImportError, match=r"needs PyTorch 2\.11 or newer .*, and found 2\.9\.1"):
        refusals.check_version("2.9.1")
    with pytest.raises(ImportError, match="and there is none"):
        refusals.check_version(None)
    extras = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    for extra in ("torch", "bench"):
        assert extras["optional-dependencies"][extra] == [
            f"torch>={'.'.join(map(str, refusals.LOWEST))}"
        ]


def test_without_pytorch_it_says_so() -> None:
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "import openaclnn\n"
        "try: import openaclnn.torch\n"
        "except ImportError as error: print(error)"
    )
    done = run_python(program)
    assert done.stdout.startswith("openaclnn.torch needs PyTorch 2.11 or newer")


def test_ones_for_missing_weights_are_nobody_elses() -> None:
    """Hooks of what autograd saves may write, and a mode in which they are made may have no memory."""
    nll_loss = functional.nll_loss
    x, target = torch.randn(3, 17).log_softmax(1).requires_grad_(), torch.tensor([0, 1, 2])
    with FakeTensorMode(allow_non_fake_inputs=True):
        nll_loss(x, target)
    known = theirs.nll_loss(x, target)
    assert torch.allclose(nll_loss(x, target), known)
    saved: list[Any] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda v: saved.append(v) or v, lambda v: v):
        loss = nll_loss(x, target)
        torch.autograd.grad(loss, x, create_graph=True)
    for tensor in saved:
        if tensor.shape == (17,):
            tensor.detach().zero_()
    for _ in range(2):
        again = nll_loss(x, target)
        assert torch.allclose(again, known)
        assert torch.autograd.grad(again, x)[0].count_nonzero() == 3


@pytest.mark.parametrize("shape", [(5, 7), (9000, 10), (2, 3, 50, 60), (4, 6, 3)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_a_likelihood_that_nobody_differentiates_has_the_bits_of_one_with_weights_of_ones(
    shape: tuple[int, ...], dtype: torch.dtype, reduction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(5)
    x = torch.randn(shape).to(dtype)
    target = torch.randint(0, shape[1], shape[:1] + shape[2:])
    target.view(-1)[::3] = 1
    options = {"ignore_index": 1, "reduction": reduction}
    known = functional.nll_loss(x, target, torch.ones(shape[1], dtype=dtype), **options)
    learns = x.clone().requires_grad_()
    assert torch.equal(functional.nll_loss(learns, target, **options).detach(), known)
    with openaclnn.use_engine("numpy"):
        torch.testing.assert_close(functional.nll_loss(x, target, **options), known)

    def unwanted(*_: Any) -> Any:
        raise AssertionError("ones were made")

    monkeypatch.setattr(functional, "ones_for", unwanted)
    before = openaclnn.get_num_threads()
    for threads in (1, 2, 3):
        openaclnn.set_num_threads(threads)
        for _ in range(2):  # the slow path, then the fast one
            loss = functional.nll_loss(x, target, **options)
            assert torch.equal(loss, known)
            assert loss.grad_fn is None
    openaclnn.set_num_threads(before)
    strange = target.clone()
    strange.view(-1)[-1] = shape[1]
    with pytest.raises(IndexError, match=f"Target {shape[1]} is out of bounds"):
        functional.nll_loss(x, strange, **options)


@pytest.mark.parametrize("shape", [(5, 7), (3000, 30), (2, 3, 50, 60), (4, 6, 3)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_a_cross_entropy_that_nobody_differentiates_has_the_bits_of_one_that_is(
    shape: tuple[int, ...], dtype: torch.dtype, reduction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(6)
    x, weight = torch.randn(shape).to(dtype), torch.rand(shape[1]).to(dtype)
    target = torch.randint(0, shape[1], shape[:1] + shape[2:])
    target.view(-1)[::3] = -100
    cases = [(w, s, z) for w in (None, weight) for s in (0.0, 0.1) for z in (0.0, 0.5)]
    wide = {weight: weight.float(), None: None}
    known = [torch.ops.openaclnn.cross_entropy_logits(x, target, wide[w], reduction, -100, s, z)[0] for w, s, z in cases]  # fmt: skip

    def loss_of(weight: Any, smoothing: float, scale: float) -> torch.Tensor:
        return functional.cross_entropy(x, target, weight, reduction=reduction, label_smoothing=smoothing, zloss_scale=scale)  # fmt: skip

    with openaclnn.use_engine("numpy"):
        torch.testing.assert_close([loss_of(*case) for case in cases], known)

    def unwanted(*_: Any) -> Any:
        raise AssertionError("numbers of rows were kept")

    for name in ("fast", "call", "op"):
        monkeypatch.setattr(functional._LOGITS, name, unwanted)
    before = openaclnn.get_num_threads()
    for threads in (1, 2, 3):
        openaclnn.set_num_threads(threads)
        for _ in range(2):  # the slow path, then the fast one
            assert all(map(torch.equal, [loss_of(*case) for case in cases], known))
    openaclnn.set_num_threads(before)


def test_what_is_not_memory_as_it_lies_is_pytorchs() -> None:
    """A view that waits for its negation, written over; weights that are no real numbers."""
    for _ in range(2):
        values = [torch.complex(torch.ones(3), torch.linspace(-1, 1, 3)) for _ in range(2)]
        ours, known = (value.conj().imag for value in values)
        assert ours.is_neg()
        assert torch.equal(functional.elu(ours, inplace=True), theirs.elu(known, inplace=True))
        assert torch.equal(*values)
    for dtype in (torch.complex64, torch.uint8, torch.bool):
        weight, x = torch.ones(4, dtype=dtype), torch.randn(3, 4)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="expected scalar type Float"):
                functional.cross_entropy(x, torch.tensor([0, 1, 2]), weight)


@pytest.mark.parametrize("name", ["elu", "l1_loss", "smooth_l1_loss", "nll_loss", "cross_entropy"])
def test_batches_of_gradients(name: str) -> None:
    """As `is_grads_batched` and `vectorize` have them, by the batches of before torch.func."""
    x, target = torch.randn(3, 4), torch.tensor([0, 3, 2])
    more = {"elu": (), "l1_loss": (x + 1,), "smooth_l1_loss": (x * 2,)}.get(name, (target,))
    results = []
    for module in (theirs, functional):
        leaf = x.clone().requires_grad_()
        value = getattr(module, name)(leaf, *more)
        torch.manual_seed(3)
        many = torch.randn(6, *value.shape)
        results += [torch.autograd.grad(value, leaf, many, is_grads_batched=True)[0]]
        twice = lambda a, module=module: getattr(module, name)(a, *more).pow(2).sum()  # noqa: E731
        results += [torch.autograd.functional.hessian(twice, x, vectorize=True)]
    for expected, got in zip(results[:2], results[2:], strict=True):
        torch.testing.assert_close(got, expected)


def test_bytes_are_class_indices_of_rows_alone() -> None:
    for shape, pixels in (((3,), ()), ((2, 3), (2,)), ((2, 3, 4), (2, 4)), ((2, 3, 4, 5), (2, 4, 5))):  # fmt: skip
        x, target = torch.randn(shape), torch.ones(pixels, dtype=torch.uint8)
        for _, name in itertools.product(range(2), ("nll_loss", "cross_entropy")):
            if len(shape) < 3:
                expected = getattr(theirs, name)(x, target)
                torch.testing.assert_close(getattr(functional, name)(x, target), expected)
                continue
            for module in (theirs, functional):
                with pytest.raises(RuntimeError, match="expected scalar type Long but found Byte"):
                    getattr(module, name)(x, target)


def test_what_is_written_over_is_no_view_of_a_parameter() -> None:
    weight = torch.nn.Parameter(torch.full((4, 10), -1.0))
    with pytest.raises(RuntimeError, match="leaf that requires grad"):
        functional.cross_entropy(weight.view(4, 10), torch.arange(4), inplace=True)
    with pytest.raises(RuntimeError, match="view of a leaf"):
        functional.elu(weight[:], 1.0, True)
    assert weight.eq(-1).all()


def test_the_gradient_over_logits_without_memory_of_their_own_is_elsewhere() -> None:
    target = torch.arange(4)
    for change in (lambda x: x[:1].expand(4, 10), lambda x: x.conj() if x.is_complex() else x._neg_view()):  # fmt: skip
        gradients = []
        for options in ({}, {"inplace": True}):
            x = torch.linspace(-1, 1, 40).reshape(4, 10).requires_grad_()
            functional.cross_entropy(change(x * 1), target, **options).backward()
            gradients.append(x.grad)
        torch.testing.assert_close(gradients[0], gradients[1])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64])
def test_no_class_of_doubles_is_ignored_by_its_last_byte(dtype: torch.dtype) -> None:
    x = torch.randn(3, 200, dtype=torch.float64)
    target = torch.tensor([156, 3, 156], dtype=dtype)  # 156 is -100 in eight bits
    for name in ("nll_loss", "cross_entropy"):
        ours = getattr(functional, name)(x, target, reduction="none")
        expected = getattr(theirs, name)(x, target.long(), reduction="none")
        torch.testing.assert_close(ours, expected)


def test_weights_of_doubles_keep_their_digits() -> None:
    x, weight = torch.randn(5, 4).double(), torch.rand(4).double()
    target = torch.tensor([0, 1, 2, 3, 0])
    ours, expected = (m.cross_entropy(x, target, weight) for m in (functional, theirs))
    torch.testing.assert_close(ours, expected, rtol=1e-14, atol=0)


def test_numbers_of_documents_have_the_digits_of_doubles() -> None:
    """Of SELU's two, which plans have as FLOAT."""
    x = torch.linspace(-4, 4, 33, dtype=torch.float64)
    for ours, expected in zip(both(functional.selu, x), both(theirs.selu, x), strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_second_derivatives_keep_their_digits(dtype: torch.dtype) -> None:
    """Of confident predictions, and of none that counts."""
    torch.manual_seed(5)
    start, target = (20 * torch.randn(8, 10)).to(dtype), torch.arange(8)

    def twice(x: Any, module: Any, target: Any) -> Any:
        x = x.detach().requires_grad_()
        (first,) = torch.autograd.grad(module.cross_entropy(x, target), x, create_graph=True)
        return torch.autograd.grad(first[:, 0].sum(), x)[0].double()

    exact = twice(start.double(), theirs, target)
    apart = (twice(start, functional, target) - exact).abs().max() / exact.abs().max()
    assert apart < 8 * torch.finfo(dtype).eps
    assert twice(start, functional, torch.full((8,), -100)).eq(0).all()


HOOKED: dict[str, tuple[Any, ...]] = {
    "elu": (), "gelu": (), "relu": (), "glu": (), "softmax": (1,), "log_softmax": (0,), "prelu": (torch.rand(4),),
    "mse_loss": (torch.randn(3, 4),), "smooth_l1_loss": (torch.randn(3, 4),), "cross_entropy": (torch.tensor([0, 3, 2]),),
    "nll_loss": (torch.tensor([0, 3, 2]),), "binary_cross_entropy_with_logits": (torch.rand(3, 4),),
}  # fmt: skip


@pytest.mark.parametrize("name", HOOKED)
def test_gradients_of_gradients_where_hooks_save_tensors(name: str) -> None:
    """As activations are kept on the host with; torch.func, by which such gradients are made elsewhere, refuses them."""
    start, others = torch.randn(3, 4), HOOKED[name]
    learn = [other.clone().requires_grad_() for other in others if name == "prelu"]
    found = []
    for module, hooks in ((theirs, nullcontext()), (functional, torch.autograd.graph.save_on_cpu())):  # fmt: skip
        x = start.clone().requires_grad_()
        with hooks:
            derivatives = [getattr(module, name)(x, *(learn or others)).pow(2).sum()]
            for _ in range(3):
                (first, *more) = torch.autograd.grad(
                    derivatives[-1], [x, *learn], create_graph=True
                )
                found += [first, *more]
                derivatives.append(sum(each.pow(3).sum() for each in (first, *more)))
    half = len(found) // 2
    for own, expected in zip(found[half:], found[:half], strict=True):
        torch.testing.assert_close(own, expected, rtol=1e-3, atol=1e-3)


def test_batches_of_nothing_and_of_many_axes() -> None:
    vmap = torch.func.vmap
    none, target = torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64)
    assert vmap(functional.elu)(none).shape == (0, 3)
    assert vmap(functional.l1_loss)(none, none).shape == (0,)
    assert vmap(functional.cross_entropy)(none, target).shape == (0,)
    deep = torch.randn(2, *(1,) * 7, 3)
    torch.testing.assert_close(vmap(functional.elu)(deep), theirs.elu(deep))


def test_zeros_without_memory() -> None:
    zeros = torch._efficientzerotensor((3,), dtype=torch.float32)
    assert functional.elu(zeros).eq(0).all()
    assert functional.l1_loss(zeros, torch.ones(3)) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("options", ["plain", "weighted", "smoothed", "both", "images"])
def test_a_gradient_that_is_written_with_its_loss(
    dtype: torch.dtype, reduction: str, options: str
) -> None:
    """On a CPU: as exact as one that is written later, for any gradient of the loss, as often as it is asked for."""
    torch.manual_seed(3)
    x, target = torch.randn(40, 512).to(dtype), torch.randint(0, 512, (40,))
    x[7, 3], target[5] = math.inf, -100
    x[9, target[9]] = 60.0  # nearly certain
    x[5, 3] = math.nan  # of a row that does not count
    if options == "images":
        x = x.reshape(2, 20, 512).movedim(1, 2)[:, :150].contiguous()
        target = target.reshape(2, 20) % 150
        target[0, 5] = -100
    smoothing = 0.2 if options in ("smoothed", "both") else 0.0
    weight = torch.rand(512).to(dtype) if options in ("weighted", "both") else None
    factors = None if weight is None else weight.float()

    def loss_of(logits: Any) -> Any:
        return functional.cross_entropy(logits, target, weight, reduction=reduction, label_smoothing=smoothing)  # fmt: skip

    for factor in (1.0, 0.5, -0.3, 3.0, 0.0, math.inf):
        logits, exact, later = (
            each.requires_grad_() for each in (x.clone(), x.double(), x.clone())
        )
        loss = loss_of(logits)
        assert "OfRows" in type(loss.grad_fn).__name__
        wide = None if weight is None else weight.double()
        known = theirs.cross_entropy(exact, target, wide, reduction=reduction, label_smoothing=smoothing)  # fmt: skip
        wanted = torch.autograd.grad(known * factor, exact)[0]
        got = [torch.autograd.grad(loss * factor, logits, retain_graph=True)[0] for _ in range(2)]
        by_two = torch.ops.openaclnn.cross_entropy_logits(later, target, factors, reduction, -100, smoothing)[0]  # fmt: skip
        again = torch.autograd.grad(by_two * factor, later)[0]
        for gradient in got:
            assert gradient.dtype is dtype
            assert torch.equal(gradient.isnan(), again.isnan())
            assert not gradient.movedim(1, -1)[target == -100].any()
            counted = ~wanted.isnan() & again.isfinite()
            off, allowed = ((each.double() - wanted).abs()[counted] for each in (gradient, again))
            unit = torch.finfo(dtype).eps * wanted.abs()[counted] + torch.finfo(dtype).tiny
            if smoothing:  # of which terms may cancel
                unit = unit + torch.finfo(dtype).eps * wanted.abs()[counted].median()
            assert (off <= allowed + 4 * unit).all()
        assert loss.isnan() == by_two.isnan()
    finite = torch.where(x.isfinite(), x, 0)
    bits, before = set(), openaclnn.get_num_threads()
    for threads in (1, 3):
        openaclnn.set_num_threads(threads)
        logits = finite.clone().requires_grad_()
        loss = loss_of(logits)
        bits.add((loss.item(), torch.autograd.grad(loss, logits)[0].double().numpy().tobytes()))
    openaclnn.set_num_threads(before)
    assert len(bits) == 1
    known = theirs.cross_entropy(finite.double(), target, wide, reduction=reduction, label_smoothing=smoothing)  # fmt: skip
    torch.testing.assert_close(loss.detach().double(), known, rtol=torch.finfo(dtype).eps, atol=0)


def test_sums_before_a_step_are_shared_out() -> None:
    """Weights of many targets, which are added up before rows are walked: by a builtin, and for any number of threads."""
    torch.manual_seed(4)
    x, weight = torch.randn(9000, 20), torch.rand(20)
    target = torch.randint(0, 20, (9000,))
    target[::7] = -100
    bits, before = set(), openaclnn.get_num_threads()
    for threads in (1, 2, 3):
        openaclnn.set_num_threads(threads)
        leaf = x.clone().requires_grad_()
        loss = functional.cross_entropy(leaf, target, weight)
        assert "OfRows" in type(loss.grad_fn).__name__
        loss.backward()
        assert leaf.grad is not None
        bits.add((loss.item(), leaf.grad.numpy().tobytes()))
    openaclnn.set_num_threads(before)
    assert len(bits) == 1
    exact = x.double().requires_grad_()
    known = theirs.cross_entropy(exact, target, weight.double())
    known.backward()
    torch.testing.assert_close(loss.detach().double(), known.detach(), rtol=1e-6, atol=0)
    torch.testing.assert_close(leaf.grad.double(), exact.grad, rtol=1e-5, atol=1e-10)


def test_where_no_gradient_is_written_with_a_loss() -> None:
    x, target = torch.randn(4, 600, requires_grad=True), torch.randint(0, 600, (4,))
    with torch.no_grad():
        assert functional.cross_entropy(x, target).grad_fn is None
    for options in ({"zloss_scale": 0.1}, {"reduction": "none"}):
        loss = functional.cross_entropy(x, target, **options)  # type: ignore[arg-type]
        assert "OfRows" not in type(loss.grad_fn).__name__
    with pytest.raises(IndexError, match="Target 600 is out of bounds"):
        functional.cross_entropy(x, torch.full((4,), 600))
    assert functional.cross_entropy(x, torch.full((4,), -100)).isnan()
    (first,) = torch.autograd.grad(functional.cross_entropy(x, target), x, create_graph=True)
    (expected,) = torch.autograd.grad(theirs.cross_entropy(x, target), x, create_graph=True)
    again = [torch.autograd.grad(gradient.square().sum(), x)[0] for gradient in (first, expected)]
    torch.testing.assert_close(*again)
    changed = x * 1
    loss = functional.cross_entropy(changed, target)
    changed.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
