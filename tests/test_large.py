"""More than 2^31 elements: the default engine counts and addresses with 64 bits.

Inputs are one row or one element stretched over everything, so only the output takes memory: 4.3 GB.
"""

from __future__ import annotations

import numpy as np

import openaclnn

ROWS, COLUMNS = (1 << 16) + 3, 1 << 15  # together 3 * 2^15 elements past 2^31


def stretched(row: np.ndarray) -> np.ndarray:
    return np.broadcast_to(row, (ROWS, COLUMNS))


def test_elementwise() -> None:
    x = np.linspace(-4, 4, COLUMNS).astype(np.float16)
    got = openaclnn.elu_backward(stretched(x), stretched(x))
    expected = openaclnn.elu_backward(x, x)
    assert got.size > 1 << 31
    for row in (0, 1, (1 << 16) - 1, 1 << 16, ROWS - 1):
        np.testing.assert_array_equal(got[row], expected)


def test_class_axis() -> None:
    log_prob = np.log(np.full(COLUMNS, 1 / COLUMNS, np.float16))
    target = np.arange(ROWS) % COLUMNS
    got = openaclnn.cross_entropy_loss_grad(
        np.float16(1), stretched(log_prob), target, reduction="sum"
    )
    assert got.size > 1 << 31
    for row in (0, 7, 1 << 15, 1 << 16, ROWS - 1):
        assert got[row].argmin() == target[row]
        assert (np.delete(got[row], target[row]) > 0).all()
