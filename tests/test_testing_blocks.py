"""Large cases: drawn, computed and judged in blocks, the same for every number of threads, within a budget of memory."""

from __future__ import annotations

import json
import math
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import OPERATORS, each, families
from openaclnn.cli import main
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import FLOAT, FLOAT16, FLOATS, INT64, DType
from openaclnn.core.products import PRODUCTS
from openaclnn.engines import threads
from openaclnn.operators import find_operator
from openaclnn.testing import (
    Distribution,
    Recipe,
    compare,
    draw,
    read_cases,
    run as pipeline,
    run_cases,
)
from openaclnn.testing.build import build
from openaclnn.testing.calls import oracle_in_chunks
from openaclnn.testing.cases.case import Case, TensorSpec
from openaclnn.testing.drawing import MIXES, draw_array, generator
from openaclnn.testing.figures import Computed
from openaclnn.testing.run import memory_of

names = pytest.mark.parametrize("operator", families(OPERATORS), ids=lambda op: op.python_name)
SHAPES = {"rows": (700, 111), "pixels": (3, 7, 61, 67)}


@pytest.fixture(params=[1, 3])
def thread_count(request: Any) -> Iterator[int]:
    before = list(threads._chosen)
    threads.set_num_threads(request.param)
    yield request.param
    threads._chosen[:] = before


def large(operator: Operator, variant: str, **more: Any) -> dict[str, Any]:
    return draw(
        operator,
        SHAPES.get(operator.workloads.PATTERN, (300, 271)),
        variant=variant,
        seed=2,
        **more,
    )


def whole(golden: Any) -> Any:
    """Golden values, also those that are computed when they are looked at."""
    if isinstance(golden, Computed):
        return golden[slice(0, math.prod(golden.shape))].reshape(golden.shape)
    return golden


@names
@pytest.mark.in_turns
def test_blocks_give_what_the_whole_gives(operator: Operator, thread_count: int) -> None:
    for variant in operator.workloads.VARIANTS:
        arguments = large(operator, variant)
        expected = [output for output in each(operator.oracle(**arguments)) if output is not None]
        for output, known in zip(
            oracle_in_chunks(operator, arguments).values(), expected, strict=True
        ):
            assert output.shape == known.shape
            output = whole(output)
            np.testing.assert_allclose(output, known, rtol=1e-12, atol=0)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize(
    "name", ["l1_loss", "smooth_l1_loss", "l1_loss_backward", "smooth_l1_loss_backward"]
)
def test_stretched_tensors_in_blocks(name: str, reduction: str, thread_count: int) -> None:
    rng = np.random.default_rng(1)
    operator = find_operator(name)
    tensors = {"self": rng.normal(size=(5, 1, 501)), "target": rng.normal(size=(73, 1))}
    if name.endswith("backward"):
        tensors[operator.parameters[0].python_name] = rng.normal(size=(1,))
    arguments = {n: v.astype(np.float32) for n, v in tensors.items()} | {"reduction": reduction}
    [golden] = oracle_in_chunks(operator, arguments).values()
    np.testing.assert_allclose(whole(golden), operator.oracle(**arguments), rtol=1e-12, atol=1e-18)


@pytest.mark.parametrize("through", ["two-phase", "plain"])
def test_golden_values_of_elements_are_computed_late(through: str) -> None:
    """Also where the call writes over what it read."""
    operator = find_operator("inplace_elu")
    tensors = {operator.output.name: TensorSpec((300, 271), FLOAT)}  # more than a block
    case = Case("late", operator.name, "here", 0, tensors, {"alpha": 1.5})
    [exact] = oracle_in_chunks(operator, build(case, 0, PRODUCTS[0]).arguments).values()
    assert isinstance(exact, Computed)
    [result] = run_cases([case], through=through)
    assert result.verdict == "passed", result


def test_rows_of_a_block_are_those_of_a_row_alone(thread_count: int) -> None:
    """The references of cross entropy cut the rows themselves, and a row knows nothing of its block."""
    operator = find_operator("cross_entropy_loss_grad")
    arguments = large(operator, "none", label_smoothing=0.2)
    arguments["weight"] = np.linspace(-1, 2, 111, dtype=np.float32)
    golden = operator.oracle(**arguments)
    assert golden.size > 2 << 15
    for row in (0, 294, 295, 296, 699):
        one = {n: arguments[n][row : row + 1] for n in ("grad_loss", "log_prob", "target")}
        np.testing.assert_array_equal(golden[row], operator.oracle(**arguments | one)[0])
    weights = (
        arguments["weight"].astype(np.float64)[arguments["target"][arguments["target"] >= 0]].sum()
    )
    single = arguments | {"grad_loss": np.ones((), np.float32)}
    total, mean = (operator.oracle(**single | {"reduction": r}) for r in ("sum", "mean"))
    np.testing.assert_allclose(mean, total / weights, rtol=1e-12, atol=1e-18)


