"""The short road with arrays that are not row-major: layouts that were not seen before, and which are left to the full way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import openaclnn
from openaclnn.core.dtypes import BFLOAT16, FLOAT, FLOAT16, DType
from openaclnn.core.status import AclnnError
from openaclnn.engines.cpu import gathered
from test_interop import to_torch
from test_road import taken

__all__ = ["taken"]

Array = np.ndarray[Any, Any]


def laid(data: st.DataObject, values: Array) -> Array:
    """The same values in other memory: axes in another order, gaps along each, some walked backwards."""
    order = data.draw(st.permutations(range(values.ndim)))
    steps = data.draw(
        st.lists(st.sampled_from([1, 1, 2, 3, -1, -2]), min_size=values.ndim, max_size=values.ndim)
    )
    room = [values.shape[axis] * abs(step) + 1 for axis, step in zip(order, steps, strict=True)]
    whole = np.full(room, 77, values.dtype)
    for axis, (own, step) in enumerate(zip(order, steps, strict=True)):
        length = values.shape[own]
        index = np.s_[: length * step : step] if step > 0 else np.s_[length * -step - 1 :: step]
        whole = whole[(slice(None),) * axis + (index,)]
        whole = whole[(slice(None),) * axis + (slice(0, length),)]
    view = whole.transpose(np.argsort(order))
    view[...] = values
    return view


def narrowed(data: st.DataObject, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that stretches to another."""
    axes = data.draw(st.integers(0, len(shape)))
    return tuple(data.draw(st.sampled_from([n, n, 1])) for n in shape[len(shape) - axes :])


@pytest.mark.parametrize("dtype", [FLOAT, FLOAT16, BFLOAT16], ids=str)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_layout_has_the_bits_of_the_full_way(dtype: DType, data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    reduction = data.draw(st.sampled_from(["none", "sum", "mean"]))
    axes = data.draw(st.integers(1, 6))
    masks = [data.draw(st.integers(0, 1)) for _ in range(2)]
    into = data.draw(st.sampled_from(["fresh", "given", "strided"]))
    for _ in range(4):  # calls of one kind mostly
        shape = tuple(data.draw(st.integers(1, 5)) for _ in range(axes))
        shapes = [shape if mask else narrowed(data, shape) for mask in masks]
        whole = np.broadcast_shapes(*shapes)
        grad = rng.standard_normal(whole if reduction == "none" else ())
        arrays = [laid(data, rng.standard_normal(own).astype(dtype.numpy)) for own in shapes]
        gradient = (
            laid(data, np.asarray(grad, dtype.numpy))
            if grad.ndim
            else np.asarray(grad, dtype.numpy)
        )
        given_arrays = (gradient, *arrays)
        options: dict[str, Any] = {"reduction": reduction}
        with openaclnn.use_engine("cpu"):
            expected = openaclnn.smooth_l1_loss_backward(*given_arrays, **options)
        if into != "fresh":
            options["out"] = np.empty(whole, dtype.numpy)
            if into == "strided":
                options["out"] = laid(data, options["out"])
        got = openaclnn.smooth_l1_loss_backward(*given_arrays, **options)
        assert got.shape == expected.shape
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("convert", [np.asarray, to_torch], ids=["numpy", "torch"])
def test_a_layout_that_was_not_seen_takes_the_road(convert: Any, taken: list[bool]) -> None:
    rng = np.random.default_rng(5)
    for rows in (3, 10, 40, 100):
        for step in (1, 2, 3):
            g, x = (
                rng.standard_normal((rows, 8 * step)).astype(np.float32)[:, : 7 * step : step]
                for _ in range(2)
            )
            got = openaclnn.elu_backward(convert(g), convert(x))
            np.testing.assert_array_equal(
                np.asarray(got), openaclnn.elu_backward(g.copy(), x.copy())
            )
            out = convert(np.full((rows, 20), 5, np.float32))
            openaclnn.elu_backward(convert(g), convert(x), out=out[:, 3:10])
            np.testing.assert_array_equal(np.asarray(out)[:, 3:10], np.asarray(got))
            assert (np.asarray(out)[:, :3] == 5).all()
            assert (np.asarray(out)[:, 10:] == 5).all()
    assert taken.count(False) <= 4


def test_stretched_and_transposed_tensors(taken: list[bool]) -> None:
    for n in (3, 5, 9, 17):
        g, x = torch.randn(n, 4), torch.randn(4, n)
        row = torch.randn(4)
        for a, b in (
            (g, x.t()),
            (g.t(), x),
            (g, row.expand(n, 4)),
            (g.t(), torch.ones(()).expand(4, n)),
        ):
            got = openaclnn.elu_backward(a, b)
            assert torch.equal(got, openaclnn.elu_backward(a.clone(), b.contiguous()))
            assert got.is_contiguous()
    assert taken.count(False) <= 5


def test_many_elements_take_the_full_way(taken: list[bool]) -> None:
    for n in (100, 101, gathered.MOST // 10 + 1):
        g, x = (torch.randn(n, 20)[:, ::2] for _ in range(2))
        taken.clear()
        openaclnn.elu_backward(g, x)
    assert taken == [False]
    taken.clear()
    openaclnn.elu_backward(g, x)
    assert taken == [True]  # the very same layout


def test_outputs_that_must_not_be_written(taken: list[bool]) -> None:
    base = np.zeros(400, np.float32)
    for n in (4, 5, 6):
        g, x = (np.ones((n, 8), np.float32)[:, ::2] for _ in range(2))
        openaclnn.elu_backward(g, x, out=base[: 16 * n].reshape(n, 16)[:, :8:2])
        # In place on the very elements is served, one element further is not.
        both = np.arange(16 * n + 8, dtype=np.float32)
        y = both[: 16 * n].reshape(n, 16)[:, :8:2]
        expected = openaclnn.elu_backward(g, y.copy())
        openaclnn.elu_backward(g, y, out=y)
        np.testing.assert_array_equal(y, expected)
        with pytest.raises(AclnnError, match="overlap"):
            openaclnn.elu_backward(
                g,
                both[: 16 * n].reshape(n, 16)[:, :8:2],
                out=both[2 : 16 * n + 2].reshape(n, 16)[:, :8:2],
            )
        over = np.lib.stride_tricks.as_strided(base, (n, 4), (8, 8))
        with pytest.raises(AclnnError, match="lie apart"):
            openaclnn.elu_backward(g, x, out=over)
        with pytest.raises(AclnnError):
            openaclnn.elu_backward(g, x[:-1], out=base[: 4 * n].reshape(n, 4))
    assert not taken[-1]
