# Written by `python -m tools.stubs` from the operators' declarations.
from typing import Any, NamedTuple

import numpy as np

from openaclnn.engines.dispatch import use_engine as use_engine
from openaclnn.calls.explain import explain as explain
from openaclnn.core.products import use_product as use_product
from openaclnn.core.results import clear_results as clear_results
from openaclnn.core.results import set_result_memory as set_result_memory
from openaclnn.core.status import AclnnError as AclnnError
from openaclnn.core.status import Status as Status
from openaclnn.core.tensor import Scalar as Scalar
from openaclnn.core.tensor import Tensor as Tensor
from openaclnn.engines.threads import get_num_threads as get_num_threads
from openaclnn.engines.threads import set_num_threads as set_num_threads
from openaclnn.engines.threads import use_threads_of as use_threads_of
from openaclnn.operators import find_operator as find_operator
from openaclnn.operators import registry as registry
from openaclnn.operators import support_table as support_table

ArrayLike = Any
Number = float | np.number[Any] | Scalar

__version__: str

class CrossEntropyLossResult(NamedTuple):
    loss: Any
    log_prob: Any
    zloss: Any
    lse_for_zloss: Any

def cross_entropy_loss(
    input: ArrayLike,
    target: ArrayLike,
    *,
    weight: ArrayLike | None = None,
    reduction: str | int = 'mean',
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    lse_square_scale_for_zloss: float = 0.0,
    return_zloss: bool = False,
    out: Any = None,
    product: str | None = None,
) -> CrossEntropyLossResult:
    """Cross entropy of logits, with class weights, label smoothing and z-loss; and the log-probabilities."""

