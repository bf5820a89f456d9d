"""Cross entropy of a linear layer over a vocabulary that ranks share: the ranks' operators together give PyTorch's loss and gradients."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import openaclnn
from conftest import (
    WIDTHS,
    assert_matches_oracle,
    assert_same_bits,
    call_on,
    device_tensor,
    read_back,
    told,
    vectors_of,
)
from openaclnn import acl, aclnn
from openaclnn.core import steps
from openaclnn.core.dtypes import BFLOAT16, FLOAT16
from openaclnn.core.plan import BoundedCache
from openaclnn.engines import cpu

SUMS, LOSS, GRADIENTS = map(
    openaclnn.find_operator,
    (
        "fused_linear_online_max_sum",
        "fused_cross_entropy_loss_with_max_sum",
        "fused_linear_cross_entropy_loss_grad",
    ),
)
CLOSE = {"rtol": 0, "atol": 1e-6}


def over_ranks(engine: str, x: Any, weights: list[Any], target: Any, grad: Any) -> tuple[Any, ...]:
    """What ranks compute and exchange: the loss of each row, the gradient of the input, of each rank's weights."""
    starts = np.cumsum([0, *map(len, weights)])
    parts = [
        call_on(engine, SUMS, {"input": x, "weight": weight, "target": target, "vocab_start_index": int(start), "vocab_end_index": int(start) + len(weight)})
        for weight, start in zip(weights, starts, strict=False)
    ]  # fmt: skip
    top = np.max([part.logits_max_local for part in parts], 0)
    whole = sum(part.sum_exp_logits_local * np.exp(part.logits_max_local - top) for part in parts)
    predicted = np.zeros_like(top)
    for part in parts:
        away = np.unpackbits(part.target_mask, bitorder="little")[: len(x)] == 1
        predicted += np.where(away, 0, part.predicted_logits_local + part.logits_max_local - top)
    sums = {"logits_max": top, "sum_exp_logits": whole}
    loss = call_on(engine, LOSS, {**sums, "predicted_logits": predicted}).loss
    gradients = [
        call_on(engine, GRADIENTS, {"grad": grad, "input": x, "weight": weight, "target_mask": part.target_mask, "masked_target": part.masked_target, **sums})
        for weight, part in zip(weights, parts, strict=True)
    ]  # fmt: skip
    by_input = sum(gradient.input_grad.astype(np.float64) for gradient in gradients)
    return loss, by_input, [gradient.weight_grad for gradient in gradients], parts


def test_the_worked_example_over_two_ranks(engine: str) -> None:
    """The digits of the document's digest."""
    x = np.array([[1, 2], [0, -1], [3, 1]], np.float16)
    weights = [np.array([[1, 0], [0, 1]], np.float16), np.array([[1, 1], [-1, 0.5]], np.float16)]
    grad, target = np.array([1, 2, 0.5], np.float32), np.array([2, 0, 3], np.int32)
    loss, by_input, by_weights, (first, second) = over_ranks(engine, x, weights, target, grad)
    np.testing.assert_array_equal([first.logits_max_local, second.logits_max_local], [[2, 0, 3], [3, -0.5, 4]])  # fmt: skip
    np.testing.assert_allclose(first.sum_exp_logits_local, [1.3678794412, 1.3678794412, 1.1353352832], **CLOSE)  # fmt: skip
    np.testing.assert_allclose(second.sum_exp_logits_local, [1.0497870684, 1.6065306597, 1.0015034392], **CLOSE)  # fmt: skip
    np.testing.assert_array_equal(second.predicted_logits_local, [0, 0, -6.5])
    np.testing.assert_array_equal([first.target_mask[0] & 7, second.target_mask[0] & 7], [0b101, 0b010])  # fmt: skip
    np.testing.assert_allclose(loss, [0.4401896986, 0.8511288878, 6.8500721576], **CLOSE)
    halves = {"rtol": 0, "atol": 2**-10}
    known = [[-0.3010000247, -0.1031736204], [-1.3499106171, 0.887186826], [0.9813997096, 0.1201243776]]  # fmt: skip
    np.testing.assert_allclose(by_input, known, **halves)
    np.testing.assert_allclose(by_weights[0].astype(float), [[0.4759766515, 1.4500340137], [0.2895055520, 0.1771870208]], **halves)  # fmt: skip
    np.testing.assert_allclose(by_weights[1].astype(float), [[0.7008701244, -0.6739723854], [-1.4663523278, -0.9532486490]], **halves)  # fmt: skip


