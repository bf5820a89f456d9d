"""Losses over many processes: two and then four of them are started once, and run every case.

One process is the measure: the same function in a group of one, and PyTorch's loss in float64.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import itertools
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.nn.functional import all_reduce
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Placement,
    Replicate,
    Shard,
    distribute_tensor,
)
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.utils._python_dispatch import TorchDispatchMode

import openaclnn
import openaclnn.torch as fast
from conftest import in_turn
from openaclnn.torch import functional, nn, parallel
from openaclnn.torch.adopt import Logits
from openaclnn.torch.parallel import collectives
from openaclnn.torch.parallel.dtensors import register_rules
from workloads import EVERYTHING

SIZES = (2, 4)
LOCAL = (
    {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
)  # whatever the machine calls itself
EXAMPLES = Path(__file__).parent.parent / "examples"


@dataclass(frozen=True)
class Team:
    """Processes that run a case together, and each of them alone."""

    group: Any
    alone: Any
    rank: int
    size: int

    def cuts(self, length: int) -> list[slice]:
        """Parts of no common length; one is empty where there are four."""
        at = {1: [0], 2: [0, length // 3], 4: [0, length // 4, length // 2 + 1, length // 2 + 1]}
        starts = at[self.size]
        return [slice(a, b) for a, b in zip(starts, [*starts[1:], length], strict=True)]

    def cut(self, length: int) -> slice:
        return self.cuts(length)[self.rank]

    def mesh(self, *shape: int) -> DeviceMesh:
        return DeviceMesh("cpu", torch.arange(self.size).view(shape or (self.size,)))


Case = Callable[[Team], None]
CASES: dict[str, Case] = {}


OF_TWO: set[str] = set()


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


def case_of_two(function: Case) -> Case:
    """One in which four processes show nothing that two do not: `make test-all` has it with both."""
    OF_TWO.add(function.__name__)
    return case(function)


def cases_of(size: int) -> dict[str, Case]:
    """Of two processes all, of four in turns."""
    names = [*CASES]
    if size == 4 and not EVERYTHING:
        names = in_turn([name for name in names if name not in OF_TWO], "four")
    return {name: CASES[name] for name in names}


ROWS, CLASSES = 14, 23
EPS = {torch.float64: 2.3e-16, torch.float32: 1.2e-7, torch.float16: 9.8e-4, torch.bfloat16: 7.9e-3}


def whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def problem(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, targets and weights: ignored, confident and tied rows, and one with -inf in whole shards."""
    generator = torch.Generator().manual_seed(7)
    logits = torch.randn(ROWS, CLASSES, generator=generator) * 3
    target = torch.randint(CLASSES, (ROWS,), generator=generator)
    target[3] = target[8] = -100
    logits[0, target[0]] = 40.0
    logits[1] = 0.5
    logits[2, ::5] = 12.0
    logits[4, : CLASSES // 2 + 1] = -math.inf
    target[4] = CLASSES - 1
    return logits.to(dtype), target, torch.rand(CLASSES, generator=generator) + 0.5


def expected(logits: Tensor, target: Tensor, *, zloss_scale: float = 0.0, **options: Any) -> Any:
    """Loss and gradient of all rows and classes by PyTorch in float64."""
    leaf = logits.double().requires_grad_()
    if options.get("weight") is not None:
        options["weight"] = options["weight"].double()
    loss = F.cross_entropy(leaf, target, **options)
    if zloss_scale:
        ignored = target == options.get("ignore_index", -100)
        squares = zloss_scale * leaf.logsumexp(1).square().masked_fill(ignored, 0.0)
        reduction = options.get("reduction", "mean")
        if reduction == "none":
            loss = loss + squares
        else:
            loss = loss + squares.sum() / (1 if reduction == "sum" else (~ignored).sum())
    (gradient,) = torch.autograd.grad(loss.sum(), leaf)
    return loss.detach(), gradient


def run(function: Callable[..., Tensor], logits: Tensor, *arguments: Any, **options: Any) -> Any:
    leaf = logits.detach().clone().requires_grad_()
    loss = function(leaf, *arguments, **options)
    (gradient,) = torch.autograd.grad(loss.sum(), leaf)
    assert gradient.dtype == leaf.dtype
    return loss.detach(), gradient


def assert_near(got: Tensor, exact: Tensor, scale: Tensor | float = 0.0) -> None:
    """Within a few roundings of the dtype, of the value or of the terms that make it up (`scale`), and PyTorch's own."""
    assert got.shape == exact.shape
    inexact = 16 * EPS[torch.float64]
    magnitude = torch.maximum(exact.abs(), torch.as_tensor(scale).double())
    allowed = (4 * EPS[got.dtype] + inexact) * magnitude + inexact
    wrong = (got.double() - exact).abs() > allowed + torch.finfo(got.dtype).smallest_normal
    assert not wrong.any(), (got[wrong], exact[wrong])


OPTIONS: list[dict[str, Any]] = [
    {},
    {"reduction": "sum"},
    {"reduction": "none", "zloss_scale": 0.01},
    {"zloss_scale": 0.02},
    {"ignore_index": 5},
    {"label_smoothing": 0.1},
    {"label_smoothing": 0.2, "reduction": "none"},
    {"label_smoothing": 1.0, "zloss_scale": 0.5, "reduction": "sum"},
]


def variants(every: bool) -> Iterator[tuple[dict[str, Any], bool]]:
    """Options with and without weights: both of each, or every other."""
    for index, options in enumerate(OPTIONS):
        for weighted in (False, True) if every else (index % 2 == 0,):
            yield options, weighted


def hidden_infinities(logits: Tensor, options: dict[str, Any]) -> Tensor:
    """Smoothing makes a loss of every class: one that cannot be has an infinite one."""
    if not options.get("label_smoothing"):
        return logits
    return logits.masked_fill(logits == -math.inf, -20.0)


@case
def classes_apart(team: Team) -> None:
    for dtype in EPS if team.size == 2 or EVERYTHING else (torch.float32, torch.bfloat16):
        for options, weighted in variants(every=dtype == torch.float32):
            logits, target, weight = problem(dtype)
            logits = hidden_infinities(logits, options)
            if options.get("ignore_index"):
                target[target == -100] = 5
            shard = team.cut(CLASSES)
            for class_weight in (weight, weight[shard]) if weighted else (None,):
                exact = expected(logits, target, weight=weight if weighted else None, **options)
                got = run(
                    parallel.vocab_parallel_cross_entropy, logits[:, shard], target,
                    group=team.group, weight=class_weight, **options,
                )  # fmt: skip
                scale = exact[1].abs().amax(1, keepdim=True)
                assert_near(got[0], exact[0])
                assert_near(got[1], exact[1][:, shard], scale)
                alone = run(
                    parallel.vocab_parallel_cross_entropy, logits, target,
                    group=team.alone, weight=weight if weighted else None, **options,
                )  # fmt: skip
                assert_near(got[0], alone[0].double())
                assert_near(got[1], alone[1][:, shard].double(), scale)


@case
def confident_rows(team: Team) -> None:
    """A loss of 1e-26 has its digits, and so has its gradient at the target, where PyTorch has 0."""
    logits = torch.zeros(3, CLASSES)
    target = torch.tensor([1, 9, CLASSES - 1])
    logits[torch.arange(3), target] = torch.tensor([20.0, 40.0, 60.0])
    exact_loss = torch.log1p((CLASSES - 1) * torch.tensor([-20.0, -40.0, -60.0]).double().exp())
    shard = team.cut(CLASSES)
    loss, gradient = run(
        parallel.vocab_parallel_cross_entropy, logits[:, shard], target, group=team.group, reduction="none"
    )  # fmt: skip
    torch.testing.assert_close(loss.double(), exact_loss, rtol=1e-6, atol=0.0)
    here = (target >= shard.start) & (target < shard.stop)
    at_target = gradient[here, target[here] - shard.start].double()
    torch.testing.assert_close(at_target, torch.expm1(-exact_loss[here]), rtol=1e-6, atol=0.0)


@case
def batch_apart(team: Team) -> None:
    """Each row has the bits it has alone: sums are float64, and their order shows in that dtype only."""
    for dtype in EPS if team.size == 2 or EVERYTHING else (torch.float32, torch.bfloat16):
        for options, weighted in variants(every=dtype == torch.float32):
            logits, target, weight = problem(dtype)
            logits = hidden_infinities(logits, options)
            if options.get("ignore_index"):
                target[target == -100] = 5
            options = options | {"weight": weight if weighted else None}
            shard = team.cut(ROWS)
            got = run(
                parallel.batch_parallel_cross_entropy, logits[shard], target[shard], group=team.group, **options
            )  # fmt: skip
            alone = run(
                parallel.batch_parallel_cross_entropy, logits, target, group=team.alone, **options
            )
            exact = expected(logits, target, **options)
            each = options.get("reduction") == "none"
            assert torch.equal(got[1], alone[1][shard])
            if each or dtype != torch.float64:
                assert torch.equal(got[0], alone[0][shard] if each else alone[0])
            assert_near(alone[0], exact[0])
            assert_near(alone[1], exact[1], exact[1].abs().amax(1, keepdim=True))


def pixels(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(9)
    values = torch.randn(ROWS, 5, 3, 2, generator=generator)
    target = torch.randint(5, (ROWS, 3, 2), generator=generator)
    target[2:5] = -100
    return values.to(dtype), target, torch.rand(5, generator=generator) + 0.5


@case
def batch_of_pixels_apart(team: Team) -> None:
    values, target, weight = pixels()
    shard = team.cut(ROWS)
    pairs = [
        (parallel.batch_parallel_cross_entropy, F.cross_entropy),
        (parallel.batch_parallel_nll_loss, F.nll_loss),
    ]
    for ours, theirs in pairs:
        for reduction in ("none", "mean", "sum"):
            for class_weight in (None, weight):
                options = {"weight": class_weight, "reduction": reduction}
                got = run(ours, values[shard], target[shard], group=team.group, **options)
                every = run(ours, values, target, group=team.alone, **options)
                options["weight"] = None if class_weight is None else class_weight.double()
                exact = run(theirs, values.double(), target, **options)
                assert torch.equal(got[0], every[0][shard] if reduction == "none" else every[0])
                assert torch.equal(got[1], every[1][shard])
                assert_near(every[0], exact[0])
                assert_near(every[1], exact[1], exact[1].abs().amax(1, keepdim=True))


@case
def elements_apart(team: Team) -> None:
    generator = torch.Generator().manual_seed(3)
    x, y = torch.randn(2, ROWS, 40, generator=generator).unbind()
    pairs: list[tuple[Any, Any, dict[str, Any]]] = [
        (parallel.batch_parallel_l1_loss, F.l1_loss, {}),
        (parallel.batch_parallel_smooth_l1_loss, F.smooth_l1_loss, {"beta": 0.7}),
    ]
    shard = team.cut(ROWS)
    for dtype in EPS:
        a, b = x.to(dtype), y.to(dtype)
        for ours, theirs, more in pairs:
            for reduction in ("none", "mean", "sum"):
                options = {"reduction": reduction, **more}
                got = run(ours, a[shard], b[shard], group=team.group, **options)
                exact = run(theirs, a.double(), b.double(), **options)
                assert_near(got[0], exact[0][shard] if reduction == "none" else exact[0])
                assert_near(got[1], exact[1][shard])
                of_target = run(ours, b[shard], a[shard], group=team.group, **options)
                assert torch.equal(of_target[1], -got[1])


@case_of_two
def averaged_by_ddp(team: Team) -> None:
    """DistributedDataParallel divides by the number of processes; `averaged` makes up for it, whatever their rows."""
    logits, target, _ = problem()
    features = torch.nan_to_num(logits, neginf=0.0)
    torch.manual_seed(1)
    head = torch.nn.Linear(CLASSES, CLASSES)
    F.cross_entropy(head(features), target).backward()
    exact = head.weight.grad
    head.weight.grad = None
    model = torch.nn.parallel.DistributedDataParallel(head, process_group=team.group)
    shard = team.cut(ROWS)
    loss = parallel.batch_parallel_cross_entropy(
        model(features[shard]), target[shard], group=team.group, averaged=True
    )
    loss.backward()
    torch.testing.assert_close(head.weight.grad, exact)


class Sizes(TorchDispatchMode):
    """The numbers of elements of what operations make."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []
        self.inputs: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, Tensor):
                self.seen.append(tensor.untyped_storage().nbytes())
        return result


@case
def two_exchanges_and_no_copies(team: Team) -> None:
    """The forward has one exchange of maxima and one of sums, the gradient none; neither makes a thing of rows times
    classes but the gradient itself."""
    rows, classes = 64, 8192
    shard = torch.randn(rows, classes).requires_grad_()
    target = torch.randint(classes * team.size, (rows,), generator=torch.Generator().manual_seed(0))
    counted: list[str] = []
    plain = collectives.all_reduce

    def counting(tensor: Tensor, op: Any, group: Any, **later: Any) -> Any:
        counted.append(op.name if hasattr(op, "name") else str(op))
        return plain(tensor, op, group, **later)

    for options in (
        {},
        {"label_smoothing": 0.1, "weight": torch.rand(classes), "zloss_scale": 0.1},
    ):
        collectives.all_reduce = counting
        try:
            with Sizes() as forward:
                loss = parallel.vocab_parallel_cross_entropy(
                    shard, target, group=team.group, **options
                )
            assert len(counted) == 2
            with Sizes() as backward:
                (gradient,) = torch.autograd.grad(loss, shard)
            assert len(counted) == 2
        finally:
            collectives.all_reduce = plain
            counted.clear()
        large = shard.numel() * 4
        assert max(size for size in forward.seen if size != large) <= large // 4
        assert gradient.untyped_storage().nbytes() == large
        assert max(size for size in backward.seen if size != large) <= large // 4


def linear_problem(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor, dict[str, Tensor]]:  # fmt: skip
    """Features, the weight of a linear layer, its bias, and tensors that count for something by name."""
    generator = torch.Generator().manual_seed(5)
    x, matrix, bias = (torch.randn(*shape, generator=generator).to(dtype) for shape in ((ROWS, 6), (CLASSES, 6), (CLASSES,)))  # fmt: skip
    _, target, weight = problem()
    return x, matrix, bias, {"target": target, "weight": weight, "token_weight": torch.rand(ROWS, generator=generator)}  # fmt: skip


LINEAR: list[tuple[tuple[str, ...], dict[str, Any]]] = [
    ((), {"memory": 300}),
    (("weight",), {"label_smoothing": 0.1, "memory": 1}),
    (("weight",), {"zloss_scale": 0.01}),
    (("weight", "token_weight"), {"zloss_scale": 0.01, "softcap": 3.0, "reduction": "sum"}),
    (("token_weight",), {"softcap": 2.0, "reduction": "none"}),
    ((), {"denominator": 7.0}),
]


def linear_run(function: Any, learnt: tuple[Tensor, ...], target: Tensor, **options: Any) -> list[Tensor]:  # fmt: skip
    """Loss and gradients of input, weight and bias."""
    x, matrix, bias = (tensor.detach().clone().requires_grad_() for tensor in learnt)
    loss = function(x, matrix, target, linear_bias=bias, **options)
    incoming = torch.linspace(1, 2, loss.numel()).to(loss.dtype).view(loss.shape)
    return [loss.detach(), *torch.autograd.grad(loss, (x, matrix, bias), incoming)]


@case
def a_linear_layer_in_columns(team: Team) -> None:
    """Chunks of one row, of some, and of a quarter of all; float64 and second derivatives take the logits."""
    shard = team.cut(CLASSES)
    for dtype in EPS if team.size == 2 else (torch.float32,):
        x, matrix, bias, more = linear_problem(dtype)
        for names, options in LINEAR if dtype in (torch.float32, torch.float64) else LINEAR[2:4]:
            tensors = {name: more[name] for name in names}
            wide = {name: tensor.double() for name, tensor in tensors.items()}
            plain = {name: value for name, value in options.items() if name != "memory"}
            exact = linear_run(functional.linear_cross_entropy, (x.double(), matrix.double(), bias.double()), more["target"], **wide, **plain)  # fmt: skip
            got = linear_run(parallel.linear_cross_entropy, (x, matrix[shard], bias[shard]), more["target"], group=team.group, **tensors, **options)  # fmt: skip
            known = [exact[0], exact[1], exact[2][shard], exact[3][shard]]
            for tensor, right, whole_one in zip(got, known, exact, strict=True):
                assert tensor.dtype == dtype
                near = max(
                    8 * EPS[dtype], 1e-6 if "token_weight" in names else 0.0
                )  # one process has its sum in FLOAT
                torch.testing.assert_close(tensor.double(), right, rtol=near, atol=near * whole_one.abs().max().item())  # fmt: skip
    x, matrix, bias, more = linear_problem()
    one, several = (
        twice(function, x, weight, more["target"], **group)
        for function, weight, group in (
            (functional.linear_cross_entropy, matrix, {}),
            (parallel.linear_cross_entropy, matrix[shard], {"group": team.group}),
        )
    )
    torch.testing.assert_close(several, one, rtol=1e-4, atol=1e-5)


def twice(function: Any, x: Tensor, matrix: Tensor, target: Tensor, **options: Any) -> Tensor:
    """The gradient of a gradient's square."""
    x = x.clone().requires_grad_()
    (first,) = torch.autograd.grad(function(x, matrix, target, **options), x, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), x)
    return second


@case
def a_linear_layer_exchanges_some_numbers_a_row(team: Team) -> None:
    """As many bytes whatever the vocabulary; and no process has more logits than of its classes of some rows."""
    rows, features = 32, 8
    plain, counted = collectives.all_reduce, list[int]()

    def counting(tensor: Tensor, op: Any, group: Any, **later: Any) -> Any:
        counted.append(tensor.nbytes)
        return plain(tensor, op, group, **later)

    totals = {}
    for classes in (64, 1024):
        x = torch.randn(rows, features, generator=torch.Generator().manual_seed(0)).requires_grad_()
        matrix = torch.randn(classes, features).requires_grad_()
        target = torch.randint(classes * team.size, (rows,), generator=torch.Generator().manual_seed(1))  # fmt: skip
        for wanted in ("forward", "gradients"):
            collectives.all_reduce = counting
            try:
                with torch.set_grad_enabled(wanted == "gradients"), Sizes() as sizes:
                    loss = parallel.linear_cross_entropy(x, matrix, target, group=team.group)
                    if wanted == "gradients":
                        loss.backward()
            finally:
                collectives.all_reduce = plain
            totals[classes, wanted] = sum(counted)
            counted.clear()
            if classes == 1024:  # two of four chunks
                assert max(sizes.seen) <= rows * classes * 4 // 2 + matrix.nbytes
    assert totals[64, "forward"] == totals[1024, "forward"] == 4 * 8 * rows + 8 * team.size
    assert totals[64, "gradients"] == totals[1024, "gradients"] == totals[64, "forward"] + 4 * features * rows  # fmt: skip


@case
def a_linear_layer_of_rows_apart(team: Team) -> None:
    """One mean over the rows of all processes, whose gradients are added up, or averaged."""
    x, matrix, bias, more = linear_problem()
    shard = team.cut(ROWS)
    for averaged, options in ((False, {}), (True, {"zloss_scale": 0.1, "weight": more["weight"]}), (True, {"reduction": "sum"})):  # fmt: skip
        exact = linear_run(functional.linear_cross_entropy, (x, matrix, bias), more["target"], **options)  # fmt: skip
        got = linear_run(
            parallel.linear_cross_entropy, (x[shard], matrix, bias), more["target"][shard], group=team.alone, data_group=team.group, averaged=averaged,
            **options,
        )  # fmt: skip
        for tensor in got[2:]:
            dist.all_reduce(tensor, group=team.group)
        factor = team.size if averaged else 1
        known = [exact[0], exact[1][shard] * factor, exact[2] * factor, exact[3] * factor]
        torch.testing.assert_close(got, known, rtol=1e-5, atol=1e-6)


@case
def a_linear_layer_of_dtensors(team: Team) -> None:
    """Classes over a dimension of the mesh, rows over another, or over the same one, from which they are gathered first."""
    x, matrix, bias, more = linear_problem()
    x, target = x.view(2, ROWS // 2, 6), more["target"].view(2, ROWS // 2)
    meshes: list[tuple[tuple[int, ...], list[Placement], list[Placement]]] = [
        ((2,), [Shard(1)], [Shard(0)]), ((2,), [Shard(1)], [Replicate()]),
    ] if team.size == 2 else [((2, 2), [Shard(0), Shard(1)], [Replicate(), Shard(0)])]  # fmt: skip
    for (shape, of_rows, of_classes), options in itertools.product(meshes, ({}, {"reduction": "none", "weight": more["weight"]})):  # fmt: skip
        exact = linear_run(functional.linear_cross_entropy, (x, matrix, bias), target, **options)
        mesh = team.mesh(*shape)
        placed = [
            distribute_tensor(tensor, mesh, placements)
            for tensor, placements in ((x, of_rows), (matrix, of_classes), (bias, of_classes))
        ]
        learnt = [tensor.requires_grad_() for tensor in placed]
        loss = functional.linear_cross_entropy(learnt[0], learnt[1], target, linear_bias=learnt[2], **options)  # fmt: skip
        incoming = torch.linspace(1, 2, loss.numel()).view(loss.shape)
        gradients = torch.autograd.grad(loss, learnt, distribute_tensor(incoming, mesh, loss.placements))  # fmt: skip
        for result, known in zip((loss, *gradients), exact, strict=True):
            torch.testing.assert_close(result.full_tensor(), known, rtol=1e-5, atol=1e-6)


PLACED: dict[int, list[tuple[tuple[int, ...], list[Placement]]]] = {
    2: [((2,), [Shard(0)]), ((2,), [Shard(1)]), ((2,), [Replicate()]), ((2, 1), [Shard(1), Shard(0)])],
    4: [
        ((4,), [Shard(1)]),
        ((2, 2), [Shard(0), Shard(1)]),
        ((2, 2), [Shard(1), Shard(0)]),
        ((2, 2), [Replicate(), Shard(1)]),
        ((2, 2), [Shard(0), Shard(0)]),
    ],
}  # fmt: skip


@case
def dtensors_of_classes(team: Team) -> None:
    for shape, placements in PLACED[team.size]:
        mesh = team.mesh(*shape)
        step = 1 if placements == [Shard(0), Shard(1)] else 3
        for options, weighted in list(variants(every=False))[::step]:
            logits, target, weight = problem()
            logits = hidden_infinities(logits, options)
            if options.get("ignore_index"):
                target[target == -100] = 5
            class_weight = weight if weighted else None
            exact = expected(logits, target, weight=class_weight, **options)
            placed = distribute_tensor(logits, mesh, placements).requires_grad_()
            if weighted:
                class_weight = distribute_tensor(weight, mesh, [Replicate()] * mesh.ndim)
            loss = parallel.cross_entropy(placed, target, class_weight, **options)
            loss.sum().backward()
            assert isinstance(placed.grad, DTensor)
            # PyTorch may take one process for all of them.
            laid = zip(placed.grad.placements, placements, mesh.shape, strict=True)
            assert all(
                placement == wanted for placement, wanted, processes in laid if processes > 1
            )
            assert loss.shape == exact[0].shape
            assert_near(loss.full_tensor().detach(), exact[0])
            scale = exact[1].abs().amax(1, keepdim=True)
            assert_near(placed.grad.full_tensor(), exact[1], scale)
        log_prob = torch.log_softmax(problem()[0].nan_to_num(neginf=-9.0), 1)
        for reduction in ("none", "mean", "sum"):
            placed = distribute_tensor(log_prob, mesh, placements).requires_grad_()
            targets = distribute_tensor(target, mesh, [Replicate()] * mesh.ndim)
            loss = parallel.nll_loss(placed, targets, weight, reduction=reduction)
            loss.sum().backward()
            exact = run(F.nll_loss, log_prob.double(), target, weight.double(), reduction=reduction)
            assert_near(loss.full_tensor().detach(), exact[0])
            assert_near(placed.grad.full_tensor(), exact[1])


@case_of_two
def a_head_in_columns(team: Team) -> None:
    """Logits as a column-parallel matrix makes them, and the gradients of matrix and features."""
    generator = torch.Generator().manual_seed(2)
    features, matrix = (
        torch.randn(ROWS, 6, generator=generator),
        torch.randn(CLASSES, 6, generator=generator),
    )
    _, target, weight = problem()
    wide = [features.double().requires_grad_(), matrix.double().requires_grad_()]
    F.cross_entropy(F.linear(*wide), target, weight.double()).backward()
    mesh = team.mesh()
    placed = [
        distribute_tensor(features, mesh, [Shard(0)]).requires_grad_(),
        distribute_tensor(matrix, mesh, [Shard(0)]).requires_grad_(),
    ]
    rows = placed[0].redistribute(placements=[Replicate()], async_op=True)
    parallel.cross_entropy(F.linear(rows, placed[1]), target, weight).backward()
    for tensor, exact in zip(placed, wide, strict=True):
        assert_near(tensor.grad.full_tensor(), exact.grad, exact.grad.abs().max() * 4)


class Talker(torch.nn.Module):
    """A language model, as transformers have them: with labels it has a loss."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.body, self.act = torch.nn.Embedding(CLASSES, 6), torch.nn.ELU()
        self.lm_head = torch.nn.Linear(6, CLASSES, bias=bias)

    def forward(self, words: Tensor, labels: Tensor | None = None) -> Any:
        logits = self.lm_head(self.act(self.body(words)))
        if labels is None:
            return logits
        shifted = logits.float()[..., :-1, :].contiguous()
        return F.cross_entropy(shifted.view(-1, CLASSES), labels[:, 1:].flatten()), logits


@case_of_two
def a_tensor_parallel_head_of_a_model(team: Team) -> None:
    """`apply_to` before and after `parallelize_module`: whatever is made of logits, their loss does without them."""
    words = torch.randint(0, CLASSES, (3, 7), generator=torch.Generator().manual_seed(1))
    labels = torch.where(words % 3 == 0, -100, words)
    styles = {"whole": {"output_layouts": Replicate()}, "shards": {"use_local_output": False}}
    for (way, style), first, bias in itertools.product(styles.items(), (True, False), (True, False)):  # fmt: skip
        known, model = Talker(bias), Talker(bias)
        exact, _ = known(words, labels)
        exact.backward()
        if first:
            parallelize_module(model, team.mesh(), {"lm_head": ColwiseParallel(**style)})
        applied = fast.apply_to(model)
        assert [each.name for each in applied.replaced] == ["act", "lm_head"]
        if not first:
            parallelize_module(model, team.mesh(), {"lm_head": ColwiseParallel(**style)})
        loss, logits = model(words, labels=labels)
        assert isinstance(logits, Logits)
        assert logits.tensor is None
        assert isinstance(loss, DTensor) is (way == "shards")
        loss.backward()
        torch.testing.assert_close(whole(loss), exact)
        for parameter, other in zip(model.parameters(), known.parameters(), strict=True):
            torch.testing.assert_close(whole(parameter.grad), other.grad)
        torch.testing.assert_close(whole(logits.materialize()), known(words))
        torch.testing.assert_close(whole(logits.softmax(-1)), known(words).softmax(-1))
        assert isinstance(model(words), Tensor)
        applied.revert()
        if way == "whole":
            torch.testing.assert_close(model(words, labels)[0], exact)


@case
def dtensors_of_pixels_and_elements(team: Team) -> None:
    values, target, weight = pixels()
    mesh = team.mesh(2, 2) if team.size == 4 else team.mesh()
    both = [Shard(0), Shard(2)] if team.size == 4 else [Shard(2)]
    for reduction in ("none", "mean"):
        exact = run(F.cross_entropy, values.double(), target, weight.double(), reduction=reduction)
        placed = distribute_tensor(values, mesh, both).requires_grad_()
        loss = parallel.cross_entropy(placed, target, weight, reduction=reduction)
        loss.sum().backward()
        assert_near(loss.full_tensor().detach(), exact[0])
        assert_near(placed.grad.full_tensor(), exact[1], exact[1].abs().amax(1, keepdim=True))
        aim = values.flip(0)
        for ours, theirs in (
            (parallel.l1_loss, F.l1_loss),
            (parallel.smooth_l1_loss, F.smooth_l1_loss),
        ):
            exact = run(theirs, values.double(), aim.double(), reduction=reduction)
            placed = distribute_tensor(values, mesh, both).requires_grad_()
            loss = ours(placed, aim, reduction=reduction)
            loss.sum().backward()
            assert_near(loss.full_tensor().detach(), exact[0])
            assert_near(placed.grad.full_tensor(), exact[1])


@case
def functions_and_modules_on_dtensors(team: Team) -> None:
    """They go to the losses of many devices by themselves, and ELU by its operator's rule. Two processes do."""
    if team.size > 2:
        return
    logits, target, weight = problem()
    x = logits.nan_to_num(neginf=-4.0)
    mesh, aim = team.mesh(), x.flip(0)
    smoothed = {"label_smoothing": 0.1}
    losses: list[tuple[Any, Any, tuple[Tensor, ...]]] = [
        (functional.elu, F.elu, ()), (nn.ELU(0.5), torch.nn.ELU(0.5), ()), (nn.L1Loss(), F.l1_loss, (aim,)),
        (nn.SmoothL1Loss(beta=0.5), torch.nn.SmoothL1Loss(beta=0.5), (aim,)),
        (functional.smooth_l1_loss, F.smooth_l1_loss, (aim,)), (nn.NLLLoss(), F.nll_loss, (target,)),
        (nn.CrossEntropyLoss(**smoothed), torch.nn.CrossEntropyLoss(**smoothed), (target,)),
        (functional.cross_entropy, F.cross_entropy, (target, weight)),
    ]  # fmt: skip
    for ours, theirs, rest in losses:
        wide = [tensor.double() if tensor.is_floating_point() else tensor for tensor in rest]
        exact = run(theirs, x.double(), *wide)
        for placement in (Shard(0), Shard(1)):
            placed = distribute_tensor(x, mesh, [placement]).requires_grad_()
            loss = ours(placed, *rest)
            loss.sum().backward()
            assert isinstance(loss, DTensor)
            assert placed.grad.placements == (placement,)
            assert_near(loss.full_tensor().detach(), exact[0])
            assert_near(placed.grad.full_tensor(), exact[1], exact[1].abs().max())
    placed = distribute_tensor(x, mesh, [Shard(0)])
    functional.elu(placed, inplace=True)
    assert_near(placed.full_tensor(), F.elu(x.double()))


@case_of_two
def what_pytorch_computes_on_dtensors(team: Team) -> None:
    """Class probabilities, float64, other shapes and dtypes: through our functions and modules, as without DTensors."""
    x = problem()[0].nan_to_num(neginf=-4.0).double()
    mesh, aim, likely = team.mesh(), x.flip(0), x.flip(1).softmax(1)
    smoothed = {"label_smoothing": 0.1}
    losses: list[tuple[Any, Any, Tensor]] = [
        (functional.cross_entropy, F.cross_entropy, likely), (functional.l1_loss, F.l1_loss, aim),
        (nn.CrossEntropyLoss(**smoothed), torch.nn.CrossEntropyLoss(**smoothed), likely),
        (nn.SmoothL1Loss(beta=0.5), torch.nn.SmoothL1Loss(beta=0.5), aim), (functional.l1_loss, F.l1_loss, aim[:1]),
        (functional.smooth_l1_loss, F.smooth_l1_loss, aim.float()),
    ]  # fmt: skip
    for ours, theirs, rest in losses:
        exact = run(theirs, x, rest)
        for placement in (Shard(0), Shard(1)):
            for target in (rest, distribute_tensor(rest, mesh, [Replicate()])):
                placed = distribute_tensor(x, mesh, [placement]).requires_grad_()
                loss = ours(placed, target)
                loss.backward()
                torch.testing.assert_close(loss.full_tensor(), exact[0])
                torch.testing.assert_close(placed.grad.full_tensor(), exact[1])


def penalty(loss: Tensor, x: Tensor) -> Any:
    """A third derivative of the loss, with the gradient of the loss in it; and the gradient itself."""
    (gradient,) = torch.autograd.grad(loss.square().sum(), x, create_graph=True)
    (bent,) = torch.autograd.grad((gradient**3).sum(), x, create_graph=True)
    (result,) = torch.autograd.grad((bent**2).sum(), x)
    return result, gradient


def z_loss(x: Tensor, target: Tensor, scale: float, reduction: str = "mean") -> Any:
    counted = target != -100
    squares = scale * x.logsumexp(1).square() * counted
    return {"none": squares, "sum": squares.sum(), "mean": squares.sum() / counted.sum()}[reduction]


@case
def gradients_of_gradients(team: Team) -> None:
    """A penalty on gradients counts, over groups and on DTensors: PyTorch's derivatives of one process are the measure."""
    logits, target, weight = problem(torch.float64)
    x, weight = logits.nan_to_num(neginf=-4.0).clamp(-4, 4), weight.double()
    rows, classes = team.cut(ROWS), team.cut(CLASSES)
    mesh = team.mesh()
    every: list[dict[str, Any]] = [
        {}, {"label_smoothing": 0.2, "weight": weight}, {"zloss_scale": 0.1, "reduction": "sum", "weight": weight},
        {"label_smoothing": 0.1, "zloss_scale": 0.1, "reduction": "none"},
    ]  # fmt: skip
    for options in every:
        theirs = {**options}
        scale = theirs.pop("zloss_scale", 0.0)
        leaf = x.clone().requires_grad_()
        loss = F.cross_entropy(leaf, target, **theirs)
        loss = loss + z_loss(leaf, target, scale, theirs.get("reduction", "mean"))
        exact = penalty(loss, leaf)
        grouped = {"group": team.group, **options}
        ways: list[tuple[Any, Tensor, Any, Tensor, dict[str, Any]]] = [
            ((slice(None), classes), x[:, classes].clone(), parallel.vocab_parallel_cross_entropy, target, grouped),
            ((rows,), x[rows].clone(), parallel.batch_parallel_cross_entropy, target[rows], grouped),
            ((), distribute_tensor(x, mesh, [Shard(0)]), functional.cross_entropy, target, options),
            ((), distribute_tensor(x, mesh, [Shard(1)]), parallel.cross_entropy, target, options),
        ]  # fmt: skip
        for at, part, ours, aims, named in ways:
            part = part.requires_grad_()
            for got, wanted in zip(penalty(ours(part, aims, **named), part), exact, strict=True):
                torch.testing.assert_close(whole(got), wanted[at])
    aim = x.flip(0)
    pairs: list[tuple[str, Tensor, dict[str, Any]]] = [
        ("l1_loss", aim, {}), ("smooth_l1_loss", aim, {"beta": 2.0}), ("nll_loss", target, {"weight": weight})
    ]  # fmt: skip
    for name, goal, more in pairs:
        leaf = x.clone().requires_grad_()
        exact = penalty(getattr(F, name)(leaf, goal, **more), leaf)
        part = x[rows].clone().requires_grad_()
        over = getattr(parallel, f"batch_parallel_{name}")
        got = penalty(over(part, goal[rows], group=team.group, **more), part)
        placed = distribute_tensor(x, mesh, [Shard(1)]).requires_grad_()
        spread = penalty(getattr(functional, name)(placed, goal, **more), placed)
        for one, other, wanted in zip(got, spread, exact, strict=True):
            torch.testing.assert_close(one, wanted[rows])
            torch.testing.assert_close(other.full_tensor(), wanted)


@case_of_two
def gradients_of_gradients_averaged(team: Team) -> None:
    """With `averaged`, what DistributedDataParallel's average leaves of a penalty's gradient is that of one process."""
    logits, target, weight = problem(torch.float64)
    x, weight, rows = logits.nan_to_num(neginf=-4.0).clamp(-4, 4), weight.double(), team.cut(ROWS)
    head = torch.randn(CLASSES, CLASSES, generator=torch.Generator().manual_seed(2)).double() / 5
    aim = x.flip(0)
    entropy = {"weight": weight, "label_smoothing": 0.1}
    losses: list[tuple[str, Tensor, dict[str, Any]]] = [
        ("cross_entropy", target, entropy), ("nll_loss", target, {"weight": weight}), ("smooth_l1_loss", aim, {"beta": 2.0}),
        ("l1_loss", aim, {"reduction": "sum"}),
    ]  # fmt: skip
    for name, goal, more in losses:
        matrix = head.clone().requires_grad_()
        loss = getattr(F, name)((x @ matrix).tanh(), goal, **more)
        (gradient,) = torch.autograd.grad(loss.square(), matrix, create_graph=True)
        (exact,) = torch.autograd.grad(loss + (gradient**2).sum(), matrix)
        matrix = head.clone().requires_grad_()
        over = getattr(parallel, f"batch_parallel_{name}")
        loss = over((x[rows] @ matrix).tanh(), goal[rows], group=team.group, averaged=True, **more)
        (part,) = torch.autograd.grad(loss.square(), matrix, create_graph=True)
        mean = all_reduce(part, group=team.group) / team.size
        torch.testing.assert_close(mean, gradient)
        (got,) = torch.autograd.grad(loss + (mean**2).sum(), matrix)
        dist.all_reduce(got, group=team.group)
        torch.testing.assert_close(got / team.size, exact)


@case
def wrong_use(team: Team) -> None:
    logits, target, weight = problem()
    mesh = team.mesh(2, team.size // 2)
    shard = team.cut(CLASSES)
    placed = distribute_tensor(logits, mesh, [Shard(0), Replicate()])
    partial = DTensor.from_local(logits, mesh, [Partial(), Replicate()])
    twice = distribute_tensor(logits, mesh, [Shard(1), Shard(1)])
    apart = distribute_tensor(target, team.mesh(), [Replicate()])
    vocabulary = parallel.vocab_parallel_cross_entropy
    refused: list[tuple[type[Exception], str, Callable[[], Any]]] = [
        (NotImplementedError, "placement P.* expected Replicate or Shard", lambda: parallel.cross_entropy(partial, target)),
        (NotImplementedError, "placement P.*", lambda: parallel.l1_loss(partial, logits)),
        (NotImplementedError, "one dimension of the mesh", lambda: parallel.cross_entropy(twice, target)),
        (TypeError, "expected a DTensor", lambda: parallel.cross_entropy(logits, target)),
        (ValueError, "target lies on another mesh", lambda: parallel.nll_loss(placed, apart)),
        (TypeError, "zloss_scale: expected class indices", lambda: parallel.cross_entropy(placed, placed, zloss_scale=0.1)),
        (ValueError, r"target has shape \(13,\)", lambda: parallel.cross_entropy(placed, target[1:])),
        (IndexError, "Target 23 is out of bounds", lambda: vocabulary(logits[:, shard], target * 0 + 23, group=team.group)),
        (ValueError, "weight has 22 elements, expected 23", lambda: vocabulary(logits[:, shard], target, group=team.group, weight=weight[1:])),
        (ValueError, "not a valid value for reduction", lambda: vocabulary(logits, target, group=team.group, reduction="no")),
        (RuntimeError, "label_smoothing must be", lambda: vocabulary(logits, target, group=team.group, label_smoothing=2.0)),
        (TypeError, "int64, expected float32", lambda: parallel.batch_parallel_l1_loss(target, target, group=team.group)),
        (RuntimeError, "negative values for beta", lambda: parallel.smooth_l1_loss(placed, placed, beta=-1.0)),
    ]  # fmt: skip
    for kind, words, call in refused:
        with pytest.raises(kind, match=words):
            call()
    loss = vocabulary(logits[:, shard].clone().requires_grad_(), target, group=team.group)
    with torch.autocast("cpu"):
        half = vocabulary(logits[:, shard].bfloat16(), target, group=team.group)
    assert (loss.dtype, half.dtype) == (torch.float32, torch.float32)


CHOICES = [("none", Shard(0)), ("sum", Shard(0)), ("mean", Shard(0)), ("none", Shard(1))]


@case
def rules_of_operators(team: Team) -> None:
    """The operators themselves on DTensors: parts where they are right, and never anything wrong. Two processes do."""
    if team.size > 2:
        return
    assert set(register_rules()) >= {
        operator.python_name for operator in openaclnn.registry() if not operator.output.in_place
    }
    ops = torch.ops.openaclnn
    logits, target, weight = problem()
    x, y = logits.nan_to_num(neginf=-4.0), logits.flip(0).nan_to_num(neginf=3.0)
    losses: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Tensor, ...]]] = {
        "l1": (ops.l1_loss, F.l1_loss, (x, y)),
        "smooth": (lambda *a: ops.smooth_l1_loss(*a[:2], reduction=a[2]), F.smooth_l1_loss, (x, y)),
        "nll": (lambda *a: ops.nll_loss(*a)[0], F.nll_loss, (x, target, weight)),
        "logits": (lambda *a: ops.cross_entropy_logits(*a)[0], F.cross_entropy, (x, target, weight)),
        "cross entropy": (lambda *a: ops.cross_entropy_loss(*a)[0], F.cross_entropy, (x, target, weight)),
    }  # fmt: skip
    mesh = team.mesh()
    for name, (ours, theirs, tensors) in losses.items():
        for reduction, placement in CHOICES:
            placed = distribute_tensor(x, mesh, [placement]).requires_grad_()
            rest = [distribute_tensor(tensor, mesh, [Replicate()]) for tensor in tensors[1:]]
            loss = ours(placed, *rest, reduction)
            loss.sum().backward()
            wide = [t.double() if t.is_floating_point() else t for t in tensors]
            exact = run(theirs, *wide, reduction=reduction)
            assert_near(loss.full_tensor().detach(), exact[0])
            assert_near(placed.grad.full_tensor(), exact[1], exact[1].abs().amax(1, keepdim=True))
            stays = placement == Shard(0) or name in ("l1", "smooth")
            if stays and reduction != "mean":
                assert placed.grad.placements == (placement,)
                assert loss.placements == ((Partial(),) if reduction == "sum" else (placement,))


