"""Memory of large results is used again, but never while anybody holds it."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest

import openaclnn
from openaclnn.core import results


@pytest.fixture(autouse=True)
def nothing_kept() -> None:
    results.forget_memory()


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def test_a_dropped_result_lends_its_memory_to_the_next() -> None:
    x = np.ones(1 << 19, np.float32)
    first = openaclnn.elu_backward(x, x)
    place = address(first)
    del first
    assert results.kept_bytes() == 1 << 21
    second = openaclnn.elu_backward(x, x)
    assert address(second) == place
    assert results.kept_bytes() == 0


def test_a_view_keeps_the_memory() -> None:
    x = np.linspace(-1, 1, 1 << 19, dtype=np.float32)
    first = openaclnn.elu_backward(x, x)
    view = first.reshape(2, -1)[1, ::2]
    saved = view.copy()
    del first
    others = [openaclnn.elu_backward(-x, x) for _ in range(3)]
    np.testing.assert_array_equal(view, saved)
    places = sorted(address(other) for other in others)
    assert all(b - a >= 1 << 21 for a, b in itertools.pairwise(places))


def test_small_results_and_the_limit() -> None:
    small = openaclnn.elu_backward(np.ones(9, np.float32), np.ones(9, np.float32))
    assert small.flags.owndata
    del small
    assert results.kept_bytes() == 0
    many = [results.empty((48 << 20,), np.dtype(np.uint8)) for _ in range(8)]
    del many
    assert 0 < results.kept_bytes() <= results.LIMIT
    huge = results.empty((results.LIMIT + 1,), np.dtype(np.uint8))
    del huge
    assert results.kept_bytes() <= results.LIMIT


def test_results_can_be_written_and_have_their_dtype() -> None:
    for dtype in openaclnn.core.dtypes.FLOATS:
        x = np.ones((1 << 10, 1 << 10), dtype.numpy)
        got = openaclnn.elu_backward(x, x)
        assert got.dtype == x.dtype
        assert got.shape == x.shape
        assert got.flags.c_contiguous
        got[...] = 2


def test_many_threads_never_share_a_block() -> None:
    x = np.ones(1 << 19, np.float32)
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(40):
            gradient = np.full(1 << 19, number, np.float32)
            if (openaclnn.elu_backward(gradient, x) != number).any():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
