"""The kernel that CONTRIBUTING.md walks through: it serves any layout to the bits of NumPy's, and looks at its targets."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import LAYOUTS, fresh, laid_out
from openaclnn.core.dtypes import FLOATS, INT32, INT64, DType
from openaclnn.core.plan import Plan, class_plan
from openaclnn.core.tensor import Tensor
from openaclnn.engines import cpu, numpy as numpy_engine
from openaclnn.engines.numpy import classes

Array = np.ndarray[Any, Any]
GUIDE = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
PLACE = "tests/new_kernel/src/openaclnn/engines/cpu/classes/picked.py"


def picked(plan: Plan, views: Mapping[str, Array], out: Array) -> bool:
    """The same for NumPy."""
    indices, counted, stray = classes.counted_targets(views["target"], plan)
    safe = np.where(counted, indices, 0)[..., None]
    out[...] = np.where(counted, np.take_along_axis(views["self"], safe, -1)[..., 0], 0)
    return stray


@pytest.fixture(autouse=True)
def entered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Both kernels, for one test."""
    assert f"`{PLACE}`" in GUIDE
    monkeypatch.setitem(classes.KERNELS, "picked", picked)
    spec = importlib.util.spec_from_file_location("picked", Path(__file__).parent.parent / PLACE)
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    yield
    del cpu.KERNELS["picked"]


def run(engine: Any, target: Array, values: Array, out: Array) -> int:
    """An engine's kernel over arrays with the classes on their second axis; 5 is ignored."""
    source, to = Tensor.from_numpy(values), Tensor.from_numpy(out)
    plan = class_plan(
        "", "picked", source.dtype,
        [("target", Tensor.from_numpy(target), "positions"), ("self", source, "full")],
        [("out", to, "positions")], values.shape, 1, 0, {"ignore_index": 5},
    )  # fmt: skip
    assert engine.declines(plan) is None
    return int(engine.prepare(plan)([array.ctypes.data for array in (target, values, out)], 0))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_any_layout_has_the_bits_of_numpy_s(dtype: DType) -> None:
    rng = np.random.default_rng(4)
    shapes = (1, 1), (9, 4), (3, 7, 5, 6), (5000, 3)
    for shape, layout, kind in itertools.product(shapes, LAYOUTS, (INT64, INT32)):
        values, _ = laid_out(rng.normal(size=shape).astype(dtype.numpy), layout)
        positions = shape[:1] + shape[2:]
        labels = rng.integers(0, shape[1], positions).astype(kind.numpy)
        labels[rng.random(positions) < 0.2] = 5
        target, _ = laid_out(labels, layout)
        out, memory = laid_out(np.zeros(positions, dtype.numpy), layout)
        before = memory.copy()
        expected = fresh(positions, dtype.numpy)
        assert run(numpy_engine, target, values, expected) == 0
        assert run(cpu, target, values, out) == 0
        assert out.tobytes() == expected.tobytes()
        out[...] = 0
        assert memory.tobytes() == before.tobytes()  # nothing beside the output


def test_a_target_that_is_no_class_is_told_and_reads_nothing() -> None:
    values, out = np.ones((3, 2), np.float32), np.full(3, np.nan, np.float32)
    for stray in (-1, 2, 2**62):
        for engine in (numpy_engine, cpu):
            assert run(engine, np.array([1, stray, 5]), values, out) == 1
            assert out.tolist() == [1.0, 0.0, 0.0]


def test_its_examples_compile_and_what_it_does_not_serve_is_said() -> None:
    plans = [plan for plan in cpu.variants() if plan.kernel == "picked"]
    assert len(plans) == 6
    assert all(callable(cpu.prepare(plan)) for plan in plans)
    plans[0].shape = (1, 1, 1, 1)
    assert cpu.declines(plans[0]) == "its positions have 4 axes"
