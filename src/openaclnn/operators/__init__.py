"""The operators. Each is declared by one import line; who needs the filled registry imports it from here."""

from openaclnn.core.declare import SupportTable, find_operator, operators_by_kernel, registry
from openaclnn.operators import (  # noqa: F401
    cross_entropy_loss,
    cross_entropy_loss_grad,
    elu,
    elu_backward,
    inplace_elu,
    l1_loss,
    l1_loss_backward,
    log_softmax,
    log_softmax_backward,
    nll_loss,
    nll_loss2d,
    nll_loss2d_backward,
    nll_loss_backward,
    smooth_l1_loss,
    smooth_l1_loss_backward,
    softmax,
    softmax_backward,
    softmax_cross_entropy_with_logits,
)

__all__ = ["find_operator", "operators_by_kernel", "registry", "support_table"]


def support_table() -> SupportTable:
    """Operator x product x dtype, from the declarations."""
    return SupportTable.of(registry())
