"""Where `openaclnn.torch` is PyTorch: special values, what backward keeps, refusals, signatures, counts, and blocks of `use`."""

from __future__ import annotations

import doctest
import inspect
import itertools
import math
import random
import threading
import typing
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as theirs

import openaclnn.torch as fast
from openaclnn.torch import disable, enable, functional, nn, override, served, use
from openaclnn.torch.override import COMPOSITES, OVERRIDES

nan, inf = math.nan, math.inf
SPECIAL = (nan, inf, -inf, 0.0, -0.0, 1.5, -1.5, 1e-40, 100.0, -1e4)
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
FUNCTIONS = ("elu", "l1_loss", "smooth_l1_loss", "nll_loss", "cross_entropy")
MODULES = ("ELU", "L1Loss", "SmoothL1Loss", "NLLLoss", "CrossEntropyLoss")
by_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
REDUCTIONS = ("none", "mean", "sum")


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    disable()


Case = tuple[str, tuple[Any, ...], dict[str, Any]]


def result(module: Any, case: Case) -> list[Any]:
    """The value and the gradients of what floats among the first two; or what is raised."""
    name, arguments, options = case
    leaves = [t.detach().clone().requires_grad_(t.is_floating_point()) for t in arguments]
    try:
        value = getattr(module, name)(*leaves, **options)
        return [value, *torch.autograd.grad(value.sum(), [t for t in leaves if t.requires_grad])]
    except Exception as error:
        return [type(error)]


def alike(one: Any, other: Any) -> bool:
    """Up to rounding; every NaN and infinity where the other has it."""
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return bool(one is other)
    near = 8 * torch.finfo(one.dtype).eps
    same = (one.dtype, one.shape) == (other.dtype, other.shape)
    return same and torch.allclose(one.double(), other.double(), near, near, equal_nan=True)


def apart(cases: list[Case]) -> list[Any]:
    """Those of which `functional` or `use` makes something else than PyTorch, in either of two calls."""
    known = [result(theirs, case) for case in cases]
    runs = [[result(functional, case) for case in cases] for _ in range(2)]
    with use():
        runs += [[result(theirs, case) for case in cases] for _ in range(2)]
    return [
        (case, got, right)
        for ours in runs
        for case, got, right in zip(cases, ours, known, strict=True)
        if not all(map(alike, got, right)) or len(got) != len(right)
    ]


def pairs(dtype: torch.dtype) -> tuple[Any, Any]:
    every = torch.tensor(list(itertools.product(SPECIAL, SPECIAL)), dtype=dtype)
    return every[:, 0].clone(), every[:, 1].clone()


@by_dtype
@pytest.mark.in_turns
def test_special_elements(dtype: torch.dtype) -> None:
    values = torch.tensor(SPECIAL, dtype=dtype)
    x, y = pairs(dtype)
    cases: list[Case] = [
        ("elu", (part,), {"alpha": alpha})
        for alpha in (1.0, 0.0, -1.0, 2.5, inf, -inf, nan)
        # NaN alone: in PyTorch its gradient is 1 or NaN by how many elements there are, and by the vectors of the CPU.
        for part in (values[1:], values[:0], values[:1])
    ]
    for how in REDUCTIONS:
        parts = [(x, y), (x[:0], y[:0]), *zip(x[::19].split(1), y[::19].split(1), strict=True)]
        cases += [("l1_loss", pair, {"reduction": how}) for pair in parts]
        for beta in (1.0, 0.0, 0.5, -0.0, inf, nan, -1.0):
            cases += [("smooth_l1_loss", pair, {"reduction": how, "beta": beta}) for pair in parts]
    assert apart(cases) == []


def tables(dtype: torch.dtype) -> list[Any]:
    """Logits with a special value, or a row of them; the second row is the one that targets ignore."""
    torch.manual_seed(0)
    plain = torch.randn(4, 3).to(dtype)
    logits = [plain, plain[:0]]
    for special, where in itertools.product((nan, inf, -inf, -1e4), ((0, 1), (0, slice(None)))):
        logits.append(plain.clone())
        logits[-1][where] = special
    logits.append(plain.clone())
    logits[-1][0, :2] = inf
    return logits


@by_dtype
@pytest.mark.in_turns
def test_special_classes(dtype: torch.dtype) -> None:
    """With every smoothing, all ignored, and weights that add up to 0."""
    targets = [[0, 1, 2, 0], [0, -100, 2, 0], [-100] * 4, [0, 1, 2, 2], [0, 1, 5, 0]]
    weights = [None, [0.0, 0.0, 0.0], [1.0, -1.0, 0.0], [1.0, 0.0, 2.0]]
    cases: list[Case] = []
    for x, labels, weight, how in itertools.product(tables(dtype), targets, weights, REDUCTIONS):
        target = torch.tensor(labels)[: len(x)]
        options: dict[str, Any] = {"reduction": how}
        if weight is not None:
            options["weight"] = torch.tensor(weight, dtype=dtype)
        if labels[0] == -100 and not x.isfinite().all():
            continue  # a row of what is no number and counts for nothing, which has its own test
        if how == "mean" and weight == [1.0, -1.0, 0.0] and labels == [0, 1, 2, 2]:
            continue  # weights that cancel each other: the next but one
        cases.append(("nll_loss", (x, target), options))
        for smoothing in (0.0, 0.1, 1.0):
            cases.append(("cross_entropy", (x, target), {**options, "label_smoothing": smoothing}))
    few = len(cases) // (15 if dtype is torch.float32 else 45)  # all would take long
    assert apart(random.Random(0).sample(cases, few)) == []


