"""The words of case lists: numbers and distributions."""

from __future__ import annotations

import math
from typing import Any

from openaclnn.testing.data.distribution import DEFAULT, Distribution

__all__ = ["distribution_of", "number_of"]


def number_of(value: Any) -> float:
    """A number, also as the words inf and nan."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"a number is expected, not {value!r}")
    try:
        return float(value)
    except (ValueError, OverflowError):
        raise ValueError(f"a number is expected, not {str(value)[:40]!r}") from None


def distribution_of(given: Any) -> Distribution:
    """None, a number, (low, high) with values that must occur behind them."""
    if given is None:
        return DEFAULT
    if isinstance(given, (tuple, list)):
        if len(given) < 2:
            raise ValueError(f"two ends are expected, not {given!r}")
        low, high = (number_of(end) for end in given[:2])
        if math.isnan(low) or math.isnan(high):
            low = high = math.nan
        return Distribution(low, high, includes=tuple(number_of(each) for each in given[2:]))
    value = number_of(given)
    return Distribution(value, value)
