"""Graphs of PyTorch: ours is no operation of PyTorch's, so what records those must be refused, or be right; never a
graph that leaves our work out. Before and after a fast path is open, with and without `out=`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.flop_counter import FlopCounterMode

import openaclnn
from openaclnn import aclnn

FIRST = (torch.ones(3), torch.tensor([-1.0, 2.0, -3.0]))
OTHER = (torch.full((3,), 2.0), torch.tensor([5.0, -2.0, -3.0]))
Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def fresh(gradient: Any, x: Any) -> Any:
    return openaclnn.elu_backward(gradient, x) + 1


def with_output(gradient: Any, x: Any) -> Any:
    out = torch.empty_like(gradient)
    openaclnn.elu_backward(gradient, x, out=out)
    return out + 1


def module(function: Function) -> torch.nn.Module:
    members = {"forward": lambda self, gradient, x: function(gradient, x)}
    return type("Module", (torch.nn.Module,), members)()


REFUSED: dict[str, Callable[[Function], Any]] = {
    "jit.trace": lambda function: torch.jit.trace(function, FIRST, check_trace=False),
    "jit.trace of a module": lambda function: torch.jit.trace(
        module(function), FIRST, check_trace=False
    ),
    "symbolic_trace": torch.fx.symbolic_trace,
    "make_fx": lambda function: make_fx(function)(*FIRST),
    "make_fx, fake": lambda function: make_fx(function, tracing_mode="fake")(*FIRST),
    "make_fx, symbolic": lambda function: make_fx(function, tracing_mode="symbolic")(*FIRST),
    "make_fx, before dispatch": lambda function: make_fx(function, pre_dispatch=True)(*FIRST),
    "functionalize": lambda function: torch.func.functionalize(function)(*FIRST),
    "export": lambda function: torch.export.export(module(function), FIRST, strict=False),
    "jvp": lambda function: torch.func.jvp(lambda x: function(FIRST[0], x), FIRST[1:], FIRST[1:]),
}


@pytest.mark.parametrize("function", [fresh, with_output])
@pytest.mark.parametrize("name", REFUSED)
def test_recorders_are_refused(name: str, function: Function) -> None:
    for _ in range(2):  # before the kind's road is open, and after
        with pytest.raises(openaclnn.AclnnError, match=r"gradOutput|selfOrResult") as caught:
            REFUSED[name](function)
        assert caught.value.status == 161002
        for _ in range(3):
            function(*FIRST)  # and nothing is left behind


def counted(function: Function) -> Function:
    def inside(*arguments: Any) -> Any:
        with FlopCounterMode(display=False):
            return function(*arguments)

    return inside


RIGHT: dict[str, Callable[[Function], Function]] = {
    "compile": lambda function: torch.compile(function, backend="eager"),
    "compile, ahead of time": lambda function: torch.compile(function, backend="aot_eager"),
    "no_grad": torch.no_grad(),
    "inference_mode": torch.inference_mode(),
    "a mode that counts": counted,
    "autocast": torch.autocast("cpu"),
    "checkpoint": lambda function: lambda *a: torch.utils.checkpoint.checkpoint(function, *a, use_reentrant=False),
}  # fmt: skip


@pytest.mark.parametrize("function", [fresh, with_output])
@pytest.mark.parametrize("name", RIGHT)
def test_what_runs_us_as_we_are_is_right(name: str, function: Function) -> None:
    wrapped = RIGHT[name](function)
    for arguments in (FIRST, OTHER, FIRST, OTHER):
        assert torch.equal(wrapped(*arguments), function(*arguments))


def test_the_second_phase_is_not_recorded_either() -> None:
    out = torch.zeros(3)
    executors = []
    for repeatable in (False, True):
        status, _, executor = aclnn.aclnnEluBackwardGetWorkspaceSize(
            FIRST[0], 1.0, 1.0, 1.0, False, FIRST[1], out
        )
        assert status == 0
        if repeatable:
            assert aclnn.aclSetAclOpExecutorRepeatable(executor) == 0
            assert aclnn.aclnnEluBackward(None, 0, executor, None) == 0
        executors.append(executor)
    statuses = []

    def inside(x: Any) -> Any:
        statuses.extend(aclnn.aclnnEluBackward(None, 0, prepared, None) for prepared in executors)
        return x + 1

    torch.jit.trace(inside, (FIRST[0],), check_trace=False)
    assert statuses == [161002, 161002]
