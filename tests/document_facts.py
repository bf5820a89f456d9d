"""What the documents print of their operators, as tests compare declarations with it.

An operator without a document has no entry here: tests of these facts iterate this table, not the registry.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["BFLOAT16_FAMILIES", "FACTS", "Facts"]

BFLOAT16_FAMILIES = {"950", "a3", "a2"}


class Facts(NamedTuple):
    """One document: phase one's own parameters, where the operator is, its header; and the plain call made of it."""

    parameters: str
    families: set[str]
    missing: int  # the status on a family without it
    header: str
    signature: str


FACTS = {
    "aclnnNLLLoss2dBackward": Facts(
        "const aclTensor *gradOutput, const aclTensor *self, const aclTensor *target, const aclTensor *weight, "
        "int64_t reduction, int64_t ignoreIndex, aclTensor *totalWeight, aclTensor *out",
        {"950", "a3", "a2", "910"},
        561103,
        "aclnnop/aclnn_nll_loss2d_backward.h",
        "(grad_output, self, target, weight, *, reduction='mean', ignore_index=-100, total_weight=None, "
        "out=None, product=None)",
    ),
    "aclnnSmoothL1LossBackward": Facts(
        "const aclTensor *gradOut, const aclTensor *self, const aclTensor *target, "
        "int64_t reduction, float beta, aclTensor *gradInput",
        {"950", "a3", "a2", "310p", "910"},
        561103,
        "aclnnop/aclnn_smooth_l1_loss_backward.h",
        "(grad_out, self, target, *, reduction='mean', beta=1.0, out=None, product=None)",
    ),
    "aclnnCrossEntropyLossGrad": Facts(
        "const aclTensor *gradLoss, const aclTensor *logProb, const aclTensor *target, "
        "const aclTensor *weightOptional, const aclTensor *gradZlossOptional, "
        "const aclTensor *lseForZlossOptional, char *reductionOptional, int64_t ignoreIndex, "
        "double labelSmoothing, double lseSquareScaleForZloss, const aclTensor *out",
        {"950", "a3", "a2"},
        561003,
        "aclnnop/aclnn_cross_entropy_loss_grad.h",
        "(grad_loss, log_prob, target, *, weight=None, grad_zloss=None, lse_for_zloss=None, reduction='mean', "
        "ignore_index=-100, label_smoothing=0.0, lse_square_scale_for_zloss=0.0, out=None, product=None)",
    ),
    "aclnnL1LossBackward": Facts(
        "const aclTensor *gradOutput, const aclTensor *self, const aclTensor *target, int64_t reduction, "
        "aclTensor *gradInput",
        {"950", "a3", "a2", "310p", "910"},
        561103,
        "aclnnop/aclnn_l1_loss_backward.h",
        "(grad_output, self, target, *, reduction='mean', out=None, product=None)",
    ),
    "aclnnEluBackward": Facts(
        "const aclTensor *gradOutput, const aclScalar *alpha, const aclScalar *scale, "
        "const aclScalar *inputScale, bool isResult, const aclTensor *selfOrResult, aclTensor *gradInput",
        {"950", "a3", "a2", "310p", "910"},
        561103,
        "aclnnop/aclnn_elu_backward.h",
        "(grad_output, self_or_result, *, alpha=1.0, scale=1.0, input_scale=1.0, is_result=False, "
        "out=None, product=None)",
    ),
    "aclnnElu": Facts(
        "const aclTensor *self, const aclScalar *alpha, const aclScalar *scale, "
        "const aclScalar *inputScale, aclTensor *out",
        {"950", "a3", "a2", "310p", "910"},
        561103,
        "aclnnop/aclnn_elu.h",
        "(self, *, alpha=1.0, scale=1.0, input_scale=1.0, out=None, product=None)",
    ),
    "aclnnL1Loss": Facts(
        "const aclTensor *self, const aclTensor *target, int64_t reduction, aclTensor *out",
        {"950", "a3", "a2", "310p", "910"},
        561103,
        "aclnnop/aclnn_l1_loss.h",
        "(self, target, *, reduction='mean', out=None, product=None)",
    ),
    "aclnnSmoothL1Loss": Facts(
        "const aclTensor *self, const aclTensor *target, int64_t reduction, float beta, aclTensor *result",
        {"950", "a3", "a2", "310p", "910"},
        561103,
        "aclnnop/aclnn_smooth_l1_loss.h",
        "(self, target, *, reduction='mean', beta=1.0, out=None, product=None)",
    ),
    "aclnnNLLLoss2d": Facts(
        "const aclTensor *self, const aclTensor *target, const aclTensor *weight, int64_t reduction, "
        "int64_t ignoreIndex, aclTensor *out, aclTensor *totalWeightOut",
        {"950", "a3", "a2", "310p", "910"},
        561103,
        "aclnnop/aclnn_nll_loss2d.h",
        "(self, target, weight, *, reduction='mean', ignore_index=-100, out=None, product=None)",
    ),
    "aclnnNLLLoss": Facts(
        "const aclTensor *self, const aclTensor *target, const aclTensor *weight, int64_t reduction, "
        "int64_t ignoreIndex, aclTensor *out, aclTensor *totalWeightOut",
        {"950", "a3", "a2", "310p", "910"},
        561103,
        "aclnnop/aclnn_nll_loss.h",
        "(self, target, weight, *, reduction='mean', ignore_index=-100, out=None, product=None)",
    ),
    "aclnnNLLLossBackward": Facts(
        "const aclTensor *gradOutput, const aclTensor *self, const aclTensor *target, const aclTensor *weight, "
        "int64_t reduction, int64_t ignoreIndex, const aclTensor *totalWeight, aclTensor *out",
        {"950", "a3", "a2", "910"},
        561103,
        "aclnnop/aclnn_nll_loss_backward.h",
        "(grad_output, self, target, weight, *, reduction='mean', ignore_index=-100, total_weight=None, "
        "out=None, product=None)",
    ),
    "aclnnCrossEntropyLoss": Facts(
        "const aclTensor *input, const aclTensor *target, const aclTensor *weightOptional, "
        "char *reductionOptional, int64_t ignoreIndex, double labelSmoothing, "
        "double lseSquareScaleForZloss, bool returnZloss, const aclTensor *lossOut, "
        "const aclTensor *logProbOut, const aclTensor *zlossOut, const aclTensor *lseForZlossOut",
        {"950", "a3", "a2"},
        561003,
        "aclnnop/aclnn_cross_entropy_loss.h",
        "(input, target, *, weight=None, reduction='mean', ignore_index=-100, label_smoothing=0.0, "
        "lse_square_scale_for_zloss=0.0, return_zloss=False, out=None, product=None)",
    ),
    "aclnnInplaceElu": Facts(
        "aclTensor *selfRef, const aclScalar *alpha, const aclScalar *scale, "
        "const aclScalar *inputScale",
        {"950", "a3", "a2", "310p", "910"},
        561103,
        "aclnnop/aclnn_elu.h",
        "(self_ref, *, alpha=1.0, scale=1.0, input_scale=1.0, product=None)",
    ),
    "aclnnSoftmax": Facts(
        "const aclTensor *self, int64_t dim, aclTensor *out",
        {"950", "a3", "a2", "310b", "310p", "910"},
        561103,
        "aclnnop/aclnn_softmax.h",
        "(self, *, dim=-1, out=None, product=None)",
    ),
    "aclnnSoftmaxBackward": Facts(
        "const aclTensor *gradOutput, const aclTensor *output, int64_t dim, aclTensor *out",
        {"950", "a3", "a2", "310p", "910"},
        561103,
        "aclnnop/aclnn_softmax_backward.h",
        "(grad_output, output, *, dim=-1, out=None, product=None)",
    ),
    "aclnnLogSoftmax": Facts(
        "const aclTensor *self, int64_t dim, aclTensor *out",
        {"950", "a3", "a2", "310p", "910"},
        561103,
        "aclnnop/aclnn_logsoftmax.h",
        "(self, *, dim=-1, out=None, product=None)",
    ),
    "aclnnLogSoftmaxBackward": Facts(
        "const aclTensor *gradOutput, const aclTensor *output, int64_t dim, aclTensor *out",
        {"950", "a3", "a2", "310p", "910"},
        561103,
        "aclnnop/aclnn_logsoftmax_backward.h",
        "(grad_output, output, *, dim=-1, out=None, product=None)",
    ),
    "aclnnSoftmaxCrossEntropyWithLogits": Facts(
        "const aclTensor *features, aclTensor *labels, aclTensor *loss, aclTensor *backprop",
        {"950", "a3", "a2", "310p", "910"},
        561103,
        "aclnnop/aclnn_softmax_cross_entropy_with_logits.h",
        "(features, labels, *, out=None, product=None)",
    ),
}
