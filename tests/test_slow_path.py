"""What the slow path of a call relies on: addresses read from arrays, rounding to FLOAT, kernels by count, geometry."""

from __future__ import annotations

import itertools
import weakref
from typing import Any

import numpy as np
import pytest

import openaclnn
from openaclnn.core.dtypes import FLOATS, float_of
from openaclnn.core.plan import (
    Operand,
    Plan,
    _broadcast_operands,
    _collapsed_operands,
    _row_major_operands,
    collapse,
    stretched,
)
from openaclnn.core.tensor import Scalar, Tensor, extent
from openaclnn.engines.cpu.layouts import tiles
from openaclnn.engines.dispatch import choose_engine
from openaclnn.repeat import readers, slots as at, specialize


def test_an_array_s_address_is_what_numpy_says() -> None:
    whole = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for array in (whole, whole[1:], whole[:, ::-1], whole.T, whole[:0], np.array(1, np.float32)):
        assert Tensor.from_numpy(array).address == array.__array_interface__["data"][0]


def test_a_proxy_s_memory_is_not_read_as_an_array_s() -> None:
    x = np.linspace(-2, 2, 16, dtype=np.float32)
    np.testing.assert_array_equal(
        openaclnn.elu_backward(x, weakref.proxy(x)), openaclnn.elu_backward(x, x)
    )


@pytest.mark.parametrize(
    "number",
    [0.0, -0.0, 1.1, 1e-46, 1e-40, 3.4028235677973366e38, 1e39, -1e300, np.inf, -np.inf, np.nan],
)
def test_numbers_round_to_float_as_numpy_rounds_them(number: float) -> None:
    with np.errstate(over="ignore"):
        exact = float(np.float32(number))
    for got in (float_of(number), Scalar.of(number).float32()):
        assert np.float64(got).tobytes() == np.float64(exact).tobytes()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_bits_do_not_depend_on_the_count(dtype: Any) -> None:
    limit = 1025
    random = np.random.default_rng(1)
    x, y, g = (random.normal(size=limit).astype(np.float32).astype(dtype.numpy) for _ in range(3))
    calls = (
        lambda n: openaclnn.elu_backward(g[:n], x[:n], alpha=1.3),
        lambda n: openaclnn.elu_backward(g[:n], x[:n], alpha=1.3, is_result=True),
        lambda n: openaclnn.l1_loss_backward(g[:n], x[:n], y[:n], reduction="sum"),
        lambda n: openaclnn.smooth_l1_loss_backward(g[:n], x[:n], y[:n], reduction="sum", beta=0.7),
    )
    for call in calls:
        wide = call(limit)
        for count in (1, 3, 17, limit - 1):
            np.testing.assert_array_equal(
                call(count).view(np.uint8), wide[:count].view(np.uint8), strict=True
            )


def test_one_kernel_serves_any_size() -> None:
    kernels = set()
    for count in (2, 1000, 100_000):
        x = np.ones(count, np.float32)
        plan = openaclnn.explain(openaclnn.elu_backward, x, x).plan
        assert plan is not None
        flat = choose_engine(plan, "cpu").flat
        assert flat.counts[0] <= count < flat.counts[1]
        kernels.add(flat.kernel)
    assert len(kernels) == 1


def test_a_plan_says_where_all_operands_are_dense() -> None:
    x, wide = np.ones((4, 6), np.float32), np.ones((4, 12), np.float32)
    turned = np.asfortranarray(x)
    arguments: list[tuple[Any, Any, Any, bool]] = [
        (x, x, None, True),
        (x, x, x, True),
        (x[:1, :1], x[:1, :1], None, False),  # one element is no pattern
        (turned, turned, turned, False),
        (turned, x, None, False),
        (wide[:, ::2], x, None, False),
        (x, x, wide[:, :6], False),
        (x[::-1], x, None, False),
    ]
    for gradient, values, out, dense in arguments:
        plan = openaclnn.explain(openaclnn.elu_backward, gradient, values, out=out).plan
        assert plan is not None
        assert plan.dense is dense
    plan = openaclnn.explain(openaclnn.l1_loss_backward, x[0], x, x).plan
    assert plan is not None
    assert not plan.dense


def test_what_tells_a_tensor_s_dtype_and_device_is_as_pytorch_describes_it() -> None:
    torch = pytest.importorskip("torch")
    if readers.torch_functions() is None:
        pytest.skip("this PyTorch does not describe its tensors")
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8):
        for shape in ((), (3,), (2, 3), (1,) * 8):
            tensor = torch.empty(shape, dtype=dtype)
            wanted = tuple(readers.described(tensor)[at.DEVICE : at.KIND + 1])
            device, kind = readers.words_of(tensor, at.TORCH)
            assert (device, kind + len(shape)) == wanted


def test_collapsed_axes_walk_the_same_elements() -> None:
    random = np.random.default_rng(2)
    for _ in range(300):
        shape = tuple(int(size) for size in random.integers(1, 4, random.integers(0, 5)))
        strides = [
            tuple(int(step) for step in random.choice([-6, -2, 0, 1, 2, 3, 6, 12], len(shape)))
            for _ in range(3)
        ]
        merged, steps, offsets = collapse(shape, strides)
        assert len(merged) >= 1
        assert sorted(_places(shape, strides, [0, 0, 0])) == sorted(_places(merged, steps, offsets))


