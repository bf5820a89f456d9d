"""The words of launch geometry give the same for Python's ints and as machine code."""

from __future__ import annotations

import ctypes
import itertools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

if sys.platform != "linux":
    pytest.skip("Triton has wheels for Linux alone", allow_module_level=True)

pytest.importorskip("triton")
from openaclnn.engines.gpu.launchers.geometry import (
    clamp,
    power_of_two_above,
    power_of_two_divisor,
    where_all,
)
from openaclnn.engines.machine.cache import compiled
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.kinds import signature
from openaclnn.engines.machine.numbers import (
    all_of,
    any_of,
    ceil_div,
    flag,
    inverse,
    least,
    most,
    where,
)
from openaclnn.engines.machine.values import Value

WORDS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "where": lambda a, b, c: where(a < b, b, c),
    "where of ints": lambda a, b, c: where(a < b, 5, -7) + where(a < b, 3, 3),
    "where of truths": lambda a, b, c: flag(where(a < b, False, b < c)),
    "where_all": lambda a, b, c: sum(where_all(b > c, (a, 2), (3, c))),
    "least, most": lambda a, b, c: least(a, b) - 3 * most(b, c) + least(7, a) * most(c, -2),
    "clamp": lambda a, b, c: clamp(a, -4, 9),
    "all_of": lambda a, b, c: flag(all_of(a < b, True, b < c)) + 2 * flag(all_of(False, a < b)),
    "any_of": lambda a, b, c: flag(any_of(a < b, False, b < c)) + 2 * flag(any_of(True, a < b)),
    "inverse": lambda a, b, c: flag(inverse(a < b)) + 2 * flag(inverse(all_of(a < 0, b < 0))),
    "ceil_div": lambda a, b, c: ceil_div(abs(a), abs(b) + 1) + ceil_div(1000, abs(c) + 1),
    "power_of_two_divisor": lambda a, b, c: power_of_two_divisor(a, 8 * b) + 17 * power_of_two_divisor(b * 4, 12, c * 8),
    "power_of_two_above": lambda a, b, c: power_of_two_above(abs(a) + 1, 1024) * power_of_two_above(abs(b) + 1, 64),
}  # fmt: skip


def emitted(name: str) -> Callable[[int, int, int], int]:
    """A word as machine code."""

    def emit(code: Code, arguments: Sequence[Value]) -> None:
        result = WORDS[name](*arguments)
        code.leave(code.integer(result) if isinstance(result, int) else result)

    address = compiled(f"test.numbers.{name}", emit, signature("i64", "i64", "i64", "i64"))
    return ctypes.CFUNCTYPE(*[ctypes.c_int64] * 4)(address)


@pytest.mark.parametrize("name", WORDS)
def test_ints_and_machine_code_agree(name: str) -> None:
    function, word, draw = emitted(name), WORDS[name], np.random.default_rng(4)
    small = itertools.product((-17, -16, -1, 0, 1, 2, 48), repeat=3)
    large = (draw.integers(-(1 << 30), 1 << 30, (2000, 3)) >> draw.integers(0, 30, (2000, 3))).tolist()  # fmt: skip
    for numbers in (*small, *large):
        assert function(*numbers) == word(*numbers), numbers


def test_what_python_knows_is_not_written() -> None:
    """A mode that is known when code is written costs it nothing."""
    unknown = object()  # neither a number nor a value of machine code: to touch it would fail
    assert where(True, 3, unknown) == 3
    assert where_all(False, (unknown,), (4,)) == (4,)
    assert all_of(False, unknown) is False
    assert any_of(True, True) is True
    assert power_of_two_divisor(48, 8, 0) == 8
    assert power_of_two_above(1000, 256) == 256
