"""The losses over many devices, on torch.distributed: parts in the processes of a group, or DTensors.

Two faces, one computation. `groups` has functions of plain tensors that take a process group: `vocab_parallel_cross_entropy`, where each
process has some classes of every row, and the `batch_parallel_` ones, where each has rows, or elements, of its own. `dtensors` has functions of
PyTorch's names and signatures on DTensors: it reads the placements, redistributes what lies elsewhere than the input needs it, and calls
the same computation on the local parts, whose result is a DTensor again.

    groups, dtensors    signatures, refusals; negative log-likelihood, L1 and smooth L1 loss of local parts
    cross_entropy       cross entropy of local rows: statistics, gradient, the gradient's own derivatives
    collectives         options and checks, process groups, all-reduces, targets in sharded classes, derivatives through all-reduces
    sharding            DTensor rules for the operators of `torch.ops.openaclnn`, from their declarations

A loss is computed in three steps. Each process computes what its classes or elements add to every row (our kernels on local memory). What
belongs to a row is summed over the processes that share its classes (`max_over_classes`, `sum_together`), what belongs to a mean or a sum over those that share the
rows (`reduced_over_rows`): numbers per row, in float64, never logits. The gradient of the local part is computed from these numbers and
local memory without any communication. With `create_graph=True` the gradient is a formula of PyTorch's operations and of all-reduces that
autograd can differentiate (`shared_by`, `summed_by`), with the kernel's value.

`torch.compile` ends its graphs around these functions (`private.uncompiled`): they communicate and call kernels.
"""

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