def test_the_oracle_copies_nothing_and_changes_nothing() -> None:
    for operator in OPERATORS:
        arguments = large(operator, next(iter(operator.workloads.VARIANTS)))
        arrays = {name: value for name, value in arguments.items() if isinstance(value, np.ndarray)}
        before = {name: array.tobytes() for name, array in arrays.items()}
        seen = operator.reference_arguments(copied=False, **arguments)
        assert all(seen[name] is array for name, array in arrays.items())
        copies = operator.reference_arguments(**arguments)
        assert not any(np.shares_memory(copies[name], array) for name, array in arrays.items())
        results = [result for result in each(operator.oracle(**arguments)) if result is not None]
        assert not any(np.shares_memory(result, a) for result in results for a in arrays.values())
        assert before == {name: array.tobytes() for name, array in arrays.items()}


@pytest.mark.parametrize("dtype", [*FLOATS, INT64], ids=str)
def test_data_and_verdicts_do_not_depend_on_threads(dtype: DType) -> None:
    before, seen = list(threads._chosen), []
    for count in (1, 2, 5):
        threads.set_num_threads(count)
        how = Distribution(means=(-3, 3), deviations=(1, 2), includes=(7.0,), outliers=0.001)
        one = draw_array(generator(3), (3, 400_001), dtype, how)
        golden = one.astype(np.float64)
        golden[1, ::1000] *= 1.5
        golden[2, 5] = np.nan
        comparison = compare(one, golden)
        assert [bad.position for bad in comparison.first_bad][:2] == [(1, 0), (1, 1000)]
        seen.append((one.tobytes(), str(comparison.as_dict())))
    threads._chosen[:] = before
    assert seen[0] == seen[1] == seen[2]


def test_chunks_differ_from_each_other() -> None:
    line = draw_array(generator(1), (4 << 18,), FLOAT).reshape(4, -1)
    assert len({chunk.tobytes() for chunk in line}) == 4
    assert abs(line.mean()) < 0.01
    assert abs(line.std() - 4 / np.sqrt(12)) < 0.01


def test_sums_over_many_blocks_are_exact_enough() -> None:
    """Means of three million elements, in a fixed order, as NumPy's long double has them."""
    golden = np.random.default_rng(0).normal(size=3_000_000) * np.logspace(-6, 6, 3_000_000)
    figures = compare(golden.astype(np.float32), golden).figures
    assert figures is not None
    error = np.abs(golden.astype(np.float32) - golden).astype(np.longdouble)
    size = np.abs(golden).astype(np.longdouble)
    for name, known in (
        ("mean_absolute_error", error.mean()), ("MERE", (error / (size + 1e-7)).mean()),
        ("mean_relative_error", (error / size).mean()), ("max_absolute_error", error.max()),
        ("root_mean_square_error", np.sqrt((error * error).mean())),
    ):  # fmt: skip
        assert abs(figures[name] - float(known)) <= 1e-13 * float(known), name


# Levels.


def kind_of(how: Distribution) -> str:
    if how.outliers:
        return "outliers"
    return "normal" if how.means else "small" if how.high < 1 else "uniform"


def test_shares_of_the_levels() -> None:
    shares = {level: Counter(map(kind_of, mix)) for level, mix in MIXES.items()}
    assert shares["L0"] == {"uniform": 1, "normal": 1}
    assert shares["L1"] == shares["L2"] == {"small": 1, "uniform": 3, "normal": 4, "outliers": 2}


@pytest.mark.parametrize("level", ["L0", "L1", "L2"])
def test_the_mix_of_a_level(level: str) -> None:
    """Told from the values alone; a normal case is one with a deviation of 1 or more that is not uniform's."""
    recipe = Recipe("elu_backward", level=level, count=160, elements=10_000, seed=5)
    seen: Counter[str] = Counter()
    for number in range(recipe.count):
        values = recipe.arguments(number)["grad_output"].astype(np.float64)
        size = np.abs(values)
        if values.size < 500:
            continue
        if size.max() <= 0.001:
            seen["small"] += 1
        elif size.max() <= 5:
            assert abs(values.std() - 10 / np.sqrt(12)) < 0.5
            seen["uniform"] += 1
        elif np.mean(size <= 5) >= 0.9 and abs(np.median(values)) < 1 and size.max() > 25:
            assert size.max() <= 501
            seen["outliers"] += 1
        else:
            assert 0.5 < values.std() < 27
            assert abs(values.mean()) < 102
            seen["normal"] += 1
    total, shares = sum(seen.values()), Counter(map(kind_of, MIXES[level]))
    assert total > 80
    assert seen.keys() == shares.keys()
    for kind, share in shares.items():
        assert abs(seen[kind] / total - share / shares.total()) < 0.1, (kind, seen)


