"""The cells of a TTK row: literals, words and one value a tensor; what is wrong is told with its column."""

from __future__ import annotations

import re
from typing import Any

from openaclnn.testing.cases.literals import read_literal
from openaclnn.testing.cases.tables import CellError, Row
from openaclnn.testing.cases.words import number_of
from openaclnn.testing.judging.rules import Rules

__all__ = ["Cells", "entry", "is_nothing", "is_row"]

_WORD = re.compile(r"(?!(?:None|none|null)$)[A-Za-z]\w*")
_RULE = re.compile(r"ELEWISE|REDUCE\s*\([^()]*\)", re.IGNORECASE)


class Cells:
    """Reads the cells of one row."""

    def __init__(self, row: Row) -> None:
        self.row = row

    def literal(self, column: str) -> Any:
        """A Python literal; None where the cell is empty."""
        text = self.row.get(column)
        if text is None:
            return None
        try:
            return read_literal(text)
        except ValueError as error:
            raise CellError(column, str(error)) from None

    def literal_or_word(self, column: str) -> Any:
        """A literal, or a bare word such as float16 or ND."""
        text = self.row.get(column)
        return text if text is not None and _WORD.fullmatch(text) else self.literal(column)

    def words(self, column: str) -> tuple[str, ...]:
        """Words with commas between them, however they are quoted."""
        parts = (part.strip(" '\"()[]") for part in (self.row.get(column) or "").split(","))
        return tuple(part for part in parts if part)

    def switch(self, column: str, otherwise: bool) -> bool:
        text = self.row.get(column)
        return otherwise if text is None else text.lower() not in ("false", "0", "0.0")

    def tolerances(self, column: str) -> tuple[tuple[float, float], ...]:
        """(rtol, ptol), alone or one for each output; what stands behind them is not read."""
        given = self.literal(column)
        if is_nothing(given):
            return ()
        pairs = [given] if is_row(given) or not isinstance(given, (tuple, list)) else given
        if not all(is_row(pair) and len(pair) > 1 for pair in pairs):
            raise CellError(column, f"(rtol, ptol) is expected, not {given!r}")
        found = tuple((float(pair[0]), float(pair[1])) for pair in pairs)
        for rtol, ptol in found:
            _judged_by(column, rtol=rtol, ptol=ptol)
        return found

    def offsets(self, column: str) -> tuple[float, ...]:
        """How far an element may be off, alone or one for each output."""
        given = self.literal(column)
        if is_nothing(given):
            return ()
        try:
            listed = given if isinstance(given, (tuple, list)) else (given,)
            found = tuple(number_of(each) for each in listed)
        except ValueError as error:
            raise CellError(column, str(error)) from None
        for atol in found:
            _judged_by(column, atol=atol)
        return found

    def names(self, column: str) -> tuple[str | None, ...]:
        """Names of files, one or several, None among them."""
        given = self.literal_or_word(column)
        listed = given if isinstance(given, (tuple, list)) else [given]
        for each in listed:
            if each is not None and not isinstance(each, str):
                raise CellError(column, f"a file's name is expected, not {each!r}")
        return tuple(listed)

    def shapes(self, column: str) -> list[Any]:
        """One entry a tensor; a row of numbers alone is one tensor's. Nothing where the operator's rule is meant."""
        text = self.row.get(column)
        if text is None or _RULE.fullmatch(text):
            return []
        given = self.literal(column)
        if not isinstance(given, (tuple, list)):
            given = () if given is None else (given,)
        return [given] if is_row(given) or not given else list(given)

    def each(self, column: str, count: int, one_for_all: bool = True) -> list[Any]:
        """One entry for each of so many tensors, None where there is none; a word, or the only entry, is that of all."""
        given = self.literal_or_word(column)
        if is_nothing(given):
            return [None] * count
        values = list(given) if isinstance(given, (tuple, list)) else [given]
        if len(values) == 1 and one_for_all:
            return values * count
        return [*values[:count], *[None] * (count - len(values))]

    def ranges(self, column: str, count: int) -> list[Any]:
        """As `each`; numbers alone are one range for all tensors."""
        given = self.literal(column)
        return [given] * count if given and is_row(given) else self.each(column, count)


def _judged_by(column: str, **tolerances: float | None) -> None:
    """A standard takes these, or the column is told why it does not."""
    try:
        Rules(**tolerances)  # type: ignore[arg-type]
    except ValueError as error:
        raise CellError(column, str(error)) from None


def is_row(value: Any) -> bool:
    """Whether a value is numbers alone, not one thing for each of several tensors."""
    if not isinstance(value, (tuple, list)) or not value:
        return False
    return all(isinstance(each, (int, float)) for each in value)


def is_nothing(value: Any) -> bool:
    """Whether a cell is unset: empty, (), [] or None."""
    return value is None or (isinstance(value, (tuple, list, dict)) and not value)


def entry(values: Any, number: int, otherwise: Any) -> Any:
    """One of several values, or the one that stands for all."""
    if isinstance(values, (tuple, list)):
        return values[number] if number < len(values) else otherwise
    return otherwise if values is None else values