def cross_entropy_loss_grad(
    grad_loss: ArrayLike,
    log_prob: ArrayLike,
    target: ArrayLike,
    *,
    weight: ArrayLike | None = None,
    grad_zloss: ArrayLike | None = None,
    lse_for_zloss: ArrayLike | None = None,
    reduction: str | int = 'mean',
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    lse_square_scale_for_zloss: float = 0.0,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """Gradient of the cross entropy loss, with class weights, label smoothing and z-loss."""

def elu(
    self: ArrayLike,
    *,
    alpha: Number = 1.0,
    scale: Number = 1.0,
    input_scale: Number = 1.0,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """The exponential linear unit."""

def inplace_elu(
    self_ref: Any,
    *,
    alpha: Number = 1.0,
    scale: Number = 1.0,
    input_scale: Number = 1.0,
    product: str | None = None,
) -> Any:
    """The exponential linear unit, written over its input."""

def elu_backward(
    grad_output: ArrayLike,
    self_or_result: ArrayLike,
    *,
    alpha: Number = 1.0,
    scale: Number = 1.0,
    input_scale: Number = 1.0,
    is_result: bool = False,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """Gradient of the ELU activation with respect to its input."""

def l1_loss(
    self: ArrayLike,
    target: ArrayLike,
    *,
    reduction: str | int = 'mean',
    out: Any = None,
    product: str | None = None,
) -> Any:
    """The absolute error: of each element, their mean or their sum."""

def l1_loss_backward(
    grad_output: ArrayLike,
    self: ArrayLike,
    target: ArrayLike,
    *,
    reduction: str | int = 'mean',
    out: Any = None,
    product: str | None = None,
) -> Any:
    """Gradient of the mean absolute error with respect to the predictions."""

def smooth_l1_loss(
    self: ArrayLike,
    target: ArrayLike,
    *,
    reduction: str | int = 'mean',
    beta: float = 1.0,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """The smooth L1 (Huber-like) loss: of each element, their mean or their sum."""

def smooth_l1_loss_backward(
    grad_out: ArrayLike,
    self: ArrayLike,
    target: ArrayLike,
    *,
    reduction: str | int = 'mean',
    beta: float = 1.0,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """Gradient of the smooth L1 (Huber-like) loss with respect to the predictions."""

class NLLLossResult(NamedTuple):
    out: Any
    total_weight: Any

def nll_loss(
    self: ArrayLike,
    target: ArrayLike,
    weight: ArrayLike,
    *,
    reduction: str | int = 'mean',
    ignore_index: int = -100,
    out: Any = None,
    product: str | None = None,
) -> NLLLossResult:
    """The negative log-likelihood loss: of each row, their mean or their sum; and the total weight."""

def nll_loss_backward(
    grad_output: ArrayLike,
    self: ArrayLike,
    target: ArrayLike,
    weight: ArrayLike,
    *,
    reduction: str | int = 'mean',
    ignore_index: int = -100,
    total_weight: ArrayLike | None = None,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """Gradient of the negative log-likelihood loss with respect to the log-probabilities."""

class NLLLoss2dResult(NamedTuple):
    out: Any
    total_weight: Any

def nll_loss2d(
    self: ArrayLike,
    target: ArrayLike,
    weight: ArrayLike,
    *,
    reduction: str | int = 'mean',
    ignore_index: int = -100,
    out: Any = None,
    product: str | None = None,
) -> NLLLoss2dResult:
    """The negative log-likelihood loss per pixel: of each, their mean or their sum; and the total weight."""

def nll_loss2d_backward(
    grad_output: ArrayLike,
    self: ArrayLike,
    target: ArrayLike,
    weight: ArrayLike,
    *,
    reduction: str | int = 'mean',
    ignore_index: int = -100,
    total_weight: ArrayLike | None = None,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """Gradient of the per-pixel negative log-likelihood loss with respect to the log-probabilities."""

def relu(
    self: ArrayLike,
    *,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """x where it is positive, 0 elsewhere."""

def inplace_relu(
    self_ref: Any,
    *,
    product: str | None = None,
) -> Any:
    """x where it is positive, 0 elsewhere, written over its input."""

def leaky_relu(
    self: ArrayLike,
    *,
    negative_slope: Number = 0.01,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """x where it is positive, a multiple of it elsewhere."""

def inplace_leaky_relu(
    self_ref: Any,
    *,
    negative_slope: Number = 0.01,
    product: str | None = None,
) -> Any:
    """x where it is positive, a multiple of it elsewhere, written over its input."""

def leaky_relu_backward(
    grad_output: ArrayLike,
    self: ArrayLike,
    *,
    negative_slope: Number = 0.01,
    self_is_result: bool = False,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """Gradient of leaky ReLU with respect to its input."""

def squared_relu(
    input: ArrayLike,
    *,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """The square of x where it is positive, 0 elsewhere."""

def add_relu(
    self: ArrayLike,
    other: ArrayLike,
    *,
    alpha: Number = 1,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """A tensor and a multiple of another, where their sum is positive, 0 elsewhere."""

def inplace_add_relu(
    self_ref: Any,
    other: ArrayLike,
    *,
    alpha: Number = 1,
    product: str | None = None,
) -> Any:
    """A tensor and a multiple of another, where their sum is positive, 0 elsewhere, written over its input."""

def threshold(
    self: ArrayLike,
    *,
    threshold: Number = 0.0,
    value: Number = 0.0,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """x where it is above a threshold, a value elsewhere."""

def inplace_threshold(
    self_ref: Any,
    *,
    threshold: Number = 0.0,
    value: Number = 0.0,
    product: str | None = None,
) -> Any:
    """x where it is above a threshold, a value elsewhere, written over its input."""

def threshold_backward(
    grad_output: ArrayLike,
    self: ArrayLike,
    *,
    threshold: Number = 0.0,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """Gradient of the threshold with respect to its input."""

def hardtanh_backward(
    grad_output: ArrayLike,
    self: ArrayLike,
    *,
    min: Number = -1.0,
    max: Number = 1.0,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """Gradient of clamping between two bounds with respect to its input."""

def heaviside(
    input: ArrayLike,
    values: ArrayLike,
    *,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """The step function, with values of the caller's where x is 0."""

def hardshrink(
    self: ArrayLike,
    *,
    lambd: Number = 0.5,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """x where it is larger than lambd in size, 0 elsewhere."""

def hardshrink_backward(
    grad_output: ArrayLike,
    self: ArrayLike,
    *,
    lambd: Number = 0.5,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """Gradient of hard shrinking with respect to its input."""

def softshrink(
    self: ArrayLike,
    *,
    lambd: Number = 0.5,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """x moved towards 0 by lambd, and 0 where it is not larger in size."""

def softshrink_backward(
    grad_output: ArrayLike,
    self: ArrayLike,
    *,
    lambd: Number = 0.5,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """Gradient of soft shrinking with respect to its input."""

def shrink(
    self: ArrayLike,
    *,
    lambd: Number = 0.5,
    bias: Number = 0.0,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """x moved towards 0 by a bias, and 0 where it is not larger than lambd in size."""

def sigmoid(
    self: ArrayLike,
    *,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """The logistic function."""

def inplace_sigmoid(
    self_ref: Any,
    *,
    product: str | None = None,
) -> Any:
    """The logistic function, written over its input."""

def sigmoid_backward(
    grad_output: ArrayLike,
    output: ArrayLike,
    *,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """Gradient of the logistic function, from its output."""

def silu(
    self: ArrayLike,
    *,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """x times its logistic function."""

def silu_backward(
    grad_output: ArrayLike,
    self: ArrayLike,
    *,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """Gradient of SiLU with respect to its input."""

def swish(
    self: ArrayLike,
    *,
    beta: Number = 1.0,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """x times the logistic function of a multiple of it."""

def swish_backward(
    grad_output: ArrayLike,
    self: ArrayLike,
    *,
    beta: Number = 1.0,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """Gradient of Swish with respect to its input."""

def fast_gelu(
    self: ArrayLike,
    *,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """x times the logistic function of 1.702 x."""

def fast_gelu_backward(
    grad_output: ArrayLike,
    self: ArrayLike,
    *,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """Gradient of the fast GELU with respect to its input."""

def log_sigmoid(
    self: ArrayLike,
    *,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """The logarithm of the logistic function."""

def log_sigmoid_forward(
    self: ArrayLike,
    *,
    buffer: ArrayLike | None = None,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """The logarithm of the logistic function."""

def log_sigmoid_backward(
    grad_output: ArrayLike,
    self: ArrayLike,
    buffer: ArrayLike,
    *,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """Gradient of the logarithm of the logistic function with respect to its input."""

def softplus(
    self: ArrayLike,
    *,
    beta: Number = 1.0,
    threshold: Number = 20.0,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """A smooth form of ReLU: the logarithm of 1 + exp(beta x), divided by beta."""

def softplus_backward(
    grad_output: ArrayLike,
    self: ArrayLike,
    *,
    beta: Number = 1.0,
    threshold: Number = 20.0,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """Gradient of softplus with respect to its input."""

def mish(
    self: ArrayLike,
    *,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """x times the hyperbolic tangent of its softplus."""

def inplace_mish(
    self_ref: Any,
    *,
    product: str | None = None,
) -> Any:
    """x times the hyperbolic tangent of its softplus, written over its input."""

def mish_backward(
    grad_output: ArrayLike,
    self: ArrayLike,
    *,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """Gradient of Mish with respect to its input."""

def logit(
    input: ArrayLike,
    *,
    eps: float = -1.0,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """The logarithm of the odds: the inverse of the logistic function."""

def logit_grad(
    x: ArrayLike,
    dy: ArrayLike,
    *,
    eps: float = -1.0,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """Gradient of the logarithm of the odds with respect to its input."""

def hardsigmoid(
    self: ArrayLike,
    *,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """A line between 0 and 1 in place of the logistic function."""

def inplace_hardsigmoid(
    self: Any,
    *,
    product: str | None = None,
) -> Any:
    """A line between 0 and 1 in place of the logistic function, written over its input."""

def hardsigmoid_backward(
    grad_output: ArrayLike,
    self: ArrayLike,
    *,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """Gradient of the hard sigmoid with respect to its input."""

def hardswish(
    self: ArrayLike,
    *,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """x times a line between 0 and 1."""

def inplace_hardswish(
    self: Any,
    *,
    product: str | None = None,
) -> Any:
    """x times a line between 0 and 1, written over its input."""

def hardswish_backward(
    grad_output: ArrayLike,
    self: ArrayLike,
    *,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """Gradient of the hard Swish with respect to its input, with bent ends."""

def hardswish_backward_v2(
    grad_output: ArrayLike,
    self: ArrayLike,
    *,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """Gradient of the hard Swish with respect to its input."""

def gelu(
    self: ArrayLike,
    *,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """The Gaussian error linear unit, by the hyperbolic tangent."""

def gelu_v2(
    x: ArrayLike,
    *,
    approximate: int = 0,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """The Gaussian error linear unit, by the error function or by the hyperbolic tangent."""

def gelu_backward(
    grad_output: ArrayLike,
    self: ArrayLike,
    *,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """Gradient of the Gaussian error linear unit by the hyperbolic tangent."""

def gelu_backward_v2(
    grad_output: ArrayLike,
    self: ArrayLike,
    *,
    approximate: str = 'none',
    out: Any = None,
    product: str | None = None,
) -> Any:
    """Gradient of the Gaussian error linear unit, by the error function or by the hyperbolic tangent."""

def glu(
    self: ArrayLike,
    *,
    dim: int = -1,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """The first half of x along an axis, times the logistic function of the second."""

def glu_backward(
    grad_out: ArrayLike,
    self: ArrayLike,
    *,
    dim: int = -1,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """Gradient of the gated linear unit with respect to its input."""

def swi_glu(
    x: ArrayLike,
    *,
    dim: int = -1,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """SiLU of the first half of x along an axis, times the second."""

def swi_glu_grad(
    y_grad: ArrayLike,
    x: ArrayLike,
    *,
    dim: int = -1,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """Gradient of SwiGLU with respect to its input."""

class GeGluResult(NamedTuple):
    out: Any
    out_gelu: Any

def ge_glu(
    self: ArrayLike,
    *,
    dim: int = -1,
    approximate: int = 1,
    out: Any = None,
    product: str | None = None,
) -> GeGluResult:
    """One half of x along an axis, times GELU of the other, which is the second output."""

def ge_glu_backward(
    grad_output: ArrayLike,
    self: ArrayLike,
    gelu: ArrayLike,
    *,
    dim: int = -1,
    approximate: int = 1,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """Gradient of GeGLU with respect to its input, with the forward's second output."""

class GeGluV3Result(NamedTuple):
    out: Any
    out_gelu: Any

def ge_glu_v3(
    self: ArrayLike,
    *,
    dim: int = -1,
    approximate: int = 1,
    activate_left: bool = False,
    out: Any = None,
    product: str | None = None,
) -> GeGluV3Result:
    """One half of x along an axis, times GELU of the other, which is the second output."""

def ge_glu_v3_backward(
    grad_output: ArrayLike,
    self: ArrayLike,
    gelu: ArrayLike,
    *,
    dim: int = -1,
    approximate: int = 1,
    activate_left: bool = False,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """Gradient of GeGLU with respect to its input, with the forward's second output."""

def selu(
    self: ArrayLike,
    *,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """The exponential linear unit that keeps mean and variance."""

def inplace_selu(
    self_ref: Any,
    *,
    product: str | None = None,
) -> Any:
    """The exponential linear unit that keeps mean and variance, written over its input."""

def selu_backward(
    grad_output: ArrayLike,
    result: ArrayLike,
    *,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """Gradient of SELU, from its output."""

def celu(
    self: ArrayLike,
    *,
    alpha: Number = 1.0,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """The exponential linear unit whose slope has no step."""

def inplace_celu(
    self_ref: Any,
    *,
    alpha: Number = 1.0,
    product: str | None = None,
) -> Any:
    """The exponential linear unit whose slope has no step, written over its input."""

def erfinv(
    self: ArrayLike,
    *,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """The inverse of the error function."""

def inplace_erfinv(
    self_ref: Any,
    *,
    product: str | None = None,
) -> Any:
    """The inverse of the error function, written over its input."""

class SoftmaxCrossEntropyWithLogitsResult(NamedTuple):
    loss: Any
    backprop: Any

def softmax_cross_entropy_with_logits(
    features: ArrayLike,
    labels: ArrayLike,
    *,
    out: Any = None,
    product: str | None = None,
) -> SoftmaxCrossEntropyWithLogitsResult:
    """Cross entropy of logits against shares of classes, and its gradient."""

def binary_cross_entropy(
    self: ArrayLike,
    target: ArrayLike,
    *,
    weight: ArrayLike | None = None,
    reduction: str | int = 'mean',
    out: Any = None,
    product: str | None = None,
) -> Any:
    """Cross entropy of probabilities of two classes: of each element, their mean or their sum."""

def binary_cross_entropy_backward(
    grad_output: ArrayLike,
    self: ArrayLike,
    target: ArrayLike,
    *,
    weight: ArrayLike | None = None,
    reduction: str | int = 'mean',
    out: Any = None,
    product: str | None = None,
) -> Any:
    """Gradient of binary cross entropy with respect to the probabilities."""

def binary_cross_entropy_with_logits(
    self: ArrayLike,
    target: ArrayLike,
    *,
    weight: ArrayLike | None = None,
    pos_weight: ArrayLike | None = None,
    reduction: str | int = 'mean',
    out: Any = None,
    product: str | None = None,
) -> Any:
    """Cross entropy of logits of two classes: of each element, their mean or their sum."""

def binary_cross_entropy_with_logits_backward(
    grad_output: ArrayLike,
    self: ArrayLike,
    target: ArrayLike,
    *,
    weight: ArrayLike | None = None,
    pos_weight: ArrayLike | None = None,
    reduction: str | int = 'mean',
    out: Any = None,
    product: str | None = None,
) -> Any:
    """Gradient of binary cross entropy with respect to the logits."""

def binary_cross_entropy_with_logits_target_backward(
    grad_output: ArrayLike,
    self: ArrayLike,
    target: ArrayLike,
    *,
    weight: ArrayLike | None = None,
    pos_weight: ArrayLike | None = None,
    reduction: str | int = 'mean',
    out: Any = None,
    product: str | None = None,
) -> Any:
    """Gradient of binary cross entropy of logits with respect to the target."""

def kl_div_backward(
    grad_output: ArrayLike,
    self: ArrayLike,
    target: ArrayLike,
    *,
    reduction: str | int = 'mean',
    log_target: bool = False,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """Gradient of the Kullback-Leibler divergence with respect to the predictions."""

def kl_div_target_backward(
    grad_output: ArrayLike,
    self: ArrayLike,
    target: ArrayLike,
    *,
    reduction: str | int = 'mean',
    log_target: bool = False,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """Gradient of the Kullback-Leibler divergence with respect to the target."""

def mse_loss(
    self: ArrayLike,
    target: ArrayLike,
    *,
    reduction: str | int = 'mean',
    out: Any = None,
    product: str | None = None,
) -> Any:
    """The squared error: of each element, their mean or their sum."""

def mse_loss_out(
    self: ArrayLike,
    target: ArrayLike,
    *,
    reduction: str | int = 'mean',
    out: Any = None,
    product: str | None = None,
) -> Any:
    """The squared error: of each element, or their mean or sum along the first axis."""

def mse_loss_backward(
    grad_output: ArrayLike,
    self: ArrayLike,
    target: ArrayLike,
    *,
    reduction: str | int = 'mean',
    out: Any = None,
    product: str | None = None,
) -> Any:
    """Gradient of the squared error with respect to the predictions."""

def soft_margin_loss(
    self: ArrayLike,
    target: ArrayLike,
    *,
    reduction: str | int = 'mean',
    out: Any = None,
    product: str | None = None,
) -> Any:
    """The logistic loss of two classes, -1 and 1: of each element, their mean or their sum."""

def soft_margin_loss_backward(
    grad_output: ArrayLike,
    self: ArrayLike,
    target: ArrayLike,
    *,
    reduction: str | int = 'mean',
    out: Any = None,
    product: str | None = None,
) -> Any:
    """Gradient of the soft margin loss with respect to the predictions."""

def softmax(
    self: ArrayLike,
    *,
    dim: int = -1,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """The exponentials along an axis, as shares of their sum."""

def log_softmax(
    self: ArrayLike,
    *,
    dim: int = -1,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """The logarithms of softmax's shares along an axis."""

def softmax_backward(
    grad_output: ArrayLike,
    output: ArrayLike,
    *,
    dim: int = -1,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """Gradient of softmax with respect to its input, from its result."""

def log_softmax_backward(
    grad_output: ArrayLike,
    output: ArrayLike,
    *,
    dim: int = -1,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """Gradient of log-softmax with respect to its input, from its result."""

def prelu(
    self: ArrayLike,
    weight: ArrayLike,
    *,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """x where it is positive, a multiple of it elsewhere, by a slope for each channel."""

class PreluBackwardResult(NamedTuple):
    grad_input: Any
    grad_weight: Any

def prelu_backward(
    grad_output: ArrayLike,
    self: ArrayLike,
    weight: ArrayLike,
    *,
    out: Any = None,
    product: str | None = None,
) -> PreluBackwardResult:
    """Gradients of PReLU with respect to its input and its slopes."""

class MultilabelMarginLossResult(NamedTuple):
    out: Any
    is_target: Any

def multilabel_margin_loss(
    self: ArrayLike,
    target: ArrayLike,
    *,
    reduction: str | int = 'mean',
    out: Any = None,
    product: str | None = None,
) -> MultilabelMarginLossResult:
    """Multi-label margin loss: labels against all classes that are none."""

class CrossEntropySumExpAndIndexLogitResult(NamedTuple):
    predicted_logits: Any
    sum_exp_logits: Any
    exp_logits: Any
    target_offset: Any
    target_mask: Any

def cross_entropy_sum_exp_and_index_logit(
    vocab_parallel_logits: ArrayLike,
    target: ArrayLike,
    global_logits_max: ArrayLike,
    vocab_start_index: int,
    vocab_end_index: int,
    *,
    out: Any = None,
    product: str | None = None,
) -> CrossEntropySumExpAndIndexLogitResult:
    """What a rank with some columns of the vocabulary adds to the cross entropy of each row."""

class FusedCrossEntropyLossWithMaxSumResult(NamedTuple):
    loss: Any
    soft_max: Any

def fused_cross_entropy_loss_with_max_sum(
    logits_max: ArrayLike,
    sum_exp_logits: ArrayLike,
    predicted_logits: ArrayLike,
    *,
    label_smoothing: float = 0.0,
    input: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    vocab_parallel_logits: ArrayLike | None = None,
    out: Any = None,
    product: str | None = None,
) -> FusedCrossEntropyLossWithMaxSumResult:
    """Cross entropy of each row from the largest logits and sums of all ranks, and this rank's columns of softmax."""

class FusedLinearOnlineMaxSumResult(NamedTuple):
    logits_max_local: Any
    sum_exp_logits_local: Any
    predicted_logits_local: Any
    target_mask: Any
    masked_target: Any
    vocab_parallel_logits: Any

def fused_linear_online_max_sum(
    input: ArrayLike,
    weight: ArrayLike,
    target: ArrayLike,
    vocab_start_index: int,
    vocab_end_index: int,
    *,
    out: Any = None,
    product: str | None = None,
) -> FusedLinearOnlineMaxSumResult:
    """A linear layer's logits on a rank with some columns of the vocabulary, as the largest, the sum of powers and the target's of each row."""

class FusedLinearCrossEntropyLossGradResult(NamedTuple):
    input_grad: Any
    weight_grad: Any

def fused_linear_cross_entropy_loss_grad(
    grad: ArrayLike,
    input: ArrayLike,
    weight: ArrayLike,
    target_mask: ArrayLike,
    masked_target: ArrayLike,
    *,
    label_smoothing: float = 0.0,
    logits_max: ArrayLike | None = None,
    sum_exp_logits: ArrayLike | None = None,
    softmax: ArrayLike | None = None,
    out: Any = None,
    product: str | None = None,
) -> FusedLinearCrossEntropyLossGradResult:
    """Gradients of the cross entropy of a linear layer by its input and by a rank's columns of its weight."""
