"""Graphs for every size: exported with dynamic axes, and compiled once for all sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.export import Dim

from openaclnn.torch import functional

Loss = Callable[..., Any]
ROWS, AXES = Dim("rows", min=2), Dim("axis", min=2)


class Model(torch.nn.Module):
    def __init__(self, loss: Loss, reduction: str) -> None:
        super().__init__()
        self.loss, self.reduction = loss, reduction

    def forward(self, input: torch.Tensor, target: torch.Tensor) -> Any:
        return self.loss(input, target, reduction=self.reduction)


def of_classes(*shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(shape), torch.randint(shape[1], (shape[0], *shape[2:]))


def of_pairs(*shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(shape), torch.randn(shape)


CLASSES = [functional.cross_entropy, functional.nll_loss]
PAIRS = [functional.l1_loss, functional.smooth_l1_loss]
CASES = [
    *[(loss, of_classes, (6, 10), (9, 10), ({0: ROWS}, {0: ROWS})) for loss in CLASSES],
    *[(loss, of_classes, (6, 10), (6, 13), ({1: AXES}, {})) for loss in CLASSES],
    *[(loss, of_classes, (6, 10, 4, 5), (3, 10, 9, 5), ({0: ROWS, 2: AXES}, {0: ROWS, 1: AXES})) for loss in CLASSES],
    *[(loss, of_pairs, (6, 10), (3, 4), ({0: ROWS, 1: AXES}, {0: ROWS, 1: AXES})) for loss in PAIRS],
]  # fmt: skip


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize(
    ("loss", "draw", "first", "other", "sizes"),
    CASES,
    ids=[f"{case[0].__name__} {len(case[2])} {sorted(case[4][0])}" for case in CASES],
)
@pytest.mark.in_turns
def test_exports_with_dynamic_axes(
    loss: Loss, draw: Loss, first: Any, other: Any, sizes: Any, reduction: str
) -> None:
    exported = torch.export.export(
        Model(loss, reduction), draw(*first), dynamic_shapes=sizes, strict=False
    )
    inputs = draw(*other)
    torch.testing.assert_close(exported.module()(*inputs), loss(*inputs, reduction=reduction))


@pytest.mark.parametrize(("loss", "draw"), [(functional.cross_entropy, of_classes), (functional.smooth_l1_loss, of_pairs)])  # fmt: skip
def test_one_graph_serves_all_sizes(loss: Loss, draw: Loss) -> None:
    # Not where every test's process would load it: 3 s.
    from torch._dynamo.testing import CompileCounter

    torch._dynamo.reset()
    counter = CompileCounter()
    compiled = torch.compile(loss, backend=counter, dynamic=True, fullgraph=True)
    for shape in ((6, 10), (7, 10), (2000, 33), (9, 13)):
        inputs = draw(*shape)
        torch.testing.assert_close(compiled(*inputs), loss(*inputs))
    assert counter.frame_count == 1
