"""A training step of cross entropy from logits. `STEP` computes the loss, and with it already the gradient of the logits, for an expected gradient of the loss;
`STEP_GRAD` is the backward pass, which writes the gradient again only if the loss's gradient is another than expected.

These are inner operators (`inner.py`): `torch/fused_backward.py` calls them on a GPU, and says which gradient of the loss is expected. On a CPU, `ROW_STEP`
computes loss and gradient of rows, where the loss's gradient is 1. Options and values are those of `logits.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.dtypes import FLOATS, INT64
from openaclnn.operators import cross_entropy as interface, logits
from openaclnn.operators.inner import inner_operator
from openaclnn.operators.logits import OPTIONS
from openaclnn.operators.rows import LOSSES

LONG = 8192  # classes; of longer rows, two numbers each are kept
FORMULA = "as those of CrossEntropyLogits and CrossEntropyLogitsGrad"
DTYPES = {"target": (INT64,), "weightOptional": FLOATS}


def kept_by(shape: tuple[int, ...]) -> int:
    """FLOATs that a loss of logits of this shape keeps for its gradient, in any case."""
    images, classes, *pixels = shape
    return 2 * images * int(np.prod(pixels)) + 4 if classes > LONG else 2 + 2 * 4 * 1024


def _kept_shape(call: Call) -> tuple[int, ...]:
    return (kept_by(call.tensor("input").shape),)


def _memory_shape(call: Call) -> tuple[int, ...]:
    return (2,)


def _numbers(call: Call) -> dict[str, Any]:
    return {
        "ignore_index": call["ignoreIndex"], "label_smoothing": float(call["labelSmoothing"]), "zloss_scale": float(call["zlossScale"]),
        "mean": call.reduction == "mean",
    }  # fmt: skip


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


# `kept` and `memory` are passed to kernels by address.
STEP = inner_operator(
    "CrossEntropyStep", "Cross entropy of logits, and its gradient if the loss's gradient is the expected one.", FORMULA, "cross_entropy_ahead",
    {"input": "full", "target": "positions", "memory": "single", "weightOptional": "classes"},
    {"lossOut": LOSSES, "keptOut": "single", "gradInputOut": "full"}, _reference, (), OPTIONS, numbers=_numbers, dtypes=DTYPES,
    shapes={"memory": _memory_shape, "keptOut": _kept_shape},
)  # fmt: skip

STEP_GRAD = inner_operator(
    "CrossEntropyStepGrad", "The gradient of a step, into the memory that the step may have written it into.", FORMULA, "cross_entropy_late",
    {"gradLoss": LOSSES, "input": "full", "target": "positions", "kept": "single", "memory": "single", "weightOptional": "classes"},
    {"gradInputOut": "full"}, _reference_grad, (), OPTIONS, numbers=_numbers, dtypes=DTYPES,
    shapes={"memory": _memory_shape, "kept": _kept_shape}, rules=(checks.same_dtype("5", "gradLoss", "input"),),
)  # fmt: skip


def _row_reference(input: Any, target: Any, weight: Any = None, **options: Any) -> Any:
    loss, top, rest = logits.reference(input, target, weight, **options)
    return loss, logits.reference_grad(np.ones(()), input, top, rest, target, weight, **options)


ROW_STEP = inner_operator(
    "CrossEntropyRowStep", "Cross entropy of rows of logits, reduced, and its gradient where the loss's is 1.", FORMULA, "cross_entropy_row_step",
    {"input": "full", "target": "positions", "weightOptional": "classes"}, {"lossOut": LOSSES, "gradInputOut": "full"}, _row_reference, (),
    OPTIONS[:-1], numbers=lambda call: interface.numbers_of(call, 0.0), order=("target", "input", "weightOptional"), dtypes={"target": (INT64,)},
)  # fmt: skip