def test_outliers() -> None:
    how = Distribution(-5, 5, outliers=0.01)
    values = np.abs(draw_array(generator(1), (200_000,), FLOAT16, how).astype(np.float64))
    beyond = values[values > 5]
    assert 0.008 < beyond.size / values.size < 0.0105
    assert 400 < beyond.max() <= 500.5
    one = draw_array(generator(1), (3,), FLOAT, Distribution(1, 1, outliers=0.001))
    assert sorted(one.tolist())[:2] == [1, 1]
    assert 10 <= one.max() <= 100
    with pytest.raises(ValueError, match="share of outliers"):
        Distribution(outliers=2)


# Memory.


def write_list(path: Path, *shapes: tuple[int, ...]) -> Path:
    def tensor(name: str, shape: tuple[int, ...]) -> dict[str, Any]:
        return {
            "name": name,
            "type": "tensor",
            "dtype": "fp32",
            "shape": list(shape),
            "range_values": [-2, 2],
        }

    held = [
        {
            "id": number, "name": f"case_{number}", "aclnn_name": "aclnnL1LossBackward",
            "inputs": [
                tensor("gradOutput", ()), tensor("self", shape), tensor("target", shape),
                {"name": "reduction", "type": "attr", "dtype": "int", "range_values": 1},
            ],
        }
        for number, shape in enumerate(shapes)
    ]  # fmt: skip
    path.write_text(json.dumps(held))
    return path


HUGE = (3_500_000, 1000)


def test_a_case_beyond_the_budget_is_skipped(tmp_path: Path, capsys: Any) -> None:
    path = write_list(tmp_path / "l.json", (40, 50), HUGE, (3, 2))
    for count in (1, 2):
        results = list(run_cases(read_cases(path), jobs=count, memory=10**8))
        assert [result.verdict for result in results] == ["passed", "skipped", "passed"]
        assert results[1].why == "not enough memory: about 42.0 GB are needed, 0.1 GB allowed"
    assert main(["cases", str(path), "--memory", "1e-8"]) in (0, 3)
    assert "3 skipped" in capsys.readouterr().out
    with pytest.raises(ValueError, match="memory: expected"):
        list(run_cases([], memory=0))


def test_what_a_case_needs(tmp_path: Path) -> None:
    [small] = read_cases(write_list(tmp_path / "a.json", (1000, 1000)))
    assert memory_of(small) == 4 + 8_000_000 + 4_000_000
    assert memory_of(small, golden_files=True) == memory_of(small) + 8_000_000
    [stretched] = read_cases(write_list(tmp_path / "b.json", (100_000, 1)))
    tensors = dict(stretched.tensors)  # type: ignore[union-attr]
    tensors["target"] = tensors["target"].__class__((1, 100_000), FLOAT)
    outer = replace(stretched, tensors=tensors)  # type: ignore[type-var]
    assert memory_of(outer) > 4 * 10**10  # the result is larger than all that it is made of


def test_cases_in_work_stay_within_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never more than is allowed is drawn and not yet judged, while small cases wait together."""
    shapes = [(100, 100 * (1 + n % 3)) for n in range(12)]
    cases = list(read_cases(write_list(tmp_path / "l.json", *shapes)))
    allowed = 2 * max(map(memory_of, cases))
    held, most = 0, 0
    prepare, judge = pipeline._prepare, pipeline._judge
    counting = threading.Lock()  # cases are drawn and judged by two threads

    def counted(case: Any, settings: Any) -> Any:
        nonlocal held, most
        with counting:
            held += memory_of(case)
            most = max(most, held)
        return prepare(case, settings)

    def released(case: Any, *rest: Any) -> Any:
        nonlocal held
        with counting:
            held -= memory_of(case)
        return judge(case, *rest)

    monkeypatch.setattr(pipeline, "_prepare", counted)
    monkeypatch.setattr(pipeline, "_judge", released)
    assert all(run_cases(cases, memory=allowed))
    assert allowed / 2 < most <= allowed


def test_processes_share_one_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = [(100, 100)] * 20 + [(1000, 1000)] + [(100, 100)] * 60
    cases = list(read_cases(write_list(tmp_path / "l.json", *shapes)))
    need = memory_of(cases[20])
    settings = pipeline.Settings(memory=int(1.5 * need))
    submitted: list[tuple[int, Future[Any]]] = []

    class Pool:
        """Does what it is given only when it is asked for it: the most that could be in work."""

        def __init__(self, *args: Any) -> None: ...
        def __enter__(self) -> Pool:
            return self

        def __exit__(self, *args: Any) -> None: ...
        def submit(self, function: Any, bundle: Any, settings: Any, share: int) -> Any:
            class Late(Future[Any]):
                def result(self, timeout: Any = None) -> Any:
                    if not self.done():
                        self.set_result(function(bundle, settings, share))
                    return super().result()

            submitted.append((share, Late()))
            assert sum(memory for memory, late in submitted if not late.done()) <= settings.memory
            return submitted[-1][1]

    monkeypatch.setattr(pipeline, "ProcessPoolExecutor", Pool)
    results = list(pipeline._run_in_processes(cases, settings, 2))
    assert [result.name for result in results] == [case.name for case in cases]
    assert all(result.verdict == "passed" for result in results)
    assert max(share for share, _ in submitted) == need
