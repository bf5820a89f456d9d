"""PyTorch's modules of losses and activations, with our kernels inside. Their `repr` has `openaclnn.` in front."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

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
    """A module of PyTorch's by our kernels. Of a function it has its `forward`: what the module was made with is passed on under the same names."""

    def __init_subclass__(cls, function: Callable[..., Tensor] | None = None, **more: Any) -> None:
        super().__init_subclass__(**more)
        if function is None:
            return
        names = list(inspect.signature(cls.forward).parameters)[1:]
        known = inspect.signature(cls.__init__).parameters.keys() - {"size_average", "reduce"}
        passed = ", ".join(
            f"{name}=self.{name}"
            for name, parameter in inspect.signature(function).parameters.items()
            if name not in names and (name in known or parameter.default is parameter.empty)
        )
        taken = ", ".join(names)
        scope: dict[str, Any] = {"_function": function}
        exec(f"def forward(self, {taken}):\n    return _function({taken}, {passed})", scope)
        cls.forward = scope["forward"]
        cls.forward.__annotations__ = dict.fromkeys((*names, "return"), Tensor)
        cls.forward.__qualname__ = f"{cls.__qualname__}.forward"
        cls.__doc__ = (
            f"`torch.nn.{cls.__name__}` by our kernels, those of `functional.{function.__name__}`."
        )

    def __repr__(self) -> str:
        return f"openaclnn.{super().__repr__()}"


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

    def forward(self, input: Tensor, target: Tensor, **of_this_call: Any) -> Any:
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


# Those that have all that their functions ask for under the same names.


class ELU(_Ours, torch.nn.ELU, function=functional.elu): ...


class L1Loss(_Ours, torch.nn.L1Loss, function=functional.l1_loss): ...


class SmoothL1Loss(_Ours, torch.nn.SmoothL1Loss, function=functional.smooth_l1_loss): ...


class ReLU(_Ours, torch.nn.ReLU, function=functional.relu): ...


class LeakyReLU(_Ours, torch.nn.LeakyReLU, function=functional.leaky_relu): ...


class PReLU(_Ours, torch.nn.PReLU, function=functional.prelu): ...


class Threshold(_Ours, torch.nn.Threshold, function=functional.threshold): ...


class Hardshrink(_Ours, torch.nn.Hardshrink, function=functional.hardshrink): ...


class Softshrink(_Ours, torch.nn.Softshrink, function=functional.softshrink): ...


class Sigmoid(_Ours, torch.nn.Sigmoid, function=functional.sigmoid): ...


class LogSigmoid(_Ours, torch.nn.LogSigmoid, function=functional.logsigmoid): ...


class Hardsigmoid(_Ours, torch.nn.Hardsigmoid, function=functional.hardsigmoid): ...


class SiLU(_Ours, torch.nn.SiLU, function=functional.silu): ...


class Mish(_Ours, torch.nn.Mish, function=functional.mish): ...


class Hardswish(_Ours, torch.nn.Hardswish, function=functional.hardswish): ...


class Softplus(_Ours, torch.nn.Softplus, function=functional.softplus): ...


class GELU(_Ours, torch.nn.GELU, function=functional.gelu): ...


class SELU(_Ours, torch.nn.SELU, function=functional.selu): ...


class CELU(_Ours, torch.nn.CELU, function=functional.celu): ...


class GLU(_Ours, torch.nn.GLU, function=functional.glu): ...


class Softmax(_Ours, torch.nn.Softmax, function=functional.softmax): ...


class LogSoftmax(_Ours, torch.nn.LogSoftmax, function=functional.log_softmax): ...


class MSELoss(_Ours, torch.nn.MSELoss, function=functional.mse_loss): ...


class BCELoss(_Ours, torch.nn.BCELoss, function=functional.binary_cross_entropy): ...


class BCEWithLogitsLoss(
    _Ours, torch.nn.BCEWithLogitsLoss, function=functional.binary_cross_entropy_with_logits
): ...


class KLDivLoss(_Ours, torch.nn.KLDivLoss, function=functional.kl_div): ...


class SoftMarginLoss(_Ours, torch.nn.SoftMarginLoss, function=functional.soft_margin_loss): ...


class MultiLabelMarginLoss(
    _Ours, torch.nn.MultiLabelMarginLoss, function=functional.multilabel_margin_loss
): ...
