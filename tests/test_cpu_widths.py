"""Few elements are computed with narrower vectors where there are wide ones: by other code, to the same bits."""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

import openaclnn
from openaclnn.core.dtypes import FLOATS, DType
from openaclnn.engines.machine import cache
from openaclnn.engines.machine.host import machine
from openaclnn.operators import registry

ELEMENTWISE = [
    (operator, variant)
    for operator in registry()
    if operator.workloads.PATTERN == "elementwise"
    and operator.axis is None
    and not operator.output.in_place
    for variant in operator.workloads.VARIANTS
]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(("operator", "variant"), ELEMENTWISE, ids=str)
@pytest.mark.in_turns
def test_elements_have_the_bits_of_many(operator: Any, variant: str, dtype: DType) -> None:
    function = getattr(openaclnn, operator.python_name)
    count = 3 * cache.FEW
    arguments = operator.workloads.make(np.random.default_rng(3), dtype, (count,), variant)
    arguments["reduction"] = "none"
    if "reduction" not in {parameter.python_name for parameter in operator.parameters}:
        del arguments["reduction"]
    whole = function(**arguments)
    for size in (1, 17, cache.FEW - 1, cache.FEW, cache.FEW + 1):
        few = {
            name: value[:size] if np.shape(value) == (count,) else value
            for name, value in arguments.items()
        }
        assert function(**few).tobytes() == whole[:size].tobytes()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_rows_have_the_bits_of_many(dtype: DType) -> None:
    rng, classes, seen = np.random.default_rng(4), 37, 0
    for operator in registry():
        work = operator.workloads
        if (
            work.PATTERN != "rows"
            or operator.result_type is not None
            or "none" not in work.VARIANTS
        ):
            continue
        arguments = work.make(rng, dtype, (3 * cache.FEW, classes), "none")
        function = getattr(openaclnn, operator.python_name)
        whole = function(**arguments)
        for rows in (1, 3, cache.FEW // classes, cache.FEW // classes + 1):
            few = {
                name: value[:rows] if np.shape(value)[:1] == (3 * cache.FEW,) else value
                for name, value in arguments.items()
            }
            assert function(**few).tobytes() == whole[:rows].tobytes()
            seen += 1
    assert seen


def test_code_is_there_twice_where_vectors_are_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []

    def seen(source: str) -> bytes:
        written.append(source)
        raise InterruptedError

    monkeypatch.setattr(cache, "_read", lambda path: None)
    monkeypatch.setattr(cache, "_compile", seen)
    for few in (None, lambda code, arguments: arguments[1] < arguments[2]):
        with pytest.raises(InterruptedError):
            cache.compiled(f"test.width {few}", lambda code, arguments: None, few=few)
    alone, both = written
    assert alone.count("define ") == 1
    assert ('@"narrow"' in both) == (machine().lanes > 8)
    if machine().lanes > 8:
        whole = cache._with_narrow(str(llvm.parse_assembly(both)))
        assert [
            whole.count(part) for part in ("define ", "declare ", '"prefer-vector-width"="256"')
        ] == [3, 0, 1]
