"""The fast path with arrays that are not row-major: layouts that were not seen before, and which are left to the slow path."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import openaclnn
from conftest import (
    OPERATORS,
    assert_matches_oracle,
    each,
    families,
    has_halves,
    has_targets,
    lacks,
    plain,
)
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import BFLOAT16, FLOAT, FLOATS, DType
from openaclnn.core.interface import Kind
from openaclnn.core.status import AclnnError
from openaclnn.engines.cpu import FEW
from openaclnn.engines.cpu.layouts import gathered
from test_fast_path import ROADS, counted_fast_paths, taken
from test_interop import to_torch

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
    for axis, (source, step) in enumerate(zip(order, steps, strict=True)):
        length = values.shape[source]
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


@pytest.mark.parametrize("dtype", [FLOAT, BFLOAT16], ids=str)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_any_layout_has_the_bits_of_the_slow_path(dtype: DType, data: st.DataObject) -> None:
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
        arrays = [laid(data, rng.standard_normal(sizes).astype(dtype.numpy)) for sizes in shapes]
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
    for rows in (3, 10, 40, 100, 1000, 4681):
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


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
def test_inputs_none_of_which_has_the_whole_shape(
    convert: Any, reduction: str, taken: list[bool]
) -> None:
    rng = np.random.default_rng(8)

    def drawn(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(np.float32)

    def check(operator: Operator, into: tuple[int, ...], **arrays: Array) -> None:
        """Fresh, and into some of an array's elements."""
        inputs = {name: convert(array) for name, array in arrays.items()}
        got = np.asarray(plain(operator)(**inputs, reduction=reduction))
        out = np.full((*into[:-1], into[-1] + 2) if into else (3,), 5, np.float32)
        inner = out[..., 1:-1] if into else out[1:2].reshape(())
        plain(operator)(**inputs, reduction=reduction, out=convert(inner))
        assert_matches_oracle(operator, {**arrays, "reduction": reduction}, got)
        np.testing.assert_array_equal(got, inner)
        assert (out[..., 0] == 5).all()
        assert (out[..., -1] == 5).all()

    for rows, columns in ((3, 4), (9, 2), (20, 70), (5, 11), (2, 2), (7, 290)):
        x, y, whole = drawn(rows, 1), drawn(2, 1, columns), (2, rows, columns)
        loss = whole if reduction == "none" else ()
        check(openaclnn.smooth_l1_loss.operator, loss, self=x, target=y)
        for g in (drawn(1), drawn(columns)) if reduction == "none" else (drawn(1),):
            check(openaclnn.l1_loss_backward.operator, whole, grad_output=g, self=x, target=y)
    assert taken.count(False) <= 6  # the first of each kind


def test_shapes_that_do_not_stretch_to_one_are_refused(taken: list[bool]) -> None:
    for n in (3, 4):
        openaclnn.smooth_l1_loss(np.ones((n, 1), np.float32), np.ones((1, n), np.float32))
    taken.clear()
    for shapes in (((3, 1), (2, 4)), ((3, 2), (2, 4)), ((3, 1, 5), (1, 4))):
        with pytest.raises(AclnnError, match="broadcast"):
            openaclnn.smooth_l1_loss(*[np.ones(shape, np.float32) for shape in shapes])
    nothing = [np.ones(shape, np.float32) for shape in ((0, 1), (1, 4))]
    assert openaclnn.smooth_l1_loss(*nothing, reduction="none").shape == (0, 4)
    # More elements together than words can count.
    one = np.ones(1, np.float32)
    far = 1 << 33
    x = np.lib.stride_tricks.as_strided(one, (far, 1), (0, 0))
    y = np.lib.stride_tricks.as_strided(one, (1, far), (0, 0))
    for reduction in ("none", "mean"):
        with pytest.raises(AclnnError, match=f"at most 2.60 elements .*, got {far * far} "):
            openaclnn.smooth_l1_loss(x, y, reduction=reduction)
    with pytest.raises(MemoryError):
        openaclnn.smooth_l1_loss(x[: 1 << 24], y, reduction="none")
    assert taken == [False] * len(taken)


def test_many_elements_of_other_sizes_take_the_slow_path(taken: list[bool]) -> None:
    many = gathered.MOST // 10
    for n in (100, 101, many + 1, many + 2, many + 1, 102):
        g, x = (torch.randn(n, 20)[:, ::2] for _ in range(2))
        got = openaclnn.elu_backward(g, x)
        np.testing.assert_array_equal(got, openaclnn.elu_backward(g.contiguous(), x.contiguous()))
    strided = taken[::2]
    assert strided == [False, True, False, False, True, True]


HALVED = [op for op in ROADS if has_halves(op)]


