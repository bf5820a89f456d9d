"""aclnnSoftmaxCrossEntropyWithLogits: cross entropy against labels that are shares of each class, and its gradient."""

from __future__ import annotations

import numpy as np

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.declare import Sample
from openaclnn.core.dtypes import FLOAT, FLOATS
from openaclnn.core.interface import Kind, Parameter
from openaclnn.engines.formulas.softmax import softmax_cross_entropy
from openaclnn.operators.rows import Array, Rows, declare, widened

TENSORS = ("features", "labels", "loss", "backprop")
PARAMETERS = (
    Parameter("features", Kind.TENSOR, "logits", "(N, C)", FLOATS),
    Parameter("labels", Kind.TENSOR, "share of each class", "(N, C); (1, C) or (N, 1) stretch on 950", FLOATS, c_type="aclTensor *"),
    Parameter("loss", Kind.OUTPUT, "the loss of each row", "(N,)", FLOATS),
    Parameter("backprop", Kind.OUTPUT, "gradient of the features", "(N, C)", FLOATS),
)  # fmt: skip


def _labels(call: Call) -> tuple[tuple[int, ...], ...]:
    rows, classes = call.tensor("features").shape
    if call.product.is_default or call.product.tag == "950":
        return (rows, classes), (1, classes), (rows, 1)
    return ((rows, classes),)


CHECKS = (
    checks.not_null("1", *TENSORS),
    checks.dtype_in("2", *TENSORS),
    checks.same_dtype("3", "labels", "features"),
    checks.same_dtype("4", "loss", "features"),
    checks.same_dtype("5", "backprop", "features"),
    checks.rank_at_most("6", *TENSORS),
    checks.rank_is("7", "features", 2),
    checks.rank_is("8", "labels", 2),
    checks.shape_is("9", "labels", _labels, "of features"),
    checks.shape_is(
        "10", "loss", lambda call: (call.tensor("features").shape[:1],), "(N,) of features"
    ),
    checks.same_shape("11", "backprop", "features"),
)


# The loss is the sum over the classes of y * -log(softmax), backprop softmax - y, also where the labels y of a row do
# not sum to 1: then it is not the gradient. A label of 0 beside a logit of -Inf is 0 * Inf.
@widened
def reference(features: Array, labels: Array) -> tuple[Array, Array]:
    x, y = features, labels
    if not x.size:
        return np.zeros(x.shape[0], x.dtype), x
    shifted = x - x.max(axis=1, keepdims=True)
    powers = np.exp(shifted)
    total = powers.sum(axis=1, keepdims=True)
    return (y * (np.log(total) - shifted)).sum(axis=1), powers / total - y


declare(
    "SoftmaxCrossEntropyWithLogits", "Cross entropy of logits against shares of classes, and its gradient.",
    "loss[n] = sum over c of labels[n, c] * (log(sum over k of exp(x[n, k] - m)) - (x[n, c] - m)), x = features, m = the largest x[n]\n"
    "backprop = exp(x - m) / (sum over k of exp(x[n, k] - m)) - labels",
    PARAMETERS, CHECKS,
    Rows(softmax_cross_entropy.name, "features", {"features": "full", "labels": "full"}, {"loss": "positions", "backprop": "full"}), reference,
    (
        Sample(
            "a row",
            {"features": (FLOAT, [[1, 2, 3]]), "labels": (FLOAT, [[1, 0, 0]])},
            ([2.4076059644443806], [[-0.9099694268296196, 0.24472847105479767, 0.6652409557748218]]),
        ),
        Sample(
            "one row of labels for all",
            {"features": (FLOAT, [[0, 0], [3, 3]]), "labels": (FLOAT, [[1, 0]])},
            ([0.6931471805599453] * 2, [[-0.5, 0.5]] * 2),
        ),
    ),
    empty=("features",),
)  # fmt: skip
