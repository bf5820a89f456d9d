"""The operators. One import line declares each family."""

from openaclnn.operators import (  # noqa: F401
    cross_entropy_loss,
    elu,
    l1_loss,
    nll_loss2d,
    smooth_l1_loss,
)