@pytest.mark.parametrize("operator", HALVED, ids=lambda op: op.python_name)
@pytest.mark.parametrize("convert", [np.asarray, to_torch], ids=["numpy", "torch"])
def test_halves_of_any_size_and_strides(
    operator: Operator, convert: Any, taken: list[bool]
) -> None:
    """With the slow path's bits; few elements and many, made and given."""
    rng, call = np.random.default_rng(2), plain(operator)
    for dim, gap in ((-1, 1), (0, 1), (-1, 2), (1, 3)):
        for rows in (4, 6, 50, 300, 302, 8):
            arguments = {}
            for p in operator.tensors:
                if p.kind is Kind.TENSOR:
                    *sizes, last = operator.shape_of(p.name, (rows, 4, 30), {"dim": dim})
                    wide = rng.standard_normal((*sizes, last * gap)).astype(np.float32)
                    arguments[p.python_name] = wide[..., ::gap]
            with openaclnn.use_engine("cpu"):
                expected = call(**arguments, dim=dim)
            converted = {name: convert(value) for name, value in arguments.items()}
            np.testing.assert_array_equal(call(**converted, dim=dim), expected)
            out = convert(np.full_like(expected, 7))
            call(**converted, dim=dim, out=out)
            np.testing.assert_array_equal(out, expected)
    served = sum(taken)
    assert served > len(taken) // 2, "each kind's first call, and those under use_engine, are none"


def test_halves_that_the_slow_path_refuses(taken: list[bool]) -> None:
    x, g = np.ones((4, 6), np.float32), np.ones((4, 3), np.float32)
    openaclnn.glu(x)
    openaclnn.swi_glu_grad(g, x)
    openaclnn.swi_glu_grad(g, x, out=np.empty_like(x))
    taken.clear()
    with pytest.raises(AclnnError, match="overlap"):
        openaclnn.swi_glu_grad(g, x, out=x)
    with pytest.raises(AclnnError):
        openaclnn.glu(x[:, :5])
    with pytest.raises(AclnnError):
        openaclnn.swi_glu_grad(g, x[:, :4])
    assert taken == [False] * 3


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
        one = np.lib.stride_tricks.as_strided(base, (n, 4), (16, 0))
        for shared in (over, one):
            with pytest.raises(AclnnError, match="lie apart"):
                openaclnn.elu_backward(g, x, out=shared)
        with pytest.raises(AclnnError):
            openaclnn.elu_backward(g, x[:-1], out=base[: 4 * n].reshape(n, 4))
    assert not taken[-1]


pytestmark = pytest.mark.usefixtures("any_layout")
WITH_CLASSES = [op for op in ROADS if op.workloads.PATTERN != "elementwise"]
SERVED = [op for op in WITH_CLASSES if lacks(op) is None]
SHAPES = {
    "rows": [(7, 5), (1, 9), (40, 3), (12, 60), (70, 130), (3, 1), (5, 300)],
    "pixels": [
        (2, 3, 4, 5),
        (3, 9, 2, 7),
        (1, 12, 1, 3),
        (4, 2, 1, 1),
        (2, 21, 5, 9),
        (1, 1, 6, 2),
    ],
    "elementwise": [(7, 5), (1, 9), (40, 3), (3, 4, 5), (70, 130)],
}


def spread(data: st.DataObject, name: str, values: Any) -> Any:
    """An argument where it lies, elsewhere, or stretched if all its elements may be one."""
    if not isinstance(values, np.ndarray) or not values.ndim:
        return values
    way = data.draw(st.sampled_from(["dense", "dynamic_strides", "dynamic_strides", "stretched"]))
    if way == "stretched" and name in ("grad_output", "grad_loss", "weight"):
        steps = (*values.strides[:-1], 0)
        return np.lib.stride_tricks.as_strided(values, values.shape, steps)
    return laid(data, values) if way == "dynamic_strides" else values


