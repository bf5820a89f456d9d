"""Integers, booleans, complex and mixed dtypes of the operators that take them, and what products differ in: results written from the documents by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import openaclnn
from openaclnn import AclnnError

inf, nan = math.inf, math.nan
X = np.float32([-4, -1, 0.5, 3])
OF_950 = ("default", "950")


def same(got: Any, expected: Any, dtype: Any) -> None:
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, np.asarray(expected, dtype))


def refused(call: Any, *words: str) -> None:
    with pytest.raises(AclnnError, match=r"161002") as told:
        call()
    assert all(word in str(told.value) for word in words), told.value


def test_an_integer_has_a_floating_result_where_the_output_has_no_integers() -> None:
    for kind in (np.int8, np.uint8, np.int16, np.int32, np.int64, bool):
        same(openaclnn.sigmoid(np.array([0], kind)), [0.5], np.float32)
        same(openaclnn.erfinv(np.array([0, 1], kind)), [0, inf], np.float32)
    same(openaclnn.sigmoid(np.int8([0]), out=np.empty(1, np.float16)), [0.5], np.float16)


def test_complex_results_are_not_written_as_real_ones() -> None:
    z = X.astype(np.complex64)
    refused(lambda: openaclnn.sigmoid(z, out=np.empty(4, np.float32)), "out", "COMPLEX64")
    refused(lambda: openaclnn.sigmoid_backward(z, z, out=np.empty(4, np.float32)), "gradInput", "COMPLEX64")  # fmt: skip


@pytest.mark.parametrize(
    ("values", "expected", "dtype"),
    [
        ([-3, -1, 1, 100], [-1, -1, 1, 105], np.int32),
        ([-128, -3, 100, 125, 127], [-1, -1, 105, 127, 127], np.int8),
    ],
)
def test_selu_of_integers_is_cut_off_and_saturates(values: Any, expected: Any, dtype: Any) -> None:
    same(openaclnn.selu(np.array(values, dtype)), expected, dtype)
    exact = openaclnn.testing.golden("selu", self=np.array(values, dtype)).target
    same(exact, expected, dtype)


def test_integers_of_floating_numbers_saturate() -> None:
    x, out = np.float32([-3, 127, 1e10, inf, nan]), np.empty(5, np.int8)
    same(openaclnn.selu(x, out=out), [-1, 127, 127, 127, 0], np.int8)
    out = np.empty(5, np.int32)
    same(openaclnn.selu(x, out=out), [-1, 133, 2**31 - 1, 2**31 - 1, 0], np.int32)


def test_gradients_of_selu_are_the_nearest_integers() -> None:
    g, y = np.int8([2, 3, 127, -128, 1]), np.int8([-1, 1, 1, 1, 0])
    expected = [2, 3, 127, -128, 2]  # 1.516, 3.152, 133.4, -134.5, 1.758
    same(openaclnn.selu_backward(g, y), expected, np.int8)
    same(openaclnn.testing.golden("selu_backward", grad_output=g, result=y).target, expected, np.int8)  # fmt: skip


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"threshold": 2.7, "value": 9.9}, [9, 9, 3, 16777217]),
        ({"threshold": 16777217, "value": 33554433}, [33554433] * 4),
        ({"threshold": nan, "value": 5}, [1, 2, 3, 16777217]),
        ({"threshold": inf, "value": -inf}, [-(2**31)] * 4),
        ({"threshold": 1e30, "value": 2}, [2] * 4),
    ],
)
def test_thresholds_are_integers_beside_integers(options: Any, expected: Any) -> None:
    x = np.int32([1, 2, 3, 16777217])
    same(openaclnn.threshold(x, **options), expected, np.int32)
    same(openaclnn.testing.golden("threshold", self=x, **options).target, expected, np.int32)


@pytest.mark.parametrize(
    ("threshold", "held"), [(-1, 255), (2, 2), (300, 44), (-300, 212), (-(2**62) - 1, 255)]
)
def test_thresholds_wrap_whatever_the_dtype_of_the_scalar(threshold: int, held: int) -> None:
    x, g = np.uint8([0, 3, 44, 45, 212, 255]), np.uint8([1, 2, 3, 4, 5, 6])
    scalars = [threshold, np.int64(threshold)]
    scalars += [float(threshold), np.float32(threshold)] if abs(threshold) < 2**53 else []
    for scalar in scalars:
        expected = np.where(x <= held, np.uint8(held), x)
        same(openaclnn.threshold(x, threshold=scalar, value=scalar), expected, np.uint8)
        expected = np.where(x <= held, np.uint8(0), g)
        same(openaclnn.threshold_backward(g, x, threshold=scalar), expected, np.uint8)


def test_thresholds_beside_16_bits_are_rounded() -> None:
    x = np.float16([0.1])  # FLOAT's 0.1 is more than FLOAT16's
    same(openaclnn.threshold(x, threshold=0.1, value=1e30), [inf], np.float16)
    same(openaclnn.threshold_backward(np.int32([7]), np.int32([1]), threshold=inf), [0], np.int32)


@pytest.mark.parametrize("product", ["default", "950", "a2", "910"])
def test_threshold_backward_takes_int64_on_950_alone_with_0(product: str) -> None:
    g, x = np.int64([3, 4]), np.int64([-1, 2])
    with openaclnn.use_product(product):
        if product in OF_950:
            same(openaclnn.threshold_backward(g, x), [0, 4], np.int64)
        else:
            refused(lambda: openaclnn.threshold_backward(g, x), "gradOutput", "INT64", product)
        refused(lambda: openaclnn.threshold_backward(g, x, threshold=1), "gradOutput", "INT64")


def test_threshold_is_written_as_integers_on_950() -> None:
    out = np.empty(4, np.int32)
    refused(lambda: openaclnn.threshold(X, out=out), "out", "INT32")
    same(openaclnn.threshold(X, out=out, product="950"), [0, 0, 0, 3], np.int32)


@pytest.mark.parametrize("product", ["default", "950", "a3", "910"])
def test_gradients_of_silu_mix_on_950(product: str) -> None:
    s = 1 / (1 + np.exp(-X.astype(float)))
    expected = (X * s * (1 + X * (1 - s))).astype(np.float32)
    with openaclnn.use_product(product):
        if product in OF_950:
            got = openaclnn.silu_backward(X, X.astype(np.float16))
            np.testing.assert_allclose(got, expected, rtol=1e-6)
            got = openaclnn.silu_backward(X[3:], X)
            np.testing.assert_allclose(got, X[3] * expected / X, rtol=1e-6)
            narrow = np.empty(4, np.float16)
            refused(lambda: openaclnn.silu_backward(X, X.astype(np.float16), out=narrow), "gradInput", "FLOAT")  # fmt: skip
        else:
            refused(lambda: openaclnn.silu_backward(X, X.astype(np.float16)), "self", "FLOAT16")
            refused(lambda: openaclnn.silu_backward(X[3:], X), "self", "(4,)")


def test_gradients_of_soft_shrinking_are_float_where_inputs_differ() -> None:
    x = X.astype(np.float16)
    same(openaclnn.softshrink_backward(X, x), [-4, -1, 0, 3], np.float32)
    for g, kind in ((X, np.float16), (x, np.float32)):
        out = np.empty(4, kind)
        refused(lambda g=g, out=out: openaclnn.softshrink_backward(g, x, out=out), "gradInput")


def test_gradients_of_hard_shrinking_do_not_compare_what_is_empty() -> None:
    nothing, out = np.empty((0, 3), np.float32), np.float32([7, 8])
    same(openaclnn.hardshrink_backward(nothing, X, out=out), [7, 8], np.float32)
    assert openaclnn.hardshrink_backward(nothing, X).shape == (0, 3)
    refused(lambda: openaclnn.hardshrink_backward(X, X[:3]), "self", "(3,)")


@pytest.mark.parametrize(
    ("dtype", "x", "y", "alpha", "expected"),
    [
        (np.int8, [100, 2, -9], [100, 4, 3], 1, [0, 6, 0]),
        (np.int8, [1, 1, 1], [3, 1, 1], 2**40 + 2, [7, 3, 3]),
        (np.uint8, [200, 2, 0], [100, 4, 1], 1, [44, 6, 1]),
        (np.int32, [2**31 - 1, 16777217, 0], [1, 0, 2**30], 1, [0, 16777217, 2**30]),
        (np.int32, [0, 0, 5], [2**31 - 1, 1, 3], 16777217, [0, 16777216, 50331653]),
        (np.int64, [1, 2**62, 0], [1, 2**62, -1], 2**40 + 1, [2**40 + 2, 0, 0]),
    ],
)
def test_sums_of_integers_wrap(dtype: Any, x: Any, y: Any, alpha: int, expected: Any) -> None:
    x, y = np.array(x, dtype), np.array(y, dtype)
    same(openaclnn.add_relu(x, y, alpha=alpha), expected, dtype)
    same(openaclnn.testing.golden("add_relu", self=x, other=y, alpha=alpha).target, expected, dtype)


def test_beside_integers_a_factor_is_one() -> None:
    x = np.int32([1, 2])
    for alpha in (2.5, 2.0, nan, np.float32(1)):
        refused(lambda alpha=alpha: openaclnn.add_relu(x, x, alpha=alpha), "alpha", "INT32")
    same(openaclnn.add_relu(x, x, alpha=True), [2, 4], np.int32)
    same(openaclnn.add_relu(x, x.astype(np.float32), alpha=2.5), [3.5, 7], np.float32)


def test_pytorch_takes_a_whole_factor_beside_integers() -> None:
    torch: Any = pytest.importorskip("torch")
    import openaclnn.torch  # noqa: F401

    add_relu, x = torch.ops.openaclnn.add_relu, torch.tensor([1, -5], dtype=torch.int8)
    assert add_relu(x, x, alpha=2).tolist() == [3, 0]
    assert add_relu(x.float(), x.float(), alpha=2.5).tolist() == [3.5, 0]
    compiled = torch.compile(add_relu, backend="aot_eager")
    for alpha in (1.5, 2.5, 3.5):  # PyTorch makes a symbol of what changes
        assert compiled(x.float(), x.float(), alpha=alpha).tolist() == [1 + alpha, 0]


def test_case_lists_have_thresholds_as_tensors(tmp_path: Any) -> None:
    from openaclnn.testing import read_cases, run_cases

    path = tmp_path / "threshold_v2.csv"
    path.write_text(
        "op_name,input_shapes,input_dtypes,input_data_ranges\n"
        'threshold_v2,"((4, 5), (1,), ())","(\'float16\',)","((-5, 5), (0.5, 0.5), (9, 9))"\n'
        'threshold_v2,"((4, 5), (1,))","(\'int32\',)","((-5, 5), (-1, 1))"\n'
    )
    results = [*run_cases(read_cases(path))]
    assert len(results) == 2
    assert all(result.ok for result in results), [result.why for result in results]
