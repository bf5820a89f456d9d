"""The multi-label margin loss: labels to the first -1, what is no class or no number, reductions, rows in any layout, threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import openaclnn
from conftest import assert_matches_oracle, assert_same_bits, call_on, laid_out
from openaclnn import aclnn
from openaclnn.core.dtypes import FLOATS

OPERATOR = openaclnn.find_operator("multilabel_margin_loss")


def drawn(rows: int, classes: int) -> dict[str, Any]:
    rng = np.random.default_rng(classes)
    target = rng.integers(0, classes, (rows, classes))
    for row, count in enumerate(rng.integers(0, classes + 1, rows)):
        target[row, count : count + 1] = -1
    return {"self": rng.normal(size=(rows, classes)).astype(np.float32), "target": target}


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_pytorch_agrees(engine: str, reduction: str) -> None:
    for rows, classes in ((1, 1), (7, 5), (40, 33), (3, 300)):
        arguments = drawn(rows, classes) | {"reduction": reduction}
        loss, mask = call_on(engine, OPERATOR, arguments)
        x, target = (torch.from_numpy(arguments[name]) for name in ("self", "target"))
        forward = torch.ops.aten.multilabel_margin_loss_forward
        number = ("none", "mean", "sum").index(reduction)
        expected, expected_mask = forward(x.double(), target, number)
        np.testing.assert_allclose(loss, expected, rtol=1e-6)
        np.testing.assert_array_equal(mask, expected_mask)


def test_what_is_no_class_or_no_number_counts_for_nothing(engine: str) -> None:
    x = np.array([[np.nan, 1.0, np.inf, -np.inf, 0.5], [0.5, np.nan, 0.0, 1.0, 3e38]], np.float32)
    target = np.array([[1, 9, -7, 0, -1], [4, 1, 1, -1, 2]])
    for dtype in FLOATS:
        with np.errstate(over="ignore"):
            arguments = {"self": x.astype(dtype.numpy), "target": target, "reduction": "none"}
        loss, mask = call_on(engine, OPERATOR, arguments)
        assert_matches_oracle(OPERATOR, arguments, (loss, mask))
        np.testing.assert_array_equal(mask, [[1, 1, 0, 0, 0], [0, 1, 0, 0, 1]])
        assert loss[0] == np.inf  # 1 - 1 + Inf
        assert loss[1] == 0


def test_a_number_that_is_no_reduction_is_a_sum() -> None:
    arguments = drawn(4, 6)
    expected, _ = openaclnn.multilabel_margin_loss(**arguments, reduction="sum")
    for number in (2, 3, -4):
        loss, mask = np.empty(1, np.float32), np.empty((4, 6), np.float32)
        status, size, executor = aclnn.aclnnMultilabelMarginLossGetWorkspaceSize(arguments["self"], arguments["target"], number, loss, mask, object(), object())  # fmt: skip
        assert status == 0
        assert size == 0
        assert aclnn.aclnnMultilabelMarginLoss(None, 0, executor, None) == 0
        assert loss[0] == expected
    with pytest.raises(openaclnn.AclnnError, match="reduction"):
        openaclnn.multilabel_margin_loss(**arguments, reduction="average")


def test_no_rows_and_no_classes() -> None:
    none = np.empty((0, 3), np.float32), np.empty((0, 3), np.int64)
    loss, mask = openaclnn.multilabel_margin_loss(*none, reduction="none")
    assert (loss.shape, mask.shape) == ((0,), (0, 3))
    place = np.full(1, 7, np.float32)
    openaclnn.multilabel_margin_loss(*none, out=(place, np.empty((0, 3), np.float32)))
    assert place[0] == 7  # nothing is written
    with pytest.raises(openaclnn.AclnnError, match="a class at least"):
        openaclnn.multilabel_margin_loss(np.empty((3, 0), np.float32), np.empty((3, 0), np.int64))


@pytest.mark.parametrize("layout", ["transposed", "sliced", "reversed"])
def test_layouts_and_threads(engine: str, layout: str) -> None:
    arguments = drawn(120, 70)
    before = openaclnn.get_num_threads()
    try:
        for reduction in ("none", "mean"):
            moved = {name: laid_out(value, layout)[0] for name, value in arguments.items()}
            moved["reduction"] = reduction
            expected = call_on(engine, OPERATOR, {**arguments, "reduction": reduction})
            for threads in (1, 3):
                openaclnn.set_num_threads(threads)
                again = call_on(engine, OPERATOR, {**arguments, "reduction": reduction})
                assert_same_bits(again, expected)
                assert_matches_oracle(OPERATOR, moved, call_on(engine, OPERATOR, moved))
    finally:
        openaclnn.set_num_threads(before)
