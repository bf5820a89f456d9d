"""Kernels with a class axis: which there are, what runs a plan, and plans that need them all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from openaclnn.core.dtypes import FLOAT16, FLOATS, INT32, INT64, UINT8, DType
from openaclnn.core.plan import Operand, Plan
from openaclnn.engines.cpu.classes import cross_entropy, nll
from openaclnn.engines.cpu.classes.parameters import AXES
from openaclnn.engines.cpu.simd import machine

Runner = Callable[[Sequence[int], int], int]

KERNELS: dict[str, Callable[[Plan, int], Runner]] = {
    "cross_entropy_loss_grad": cross_entropy.runner,
    "nll_loss2d_backward": nll.runner,
}
AXES_OF_POSITIONS = {"cross_entropy_loss_grad": 1, "nll_loss2d_backward": AXES}


def declines(plan: Plan) -> str | None:
    """Why no kernel here serves a plan; None if one does."""
    if plan.kernel not in KERNELS:
        return f"no CPU kernel is called {plan.kernel}"
    if len(plan.shape) > AXES_OF_POSITIONS[plan.kernel]:
        return f"its positions have {len(plan.shape)} axes"
    if plan.compute is not plan.output.dtype:
        return f"it computes in {plan.compute} and writes {plan.output.dtype}"
    if plan.compute is FLOAT16 and not machine().half:
        return "this CPU does not convert FLOAT16"
    return None


def runner(plan: Plan, lanes: int = 0) -> Runner:
    """What runs a plan: a function of the operands' addresses (the output's last) and a stream.

    It returns nonzero if a target was neither a class nor the ignored value. `lanes` is for tests.
    """
    return KERNELS[plan.kernel](plan, lanes)


def variants() -> Iterator[Plan]:
    """Plans that between them need every kernel of one dtype, for compiling ahead."""
    for dtype in FLOATS:
        for target in (INT64, INT32):
            yield _rows(dtype, target)
        for target in (INT64, INT32, UINT8):
            for classes in (nll.FEW, nll.FEW + 1):
                for single in (False, True):
                    yield _pixels(dtype, target, classes, single)


def _rows(dtype: DType, target: DType, count: int = 1 << 17, classes: int = 8) -> Plan:
    numbers: dict[str, Any] = {
        "ignore_index": -100, "mean": True, "weighted": False, "label_smoothing": 0.0,
        "zloss_scale": 0.0, "grad_zloss_given": False,
    }  # fmt: skip
    inputs = (
        Operand("target", target, (1,), role="positions"),
        Operand("gradLoss", dtype, (0,), role="single"),
        Operand("logProb", dtype, (classes,), 1),
    )
    output = Operand("out", dtype, (classes,), 1)
    kernel = "cross_entropy_loss_grad"
    return Plan("", kernel, dtype, (count,), inputs, output, numbers, classes, 0)


def _pixels(dtype: DType, target: DType, classes: int, single: bool, size: int = 1 << 17) -> Plan:
    numbers = {"ignore_index": -100, "mean": single, "total_weight_given": False}
    role = "single" if single else "positions"
    inputs = (
        Operand("target", target, (1,), role="positions"),
        Operand("gradOutput", dtype, (0 if single else 1,), role=role),
        Operand("weight", dtype, (0,), 1, role="classes"),
    )
    output = Operand("out", dtype, (1,), size)
    kernel = "nll_loss2d_backward"
    return Plan("", kernel, dtype, (size,), inputs, output, numbers, classes, 0)
