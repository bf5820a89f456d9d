"""PyTorch's modules of these losses and of ELU, with our kernels inside."""

from __future__ import annotations

from typing import Any

import torch

from openaclnn.torch import functional

__all__ = ["ELU", "CrossEntropyLoss", "L1Loss", "NLLLoss", "NLLLoss2d", "SmoothL1Loss"]


def _asked(module: Any) -> tuple[Any, Any, Any]:
    """What both losses of classes ask of a module: weights, the ignored class, the reduction. It takes long to look for an attribute: they
    are taken from where they lie as a rule, and weights are a buffer.
    """
    own = module.__dict__
    try:
        return own["_buffers"]["weight"], own["ignore_index"], own["reduction"]
    except KeyError:  # a property of a derived class, say
        return module.weight, module.ignore_index, module.reduction


class ELU(torch.nn.ELU):
    """`torch.nn.ELU` by our kernels."""

    def forward(self, input: torch.Tensor) -> Any:
        return functional.elu(input, self.alpha, self.inplace)


class L1Loss(torch.nn.L1Loss):
    """`torch.nn.L1Loss` by our kernels."""

    def forward(self, input: torch.Tensor, target: torch.Tensor) -> Any:
        return functional.l1_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(torch.nn.SmoothL1Loss):
    """`torch.nn.SmoothL1Loss` by our kernels."""

    def forward(self, input: torch.Tensor, target: torch.Tensor) -> Any:
        return functional.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class NLLLoss(torch.nn.NLLLoss):
    """`torch.nn.NLLLoss` by our kernels."""

    def forward(self, input: torch.Tensor, target: torch.Tensor) -> Any:
        weight, ignored, reduction = _asked(self)
        return functional.nll_loss(input, target, weight, None, ignored, None, reduction)


class NLLLoss2d(NLLLoss):
    """`NLLLoss` of images, under its old name."""


class CrossEntropyLoss(torch.nn.CrossEntropyLoss):
    """`torch.nn.CrossEntropyLoss` by our kernels; `functional.cross_entropy` says what the last two are."""

    __constants__ = [*torch.nn.CrossEntropyLoss.__constants__, "zloss_scale", "inplace"]

    def __init__(self, *args: Any, zloss_scale: float = 0.0, inplace: bool = False, **kwargs: Any) -> None:  # fmt: skip
        super().__init__(*args, **kwargs)
        self.zloss_scale = zloss_scale
        self.inplace = inplace

    def forward(self, input: torch.Tensor, target: torch.Tensor) -> Any:
        weight, ignored, reduction = _asked(self)
        return functional.cross_entropy(
            input, target, weight, None, ignored, None, reduction, self.label_smoothing,
            zloss_scale=self.zloss_scale, inplace=self.inplace,
        )  # fmt: skip
