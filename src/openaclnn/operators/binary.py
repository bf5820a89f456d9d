"""Binary cross entropy, of probabilities and of logits, and its gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from openaclnn.core.declare import RESULT_CHECKED, SHARES_CHECKED, Gradient, Sample
from openaclnn.core.dtypes import FLOAT
from openaclnn.engines.formulas import losses as formulas
from openaclnn.operators import rules
from openaclnn.operators.losses import GRADIENT, REDUCED, SCALE, declare
from openaclnn.operators.sigmoids import sigmoid
from openaclnn.operators.workloads.words import KernelForm

WEIGHT = "factor of each element; ones if null"
WEIGHTS = {"weightOptional": WEIGHT, "posWeightOptional": "factor of target; ones if null"}
SHARES = "share of the first of two classes"
PROBABILITIES = {"self": "predicted probabilities", "target": SHARES}
LOGITS = {"self": "logits of predicted probabilities", "target": SHARES}
ONE_ELEMENT = "same as self for none, else one element"
POSITIVE = dict.fromkeys(("weight", "weightOptional", "posWeightOptional"), (0.0, 2.0))
UNIT = {"self": (0.0, 1.0), "target": (0.0, 1.0), **POSITIVE}

# Of probabilities. A logarithm counts as -100 at least, and a share of probabilities as 1e-12.

SURE: dict[str, Any] = {
    "self": (FLOAT, [0.2, 0.9, 0.0, 1.0]),
    "target": (FLOAT, [1.0, 0.25, 1.0, 1.0]),
    "weight": (FLOAT, [1.0, 2.0, 1.0, 0.5]),
}


def _likely(x: Any, y: Any, w: Any) -> Any:
    sure, unsure = np.maximum(np.log(x), -100), np.maximum(np.log1p(-x), -100)
    return -w * (y * sure + (1 - y) * unsure)


declare(
    "BinaryCrossEntropy", "Cross entropy of probabilities of two classes: of each element, their mean or their sum.",
    "l = -weight * (target * max(log(self), -100) + (1 - target) * max(log(1 - self), -100))" + REDUCED,
    formulas.binary_cross_entropy, _likely,
    (
        Sample("worked values", {**SURE, "reduction": "none"}, [1.6094379124341003, 3.5065578973199823, 100, 0]),
        Sample("mean", SURE, 26.278998952438522),
        Sample("sum", {**SURE, "reduction": "sum"}, 105.11599580975409),
    ),
    (
        rules.not_null("self", "target", "out"), rules.dtypes("self", "target", "out", "weight"), rules.same_dtype("self", "target", "out", "weight"),
        rules.same_shape("self", "target"), rules.reduction, rules.same_shape("self", "weight"), rules.mean_or_sum(),
    ),
    inputs={**PROBABILITIES, "weight": WEIGHT}, optional=("weight",), others="same as self", onto="self", shape=ONE_ELEMENT, domains=UNIT,
    kernels=(KernelForm("binary_cross_entropy", {"x": "self", "y": "target", "weight": "weight"}),), aten="binary_cross_entropy",
    aten_traits=(RESULT_CHECKED, SHARES_CHECKED),
    gradient=Gradient("aclnnBinaryCrossEntropyBackward", {"weightOptional": "weight"}),
)  # fmt: skip

declare(
    "BinaryCrossEntropyBackward", "Gradient of binary cross entropy with respect to the probabilities.",
    "out = gradOutput * (self - target) / max(self * (1 - self), 1e-12) * weight * k" + SCALE,
    formulas.binary_cross_entropy_backward, lambda g, x, y, w: g * (x - y) / np.maximum(x * (1 - x), 1e-12) * w,
    (
        Sample("worked values", {"grad_output": (FLOAT, 1), **SURE, "reduction": "none"}, [-5, 14.444444444444448, -1e12, 0]),
        Sample("mean", {"grad_output": (FLOAT, 2), **SURE}, [-2.5, 7.222222222222224, -5e11, 0]),
    ),
    (
        rules.not_null("gradOutput", "self", "target", "out"), rules.rank("gradOutput", "self", "target", "weightOptional", "out"),
        rules.dtypes("self", "gradOutput", "target", "out", "weightOptional"), rules.same_format("self", "target", "weightOptional"),
        *rules.unless_empty("self", rules.same_shape("self", "out"), rules.broadcasts_to("self", "target", "weightOptional", "gradOutput")),
        rules.reduction,
    ),
    inputs={"gradOutput": GRADIENT["gradOutput"], **PROBABILITIES, "weightOptional": WEIGHT}, optional=("weightOptional",), onto="self",
    kernels=(KernelForm("binary_cross_entropy_grad", {"x": "self", "y": "target", "grad_output": "gradOutput", "weight": "weightOptional"}),),
    peer="binary_cross_entropy_backward", domains=UNIT,
)  # fmt: skip

# Of logits, with s = 1 / (1 + exp(-self)) the probability. -log(s) and -log(1 - s) are softplus(-x) and softplus(x): in the document's sum
# of x and log(s) two large numbers cancel each other where x is far below 0, and for minus infinity that is NaN.

LINE: dict[str, Any] = {
    "self": (FLOAT, [-1.0, 0.0, 2.0]),
    "target": (FLOAT, [1.0, 0.5, 0.0]),
    "weight": (FLOAT, [1.0, 2.0, 0.5]),
    "pos_weight": (FLOAT, [3.0]),
}
PREDICT = {"predict": "self", "target": "target"}
WEIGHED = {"weight": "weightOptional", "pos_weight": "posWeightOptional"}
OPTIONAL = tuple(WEIGHTS)
SHARE = {"target": (0.0, 1.0), **POSITIVE}


def _softplus(x: Any) -> Any:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _surprise(x: Any, y: Any, w: Any, p: Any) -> Any:
    known = w * ((1 - y) * _softplus(x) + p * y * _softplus(-x))
    return np.where(x == -np.inf, np.nan, known)


def _by_logits(g: Any, x: Any, y: Any, w: Any, p: Any) -> Any:
    positive = p * y
    return ((1 - y) * sigmoid(x) - positive * sigmoid(-x) + (positive - positive)) * g * w


def _by_target(g: Any, x: Any, y: Any, w: Any, p: Any) -> Any:
    return (-np.maximum(x, 0) - p * np.minimum(x, 0) + (p - 1) * _softplus(-np.abs(x))) * g * w


def _derivative(by: int) -> Any:
    """PyTorch's derivative of its loss by one of the tensors."""

    def computed(torch: Any, g: Any, x: Any, y: Any, w: Any, p: Any, reduction: str) -> Any:
        def losses(moved: Any) -> Any:
            pair = (moved, y) if by == 0 else (x, moved)
            loss = torch.nn.functional.binary_cross_entropy_with_logits
            return loss(*pair, weight=w, pos_weight=p, reduction="none")

        scale = 1 / x.numel() if reduction == "mean" else 1
        return torch.func.vjp(losses, (x, y)[by])[1]((g * scale).expand_as(x))[0]

    return computed


