"""Functions and modules that are derived from declarations: they are PyTorch's, forward and backward, wherever a call comes from."""

from __future__ import annotations

import copy
import inspect
import itertools
import math
import pickle
import typing
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as theirs
from torch.autograd import forward_ad

from openaclnn.torch import elementwise, functional, nn, served
from openaclnn.torch.dispatch import FUNCTIONS

pytestmark = [
    pytest.mark.filterwarnings("ignore:reduction:UserWarning"),
    pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning"),  # PyTorch's own
]
NAMES = tuple(elementwise.__all__)
ACTIVATIONS = [name for name in NAMES if "target" not in inspect.signature(getattr(functional, name)).parameters]  # fmt: skip
DTYPES = (torch.float32, torch.bfloat16, torch.float64)
WORDS = {"threshold": (0.1, 0.5), "softmax": (1,), "log_softmax": (0,), "glu": (0,), "gelu": ()}
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "leaky_relu": [{}, {"negative_slope": 0.3}], "softplus": [{}, {"beta": 2.0, "threshold": 1.0}], "celu": [{}, {"alpha": 0.6}],
    "gelu": [{}, {"approximate": "tanh"}], "hardshrink": [{"lambd": 0.7}], "softshrink": [{"lambd": 0.2}],
}  # fmt: skip
TARGETS = {
    "multilabel_margin_loss": [
        [1, 2, -1, 0, 0, 3],
        [0, 0, 5, -1, 1, 1],
        [-1] * 6,
        [5, 4, 3, 2, 1, 0],
    ]
}


@pytest.fixture(autouse=True)
def counted() -> None:
    for count in FUNCTIONS.values():
        count.clear()


