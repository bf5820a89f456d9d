"""What losses of elements make of NaN, infinity, signed zeros, the ends of their domains, and numbers out of the ordinary."""

from __future__ import annotations

from typing import Any

import numpy as np

inf, nan, ln2 = np.inf, np.nan, np.log(2)
NONE = {"reduction": "none"}

CASES: list[tuple[str, dict[str, Any], list[float], list[float]]] = [
    ("mse_loss", {"target": 1.0, **NONE}, [nan, inf, -inf, 0, 3], [nan, inf, inf, 1, 4]),
    ("mse_loss", {"target": inf, **NONE}, [inf, -inf, 0], [nan, inf, inf]),
    ("mse_loss_backward", {"target": 1.0, **NONE}, [nan, inf, -inf, 1, 3], [nan, inf, -inf, 0, 8]),
    ("mse_loss_backward", {"target": 1.0, "grad_output": 0.0, **NONE}, [inf, 3, -3], [nan, 0, -0.0]),
    ("soft_margin_loss", {"target": 1.0, **NONE}, [nan, inf, -inf, 0, -200, 200], [nan, 0, inf, ln2, 200, 0]),
    ("soft_margin_loss", {"target": 0.0, **NONE}, [inf, 3], [nan, ln2]),
    # Any other number of a reduction is a sum.
    ("soft_margin_loss", {"target": -1.0, "reduction": 3}, [200, 300], [500]),
    ("soft_margin_loss", {"target": -1.0, "reduction": -4}, [200, 300], [500]),
    ("soft_margin_loss_backward", {"target": 1.0, **NONE}, [nan, inf, -inf, 0, -200, 200], [nan, -0.0, -2, -1, -2, -0.0]),
    ("soft_margin_loss_backward", {"target": -1.0, **NONE}, [inf, -inf, 0], [2, 0, 1]),
    ("binary_cross_entropy", {"target": 1.0, **NONE}, [nan, 0, 1, 1.5, -0.5, inf], [nan, 100, -0.0, nan, nan, nan]),
    ("binary_cross_entropy", {"target": 0.0, **NONE}, [0, 1, 0.5], [0, 100, ln2]),
    ("binary_cross_entropy", {"target": 0.5, "weight": 4.0, **NONE}, [0, 1], [200, 200]),
    ("binary_cross_entropy_backward", {"target": 1.0, **NONE}, [nan, 0, 1, 0.5, 2, -1, inf], [nan, -2e12, 0, -4, 2e12, -4e12, inf]),
    ("binary_cross_entropy_with_logits", {"target": 0.0, **NONE}, [nan, inf, -inf, 0, 100, -30], [nan, inf, nan, ln2, 100, 9.357622968839299e-14]),
    ("binary_cross_entropy_with_logits", {"target": 1.0, **NONE}, [inf, -inf, 0, -100], [nan, nan, ln2, 100]),
    ("binary_cross_entropy_with_logits", {"target": 1.0, "pos_weight": 3.0, **NONE}, [-100, 0], [300, 3 * ln2]),
    ("binary_cross_entropy_with_logits_backward", {"target": 1.0, **NONE}, [nan, inf, -inf, 0], [nan, 0, -2, -1]),
    ("binary_cross_entropy_with_logits_backward", {"target": 0.0, **NONE}, [inf, -inf, 0], [2, 0, 1]),
    ("binary_cross_entropy_with_logits_backward", {"target": inf, **NONE}, [1], [nan]),
    ("binary_cross_entropy_with_logits_target_backward", {"target": nan, **NONE}, [nan, inf, -inf, 0, 3], [nan, -inf, inf, 0, -6]),
    ("binary_cross_entropy_with_logits_target_backward", {"target": 0.0, "pos_weight": 0.0, **NONE}, [-inf, 100], [nan, -200]),
    # The predictions do not matter.
    ("kl_div_backward", {"target": 0.5, **NONE}, [nan, inf, 0], [-1, -1, -1]),
    ("kl_div_backward", {"target": 0.0, **NONE}, [1], [-0.0]),
    ("kl_div_backward", {"target": 0.0, "log_target": True, **NONE}, [1], [-2]),
    ("kl_div_backward", {"target": -inf, "log_target": True, **NONE}, [1], [-0.0]),
    # What is no number of a reduction is none.
    ("kl_div_backward", {"target": 0.5, "reduction": 7}, [1, 2], [-1, -1]),
    ("kl_div_backward", {"target": 0.5, "reduction": -1}, [1, 2], [-1, -1]),
    ("kl_div_target_backward", {"target": 1.0, **NONE}, [nan, inf, -inf, 0.5], [nan, -inf, inf, 1]),
    ("kl_div_target_backward", {"target": 0.0, **NONE}, [1], [nan]),
    ("kl_div_target_backward", {"target": -1.0, **NONE}, [1], [nan]),
    ("kl_div_target_backward", {"target": inf, **NONE}, [1], [nan]),
    ("kl_div_target_backward", {"target": -inf, "log_target": True, **NONE}, [1], [nan]),
    ("kl_div_target_backward", {"target": 0.0, "log_target": True, **NONE}, [nan, inf, -2], [nan, -inf, 6]),
]  # fmt: skip
"""An operator, its options and all tensors but what it is applied to, that, and what it gives; gradients that arrive are 2."""
