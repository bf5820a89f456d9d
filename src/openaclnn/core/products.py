"""Ascend product families, and the profile that the current call is checked against.

The default profile offers everything the documents describe. A family's profile reproduces what its
documents say about it: dtypes, missing operators, options without effect.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TypeVar

from openaclnn.core.dtypes import BFLOAT16, FLOATS, DType


@dataclass(frozen=True)
class Product:
    """One profile: `tag` is its short name, `names` what else it may be called."""

    tag: str
    title: str
    names: tuple[str, ...] = ()
    bfloat16: bool = True
    soc: str = ""

    @cached_property
    def is_default(self) -> bool:
        return self.tag == "default"

    @cached_property
    def floats(self) -> tuple[DType, ...]:
        """The floating types that operators accept on this product."""
        return FLOATS if self.bfloat16 else tuple(t for t in FLOATS if t is not BFLOAT16)


PRODUCTS: tuple[Product, ...] = (
    Product("default", "openaclnn (everything the documents describe)", soc="OpenAclnn"),
    Product("950", "Ascend 950PR / 950DT", ("950pr", "950dt", "ascend950"), soc="Ascend950"),
    Product(
        "a3",
        "Atlas A3 training / inference",
        ("910_93", "910c", "ascend910_93"),
        soc="Ascend910_93",
    ),
    Product("a2", "Atlas A2 training / inference", ("910b", "ascend910b"), soc="Ascend910B"),
    Product("310b", "Atlas 200I/500 A2 inference", ("ascend310b",), False, "Ascend310B"),
    Product("310p", "Atlas inference series", ("ascend310p",), False, "Ascend310P"),
    Product("910", "Atlas training series", ("910a", "ascend910"), False, "Ascend910A"),
    Product("310", "Atlas 200/300/500 inference", ("ascend310",), False, "Ascend310"),
)

FAMILIES: tuple[Product, ...] = tuple(p for p in PRODUCTS if not p.is_default)
"""The product families, newest first, without the default profile."""

_BY_NAME = {name: product for product in PRODUCTS for name in (product.tag, *product.names)}
_CHIP = re.compile(r"(?:ascend)?(910_93|910b|310b|310p)[0-9]{1,2}[a-z]?(?:-[0-9])?")


def find_product(name: str) -> Product:
    """The product by tag or other name, or as its chip calls itself (910B3, Ascend310P3), in any case; ValueError lists the
    known tags.
    """
    asked = name.strip().lower()
    chip = _CHIP.fullmatch(asked)
    try:
        return _BY_NAME[chip[1] if chip else asked]
    except KeyError:
        known = ", ".join(product.tag for product in PRODUCTS)
        raise ValueError(f"unknown product {name!r}; known products: {known}") from None


product_variable: ContextVar[Product | None] = ContextVar("openaclnn_product", default=None)
"""The profile that `use_product` sets; machine code reads it at every call."""
_configured: list[Product] = []

chosen_product = product_variable.get
"""The profile of the innermost `use_product` block, or None."""

listeners: list[Callable[[], None]] = []
"""Called when the process-wide profile changes."""


def configure_product(name: str | None) -> None:
    """Set the process-wide profile (the runtime's configuration file does); None forgets it."""
    product = None if name is None else find_product(name)
    _configured[:] = [] if product is None else [product]
    for listener in listeners:
        listener()


@cache
def _named_by_environment() -> Product:
    name = os.environ.get("OPENACLNN_PRODUCT")
    return find_product(name) if name else PRODUCTS[0]


def current_product() -> Product:
    """The profile in force: `use_product`, else the configuration, else `OPENACLNN_PRODUCT`, else default.

    The environment is read by the first call that asks for it; a name that is not known is refused by every call.
    """
    chosen = product_variable.get()
    if chosen is not None:
        return chosen
    if _configured:
        return _configured[0]
    return _named_by_environment()


@contextmanager
def use_product(name: str) -> Iterator[Product]:
    """Check calls in this block against another profile: `with openaclnn.use_product("910b"): ...`"""
    product = find_product(name)
    with choosing(product_variable, product):
        yield product


# Blocks choose something for the calls inside them (`use_product`, `use_engine`), and machine code has to know whether any context
# is inside one. A context may be copied inside a block and outlive the block, choice included. So every block sets a variable of
# its context to the same object, the mark: its reference count is raised as long as a context has it.
Choice = TypeVar("Choice")

_MARK = object()
_mark: ContextVar[object] = ContextVar("openaclnn_mark")


def references_at() -> int:
    """The address of the mark's 32-bit reference count, which machine code reads; if it equals REFERENCES, nothing is chosen in any context."""
    return id(_MARK)


REFERENCES = ctypes.c_uint32.from_address(references_at()).value


@contextmanager
def choosing(variable: ContextVar[Choice], choice: Choice) -> Iterator[None]:
    """A block in whose context the variable has another value."""
    mark = _mark.set(_MARK)
    token = variable.set(choice)
    try:
        yield
    finally:
        variable.reset(token)
        _mark.reset(mark)