def calls(name: str, dtype: torch.dtype) -> list[tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    """An input, what comes behind it, and options, of everything that a function has."""
    drawn = torch.Generator().manual_seed(3)
    x = torch.randn(4, 6, generator=drawn).to(dtype)
    share = torch.rand(4, 6, generator=drawn).to(dtype)
    if name == "prelu":
        return [(x, (torch.full((n,), 0.3, dtype=dtype),), {}) for n in (1, 6)]
    if name in ACTIVATIONS:
        return [(x, WORDS.get(name, ()), options) for options in OPTIONS.get(name, [{}])]
    target = torch.tensor(TARGETS[name]) if name in TARGETS else share
    if name == "soft_margin_loss":
        target = share.round() * 2 - 1
    every: list[dict[str, Any]] = [{"reduction": how} for how in ("mean", "sum", "none")]
    if name == "kl_div":
        every += [{"reduction": "batchmean"}, {"reduction": "sum", "log_target": True}]
    if name.startswith("binary"):
        every += [{"weight": share, "reduction": "none"}, {"weight": share}]
    if name.endswith("logits"):
        every += [{"pos_weight": share[0]}, {"weight": share[0], "pos_weight": share[:, :1]}]
    return [
        (share if name == "binary_cross_entropy" else x, (target,), options) for options in every
    ]


def both(module: Any, name: str, x: Any, rest: Any, options: Any) -> list[Any]:
    x = x.clone().requires_grad_()
    value = getattr(module, name)(x, *rest, **options)
    return [value, *torch.autograd.grad(value.square().sum(), x)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.in_turns
def test_values_and_gradients(name: str, dtype: torch.dtype) -> None:
    """Of a kind that is new, and then known; PyTorch's 16 bits are no nearer to its own float64."""
    few = name == "multilabel_margin_loss" and dtype is not torch.float32
    if few and dtype is torch.bfloat16:
        with pytest.raises(RuntimeError):
            functional.multilabel_margin_loss(*calls(name, dtype)[0][:1], *calls(name, dtype)[0][1])
        return
    bound: dict[str, Any] = {"rtol": 2e-2, "atol": 2e-2} if dtype is torch.bfloat16 else {}
    every_call = calls(name, dtype)
    for call in every_call:
        known = both(theirs, name, *call)
        for _ in range(3):
            for ours, other in zip(both(functional, name, *call), known, strict=True):
                assert (ours.dtype, ours.shape, ours.stride()) == (other.dtype, other.shape, other.stride())  # fmt: skip
                torch.testing.assert_close(ours, other, **bound)
        with torch.no_grad():
            torch.testing.assert_close(getattr(functional, name)(call[0], *call[1], **call[2]), known[0], **bound)  # fmt: skip
    told = served()[f"functional.{name}"]
    alone = len(every_call) if name == "kl_div" else 0  # whose loss is PyTorch's
    assert told[:2] == (4 * len(every_call), 0 if few else 4 * len(every_call) - alone)


TRANSFORMED = [name for name in NAMES if name not in ("multilabel_margin_loss",)]


@pytest.mark.parametrize("name", TRANSFORMED)
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # PyTorch's own use
def test_transforms_and_second_derivatives(name: str) -> None:
    x, rest, options = calls(name, torch.float32)[-1]
    v = torch.linspace(0.1, 0.9, x.numel()).reshape(x.shape)
    outcomes = []
    for module in (functional, theirs):

        def function(x: Any, module: Any = module) -> Any:
            return getattr(module, name)(x, *rest, **options)

        function(x)
        results = [
            torch.func.jvp(function, (x,), (v,))[1],
            torch.func.grad(lambda x, of=function: of(x).square().sum())(x),
            torch.func.vmap(function)(torch.stack([x, v])),
        ]  # fmt: skip
        leaf = x.clone().requires_grad_()
        if name != "hardsigmoid":  # of which PyTorch has no second derivative
            (first,) = torch.autograd.grad(function(leaf).square().sum(), leaf, create_graph=True)
            results += torch.autograd.grad(first.square().sum(), leaf)
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, v)  # type: ignore[no-untyped-call]
            results.append(forward_ad.unpack_dual(function(dual)).tangent)  # type: ignore[no-untyped-call]
        with torch.autocast("cpu", torch.bfloat16):
            results.append(function(x))
            narrow = [t.bfloat16() if torch.is_tensor(t) else t for t in (x, *rest)]
            results.append(torch.empty(0, dtype=getattr(module, name)(*narrow).dtype))
        outcomes.append(results)
    for ours, other in zip(*outcomes, strict=True):
        torch.testing.assert_close(ours, other, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", ["mse_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div", "prelu"])  # fmt: skip
def test_derivatives_by_what_is_not_the_input(name: str) -> None:
    for x, (other, *_), options in calls(name, torch.float32):
        gradients = []
        for module in (functional, theirs):
            pair = [tensor.clone().requires_grad_() for tensor in (x, other)]
            value = getattr(module, name)(*pair, **options)
            gradients.append(torch.autograd.grad(value.sum(), pair))
        torch.testing.assert_close(*gradients)


MODULES: dict[str, dict[str, Any]] = {
    "CELU": {"alpha": 0.6}, "GELU": {"approximate": "tanh"}, "GLU": {"dim": 0}, "Hardshrink": {"lambd": 0.2}, "Hardsigmoid": {}, "Hardswish": {},
    "LeakyReLU": {"negative_slope": 0.2}, "LogSigmoid": {}, "LogSoftmax": {"dim": 1}, "Mish": {}, "PReLU": {"num_parameters": 6, "init": 0.1},
    "ReLU": {}, "SELU": {}, "SiLU": {}, "Sigmoid": {}, "Softmax": {"dim": 0}, "Softplus": {"beta": 2.0, "threshold": 3.0},
    "Softshrink": {"lambd": 0.2}, "Threshold": {"threshold": 0.1, "value": 2.0},
    "BCELoss": {"weight": torch.linspace(0, 1, 24).reshape(4, 6)}, "BCEWithLogitsLoss": {"pos_weight": torch.linspace(1, 2, 6)},
    "KLDivLoss": {"reduction": "batchmean", "log_target": True}, "MSELoss": {"reduction": "sum"}, "MultiLabelMarginLoss": {},
    "SoftMarginLoss": {"reduction": "none"},
}  # fmt: skip
FUNCTION = {"BCELoss": "binary_cross_entropy", "MultiLabelMarginLoss": "multilabel_margin_loss"}


def test_all_modules_are_tried() -> None:
    others = {"ELU", "L1Loss", "SmoothL1Loss", "NLLLoss", "NLLLoss2d", "CrossEntropyLoss", "LinearCrossEntropyLoss"}  # fmt: skip
    assert {*nn.__all__} == {*MODULES} | others


@pytest.mark.parametrize("name", MODULES)
def test_modules(name: str) -> None:
    options, known = MODULES[name], getattr(torch.nn, name)
    ours, other = getattr(nn, name)(**options), known(**options)
    assert isinstance(ours, known)
    assert repr(ours) == f"openaclnn.{other!r}"
    assert f"torch.nn.{name}` by our kernels" in ours.__doc__
    assert ours.state_dict().keys() == other.state_dict().keys()
    x, target, _ = calls(FUNCTION.get(name, "mse_loss"), torch.float32)[0]
    inputs = (x, *target) if name.endswith("Loss") else (x,)
    torch.testing.assert_close(ours(*inputs), other(*inputs))
    for again in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert torch.equal(again(*inputs), ours(*inputs))
    assert inspect.signature(type(ours)) == inspect.signature(known)
    assert list(inspect.signature(ours.forward).parameters) == list(inspect.signature(other.forward).parameters)  # fmt: skip
    assert set(typing.get_type_hints(ours.forward).values()) == {torch.Tensor}
    assert sum(function.ours for function in FUNCTIONS.values()) or name == "KLDivLoss"


@pytest.mark.parametrize("name", NAMES)
def test_functions_are_written_as_pytorchs(name: str) -> None:
    ours, other = getattr(functional, name), getattr(theirs, name)
    assert ours.__doc__.startswith(f"`torch.nn.functional.{name}`")
    assert ">>>" in ours.__doc__
    hints = typing.get_type_hints(ours)
    assert hints["return"] is torch.Tensor
    assert Any not in hints.values()
    try:
        known = inspect.signature(other).parameters.values()
    except ValueError:  # a function in C, which says in its text what it takes
        assert all(parameter in other.__doc__ for parameter in inspect.signature(ours).parameters)
        return
    told = [
        (parameter.name, parameter.kind)
        for parameter in inspect.signature(ours).parameters.values()
    ]
    assert told == [(parameter.name, parameter.kind) for parameter in known]
    for parameter, its in zip(inspect.signature(ours).parameters.values(), known, strict=True):
        assert parameter.default == its.default


@pytest.fixture
def every_warning() -> Iterator[None]:
    """PyTorch's, of which some are told once in a process."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(before)


@pytest.mark.usefixtures("every_warning")
def test_nothing_of_float64_and_no_elements_is_memory_that_cannot_be_written() -> None:
    x = torch.zeros(0, 3, dtype=torch.float64, requires_grad=True)
    functional.kl_div(x, torch.zeros(0, 3, dtype=torch.float64), reduction="sum").backward()
    assert x.grad is not None
    assert x.grad.shape == (0, 3)


def test_compiled_into_one_graph() -> None:
    names = "gelu", "prelu", "softmax", "binary_cross_entropy_with_logits", "kl_div"
    every_call = [(name, *calls(name, torch.float32)[-1]) for name in names]

    def function(x: Any) -> Any:
        return [
            getattr(functional, name)(x, *rest, **options) for name, _, rest, options in every_call
        ]

    x = every_call[0][1]
    torch.testing.assert_close(torch.compile(function, fullgraph=True, backend="eager")(x), function(x))  # fmt: skip


def test_what_is_written_over() -> None:
    names = [n for n in ACTIVATIONS if "inplace" in inspect.signature(getattr(functional, n)).parameters]  # fmt: skip
    assert len(names) == 10
    for name in names:
        x, rest, _ = calls(name, torch.float32)[0]
        known = getattr(theirs, name)(x.clone(), *rest)
        tensor, before = x.clone(), None
        for _ in range(2):
            tensor.copy_(x)
            before = tensor._version
            assert getattr(functional, name)(tensor, *rest, inplace=True) is tensor
            assert tensor._version > before
            torch.testing.assert_close(tensor, known)
        assert served()[f"functional.{name}"][:2] == (2, 2)
        tracked = x.clone().requires_grad_()
        value = getattr(functional, name)(tracked * 1, *rest, inplace=True)
        (gradient,) = torch.autograd.grad(value.sum(), tracked)
        torch.testing.assert_close([value, gradient], both_of_sum(name, x, rest))
        with pytest.raises(RuntimeError, match="leaf"):
            getattr(functional, name)(tracked, *rest, inplace=True)


def both_of_sum(name: str, x: Any, rest: Any) -> list[Any]:
    x = x.clone().requires_grad_()
    value = getattr(theirs, name)(x, *rest)
    return [value, *torch.autograd.grad(value.sum(), x)]


X, Y = torch.rand(4, 6), torch.rand(4, 6)
WRONG: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("mse_loss", (X, Y[:, :5]), {}), ("mse_loss", (X, Y), {"reduction": "average"}), ("mse_loss", (X, 3), {}), ("relu", ([1.0],), {}),
    ("binary_cross_entropy", (X * 2, Y), {}), ("binary_cross_entropy", (X - 1, Y), {"reduction": "none"}), ("binary_cross_entropy", (X, Y[0]), {}),
    ("binary_cross_entropy", (X * math.nan, Y), {}), ("softshrink", (X, -1.0), {}), ("celu", (X, 0.0), {}), ("glu", (X[:, :5],), {}),
    ("glu", (X, 7), {}), ("gelu", (X,), {"approximate": "other"}), ("prelu", (X, Y[0, :3]), {}), ("softmax", (X, 4), {}),
    ("multilabel_margin_loss", (X, torch.full((4, 6), 9)), {}), ("multilabel_margin_loss", (X, torch.zeros(3, 6).long()), {}),
    ("softmax", (X[:0], 4), {}), ("log_softmax", (X[:0], -3), {}), ("glu", (X[:0], 2), {}), ("silu", (torch.arange(3),), {}), ("binary_cross_entropy_with_logits", (X, Y[0]), {}), ("kl_div", (X, Y[:3]), {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "options"), WRONG, ids=lambda parameter: parameter if isinstance(parameter, str) else "")  # fmt: skip
@pytest.mark.filterwarnings("ignore:Using a target size")
def test_wrong_use_raises_what_pytorch_raises(name: str, arguments: Any, options: Any) -> None:
    raised: list[Any] = []
    for module in (functional, theirs):
        with pytest.raises(Exception) as caught:  # noqa: PT011
            getattr(module, name)(*arguments, **options)
        raised.append((caught.type, str(caught.value)))
    assert raised[0] == raised[1]


def test_what_pytorch_takes_beside() -> None:
    """Other dtypes and shapes, old options, numbers that are tensors."""
    whole = torch.arange(-3, 3)
    cases: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        ("relu", (whole,), {}), ("sigmoid", (whole,), {}), ("softmax", (X, 1), {"dtype": torch.float64}), ("leaky_relu", (X - 0.5, math.inf), {}),
        ("binary_cross_entropy", (X, Y, Y[0]), {}), ("softplus", (X, torch.tensor(2.0)), {}), ("mse_loss", (X, Y), {"weight": Y}),
        ("binary_cross_entropy_with_logits", (X, Y.double()), {}), ("relu", (X[:0],), {}), ("mse_loss", (X[:0], Y[:0]), {}), ("mish", (X.t(),), {}),
        ("relu", (X[0, 0],), {}), ("softmax", (X[0, 0], 0), {}), ("glu", (X[:0],), {}), ("sigmoid", (X.reshape(1, 2, 1, 2, 1, 3, 1, 2, 1),), {}),
    ]  # fmt: skip
    for name, arguments, options in cases:
        for _ in range(2):
            ours = getattr(functional, name)(*arguments, **options)
            torch.testing.assert_close(ours, getattr(theirs, name)(*arguments, **options), equal_nan=True)  # fmt: skip
    for average, reduce in itertools.product((None, True, False), repeat=2):
        if average is None is reduce:
            continue
        with pytest.warns(UserWarning, match="size_average and reduce"):
            ours = functional.mse_loss(X, Y, average, reduce)
        with pytest.warns(UserWarning, match="size_average and reduce"):
            torch.testing.assert_close(ours, theirs.mse_loss(X, Y, average, reduce))
