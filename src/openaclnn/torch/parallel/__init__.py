"""The losses over many devices, on torch.distributed: parts in the processes of a group, or DTensors.

- `groups.py`: functions of plain tensors that take a process group. In `vocab_parallel_cross_entropy` each process has some classes of
  every row; in the `batch_parallel_` functions each has rows, or elements, of its own. Negative log-likelihood, L1 and smooth L1 loss
  of local parts are here, too.
- `dtensors.py`: functions of PyTorch's names and signatures on DTensors. They read the placements, redistribute what lies elsewhere than
  the input needs it, and call the same computation on local parts. Sharding rules of the operators of `torch.ops.openaclnn`, too.
- `cross_entropy.py`: cross entropy of local rows: statistics, gradient, the gradient's own derivatives.
- `linear.py`: cross entropy of a linear layer whose classes are sharded, chunk by chunk, without all logits.
- `collectives.py`: options and checks, process groups, all-reduces, targets in sharded classes, derivatives through all-reduces.

A loss takes three steps. Each process computes what its classes or elements add to every row, by our kernels on local memory. Numbers of
a row are all-reduced over the processes that share its classes (`max_over_classes`, `sum_together`), numbers of a sum or mean over those
that share the rows (`reduced_over_rows`): in float64, a few a row, never logits. From these the gradient of the local part is computed
without communication. With `create_graph=True` the gradient is a formula of PyTorch's operations and of all-reduces that autograd can
differentiate (`shared_by`, `summed_by`), with the kernel's value.

`torch.compile` ends its graphs around these functions (`private.uncompiled`), since they communicate and call kernels.
"""

from openaclnn.torch.parallel.dtensors import (
    cross_entropy,
    l1_loss,
    nll_loss,
    register_rules,
    smooth_l1_loss,
)
from openaclnn.torch.parallel.groups import (
    batch_parallel_cross_entropy,
    batch_parallel_l1_loss,
    batch_parallel_nll_loss,
    batch_parallel_smooth_l1_loss,
    vocab_parallel_cross_entropy,
)
from openaclnn.torch.parallel.linear import linear_cross_entropy

__all__ = [
    "batch_parallel_cross_entropy",
    "batch_parallel_l1_loss",
    "batch_parallel_nll_loss",
    "batch_parallel_smooth_l1_loss",
    "cross_entropy",
    "l1_loss",
    "linear_cross_entropy",
    "nll_loss",
    "smooth_l1_loss",
    "vocab_parallel_cross_entropy",
]

register_rules()