@case_of_two
def activations_of_dtensors(team: Team) -> None:
    """By our operators' rules: no axis is divided along which elements need each other."""
    x = torch.randn(6, 8, generator=torch.Generator().manual_seed(3)).double()
    for name, more in (("elu", ()), ("relu", ()), ("softmax", (1,)), ("log_softmax", (0,)), ("glu", (1,))):  # fmt: skip
        known = x.clone().requires_grad_()
        result = getattr(F, name)(known, *more)
        result.square().sum().backward()
        for placement in (Shard(0), Shard(1)):
            placed = distribute_tensor(x.float(), team.mesh(), [placement]).requires_grad_()
            got = getattr(functional, name)(placed, *more)
            got.square().sum().backward()
            assert_near(got.full_tensor().detach(), result.detach())
            torch.testing.assert_close(placed.grad.full_tensor(), known.grad.float())


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@case_of_two
def the_example(team: Team) -> None:
    """It runs under torchrun in a shell; here the processes are there already."""
    compared = list(example("many_devices").comparisons())
    assert len(compared) == 7
    assert all(comparison.near for comparison in compared), list(map(str, compared))
    assert "rows apart, a mean over all" in str(compared[2])
    assert str(compared[2]).count("same bits") == 2


@case_of_two
def the_recipes(team: Team) -> None:
    """The losses of steps are those of FSDP2 without `apply_to`, and of a head that is whole."""
    for name in ("fsdp2", "tensor_parallel_head"):
        recipe = example(f"recipes/{name}")
        ours = recipe.train(team.mesh())
        recipe.fast = types.SimpleNamespace(apply_to=lambda *_, **__: None)
        recipe.parallelize_module = lambda *_: None
        torch.testing.assert_close(ours, recipe.train(team.mesh()), rtol=1e-5, atol=0)
        assert ours[-1] < ours[0]


