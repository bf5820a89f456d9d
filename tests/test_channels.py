"""A number for each channel: weights of any shape, sums over all other axes, long rows that are cut, the same bits for every number of threads."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

import openaclnn
import openaclnn.torch
from conftest import assert_matches_oracle, assert_same_bits, call_on, laid_out
from openaclnn.core.dtypes import FLOAT
from openaclnn.testing.goldens import plan_of

FORWARD, BACKWARD = map(openaclnn.find_operator, ("prelu", "prelu_backward"))
LONG = (
    ((1 << 15,), 1, 2), ((8209,), 1, 1), ((2, 3, 1 << 14), 3, 2), ((1 << 14, 3), 3, 2), ((3, 5, 1000), 1, 2), ((1, 7), 7, 1), ((9, 4), 4, 1),
)  # fmt: skip
"""Shapes, how many weights, and in how many steps their gradient is summed."""


def drawn(shape: tuple[int, ...], count: int) -> dict[str, Any]:
    rng = np.random.default_rng(len(shape))
    return {
        "grad_output": rng.normal(size=shape).astype(np.float32),
        "self": rng.normal(size=shape).astype(np.float32),
        "weight": rng.normal(size=count).astype(np.float32),
    }


@pytest.mark.parametrize(("shape", "count", "steps"), LONG, ids=str)
def test_sums_of_long_rows(shape: tuple[int, ...], count: int, steps: int, engine: str) -> None:
    arguments = drawn(shape, count)
    assert len(plan_of(BACKWARD, arguments).steps) == steps
    got = call_on(engine, BACKWARD, arguments)
    assert_matches_oracle(BACKWARD, arguments, got)
    before = openaclnn.get_num_threads()
    try:
        for threads in (1, 3):
            openaclnn.set_num_threads(threads)
            assert_same_bits(call_on(engine, BACKWARD, arguments), got)
    finally:
        openaclnn.set_num_threads(before)


def test_weights_of_any_shape_and_layout(engine: str) -> None:
    whole = drawn((3, 12, 5), 12)
    for shape, layout in itertools.product(((12,), (3, 4), (2, 1, 6)), ("transposed", "reversed", "sliced")):  # fmt: skip
        weight, _ = laid_out(whole["weight"].reshape(shape), layout)
        place, _ = laid_out(np.zeros(shape, np.float32), layout)
        arguments = whole | {"weight": weight}
        for _ in range(2):
            got = call_on(engine, BACKWARD, {**arguments, "out": (np.empty((3, 12, 5), np.float32), place)})  # fmt: skip
            assert_matches_oracle(BACKWARD, arguments, got)
        assert got[1] is place
        flat = call_on(engine, BACKWARD, {**arguments, "out": (got[0], np.empty(12, np.float32))})
        assert_same_bits(flat[1].reshape(shape), place.copy())
        del arguments["grad_output"]
        assert_matches_oracle(FORWARD, arguments, call_on(engine, FORWARD, arguments))


def test_channels_are_not_the_last_axis_of_the_next_call(engine: str) -> None:
    """Where axis 1 and the last one are as long as each other, weights belong to axis 1; so they do in a call of other sizes."""
    for size in (4, 4, 6, 1, 4):
        arguments = drawn((2, size, size), size)
        del arguments["grad_output"]
        assert_matches_oracle(FORWARD, arguments, call_on(engine, FORWARD, arguments))


def test_one_slope_may_have_more_axes_than_the_tensor(engine: str) -> None:
    for shape, weight in (((), (1,)), ((), (1, 1)), ((5,), (1, 1)), ((), (1,))):
        arguments = drawn(shape, 1)
        arguments["weight"] = arguments["weight"].reshape(weight)
        assert_matches_oracle(BACKWARD, arguments, call_on(engine, BACKWARD, arguments))
        del arguments["grad_output"]
        assert_matches_oracle(FORWARD, arguments, call_on(engine, FORWARD, arguments))


def test_special_values_are_those_of_pytorch(engine: str) -> None:
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -3e38], np.float32)
    x, weight = (values.reshape(-1) for values in np.meshgrid(special, special))
    inputs = {"self": np.tile(x, (2, 1)), "weight": weight}
    expected = torch.nn.functional.prelu(*map(torch.from_numpy, inputs.values())).numpy()
    np.testing.assert_array_equal(call_on(engine, FORWARD, inputs), expected)
    gradients = {"grad_output": np.array([[1.0], [0.0]], np.float32), **inputs}
    with np.errstate(all="ignore"):
        assert_matches_oracle(BACKWARD, gradients, call_on(engine, BACKWARD, gradients))


def test_an_empty_tensor_has_no_gradient_of_slopes() -> None:
    inputs = {name: array.astype(FLOAT.numpy) for name, array in drawn((0, 3, 4), 3).items()}
    by_input, by_weight = openaclnn.prelu_backward(**inputs)
    assert by_input.shape == (0, 3, 4)
    np.testing.assert_array_equal(by_weight, np.zeros(3))


def test_derivatives_to_any_order() -> None:
    for shape, count in (((3, 4, 2), 4), ((3, 4), 4), ((5,), 1), ((2, 3, 2), 1)):
        operands = drawn(shape, count)
        x, weight = (torch.from_numpy(operands[name]).double().requires_grad_() for name in ("self", "weight"))  # fmt: skip
        assert torch.autograd.gradcheck(torch.ops.openaclnn.prelu, (x, weight))
        assert torch.autograd.gradgradcheck(torch.ops.openaclnn.prelu, (x, weight))
        narrow = [tensor.detach().float().requires_grad_() for tensor in (x, weight)]
        ours, theirs = (
            torch.autograd.grad(function(*narrow).square().sum(), narrow)
            for function in (torch.ops.openaclnn.prelu, torch.nn.functional.prelu)
        )
        torch.testing.assert_close(ours, theirs)


def test_the_gradient_of_the_input_may_lie_over_an_input(engine: str) -> None:
    for shape, count in (((3, 4, 70), 4), ((1 << 14,), 1), ((300, 5), 5)):
        for name in ("grad_output", "self"):
            arguments = drawn(shape, count)
            expected = call_on(engine, BACKWARD, arguments)
            place = arguments[name]
            got = call_on(
                engine, BACKWARD, {**arguments, "out": (place, np.empty(count, np.float32))}
            )
            assert got[0] is place
            assert_same_bits(got, expected)
