"""A training step of cross entropy from logits: the loss with a gradient that is written for the gradient of the loss that is expected, and the gradient
for the one that comes, which is written anew if it is another.

These are no operators of the aclnn interface, and in no registry: `torch/fused_backward.py` calls them, on a GPU, and says what is expected. On a CPU, `ROW_STEP` has
loss and gradient of rows, where the loss's gradient is 1. Options and values are those of `logits.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.checks import Check
from openaclnn.core.declare import Operator, OutputSpec
from openaclnn.core.dtypes import FLOAT, FLOATS, INT64
from openaclnn.core.interface import Kind, Parameter
from openaclnn.operators import cross_entropy as interface
from openaclnn.operators import logits
from openaclnn.operators.logits import (
    INPUT,
    OPTIONS,
    PER_LOSS,
    ROW_TARGET,
    per_class,
    per_loss,
    per_row,
)
from openaclnn.operators.rows import LOSSES, Rows

LONG = 8192  # classes: of longer rows there are four numbers each
MEMORY = Parameter(
    "memory", Kind.TENSOR, "what backward passes leave for the next loss: the loss's gradient, and 1 if it was the same twice", "(2,)", (FLOAT,), weak=False
)  # fmt: skip
_TARGET = replace(ROW_TARGET, dtypes=(INT64,))
_WEIGHT = replace(OPTIONS[0], dtypes=FLOATS)
_KEPT = "what the gradient needs, of which the second is 0 if none was written"


def kept_by(shape: tuple[int, ...]) -> int:
    """FLOATs that a loss of logits of this shape keeps for its gradient, in any case."""
    images, classes, *pixels = shape
    return 4 * images * int(np.prod(pixels)) + 4 if classes > LONG else 2 + 2 * 4 * 1024


def _stray_weight(call: Call) -> str:
    known = call.tensor("input").dtype, FLOAT
    if not call.has_tensor("weightOptional"):
        return ""
    actual = call.tensor("weightOptional").dtype
    return "" if actual in known else actual.name


def _kept_shape(call: Call) -> tuple[tuple[int, ...], ...]:
    return ((kept_by(call.tensor("input").shape),),)


def _checks(needed: tuple[str, ...], loss: str, kept: str, out: str) -> tuple[Check, ...]:
    return (
        checks.not_null("1", *needed),
        checks.dtype_one_of("2", "input", FLOATS),
        checks.dtype_one_of("2", "target", (INT64,)),
        checks.dtype_one_of("2", "memory", (FLOAT,)),
        checks.dtype_one_of("2", kept, (FLOAT,)),
        checks.same_dtype("2", loss, "input"),
        checks.same_dtype("2", out, "input"),
        checks.expect(
            "2",
            "weightOptional is FLOAT, or as input",
            "weightOptional",
            "FLOAT, or the dtype of input",
            _stray_weight,
        ),
        checks.reduction_known("3", "reductionOptional"),
        checks.shape_is("4", "target", per_row, "(N, ...) of input"),
        checks.shape_is("4", "memory", lambda call: ((2,),), "(2,)"),
        checks.shape_is("4", "weightOptional", per_class, "(C,) of input"),
        checks.shape_is("4", loss, per_loss, "(N, ...) for none, one element otherwise"),
        checks.shape_is("4", kept, _kept_shape, "as many as are kept"),
        checks.same_shape("4", out, "input"),
    )


def _numbers(call: Call) -> dict[str, Any]:
    return {
        "ignore_index": call["ignoreIndex"], "label_smoothing": float(call["labelSmoothing"]), "zloss_scale": float(call["zlossScale"]),
        "mean": call.reduction == "mean",
    }  # fmt: skip


# What is kept or remembered is told by its address.
PLAN = Rows(
    "cross_entropy_ahead", "input", {"input": "full", "target": "positions", "memory": "single", "weightOptional": "classes"},
    {"lossOut": LOSSES, "keptOut": "single", "gradInputOut": "full"}, _numbers,
)  # fmt: skip
GRAD_PLAN = Rows(
    "cross_entropy_late", "input",
    {"gradLoss": LOSSES, "input": "full", "target": "positions", "kept": "single", "memory": "single", "weightOptional": "classes"},
    {"gradInputOut": "full"}, _numbers,
)  # fmt: skip
ROW_PLAN = Rows(
    "cross_entropy_row_step", "input", {"target": "positions", "input": "full", "weightOptional": "classes"},
    {"lossOut": LOSSES, "gradInputOut": "full"}, lambda call: interface.numbers_of(call, 0.0),
)  # fmt: skip


def _results(call: Call) -> tuple[OutputSpec, ...]:
    loss, (_, dtype), gradient = PLAN.results(call)
    (kept,) = _kept_shape(call)
    return loss, (kept, dtype), gradient


def _reference(input: Any, target: Any, memory: Any, weight: Any = None, **options: Any) -> Any:
    loss, top, rest = logits.reference(input, target, weight, **options)
    gradient = np.broadcast_to(memory[0], loss.shape)
    by_input = logits.reference_grad(gradient, input, top, rest, target, weight, **options)
    return loss, np.zeros(kept_by(input.shape)), by_input


def _reference_grad(
    grad_loss: Any, input: Any, target: Any, kept: Any, memory: Any, weight: Any = None, **options: Any
) -> Any:  # fmt: skip
    _, top, rest = logits.reference(input, target, weight, **options)
    return logits.reference_grad(grad_loss, input, top, rest, target, weight, **options)


STEP = Operator(
    name="CrossEntropyStep",
    summary="Cross entropy of logits, and its gradient if the loss's gradient is the expected one.",
    formula="as those of CrossEntropyLogits and CrossEntropyLogitsGrad",
    parameters=(
        INPUT, _TARGET, MEMORY, _WEIGHT, *OPTIONS[1:],
        Parameter("lossOut", Kind.OUTPUT, "the loss", PER_LOSS, FLOATS),
        Parameter("keptOut", Kind.OUTPUT, _KEPT, "(K,)", (FLOAT,)),
        Parameter("gradInputOut", Kind.OUTPUT, "gradient of input", "(N, C, ...)", FLOATS),
    ),
    families=frozenset(),
    checks=_checks(("input", "target", "memory", "lossOut", "keptOut", "gradInputOut"), "lossOut", "keptOut", "gradInputOut"),
    result=_results,
    plan=PLAN,
    reference=_reference,
)  # fmt: skip

STEP_GRAD = Operator(
    name="CrossEntropyStepGrad",
    summary="The gradient of a step, into the memory that the step may have written it into.",
    formula="as that of CrossEntropyLogitsGrad",
    parameters=(
        Parameter("gradLoss", Kind.TENSOR, "gradient of the loss", PER_LOSS, FLOATS), INPUT, _TARGET,
        Parameter("kept", Kind.TENSOR, _KEPT, "(K,)", (FLOAT,), weak=False), MEMORY, _WEIGHT, *OPTIONS[1:],
        Parameter("gradInputOut", Kind.OUTPUT, "gradient of input", "(N, C, ...)", FLOATS),
    ),
    families=frozenset(),
    checks=_checks(("gradLoss", "input", "target", "kept", "memory", "gradInputOut"), "gradLoss", "kept", "gradInputOut"),
    result=GRAD_PLAN.results,
    plan=GRAD_PLAN,
    reference=_reference_grad,
)  # fmt: skip


def _row_reference(input: Any, target: Any, weight: Any = None, **options: Any) -> Any:
    loss, top, rest = logits.reference(input, target, weight, **options)
    return loss, logits.reference_grad(np.ones(()), input, top, rest, target, weight, **options)


ROW_STEP = Operator(
    name="CrossEntropyRowStep",
    summary="Cross entropy of rows of logits, reduced, and its gradient where the loss's is 1.",
    formula="as those of CrossEntropyLogits and CrossEntropyLogitsGrad",
    parameters=(
        INPUT, _TARGET, *OPTIONS[:-1],
        Parameter("lossOut", Kind.OUTPUT, "the loss", "one element", FLOATS),
        Parameter("gradInputOut", Kind.OUTPUT, "gradient of input", "(N, C)", FLOATS),
    ),
    families=frozenset(),
    checks=(
        checks.not_null("1", "input", "target", "lossOut", "gradInputOut"),
        checks.dtype_one_of("2", "input", FLOATS),
        checks.dtype_one_of("2", "target", (INT64,)),
        checks.dtype_one_of("2", "weightOptional", (FLOAT,)),
        checks.same_dtype("2", "lossOut", "input"),
        checks.same_dtype("2", "gradInputOut", "input"),
        checks.shape_is("4", "target", per_row, "(N,) of input"),
        checks.shape_is("4", "weightOptional", per_class, "(C,) of input"),
        checks.same_shape("4", "gradInputOut", "input"),
    ),
    result=ROW_PLAN.results,
    plan=ROW_PLAN,
    reference=_row_reference,
)  # fmt: skip
