"""The oracle takes a plain call's arguments with the plain call's checks: what that refuses, this refuses in the same words."""

from __future__ import annotations

from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import openaclnn
from conftest import OPERATORS, plain, table_of, tensor_names
from openaclnn import acl
from openaclnn.core.declare import Operator

names = pytest.mark.parametrize("operator", OPERATORS, ids=lambda op: op.python_name)

ODD = [
    "avg", "", 7, -1, 2.5, None, b"mean", True, [], {}, object, np.float32(2), np.int64(1), float("nan"),
    2**64, -(2**63) - 1, 1j, np.ones(2), "1.0", 10**400, torch.ones(2), torch.ones(1).to_sparse(), -(10**400),
]  # fmt: skip


def refusal(function: Any, arguments: dict[str, Any]) -> Any:
    """What a call was refused with, word for word; None where it was not."""
    try:
        function(**arguments)
    except openaclnn.AclnnError as error:
        return error.status, str(error)
    return None


@names
@pytest.mark.in_turns
def test_the_mistakes_of_the_table(operator: Operator) -> None:
    sound, mistakes = table_of(operator)
    seen = 0
    for first, second in product(mistakes, mistakes):
        changed = sound() | second.change | first.change
        arguments = {p.python_name: changed[p.name] for p in operator.parameters}
        error = openaclnn.explain(operator, **arguments).error
        if error is None:  # nothing is wrong in a plain call; nothing there may be read either
            continue
        assert refusal(operator.oracle, arguments) == (error.status, str(error))
        seen += 1
    assert seen > len(mistakes)


@names
def test_options_of_any_type(operator: Operator) -> None:
    arguments = operator.samples[0].arrays()
    options = [p.python_name for p in operator.parameters if not p.is_tensor]
    seen = 0
    for name, odd in product([*options, "product"], ODD):
        inputs = arguments | {name: odd}
        said = refusal(plain(operator), inputs)
        assert refusal(operator.oracle, inputs) == said, (name, odd)
        seen += said is not None
    assert seen > len(options)


@pytest.mark.parametrize("name", ["swish", "swish_backward"])
def test_an_option_that_is_null_is_its_default(name: str) -> None:
    operator = openaclnn.find_operator(name)
    arguments = operator.samples[0].arrays()
    left_out = operator.oracle(**{n: v for n, v in arguments.items() if n != "beta"})
    np.testing.assert_array_equal(operator.oracle(**arguments | {"beta": None}), left_out)
    np.testing.assert_allclose(plain(operator)(**arguments | {"beta": None}), left_out, rtol=1e-6)


@names
@pytest.mark.in_turns
def test_tensors_of_any_shape_and_kind(operator: Operator) -> None:
    arguments = operator.samples[0].arrays()
    strange: list[Any] = [
        np.ones((7, 5), np.float32), np.ones(9, np.int8), np.ones(3, "S4"), torch.ones(4).to_sparse(), "x",
        np.ma.masked_array(np.ones(3, np.float32)), np.ones((1,) * 9, np.float32), [1.0], 2.0,
    ]  # fmt: skip
    function = getattr(openaclnn, operator.python_name)
    places = [] if operator.output.in_place else ["out"]
    for name, odd in product([*tensor_names(operator), *places], strange):
        inputs = arguments | {name: odd}
        assert refusal(operator.oracle, inputs) == refusal(function, inputs), (name, odd)


@pytest.mark.parametrize("stray", [-1, 3, 2**40, -(2**63)])
def test_stray_targets(stray: int) -> None:
    rows = {
        "grad_loss": np.float32(1), "log_prob": np.zeros((2, 3), np.float32), "target": np.array([0, stray]),
    }  # fmt: skip
    pixels = {
        "grad_output": np.float32([1]), "self": np.zeros((1, 3, 1, 2), np.float32),
        "target": np.array([[[2, stray]]]), "weight": np.ones(3, np.float32),
    }  # fmt: skip
    for name, arguments in (("cross_entropy_loss_grad", rows), ("nll_loss2d_backward", pixels)):
        operator = openaclnn.find_operator(name)
        said = refusal(plain(operator), arguments)
        assert said is not None
        assert f"{stray} at" in said[1]
        assert refusal(operator.oracle, arguments) == said
        assert refusal(operator.oracle, arguments | {"ignore_index": stray}) is None


