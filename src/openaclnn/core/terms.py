"""Terms: what a plain call is but for sizes, strides and addresses. A call on the terms of one that was sound is asked about
its sizes alone, and its options are bound already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from openaclnn.core.interop import viewers
from openaclnn.core.products import Product

__all__ = ["BY_VALUE", "Said", "Terms", "said_of"]

BY_VALUE: frozenset[type] = frozenset((float, int, bool, str, type(None)))
"""Types of options that cannot change."""


class Said(NamedTuple):
    """What terms are told by: the arrays' types and dtypes, None where there is none, the options and the product, by the very
    objects, which are held as long.
    """

    key: tuple[Any, ...]
    types: tuple[type, ...]
    dtypes: Sequence[Any]
    options: Sequence[Any]
    product: Product

    def lasts(self) -> bool:
        """Whether nothing of it can change."""
        return BY_VALUE.issuperset(map(type, self.options))


def said_of(product: Product, arrays: Sequence[Any], options: Sequence[Any]) -> Said | None:
    """The same of a call; None where an array is not just NumPy's or PyTorch's, and may say anything."""
    types = tuple(map(type, arrays))
    if not viewers.keys() >= {*types} - _NOTHING:
        return None
    dtypes = [*map(getattr, arrays, repeat("dtype"), repeat(None))]
    key = (id(product), *types, *map(id, dtypes), *map(id, options))
    return _new_said(Said, (key, types, dtypes, options, product))


_NOTHING = {type(None)}
_new_said = tuple.__new__  # a third of the time


class Terms:
    """What was found of a sound call: its values without views of arrays, which arrays there are by their C and Python names,
    with what views each, whether all outputs are left to us, and the reduction.
    """

    __slots__ = ("all_left", "arrays", "on_host", "reduction", "said", "values")

    def __init__(
        self,
        said: Said,
        values: dict[str, Any],
        arrays: Sequence[tuple[str, str, Callable[[Any], Any]]],
        all_left: bool,
        reduction: Any,
    ) -> None:
        self.said, self.values, self.arrays = said, values, arrays
        self.all_left, self.reduction = all_left, reduction
        self.on_host = {*said.types} - _NOTHING == {np.ndarray}
