"""PyTorch's modules of these losses and of ELU, with our kernels inside."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from openaclnn.torch import functional

__all__ = [
    "ELU", "CrossEntropyLoss", "L1Loss", "LinearCrossEntropyLoss", "NLLLoss", "NLLLoss2d", "SmoothL1Loss",
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


class ELU(torch.nn.ELU):
    """`torch.nn.ELU` by our kernels.

    >>> ELU(alpha=0.5)(torch.tensor([-1.0, 2.0]))
    tensor([-0.3161,  2.0000])
    """

    def forward(self, input: Tensor) -> Tensor:
        return functional.elu(input, self.alpha, self.inplace)


class L1Loss(torch.nn.L1Loss):
    """`torch.nn.L1Loss` by our kernels.

    >>> L1Loss(reduction="sum")(torch.zeros(2), torch.tensor([1.0, -2.0]))
    tensor(3.)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.l1_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(torch.nn.SmoothL1Loss):
    """`torch.nn.SmoothL1Loss` by our kernels.

    >>> SmoothL1Loss(beta=0.5)(torch.zeros(2), torch.tensor([0.5, 1.0]))
    tensor(0.5000)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class NLLLoss(torch.nn.NLLLoss):
    """`torch.nn.NLLLoss` by our kernels.

    >>> NLLLoss()(torch.tensor([[-0.5, -1.5]]), torch.tensor([1]))
    tensor(1.5000)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        weight, ignored, reduction = _asked(self)
        return functional.nll_loss(input, target, weight, None, ignored, None, reduction)


class NLLLoss2d(NLLLoss):
    """`NLLLoss` of images, under its old name."""


class CrossEntropyLoss(torch.nn.CrossEntropyLoss):
    """`torch.nn.CrossEntropyLoss` by our kernels; `functional.cross_entropy` says what the last two are.

    >>> CrossEntropyLoss(zloss_scale=1e-4)(torch.zeros(2, 4), torch.tensor([0, 3]))
    tensor(1.3865)
    """

    __constants__ = [*torch.nn.CrossEntropyLoss.__constants__, "zloss_scale", "inplace"]
    zloss_scale: float = 0.0  # also of a module of PyTorch's that becomes one of these
    inplace: bool = False

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
    ) -> None:
        super().__init__(weight, size_average, ignore_index, reduce, reduction, label_smoothing)
        self.zloss_scale = zloss_scale
        self.inplace = inplace

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        weight, ignored, reduction = _asked(self)
        return functional.cross_entropy(
            input, target, weight, None, ignored, None, reduction, self.label_smoothing,
            zloss_scale=self.zloss_scale, inplace=self.inplace,
        )  # fmt: skip


class LinearCrossEntropyLoss(torch.nn.Module):
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


def _named(self: torch.nn.Module) -> str:
    return f"openaclnn.{torch.nn.Module.__repr__(self)}"


for _name in __all__:  # printed models tell ours from PyTorch's
    globals()[_name].__repr__ = _named
del _name