def test_row_major_positions_are_what_collapsing_finds() -> None:
    """Whatever axes there are before the classes and behind them, for every role."""
    random = np.random.default_rng(3)
    for _ in range(300):
        shape = tuple(int(size) for size in random.integers(1, 4, random.integers(1, 6)))
        axis = int(random.integers(len(shape)))
        sides = {
            "full": shape, "positions": shape[:axis] + shape[axis + 1 :], "classes": (1, shape[axis]), "single": (1,),
        }  # fmt: skip
        roles = ["full", *random.choice(list(sides), 4)]
        tensors = [(str(n), Tensor(sides[role], FLOATS[0]), role) for n, role in enumerate(roles)]
        wanted = _collapsed_operands("aclnn", tensors, shape, axis)
        assert _row_major_operands(tensors, shape, axis) == wanted, (shape, axis, roles)


def test_tensors_in_a_row_are_walked_as_collapsing_finds() -> None:
    """Row-major ones of the shape beside those of one element, with any axes of one."""
    random = np.random.default_rng(4)
    for _ in range(300):
        shape = tuple(int(size) for size in random.integers(1, 4, random.integers(1, 6)))
        ones = [(), (1,), (1,) * len(shape)]
        sides = [ones[kind] if kind < 3 else shape for kind in random.integers(0, 6, 2)]
        tensors = [(str(n), Tensor(sizes, FLOATS[n])) for n, sizes in enumerate([*sides, shape])]
        merged, strides, offsets = collapse(
            shape, [stretched(tensor, shape) for _, tensor in tensors]
        )
        walked, operands, dense = _broadcast_operands("aclnn", tensors, shape)
        assert walked == merged
        assert [(operand.strides, operand.offset) for operand in operands] == [
            *zip(strides, offsets, strict=True)
        ]
        reach = [(operand.low, operand.high) for operand in operands]
        assert reach == [extent(tensor) for _, tensor in tensors]
        assert dense == (np.prod(shape) > 1 and sides == [shape, shape])


def test_single_values_are_told_without_cutting_a_plan() -> None:
    """As `arrange` has them where there is nothing to cut; else a kernel takes none so."""
    random = np.random.default_rng(5)
    seen = set()
    for _ in range(300):
        shape = tuple(int(size) for size in random.integers(1, 4, random.integers(1, 3)))
        operands = [
            Operand(
                "x", FLOATS[0], tuple(int(step) for step in random.choice([0, 1, 1, 3], len(shape)))
            )
            for _ in range(3)
        ]
        plan = Plan("", "", FLOATS[0], shape, tuple(operands[:2]), operands[2], {})
        form = tiles.arrange(plan)
        assert tiles.singles(plan) == (form.single if form.flat else ())
        seen.add(tiles.singles(plan))
    assert seen == {(), (0,), (1,), (0, 1)}


def test_a_cache_entry_has_floats_as_their_bits() -> None:
    options = specialize.option_words((1.5, 3), (specialize.FreeNumber(),) * 2)
    entry = at.Entry([0] * (at.FIRST_OPTION - 1) + options)
    assert entry.words[at.KEEP] == id(entry)
    assert entry.words[at.FIRST_OPTION + at.BITS] == np.float64(1.5).view(np.int64)
    assert entry.words[at.FIRST_OPTION + at.OPTION_SLOTS + at.BITS] == 3


def test_kernels_for_any_size_are_found_again_by_all_that_they_follow_from() -> None:
    """Not by the count, which `mean` divides by; but -0.0 is another number than 0.0."""

    def flat(count: int, **options: Any) -> Any:
        x = np.ones(count, options.pop("dtype", np.float32))
        function = openaclnn.elu_backward if "alpha" in options else openaclnn.l1_loss_backward
        arrays = (x, x) if "alpha" in options else (x, x, x)
        plan = openaclnn.explain(function, *arrays, **options).plan
        assert plan is not None
        return choose_engine(plan, "cpu").flat

    assert flat(5) is flat(7)
    assert flat(5) is not flat(5, reduction="sum")
    assert flat(5) is not flat(5, dtype=np.float16)
    assert flat(5, alpha=0.0) is flat(6, alpha=0.0)
    assert flat(5, alpha=0.0).constants != flat(5, alpha=-0.0).constants
    for _ in range(
        2
    ):  # the runner of a plan has its own count, even where the kernel was found before
        x, one = np.array([3.0, -2.0, 1.0]).astype(np.float32), np.ones((3, 2), np.float32)[:, 0]
        out = openaclnn.l1_loss_backward(one, x, np.zeros_like(x))
        np.testing.assert_array_equal(out, np.float32([1, -1, 1]) * np.float32(1 / 3))


def _places(shape: Any, strides: Any, offsets: Any) -> list[tuple[int, ...]]:
    """Where each operand's element lies, for every index."""
    return [
        tuple(
            offset + sum(i * step for i, step in zip(index, steps, strict=True))
            for offset, steps in zip(offsets, strides, strict=True)
        )
        for index in itertools.product(*map(range, shape))
    ]