@case_of_two
def a_loss_outside_of_sharded_modules(team: Team) -> None:
    """FSDP2 sees that backward begins by hidden states, though logits that nobody computed are all that a model returns."""
    words = torch.arange(12).reshape(3, 4) + team.rank

    def gradients(adopted: bool, of_head: bool, **options: Any) -> list[Tensor]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Embedding(29, 8), torch.nn.Linear(8, 8), torch.nn.Linear(8, 29))  # fmt: skip
        if adopted:
            fast.apply_to(model, heads="2")
        if of_head:
            fully_shard(model[2], mesh=team.mesh())
        fully_shard(model, mesh=team.mesh(), **options)
        F.cross_entropy(model(words).flatten(0, 1), words.flatten()).backward()
        return [each.grad.full_tensor() for each in model.parameters()]

    for of_head, options in ((False, {}), (True, {}), (True, {"reshard_after_forward": True})):
        ours, theirs = (gradients(adopted, of_head, **options) for adopted in (True, False))
        torch.testing.assert_close(ours, theirs)
    with pytest.raises(RuntimeError, match="the weights of a head are in shards where its loss is computed"):  # fmt: skip
        gradients(True, False, reshard_after_forward=True)


@case
def the_page(team: Team) -> None:
    """What docs/many-devices.md shows, with the names that it takes for granted."""
    page = (EXAMPLES.parent / "docs" / "many-devices.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    assert len(blocks) == 4
    classes = 3 * team.size
    held: dict[str, Any] = {
        "hidden": torch.randn(6, 5), "head": torch.randn(3, 5, requires_grad=True), "target": torch.arange(6) % classes,
        "tensor_parallel_group": team.group, "model": torch.nn.Linear(5, classes), "x": torch.randn(6, 5),
        "mesh": team.mesh(2, team.size // 2), "weight": torch.ones(classes), "distribute_tensor": distribute_tensor,
        "Shard": Shard, "head_shard": torch.randn(3, 5, requires_grad=True), "labels": torch.arange(6) % classes, "data_parallel_group": team.alone,
    }  # fmt: skip
    for block in blocks:
        exec(block, held)
        assert math.isfinite(float(held["loss"].detach()))
        held["logits"] = torch.ones(6, classes, requires_grad=True)


# Training as people write it: by our losses and by PyTorch's, step by step.

OURS = types.SimpleNamespace(ELU=nn.ELU, CrossEntropyLoss=nn.CrossEntropyLoss)


class Perceptron(torch.nn.Module):
    def __init__(self, nn: Any) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(6, 16), nn.ELU(), torch.nn.Linear(16, 16), nn.ELU(inplace=True))  # fmt: skip
        self.head = torch.nn.Linear(16, 12)

    def forward(self, x: Tensor) -> Any:
        return self.head(self.body(x))


def batches(rank: int) -> Iterator[tuple[Tensor, Tensor]]:
    draw = torch.Generator().manual_seed(5 + rank)
    for _ in range(4):
        target = torch.randint(12, (8,), generator=draw)
        target[0] = -100
        yield torch.randn(8, 6, generator=draw), target


def steps(
    model: Any, nn: Any, rank: int, together: int = 1, compiled: bool = False
) -> list[Tensor]:
    criterion, optimizer = nn.CrossEntropyLoss(label_smoothing=0.1), torch.optim.AdamW(model.parameters(), lr=1e-2)  # fmt: skip

    def objective(x: Tensor, target: Tensor) -> Any:
        return criterion(model(x), target)

    if compiled:
        objective = torch.compile(objective, backend="aot_eager")
    seen = []
    for number, (x, target) in enumerate(batches(rank)):
        last = number % together == together - 1
        with contextlib.nullcontext() if last else model.no_sync():
            loss = objective(x, target)
            loss.backward()
        seen.append(whole(loss).detach())
        if last:
            seen += [whole(parameter.grad).clone() for parameter in model.parameters()]
            optimizer.step()
            optimizer.zero_grad()
    return seen


@case
def trains_as_pytorch(team: Team) -> None:
    """DistributedDataParallel (compiled, too), FSDP, a column-parallel head. Two processes do."""
    if team.size > 2:
        return
    mesh, plan = team.mesh(), ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)
    data_parallel = torch.nn.parallel.DistributedDataParallel
    ways: list[tuple[Callable[..., Any], int]] = [
        (data_parallel, 2),
        (lambda model: data_parallel(model, static_graph=True), 1),
        (lambda model: fully_shard(model, mesh=mesh), 1),
    ]

    def model(nn: Any) -> Any:
        torch.manual_seed(0)
        return Perceptron(nn)

    for wrap, together in ways:
        wanted = steps(wrap(model(torch.nn)), torch.nn, team.rank, together)
        got = steps(wrap(model(OURS)), OURS, team.rank, together)
        torch.testing.assert_close(got, wanted)
        with fast.use():
            got = steps(wrap(model(torch.nn)), torch.nn, team.rank, together)
        torch.testing.assert_close(got, wanted)
    wanted = steps(data_parallel(model(torch.nn)), torch.nn, team.rank)
    got = steps(data_parallel(model(OURS)), OURS, team.rank, compiled=True)
    torch.testing.assert_close(got, wanted)
    wanted = steps(model(torch.nn), torch.nn, 0)
    divided = parallelize_module(model(OURS), mesh, {"head": plan})
    torch.testing.assert_close(steps(divided, OURS, 0), wanted)