@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16], ids=str)
def test_ranks_together_are_the_whole(engine: str, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """Also where a rank takes rows in chunks, and adds up the gradient of its weights over them."""
    rng = np.random.default_rng(8)
    x = rng.normal(size=(21, 12)).astype(dtype.numpy)
    weights = [rng.normal(size=(count, 12)).astype(dtype.numpy) for count in (20, 7, 33)]
    target, grad = rng.integers(0, 60, 21), rng.random(21, np.float32)
    leaves = [
        torch.from_numpy(array.astype(np.float64)).requires_grad_() for array in (x, *weights)
    ]
    logits = leaves[0] @ torch.cat(leaves[1:]).T
    exact = torch.nn.functional.cross_entropy(logits, torch.from_numpy(target), reduction="none")
    exact.backward(torch.from_numpy(grad).double())
    near = 4 * float(ml_dtypes.finfo(dtype.numpy).eps)
    for chunk in (1 << 27, 100):
        monkeypatch.setattr(steps, "CHUNK", chunk)
        # Strides of their own, so that no cache entry has the other chunks.
        moved = np.ascontiguousarray(np.repeat(x, 2, 0))[::2] if chunk == 100 else x
        loss, by_input, by_weights, _ = over_ranks(engine, moved, weights, target, grad)
        with told(chunk):
            np.testing.assert_allclose(loss, exact.detach(), rtol=1e-5)
            for got, leaf in zip((by_input, *by_weights), leaves, strict=True):
                np.testing.assert_allclose(got.astype(float), leaf.grad, rtol=near, atol=near)


@pytest.mark.usefixtures("fresh_device")
def test_logits_where_they_are_asked_for() -> None:
    """In both phases a null is none, and so is a place of no elements."""
    rng = np.random.default_rng(3)
    x, weight = (rng.normal(size=(count, 6)).astype(np.float16) for count in (9, 5))
    target = np.arange(9, dtype=np.int64)
    whole = openaclnn.fused_linear_online_max_sum(x, weight, target, 2, 7)
    np.testing.assert_array_equal(whole.vocab_parallel_logits, (x.astype(np.float32) @ weight.astype(np.float32).T).astype(np.float16))  # fmt: skip
    for logits in (whole[5], np.zeros(0, np.float16), None):
        places = [device_tensor(np.zeros_like(array)) for array in whole[:5]]
        if logits is not None:
            places.append(device_tensor(np.zeros_like(logits)))
        read, written = ([descriptor for descriptor, _ in tensors] for tensors in (map(device_tensor, (x, weight, target)), places))  # fmt: skip
        status, _, executor = aclnn.aclnnFusedLinearOnlineMaxSumGetWorkspaceSize(*read, 2, 7, *[*written, None][:6])  # fmt: skip
        assert status == 0
        assert aclnn.aclnnFusedLinearOnlineMaxSum(None, 0, executor, None) == 0
        assert acl.aclrtSynchronizeStream(None) == 0
        for (_, address), known in zip(places, (*whole[:5], logits), strict=False):
            assert_same_bits(read_back(address, known), known)


def test_special_values(engine: str) -> None:
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 6e-8, 65504, -65504], np.float16)
    x, weight = np.diag(np.ones(8)).astype(np.float16), np.ones((9, 8), np.float16)
    np.fill_diagonal(x, special)
    arguments = {"input": x, "weight": weight, "target": np.arange(8), "vocab_start_index": 2, "vocab_end_index": 11}  # fmt: skip
    assert_matches_oracle(SUMS, arguments, call_on(engine, SUMS, arguments))


def test_targets_are_compared_as_integers(engine: str) -> None:
    x, weight = np.ones((4, 3), np.float16), np.arange(15).reshape(5, 3).astype(np.float16)
    for start in (2**24, 2**40, 2**62):
        target = start + np.array([-1, 0, 4, 5])
        target[0] = [-(2**63), -1, start - 1][start.bit_length() % 3]
        arguments = {"input": x, "weight": weight, "target": target, "vocab_start_index": start, "vocab_end_index": start + 9}  # fmt: skip
        got = call_on(engine, SUMS, arguments)
        np.testing.assert_array_equal(got.masked_target, [0, 0, 4, 0])
        assert got.target_mask[0] == 0b11111001


def test_nothing_is_written_of_nothing() -> None:
    none = openaclnn.fused_linear_online_max_sum(np.zeros((0, 4), np.float16), np.zeros((3, 4), np.float16), np.zeros(0, np.int32), 0, 3)  # fmt: skip
    assert [array.shape for array in none] == [(0,)] * 5 + [(0, 3)]
    # Rows of no features have logits of 0.
    rows = openaclnn.fused_linear_online_max_sum(np.zeros((2, 0), np.float16), np.zeros((3, 0), np.float16), np.array([1, 5]), 0, 3)  # fmt: skip
    np.testing.assert_array_equal(rows.sum_exp_logits_local, [3, 3])


@pytest.mark.parametrize("lanes", WIDTHS)
def test_kernels_written_for_another_cpu_stay_with_it(
    lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What such a test has made serves later calls in no part: how elements lie between kernels depends on the vectors."""
    rng = np.random.default_rng(3)

    def gradients(columns: int) -> Any:
        x, weight = (rng.standard_normal((n, 8)).astype(np.float16) for n in (40, columns))
        arguments = {
            "grad": np.ones(40, np.float32), "input": x, "weight": weight, "target_mask": rng.integers(0, 256, 5).astype(np.uint8),
            "masked_target": rng.integers(0, columns, 40), "logits_max": np.ones(40, np.float32), "sum_exp_logits": np.full(40, 9, np.float32),
        }  # fmt: skip
        with openaclnn.use_engine("cpu"):
            return arguments, call_on("cpu", GRADIENTS, arguments)

    monkeypatch.setattr(cpu, "_runners", BoundedCache(16))
    with vectors_of(lanes):
        gradients(300)
    arguments, got = gradients(6)
    assert_matches_oracle(GRADIENTS, arguments, got)
