"""Cross entropy over a vocabulary that ranks share: the ranks' sums are those of the whole, and the loss is PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import openaclnn
from conftest import assert_matches_oracle, call_on, told
from openaclnn.core.dtypes import BFLOAT16, FLOAT, FLOATS

SUMS, LOSS = map(
    openaclnn.find_operator,
    ("cross_entropy_sum_exp_and_index_logit", "fused_cross_entropy_loss_with_max_sum"),
)


def sums(engine: str, x: Any, target: Any, top: Any, ranks: int) -> list[Any]:
    """Of each rank."""
    columns = x.shape[-1] // ranks
    return [
        call_on(engine, SUMS, {
            "vocab_parallel_logits": np.ascontiguousarray(x[..., start : start + columns]), "target": target, "global_logits_max": top,
            "vocab_start_index": start, "vocab_end_index": start + columns,
        })
        for start in range(0, x.shape[-1], columns)
    ]  # fmt: skip


def test_the_worked_example_over_two_ranks(engine: str) -> None:
    """input times the ranks' weights, and the digits of the document's digest."""
    inputs = np.array([[1, 2], [0, -1], [3, 1]], np.float32)
    weights = np.array([[1, 0], [0, 1], [1, 1], [-1, 0.5]], np.float32)
    x, target = inputs @ weights.T, np.array([2, 0, 3], np.int32)
    top = x.max(1)
    first, second = sums(engine, x, target, top, 2)
    close = {"rtol": 0, "atol": 1e-6}
    np.testing.assert_allclose(first.sum_exp_logits, [0.5032147244, 1.3678794412, 0.4176665095], **close)  # fmt: skip
    np.testing.assert_allclose(second.sum_exp_logits, [1.0497870684, 0.9744101009, 1.0015034392], **close)  # fmt: skip
    np.testing.assert_array_equal([first.target_mask, second.target_mask], [[1, 0, 1], [0, 1, 0]])
    whole = first.sum_exp_logits + second.sum_exp_logits
    predicted = first.predicted_logits + second.predicted_logits
    np.testing.assert_array_equal(predicted, [0, 0, -6.5])
    expected = torch.nn.functional.cross_entropy(torch.from_numpy(x), torch.from_numpy(target).long(), reduction="none")  # fmt: skip
    for start in (0, 2):
        arguments = {"logits_max": top, "sum_exp_logits": whole, "predicted_logits": predicted, "vocab_parallel_logits": x[:, start : start + 2]}  # fmt: skip
        loss, shares = call_on(engine, LOSS, arguments)
        np.testing.assert_allclose(loss, [0.4401896986, 0.8511288878, 6.8500721576], **close)
        np.testing.assert_allclose(loss, expected, **close)
        softmax = torch.softmax(torch.from_numpy(x), 1)[:, start : start + 2]
        np.testing.assert_allclose(shares, softmax, **close)


@pytest.mark.parametrize("dtype", [FLOAT, BFLOAT16], ids=str)
def test_ranks_together_are_the_whole(engine: str, dtype: Any) -> None:
    rng = np.random.default_rng(8)
    for shape, ranks in (((5, 64), 4), ((3, 4, 48), 3), ((2, 1030), 2)):
        x = (4 * rng.normal(size=shape)).astype(dtype.numpy)
        target = rng.integers(0, shape[-1], shape[:-1]).astype(np.int32)
        top = x.max(-1)
        parts = sums(engine, x, target, top, ranks)
        wide = torch.from_numpy(x.astype(np.float64)).reshape(-1, shape[-1])
        loss = torch.nn.functional.cross_entropy(wide, torch.from_numpy(target).long().reshape(-1), reduction="none")  # fmt: skip
        whole = sum(part.sum_exp_logits.astype(np.float64) for part in parts)
        predicted = sum(part.predicted_logits.astype(np.float64) for part in parts)
        np.testing.assert_allclose((np.log(whole) - predicted).reshape(-1), loss, rtol=0, atol=1e-5)
        here = np.stack([part.target_mask for part in parts])
        np.testing.assert_array_equal(here.sum(0), ranks - 1)
        columns = shape[-1] // ranks
        restored = sum(np.where(part.target_mask == 0, part.target_offset + rank * columns, 0) for rank, part in enumerate(parts))  # fmt: skip
        np.testing.assert_array_equal(restored, target)


def test_targets_far_away_and_large_indices(engine: str) -> None:
    """Targets are compared as integers, which FLOAT could not tell apart."""
    x = np.arange(32, dtype=np.float32).reshape(2, 16) / 8
    for start in (2**30, 2**31 - 16, 2**40):
        arguments = {
            "vocab_parallel_logits": x, "target": np.array([2**31 - 1, 2**30 + 1], np.int32), "global_logits_max": x.max(1),
            "vocab_start_index": start, "vocab_end_index": start + 16,
        }  # fmt: skip
        with told(start):
            assert_matches_oracle(SUMS, arguments, call_on(engine, SUMS, arguments))


def test_sizes_are_compared_with_the_indices_in_every_call() -> None:
    """The fast path serves no call of other sizes, whose number of columns would not be the indices'."""
    for columns in (16, 16, 24, 16):
        x, top = np.zeros((3, columns), np.float32), np.zeros(3, np.float32)
        arguments = (x, np.zeros(3, np.int32), top, 0, 16)
        if columns == 16:
            assert (
                openaclnn.cross_entropy_sum_exp_and_index_logit(*arguments).sum_exp_logits[0] == 16
            )
        else:
            with pytest.raises(openaclnn.AclnnError, match="as many columns"):
                openaclnn.cross_entropy_sum_exp_and_index_logit(*arguments)