def test_a_row_that_counts_for_nothing_has_no_gradient() -> None:
    """docs/pytorch.md: here ours is not PyTorch's, which multiplies what it has by 0."""
    x, target = torch.tensor([[nan, 1.0], [2.0, 1.0]]), torch.tensor([-100, 0])
    for where, module in ((functional, functional), (theirs, theirs)):
        with use():
            loss, gradient = result(module, ("cross_entropy", (x, target), {}))
        assert alike(loss, theirs.cross_entropy(x[1:], target[1:])), where
        assert gradient[0].tolist() == [0.0, 0.0]
    assert result(theirs, ("cross_entropy", (x, target), {}))[1][0].isnan().all()


def test_a_mean_over_weights_that_cancel_each_other_is_no_number() -> None:
    """docs/pytorch.md: infinite or NaN, which of the two is not always PyTorch's."""
    x, target, weight = tables(torch.float32)[0], torch.tensor([0, 1, 2, 2]), [1.0, -1.0, 0.0]
    for smoothing in (0.0, 0.1, 1.0):
        options = {"weight": torch.tensor(weight), "label_smoothing": smoothing}
        for module in (functional, theirs):
            for value in result(module, ("cross_entropy", (x, target), options)):
                assert not value.isfinite().any()


@pytest.mark.parametrize("name", ["l1_loss", "L1Loss", "replaced"])
def test_what_l1_reads_may_be_written_over(name: str) -> None:
    functions: dict[str, Any] = {
        "l1_loss": functional.l1_loss,
        "L1Loss": nn.L1Loss(),
        "replaced": theirs.l1_loss,
    }
    start, other = torch.tensor([1.0, -2.0, 3.0, nan]), torch.tensor([1.5, -3.0, 3.0, 0.0])
    for _ in range(2):
        ours, its = ((start * 1).requires_grad_() for _ in range(2))
        x, y = ours * 1, other.clone().requires_grad_()
        z = y * 1
        with use(only=["l1_loss"] if name == "replaced" else []):
            loss = functions[name](x, z)
        x.mul_(2)
        z.add_(1)
        loss.backward()
        theirs.l1_loss(its, other).backward()
        assert torch.equal(ours.grad, its.grad)
        assert torch.equal(y.grad, -its.grad)
    if name == "replaced":
        assert served()["l1_loss"].ours == 1


