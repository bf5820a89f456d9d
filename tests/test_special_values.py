"""NaN, Inf, signed zero, ties and strange scalars, as the spec decides them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import openaclnn
import special_activations
import special_products
from conftest import OPERATORS, plain, tensor_names
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import FLOATS, DType
from openaclnn.operators.losses import Loss

nan, inf = np.nan, np.inf
dtypes = pytest.mark.parametrize("dtype", FLOATS, ids=str)
pytestmark = pytest.mark.usefixtures("engine")


def same(got: np.ndarray, expected: list, *, signs: bool = False) -> None:
    values = got.astype(np.float64)
    np.testing.assert_array_equal(values, np.asarray(expected, np.float64))
    if signs:
        finite = ~np.isnan(values)
        np.testing.assert_array_equal(np.signbit(values)[finite], np.signbit(expected)[finite])


@dtypes
def test_elu_special_inputs(dtype: DType) -> None:
    x = np.array([nan, inf, -inf, 0.0, -0.0, 2.0], dtype.numpy)
    g = np.full(6, 3.0, dtype.numpy)
    # NaN is not <= 0: it takes the positive branch and does not propagate.
    same(openaclnn.elu_backward(g, x, scale=2.0), [6, 6, 0, 6, 6, 6])
    same(openaclnn.elu_backward(g, x, scale=2.0, is_result=True), [6, 6, -inf, 6, 6, 6])
    same(
        openaclnn.elu_backward(np.array([nan, inf, -inf, 0.0], dtype.numpy), x[2:]),
        [nan, inf, -inf, 0],
    )
    # -Inf gradient through exp(-Inf) = 0 is NaN.
    same(
        openaclnn.elu_backward(np.array([-inf], dtype.numpy), np.array([-inf], dtype.numpy)), [nan]
    )


@dtypes
def test_elu_special_scalars(dtype: DType) -> None:
    x = np.array([-1.0, 1.0, -0.0], dtype.numpy)
    g = np.array([2.0, 2.0, 2.0], dtype.numpy)
    same(openaclnn.elu_backward(g, x, alpha=0.0), [0, 2, 0])
    same(openaclnn.elu_backward(g, x, alpha=nan), [nan, 2, nan])
    same(openaclnn.elu_backward(g, x, alpha=inf), [inf, 2, inf])
    same(openaclnn.elu_backward(g, x, scale=0.0), [0, 0, 0])
    same(openaclnn.elu_backward(g, x, scale=inf), [inf, inf, inf])
    same(openaclnn.elu_backward(g, x, input_scale=0.0), [0, 2, 0])
    same(openaclnn.elu_backward(g, x, input_scale=-1.0)[1:], [2, -2])
    same(openaclnn.elu_backward(g, x, input_scale=inf), [nan, 2, nan])
    same(openaclnn.elu_backward(g, x, alpha=-0.0, is_result=True), [-2, 2, -0.0])
    same(openaclnn.elu_backward(g, x, alpha=nan, is_result=True), [nan, 2, nan])
    # The scalars are FLOAT: 1e39 is Inf there.
    same(openaclnn.elu_backward(g, x, scale=1e39), [inf, inf, inf])
    same(openaclnn.elu_backward(g, np.array([-1000.0, 1.0, 1.0], dtype.numpy)), [0, 2, 2])


def test_elu_negative_input_scale_overflows_to_infinity() -> None:
    x = np.array([-88.5, -88.7, -89.0, -1e30], np.float32)
    got = openaclnn.elu_backward(np.ones(4, np.float32), x, input_scale=-1.0)
    assert np.isfinite(got[:2]).all()
    same(got[2:], [-inf, -inf])
    exact = -np.exp(-x[:2].astype(np.float64))
    np.testing.assert_array_almost_equal_nulp(got[:2], exact.astype(np.float32), 2)


@dtypes
def test_l1_signs(dtype: DType) -> None:
    x = np.array([nan, 1, inf, -inf, inf, 3, 1, 2], dtype.numpy)
    y = np.array([1, nan, inf, -inf, -inf, 3, 2, 1], dtype.numpy)
    g = np.array([5, 5, 5, 5, 5, -5, 0, 0], dtype.numpy)
    got = openaclnn.l1_loss_backward(g, x, y, reduction="none")
    same(got, [0, 0, 0, 0, 5, -0.0, -0.0, 0], signs=True)
    bad = np.array([nan, inf, -inf], dtype.numpy)
    tie = np.ones(3, dtype.numpy)
    same(openaclnn.l1_loss_backward(bad, tie, tie, reduction="sum"), [nan, nan, nan])
    same(openaclnn.l1_loss_backward(bad, tie + tie, tie, reduction="sum"), [nan, inf, -inf])


@dtypes
def test_smooth_l1_special(dtype: DType) -> None:
    x = np.array([nan, inf, inf, -inf, 0, 1, -1, 0.5], dtype.numpy)
    y = np.array([1, inf, 0, 0, 0, 0, 0, 0], dtype.numpy)
    g = np.full(8, 2.0, dtype.numpy)
    same(
        openaclnn.smooth_l1_loss_backward(g, x, y, reduction="none"), [nan, nan, 2, -2, 0, 2, -2, 1]
    )
    same(
        openaclnn.smooth_l1_loss_backward(g, x, y, reduction="none", beta=0.0),
        [nan, nan, 2, -2, 0, 2, -2, 2],
    )
    same(
        openaclnn.smooth_l1_loss_backward(g, x, y, reduction="none", beta=inf),
        [nan, nan, 2, -2, 0, 0, 0, 0],
    )
    infinite = np.full(2, inf, dtype.numpy)
    zero = np.zeros(2, dtype.numpy)
    same(openaclnn.smooth_l1_loss_backward(infinite, zero, zero, reduction="none"), [nan, nan])


def test_smooth_l1_tiny_beta_divides() -> None:
    x = np.array([3e-8, -2e-7], np.float32)
    got = openaclnn.smooth_l1_loss_backward(
        np.ones(2, np.float32), x, np.zeros(2, np.float32), reduction="none", beta=1e-7
    )
    np.testing.assert_array_almost_equal_nulp(got, np.float32([0.3, -1.0]), 2)


def nll(dtype: DType, **options: object) -> np.ndarray:
    target = np.array([[[0, 2], [1, 2]]])
    arguments = {
        "grad_output": np.array([3.0], dtype.numpy),
        "self": np.zeros((1, 3, 2, 2), dtype.numpy),
        "target": target,
        "weight": np.array([0.5, 1, 2], dtype.numpy),
        "total_weight": np.array([1.5], dtype.numpy),
    } | options
    return openaclnn.nll_loss2d_backward(**arguments)


@dtypes
def test_nll_zero_and_nan_totals(dtype: DType) -> None:
    got = nll(dtype, total_weight=np.array([0.0], dtype.numpy))
    same(got[0, :, 0, 0], [-inf, 0, 0])
    zero = nll(
        dtype, total_weight=np.array([0.0], dtype.numpy), grad_output=np.array([0.0], dtype.numpy)
    )
    same(zero[0, :, 0, 0], [nan, 0, 0])
    # none and sum never look at the total
    unread = nll(dtype, total_weight=np.array([nan], dtype.numpy), reduction="sum")
    same(unread[0, :, 1, 0], [0, -3, 0])


@dtypes
def test_nll_nan_stays_at_its_target(dtype: DType) -> None:
    got = nll(dtype, weight=np.array([nan, inf, 2], dtype.numpy), reduction="sum")
    same(got[0, :, 0, 0], [nan, 0, 0])
    same(got[0, :, 1, 0], [0, -inf, 0])
    same(got[0, :, 0, 1], [0, 0, -6])
    negative = nll(dtype, grad_output=np.array([0.0], dtype.numpy), reduction="sum")
    same(negative[0, :, 0, 0], [-0.0, 0, 0], signs=True)


@dtypes
def test_nll_computed_total_weight(dtype: DType) -> None:
    got = nll(dtype, total_weight=None, ignore_index=2)
    same(got[0, :, 0, 0], [-1, 0, 0])
    same(got[0, :, 0, 1], [0, 0, 0])
    everything_ignored = nll(dtype, target=np.full((1, 2, 2), 7), ignore_index=7, total_weight=None)
    same(everything_ignored, np.zeros((1, 3, 2, 2)))


@pytest.mark.parametrize("ignored", [-100, 2, 7, -1, 2**62, -(2**63)])
@dtypes
def test_nll_any_ignored_value(ignored: int, dtype: DType) -> None:
    target = np.array([[[0, ignored], [1, ignored]]])
    got = nll(dtype, target=target, ignore_index=ignored)
    same(got[0, :, 0, 1], [0, 0, 0])
    same(got[0, :, 0, 0], [-1, 0, 0])


STRAY = [-1, 3, 100, 2**31, -(2**31), 2**63 - 1, -(2**63)]


@pytest.mark.parametrize("stray", STRAY)
@dtypes
def test_nll_stray_target_raises_and_contributes_nothing(stray: int, dtype: DType) -> None:
    target = np.array([[[0, stray], [1, 2]]])
    out = np.full((1, 3, 2, 2), nan, dtype.numpy)
    with pytest.raises(openaclnn.AclnnError) as caught:
        nll(dtype, target=target, out=out)
    assert caught.value.status == 161002
    assert caught.value.parameter == "target"
    assert caught.value.got == f"{stray} at (0, 0, 1)"
    same(out[0, :, 0, 1], [0, 0, 0])
    same(out[0, :, 0, 0], [-1, 0, 0])


def cross_entropy(dtype: DType, **options: object) -> np.ndarray:
    arguments = {
        "grad_loss": np.array(2.0, dtype.numpy),
        "log_prob": np.log(np.array([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]])).astype(dtype.numpy),
        "target": np.array([0, 1]),
    } | options
    return openaclnn.cross_entropy_loss_grad(**arguments)


@dtypes
def test_cross_entropy_all_ignored(dtype: DType) -> None:
    target = np.array([-100, -100])
    assert np.isnan(cross_entropy(dtype, target=target).astype(np.float64)).all()
    same(cross_entropy(dtype, target=target, reduction="sum"), np.zeros((2, 3)))
    gradient = np.ones(2, dtype.numpy)
    same(
        cross_entropy(dtype, target=target, reduction="none", grad_loss=gradient), np.zeros((2, 3))
    )
    zero_weight = np.array([0, 0, 1], np.float32)
    assert np.isnan(cross_entropy(dtype, weight=zero_weight).astype(np.float64)).all()
    cancelling = np.array([1, -1, 1], np.float32)
    assert np.isnan(cross_entropy(dtype, weight=cancelling).astype(np.float64)).all()


@dtypes
def test_cross_entropy_special_log_probabilities(dtype: DType) -> None:
    log_prob = np.array([[0.0, -inf, nan], [-inf, nan, 0.0]], dtype.numpy)
    got = cross_entropy(dtype, log_prob=log_prob, target=np.array([0, -100]), reduction="sum")
    same(got, [[0, 0, nan], [0, nan, 0]])


@dtypes
@pytest.mark.in_turns
def test_cross_entropy_infinite_probabilities(dtype: DType) -> None:
    special_products.check_infinite_probabilities(dtype)
    got = cross_entropy(dtype, log_prob=np.full((2, 3), inf, dtype.numpy), reduction="sum")
    same(got, np.full((2, 3), nan))  # the smoothing's term is infinity times 0 where there is none


@dtypes
def test_cross_entropy_infinite_lse_beside_no_probability(dtype: DType) -> None:
    """exp of minus infinity is 0, also at the target: times infinity it is NaN."""
    arguments = {
        "log_prob": np.array([[-inf, 0.0, 0.0]] * 3, dtype.numpy), "target": np.array([0, 1, -100]),
        "lse_for_zloss": np.full(3, inf, dtype.numpy), "lse_square_scale_for_zloss": 0.5, "reduction": "sum",
    }  # fmt: skip
    for smoothing in (0.0, 0.25):
        got = cross_entropy(dtype, **arguments, label_smoothing=smoothing)
        same(got, [[nan, inf, inf], [nan, inf, inf], [nan, nan, nan]])


@dtypes
def test_cross_entropy_infinite_gradient(dtype: DType) -> None:
    gradient = np.array([inf, 1.0], dtype.numpy)
    got = cross_entropy(dtype, grad_loss=gradient, reduction="none").astype(np.float64)
    exact = openaclnn.find_operator("cross_entropy_loss_grad").oracle(
        gradient, np.log(np.array([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]])).astype(dtype.numpy),
        np.array([0, 1]), reduction="none",
    )  # fmt: skip
    np.testing.assert_array_equal(np.isnan(got), np.isnan(exact))
    assert np.isfinite(got[1]).all()


@pytest.mark.parametrize("stray", STRAY)
@dtypes
def test_cross_entropy_stray_target_is_treated_as_ignored(stray: int, dtype: DType) -> None:
    out = np.full((2, 3), nan, dtype.numpy)
    with pytest.raises(openaclnn.AclnnError) as caught:
        cross_entropy(dtype, target=np.array([0, stray]), out=out)
    assert caught.value.parameter == "target"
    assert caught.value.got == f"{stray} at (1,)"
    ignored = cross_entropy(dtype, target=np.array([0, -100]))
    np.testing.assert_array_equal(out.view(np.uint8), ignored.view(np.uint8))


@pytest.mark.parametrize("ignored", [-100, 0, 1, 5, -(2**63), 2**63 - 1])
def test_cross_entropy_any_ignored_value(ignored: int) -> None:
    got = cross_entropy(FLOATS[0], target=np.array([2, ignored]), ignore_index=ignored)
    same(got[1], [0, 0, 0])
    np.testing.assert_array_almost_equal_nulp(got[0], np.float32([1, 0.5, -1.5]), 2)


def test_float16_overflow_rounds_to_infinity() -> None:
    g = np.array([60000, -60000], np.float16)
    one = np.ones(2, np.float16)
    same(openaclnn.elu_backward(g, one, scale=2.0), [inf, -inf])
    wide = np.zeros(2, np.float32)
    # Two roundings: the FLOAT output holds what FLOAT16 could.
    same(openaclnn.elu_backward(g, one, scale=2.0, out=wide), [inf, -inf])


@dtypes
def test_elu_forward_special_inputs(dtype: DType) -> None:
    x = np.array([nan, inf, -inf, 0.0, -0.0, 2.0], dtype.numpy)
    same(openaclnn.elu(x), [nan, inf, -1, 0, -0.0, 2], signs=True)
    same(openaclnn.elu(x, alpha=-1.5, scale=2.0), [nan, inf, 3, -0.0, 0, 4])
    same(openaclnn.elu(x, input_scale=-1.0), [nan, inf, inf, 0, 0, 2])
    # Without a finite alpha or factor the negative branch is its limit, NaN included, which is not > 0.
    same(openaclnn.elu(x, alpha=inf), [-inf, inf, -inf, -inf, -inf, 2])
    same(openaclnn.elu(x, alpha=nan), [nan, inf, nan, nan, nan, 2])
    same(openaclnn.elu(x, alpha=2.0, input_scale=nan), [-2, inf, -2, -2, -2, 2])
    same(openaclnn.elu(x, scale=0.0), [nan, nan, 0, 0, 0, 0])


@dtypes
def test_elu_forward_keeps_small_values(dtype: DType) -> None:
    x = np.array([-(2.0**-8), -(2.0**-12), -(2.0**-14)], dtype.numpy)
    exact = np.expm1(x.astype(np.float64))
    relative = np.abs(openaclnn.elu(x).astype(np.float64) / exact - 1).max()
    assert relative <= float(ml_dtypes.finfo(dtype.numpy).eps)


def test_elu_of_double_is_computed_in_double() -> None:
    x = np.linspace(-3, 3, 101)
    with openaclnn.use_engine("numpy"):
        got = openaclnn.elu(x, alpha=1.5)
        assert got.dtype == np.float64
        np.testing.assert_allclose(got, np.where(x > 0, x, 1.5 * np.expm1(x)), rtol=1e-15)
        assert openaclnn.inplace_elu(x, alpha=1.5) is x
    np.testing.assert_array_equal(x, got)


@dtypes
def test_losses_of_nothing(dtype: DType) -> None:
    nothing, row = np.zeros((0, 3), dtype.numpy), np.zeros((1, 3), dtype.numpy)
    for loss in (openaclnn.l1_loss, openaclnn.smooth_l1_loss):
        for pair in ((nothing, nothing), (nothing, row), (row, nothing)):
            same(loss(*pair, reduction="mean"), nan)
            same(loss(*pair, reduction="sum"), 0)
            assert loss(*pair, reduction="none").shape == (0, 3)


@dtypes
def test_losses_of_special_values(dtype: DType) -> None:
    x = np.array([nan, inf, -inf, inf, 1.0], dtype.numpy)
    y = np.array([1.0, 1.0, 1.0, inf, 1.0], dtype.numpy)
    for loss in (openaclnn.l1_loss, openaclnn.smooth_l1_loss):
        same(loss(x, y, reduction="none"), [nan, inf, inf, nan, 0], signs=True)
        same(loss(x[1:3], y[1:3]), inf)
        same(loss(x, y), nan)
    same(openaclnn.smooth_l1_loss(x[1:], y[1:], reduction="none", beta=inf), [nan, nan, nan, 0])
    same(openaclnn.smooth_l1_loss(x[4:], y[4:], reduction="none", beta=0.0), [0])


def test_a_smooth_loss_neither_overflows_nor_vanishes_between() -> None:
    x, zero = np.array([1e30, 1e-30], np.float32), np.zeros(2, np.float32)
    got = openaclnn.smooth_l1_loss(x[:1], zero[:1], reduction="none", beta=1e31)
    np.testing.assert_allclose(got, [5e28], rtol=1e-6)
    got = openaclnn.smooth_l1_loss(x[1:], zero[1:], reduction="none", beta=2e-30)
    np.testing.assert_allclose(got, [2.5e-31], rtol=1e-6)


def test_integers_have_an_absolute_error_of_integers() -> None:
    x, y = np.array([1 << 60, -5, 7]), np.array([(1 << 60) - 1, 5, 7])
    with openaclnn.use_engine("numpy"):
        assert openaclnn.l1_loss(x, y, reduction="none").tolist() == [1, 10, 0]
        total = np.zeros((), np.int64)
        assert openaclnn.l1_loss(x, y, reduction="sum", out=total) is total
        assert total == 11
        assert openaclnn.l1_loss(x[1:], y[1:].astype(np.int32), reduction="sum") == 10
        assert openaclnn.l1_loss(x[1:], np.float32([5, 8])) == 5.5


def test_sums_have_one_order_whatever_the_threads() -> None:
    rng = np.random.default_rng(71)
    x, y = rng.normal(size=(2, 700_001)).astype(np.float32)
    wide = rng.normal(size=(300, 2001)).astype(np.float32)
    before = openaclnn.get_num_threads()
    seen = set()
    try:
        for threads in (1, 2, 3, 5):
            openaclnn.set_num_threads(threads)
            for _ in range(3):
                losses = (
                    openaclnn.l1_loss(x, y, reduction="sum"),
                    openaclnn.smooth_l1_loss(x, y),
                    openaclnn.l1_loss(wide[:, ::2], wide[:, 1::2].mean(dtype=np.float32)),
                )
                seen.add(b"".join(loss.tobytes() for loss in losses))
    finally:
        openaclnn.set_num_threads(before)
    assert len(seen) == 1


@pytest.mark.parametrize("name", special_products.CASES)
@pytest.mark.in_turns
def test_products_meet_no_zero_times_infinity_of_their_own(name: str, engine: str) -> None:
    for dtype in FLOATS if name in ("smooth_l1_loss_backward", "l1_loss_backward") else FLOATS[:1]:
        assert special_products.check(name, dtype) > 2


@pytest.mark.parametrize(
    "place", range(len(special_activations.CASES)), ids=special_activations.IDS
)
def test_activations(place: int) -> None:
    for dtype in FLOATS:
        special_activations.check(place, dtype)


def activations() -> list[Operator]:
    """Those of elements; losses are products of more numbers, some of which leave FLOAT's range."""
    elementwise = [
        op for op in OPERATORS if op.workloads.PATTERN == "elementwise" and op.axis is None
    ]
    return [op for op in elementwise if not isinstance(op, Loss)]


