"""Verdicts: each standard at its own limits, special values, and the figures against their definitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from openaclnn.core.dtypes import BFLOAT16, FLOAT, FLOAT16, FLOATS, DType
from openaclnn.testing import STANDARDS, compare, draw
from openaclnn.testing.extras import dtype_named
from openaclnn.testing.figures import BLOCK, overflow_from, spacing
from openaclnn.testing.verdicts import draw_picture

dtypes = pytest.mark.parametrize("dtype", FLOATS, ids=str)
MIXED = {FLOAT16: (2**-9, 2**-9, 0.1), BFLOAT16: (2**-6, 2**-6, 1.0), FLOAT: (2**-10, 2**-16, 0.01)}
RELATIVE = {FLOAT16: 2**-10, BFLOAT16: 2**-7, FLOAT: 2**-13}


def normal(count: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=count)


def off(golden: Any, dtype: DType, share: float, error: float) -> Any:
    """The golden values, a share of them off by an error."""
    actual = golden.copy()
    actual[: int(share * golden.size)] += error
    return actual


@dtypes
@pytest.mark.parametrize("standard", [s for s in STANDARDS if s != "cross_check"])
def test_a_rounded_golden_passes_all(standard: str, dtype: DType) -> None:
    golden = normal(5000).reshape(50, 100)
    verdict = compare(golden.astype(dtype.numpy), golden, standard=standard)
    assert verdict, str(verdict)
    assert verdict.reasons == ()
    assert verdict.figures is not None
    assert verdict.figures["max_ulp"] <= 0.5
    assert dict(verdict.ulp_histogram)["<= 0.5"] == 5000


@dtypes
def test_mixed_at_its_limits(dtype: DType) -> None:
    rtol, atol, limit = MIXED[dtype]
    golden = np.full(1000, 0.5)
    allowed = atol + rtol * 0.5
    assert compare(off(golden, dtype, 0.5, 0.99 * allowed), golden, dtype=dtype)
    assert compare(off(golden, dtype, 0.01, 1.01 * allowed), golden, dtype=dtype)
    verdict = compare(off(golden, dtype, 0.011, 1.01 * allowed), golden, dtype=dtype)
    assert not verdict
    assert "at least 0.99 must be" in str(verdict)
    verdict = compare(off(golden, dtype, 0.001, 1.01 * limit), golden, dtype=dtype)
    ulps = 1.01 * limit / float(spacing(np.float64(0.5), dtype))
    assert bool(verdict) == (ulps <= 32)
    large = np.full(1000, 2.0**14)  # the limit is less than 32 ULP there
    unit = float(spacing(large[:1], dtype)[0])
    assert 20 * unit > limit
    verdict = compare(off(large, dtype, 0.001, 20 * unit), large, dtype=dtype)
    assert verdict, str(verdict)
    assert not compare(off(large, dtype, 0.001, 40 * unit), large, dtype=dtype, rtol=1.0)


@dtypes
def test_mean_and_maximum_relative_error(dtype: DType) -> None:
    bound = RELATIVE[dtype]
    golden = np.full(1000, 1.0)
    assert compare(
        off(golden, dtype, 1, 0.99 * bound), golden, dtype=dtype, standard="stat_rel_err"
    )
    verdict = compare(
        off(golden, dtype, 1, 1.01 * bound), golden, dtype=dtype, standard="stat_rel_err"
    )
    assert [reason.split()[0] for reason in verdict.reasons] == ["MERE"]
    verdict = compare(off(golden, dtype, 0.01, 10.1 * bound), golden, dtype=dtype, standard="stat_rel_err")  # fmt: skip
    assert [reason.split()[0] for reason in verdict.reasons] == ["MARE"]


@dtypes
def test_close_allows_a_share(dtype: DType) -> None:
    share = 1e-4 if dtype is FLOAT else 1e-3
    golden = np.full(20_000, 1.0)
    for count, good in ((int(share * 20_000), True), (int(share * 20_000) + 1, False)):
        actual = golden.copy()
        actual[:count] += 1.1 * share
        assert bool(compare(actual, golden, dtype=dtype, standard="close")) == good
    assert compare(actual, golden, dtype=dtype, standard="close", ptol=0.5)
    assert compare(actual, golden, dtype=dtype, standard="close", rtol=0.5)


@pytest.mark.parametrize("standard", STANDARDS)
@pytest.mark.parametrize("name", ["rtol", "atol", "ptol", "limit"])
def test_tolerances_that_say_nothing_are_refused(standard: str, name: str) -> None:
    for wrong in (np.nan, np.inf, -np.inf, -1e-9, *([7] if name == "ptol" else [])):
        with pytest.raises(ValueError, match=f"^{name}: expected .*, got "):
            compare(np.zeros(3), np.ones(3), standard=standard, **{name: wrong})


def test_cosine() -> None:
    golden = np.array([1.0, 0.0])
    assert compare(np.array([1.0, 0.14]), golden, standard="cosine")
    assert not compare(np.array([1.0, 0.15]), golden, standard="cosine")
    assert compare(np.zeros(3), np.zeros(3), standard="cosine")
    assert not compare(np.ones(3), np.zeros(3), standard="cosine")


def test_binary_is_about_bytes() -> None:
    one = np.float32([0.0, np.nan, 1.0])
    assert compare(one, one.copy(), standard="binary")
    assert compare(one, -one * np.float32([1, -1, -1]), standard="binary").bad == 1  # -0
    assert not compare(
        one, np.float32([0, np.nan, np.nextafter(np.float32(1), 2)]), standard="binary"
    )
    assert compare(np.float16([1 / 3]), np.array([1 / 3]), standard="binary")


@pytest.mark.parametrize("standard", ["binary", "close"])
def test_golden_values_are_rounded_once(standard: str) -> None:
    golden = np.array([1 + 2**-8 + 2**-30])  # as float32 it is the tie, and that rounds to 1
    above = np.array([1 + 2**-7]).astype(BFLOAT16.numpy)
    assert compare(above, golden, standard=standard)
    assert not compare(np.ones_like(above), golden, standard=standard)


def test_integers_are_equal_or_not() -> None:
    one = np.arange(10)
    for standard in ("mixed", "close", "stat_rel_err", "cosine"):
        assert compare(one, one, standard=standard)
        assert compare(one, one + (one == 3), standard=standard).bad == 1


def test_cross_check_by_level() -> None:
    golden = np.linspace(1, 2, 1000)
    third = golden * (1 + 1e-4)
    for level, ratio in (("L0", 2.0), ("L1", 1.5), ("L2", 1.2)):
        for factor, good in ((0.99 * ratio, True), (1.01 * ratio, False)):
            actual = golden * (1 + factor * 1e-4)
            verdict = compare(
                actual, golden, third, standard="cross_check", dtype="float", level=level
            )
            assert bool(verdict) == good, verdict
    worst = third.copy()
    worst[0] = golden[0] * (1 + 5.1e-4)
    verdict = compare(worst, golden, third, standard="cross_check", dtype="float")
    assert [reason.split()[0] for reason in verdict.reasons] == ["max_relative_ratio"]
    with pytest.raises(ValueError, match="third party"):
        compare(golden, golden, standard="cross_check")
    assert compare(golden, golden, golden, standard="cross_check")
    assert not compare(third, golden, golden, standard="cross_check")


def test_cross_check_counts_small_values() -> None:
    golden = np.full(100, 2.0**-20)
    third, actual = golden.copy(), golden.copy()
    third[:3] += 2.0**-29
    actual[:6] += 2.0**-29
    assert compare(actual, golden, third, standard="cross_check", dtype="float")
    actual[:7] += 2.0**-29
    verdict = compare(actual, golden, third, standard="cross_check", dtype="float")
    assert "where golden values are small" in str(verdict)


@pytest.mark.parametrize("standard", [s for s in STANDARDS if s != "cross_check"])
def test_special_values_agree_or_fail_outright(standard: str) -> None:
    golden = np.float32([1, np.nan, np.inf, -np.inf])
    assert compare(golden.copy(), golden, standard=standard)
    for place, wrong in ((0, np.nan), (0, np.inf), (1, 1.0), (2, -np.inf), (3, 3e38), (2, np.nan)):
        actual = golden.copy()
        actual[place] = wrong
        verdict = compare(actual, golden, standard=standard)
        assert not verdict
        assert verdict.first_bad[0].position == (place,)


@dtypes
def test_golden_values_that_overflow_the_dtype_are_infinite(dtype: DType) -> None:
    edge = overflow_from(dtype)
    with np.errstate(over="ignore"):
        assert np.isinf(np.float64(edge).astype(dtype.numpy))
        assert np.isfinite(np.float64(edge * (1 - 1e-6)).astype(dtype.numpy))
    infinite = np.array([np.inf]).astype(dtype.numpy)
    assert compare(infinite, np.array([edge]))
    assert not compare(infinite, np.array([np.nextafter(edge, 0)]))


@dtypes
def test_spacing(dtype: DType) -> None:
    kind = dtype.numpy.type
    for value in (1.0, 1.5, 3.0, 100.0, 1e-3, float(ml_dtypes.finfo(dtype.numpy).smallest_normal)):
        number = kind(value)
        word = np.asarray(number).view(f"i{dtype.itemsize}")
        above = (word + 1).astype(word.dtype).view(dtype.numpy)
        gap = float(above) - float(number)
        assert float(spacing(np.array([float(number)]), dtype)[0]) == gap
    smallest = float(ml_dtypes.finfo(dtype.numpy).smallest_subnormal)
    assert float(spacing(np.zeros(1), dtype)[0]) == smallest


def test_figures_are_their_definitions() -> None:
    golden = normal(3 * BLOCK + 17)
    actual = (golden * (1 + 1e-4 * normal(golden.size, 1))).astype(np.float32)
    figures = compare(actual, golden).figures
    error, size = np.abs(actual - golden), np.abs(golden)
    wanted = {
        "cosine_similarity": actual @ golden / np.linalg.norm(actual.astype(float)) / np.linalg.norm(golden),
        "max_absolute_error": error.max(),
        "accumulated_relative_error": error.sum() / size.sum(),
        "relative_euclidean_distance": np.linalg.norm(error) / np.linalg.norm(golden),
        "mean_absolute_error": error.mean(),
        "root_mean_square_error": np.sqrt((error**2).mean()),
        "max_relative_error": (error / size).max(),
        "mean_relative_error": (error / size).mean(),
        "MERE": (error / (size + 1e-7)).mean(),
        "MARE": (error / (size + 1e-7)).max(),
        "matched": (error <= 2**-16 + 2**-10 * size).mean(),
        "max_ulp": (error / np.spacing(size.astype(np.float32))).max(),
    }  # fmt: skip
    assert figures is not None
    assert figures.keys() == wanted.keys()
    for name, value in wanted.items():
        assert figures[name] == pytest.approx(value, rel=2e-3 if name == "max_ulp" else 1e-9), name


def test_positions_cross_blocks_and_complex_numbers_count_twice() -> None:
    golden = np.zeros((5, BLOCK))
    actual = golden.copy()
    actual[0, 3] = actual[4, BLOCK - 1] = 1
    assert [b.position for b in compare(actual, golden).first_bad] == [(0, 3), (4, BLOCK - 1)]
    assert len(compare(actual, golden, positions=1).first_bad) == 1
    verdict = compare(np.complex64([1, 2 + 1j]), np.complex128([1, 2]))
    assert verdict.first_bad[0].position == (1, 1)


@pytest.mark.parametrize(
    ("computed", "known", "judged", "noted"),
    [
        ("float32", "float16", "FLOAT16", True), ("float32", "bfloat16", "BFLOAT16", True),
        ("float16", "bfloat16", "BFLOAT16", True), ("bfloat16", "float16", "BFLOAT16", True),
        ("float64", "float32", "FLOAT", True), ("float16", "float32", "FLOAT16", True),
        ("float16", "float64", "FLOAT16", False), ("float32", "float32", "FLOAT", False),
        ("int64", "int32", "INT64", True), ("int32", "float64", "INT32", False),
    ],
)  # fmt: skip
def test_the_narrower_dtype_decides(computed: str, known: str, judged: str, noted: bool) -> None:
    values = np.arange(1, 9)
    actual, golden = (values.astype(dtype_named(name).numpy) for name in (computed, known))
    verdict = compare(actual, golden)
    assert verdict
    assert verdict.dtype == judged
    assert verdict.golden_dtype == dtype_named(known).name
    assert bool(verdict.notes) == noted
    assert all(judged in note and note in str(verdict) for note in verdict.notes)


def test_limits_are_those_of_the_narrower_dtype() -> None:
    """An error of half a unit of FLOAT16, which an output of FLOAT would be faulted for."""
    golden = np.linspace(1, 2, 1000).astype(np.float16)
    actual = golden.astype(np.float32) * np.float32(1 + 2**-9)
    assert compare(actual, golden)
    assert not compare(actual, golden.astype(np.float64))
    assert not compare(actual, golden, dtype="float32")


def test_shapes_that_differ_fail() -> None:
    verdict = compare(np.zeros((2, 3)), np.zeros((3, 2)))
    assert not verdict
    assert "shape (2, 3)" in str(verdict)


def test_nothing_passes() -> None:
    for standard in STANDARDS:
        assert compare(np.zeros((0, 3)), np.zeros((0, 3)), np.zeros((0, 3)), standard=standard)


def test_unknown_words_are_refused() -> None:
    one = np.zeros(1)
    for strange in (np.array(["a"]), np.zeros(1, [("a", "f4")])):
        with pytest.raises(ValueError, match="numbers are expected"):
            compare(strange, one)
    with pytest.raises(ValueError, match="known: mixed, stat_rel_err"):
        compare(one, one, standard="strict")
    with pytest.raises(ValueError, match="known: L0, L1, L2"):
        compare(one, one, level="L3")


@pytest.mark.parametrize("standard", [each for each in STANDARDS if each != "cross_check"])
def test_pictures_show_what_the_verdict_counts(standard: str) -> None:
    from openaclnn.testing.figures import Rules
    from openaclnn.testing.verdicts import errors_at, map_of

    golden = normal(70_000).reshape(700, 100)
    for dtype in (np.float16, np.int64):
        actual = np.asarray(golden.astype(dtype))
        actual[5:7, 3] += 50
        known = golden if dtype is np.float16 else golden.astype(dtype)
        verdict, rules = compare(actual, known, standard=standard), Rules(standard)
        assert verdict.bad == 2
        seen = map_of(verdict, actual, known, rules, 10_000)
        assert (seen.share == 1).sum() == np.count_nonzero(seen.share) == 2
        bad = errors_at(verdict, actual, known, rules, 10**6).bad.sum()
        assert bad == np.count_nonzero(known[5:7, 3])  # a golden 0 has no place on its axis


def test_the_histogram_has_every_element_once() -> None:
    golden = np.array([1.0, np.nan, np.inf, -np.inf, np.inf, 1e6, 1e6, 2.0])
    actual = np.array([np.nan, np.nan, np.inf, np.inf, 3.0, np.inf, 9.0, 2.0], np.float16)
    counts = dict(compare(actual, golden).ulp_histogram)  # 1e6 is infinite as FLOAT16
    assert sum(counts.values()) == golden.size
    assert (counts["<= 0.5"], counts["NaN/Inf equal"], counts["NaN/Inf differ"]) == (1, 3, 4)


def test_tensors_as_training_has_them() -> None:
    torch = pytest.importorskip("torch")
    one = torch.tensor([1.0, 2.0], dtype=torch.bfloat16, requires_grad=True)
    assert compare(one, np.array([1.0, 2.0])).dtype == "BFLOAT16"
    with pytest.raises(TypeError, match=r"compare expects an array .* got list"):
        compare([1.0], [1.0])


def test_dtypes_have_the_names_of_case_lists() -> None:
    one = normal(8).astype(np.float16)
    for name in ("fp16", "half", "float16", "FLOAT16", "ACL_FLOAT16"):
        assert compare(one.astype(np.float32), one, dtype=name).dtype == "FLOAT16"
        assert draw("elu", (4,), name)["self"].dtype == np.float16


@pytest.mark.parametrize("shape", [(), (7,), (2, 3, 4, 5), (0, 3)])
def test_pictures(tmp_path: Path, shape: tuple[int, ...]) -> None:
    from openaclnn.testing.figures import Rules

    pytest.importorskip("matplotlib")
    golden = np.asarray(normal(int(np.prod(shape)))).reshape(shape)
    actual = np.asarray(golden.astype(np.float16))
    if actual.size:
        actual[(0,) * len(shape)] = np.nan
    path = tmp_path / "verdict.png"
    draw_picture(path, compare(actual, golden), actual, golden, Rules())
    assert path.read_bytes()[:4] == b"\x89PNG"


def test_rounding_alone_passes_by_relative_errors() -> None:
    """The spacing of FLOAT16's subnormals is more than the bound: golden values are rounded before."""
    golden = np.random.default_rng(0).uniform(-1e-5, 1e-5, 4096)
    assert compare(golden.astype(np.float16), golden, standard="stat_rel_err")
    assert not compare((golden * 1.05).astype(np.float16), golden, standard="stat_rel_err")