@pytest.mark.parametrize("weighted", [torch.float64, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_weights_of_another_dtype_are_refused_where_pytorch_does(
    dtype: torch.dtype, weighted: torch.dtype
) -> None:
    x, target, weight = torch.randn(4, 3).to(dtype), torch.tensor([0, 1, 2, 0]), torch.rand(3)
    cases: list[Case] = [
        (name, (x, target), {"weight": weight.to(weighted), **more})
        for name in ("nll_loss", "cross_entropy")
        for more in ({}, {"reduction": "sum"})
    ]
    assert apart(cases) == []
    if weighted is not dtype:  # where no gradient is asked for, too
        with use("nll_loss"), pytest.raises(RuntimeError, match="expected scalar type"):
            theirs.nll_loss(x, target, weight.to(weighted))
    with torch.autocast("cpu", torch.bfloat16):
        for case in cases:
            kinds = [
                [type(value) for value in result(where, case)] for where in (functional, theirs)
            ]
            assert kinds[0] == kinds[1]


def test_names_of_what_is_replaced() -> None:
    enable("elu")
    assert list(served()) == ["elu"]
    enable(only=["cross_entropy", "nll_loss"], exclude="nll_loss2d_forward")
    assert set(override._libraries) == {
        "cross_entropy_loss", "nll_loss_forward", "nll_loss_backward", "nll_loss2d_backward"
    }  # fmt: skip
    with pytest.raises(
        ValueError, match=r"'relu' is none of elu, .*functions cross_entropy, nll_l"
    ):
        enable("relu")
    assert "nll_loss_forward" in override._libraries  # as before the refusal


def test_functions_and_modules_are_counted() -> None:
    disable()
    with use([]):
        pass
    for count in override.FUNCTIONS.values():
        count.clear()
    x, target = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
    for _ in range(3):
        functional.cross_entropy(x, target)
    nn.CrossEntropyLoss()(x, target)
    functional.cross_entropy(x, x.softmax(1))
    nn.ELU()(x.to(torch.complex64).real.to(torch.float8_e5m2).float())
    with pytest.raises(NotImplementedError):
        functional.elu(x.to(torch.float8_e5m2))
    functional.l1_loss(x, x, weight=torch.ones(4, 3))
    functional.nll_loss(x.double(), target)
    assert {name: calls for name, calls in served().items() if name.startswith("functional.")} == {
        "functional.cross_entropy": (5, 5, {}),
        "functional.elu": (2, 1, {"torch.float8_e5m2": 1}),
        "functional.l1_loss": (1, 0, {"weight is given": 1}),
        "functional.nll_loss": (1, 1, {}),
    }


def kernels() -> dict[str, str]:
    names = [name for name, entry in OVERRIDES.items() if "CPU" in entry.devices]
    return {name: repr(torch.library.get_kernel(f"aten::{name}", "CPU")) for name in names}


def test_blocks_of_two_threads_that_overlap() -> None:
    before, x = kernels(), torch.randn(3)
    first, second = use(), use(only=["elu"])
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert set(override._libraries) == {"elu"}
    theirs.elu(x)
    assert served()["elu"].ours == 1
    second.__exit__(None, None, None)
    assert kernels() == before
    assert not override._libraries


def test_enable_and_disable_between_blocks() -> None:
    before = kernels()
    with use(only="elu"):
        enable(only="smooth_l1_loss")
        assert set(override._libraries) == {"elu", "smooth_l1_loss"}
        disable()
        assert set(override._libraries) == {"elu"}
        enable()
        with use(exclude=["elu"]):
            assert set(override._libraries) == (OVERRIDES.keys() | COMPOSITES.keys()) - {"elu"}
        with pytest.raises(ZeroDivisionError), use(exclude="elu_"):
            raise ZeroDivisionError
    assert set(override._libraries) == OVERRIDES.keys() | COMPOSITES.keys()
    disable()
    assert kernels() == before


def test_threads_enter_and_leave_as_they_like() -> None:
    before, x, failures = kernels(), torch.randn(64), []
    expected = theirs.elu(x)
    names = [None, ["elu"], ["elu", "elu_backward"], "smooth_l1_loss", "cross_entropy"]

    def work(seed: int) -> None:
        draw = random.Random(seed)
        try:
            for _ in range(12):
                with use(draw.choice(names)):
                    torch.testing.assert_close(theirs.elu(x), expected)
                    if draw.random() < 0.3:
                        with use(exclude="elu"):
                            assert "elu" not in override._libraries
                            torch.testing.assert_close(theirs.elu(x), expected)
                    if draw.random() < 0.2:
                        draw.choice((enable, disable))()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    disable()
    assert failures == []
    assert kernels() == before
    assert not override._libraries


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    return [(p.name, p.default, p.kind) for p in inspect.signature(function).parameters.values()]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_written_as_pytorchs(name: str) -> None:
    ours = [
        each for each in parameters(getattr(functional, name)) if each[0] not in ("zloss_scale",)
    ]
    known = parameters(getattr(theirs, name))
    extra = ours[len(known) :]
    assert [each[:2] for each in ours[: len(known)]] == [each[:2] for each in known]
    assert all(kind is inspect.Parameter.KEYWORD_ONLY for _, _, kind in extra)
    hints = typing.get_type_hints(getattr(functional, name))
    assert hints["return"] is torch.Tensor
    assert Any not in hints.values()
    assert ">>>" in inspect.getdoc(getattr(functional, name))  # type: ignore[operator]


@pytest.mark.parametrize("name", MODULES)
def test_modules_are_written_as_pytorchs(name: str) -> None:
    ours, known = getattr(nn, name), getattr(torch.nn, name)
    constructor, forward = (
        [each for each in parameters(one) if each[2] is not inspect.Parameter.KEYWORD_ONLY]
        for one in (ours, ours.forward)
    )
    assert [each[:2] for each in constructor] == [each[:2] for each in parameters(known)]
    assert [each[0] for each in forward] == [each[0] for each in parameters(known.forward)]
    hints = typing.get_type_hints(ours.forward)
    assert {hints[name] for name in ("input", "target", "return") if name in hints} == {
        torch.Tensor
    }
    assert Any not in hints.values()
    assert Any not in typing.get_type_hints(ours.__init__).values()


def test_what_is_public_says_what_it_takes() -> None:
    for name in ("enable", "disable", "use", "served", "check_targets"):
        function = getattr(fast, name)
        hints = typing.get_type_hints(function)
        assert "return" in hints, name
        assert Any not in hints.values()


@pytest.mark.parametrize("module", [functional, override, nn])
def test_examples(module: Any) -> None:
    outcome = doctest.testmod(module, extraglobs={"torch": torch})
    assert outcome.attempted
    assert not outcome.failed
