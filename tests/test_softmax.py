"""The softmax family: every axis and dtype, special values, what empty tensors skip, and case lists in its kernels' words."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import openaclnn
from conftest import assert_matches_oracle, assert_same_bits, call_on, each
from openaclnn import aclnn
from openaclnn.core.call import bind_plain, plain_arguments
from openaclnn.core.dtypes import BFLOAT16, DOUBLE, FLOAT, FLOAT16, DType
from openaclnn.core.products import PRODUCTS
from openaclnn.testing.cases.case import Malformed
from test_case_lists import KERNEL, data, one, run, table
from workloads.mistakes import t

INF, NAN = np.inf, np.nan
FORWARDS = [openaclnn.find_operator(name) for name in ("softmax", "log_softmax")]
GRADIENTS = [openaclnn.find_operator(f"{op.python_name}_backward") for op in FORWARDS]
SHARES = openaclnn.find_operator("softmax_cross_entropy_with_logits")
forwards = pytest.mark.parametrize("operator", FORWARDS, ids=lambda op: op.python_name)
gradients = pytest.mark.parametrize("operator", GRADIENTS, ids=lambda op: op.python_name)


def plain(operator: Any, *args: Any, **options: Any) -> Any:
    return getattr(openaclnn, operator.python_name)(*args, **options)


def test_the_document_s_numbers(engine: str) -> None:
    """z = 1, 2, 3 with the gradient 1, 0, 2 and the labels 0.2, 0.3, 0.5."""
    z, g = np.float32([1, 2, 3]), np.float32([1, 0, 2])
    known = {
        "softmax": [0.09003057, 0.2447285, 0.6652410],
        "log_softmax": [-2.407606, -1.407606, -0.4076060],
        "softmax_backward": [-0.03785898, -0.34763985, 0.3854988],
        "log_softmax_backward": [0.7299083, -0.7341854, 0.004277133],
    }
    for forward, backward in zip(FORWARDS, GRADIENTS, strict=True):
        y = call_on(engine, forward, {"self": z})
        np.testing.assert_allclose(y, known[forward.python_name], rtol=1e-6)
        got = call_on(engine, backward, {"grad_output": g, "output": y})
        np.testing.assert_allclose(got, known[backward.python_name], rtol=1e-6, atol=2e-7)
    labels = np.float32([[0.2, 0.3, 0.5]])
    loss, backprop = call_on(engine, SHARES, {"features": z[None], "labels": labels})
    np.testing.assert_allclose(loss, [1.107606], rtol=1e-6)
    np.testing.assert_allclose(backprop, [[-0.1099694, -0.05527153, 0.1652410]], rtol=1e-6)


SPECIAL = [
    ([NAN, 1, 2], [NAN] * 3, [NAN] * 3),
    ([INF, 1, 2], [NAN] * 3, [NAN] * 3),
    ([INF, INF, -INF], [NAN] * 3, [NAN] * 3),
    ([-INF, -INF, -INF], [NAN] * 3, [NAN] * 3),
    ([-INF, 5, -INF], [0, 1, 0], [-INF, 0, -INF]),
    ([-INF, 5, 5], [0, 0.5, 0.5], [-INF, -np.log(2), -np.log(2)]),
    ([3e38, -3e38, -INF], [1, 0, 0], [0, -INF, -INF]),
    ([65504, 65504, 65504], [1 / 3] * 3, [-np.log(3)] * 3),
    ([200, 0, 0], [1, 0, 0], [0, -200, -200]),
]


@pytest.mark.parametrize("axis", [0, 1])
def test_special_values(axis: int, engine: str) -> None:
    rows, shares, logs = (np.float32([case[k] for case in SPECIAL]) for k in range(3))
    for operator, known in zip(FORWARDS, (shares, logs), strict=True):
        x = np.ascontiguousarray(np.moveaxis(rows, -1, axis))
        got = np.moveaxis(call_on(engine, operator, {"self": x, "dim": axis}), axis, -1)
        np.testing.assert_allclose(got, known, rtol=3e-7)
        assert_matches_oracle(operator, {"self": x, "dim": axis}, np.moveaxis(got, -1, axis))


def test_special_values_of_gradients(engine: str) -> None:
    g = np.float32([[1, NAN, 0], [INF, 0, 1], [1, 2, 3], [0, 0, 0]])
    y = np.float32([[0.5, 0.5, 0], [0.25, 0.5, 0.25], [0, 1, 0], [NAN, 0.5, 0.5]])
    with np.errstate(divide="ignore"):
        outputs = y, np.log(y)
    for operator, output in zip(GRADIENTS, outputs, strict=True):
        arguments = {"grad_output": g, "output": output}
        assert_matches_oracle(operator, arguments, call_on(engine, operator, arguments))
    # A label of 0 beside a logit of -Inf is 0 * Inf; labels need not sum to 1, nor be positive.
    x = np.float32([[-INF, 1, 2], [-INF, 1, 2], [1, 2, 3], [NAN, 1, 1]])
    labels = np.float32([[0, 0.5, 0.5], [1, 0, 0], [-2, 7, 0], [0, 0, 1]])
    loss, backprop = call_on(engine, SHARES, {"features": x, "labels": labels})
    assert_matches_oracle(SHARES, {"features": x, "labels": labels}, (loss, backprop))
    np.testing.assert_array_equal(np.isnan(loss), [True, False, False, True])
    assert loss[1] == INF
    np.testing.assert_allclose(backprop[2].sum(), -4, rtol=1e-6)


@forwards
@pytest.mark.parametrize(
    "dtypes", [*itertools.product((FLOAT, FLOAT16, BFLOAT16, DOUBLE), repeat=2)], ids=str
)
@pytest.mark.in_turns
def test_a_result_of_another_dtype(operator: Any, dtypes: tuple[DType, DType], engine: str) -> None:
    """Softmax is computed in self's dtype, log-softmax in out's, to which self is converted first."""
    dtype, other = dtypes
    x = (3 * np.random.default_rng(2).normal(size=(5, 33))).astype(dtype.numpy)
    out = np.full(x.shape, 7, other.numpy)
    served = openaclnn.explain(operator, x, dim=0, out=out).error is None
    with openaclnn.use_engine(engine if served else "numpy"):
        assert plain(operator, x, dim=0, out=out) is out
        converted = x if operator is FORWARDS[0] else x.astype(other.numpy)
        expected = plain(operator, converted, dim=0).astype(other.numpy)
    assert_same_bits(out, expected)
    if operator is FORWARDS[1]:
        oracle = operator.oracle(x, dim=0, out=out)
        np.testing.assert_array_equal(oracle, operator.oracle(converted, dim=0))


@forwards
def test_double_is_computed_as_such(operator: Any) -> None:
    x = 3 * np.random.default_rng(3).normal(size=(4, 3, 50))
    for dim in (0, 1, 2):
        got, known = plain(operator, x, dim=dim), operator.oracle(x, dim=dim)
        assert got.dtype == np.float64
        np.testing.assert_allclose(got, known, rtol=1e-14, atol=1e-300)


@gradients
@pytest.mark.parametrize("output", [FLOAT, FLOAT16, BFLOAT16, DOUBLE], ids=str)
def test_a_gradient_of_another_dtype(operator: Any, output: DType, engine: str) -> None:
    rng = np.random.default_rng(4)
    g, y = (rng.normal(size=(6, 7)).astype(np.float16) for _ in range(2))
    out = np.full((6, 7), 7, output.numpy)
    call_on(engine, operator, {"grad_output": g, "output": y, "out": out})
    assert_same_bits(
        out, call_on(engine, operator, {"grad_output": g, "output": y}).astype(output.numpy)
    )


def test_an_axis_is_refused_from_rank_on() -> None:
    for rank in range(9):
        shape, most = (2,) * rank, max(rank, 1)
        for operator in (*FORWARDS, *GRADIENTS):
            tensors = [np.ones(shape, np.float32) for _ in operator.input_names]
            for dim in (-most - 1, most):
                with pytest.raises(openaclnn.AclnnError, match=f"{-most} to {most - 1}") as caught:
                    plain(operator, *tensors, dim=dim)
                assert (caught.value.parameter, caught.value.status) == ("dim", 161002)
            same = [each(plain(operator, *tensors, dim=dim))[0] for dim in (-most, 0)]
            assert_same_bits(*same)
    for wrong in (1.0, "1", None, 1 << 63):
        with pytest.raises(openaclnn.AclnnError, match="dim"):
            openaclnn.softmax(np.ones((2, 2), np.float32), dim=wrong)
    assert (
        openaclnn.softmax(np.ones((2, 2), np.float32), dim=np.int32(0)).tolist() == [[0.5] * 2] * 2
    )


def status(name: str, *arguments: Any, product: str = "default") -> int:
    with openaclnn.use_product(product):
        code: int = getattr(aclnn, f"{name}GetWorkspaceSize")(*arguments)[0]
    return code


def test_what_empty_tensors_are_not_held_to() -> None:
    """Softmax returns before its checks, its gradients do but on 950, log-softmax looks at the axis first."""
    empty, wrong = t((0, 3)), t((2,))
    assert status("aclnnSoftmax", empty, 9, wrong) == 0
    assert status("aclnnLogSoftmax", empty, 9, empty) == 161002
    assert status("aclnnLogSoftmax", empty, 1, empty) == 0
    for name in ("aclnnSoftmaxBackward", "aclnnLogSoftmaxBackward"):
        for product, expected in (("default", 0), ("a2", 0), ("950", 161002)):
            assert status(name, empty, empty, 9, empty, product=product) == expected
            assert status(name, empty, empty, 1, empty, product=product) == 0
    assert plain(FORWARDS[0], np.ones((3, 0), np.float16)).shape == (3, 0)
    loss, backprop = plain(SHARES, np.ones((3, 0), np.float32), np.ones((3, 0), np.float32))
    assert (loss.tolist(), backprop.shape) == ([0, 0, 0], (3, 0))  # nobody writes there


def test_labels_stretch_on_950_alone() -> None:
    x, row, column = t((4, 3)), t((1, 3)), t((4, 1))
    for labels in (row, column):
        for product in PRODUCTS:
            has = SHARES.supported_on(product)
            expected = 0 if product.tag in ("default", "950") else 161002
            assert (
                not has
                or status(SHARES.name, x, labels, t((4,)), x, product=product.tag) == expected
            )


def test_products() -> None:
    """BFLOAT16 is not everywhere; of the inference devices one has softmax alone."""
    bfloat16 = t((2, 3), BFLOAT16)
    assert status("aclnnSoftmax", bfloat16, 0, bfloat16, product="910") == 161002
    for operator in (*FORWARDS, *GRADIENTS, SHARES):
        tags = {p.tag for p in PRODUCTS if operator.supported_on(p)}
        small = {"310b"} if operator is FORWARDS[0] else set()
        assert tags == {"default", "950", "a3", "a2", "310p", "910"} | small
    assert FORWARDS[1].header == "aclnnop/aclnn_logsoftmax.h"
    assert GRADIENTS[1].header == "aclnnop/aclnn_logsoftmax_backward.h"
    assert FORWARDS[0].header == "aclnnop/aclnn_softmax.h"


def test_a_plan_keeps_its_axis() -> None:
    """Counted from the front, whichever way the call counts; the number is nothing that a kernel takes."""
    x = np.ones((2, 3, 4), np.float32)
    for operator, dim in itertools.product(FORWARDS, range(-3, 3)):
        bound = bind_plain(operator, plain_arguments(operator, (x,), {"dim": dim}), PRODUCTS[0])
        operator.outline(bound)
        plan = operator.plan(bound)
        assert (plan.class_axis, plan.classes) == (dim % 3, (2, 3, 4)[dim])
        assert (plan.targets, plan.free, dict(plan.numbers)) == (-1, (), {})
        told = str(openaclnn.explain(operator, x, dim=dim))
        assert f"x {plan.classes} classes along axis {dim % 3}" in told
    assert "dim: the axis that a row lies along, -rank to rank - 1" in FORWARDS[0].describe()  # fmt: skip


KERNELS = {
    "softmax_v2": ({"axes": "[-1]", "half_to_float": "False"}, 1, "aclnnSoftmax"),
    "log_softmax_v2": ({"axes": "[0]"}, 1, "aclnnLogSoftmax"),
    "softmax_grad": ({"axes": "[1]"}, 2, "aclnnSoftmaxBackward"),
    "log_softmax_grad": ({"axis": "[1]"}, 2, "aclnnLogSoftmaxBackward"),
    "softmax_cross_entropy_with_logits": ({}, 2, SHARES.name),
}


@pytest.mark.parametrize("name", KERNELS)
def test_cases_in_the_kernels_words(tmp_path: Path, name: str) -> None:
    attributes, inputs, interface = KERNELS[name]
    written = ", ".join(f"'{key}': {value}" for key, value in attributes.items())
    outputs = "((4,), (4, 6))" if name == "softmax_cross_entropy_with_logits" else "((4, 6),)"
    row = KERNEL | {
        "op_name": name, "input_shapes": str(((4, 6),) * inputs), "output_shapes": outputs, "attributes": f"{{{written}}}",
        "output_formats": "", "input_ori_shapes": "", "absolute_precision": "",
    }  # fmt: skip
    path = table(tmp_path / "list.csv", row)
    case = one(path)
    assert case.operator.name == interface
    built = data(case)
    if name == "softmax_grad":  # the result comes first
        first, second = (built.arguments[argument] for argument in ("output", "grad_output"))
        assert [*case.tensors][:2] == ["output", "gradOutput"]
        assert first.shape == second.shape == (4, 6)
    if attributes:
        key = next(iter(attributes))
        assert built.arguments["dim"] == int(attributes[key].strip("[]"))
        several = table(tmp_path / "more.csv", row | {"attributes": f"{{'{key}': [0, 1]}}"})
        [skipped] = openaclnn.testing.read_cases(several)
        assert isinstance(skipped, Malformed)
        assert "rows along one axis" in str(skipped)
    assert [result.verdict for result in run(path)] == ["passed"]


def test_half_to_float_is_another_operator(tmp_path: Path) -> None:
    row = KERNEL | {"op_name": "softmax_v2", "input_shapes": "((4, 6),)", "attributes": "{'half_to_float': True}"}  # fmt: skip
    [skipped] = openaclnn.testing.read_cases(table(tmp_path / "list.csv", row))
    assert isinstance(skipped, Malformed)