# Calls of processes that called nothing before: the compiler must not be led through code that looks for memory of tensors.


def first_call(way: str) -> Case:
    def compiled(team: Team) -> None:
        torch.manual_seed(0)
        x, target = torch.randn(8, 12), torch.randint(12, (8,))
        head = torch.nn.Linear(12, 12, bias=False)
        exact = F.cross_entropy(head(x), target)
        (wanted,) = torch.autograd.grad(exact, head.weight)
        rows = slice(4 * team.rank, 4 * team.rank + 4)
        shard = torch.nn.Parameter(head.weight.detach().chunk(2)[team.rank].clone())
        parameter = shard if way == "classes" else head.weight

        def step() -> Tensor:
            if way == "classes":
                return parallel.vocab_parallel_cross_entropy(F.linear(x, shard), target)
            if way == "rows":
                return parallel.batch_parallel_cross_entropy(head(x[rows]), target[rows])
            return functional.cross_entropy(head(x), target)

        if way == "column-parallel head":
            parallelize_module(head, team.mesh(), ColwiseParallel(use_local_output=False))
            parameter = head.weight
        loss = torch.compile(step, backend="aot_eager")()
        (got,) = torch.autograd.grad(loss, parameter)
        if way == "rows":
            dist.all_reduce(got)
        torch.testing.assert_close(whole(loss), exact)
        torch.testing.assert_close(
            whole(got), wanted.chunk(2)[team.rank] if way == "classes" else wanted
        )

    return compiled


