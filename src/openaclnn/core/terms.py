"""Terms: what a plain call is but for sizes, strides and addresses. A call on the terms of one that was sound is asked about
its sizes alone, and its options are bound already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_
from typing import Any

from openaclnn.core.interop import viewers
from openaclnn.core.products import Product

__all__ = ["BY_VALUE", "Terms", "said_of"]

BY_VALUE: frozenset[type] = frozenset((float, int, bool, str, type(None)))
"""Types of options that cannot change."""


def said_of(product: Product, arrays: Sequence[Any], options: Sequence[Any]) -> tuple[Any, ...]:
    """What a call's terms are told by: the arrays' types, the dtypes of those that there are, the options and the product.
    Nothing where an option may change, or an array is not just NumPy's or PyTorch's and may say anything.
    """
    present = [array for array in arrays if array is not None]
    if not all(map(viewers.__contains__, map(type, present))):
        return ()
    if not BY_VALUE.issuperset(map(type, options)):
        return ()
    dtypes = [array.dtype for array in present]
    return *map(type, arrays), *dtypes, *options, product.tag


class Terms:
    """What was found of a sound call: its values without views of arrays, which arrays there are by their C and Python names,
    with what views each, whether all outputs are left to us and all arrays are NumPy's, and the reduction.
    """

    __slots__ = ("all_left", "arrays", "on_host", "product", "reduction", "said", "values")

    def __init__(
        self,
        said: tuple[Any, ...],
        product: Product,
        values: dict[str, Any],
        arrays: Sequence[tuple[str, str, Callable[[Any], Any]]],
        all_left: bool,
        on_host: bool,
        reduction: Any,
    ) -> None:
        self.said, self.product, self.values, self.arrays = said, product, values, arrays
        self.all_left, self.reduction = all_left, reduction
        self.on_host = on_host

    def are(self, said: tuple[Any, ...], product: Product) -> bool:
        """Whether a call that says what is equal says the very same: 0.0 equals -0.0, and dtypes may be made anew."""
        return self.product is product and all(map(is_, self.said, said))