def test_special_values(engine: str) -> None:
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, 3e38, -3e38] * 2, np.float32)
    x = np.stack([np.roll(special, shift) for shift in range(8)])
    arguments = {
        "vocab_parallel_logits": x, "target": np.arange(8, dtype=np.int32), "global_logits_max": special[:8], "vocab_start_index": 2,
        "vocab_end_index": 18,
    }  # fmt: skip
    assert_matches_oracle(SUMS, arguments, call_on(engine, SUMS, arguments))


def test_a_loss_without_logits_leaves_softmax_alone(engine: str) -> None:
    rng = np.random.default_rng(2)
    top, predicted = rng.normal(size=(2, 70)).astype(np.float32)
    whole = (0.1 + 9 * rng.random(70)).astype(np.float32)
    arguments = {"logits_max": top, "sum_exp_logits": whole, "predicted_logits": predicted}
    for _ in range(3):
        loss, shares = call_on(engine, LOSS, arguments)
        assert shares is None
        assert_matches_oracle(LOSS, arguments, (loss, None))
    place = np.full((70, 4), 7, np.float32)
    got = call_on(engine, LOSS, {**arguments, "out": (np.empty(70, np.float32), place)})
    np.testing.assert_array_equal(got[0], loss)
    assert (place == 7).all()


def test_logits_of_every_dtype_and_none(engine: str) -> None:
    rng = np.random.default_rng(4)
    for dtype, shape in ((FLOATS[0], (4, 0)), (FLOATS[1], (4, 9)), (FLOATS[2], (4, 300)), (FLOATS[0], (0, 5))):  # fmt: skip
        rows = [(1 + rng.random(shape[0])).astype(np.float32) for _ in range(3)]
        x = rng.normal(size=shape).astype(dtype.numpy)
        arguments = dict(
            zip(("logits_max", "sum_exp_logits", "predicted_logits"), rows, strict=True)
        )
        arguments["vocab_parallel_logits"] = x
        loss, shares = call_on(engine, LOSS, arguments)
        if 0 in shape:
            assert loss.shape == shape[:1]
            np.testing.assert_allclose(loss, np.log(rows[1]) - rows[2], rtol=1e-5)
            continue
        assert_matches_oracle(LOSS, arguments, (loss, shares))
        assert shares.dtype == np.float32
