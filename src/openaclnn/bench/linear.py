"""The cross entropy of a linear layer, with the gradients of its inputs and weights: ours beside PyTorch's, in time and memory.

In the same turns: the three matrix products alone, which is as fast as it can be, and a copy of the scores.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from openaclnn.bench.processes import peak_above
from openaclnn.bench.timing import Bench, Case, Contender, Row
from openaclnn.bench.training import OURS, THEIRS, Step, beside_a_copy
from openaclnn.core.dtypes import FLOATS, DType

LINEAR = "linear_cross_entropy"
PEERS = (
    ("torch's function", "torch.nn.functional", LINEAR),
    ("liger", "liger_kernel.transformers.functional", "liger_fused_linear_cross_entropy"),
    ("cut-cross-entropy", "cut_cross_entropy", LINEAR),
)
"""Functions of inputs, weights and targets, where they can be imported."""
_SHAPES: dict[str, tuple[tuple[str, tuple[int, ...]], ...]] = {
    "cpu": (("vocabulary 32k", (1024, 512, 32000)),),
    "cuda": (
        ("vocabulary 128k", (8192, 4096, 128256)), ("vocabulary 152k", (4096, 2048, 151936)), ("odd 50257", (16384, 2048, 50257)),
    ),
}  # fmt: skip
"""Tokens, features and words."""


def linear_cases(device: str, dtypes: Sequence[DType] = ()) -> list[Case]:
    """Steps on a device's large problems."""
    return [
        Case(LINEAR, "forward and backward", regime, shape, dtype.name, functools.partial(_run, dtype), f"training {regime}")
        for (regime, shape), dtype in itertools.product(_SHAPES[device], dtypes or FLOATS)
    ]  # fmt: skip


def _run(dtype: DType, case: Case, bench: Bench) -> list[Row]:
    torch = bench.torch
    tokens, features, words = case.shape
    numbers = torch.Generator(bench.device).manual_seed(5)
    drawn = functools.partial(torch.randn, generator=numbers, device=bench.device)
    kind = getattr(torch, str(dtype.torch_name))
    x = (drawn(tokens, features) / features**0.5).to(kind)
    weight = drawn(words, features).to(kind).requires_grad_()
    target = torch.randint(0, words, (tokens,), generator=numbers, device=bench.device)
    scores = torch.zeros(tokens, words, dtype=kind, device=bench.device)
    steps = dict(_steps(x, [weight, target], torch))
    products = Contender("products", functools.partial(_products, x, weight.detach(), scores))
    rows = beside_a_copy(case, steps, scores, bench, products)
    del scores, products
    for row in rows:
        if row["contender"] in steps and row["status"] != "unavailable":
            step = steps[row["contender"]]
            step.variable.grad = weight.grad = step.loss = None
            row["extra_bytes"] = max(peak_above(step) - x.nbytes - weight.nbytes, 0)
    return rows


def _products(x: Any, weight: Any, scores: Any) -> None:
    """Of scores, and of gradients as if scores were theirs."""
    x @ weight.t()
    scores @ weight
    scores.t() @ x


def _steps(variable: Any, others: list[Any], torch: Any) -> Iterator[tuple[str, Step]]:
    from openaclnn.torch import functional

    def of_scores(x: Any, weight: Any, target: Any) -> Any:
        scores = torch.nn.functional.linear(x, weight)
        return torch.nn.functional.cross_entropy(scores, target)

    def anew(function: Callable[..., Any]) -> Callable[..., Any]:
        def loss(x: Any, weight: Any, target: Any) -> Any:
            if weight.is_leaf:
                weight.grad = None
            return function(x, weight, target)

        return loss

    yield OURS, Step(anew(functional.linear_cross_entropy), variable, others)
    yield THEIRS, Step(anew(of_scores), variable, others)
    if variable.is_cuda:
        torch.compiler.reset()
        yield "torch.compile", Step(anew(torch.compile(of_scores, dynamic=False)), variable, others)
    for peer, module, name in PEERS:
        with contextlib.suppress(ImportError, AttributeError):
            function = getattr(importlib.import_module(module), name)
            yield peer, Step(anew(function), variable, others)
