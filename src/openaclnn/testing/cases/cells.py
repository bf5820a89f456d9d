"""The cells of a TTK row: literals, words and one value a tensor; what is wrong is told with its column."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

from openaclnn.core.interface import Parameter
from openaclnn.testing.cases.literals import read_literal
from openaclnn.testing.cases.tables import CellError, Row
from openaclnn.testing.cases.words import number_of
from openaclnn.testing.judging.rules import Rules

__all__ = ["Cells", "entry", "is_pair"]

_WORD = re.compile(r"(?!None$)[A-Za-z]\w*")


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

    def number(self, column: str) -> float | None:
        given = self.literal(column)
        try:
            return None if given is None else number_of(given)
        except ValueError as error:
            raise CellError(column, str(error)) from None

    def words(self, column: str) -> tuple[str, ...]:
        """Words with commas between them, however they are quoted."""
        parts = (part.strip(" '\"()[]") for part in (self.row.get(column) or "").split(","))
        return tuple(part for part in parts if part)

    def switch(self, column: str, otherwise: bool) -> bool:
        text = self.row.get(column)
        return otherwise if text is None else text.lower() not in ("false", "0")

    def tolerances(self, column: str) -> tuple[tuple[float, float], ...]:
        """(rtol, ptol), alone or one for each output."""
        given = self.literal(column)
        if given is None:
            return ()
        pairs = [given] if is_pair(given) or not isinstance(given, (tuple, list)) else given
        if not pairs or not all(is_pair(pair) for pair in pairs):
            raise CellError(column, f"(rtol, ptol) is expected, not {given!r}")
        found = tuple((number_of(pair[0]), number_of(pair[1])) for pair in pairs)
        for rtol, ptol in found:
            _judged_by(column, rtol=rtol, ptol=ptol)
        return found

    def tolerance(self, column: str) -> float | None:
        """How far an element may be off."""
        given = self.number(column)
        _judged_by(column, atol=given)
        return given

    def names(self, column: str) -> tuple[str | None, ...]:
        """Names of files, one or several, None among them."""
        given = self.literal_or_word(column)
        listed = given if isinstance(given, (tuple, list)) else [given]
        for each in listed:
            if each is not None and not isinstance(each, str):
                raise CellError(column, f"a file's name is expected, not {each!r}")
        return tuple(listed)

    def per_tensor(
        self,
        column: str,
        parameters: Sequence[Parameter],
        valued: Collection[str],
        outputs: str = "",
        numbers: str = "one",
    ) -> dict[str, Any]:
        """A column's values by C name: one for all; or one for each tensor, or for each but the outputs, which may have
        a column of their own, or but those that attributes give values of.

        Numbers alone, and lists of one entry, are "one" value for all, or one for "each" tensor, or, where each needs
        several, "none".
        """
        given = self.literal_or_word(column)
        if given is None:
            return {}
        inputs = [p for p in parameters if p.is_read]
        if not isinstance(given, (tuple, list)) or (is_pair(given) and numbers != "each"):
            if numbers == "none":
                raise CellError(column, f"an entry for each tensor is expected, not {given!r}")
            return {parameter.name: given for parameter in parameters}
        values = list(given)
        more = self.literal_or_word(outputs) if outputs else None
        if len(values) == 1 and numbers == "one":
            values *= len(parameters) if more is None else len(inputs)
        if more is not None:
            missing = [None] * (len(inputs) - len(values))
            made = len(parameters) - len(inputs)
            values += [*missing, *(entry(more, number, None) for number in range(made))]
        for which in (parameters, inputs, [p for p in parameters if p.name not in valued]):
            if len(values) == len(which):
                return {p.name: value for p, value in zip(which, values, strict=True)}
        names = ", ".join(parameter.name for parameter in parameters)
        raise CellError(column, f"{len(values)} entries for the tensors {names}")


def _judged_by(column: str, **tolerances: float | None) -> None:
    """A standard takes these, or the column is told why it does not."""
    try:
        Rules(**tolerances)  # type: ignore[arg-type]
    except ValueError as error:
        raise CellError(column, str(error)) from None


def is_pair(value: Any) -> bool:
    """Whether a value is two numbers or more, not one thing for each of several tensors."""
    if not isinstance(value, (tuple, list)) or len(value) < 2:
        return False
    return all(isinstance(each, (int, float)) for each in value)


def entry(values: Any, number: int, otherwise: Any) -> Any:
    """One of several values, or the one that stands for all."""
    if isinstance(values, (tuple, list)):
        return values[number] if number < len(values) else otherwise
    return otherwise if values is None else values
