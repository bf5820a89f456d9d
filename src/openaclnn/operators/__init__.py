"""The operators. One import line declares each family; who needs the filled registry imports it from here."""

from openaclnn.core.declare import find_operator, registry
from openaclnn.core.describe import SupportTable
from openaclnn.operators import (  # noqa: F401
    cross_entropy_loss,
    cross_entropy_loss_forward,
    elu,
    elu_forward,
    inplace_elu,
    l1_loss,
    l1_loss_forward,
    nll_loss,
    nll_loss2d,
    nll_loss2d_forward,
    nll_loss_forward,
    smooth_l1_loss,
    smooth_l1_loss_forward,
)

__all__ = ["find_operator", "registry", "support_table"]


def support_table() -> SupportTable:
    """Operator x product x dtype, from the declarations."""
    return SupportTable.of(registry())
