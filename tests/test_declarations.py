"""A declaration that is wrong says so when it is registered: where, what is expected, what is there."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

import openaclnn
from openaclnn.calls.plain import make_plain_function
from openaclnn.core import checks, declare
from openaclnn.core.dtypes import FLOAT
from openaclnn.core.interface import Kind, Parameter
from openaclnn.core.plan import Free, elementwise_plan, reduced_plan
from openaclnn.core.tensor import Tensor
from openaclnn.engines.formulas import Formula
from openaclnn.operators.activations import Activation
from openaclnn.operators.log_probs import LOG_PROBS
from openaclnn.repeat.specialize import _derivation

ELU = openaclnn.find_operator("elu_backward")
SAMPLE = ELU.samples[0]


def named(old: str, **other: Any) -> tuple[Parameter, ...]:
    """The parameters with one changed."""
    return tuple(replace(p, **other) if p.name == old else p for p in ELU.parameters)


def of_one(x: Any) -> Any:
    """A reference of other arguments."""


of_one.__module__ = ELU.reference.__module__

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a list of parameters": (
        {"parameters": [*ELU.parameters]},
        "parameters: expected a tuple, got list",
    ),
    "no parameter": ({"parameters": ("self",)}, "parameters[0]: expected a Parameter, got 'self'"),
    "a check that was not made": (
        {"checks": (*ELU.checks, checks.same_shape)},
        "checks[11]: expected a Check, got <function same_shape",
    ),
    "a check of a stranger": (
        {"checks": (checks.same_shape("6", "selff", "gradOutput"),)},
        "check 6 (selff has the shape of gradOutput): expected one of gradOutput, alpha, scale, "
        "inputScale, isResult, selfOrResult, gradInput, got selff",
    ),
    "a broadcast with a stranger": (
        {"checks": (checks.broadcastable("8", "gradOutput", "target"),)},
        "check 8 (gradOutput, target broadcast)",
    ),
    "a pointer unknown": ({"checks": (checks.result_pointers("0", "size"),)}, "got size"),
    "no output": (
        {"parameters": named("gradInput", kind=Kind.TENSOR)},
        "parameters: expected a Kind.OUTPUT among them, got none",
    ),
    "no kind": (
        {"parameters": named("alpha", kind="scalar")},
        "parameter alpha: kind: expected a Kind, got 'scalar'",
    ),
    "no dtypes": ({"parameters": named("gradOutput", dtypes=())}, "parameter gradOutput: dtypes"),
    "one name for two": (
        {"parameters": named("scale", name="alpha")},
        "parameter alpha: expected once, got twice",
    ),
    "a default that is no choice": (
        {"parameters": named("alpha", choices=("none", "mean"), default="sum")},
        "parameter alpha: default: expected one of none, mean, got 'sum'",
    ),
    "a strange product": (
        {"families": frozenset({"a2", "910b"})},
        "families: expected some of 310, 310b, 310p, 910, 950, a2, a3, got 910b",
    ),
    "the C prefix left out": ({"name": "EluBackward"}, "name: expected aclnn in front"),
    "another's reference": (
        {"reference": of_one},
        "reference: expected the arguments grad_output, self_or_result, alpha, scale, "
        "input_scale, is_result, work, got x",
    ),
    "no samples": ({"samples": ()}, "samples: expected a tuple of at least one"),
    "a comma forgotten": ({"samples": SAMPLE}, "samples: expected a tuple of at least one"),
    "a sample by C names": (
        {"samples": (replace(SAMPLE, arguments={"gradOutput": 1, "self_or_result": 1}),)},
        "sample 'document': expected some of grad_output, self_or_result, alpha",
    ),
    "a sample without a tensor": (
        {"samples": (replace(SAMPLE, arguments={"grad_output": 1}),)},
        "sample 'document': expected self_or_result, got grad_output",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_told_at_registration(what: str) -> None:
    change, said = WRONG[what]
    before = declare.registry()
    with pytest.raises(TypeError) as told:
        declare.register(replace(ELU, **change))
    text = str(told.value)
    assert text.startswith(f"the declaration of {change.get('name', ELU.name)}:\n  ")
    assert said in text
    assert declare.registry() == before


def test_a_formula_without_its_mark_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of whatever operator: its plan's formulas are functions again."""
    for operator in declare.registry():
        taken = operator.plan.__globals__
        names = [name for name, value in taken.items() if isinstance(value, Formula)]
        for name in names:
            monkeypatch.setitem(taken, name, taken[name].function)
        told = [name for name in names if name in operator.plan.__code__.co_names]
        if told:
            with pytest.raises(TypeError, match=f"plan: {told[0]} is no formula: @formula is"):
                declare.register(operator)
        monkeypatch.undo()
        declare.register(operator)


SOFTMAX = openaclnn.find_operator("softmax")
ROWS = SOFTMAX.plan.__self__  # type: ignore[attr-defined]
WRONG_ROWS: dict[str, tuple[dict[str, Any], str]] = {
    "a source that is none": ({"source": "x"}, "plan: expected one of self, out, got x"),
    "a stranger read": ({"read": {"x": "full"}}, "plan: expected one of self, out, got x"),
    "a dtype of a stranger": ({"compute": "x"}, "plan: expected one of self, out, got x"),
    "a role that is none": (
        {"read": {"self": "row"}},
        "plan: self: expected one of full, positions, classes, single, losses, got row",
    ),
    "a number where the formula has a row": (
        {"read": {"self": "positions"}},
        "plan: the row formula softmax reads full, got positions",
    ),
    "nothing read": ({"read": {}}, "plan: the row formula softmax reads full, got nothing"),
    "a result of another shape": (
        {"written": {"out": "positions"}},
        "plan: the row formula softmax writes full, got positions",
    ),
}


