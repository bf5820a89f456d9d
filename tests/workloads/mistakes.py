"""The vocabulary of the tables of mistakes: a sound call of phase one, and one way to break each row of its checks.

A module's `sound()` gives arguments by their C names; each of its `MISTAKES` changes some of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from openaclnn.core.dtypes import FLOAT, DType
from openaclnn.core.tensor import Format, Tensor

__all__ = ["INVALID", "NINE", "NULL", "POINTERS", "TILING", "Mistake", "nulls", "t"]

NULL, INVALID, TILING = 161001, 161002, 561002  # as the documents print them
NINE = (1,) * 9
"""A shape of one dimension too many."""


def t(shape: tuple[int, ...], dtype: DType = FLOAT, format: int = Format.ACL_FORMAT_ND) -> Tensor:
    """A descriptor; phase one never looks at values."""
    return Tensor(shape, dtype, base=4096, format=format)


@dataclass(frozen=True)
class Mistake:
    """What breaks one row: the row, its code, who is blamed, the arguments to change (by C name)."""

    row: str
    status: int
    parameter: str
    change: dict[str, Any]
    pointers: tuple[bool, bool] = (True, True)  # workspaceSize, executor


def nulls(row: str, *names: str) -> list[Mistake]:
    """Each of these left out."""
    return [Mistake(row, NULL, name, {name: None}) for name in names]


POINTERS = [
    Mistake("0", NULL, "workspaceSize", {}, (False, True)),
    Mistake("0", NULL, "executor", {}, (True, False)),
]
"""Nowhere to put the workspace size or the executor, where that is row 0."""
