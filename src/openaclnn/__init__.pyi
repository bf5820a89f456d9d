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

def inplace_elu(
    self_ref: Any,
    *,
    alpha: Number = 1.0,
    scale: Number = 1.0,
    input_scale: Number = 1.0,
    product: str | None = None,
) -> Any:
    """The exponential linear unit, written over its input."""

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

def log_softmax(
    self: ArrayLike,
    *,
    dim: int = -1,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """The logarithms of softmax's shares along an axis."""

def log_softmax_backward(
    grad_output: ArrayLike,
    output: ArrayLike,
    *,
    dim: int = -1,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """Gradient of log-softmax with respect to its input, from its result."""

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

def softmax(
    self: ArrayLike,
    *,
    dim: int = -1,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """The exponentials along an axis, as shares of their sum."""

def softmax_backward(
    grad_output: ArrayLike,
    output: ArrayLike,
    *,
    dim: int = -1,
    out: Any = None,
    product: str | None = None,
) -> Any:
    """Gradient of softmax with respect to its input, from its result."""

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