EXTREMES = np.float32([0.0, 1, 1e-45, 1e-30, 1e30, 1e38, inf, nan])


@pytest.mark.parametrize("operator", activations(), ids=lambda op: op.python_name)
def test_no_step_leaves_the_range_of_float(operator: Operator) -> None:
    """Where the result is a number, infinite or NaN, so it is in float64."""
    names = tensor_names(operator)
    grid = np.meshgrid(*[np.concatenate([EXTREMES, -EXTREMES])] * len(names))
    for options in operator.workloads.VARIANTS.values():
        arrays = {name: values.ravel() for name, values in zip(names, grid, strict=True)}
        with np.errstate(all="ignore"):
            exact = operator.oracle(**arrays, **options).astype(np.float32)
        got = plain(operator)(**{name: array.copy() for name, array in arrays.items()}, **options)
        np.testing.assert_allclose(got, exact, rtol=1e-5, atol=1e-37, err_msg=str(options))


def test_nan_that_is_made_has_one_sign(engine: str) -> None:
    """However inputs lie, and whichever sign arithmetic gives it: no row counts, so that a mean divides by 0."""
    for rows, classes in ((4, 3), (5, 17), (3, 100)):
        loss, ignored = np.zeros(1, np.float32), np.full(rows, -100)
        bits = set()
        for shape, turned in (((rows, classes), False), ((classes, rows), True)):
            log_prob = np.full(shape, -0.1, np.float32)
            log_prob[::2, 1:] = -0.0
            x = log_prob.T if turned else log_prob
            got = openaclnn.cross_entropy_loss_grad(loss, x, ignored, label_smoothing=0.1)
            bits |= {*got.view(np.uint32).ravel().tolist()}
        assert len(bits) == 1, [hex(each) for each in bits]