WAYS = in_turn(("classes", "rows", "column-parallel head"), "first calls")
FIRST_CALLS = {way: first_call(way) for way in WAYS}


def work(rank: int, size: int, place: Path, cases: dict[str, Case]) -> bool:
    """One process: case by case, what went wrong in a file. The first such case is the last, since others wait in it."""
    first = next(iter(cases))
    dist.init_process_group(
        "gloo", init_method=f"file://{place}/store-{size}-{first}", rank=rank, world_size=size,
        timeout=timedelta(seconds=120),
    )  # fmt: skip
    alone = [dist.new_group([index]) for index in range(size)][rank]
    team = Team(dist.group.WORLD, alone, rank, size)
    failures: dict[str, str] = {}
    for name, function in cases.items():
        failures[name] = ""
        try:
            function(team)
        except Exception:
            failures[name] = traceback.format_exc()
        (place / f"{size}-{rank}-{first}.json").write_text(json.dumps(failures))
        if failures[name]:
            return False
    dist.destroy_process_group()
    return True


ALONE = {
    "CUDA_VISIBLE_DEVICES": ""
}  # beside a GPU autograd has threads, and then it refuses to work after a fork


def start(size: int, place: Path, cases: dict[str, Case]) -> None:
    """Forks processes, so that PyTorch is imported once. When one has failed, the others get a moment."""
    children = []
    for rank in range(size):
        child = os.fork()
        if child == 0:
            passed = False
            try:
                passed = work(rank, size, place, cases)
            finally:
                os._exit(0 if passed else 1)
        children.append(child)
    while children:
        child, status = os.wait()
        children.remove(child)
        if status:
            time.sleep(2)
            for other in children:
                os.kill(other, signal.SIGKILL)


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What each process found in each case."""
    place = tmp_path_factory.mktemp("processes")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", __file__, str(place)], capture_output=True, text=True, timeout=500,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"} | ALONE | LOCAL,
    )  # fmt: skip
    reports = list(place.glob("*.json"))
    assert reports, done.stderr
    results: dict[str, list[str]] = {}
    for report in reports:
        for name, text in json.loads(report.read_text()).items():
            results.setdefault(f"{name} {report.stem[0]}", []).append(text)
    return results


@pytest.mark.parametrize(
    ("name", "size"), [(name, size) for size in SIZES for name in cases_of(size)] + [(way, 2) for way in FIRST_CALLS]
)  # fmt: skip
def test_processes(name: str, size: int, findings: dict[str, list[str]]) -> None:
    reports = findings.get(f"{name} {size}", [])
    assert not any(reports), "\n".join(reports)
    assert len(reports) == size, "an earlier case failed"


def test_training_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "training.png"
    assert example("training").main(["--steps", "4", "--png", str(picture)]) < 1e-5
    assert picture.read_bytes().startswith(b"\x89PNG")
    shown = capsys.readouterr().out
    assert shown.count("openaclnn  loss") == 2
    assert "the largest difference is" in shown.splitlines()[-1]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--steps", "0"], "--steps: expected 1 or more, got 0"),
        (["--png", "no/such/folder/x.png"], "--png: there is no folder no/such/folder"),
        (["--device", "cuda"], "PyTorch finds no GPU"),
    ],
)
def test_training_says_first_what_is_missing(
    options: list[str],
    says: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit):
        example("training").main(options)
    assert says in capsys.readouterr().err


def test_without_processes() -> None:
    with pytest.raises(RuntimeError, match="init_process_group"):
        parallel.vocab_parallel_cross_entropy(torch.ones(2, 3), torch.tensor([0, 1]), group=None)


@contextlib.contextmanager
def one_process() -> Iterator[Team]:
    """A group of this process alone, which may fork afterwards."""
    with tempfile.TemporaryDirectory() as place:
        dist.init_process_group("gloo", init_method=f"file://{place}/store", rank=0, world_size=1)
        yield Team(dist.group.WORLD, dist.group.WORLD, 0, 1)
        dist.destroy_process_group()


def compile_anything(team: Team) -> None:
    """PyTorch's compiler takes seconds to be imported and to start, and so do DTensors in it: before the forks, they do so once."""
    head = torch.nn.Linear(2, 2, bias=False)
    step = torch.compile(lambda x: F.cross_entropy(head(x), torch.tensor([0])), backend="aot_eager")
    step(torch.ones(1, 2)).backward()
    parallelize_module(head, team.mesh(), ColwiseParallel(use_local_output=False))
    step(torch.ones(1, 2)).backward()


if __name__ == "__main__":
    torch.set_num_threads(1)
    # PyTorch's builds for CUDA count a device once its compiler was called, and autograd, which counts them once, refuses to work after a fork if there is one.
    torch.ones(1, requires_grad=True).sum().backward()
    gc.freeze()
    with one_process() as team:
        compile_anything(team)
    for way, first in FIRST_CALLS.items():
        start(2, Path(sys.argv[1]), {way: first})
    with one_process() as team:  # and kernels are loaded once
        for warming in (
            classes_apart,
            elements_apart,
            rules_of_operators,
            a_linear_layer_in_columns,
            a_linear_layer_exchanges_some_numbers_a_row,
            trains_as_pytorch,
        ):
            warming(team)
    gc.freeze()  # what is there, no child has to look at
    for processes in SIZES:
        start(processes, Path(sys.argv[1]), cases_of(processes))
