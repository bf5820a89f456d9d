"""Every row of every check table gives its code, and of two broken rules the earlier one wins."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import openaclnn
from conftest import OPERATORS, table_of
from openaclnn import AclnnError, aclnn
from openaclnn.core.call import AUTO, Call, bind_arguments
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import FLOAT
from openaclnn.core.products import PRODUCTS, find_product
from workloads import data_of
from workloads.mistakes import Mistake, t

names = pytest.mark.parametrize("operator", OPERATORS, ids=lambda op: op.python_name)


def broken(
    operator: Operator,
    arguments: dict[str, Any],
    pointers: tuple[bool, bool],
    product: str = "default",
) -> Any:
    """(row, status, parameter) of the first broken rule, or None."""
    call = bind_arguments(
        operator, [arguments[p.name] for p in operator.parameters], find_product(product), *pointers
    )
    check, violation = operator.run_checks(call)[-1]
    return None if violation is None else (check.row, int(check.status), violation.parameter)


def first_phase(
    operator: Operator, arguments: dict[str, Any], pointers: tuple[bool, bool] = (True, True)
) -> Any:
    function = getattr(aclnn, f"{operator.name}GetWorkspaceSize")
    results = [object() if present else None for present in pointers]
    return function(*(arguments[p.name] for p in operator.parameters), *results)


@names
def test_the_sound_call_is_accepted(operator: Operator) -> None:
    sound, _ = table_of(operator)
    assert broken(operator, sound(), (True, True)) is None
    status, workspace, executor = first_phase(operator, sound())
    assert (status, workspace) == (0, 0)
    assert executor is not None


@names
def test_each_row_gives_its_code(operator: Operator) -> None:
    sound, mistakes = table_of(operator)
    for mistake in mistakes:
        arguments = sound() | mistake.change
        violation = broken(operator, arguments, mistake.pointers)
        assert violation == (mistake.row, mistake.status, mistake.parameter), mistake
        aclnn.aclGetRecentErrMsg()
        status, workspace, executor = first_phase(operator, arguments, mistake.pointers)
        assert (status, workspace, executor) == (mistake.status, 0, None)
        message = aclnn.aclGetRecentErrMsg()
        assert operator.name in message
        assert mistake.parameter in message
        assert "expected" in message
        assert "got" in message
        assert aclnn.aclGetRecentErrMsg() is None


@names
def test_of_two_mistakes_the_earlier_wins(operator: Operator) -> None:
    sound, mistakes = table_of(operator)
    order = {check.row: place for place, check in reversed(list(enumerate(operator.checks)))}
    seen = 0
    for place, first in enumerate(mistakes):
        for second in mistakes[place + 1 :]:
            arguments = sound() | second.change | first.change
            pointers = (
                first.pointers[0] and second.pointers[0],
                first.pointers[1] and second.pointers[1],
            )
            violation = broken(operator, arguments, pointers)
            if violation is None:  # two ways to break one row can mend each other
                assert first.row == second.row
                continue
            row, status, parameter = violation
            assert status == first.status, (first, second)
            assert order[row] <= order[first.row], (first, second)
            assert row == first.row, (first, second, row)
            if not set(first.change) & set(second.change) and _independent(first, second):
                assert parameter == first.parameter, (first, second)
                seen += 1
    assert seen


@names
def test_rules_about_outputs_say_nothing_where_those_are_left_to_us(operator: Operator) -> None:
    """So that a call without outputs is not asked about them; what is written in place is always given."""
    sound, mistakes = table_of(operator)
    if operator.output.in_place:
        mistakes = []
    left = {p.name: AUTO for p in operator.outputs if not p.in_place}
    for change in [{}, *[mistake.change for mistake in mistakes]]:
        arguments = sound() | change
        ordered = [arguments[p.name] for p in operator.parameters]
        values = bind_arguments(operator, ordered, PRODUCTS[0]).values | left
        for product in PRODUCTS:
            all_rules, fewer = (
                operator.first_violation(Call(operator, values, product, outputs_omitted=omits))
                for omits in (False, True)
            )
            assert repr(all_rules) == repr(fewer), (change, product)


def _independent(first: Mistake, second: Mistake) -> bool:
    """Rows that compare two tensors may blame the other one when both are wrong."""
    return first.row != second.row and "9" not in (first.row, second.row)


@names
def test_every_row_of_the_declaration_has_a_mistake(operator: Operator) -> None:
    _, mistakes = table_of(operator)
    reached = {mistake.row for mistake in mistakes} | {*getattr(data_of(operator), "LIMITS", {})}
    product_row = next(c.row for c in operator.checks if c.rule == "the product has the operator")
    assert {check.row for check in operator.checks} - reached <= {product_row}


@names
def test_wrong_types_are_refused_not_raised(operator: Operator) -> None:
    sound, _ = table_of(operator)
    for parameter in operator.parameters:
        for value in (object(), "text", [1, 2], {}, b"x", 1 << 70, 3.5j, float("nan")):
            status, _, _executor = first_phase(operator, sound() | {parameter.name: value})
            assert status in (0, 161002, 561002), (parameter, value)
            if parameter.is_tensor:
                assert status == 161002
                assert parameter.name in aclnn.aclGetRecentErrMsg()


@names
def test_too_few_arguments(operator: Operator) -> None:
    status, _, executor = getattr(aclnn, f"{operator.name}GetWorkspaceSize")()
    assert (status, executor) == (161002, None)
    assert "arguments" in aclnn.aclGetRecentErrMsg()


LIMITED = [operator for operator in OPERATORS if hasattr(data_of(operator), "LIMITS")]


@pytest.mark.parametrize("operator", LIMITED, ids=lambda op: op.python_name)
def test_limits_of_products(operator: Operator) -> None:
    """Sizes that a product does not have, and that we have."""
    sound, _ = table_of(operator)
    for row, change in data_of(operator).LIMITS.items():
        product = next(p.tag for p in PRODUCTS if p.tag in operator.families)
        violation = broken(operator, sound() | change, (True, True), product)
        assert violation is not None
        assert violation[0] == row
        elsewhere = broken(operator, sound() | change, (True, True), "default")
        assert elsewhere is None or elsewhere[0] != row


def test_a_rule_about_axes_holds_on_the_fast_path() -> None:
    """Calls with axes leave an entry for every size behind, which serves none without."""
    for _ in range(3):
        for shape in ((2, 3), (4,), (1,)):
            assert openaclnn.squared_relu(np.full(shape, 2, np.float32)).shape == shape
        for single in (np.float32(2), np.full((), 2, np.float32)):
            with pytest.raises(AclnnError, match="1 to 8 dimensions"):
                openaclnn.squared_relu(single)


@pytest.mark.parametrize("empty", ["gradOutput", "self"])
def test_no_kernel_is_asked_for_where_an_input_is_empty(empty: str) -> None:
    operator = openaclnn.find_operator("hardshrink_backward")
    sound, _ = table_of(operator)
    tensors = {"gradOutput": t((2, 1)), "self": t((2, 1)), "gradInput": t((2, 0)), empty: t((2, 0))}
    assert broken(operator, sound() | tensors, (True, True), "310p") is None
    assert broken(operator, sound(), (True, True), "310p")[1:] == (561103, "product")


def test_an_axis_of_no_tensor_is_the_declarations_fault() -> None:
    operator = openaclnn.find_operator("softmax")
    dim = operator["dim"]
    nameless = replace(operator, parameters=tuple([replace(p, axis="") if p is dim else p for p in operator.parameters]))  # fmt: skip
    values = {"self": openaclnn.Tensor((2, 3), FLOAT), "dim": 1}
    call = Call(nameless, {p.name: values.get(p.name, AUTO) for p in nameless.parameters}, find_product("default"))  # fmt: skip
    with pytest.raises(TypeError, match="dim is declared without the tensor whose axis it is"):
        call.axis("dim")
