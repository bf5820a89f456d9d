"""The losses over many devices, on torch.distributed: parts in the processes of a group, or DTensors."""

from openaclnn.torch.parallel.dtensors import cross_entropy, l1_loss, nll_loss, smooth_l1_loss
from openaclnn.torch.parallel.groups import (
    batch_parallel_cross_entropy,
    batch_parallel_l1_loss,
    batch_parallel_nll_loss,
    batch_parallel_smooth_l1_loss,
    vocab_parallel_cross_entropy,
)
from openaclnn.torch.parallel.sharding import register_rules

__all__ = [
    "batch_parallel_cross_entropy",
    "batch_parallel_l1_loss",
    "batch_parallel_nll_loss",
    "batch_parallel_smooth_l1_loss",
    "cross_entropy",
    "l1_loss",
    "nll_loss",
    "smooth_l1_loss",
    "vocab_parallel_cross_entropy",
]

register_rules()
