"""Memory of large results is used again, but never while anybody holds it."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import openaclnn
from openaclnn.core import results
from openaclnn.core.plan import BoundedCache

MEGABYTE = 1 << 20


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    openaclnn.clear_results()
    yield
    openaclnn.set_result_memory(results.DEFAULT)


def keep(*sizes: int) -> None:
    """Results of so many bytes, all held at once and then dropped."""
    held = [results.empty((size,), np.dtype(np.uint8)) for size in sizes]
    del held


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


def test_batches_of_varying_length_find_each_others_memory() -> None:
    places = set()
    for rows in (500, 524, 505, 495, 511):
        x = np.full((rows, 1000), -1, np.float32)
        result = openaclnn.elu(x)
        assert result.shape == x.shape
        assert result.nbytes == x.nbytes
        places.add(address(result))
        result = result.sum()
    assert len(places) == 1
    assert 512000 * 4 <= results.kept_bytes() <= 512000 * 4.5


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
    assert results.limit() <= results.DEFAULT
    keep(*[48 * MEGABYTE] * 8)
    assert 0 < results.kept_bytes() <= results.limit()
    keep(results.limit() + 1)
    assert results.kept_bytes() <= results.limit()


def test_memory_is_counted_where_sizes_differ() -> None:
    """Not by going through all sizes at each result: the count that is kept must be what waits."""
    openaclnn.set_result_memory(40 * MEGABYTE)
    for turn in range(60):
        keep(*[(1 + (turn * part) % 7) * MEGABYTE + 4 * turn for part in range(1, 4)])
        assert results.kept_bytes() == results._free_bytes[0] <= 40 * MEGABYTE
    results.clear_results()
    assert results.kept_bytes() == results._free_bytes[0] == 0


def test_sizes_that_were_seen_cost_no_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [MEGABYTE << turn for turn in range(4)]
    keep(*sizes)
    counted: list[int] = []
    monkeypatch.setattr(results, "kept_bytes", lambda: counted.append(1) or 0)
    for size in sizes * 3:
        keep(size)
    assert not counted


def test_the_memory_can_be_set_and_cleared() -> None:
    keep(8 * MEGABYTE)
    keep(4 * MEGABYTE)
    assert results.kept_bytes() == 12 * MEGABYTE
    openaclnn.set_result_memory(10 * MEGABYTE)
    assert results.kept_bytes() == 4 * MEGABYTE  # the oldest goes first
    keep(8 * MEGABYTE)
    assert results.kept_bytes() == 8 * MEGABYTE  # the newest stays
    keep(11 * MEGABYTE)
    assert results.kept_bytes() == 8 * MEGABYTE
    openaclnn.clear_results()
    assert results.kept_bytes() == 0
    keep(2 * MEGABYTE)
    assert results.kept_bytes() == 2 * MEGABYTE
    openaclnn.set_result_memory(0)
    keep(2 * MEGABYTE)
    assert results.kept_bytes() == 0


@pytest.mark.parametrize("size", [-1, 1.5, "256", None, True])
def test_a_size_that_is_none_is_refused(size: object) -> None:
    with pytest.raises(ValueError, match="must be a number of bytes, got"):
        openaclnn.set_result_memory(size)  # type: ignore[arg-type]


def test_never_more_than_an_eighth_of_what_the_process_may_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("openaclnn.core.results.usable_memory", lambda: 80 * MEGABYTE)
    openaclnn.set_result_memory(1 << 40)
    assert results.limit() == 10 * MEGABYTE
    monkeypatch.setattr(results, "_limit", [])  # as a new process finds it
    assert results.limit() == 10 * MEGABYTE


def test_what_the_process_may_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The least of memory, address space and the groups around the process, of either version."""
    groups, mount = tmp_path / "cgroup", tmp_path / "mount"
    monkeypatch.setattr(results, "_GROUPS", groups)
    monkeypatch.setattr(results, "_MOUNT", mount)
    monkeypatch.setattr(results, "_physical", lambda: 1000)
    monkeypatch.setattr(results, "_address_space", lambda: sys.maxsize)
    assert results.usable_memory() == 1000  # no such file
    inner = mount / "outer" / "inner"
    inner.mkdir(parents=True)
    groups.write_text("0::/outer/inner\n")
    (inner / "memory.max").write_text("max\n")
    assert results.usable_memory() == 1000
    (inner.parent / "memory.max").write_text("700\n")
    assert results.usable_memory() == 700
    old = mount / "memory" / "memory.limit_in_bytes"
    old.parent.mkdir()
    old.write_text("500\n")
    groups.write_text("4:cpuset:/outer\n3:memory,cpu:/of/the/host\n0::/\n")
    assert results.usable_memory() == 500
    monkeypatch.setattr(results, "_address_space", lambda: 300)
    assert results.usable_memory() == 300


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


def test_tensors_that_are_not_large_are_made_by_pytorch_alone() -> None:
    """No function in Python makes them, which would take longer than some operators."""
    torch = pytest.importorskip("torch")
    x = torch.linspace(-1, 1, 1 << 19)
    entered: list[object] = []
    for again in range(3):  # the slow path, then the fast path
        if again == 2:
            sys.setprofile(lambda frame, *_: entered.append(frame.f_code))
        openaclnn.elu_backward(x, x)
        sys.setprofile(None)
    assert entered
    assert results.empty_tensor.__code__ not in entered


def test_tensors_of_pytorch_lend_their_memory_too() -> None:
    torch = pytest.importorskip("torch")
    x = torch.linspace(-1, 1, 1 << 21)
    for _ in range(3):  # the slow path, then the fast path
        openaclnn.elu_backward(x, x)
    first = openaclnn.elu_backward(x, x)
    assert first.data_ptr() % results.LINE == 0
    assert first._base is None  # no view, as autograd sees it
    place, tail, saved = first.data_ptr(), first[-9:], first[-9:].clone()
    del first
    others = [openaclnn.elu_backward(-x, x) for _ in range(3)]
    assert place not in [other.data_ptr() for other in others]
    assert torch.equal(tail, saved)
    del tail, others
    assert results.kept_bytes() == 4 * x.nbytes
    again = openaclnn.elu_backward(x, x)
    assert results.kept_bytes() == 3 * x.nbytes
    # What people do to tensors.
    copied = again.clone()
    assert torch.equal(again.share_memory_(), copied)
    assert torch.equal(again.resize_(9), copied[:9])
    with torch.device("meta"):
        assert openaclnn.elu_backward(x, x).is_cpu
    with torch.inference_mode():
        assert openaclnn.elu_backward(x, x).is_inference()


def test_a_cache_with_one_entry_too_many_begins_anew() -> None:
    kept: BoundedCache[int, str] = BoundedCache(2)
    kept[1], kept[2] = "one", "two"
    assert kept == {1: "one", 2: "two"}
    kept[3] = "three"
    assert kept == {3: "three"}
