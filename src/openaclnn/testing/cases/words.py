"""The words of case lists: numbers, and the ranges that values are drawn from."""

from __future__ import annotations

import math
import re
import sys
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DType
from openaclnn.testing.cases.case import Skip
from openaclnn.testing.data.distribution import Distribution

__all__ = ["atk_range", "check_range", "is_unset", "number_of", "power_of", "ttk_range"]

_INTERVAL = re.compile(r"([(\[])([^,()\[\]]+),([^,()\[\]]+)([)\]])")
_UNSET = ("default", "null", "")


def number_of(value: Any) -> float:
    """A number, also as the words inf and nan; true and false are 1 and 0."""
    if not isinstance(value, (int, float, str)):
        raise ValueError(f"a number is expected, not {value!r}")
    try:
        return float(value)
    except (ValueError, OverflowError):
        raise ValueError(f"a number is expected, not {str(value)[:40]!r}") from None


def power_of(value: Any) -> float:
    """A number, also as the text of a power: 2**-5."""
    base, power, exponent = str(value).partition("**")
    try:
        return number_of(base) ** number_of(exponent) if power else number_of(value)
    except (OverflowError, ZeroDivisionError):
        raise ValueError(f"a number is expected, not {value!r}") from None


def is_unset(value: Any) -> bool:
    """Whether a range leaves the values to us: null, "default", and lists of nothing else."""
    if isinstance(value, (tuple, list)):
        return all(is_unset(each) for each in value)
    return value is None or (isinstance(value, str) and value.strip().lower() in _UNSET)


def _between(low: float, high: float, **more: Any) -> Distribution:
    if math.isnan(low) or math.isnan(high):
        low = high = math.nan
    return Distribution(low, high, **more)


def ttk_range(given: Any) -> Distribution | None:
    """TTK's: (low, high) with values that must occur behind them; None where it is left to us."""
    if is_unset(given):
        return None
    if not isinstance(given, (tuple, list)):
        given = (given,)
    low, high, *occur = (number_of(each) for each in (given if len(given) > 1 else [*given] * 2))
    return _between(low, high, includes=tuple(occur))


def atk_range(given: Any) -> Distribution | None:
    """ATK's: a value, an interval, values to choose from, a normal distribution; None where it is left to us."""
    if is_unset(given):
        return None
    if isinstance(given, dict):
        return _normal(given)
    interval = _INTERVAL.fullmatch(given.strip()) if isinstance(given, str) else None
    if interval is not None:
        opens, low, high, closes = interval.groups()
        first, last = (_finite(number_of(end)) for end in (low, high))
        return Distribution(first, last, open=(opens == "(", closes == ")"))
    values = [number_of(each) for each in (given if isinstance(given, list) else [given])]
    if len(values) == 1:
        return _between(values[0], values[0])
    words = all(isinstance(each, str) for each in given)
    if len(values) > 2 or (words and not values[0] <= values[1]):
        return Distribution(choices=tuple(values))
    if values[0] == values[1]:
        return Distribution(values[0], values[1])
    return _between(_finite(values[0]), _finite(values[1]))


def _finite(end: float) -> float:
    """An end of an interval; an infinite one is where the dtype's finite numbers end."""
    return math.copysign(sys.float_info.max, end) if math.isinf(end) else end


def _normal(given: dict[str, Any]) -> Distribution:
    if given.get("name") != "nd":
        raise ValueError(f"unknown distribution {given.get('name')!r}")
    means, deviations = (_ends(given.get(word)) for word in ("mean", "std"))
    if deviations[0] < 0:
        raise ValueError(f"a deviation is 0 or more, not {deviations[0]:g}")
    return Distribution(means=means, deviations=deviations)


def _ends(given: Any) -> tuple[float, float]:
    ends = given if isinstance(given, list) and len(given) == 2 else [given, given]
    low, high = (number_of(end) for end in ends)
    if not -1e300 < low <= high < 1e300:
        raise ValueError(f"an interval of numbers is expected, not {given!r}")
    return low, high


def check_range(how: Distribution | None, dtype: DType) -> None:
    """Skip a case whose values its dtype cannot hold; of an interval, those that it can hold are drawn."""
    if how is None or how.means is not None or dtype.kind not in ("integer", "bool"):
        return
    info = np.iinfo(dtype.numpy) if dtype.kind == "integer" else None
    least, most = (0, 1) if info is None else (int(info.min), int(info.max))
    values = [*how.choices, *how.includes]
    if not how.choices:
        values += [max(how.low, float(least)), min(how.high, float(most))]
    for value in values:
        if not least <= value <= most:  # NaN is neither
            raise Skip("value", f"{dtype.name} cannot hold {value:g}")
