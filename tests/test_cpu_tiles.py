"""Tiles of kernels with any number of operands and constants, in every geometry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from openaclnn.core.dtypes import FLOAT
from openaclnn.core.plan import Operand, Plan
from openaclnn.engines.cpu.launching import pool
from openaclnn.engines.cpu.launching.control import MAX_ARGUMENTS
from openaclnn.engines.cpu.layouts import tiles
from openaclnn.engines.machine import cache
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.values import Value

SHAPE = (3, 70, 150)


def views(rng: np.random.Generator, shape: Sequence[int]) -> list[Any]:
    """Arrays of one shape that lie dense, turned, far apart, backwards, along one axis alone, and everywhere the same."""

    def filled(*sizes: int) -> Any:
        return rng.integers(-9, 9, sizes).astype(np.float32)

    a, b, c = shape
    return [
        filled(a, b, c), filled(a, c, b).transpose(0, 2, 1), filled(c, b, a).transpose(2, 1, 0),
        filled(a, b, 2 * c)[:, :, ::2], filled(a, b, c)[:, ::-1, ::-1], filled(a, b, 5 * c)[:, :, ::5],
        np.broadcast_to(filled(c), shape), np.broadcast_to(filled(b, 1), shape),
        np.broadcast_to(filled(1), shape),
    ]  # fmt: skip


def weighted_sum(inputs: int, constants: int, single: Sequence[int]) -> int:
    """A flat kernel: the sum of all constants, plus each input as often as its place says."""

    def emit(code: Code, arguments: Sequence[Value]) -> None:
        slots, start, stop = arguments
        words = code.slots(slots).at(1)
        total = code.integer(0)
        for place in range(constants):
            total = total + words.read(place)
        arrays = [code.array(words.read(constants + place), "f32") for place in range(inputs + 1)]
        with code.loop(start, stop) as index:
            value = total.to("f32")
            for place, array in enumerate(arrays[:-1]):
                value = value + array.read(0 if place in single else index) * float(place + 1)
            arrays[-1].write(index, value)

    return cache.compiled(f"test.sum {inputs} {constants} {tuple(single)}", emit)


def operand(array: Any) -> Operand:
    return Operand("x", FLOAT, tuple(step // 4 for step in array.strides))


def check(inputs: Sequence[Any], output: Any, constants: Sequence[int]) -> None:
    plan = Plan("", "sum", FLOAT, output.shape, tuple(map(operand, inputs)), operand(output), {})
    form = tiles.arrange(plan)
    kernel = weighted_sum(len(inputs), len(constants), form.single)
    run = tiles.runner(plan, form, kernel, constants, None)
    assert run(tuple(array.ctypes.data for array in (*inputs, output)), 0) == 0
    weighted = [(place + 1) * array for place, array in enumerate(inputs)]
    np.testing.assert_array_equal(output, np.sum(weighted, axis=0) + sum(constants))


@pytest.mark.parametrize("count", [1, 3, 4, 12, MAX_ARGUMENTS - 3])
@pytest.mark.parametrize("shape", [SHAPE, (40, 90, 7)])
def test_any_number_of_operands(count: int, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(count)
    arrays = views(rng, shape)
    for turn in range(0, len(arrays), 2):
        inputs = [arrays[(turn + place) % len(arrays)] for place in range(count)]
        outputs = [np.zeros(shape, np.float32), np.zeros((*shape[:-1], 2 * shape[-1]), np.float32)]
        for output in (outputs[0], outputs[1][:, :, ::2]):
            check(inputs, output, [3, -1])


def test_all_operands_turned() -> None:
    """Every operand is copied: the most that tiles' buffers must hold."""
    rng = np.random.default_rng(7)
    for count in (1, 3, 12, MAX_ARGUMENTS - 2):
        inputs = [rng.integers(-9, 9, (300, 200)).astype(np.float32).T for _ in range(count)]
        output = np.zeros((200, 600), np.float32)
        check(inputs, output[:, ::2], [])
        assert not output[:, 1::2].any()


def test_any_number_of_constants() -> None:
    rng = np.random.default_rng(8)
    for array in views(rng, SHAPE)[:4]:
        check([array], np.zeros(SHAPE, np.float32), list(range(MAX_ARGUMENTS - 2)))
    flat = np.arange(1000, dtype=np.float32)
    check([flat], np.zeros(1000, np.float32), list(range(MAX_ARGUMENTS - 2)))


def test_too_many_arguments_are_refused_in_words() -> None:
    flat = np.zeros(10, np.float32)
    with pytest.raises(ValueError, match="a kernel takes up to 64 arguments, not 65"):
        check([flat] * (MAX_ARGUMENTS - 1), flat.copy(), [1])
    with pytest.raises(ValueError, match="up to 64 arguments"):
        pool.launch(1, 10, 100, *range(MAX_ARGUMENTS + 1))
    run = pool.bind(1, 10, 100, 5)
    with pytest.raises(ValueError, match="up to 64 arguments"):
        run(tuple(range(MAX_ARGUMENTS)), 0)