def as_it_lies(values: Any) -> Any:
    """A tensor over the same memory."""
    if not isinstance(values, np.ndarray):
        return values
    if values.dtype == BFLOAT16.numpy:
        return torch.from_numpy(values.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(values)


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_sequences_of_calls_with_classes(data: st.DataObject) -> None:
    """Sizes, numbers, layouts, dtypes, libraries, in place or not, in any order: the slow path's bits, the oracle's numbers."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    operator = SERVED[data.draw(st.integers(0, len(SERVED) - 1))]
    dtype = data.draw(st.sampled_from(FLOATS))
    variant = data.draw(st.sampled_from([*operator.workloads.VARIANTS]))
    summed, of_torch = data.draw(st.booleans()), data.draw(st.booleans())
    for _ in range(4):  # calls of one kind mostly
        shape = data.draw(st.sampled_from(SHAPES[operator.workloads.PATTERN]))
        arguments = operator.workloads.make(rng, dtype, shape, variant)
        if summed and "total_weight" in arguments:
            del arguments["total_weight"]
        if "target" in arguments:
            arguments["target"] = np.maximum(arguments["target"], 0)
            arguments["ignore_index"] = data.draw(st.sampled_from([-100, 0, 2]))
        arrays = {name: spread(data, name, values) for name, values in arguments.items()}
        copies = {
            name: values.copy() if isinstance(values, np.ndarray) else values
            for name, values in arrays.items()
        }
        place = data.draw(st.sampled_from(["fresh", "given", "dynamic_strides", "in place"]))
        out = np.full(shape, 7, dtype.numpy) if place == "given" else None
        if place == "dynamic_strides":
            out = laid(data, np.full(shape, 7, dtype.numpy))
        elif place == "in place":
            whole = [a for a in arrays.values() if isinstance(a, np.ndarray) and a.shape == shape]
            apart = [a for a in whole if 0 not in a.strides]
            out = arrays.get("log_prob") if "target" in arguments else (*apart, None)[0]
        given_arrays = arrays | {"out": out}
        strides = [
            step for a in given_arrays.values() if isinstance(a, np.ndarray) for step in a.strides
        ]
        if of_torch and min(strides) >= 0:
            given_arrays = {name: as_it_lies(values) for name, values in given_arrays.items()}
        with np.errstate(all="ignore"):
            got = plain(operator)(**given_arrays)
            with openaclnn.use_engine("cpu"):
                expected = plain(operator)(**copies)
            if isinstance(got, torch.Tensor):
                got = got.view(torch.int16 if dtype.itemsize == 2 else torch.int32).numpy()
            assert got.tobytes() == expected.tobytes()
            assert_matches_oracle(operator, copies, expected)


@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
@pytest.mark.parametrize("operator", WITH_CLASSES, ids=lambda op: op.python_name)
def test_a_layout_of_classes_that_was_not_seen_takes_the_road(
    operator: Operator, convert: Any, taken: list[bool]
) -> None:
    rng = np.random.default_rng(6)
    pixels = operator.workloads.PATTERN == "pixels"
    variants = [*operator.workloads.VARIANTS]
    variant = next((variant for variant in variants if variant in ("random", "none")), variants[0])
    whole = {"reduction": "none"} if operator.reduction else {}
    for number, n in enumerate((5, 6, 11, 30)):
        shape = (2, 4, n, 3) if pixels else (n, 70 if n == 30 else 4)
        arguments = operator.workloads.make(rng, FLOAT, shape, variant)
        turned = {
            name: np.asfortranarray(values) if values.ndim > 1 else np.repeat(values, 2 + n % 2)[:: 2 + n % 2]
            for name, values in arguments.items()
            if isinstance(values, np.ndarray) and values.size > 1
        }  # fmt: skip
        given_arrays = {
            name: convert(values)
            for name, values in (arguments | turned).items()
            if isinstance(values, np.ndarray)
        }
        taken.clear()
        got = plain(operator)(**given_arrays, **whole)
        assert taken == [number > 0]
        room = convert(np.full((*shape[:-1], 2 * shape[-1] + n), 5, np.float32))
        out = room[..., n : n + shape[-1]]
        taken.clear()
        plain(operator)(**given_arrays, **whole, out=out)
        assert taken == [number > 0]
        expected = plain(operator)(**arguments)
        if has_targets(operator):
            np.testing.assert_array_equal(np.asarray(got), expected)
        else:  # other code walks this layout, and adds up in another order
            arrays = {name: arguments[name] for name in given_arrays}
            assert_matches_oracle(operator, arrays | whole, np.asarray(got))
        np.testing.assert_array_equal(np.asarray(out), np.asarray(got))
        assert (np.asarray(room)[..., :n] == 5).all()
        assert (np.asarray(room)[..., n + shape[-1] :] == 5).all()


@pytest.mark.parametrize("name", ["softmax_cross_entropy_with_logits", "mse_loss_out"])
@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
def test_stretched_inputs_with_classes(name: str, convert: Any) -> None:
    """One row or one column for all, with gaps or without, beside inputs of the whole shape: the slow path's bits."""
    rng, operator = np.random.default_rng(11), getattr(openaclnn, name)
    sizes = ((5, 4), (6, 9), (40, 3), (1, 7), (8, 1), (3, 300), (9, 6))
    with counted_fast_paths([operator.operator]) as taken:
        for rows, columns in sizes:
            stretched = (rows, columns), (1, columns), (rows, 1)
            for (m, n), step in itertools.product(stretched, (1, 2)):
                x = rng.standard_normal((rows, columns)).astype(np.float32)
                y = rng.random((m, n * step)).astype(np.float32)[:, ::step]
                with openaclnn.use_engine("cpu"):
                    expected = operator(x, y)
                got = operator(convert(x), convert(y))
                for actual, known in zip(each(got), each(expected), strict=True):
                    np.testing.assert_array_equal(np.asarray(actual), known)
        assert sum(taken[1::2]) > 6 * len(sizes) // 2


def test_wrong_calls_with_classes_that_lie_anyhow(taken: list[bool]) -> None:
    """A target out of range, an output over an input, another shape: refused as the slow path refuses."""
    for n in (6, 7, 8):
        base = np.zeros((n, 12), np.float32)
        log_prob, target = base[:, 1:8:2], np.arange(3 * n)[::3] % 4
        gradient = np.ones((), np.float32)
        openaclnn.cross_entropy_loss_grad(gradient, log_prob, target)
        openaclnn.cross_entropy_loss_grad(
            gradient, log_prob, target, out=np.ones((n, 8), np.float32)[:, ::2]
        )
        openaclnn.cross_entropy_loss_grad(gradient, log_prob, target, out=log_prob)
        for wrong, options, match in (
            (np.arange(3 * n)[::3] % 5, {}, "target"),
            (np.arange(3 * n + 3)[::3] % 4, {}, "target"),
            (target, {"out": base[:, 3:10:2]}, "overlap"),
            (target, {"out": np.lib.stride_tricks.as_strided(base, (n, 4), (8, 4))}, "lie apart"),
        ):  # fmt: skip
            with pytest.raises(AclnnError, match=match):
                openaclnn.cross_entropy_loss_grad(gradient, log_prob, wrong, **options)
    assert taken.count(True) == 3 * 3 - 2


def test_many_positions_that_lie_anyhow_take_the_slow_path(taken: list[bool]) -> None:
    for n in (100, 101, FEW // 8 + 1):
        log_prob = torch.randn(n, 16)[:, ::2]
        taken.clear()
        got = openaclnn.cross_entropy_loss_grad(torch.ones(()), log_prob, torch.arange(n) % 8)
        assert torch.equal(
            got,
            openaclnn.cross_entropy_loss_grad(
                torch.ones(()), log_prob.contiguous(), torch.arange(n) % 8
            ),
        )
        assert taken[0] == (n == 101)


@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
@pytest.mark.parametrize(
    "operator",
    families([op for op in OPERATORS if op.output.in_place]),
    ids=lambda op: op.python_name,
)
def test_what_is_written_over_its_input_takes_the_road(operator: Operator, convert: Any) -> None:
    function = getattr(openaclnn, operator.python_name)
    road = function.__globals__["_cache"]
    road.forget()
    for number, n in enumerate((5, 9, 64, 300)):
        name, variant = operator.output.python_name, next(iter(operator.workloads.VARIANTS))
        given_arrays = operator.workloads.make(np.random.default_rng(n), FLOAT, (n, 3), variant)
        others = {
            key: convert(value) if isinstance(value, np.ndarray) else value
            for key, value in given_arrays.items()
            if key != name
        }
        whole = np.repeat(given_arrays[name], 2, axis=1)
        with openaclnn.use_engine("cpu"):
            expected = np.asarray(function(convert(given_arrays[name].copy()), **others))
        for array in (
            given_arrays[name].copy(),
            whole[:, ::2],
            np.asfortranarray(given_arrays[name]),
        ):
            written = convert(array)
            assert function(written, **others) is written
            np.testing.assert_array_equal(array, expected)
        np.testing.assert_array_equal(whole[:, 1::2], given_arrays[name])
        assert len(road.entries) == (2 if number else len(road.entries))
        frozen = np.lib.stride_tricks.as_strided(whole, (n, 3), (4, 4))
        with pytest.raises(AclnnError, match="lie apart"):
            function(convert(frozen), **others)
    tracked = torch.ones(3, requires_grad=True)
    beside = [torch.ones(3) for each in operator.tensors if not each.in_place]
    with pytest.raises(AclnnError, match="requires grad"):
        function(tracked, *beside)
    with torch.no_grad():
        version = tracked._version
        function(tracked, *beside)
    assert tracked._version == version + 1


def test_an_output_whose_elements_share_memory_is_refused() -> None:
    """Though outputs with gaps are known: one element for all, one for a row, rows that lie over each other."""
    x, memory = (np.linspace(-1, 1, 80, dtype=np.float32) for _ in range(2))
    for _ in range(2):
        openaclnn.elu(x.reshape(8, 10)[:, ::2], out=memory.reshape(8, 10)[:, ::2])
    before = memory.copy()
    for steps in ((0, 0), (40, 0), (0, 8), (8, 8), (16, 8)):
        out = np.lib.stride_tricks.as_strided(memory, (8, 5), steps)
        with pytest.raises(openaclnn.AclnnError, match="whose elements lie apart"):
            openaclnn.elu(x.reshape(8, 10)[:, ::2], out=out)
    np.testing.assert_array_equal(memory, before)
