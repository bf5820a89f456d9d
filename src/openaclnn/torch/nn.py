"""PyTorch's modules of losses and activations, with our kernels inside. Their `repr` has `openaclnn.` in front."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from openaclnn.torch import functional

__all__ = [
    "BCELoss", "BCEWithLogitsLoss", "CELU", "CrossEntropyLoss", "ELU", "GELU", "GLU", "Hardshrink", "Hardsigmoid", "Hardswish", "KLDivLoss", "L1Loss", "LeakyReLU", "LinearCrossEntropyLoss", "LogSigmoid", "LogSoftmax", "MSELoss", "Mish", "MultiLabelMarginLoss", "NLLLoss", "NLLLoss2d", "PReLU", "ReLU", "SELU", "SiLU", "Sigmoid", "SmoothL1Loss", "SoftMarginLoss", "Softmax", "Softplus", "Softshrink", "Threshold",
]  # fmt: skip


def _asked(module: Any) -> tuple[Any, Any, Any]:
    """What both losses of classes ask of a module: weights, the ignored class, the reduction. It takes long to look for an attribute: they
    are taken from where they lie as a rule, and weights are a buffer.
    """
    attributes = module.__dict__
    try:
        return attributes["_buffers"]["weight"], attributes["ignore_index"], attributes["reduction"]
    except KeyError:  # a property of a derived class, say
        return module.weight, module.ignore_index, module.reduction


class _Ours(torch.nn.Module):
    def __repr__(self) -> str:
        return f"openaclnn.{super().__repr__()}"


_Module = TypeVar("_Module", bound=type[torch.nn.Module])


def computed_by(function: Callable[..., Tensor]) -> Callable[[_Module], _Module]:
    """Make a module's `forward` of a function, to which it passes on what it was made with, under the same names."""

    def made(module: _Module) -> _Module:
        given = list(inspect.signature(module.forward).parameters)[1:]
        known = inspect.signature(module.__init__).parameters.keys() - {"size_average", "reduce"}
        passed = ", ".join(
            f"{name}=self.{name}"
            for name, parameter in inspect.signature(function).parameters.items()
            if name not in given and (name in known or parameter.default is parameter.empty)
        )
        taken = ", ".join(given)
        scope: dict[str, Any] = {"_function": function}
        exec(f"def forward(self, {taken}):\n    return _function({taken}, {passed})", scope)
        forward = scope["forward"]
        forward.__annotations__ = dict.fromkeys((*given, "return"), Tensor)
        forward.__qualname__ = f"{module.__qualname__}.forward"
        module.forward = forward
        return module

    return made


class ELU(_Ours, torch.nn.ELU):
    """`torch.nn.ELU` by our kernels.

    >>> ELU(alpha=0.5)(torch.tensor([-1.0, 2.0]))
    tensor([-0.3161,  2.0000])
    """

    def forward(self, input: Tensor) -> Tensor:
        return functional.elu(input, self.alpha, self.inplace)


