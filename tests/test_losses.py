"""What the forward operators have beside the others: several outputs, losses of one element, reductions, work in place."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch

import openaclnn
import special_products
from conftest import (
    OPERATORS,
    assert_matches_oracle,
    assert_near_oracle,
    assert_same_bits,
    each,
    outliers,
    places_for,
    plain,
    reduced,
)
from openaclnn import acl, aclnn
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import FLOATS, DType
from openaclnn.core.interface import Kind
from openaclnn.core.products import PRODUCTS
from test_interop import to_torch
from workloads import cases_to_compile

SEVERAL = [operator for operator in OPERATORS if operator.result_type is not None]
several = pytest.mark.parametrize("operator", SEVERAL, ids=lambda op: op.python_name)
names = pytest.mark.parametrize("operator", OPERATORS, ids=lambda op: op.python_name)
dtypes = pytest.mark.parametrize("dtype", FLOATS, ids=str)


def through_phases(operator: Operator, arguments: dict[str, Any], outputs: list[Any]) -> int:
    """Both phases with these outputs; the first status that is not 0."""
    places, values = iter(outputs), []
    for parameter in operator.parameters:
        value = arguments.get(parameter.python_name, parameter.default)
        if parameter.kind is Kind.OUTPUT:
            value = next(places)
        elif parameter.kind is Kind.INT64 and isinstance(value, str):
            value = parameter.choices.index(value)
        values.append(value)
    status, size, executor = getattr(aclnn, f"{operator.name}GetWorkspaceSize")(*values)
    status = status or getattr(aclnn, operator.name)(None, size, executor, None)
    return int(status or acl.aclrtSynchronizeStream(None))


@names
@dtypes
@pytest.mark.in_turns
def test_repeated_calls_have_the_same_bits_by_every_way(operator: Operator, dtype: DType) -> None:
    """No engine is named: a repeated call takes the fast path where the operator has one."""
    known: dict[int, Any] = {}
    for _ in range(2):
        cases = cases_to_compile(operator, np.random.default_rng(3), dtype)
        for number, arguments in enumerate(cases):
            first = plain(operator)(**arguments)
            if number not in known:
                assert_matches_oracle(operator, arguments, first)
            assert_same_bits(first, known.setdefault(number, first))
            for _ in range(2):
                assert_same_bits(plain(operator)(**arguments), first)
            tensors = {name: to_torch(value) for name, value in arguments.items()}
            theirs = each(plain(operator)(**tensors))
            for tensor, other in zip(theirs, each(first), strict=True):
                np.testing.assert_array_equal(tensor.double().numpy(), other.astype(np.float64))


@several
@dtypes
@pytest.mark.in_turns
def test_both_phases_write_all_that_is_computed(operator: Operator, dtype: DType) -> None:
    for arguments in cases_to_compile(operator, np.random.default_rng(5), dtype):
        expected = plain(operator)(**arguments)
        for _ in range(2):
            outputs = list(places_for(operator, arguments))
            assert through_phases(operator, arguments, outputs) == 0
            for output, known in zip(outputs, expected, strict=True):
                if known is None:
                    assert np.isnan(output.astype(np.float32)).all()
                else:
                    assert output.tobytes() == known.tobytes()


@several
def test_results_are_named_and_pickle(operator: Operator) -> None:
    arguments = operator.samples[0].arrays()
    results = plain(operator)(**arguments)
    assert type(results) is operator.result_type
    assert type(results) is getattr(openaclnn, type(results).__name__)
    assert results._fields == tuple(parameter.field for parameter in operator.outputs)
    again = pickle.loads(pickle.dumps(results))
    assert type(again) is type(results)
    assert_same_bits(again, results)
    assert all(field in plain(operator).__doc__ for field in results._fields)


@several
def test_some_outputs_may_be_given(operator: Operator) -> None:
    arguments = operator.samples[0].arrays()
    expected = plain(operator)(**arguments)
    outputs = list(places_for(operator, arguments))
    for number in range(len(outputs)):
        out = [None] * len(outputs)
        out[number] = outputs[number]
        for form in (tuple(out), out):
            results = plain(operator)(**arguments, out=form)
            assert results[number] is outputs[number]
            for result, known in zip(results, expected, strict=True):
                if known is not None:
                    assert result.tobytes() == known.tobytes()


@several
def test_outputs_that_do_not_fit_are_refused(operator: Operator) -> None:
    arguments = operator.samples[0].arrays()
    outputs = list(places_for(operator, arguments))
    for wrong in (outputs[0], outputs[:1], (*outputs, None), 3, "out"):
        with pytest.raises(openaclnn.AclnnError, match="out") as caught:
            plain(operator)(**arguments, out=wrong)
        assert caught.value.parameter == "out"
        assert caught.value.status == 161002
    for number, parameter in enumerate(operator.outputs):
        place = outputs[number]
        other = np.int32 if place.dtype.kind == "f" else np.float32
        for wrong in (np.zeros((7, 7, 7), place.dtype), np.zeros(place.shape, other)):
            out = [None] * len(outputs)
            out[number] = wrong
            with pytest.raises(openaclnn.AclnnError) as caught:
                plain(operator)(**arguments, out=out)
            assert caught.value.parameter == parameter.name
    frozen = outputs[0].copy()
    frozen.flags.writeable = False
    with pytest.raises(openaclnn.AclnnError, match="writable"):
        plain(operator)(**arguments, out=(frozen, *[None] * (len(outputs) - 1)))


def test_outputs_over_each_other_or_over_an_input_are_refused() -> None:
    x = np.zeros((3, 4), np.float32)
    target, weight = np.array([0, 1, 2]), np.ones(4, np.float32)
    one = np.zeros(1, np.float32)
    for out in ((one, one), (x[0, :1], one), (one, weight[2:3])):
        with pytest.raises(openaclnn.AclnnError, match="overlap"):
            openaclnn.nll_loss(x, target, weight, out=out)
    with pytest.raises(openaclnn.AclnnError, match="overlap"):
        openaclnn.cross_entropy_loss(x, target, out=(None, x, None, None))
    operator = openaclnn.find_operator("nll_loss")
    arguments = {"self": x, "target": target, "weight": weight}
    assert through_phases(operator, arguments, [one, one]) == 161002
    assert "totalWeightOut" in aclnn.aclGetRecentErrMsg()


def test_targets_out_of_range() -> None:
    x, weight = np.full((3, 4), -1.0, np.float32), np.ones(4, np.float32)
    for loss in (
        lambda target: openaclnn.nll_loss(x, target, weight),
        lambda target: openaclnn.cross_entropy_loss(x, target),
        lambda target: openaclnn.nll_loss_backward(np.float32([1]), x, target, weight),
    ):
        with pytest.raises(openaclnn.AclnnError, match=r"77 at \(1,\)"):
            loss(np.array([0, 77, 2]))
    out, total = np.zeros(3, np.float32), np.zeros(1, np.float32)
    operator = openaclnn.find_operator("nll_loss")
    arguments = {"self": x, "target": np.array([0, -5, 2]), "weight": weight, "reduction": "none"}
    assert through_phases(operator, arguments, [out, total]) == 0
    assert (out.tolist(), total.tolist()) == ([1, 0, 1], [2])


@dtypes
def test_nothing_counts(dtype: DType) -> None:
    """A mean over nothing is 0 / 0; sums are 0."""
    x, target = np.ones((3, 4), dtype.numpy), np.full(3, -100)
    weight = np.ones(4, dtype.numpy)
    for reduction, expected in (("mean", np.nan), ("sum", 0.0), ("none", [0.0] * 3)):
        result = openaclnn.nll_loss(x, target, weight, reduction=reduction)
        np.testing.assert_array_equal(result.out.astype(np.float32), expected)
        assert result.total_weight == 0
        result = openaclnn.cross_entropy_loss(x, target, reduction=reduction)
        np.testing.assert_array_equal(result.loss.astype(np.float32), expected)
        assert np.isfinite(result.log_prob.astype(np.float32)).all()
        for empty in (x[:0], target[:0]), (x[:0].reshape(0, 4), target[:0]):
            none = openaclnn.nll_loss(*empty, weight, reduction=reduction)
            expected_of_none = [] if reduction == "none" else expected
            np.testing.assert_array_equal(none.out.astype(np.float32), expected_of_none)
            assert none.total_weight == 0
            loss = openaclnn.cross_entropy_loss(*empty, reduction=reduction).loss
            np.testing.assert_array_equal(loss.astype(np.float32), expected_of_none)


@pytest.mark.parametrize("product", ["default", "950"])
def test_one_row_that_does_not_count(engine: str, product: str) -> None:
    """Every profile has the formula's values: a 950's own arithmetic gives 0 for the mean, too."""
    operator = openaclnn.find_operator("nll_loss")
    x, weight = np.float32([-0.75, -1.5]), np.float32([1, 0.1])
    for reduction, expected in (("mean", np.nan), ("sum", 0.0), ("none", 0.0)):
        arguments = {"self": x, "target": np.int64(-100), "weight": weight, "reduction": reduction}
        for result in (
            openaclnn.nll_loss(**arguments, product=product),
            operator.oracle(**arguments, product=product),
        ):
            np.testing.assert_array_equal(result.out, expected)
            assert result.total_weight == 0


def test_pixels_without_classes_have_no_loss() -> None:
    x, target = np.zeros((1, 0, 2, 2), np.float32), np.zeros((1, 2, 2), np.int64)
    result = openaclnn.nll_loss2d(x, target, np.zeros(0, np.float32), reduction="none")
    np.testing.assert_array_equal(result.out, np.zeros((1, 2, 2)))
    assert result.total_weight == 0
    out, total = np.full((1, 2, 2), 7, np.float32), np.float32([7])
    operator = openaclnn.find_operator("nll_loss2d")
    arguments = {
        "self": x,
        "target": target,
        "weight": np.zeros(0, np.float32),
        "reduction": "none",
    }
    assert through_phases(operator, arguments, [out, total]) == 0
    assert total == 0
    assert (out == 7).all()


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_what_no_rows_do_not_compute_is_none(reduction: str) -> None:
    for rows in (2, 0):
        x, target = np.zeros((rows, 3), np.float32), np.zeros(rows, np.int64)
        results = openaclnn.cross_entropy_loss(x, target, reduction=reduction)
        assert [output is None for output in results] == [False, False, True, True]
        results = openaclnn.cross_entropy_loss(x, target, reduction=reduction, return_zloss=True)
        assert all(output is not None for output in results)
        assert results.lse_for_zloss.shape == (rows,)
        zloss = np.zeros(rows if reduction == "none" else (), np.float32)
        out = (None, None, zloss, None)
        results = openaclnn.cross_entropy_loss(x, target, reduction=reduction, out=out)
        assert results.zloss is zloss
        assert results.lse_for_zloss is None


def test_confident_predictions_keep_their_digits() -> None:
    logits = np.float32([[0, -30], [0, -80], [25, 0]])
    result = openaclnn.cross_entropy_loss(logits, np.array([0, 0, 0]), reduction="none")
    exact = np.log1p(np.exp(-np.float64([30, 80, 25])))
    np.testing.assert_allclose(result.loss, exact, rtol=2e-7)
    np.testing.assert_allclose(result.log_prob[:, 0], -exact, rtol=2e-7)


def test_confident_predictions_are_as_exact_as_the_page_says(engine_of_any_width: str) -> None:
    """Two far classes; on the CPU engine their distance is rounded to FLOAT before exp."""
    rng = np.random.default_rng(11)
    x = rng.uniform([20, -60], [26, -20], (20_000, 2)).astype(np.float32)
    x[0] = 32.167526, -32.991802
    exact = np.log1p(np.exp(np.diff(x.astype(np.float64))[:, 0]))
    result = openaclnn.cross_entropy_loss(x, np.zeros(len(x), np.int64), reduction="none")
    off = np.abs(result.loss - exact) / np.spacing(exact.astype(np.float32))
    assert off.max() <= {"cpu": 66, "numpy": 0.501}[engine_of_any_width]


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_gradient_of_cross_entropy_is_that_of_its_loss(reduction: str) -> None:
    rng = np.random.default_rng(7)
    x, target = rng.normal(size=(5, 6)), rng.integers(0, 6, 5)
    target[2] = 1
    options: dict[str, Any] = {
        "weight": (0.5 + rng.random(6)).astype(np.float32), "reduction": reduction, "ignore_index": 1,
        "label_smoothing": 0.25, "lse_square_scale_for_zloss": 0.125,
    }  # fmt: skip
    operator = openaclnn.find_operator("cross_entropy_loss")

    def loss(logits: Any) -> float:
        return float(operator.reference(logits, target, **options)[0])

    _, log_prob, _, lse = operator.reference(x, target, **options, return_zloss=True)
    gradient = openaclnn.find_operator("cross_entropy_loss_grad").reference(
        np.float64(1), log_prob, target, **options, lse_for_zloss=lse
    )
    step = 1e-6
    for place in np.ndindex(x.shape):
        moved = np.zeros_like(x)
        moved[place] = step
        slope = (loss(x + moved) - loss(x - moved)) / (2 * step)
        assert abs(slope - gradient[place]) < 1e-8


def test_only_the_default_profile_has_a_z_loss() -> None:
    x, target = np.zeros((2, 3), np.float32), np.array([0, 1])
    options = {"return_zloss": True, "lse_square_scale_for_zloss": 0.5}
    plain_loss = openaclnn.cross_entropy_loss(x, target).loss
    operator = openaclnn.find_operator("cross_entropy_loss")
    for product in (product for product in PRODUCTS if operator.supported_on(product)):
        result = openaclnn.cross_entropy_loss(x, target, **options, product=product.tag)
        assert (result.zloss is None) == (not product.is_default)
        assert (result.loss == plain_loss) == (not product.is_default)


def test_in_place_work() -> None:
    x = np.float32([[-1, 2], [0, -3]])
    expected = openaclnn.elu(x, alpha=2.0)
    for array in (x.copy(), x.copy().T, np.repeat(x, 2, 1)[:, ::2]):
        known = expected.T if array.strides == x.T.strides else expected
        assert openaclnn.inplace_elu(array, alpha=2.0) is array
        np.testing.assert_array_equal(array, known)
    tensor = torch.tensor(x)
    version = tensor._version
    assert openaclnn.inplace_elu(tensor, alpha=2.0) is tensor
    assert tensor._version > version
    np.testing.assert_array_equal(tensor.numpy(), expected)
    leaf = torch.ones(3, requires_grad=True)
    frozen = np.ones(3, np.float32)
    frozen.flags.writeable = False
    for wrong in (leaf, frozen, np.broadcast_to(np.float32(1), (3,)), np.float32(1), 1.0, [1.0]):
        with pytest.raises(openaclnn.AclnnError) as caught:
            openaclnn.inplace_elu(wrong)
        assert caught.value.parameter == "selfRef"


def test_a_repeatable_executor_with_several_outputs() -> None:
    x, target = np.float32([[0, 1], [2, 0]]), np.array([0, 0])
    loss, log_prob, zloss, lse = (np.zeros(n, np.float32) for n in (1, 4, 1, 2))
    status, size, executor = aclnn.aclnnCrossEntropyLossGetWorkspaceSize(
        x, target, None, "sum", -100, 0.0, 0.5, True, loss, log_prob.reshape(2, 2), zloss, lse
    )
    assert (status, size) == (0, 0)
    assert aclnn.aclSetAclOpExecutorRepeatable(executor) == 0
    for _ in range(2):
        assert aclnn.aclnnCrossEntropyLoss(None, 0, executor, None) == 0
        assert acl.aclrtSynchronizeStream(None) == 0
        expected = openaclnn.cross_entropy_loss(
            x, target, reduction="sum", lse_square_scale_for_zloss=0.5, return_zloss=True
        )
        for output, known in zip((loss, log_prob, zloss, lse), expected, strict=True):
            np.testing.assert_array_equal(output, known.reshape(-1))
        x += 1
    assert aclnn.aclDestroyAclOpExecutor(executor) == 0


@dtypes
@pytest.mark.parametrize("count", [1, 4096, 4097, 28_672, 30_000, 32_768, 32_769, 70_001])
def test_sums_have_one_order_whatever_the_size(dtype: DType, count: int) -> None:
    """Blocks of 4096 elements in 16 sums, then block after block as NumPy adds up."""
    rng = np.random.default_rng(4)
    x, y = (rng.standard_normal(count).astype(dtype.numpy) for _ in range(2))
    x32, y32 = x.astype(np.float32), y.astype(np.float32)
    elements = np.zeros(-(-count // 4096) * 4096)
    elements[:count] = openaclnn.smooth_l1_loss(x32, y32, reduction="none")
    sums = elements.reshape(-1, 256, 16).sum(axis=1)
    while sums.shape[1] > 1:
        half = sums.shape[1] // 2
        sums = sums[:, :half] + sums[:, half:]
    total = sums[:, 0].sum()
    for reduction, exact in (("sum", total), ("mean", total / count)):
        with openaclnn.use_engine("cpu"):
            actual = openaclnn.smooth_l1_loss(x, y, reduction=reduction)
        assert_same_bits(np.asarray(actual), np.float32(exact).astype(dtype.numpy)[()])


@dtypes
def test_likelihoods_have_one_order_whatever_the_threads(dtype: DType) -> None:
    rng = np.random.default_rng(9)
    x = rng.normal(size=(2, 5, 100, 201)).astype(dtype.numpy)
    target = rng.integers(0, 5, (2, 100, 201))
    weight = (0.5 + rng.random(5)).astype(dtype.numpy)
    before = openaclnn.get_num_threads()
    seen = set()
    try:
        for threads in (1, 2, 3, 5):
            openaclnn.set_num_threads(threads)
            for images in (x, x.transpose(0, 1, 3, 2).copy().transpose(0, 1, 3, 2)):
                losses = openaclnn.nll_loss2d(images, target, weight)
                assert_matches_oracle(
                    openaclnn.find_operator("nll_loss2d"),
                    {"self": images, "target": target, "weight": weight},
                    losses,
                )
                seen.add((images is x, b"".join(loss.tobytes() for loss in losses)))
    finally:
        openaclnn.set_num_threads(before)
    assert len(seen) == 2


@dtypes
@pytest.mark.in_turns
def test_logits_that_are_no_numbers(engine_of_any_width: str, dtype: DType) -> None:
    """NaN and infinities, in rows of one chunk and of several."""
    operator = openaclnn.find_operator("cross_entropy_loss")
    nan, inf = np.nan, np.inf
    rows = np.float32(
        [
            [nan, 0, 1], [0, 1, nan], [inf, 0, 1], [0, inf, inf], [-inf, 0, 1], [-inf, -inf, 0],
            [-inf, -inf, -inf], [nan, inf, -inf], [3e4, 0, -3e4],
        ]
    ).astype(dtype.numpy)  # fmt: skip
    for wide in (1, 1500):
        # A row of which each number is there once but for the last.
        x = np.concatenate([rows, np.repeat(rows[:, 2:], wide, axis=1)], axis=1)
        for place in range(3):
            arguments = {
                "input": x, "target": np.full(len(x), place), "reduction": "none", "return_zloss": True,
                "lse_square_scale_for_zloss": 0.5,
            }  # fmt: skip
            results, exact = (
                getattr(openaclnn, operator.python_name)(**arguments),
                operator.oracle(**arguments),
            )
            for output, known in zip(results, exact, strict=True):
                with np.errstate(all="ignore"):
                    rounded = known.astype(np.float32).astype(dtype.numpy).astype(np.float64)
                np.testing.assert_allclose(output.astype(np.float64), rounded, rtol=2e-2)


@pytest.mark.parametrize("classes", [300, 9000])
@pytest.mark.parametrize("tied", [0, 1])
def test_small_losses_of_long_rows_have_all_digits(
    engine_of_any_width: str, classes: int, tied: int
) -> None:
    """Where one class has nearly all of the sum, the others are added up without it: the engine `cpu` subtracts it, or adds up once more."""
    generator = np.random.default_rng(3)
    margins = np.linspace(0, 60, 61)
    x = -generator.exponential(4, (len(margins), classes)) - margins[:, None]
    top = generator.integers(classes - tied, size=len(margins))
    x[np.arange(len(x)), top] = 0
    x[np.arange(len(x)), top + tied] = 0
    x = np.float32(x + generator.normal(0, 30, (len(x), 1)))
    arguments = {"input": x, "target": top, "reduction": "none"}
    losses = openaclnn.cross_entropy_loss(**arguments)
    exact = openaclnn.find_operator("cross_entropy_loss").oracle(**arguments)
    for got, known in zip(losses, exact, strict=False):
        if got is not None:
            assert (np.abs(got - known) <= 2 * np.spacing(np.abs(np.float32(known)))).all()


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_an_infinite_smoothed_loss_is_infinite(engine: str, reduction: str) -> None:
    """A z-loss that has no factor is nothing beside it."""
    arguments = {
        "input": np.float32([[0, -np.inf]]), "target": np.array([0]), "reduction": reduction,
        "label_smoothing": 0.1,
    }  # fmt: skip
    result = openaclnn.cross_entropy_loss(**arguments, return_zloss=True)
    assert result.loss == np.inf
    assert result.zloss == 0
    assert openaclnn.cross_entropy_loss(**arguments).loss == np.inf


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_a_z_loss_without_a_factor_is_nothing(engine: str, reduction: str) -> None:
    """Nothing times an infinite log-sum-exp would be NaN."""
    operator = openaclnn.find_operator("cross_entropy_loss")
    arguments = {
        "input": np.float32([[np.inf, 0]]), "target": np.array([0]), "reduction": reduction,
        "return_zloss": True,
    }  # fmt: skip
    for result in (openaclnn.cross_entropy_loss(**arguments), operator.oracle(**arguments)):
        assert result.zloss == 0
        assert np.isinf(result.lse_for_zloss)


@dtypes
@pytest.mark.parametrize("classes", [2, 3, 7, 16, 33, 1000, 32000])
@pytest.mark.in_turns
def test_classes_far_from_the_others_are_smoothed(
    engine_of_any_width: str, dtype: DType, classes: int
) -> None:
    """Masked classes: what they have left is right, and what the others add beside them, wherever they stand."""
    operator = openaclnn.find_operator("cross_entropy_loss")
    for number, case in enumerate(outliers(dtype, classes)):
        assert_near_oracle(operator, case, openaclnn.cross_entropy_loss(**case).loss)
        for row, reduction in reduced(number, dtype):
            one = {name: case[name][row : row + 1] for name in ("input", "target")}
            arguments = case | one | {"reduction": reduction}
            assert_near_oracle(operator, arguments, openaclnn.cross_entropy_loss(**arguments).loss)


def test_smoothing_of_infinite_logits(engine: str) -> None:
    """As the formula has it: nothing times infinity is no number, and a row of one infinite logit has no probability."""
    operator = openaclnn.find_operator("cross_entropy_loss")
    inf = np.inf
    rows = ([0, -inf, 1], [-inf, 0, 1], [inf, 0, 1], [-inf, -inf, -inf], [0], [inf], [-inf])
    for row in rows:
        for wide in (1, 3000):
            x = np.repeat(np.float32([row]), wide, axis=1)
            for weight in (None, *np.float32([[0] * x.shape[1], [1] * x.shape[1]])):
                case = {
                    "input": x, "target": np.array([0]), "weight": weight, "reduction": "none",
                    "label_smoothing": 0.1,
                }  # fmt: skip
                assert_near_oracle(operator, case, openaclnn.cross_entropy_loss(**case).loss)


def test_an_infinite_gradient_meets_each_weight(engine_of_any_width: str) -> None:
    special_products.check_infinite_gradients()


OF_NOTHING: list[tuple[str, tuple[tuple[int, ...], ...], str, Any]] = [
    *[
        (name, ((0, 3), (0, 3)), reduction, number)
        for name in ("mse_loss", "soft_margin_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits")
        for reduction, number in (("mean", np.nan), ("sum", 0.0))
    ],
    ("mse_loss_out", ((0, 3), (0, 3)), "mean", [np.nan] * 3),
    ("mse_loss_out", ((0, 2, 3), (2, 3)), "sum", np.zeros((2, 3))),
    ("kl_div_backward", ((), (2, 1), (2, 0)), "mean", [[0.0], [0.0]]),
    ("kl_div_target_backward", ((), (0,), (1,)), "none", [0.0]),
]  # fmt: skip


@pytest.mark.parametrize("engine", ["cpu", "numpy"])
@pytest.mark.parametrize(("name", "shapes", "reduction", "known"), OF_NOTHING)
def test_losses_of_nothing(
    name: str, shapes: tuple[tuple[int, ...], ...], reduction: str, known: Any, engine: str
) -> None:
    arrays = [np.ones(shape, np.float32) for shape in shapes]
    places = [np.full(np.shape(known), 7.0, np.float32), np.full((*np.shape(known), 2), 7.0)[..., 0].astype(np.float32)]  # fmt: skip
    with openaclnn.use_engine(engine):
        for out in (None, *places):
            got = getattr(openaclnn, name)(*arrays, reduction=reduction, out=out)
            np.testing.assert_array_equal(got, np.float32(known))


def test_means_follow_the_sizes_of_each_call() -> None:
    """A mean of the elements of one tensor, or along one axis, is no number that another call of the kind can keep."""
    gradient = np.float32(6)
    for rows in (2, 3, 2, 6):
        x, y = np.ones((rows, 1), np.float32), np.zeros((1, 3), np.float32)
        got = openaclnn.mse_loss_backward(gradient, x, y)
        np.testing.assert_array_equal(got, np.full((rows, 3), np.float32(2 / rows) * gradient))
        whole = np.ones((rows, 3), np.float32)
        got = openaclnn.mse_loss_backward(gradient, whole, y)
        np.testing.assert_allclose(got, np.full((rows, 3), 4 / rows), 2e-7)
        got = openaclnn.kl_div_backward(gradient, whole, whole, reduction="batchmean")
        np.testing.assert_array_equal(got, np.full((rows, 3), -6 / rows, np.float32))
        np.testing.assert_array_equal(openaclnn.mse_loss_out(whole, y), np.ones(3, np.float32))


def test_squares_are_rounded_before_they_are_added_up_along_an_axis() -> None:
    x = np.array([[300.0], [0.0]], np.float16)
    assert openaclnn.mse_loss_out(x, x[1:]).tolist() == [np.inf]
    assert openaclnn.mse_loss(x, x[1:]) == np.float16(45000)
