"""The operators. One import line declares each family; who needs the filled registry imports it from here."""

from openaclnn.core.declare import find_operator, registry
from openaclnn.core.describe import SupportTable
from openaclnn.operators import (  # noqa: F401
    cross_entropy_loss,
    elu,
    l1_loss,
    nll_loss2d,
    smooth_l1_loss,
)

__all__ = ["find_operator", "registry", "support_table"]


def support_table() -> SupportTable:
    """Operator x product x dtype, from the declarations."""
    return SupportTable.of(registry())
