"""Data and golden values: drawn as asked, the same every time, true to the oracle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import openaclnn
from conftest import OPERATORS, assert_matches_oracle, each, families, plain, told
from openaclnn.bench.problems import taken
from openaclnn.cli import main
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import BFLOAT16, DTYPES, FLOAT, FLOATS, INT32, INT64, UINT8, DType
from openaclnn.testing import SPECIALS, Distribution, Recipe, compare, draw, golden
from openaclnn.testing.drawing import draw_array, generator, ranks_of
from openaclnn.testing.figures import round_to
from openaclnn.testing.files import read_array
from openaclnn.testing.goldens import plan_of

names = pytest.mark.parametrize("operator", OPERATORS, ids=lambda op: op.python_name)
dtypes = pytest.mark.parametrize("dtype", FLOATS, ids=str)
SHAPES = {2: (40, 6), 4: (2, 5, 6, 7)}


def shape_for(operator: Operator) -> tuple[int, ...]:
    return SHAPES[2 if 2 in ranks_of(operator) else ranks_of(operator)[0]]


@dtypes
@pytest.mark.parametrize("ends", [(-2, 2), (0.1, 0.3), (1, 1), (-3e38, 3e38), (1000.1, 1000.2)])
def test_uniform_stays_inside(dtype: DType, ends: tuple[float, float]) -> None:
    array = draw_array(generator(1), (5000,), dtype, Distribution(*ends))
    values = array.astype(np.float64)
    with np.errstate(over="ignore"):
        low, high = (np.float64(end).astype(dtype.numpy).astype(np.float64) for end in ends)
    if np.isfinite([low, high]).all():
        assert low <= values.min()
        assert values.max() <= high
        if high - low > 0.1:
            assert values.min() < low + 0.05 * (high - low)
            assert ends[0] <= values.min() <= values.max() <= ends[1]


def test_ends_and_values_that_must_occur() -> None:
    array = draw_array(generator(1), (9,), FLOATS[0], Distribution(-1, 1, includes=(7.0, np.inf)))
    assert {7.0, np.inf} <= set(array.tolist())
    assert np.isnan(draw_array(generator(1), (9,), FLOATS[0], Distribution(np.nan, np.nan))).all()
    wide = draw_array(generator(1), (9,), FLOATS[0], Distribution(-np.inf, np.inf))
    assert np.isinf(wide).sum() == 2
    assert (draw_array(generator(1), (9,), FLOATS[1], Distribution(np.inf, np.inf)) == np.inf).all()


def test_integers_and_normals() -> None:
    array = draw_array(generator(1), (5000,), INT32, Distribution(0, 4))
    assert set(array.tolist()) == {0, 1, 2, 3, 4}
    assert set(draw_array(generator(1), (5000,), UINT8, Distribution(-3, 1)).tolist()) == {0, 1}
    assert set(draw_array(generator(1), (9,), INT32, Distribution(1.5, 2.5)).tolist()) == {2}
    for ends in ((-np.inf, np.inf), (np.nan, np.nan), (-1e30, 1e30), (300, 400)):
        assert draw_array(generator(1), (9,), UINT8, Distribution(*ends)).dtype == np.uint8
        assert draw_array(generator(1), (9,), INT64, Distribution(*ends)).dtype == np.int64
    array = draw_array(generator(1), (100_000,), FLOATS[0], Distribution(mean=50, deviation=3))
    assert abs(array.mean() - 50) < 0.1
    assert abs(array.std() - 3) < 0.1
    huge = draw_array(generator(1), (9,), FLOATS[1], Distribution(mean=1e6, deviation=1))
    assert np.isinf(huge).all()
    assert np.isinf(draw_array(generator(1), (9,), FLOATS[1], Distribution(1e6, 1e6))).all()
    for dtype in DTYPES:
        if dtype.numpy_name:
            assert draw_array(generator(1), (2, 3), dtype).dtype == dtype.numpy


@pytest.mark.parametrize("bad", [(2, 1), (0, 0, 0, -1)])
def test_distributions_that_mean_nothing(bad: Any) -> None:
    with pytest.raises(ValueError, match=r"empty|0 or more"):
        Distribution(*bad)


@names
def test_draws_can_be_called_and_repeated(operator: Operator) -> None:
    for dtype in taken(operator, FLOATS):
        with told(dtype):
            check_draws(operator, dtype)


def check_draws(operator: Operator, dtype: DType) -> None:
    shape = shape_for(operator)
    for how in (None, Distribution(-5, 5)) if dtype is FLOAT else (None,):
        one, two = (draw(operator, shape, dtype, seed=3, how=how) for _ in range(2))
        other = draw(operator, shape, dtype, seed=4, how=how)
        arrays = [name for name, value in one.items() if isinstance(value, np.ndarray)]
        assert [one[name].tobytes() for name in arrays] == [two[name].tobytes() for name in arrays]
        assert any(one[name].tobytes() != other[name].tobytes() for name in arrays)
        result = plain(operator)(**one)
        goldens = golden(operator, **one)
        for wanted, known in zip(each(goldens.target), each(result), strict=True):
            assert (wanted.dtype, wanted.shape) == (known.dtype, known.shape)
        comparison = compare(result, goldens.float64)
        assert comparison, str(comparison)


@names
def test_special_values_are_there_and_agree(operator: Operator) -> None:
    for dtype in taken(operator, FLOATS):
        with told(dtype):
            check_special_values(operator, dtype)


def check_special_values(operator: Operator, dtype: DType) -> None:
    arguments = draw(operator, shape_for(operator), dtype, special=SPECIALS)
    floating = [
        v for v in arguments.values() if isinstance(v, np.ndarray) and v.dtype == dtype.numpy
    ]
    large = [array.astype(np.float64) for array in floating if array.size >= 16]
    assert large
    together = np.concatenate([array.reshape(-1) for array in large])
    assert np.isnan(together).any()
    assert (together == -np.inf).any() or getattr(operator.workloads, "DOMAINS", None)
    smallest = float(ml_dtypes.finfo(dtype.numpy).smallest_normal)
    assert ((together != 0) & (np.abs(together) < smallest)).any()
    plan = plan_of(operator, arguments)
    if plan.targets >= 0:
        target = arguments[operator[plan.inputs[plan.targets].parameter].python_name]
        assert {0, plan.classes - 1, plan.numbers["ignore_index"]} <= set(
            target.reshape(-1).tolist()
        )
    result = plain(operator)(**arguments)
    comparison = compare(result, golden(operator, **arguments).float64)
    if (
        not comparison
    ):  # near a root, times a gradient of any size, no formula in FLOAT is as good as that
        assert_matches_oracle(operator, arguments, result)


@names
def test_a_golden_an_output(tmp_path: Path, operator: Operator) -> None:
    shape = "x".join(map(str, shape_for(operator)))
    assert main(["golden", operator.name, "--shape", shape, "-o", str(tmp_path / "a")]) == 0
    [case] = json.loads((tmp_path / "a" / "manifest.json").read_text())["cases"]
    arguments = dict(case["attributes"])
    inputs = [p.python_name for p in operator.parameters if p.is_read]
    folder = tmp_path / "a" / case["name"]
    for name in inputs:
        if f"{name}.npy" in case["files"]:
            arguments[name] = np.array(read_array(folder / f"{name}.npy"))
    exact, target = golden(operator, **arguments)
    ends = [""] if operator.result_type is None else [f"_{p.field}" for p in operator.outputs]
    several = operator.result_type is not None
    pairs = zip(ends, exact if several else [exact], target if several else [target], strict=True)
    written = {name for name in case["files"] if name.startswith("golden")}
    for end, wide, narrow in pairs:
        if wide is not None:
            assert read_array(folder / f"golden{end}.npy").tobytes() == narrow.tobytes()
            assert read_array(folder / f"golden{end}_float64.npy").tobytes() == wide.tobytes()
            written -= {f"golden{end}.npy", f"golden{end}_float64.npy"}
    assert not written


def test_the_worst_output_decides() -> None:
    arguments = draw("cross_entropy_loss", (40, 6), return_zloss=True)
    goldens = golden("cross_entropy_loss", **arguments).float64
    results = openaclnn.cross_entropy_loss(**arguments)
    for name in results._fields:
        wrong = np.array(getattr(results, name))
        wrong[...] = -wrong - 1
        comparison = compare(results._replace(**{name: wrong}), goldens)
        assert not comparison
        assert comparison.output == name
        assert f"failed: {name}, mixed" in str(comparison)
    comparison = compare(results._replace(zloss=None), goldens._replace(zloss=None))
    assert comparison
    for wrong in (results[:2], results.loss, results._replace(loss=None)):
        with pytest.raises(ValueError, match="loss"):
            compare(wrong, goldens)


@pytest.mark.filterwarnings("error")
@names
def test_wide_ranges_are_drawn_quietly(operator: Operator) -> None:
    wide, shape = Distribution(-3e38, 3e38), shape_for(operator)
    for dtype in taken(operator, FLOATS):
        arguments = draw(operator, shape, dtype, how=wide, special=["inf", "extreme"])
        golden(operator, **arguments)


def test_words_that_are_not_known() -> None:
    for wrong in ({"special": ["none"]}, {"variant": "none"}, {"how": {"none": Distribution()}}):
        with pytest.raises(ValueError, match="none"):
            draw("elu_backward", (3,), **wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a shape of 4 dimensions"):
        draw("aclnnNLLLoss2dBackward", (3,))
    with pytest.raises(openaclnn.AclnnError):
        golden("elu_backward", grad_output=np.float32([1]), self_or_result=np.float32([1, 2]))


def test_rounding_to_bfloat16_happens_once() -> None:
    between = 1 + 2**-8 + 2**-30  # float32 would round it to the tie, and that to 1
    assert float(round_to(np.array([between]), BFLOAT16)[0]) == 1 + 2**-7
    random = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    assert (round_to(random.astype(float), BFLOAT16) == random.astype(BFLOAT16.numpy)).all()
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e39, 1e-45])
    assert str(round_to(special, BFLOAT16).tolist()) == "[nan, inf, -inf, 0.0, -0.0, inf, 0.0]"


@pytest.mark.parametrize("operator", families(OPERATORS), ids=lambda op: op.python_name)
@pytest.mark.in_turns
def test_a_level_has_every_kind(operator: Operator) -> None:
    recipe = Recipe(operator.name, level="L1", count=45, elements=48)
    kinds = set()
    for number, (_, arguments) in enumerate(recipe):
        comparison = compare(plain(operator)(**arguments), golden(operator, **arguments).float64)
        assert comparison, str(comparison)
        arrays = [value for value in arguments.values() if isinstance(value, np.ndarray)]
        kinds.add((number % 3, max(array.ndim for array in arrays)))
    assert {rank for _, rank in kinds} == set(ranks_of(operator))
    assert len(kinds) == 3 * len(ranks_of(operator))


def test_files_and_their_manifest(tmp_path: Path, capsys: Any) -> None:
    line = "--shape 40x6 --dtype bf16 --count 2 --special all --format npy --format bin --set reduction=sum"
    first = str(tmp_path / "a")
    assert main(["golden", "cross_entropy_loss_grad", *line.split(), "-o", first]) == 0
    held = json.loads((tmp_path / "a" / "manifest.json").read_text())
    assert len(held["cases"]) == 2
    case = tmp_path / "a" / held["cases"][1]["name"]
    arguments = {
        name: read_array(case / f"{name}.npy") for name in ("grad_loss", "log_prob", "target")
    } | held["cases"][1]["attributes"]
    assert arguments["reduction"] == "sum"
    exact, target = golden("cross_entropy_loss_grad", **arguments)
    assert read_array(case / "golden_float64.npy").tobytes() == exact.tobytes()
    assert read_array(f"{case}/golden.bin:bf16:40x6").tobytes() == target.tobytes()
    capsys.readouterr()
    assert main(["golden", "--from", f"{first}/manifest.json", "-o", str(tmp_path / "b")]) == 0
    assert "the same bytes" in capsys.readouterr().out
    held["cases"][0]["files"]["golden.npy"]["sha256"] = "0"
    (tmp_path / "c.json").write_text(json.dumps(held))
    assert (
        main(["golden", "--from", str(tmp_path / "c.json"), "-o", str(tmp_path / "d"), "--json"])
        == 1
    )
    told = json.loads(capsys.readouterr().out)
    assert told["different"] == [held["cases"][0]["name"] + "/golden.npy"]


@pytest.mark.parametrize(
    "line",
    [
        "", "elu_backward", "nothing --shape 3", "elu_backward --shape 3y", "elu_backward --shape 3 --range 1",
        "elu_backward --shape 3 --range none=1,2", "elu_backward --shape 3 --dtype float99", "--from none.json",
        "elu_backward --shape 3 --set alpha", "elu_backward --shape 3 --range 2,1", "elu --from none.json",
        "--from none.json --shape 3", "--from none.json --seed 0",
    ],
)  # fmt: skip
def test_misuse(tmp_path: Path, capsys: Any, line: str) -> None:
    assert main(["golden", *line.split(), "-o", str(tmp_path / "x")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_nothing_is_written_over(tmp_path: Path, capsys: Any) -> None:
    line = ["golden", "elu_backward", "--shape", "3", "-o", str(tmp_path)]
    assert main(line) == 0
    assert main(line) == 2
    assert "is there already" in capsys.readouterr().err
    assert main([*line, "--force"]) == 0


def test_a_refused_call_has_status_one(tmp_path: Path, capsys: Any) -> None:
    line = "golden smooth_l1_loss_backward --shape 3 --set beta=-1 -o"
    assert main([*line.split(), str(tmp_path / "x")]) == 1
    assert "beta: expected >= 0" in capsys.readouterr().err


@pytest.mark.parametrize("shape", [(7,), (2, 3), (2, 3, 1, 2, 2)])
def test_channels_of_any_rank(shape: tuple[int, ...]) -> None:
    """PReLU's second axis has the channels; a vector has one."""
    drawn = draw("prelu_backward", shape)
    assert drawn["self"].shape == shape
    assert drawn["weight"].shape == (shape[1] if len(shape) > 1 else 1,)
