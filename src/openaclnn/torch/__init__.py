"""PyTorch's face of the operators.

    import openaclnn.torch as fast
    loss = fast.nn.CrossEntropyLoss()(logits, target)      # modules and functions, forward and backward by our kernels
    with fast.use():                                       # PyTorch's own functions by our kernels, in this block
        torch.nn.functional.smooth_l1_loss(x, y).backward()

Every operator is in `torch.ops.openaclnn` too. docs/pytorch.md is the guide.
"""

from openaclnn.torch import refusals  # first: it looks which PyTorch there is  # isort: skip
from openaclnn.torch import functional, library, nn
from openaclnn.torch.functional import check_targets
from openaclnn.torch.override import disable, enable, served, use

__all__ = ["check_targets", "disable", "enable", "functional", "nn", "served", "use"]
del library, refusals
