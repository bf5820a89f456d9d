"""Terms: what a plain call is but for sizes, strides and addresses. A call on the terms of one that was sound is asked about
its sizes alone, and its options are bound already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any

from openaclnn.core.interop import viewers
from openaclnn.core.products import Product

__all__ = ["BY_VALUE", "Terms", "key_of"]

BY_VALUE: frozenset[type] = frozenset((float, int, bool, str, type(None)))
"""Types of options that cannot change."""


class Terms:
    """The types and dtypes of a call's arrays, which of them there are, its options, and the product: by the very objects, which
    are held. `values` are the bound ones where `present` arrays have no views yet.
    """

    __slots__ = ("all_left", "held", "present", "reduction", "values")

    def __init__(
        self,
        values: Mapping[str, Any],
        present: Sequence[tuple[Any, ...]],
        all_left: bool,
        reduction: Any,
        held: Any,
    ) -> None:
        self.values, self.present = dict(values), present
        self.all_left, self.reduction, self.held = all_left, reduction, held


def key_of(
    product: Product, arrays: Sequence[Any], options: Sequence[Any]
) -> tuple[tuple[Any, ...], Any] | None:
    """What tells terms from others, and what must live as long; None where an option may change, or an array is not just NumPy's
    or PyTorch's and may say anything.
    """
    types = {*map(type, arrays)} - _NOTHING
    if not (viewers.keys() >= types and BY_VALUE.issuperset(map(type, options))):
        return None
    dtypes = [*map(getattr, arrays, repeat("dtype"), repeat(None))]
    key = (id(product), *map(type, arrays), *map(id, dtypes), *map(id, options))
    return key, (product, dtypes, options)


_NOTHING = {type(None)}