@pytest.mark.parametrize("what", WRONG_ROWS)
def test_what_does_not_fit_a_row_formula_is_told_at_registration(what: str) -> None:
    change, said = WRONG_ROWS[what]
    before = declare.registry()
    with pytest.raises(TypeError, match="the declaration of aclnnSoftmax:") as told:
        declare.register(replace(SOFTMAX, plan=replace(ROWS, **change).plan))
    assert said in str(told.value)
    assert declare.registry() == before


def test_numbers_that_a_row_formula_lacks_are_told() -> None:
    entropy = next(operator for operator in LOG_PROBS if operator.name == "RowEntropy")
    rows = entropy.plan.__self__  # type: ignore[attr-defined]
    changed = {
        r"row_entropy takes excess: the plan's numbers are sum": {"numbers": lambda call: {"sum": 1.0}, "free": ()},
        r"the plan of row_entropy: free: expected one of .*, got sum": {"free": (Free("sum"),)},
    }  # fmt: skip
    for said, change in changed.items():
        wrong = replace(entropy, plan=replace(rows, **change).plan)
        with pytest.raises(TypeError, match=said):
            make_plain_function(wrong)(np.ones((2, 3), np.float32), excess=0.0)


def test_a_plan_over_a_stranger_is_told() -> None:
    def plan(call: Any) -> Any:
        right = ELU.plan(call)
        return replace(right, inputs=(right.inputs[0]._replace(parameter="x"), *right.inputs[1:]))

    said = "the plan of elu_backward: expected one of gradOutput, selfOrResult, gradInput, got x"
    with pytest.raises(TypeError, match=said):
        make_plain_function(replace(ELU, plan=plan))(np.ones(3, np.float32), np.ones(3, np.float32))


def test_all_that_is_wrong_is_told_at_once() -> None:
    change = {"families": frozenset({"910b"}), "parameters": named("gradOutput", dtypes=())}
    with pytest.raises(TypeError) as told:
        declare.register(replace(ELU, **change))
    assert str(told.value).count("\n  ") == 2


def test_an_operator_without_a_family_has_a_file_of_its_name() -> None:
    taken = {each.name: getattr(ELU, each.name) for each in fields(declare.Operator)}
    with pytest.raises(TypeError, match=r"file: expected elu_backward.py, .*, got elu.py"):
        declare.register(declare.Operator(**taken | {"module": ""}))


def test_two_operators_of_one_name_are_refused() -> None:
    with pytest.raises(TypeError, match=f"got that of {ELU.module}"):
        declare.register(replace(ELU, module="elsewhere.elu_backward"))


def test_free_numbers_have_the_name_of_option_and_keyword() -> None:
    """Or another call of the kind would be computed with the numbers of this one."""
    tensor, free = Tensor((2, 3), FLOAT, base=4096), (Free("max"),)
    operand, told = ("self", tensor), r"expected one of the plan's numbers \(high\), got max"
    with pytest.raises(TypeError, match=told):
        elementwise_plan("aclnnClamp", "clamp", FLOAT, [operand], operand, {"high": 1.0}, free=free)
    with pytest.raises(TypeError, match=told):
        reduced_plan(
            "aclnnClamp", "clamp", FLOAT, [operand], operand, (2, 3), {"high": 1.0}, "sum", free
        )
    with pytest.raises(TypeError, match=r"an option's Python name \(min, max\), got high"):
        _derivation(("min", "max"), 0, ("high",), (Free("high"),), (float, float))


def test_each_of_several_that_does_not_broadcast_is_refused() -> None:
    """Also where one row is about more than two."""
    losses = openaclnn.find_operator("smooth_l1_loss_backward")
    known = {"gradOut": (2, 3), "self": (2, 3), "target": (3,)}
    for name, others in (("self", "gradOut"), ("target", "gradOut, self")):
        shapes = known | {name: (4, 3)}
        arrays = [np.zeros(shape, np.float32) for shape in shapes.values()]
        error = openaclnn.explain(losses, *arrays).error
        assert error is not None
        assert error.parameter == name
        assert error.expected.endswith(f"(2, 3), the shape of {others}")


def test_what_is_written_through_const_pointers() -> None:
    """As the documents of activations have their prototypes: a form in place need not be as the other."""
    written = {
        operator.name.removeprefix("aclnn")
        for operator in openaclnn.registry()
        for output in operator.outputs
        if isinstance(operator, Activation) and output.declaration.startswith("const ")
    }
    assert written == {
        "Relu", "Hardswish", "InplaceHardswish", "InplaceHardsigmoid", "InplaceErfinv", "GeluBackward", "SquaredRelu", "Logit", "LogitGrad", "Glu",
        "GluBackward", "SwiGlu", "SwiGluGrad",
    }  # fmt: skip
    buffer = openaclnn.find_operator("log_sigmoid_forward")["buffer"]
    assert buffer.declaration == "aclTensor *buffer"
