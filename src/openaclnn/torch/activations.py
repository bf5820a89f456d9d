# mypy: disable-error-code="empty-body"
"""Activations as functions of PyTorch's signatures, by our kernels: `derived.py` makes each of its signature and its operator."""

from __future__ import annotations

import torch
from torch import Tensor

from openaclnn.torch.derived import computed_by

__all__ = [
    "celu", "gelu", "glu", "hardshrink", "hardsigmoid", "hardswish", "leaky_relu", "log_softmax", "logsigmoid", "mish", "prelu", "relu", "selu",
    "sigmoid", "silu", "softmax", "softplus", "softshrink", "threshold",
]  # fmt: skip


@computed_by("relu")
def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """`torch.nn.functional.relu` by our kernels: x where it is positive, 0 elsewhere.

    >>> relu(torch.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """


@computed_by("leaky_relu")
def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """`torch.nn.functional.leaky_relu` by our kernels: x where it is positive, `negative_slope` * x elsewhere.

    >>> leaky_relu(torch.tensor([-1.0, 2.0]), 0.5)
    tensor([-0.5000,  2.0000])
    """


@computed_by("prelu", alike=False, cast=True)
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """`torch.nn.functional.prelu` by our kernels: leaky ReLU with a slope for each channel, which may learn.

    >>> prelu(torch.tensor([-1.0, 2.0]), torch.tensor([0.25]))
    tensor([-0.2500,  2.0000])
    """


@computed_by("threshold")
def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """`torch.nn.functional.threshold` by our kernels: x where it is above a threshold, `value` elsewhere.

    >>> threshold(torch.tensor([-1.0, 2.0]), 0.5, 9.0)
    tensor([9., 2.])
    """


@computed_by("hardshrink")
def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """`torch.nn.functional.hardshrink` by our kernels: 0 between -`lambd` and `lambd`, x elsewhere.

    >>> hardshrink(torch.tensor([-1.0, 0.25]))
    tensor([-1.,  0.])
    """


@computed_by("softshrink")
def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """`torch.nn.functional.softshrink` by our kernels: x, nearer to 0 by `lambd`.

    >>> softshrink(torch.tensor([-1.0, 0.25]))
    tensor([-0.5000,  0.0000])
    """


@computed_by("sigmoid")
def sigmoid(input: Tensor) -> Tensor:
    """`torch.nn.functional.sigmoid` by our kernels: 1 / (1 + exp(-x)).

    >>> sigmoid(torch.tensor([0.0, 2.0]))
    tensor([0.5000, 0.8808])
    """


@computed_by("log_sigmoid")
def logsigmoid(input: Tensor) -> Tensor:
    """`torch.nn.functional.logsigmoid` by our kernels: -log(1 + exp(-x)).

    >>> logsigmoid(torch.tensor([0.0, 2.0]))
    tensor([-0.6931, -0.1269])
    """


@computed_by("hardsigmoid")
def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """`torch.nn.functional.hardsigmoid` by our kernels: (x + 3) / 6 between 0 and 1.

    >>> hardsigmoid(torch.tensor([0.0, 4.0]))
    tensor([0.5000, 1.0000])
    """


@computed_by("silu")
def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """`torch.nn.functional.silu` by our kernels: x / (1 + exp(-x)).

    >>> silu(torch.tensor([-1.0, 2.0]))
    tensor([-0.2689,  1.7616])
    """


@computed_by("mish")
def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """`torch.nn.functional.mish` by our kernels: x * tanh(log(1 + exp(x))).

    >>> mish(torch.tensor([-1.0, 2.0]))
    tensor([-0.3034,  1.9440])
    """


@computed_by("hardswish")
def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """`torch.nn.functional.hardswish` by our kernels: x times `hardsigmoid` of it.

    >>> hardswish(torch.tensor([-1.0, 4.0]))
    tensor([-0.3333,  4.0000])
    """


@computed_by("softplus", cast=True)
def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """`torch.nn.functional.softplus` by our kernels: log(1 + exp(`beta` * x)) / `beta`, or x where `beta` * x is above the threshold.

    >>> softplus(torch.tensor([-1.0, 2.0]))
    tensor([0.3133, 2.1269])
    """


@computed_by("gelu_v2", words={"approximate": {"none": 0, "tanh": 1}})
def gelu(input: Tensor, *, approximate: str = "none") -> Tensor:
    """`torch.nn.functional.gelu` by our kernels: x times the normal distribution's function of x, which "tanh" approximates.

    >>> gelu(torch.tensor([-1.0, 2.0]), approximate="tanh")
    tensor([-0.1588,  1.9546])
    """


@computed_by("selu")
def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """`torch.nn.functional.selu` by our kernels: ELU, scaled to keep mean and variance.

    >>> selu(torch.tensor([-1.0, 2.0]))
    tensor([-1.1113,  2.1014])
    """


@computed_by("celu")
def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """`torch.nn.functional.celu` by our kernels: x where it is positive, else `alpha` * (exp(x / `alpha`) - 1).

    >>> celu(torch.tensor([-1.0, 2.0]), 0.5)
    tensor([-0.4323,  2.0000])
    """


@computed_by("glu")
def glu(input: Tensor, dim: int = -1) -> Tensor:
    """`torch.nn.functional.glu` by our kernels: the first half of x along an axis, times `sigmoid` of the second.

    >>> glu(torch.tensor([1.0, -2.0, 3.0, 0.5]))
    tensor([ 0.9526, -1.2449])
    """


@computed_by("softmax", cast=True)
def softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: torch.dtype | None = None
) -> Tensor:
    """`torch.nn.functional.softmax` by our kernels: exp(x), divided by the sum along an axis.

    >>> softmax(torch.tensor([0.0, 2.0]), 0)
    tensor([0.1192, 0.8808])
    """


@computed_by("log_softmax", cast=True)
def log_softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: torch.dtype | None = None
) -> Tensor:
    """`torch.nn.functional.log_softmax` by our kernels: x less the logarithm of the sum of exp(x) along an axis.

    >>> log_softmax(torch.tensor([0.0, 2.0]), 0)
    tensor([-2.1269, -0.1269])
    """