declare(
    "BinaryCrossEntropyWithLogits", "Cross entropy of logits of two classes: of each element, their mean or their sum.",
    "s = 1 / (1 + exp(-self))\nl = weight * ((1 - target) * self - log(s) * (1 + (posWeight - 1) * target))" + REDUCED,
    formulas.binary_cross_entropy_with_logits, _surprise,
    (
        Sample("worked values", {**LINE, "reduction": "none"}, [3.939785062554669, 2.772588722239781, 1.0634640055214863]),
        Sample("mean", LINE, 2.5919459301053123),
        Sample("sum", {**LINE, "reduction": "sum"}, 7.775837790315937),
    ),
    (
        rules.not_null("self", "target", "out"), rules.dtypes("self", "target", "out", *OPTIONAL), rules.same_dtype("target", "out"), rules.reduction,
        rules.rank("self", "target", *OPTIONAL), rules.same_shape("self", "target"),
        *rules.unless_empty("self", rules.broadcasts_to("target", *OPTIONAL)),
        rules.mean_or_sum((), (1,)),
    ),
    inputs={**LOGITS, **WEIGHTS}, optional=OPTIONAL, onto="self", dtype_of="target", shape=ONE_ELEMENT, domains=SHARE,
    kernels=(KernelForm("sigmoid_cross_entropy_with_logits_v2", {**PREDICT, **WEIGHED}),), aten="binary_cross_entropy_with_logits",
    aten_traits=(RESULT_CHECKED,),
    gradient=Gradient(
        "aclnnBinaryCrossEntropyWithLogitsBackward", others={"target": Gradient("aclnnBinaryCrossEntropyWithLogitsTargetBackward")}
    ),
)  # fmt: skip


def _rules(output: str) -> tuple[Any, ...]:
    """Of both gradients."""
    return (
        rules.not_null("gradOutput", "self", "target", output), rules.rank("gradOutput", "self", "target", *OPTIONAL, output),
        rules.dtypes("gradOutput", "self", "target", *OPTIONAL, output), rules.same_dtype("target", output),
        rules.same_format("self", "target", output),
        *rules.unless_empty("self", rules.same_shape("self", "target", output), rules.broadcasts_to("self", "gradOutput", *OPTIONAL)),
        rules.reduction,
    )  # fmt: skip


GRADIENT_OF_LOGITS: dict[str, Any] = {
    "inputs": {"gradOutput": GRADIENT["gradOutput"], **LOGITS, **WEIGHTS}, "optional": OPTIONAL, "onto": "self", "dtype_of": "target", "domains": SHARE,
}  # fmt: skip
EACH: dict[str, Any] = {"grad_output": (FLOAT, [1.0, 2.0, 3.0]), **LINE, "reduction": "none"}
ONE: dict[str, Any] = {"grad_output": (FLOAT, 3.0), **LINE}

declare(
    "BinaryCrossEntropyWithLogitsBackward", "Gradient of binary cross entropy with respect to the logits.",
    "s = 1 / (1 + exp(-self)); out = ((posWeight * target + 1 - target) * s - posWeight * target) * gradOutput * weight * k" + SCALE,
    formulas.binary_cross_entropy_with_logits_backward, _by_logits,
    (
        Sample("worked values", EACH, [-2.1931757358900146, -2, 1.3211956169668235]),
        Sample("mean", ONE, [-2.1931757358900146, -1, 0.4403985389889412]),
    ),
    _rules("out"), **GRADIENT_OF_LOGITS, peer=_derivative(0),
    kernels=(KernelForm("sigmoid_cross_entropy_with_logits_grad_v2", {**PREDICT, "dout": "gradOutput", **WEIGHED}),),
)  # fmt: skip

declare(
    "BinaryCrossEntropyWithLogitsTargetBackward", "Gradient of binary cross entropy of logits with respect to the target.",
    "s = 1 / (1 + exp(-self)); gradTarget = (log(1 - s) - posWeight * log(s)) * gradOutput * weight * k" + SCALE,
    formulas.binary_cross_entropy_with_logits_target_backward, _by_target,
    (
        Sample("worked values", EACH, [3.6265233750364456, 5.545177444479562, -2.6192159668710824]),
        Sample("mean", ONE, [3.6265233750364456, 2.772588722239781, -0.8730719889570274]),
    ),
    _rules("gradTarget"), **GRADIENT_OF_LOGITS, output="gradTarget", families=frozenset({"a3", "a2"}), peer=_derivative(1),
)  # fmt: skip
