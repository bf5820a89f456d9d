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


def given(gradient: Any, x: Any) -> Any:
    out = torch.empty_like(gradient)
    openaclnn.elu_backward(gradient, x, out=out)
    return out + 1


def module(function: Function) -> torch.nn.Module:
    members = {"forward": lambda self, gradient, x: function(gradient, x)}
    return type("Module", (torch.nn.Module,), members)()


REFUSED: dict[str, Callable[[Function], Any]] = {
    "jit.trace": lambda own: torch.jit.trace(own, FIRST, check_trace=False),
    "jit.trace of a module": lambda own: torch.jit.trace(module(own), FIRST, check_trace=False),
    "symbolic_trace": torch.fx.symbolic_trace,
    "make_fx": lambda own: make_fx(own)(*FIRST),
    "make_fx, fake": lambda own: make_fx(own, tracing_mode="fake")(*FIRST),
    "make_fx, symbolic": lambda own: make_fx(own, tracing_mode="symbolic")(*FIRST),
    "make_fx, before dispatch": lambda own: make_fx(own, pre_dispatch=True)(*FIRST),
    "functionalize": lambda own: torch.func.functionalize(own)(*FIRST),
    "export": lambda own: torch.export.export(module(own), FIRST, strict=False),
    "jvp": lambda own: torch.func.jvp(lambda x: own(FIRST[0], x), FIRST[1:], FIRST[1:]),
}


@pytest.mark.parametrize("function", [fresh, given])
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
    "compile": lambda own: torch.compile(own, backend="eager"),
    "compile, ahead of time": lambda own: torch.compile(own, backend="aot_eager"),
    "no_grad": torch.no_grad(),
    "inference_mode": torch.inference_mode(),
    "a mode that counts": counted,
    "autocast": torch.autocast("cpu"),
    "checkpoint": lambda own: lambda *a: torch.utils.checkpoint.checkpoint(own, *a, use_reentrant=False),
}  # fmt: skip


@pytest.mark.parametrize("function", [fresh, given])
@pytest.mark.parametrize("name", RIGHT)
def test_what_runs_us_as_we_are_is_right(name: str, function: Function) -> None:
    made = RIGHT[name](function)
    for arguments in (FIRST, OTHER, FIRST, OTHER):
        assert torch.equal(made(*arguments), function(*arguments))


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
    found = []

    def inside(x: Any) -> Any:
        found.extend(aclnn.aclnnEluBackward(None, 0, own, None) for own in executors)
        return x + 1

    torch.jit.trace(inside, (FIRST[0],), check_trace=False)
    assert found == [161002, 161002]