def test_a_bare_number_is_rounded_as_in_the_call() -> None:
    x = np.float16([3.0])
    operator = openaclnn.find_operator("l1_loss_backward")
    got = operator.oracle(0.1, x, np.float16([1.0]))
    assert got.item() == float(np.float16(0.1))


def test_memory_that_nobody_wrote_may_hold_any_bits() -> None:
    """Of a tensor whose shape alone counts; NumPy tells of a signalling NaN where it converts one."""
    values = np.full((1, 2, 1, 3), 0x7F81, np.uint16).view(ml_dtypes.bfloat16)
    result = openaclnn.nll_loss2d_backward.operator.oracle(
        np.ones((), values.dtype), values, np.zeros((1, 1, 3), np.int64), np.ones(2, values.dtype), reduction="sum"
    )  # fmt: skip
    np.testing.assert_array_equal(result, [[[[-1, -1, -1]], [[0, 0, 0]]]])


def test_what_a_product_does_not_heed() -> None:
    operator = openaclnn.find_operator("cross_entropy_loss_grad")
    arguments = operator.samples[0].arrays() | {
        "lse_for_zloss": np.ones(2, np.float32), "lse_square_scale_for_zloss": 5.0,
    }  # fmt: skip
    arguments["lse_for_zloss"] = np.ones(arguments["log_prob"].shape[0], np.float32)
    for family in ("default", "950", "a2"):
        got = plain(operator)(**arguments, product=family)
        np.testing.assert_allclose(operator.oracle(**arguments, product=family), got, rtol=1e-5)
        with openaclnn.use_product(family):
            np.testing.assert_allclose(operator.oracle(**arguments), got, rtol=1e-5)


def test_outputs_that_a_product_does_not_compute() -> None:
    operator = openaclnn.find_operator("cross_entropy_loss")
    arguments = operator.samples[1].arrays() | {"label_smoothing": 0.0}
    for family in ("default", "950", "a2"):
        got = plain(operator)(**arguments, product=family)
        exact = operator.oracle(**arguments, product=family)
        assert [output is None for output in exact] == [output is None for output in got]
        np.testing.assert_allclose(exact.loss, got.loss, rtol=1e-5)


def test_its_signature_is_the_plain_call_s() -> None:
    operator, x = openaclnn.find_operator("elu_backward"), np.ones(3, np.float32)
    for args, kwargs in (
        ((x,), {}), ((x, x, x), {}), ((x, x), {"nothing": 1}), ((x, x), {"self_or_result": x}),
    ):  # fmt: skip
        for function in (operator.oracle, openaclnn.elu_backward):
            with pytest.raises(TypeError):
                function(*args, **kwargs)


def test_memory_known_by_its_address_alone_is_not_read() -> None:
    raw = acl.aclCreateTensor((3,), acl.ACL_FLOAT, (1,), 0, acl.ACL_FORMAT_ND, (3,), 4096)
    x = np.ones(3, np.float32)
    with pytest.raises(openaclnn.AclnnError, match="selfOrResult: expected an array in CPU memory"):
        openaclnn.find_operator("elu_backward").oracle(x, raw)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_tensors_without_elements(reduction: str) -> None:
    def zeros(*shape: int) -> Any:
        return np.zeros(shape, np.float32)

    cases: list[tuple[str, dict[str, Any]]] = [
        ("l1_loss_backward", {"grad_output": zeros(0), "self": zeros(1), "target": zeros(0)}),
        ("smooth_l1_loss_backward", {"grad_out": zeros(2, 0), "self": zeros(0), "target": zeros(2, 1)}),
    ]  # fmt: skip
    for n, c in ((0, 3), (3, 0), (0, 0)):
        gradient = zeros(n) if reduction == "none" else zeros()
        rows = {"grad_loss": gradient, "log_prob": zeros(n, c), "target": np.zeros(n, np.int64)}
        cases += [
            ("cross_entropy_loss_grad", rows),
            ("cross_entropy_loss_grad", rows | {"weight": zeros(c)}),
        ]
        pixels = {
            "grad_output": zeros(n, 2, 2) if reduction == "none" else zeros(1), "self": zeros(n, c, 2, 2),
            "target": np.zeros((n, 2, 2), np.int64), "weight": zeros(c),
        }  # fmt: skip
        cases.append(("nll_loss2d_backward", pixels))
    for name, arguments in cases:
        operator = openaclnn.find_operator(name)
        got = plain(operator)(**arguments, reduction=reduction)
        assert operator.oracle(**arguments, reduction=reduction).shape == got.shape