class L1Loss(_Ours, torch.nn.L1Loss):
    """`torch.nn.L1Loss` by our kernels.

    >>> L1Loss(reduction="sum")(torch.zeros(2), torch.tensor([1.0, -2.0]))
    tensor(3.)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.l1_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(_Ours, torch.nn.SmoothL1Loss):
    """`torch.nn.SmoothL1Loss` by our kernels.

    >>> SmoothL1Loss(beta=0.5)(torch.zeros(2), torch.tensor([0.5, 1.0]))
    tensor(0.5000)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class NLLLoss(_Ours, torch.nn.NLLLoss):
    """`torch.nn.NLLLoss` by our kernels.

    >>> NLLLoss()(torch.tensor([[-0.5, -1.5]]), torch.tensor([1]))
    tensor(1.5000)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        weight, ignored, reduction = _asked(self)
        return functional.nll_loss(input, target, weight, None, ignored, None, reduction)


class NLLLoss2d(NLLLoss):
    """`NLLLoss` of images, under its old name."""


class CrossEntropyLoss(_Ours, torch.nn.CrossEntropyLoss):
    """`torch.nn.CrossEntropyLoss` by our kernels; `functional.cross_entropy` says what the last three are, and what a call may be given beside the target.

    >>> CrossEntropyLoss(zloss_scale=1e-4)(torch.zeros(2, 4), torch.tensor([0, 3]))
    tensor(1.3865)
    """

    __constants__ = [
        *torch.nn.CrossEntropyLoss.__constants__,
        "zloss_scale",
        "inplace",
        "return_z_loss",
    ]
    zloss_scale: float = 0.0  # also of a module of PyTorch's that becomes one of these
    inplace: bool = False
    return_z_loss: bool = False

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        *,
        zloss_scale: float = 0.0,
        inplace: bool = False,
        return_z_loss: bool = False,
    ) -> None:
        super().__init__(weight, size_average, ignore_index, reduce, reduction, label_smoothing)
        self.zloss_scale = zloss_scale
        self.inplace = inplace
        self.return_z_loss = return_z_loss

    def forward(
        self, input: Tensor, target: Tensor, *, token_weight: Tensor | None = None, denominator: Tensor | float | None = None
    ) -> Tensor:  # fmt: skip
        weight, ignored, reduction = _asked(self)
        return functional.cross_entropy(
            input, target, weight, None, ignored, None, reduction, self.label_smoothing, zloss_scale=self.zloss_scale, inplace=self.inplace,
            token_weight=token_weight, denominator=denominator, return_z_loss=self.return_z_loss,
        )  # fmt: skip


class LinearCrossEntropyLoss(_Ours):
    """A linear layer and the cross entropy of its outputs, without the memory for them; `functional.linear_cross_entropy` says what the
    options are. Parameters have the names that PyTorch's module of this name gives them.

    >>> LinearCrossEntropyLoss(8, 1000)(torch.zeros(3, 8), torch.tensor([0, 1, 2]))  # doctest: +ELLIPSIS
    tensor(6.9078, grad_fn=<...>)
    """

    more: dict[str, Any] = {}

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: tuple[int, ...] = (),
        bias: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
        reduction: str = "mean",
        weight: Tensor | None = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        options: Any = None,
        **more: Any,
    ) -> None:
        super().__init__()
        if weight is not None and weight.shape != (num_classes,):
            raise RuntimeError(f"expected weight shape to be {(num_classes,)}, got {tuple(weight.shape)}")  # fmt: skip
        self.num_classes, self.out_features = num_classes, tuple(out_features)
        self.reduction, self.ignore_index, self.label_smoothing = (
            reduction,
            ignore_index,
            label_smoothing,
        )
        self.options, self.more = options, more
        self.weight: Tensor | None
        self.register_buffer("weight", weight)
        self.linear = torch.nn.Linear(
            in_features, math.prod(out_features, start=num_classes), bias, device, dtype
        )

    def forward(self, input: Tensor, target: Tensor, **of_this_call: Any) -> Tensor:
        classes, bias = (self.num_classes, *self.out_features), self.linear.bias
        return functional.linear_cross_entropy(
            input, self.linear.weight.reshape(*classes, -1), target, linear_bias=None if bias is None else bias.reshape(classes),
            weight=self.weight, reduction=self.reduction, ignore_index=self.ignore_index, label_smoothing=self.label_smoothing,
            options=self.options, **{**self.more, **of_this_call},
        )  # fmt: skip

    def extra_repr(self) -> str:
        asked = (
            "num_classes",
            "out_features",
            "reduction",
            "ignore_index",
            "label_smoothing",
            "options",
        )
        said = {name: getattr(self, name) for name in asked} | self.more
        return ", ".join(f"{name}={value}" for name, value in said.items())


# Those whose functions are derived from declarations.


@computed_by(functional.relu)
class ReLU(_Ours, torch.nn.ReLU):
    """`torch.nn.ReLU` by our kernels.

    >>> ReLU()(torch.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """


@computed_by(functional.leaky_relu)
class LeakyReLU(_Ours, torch.nn.LeakyReLU):
    """`torch.nn.LeakyReLU` by our kernels.

    >>> LeakyReLU(0.5)(torch.tensor([-1.0, 2.0]))
    tensor([-0.5000,  2.0000])
    """


@computed_by(functional.prelu)
class PReLU(_Ours, torch.nn.PReLU):
    """`torch.nn.PReLU` by our kernels.

    >>> PReLU()(torch.tensor([-1.0, 2.0])).detach()
    tensor([-0.2500,  2.0000])
    """


@computed_by(functional.threshold)
class Threshold(_Ours, torch.nn.Threshold):
    """`torch.nn.Threshold` by our kernels.

    >>> Threshold(0.5, 9.0)(torch.tensor([-1.0, 2.0]))
    tensor([9., 2.])
    """


@computed_by(functional.hardshrink)
class Hardshrink(_Ours, torch.nn.Hardshrink):
    """`torch.nn.Hardshrink` by our kernels.

    >>> Hardshrink()(torch.tensor([-1.0, 0.25]))
    tensor([-1.,  0.])
    """


@computed_by(functional.softshrink)
class Softshrink(_Ours, torch.nn.Softshrink):
    """`torch.nn.Softshrink` by our kernels.

    >>> Softshrink()(torch.tensor([-1.0, 0.25]))
    tensor([-0.5000,  0.0000])
    """


@computed_by(functional.sigmoid)
class Sigmoid(_Ours, torch.nn.Sigmoid):
    """`torch.nn.Sigmoid` by our kernels.

    >>> Sigmoid()(torch.tensor([0.0, 2.0]))
    tensor([0.5000, 0.8808])
    """


@computed_by(functional.logsigmoid)
class LogSigmoid(_Ours, torch.nn.LogSigmoid):
    """`torch.nn.LogSigmoid` by our kernels.

    >>> LogSigmoid()(torch.tensor([0.0, 2.0]))
    tensor([-0.6931, -0.1269])
    """


@computed_by(functional.hardsigmoid)
class Hardsigmoid(_Ours, torch.nn.Hardsigmoid):
    """`torch.nn.Hardsigmoid` by our kernels.

    >>> Hardsigmoid()(torch.tensor([0.0, 4.0]))
    tensor([0.5000, 1.0000])
    """


@computed_by(functional.silu)
class SiLU(_Ours, torch.nn.SiLU):
    """`torch.nn.SiLU` by our kernels.

    >>> SiLU()(torch.tensor([-1.0, 2.0]))
    tensor([-0.2689,  1.7616])
    """


@computed_by(functional.mish)
class Mish(_Ours, torch.nn.Mish):
    """`torch.nn.Mish` by our kernels.

    >>> Mish()(torch.tensor([-1.0, 2.0]))
    tensor([-0.3034,  1.9440])
    """


@computed_by(functional.hardswish)
class Hardswish(_Ours, torch.nn.Hardswish):
    """`torch.nn.Hardswish` by our kernels.

    >>> Hardswish()(torch.tensor([-1.0, 4.0]))
    tensor([-0.3333,  4.0000])
    """


@computed_by(functional.softplus)
class Softplus(_Ours, torch.nn.Softplus):
    """`torch.nn.Softplus` by our kernels.

    >>> Softplus()(torch.tensor([-1.0, 2.0]))
    tensor([0.3133, 2.1269])
    """


@computed_by(functional.gelu)
class GELU(_Ours, torch.nn.GELU):
    """`torch.nn.GELU` by our kernels.

    >>> GELU("tanh")(torch.tensor([-1.0, 2.0]))
    tensor([-0.1588,  1.9546])
    """


@computed_by(functional.selu)
class SELU(_Ours, torch.nn.SELU):
    """`torch.nn.SELU` by our kernels.

    >>> SELU()(torch.tensor([-1.0, 2.0]))
    tensor([-1.1113,  2.1014])
    """


@computed_by(functional.celu)
class CELU(_Ours, torch.nn.CELU):
    """`torch.nn.CELU` by our kernels.

    >>> CELU(0.5)(torch.tensor([-1.0, 2.0]))
    tensor([-0.4323,  2.0000])
    """


@computed_by(functional.glu)
class GLU(_Ours, torch.nn.GLU):
    """`torch.nn.GLU` by our kernels.

    >>> GLU()(torch.tensor([1.0, -2.0, 3.0, 0.5]))
    tensor([ 0.9526, -1.2449])
    """


@computed_by(functional.softmax)
class Softmax(_Ours, torch.nn.Softmax):
    """`torch.nn.Softmax` by our kernels.

    >>> Softmax(0)(torch.tensor([0.0, 2.0]))
    tensor([0.1192, 0.8808])
    """


@computed_by(functional.log_softmax)
class LogSoftmax(_Ours, torch.nn.LogSoftmax):
    """`torch.nn.LogSoftmax` by our kernels.

    >>> LogSoftmax(0)(torch.tensor([0.0, 2.0]))
    tensor([-2.1269, -0.1269])
    """


@computed_by(functional.mse_loss)
class MSELoss(_Ours, torch.nn.MSELoss):
    """`torch.nn.MSELoss` by our kernels.

    >>> MSELoss()(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 4.0]))
    tensor(2.5000)
    """


@computed_by(functional.binary_cross_entropy)
class BCELoss(_Ours, torch.nn.BCELoss):
    """`torch.nn.BCELoss` by our kernels.

    >>> BCELoss()(torch.tensor([0.25, 0.5]), torch.tensor([1.0, 0.0]))
    tensor(1.0397)
    """


@computed_by(functional.binary_cross_entropy_with_logits)
class BCEWithLogitsLoss(_Ours, torch.nn.BCEWithLogitsLoss):
    """`torch.nn.BCEWithLogitsLoss` by our kernels.

    >>> BCEWithLogitsLoss()(torch.tensor([0.0, 2.0]), torch.tensor([1.0, 0.0]))
    tensor(1.4100)
    """


@computed_by(functional.kl_div)
class KLDivLoss(_Ours, torch.nn.KLDivLoss):
    """`torch.nn.KLDivLoss` by our kernels.

    >>> KLDivLoss(reduction="batchmean")(torch.tensor([[-1.0, -0.5]]), torch.tensor([[0.25, 0.75]]))
    tensor(0.0627)
    """


@computed_by(functional.soft_margin_loss)
class SoftMarginLoss(_Ours, torch.nn.SoftMarginLoss):
    """`torch.nn.SoftMarginLoss` by our kernels.

    >>> SoftMarginLoss()(torch.tensor([0.0, 2.0]), torch.tensor([1.0, -1.0]))
    tensor(1.4100)
    """


@computed_by(functional.multilabel_margin_loss)
class MultiLabelMarginLoss(_Ours, torch.nn.MultiLabelMarginLoss):
    """`torch.nn.MultiLabelMarginLoss` by our kernels.

    >>> MultiLabelMarginLoss()(torch.tensor([0.1, 0.2, 0.4, 0.8]), torch.tensor([3, 0, -1, 1]))
    tensor(0.8500)
    """
