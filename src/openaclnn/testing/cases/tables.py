"""Rows of a TTK table, CSV or .xlsx, with what their cells say: literals, words and one value a tensor; what is wrong is told with its column."""

from __future__ import annotations

import ast
import codecs
import csv
import io
import math
import re
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openaclnn.testing.cases.case import number_of, telling
from openaclnn.testing.extras import need
from openaclnn.testing.files import FileError, read_whole
from openaclnn.testing.judging.figures import Rules

__all__ = ["Row", "file_name", "is_nothing", "read_literal", "read_rows"]

_LARGEST_UNPACKED = 1 << 30  # bytes
_LONGEST = 1 << 20  # characters of a cell
_WORD = re.compile(r"(?!(?:None|none|null)$)[A-Za-z]\w*")
_RULE = re.compile(r"ELEWISE|REDUCE\s*\([^()]*\)", re.IGNORECASE)
_NAMES = {"inf": math.inf, "nan": math.nan, "null": None, "none": None, "true": True, "false": False}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One row: its line in the file, and its cells by column; cells that hold nothing are left out."""

    line: int
    cells: dict[str, str]

    def get(self, column: str) -> str | None:
        return self.cells.get(column)

    def literal(self, column: str) -> Any:
        """A Python literal; None where the cell is empty."""
        text = self.get(column)
        with telling(f"column {column}"):
            return None if text is None else read_literal(text)

    def literal_or_word(self, column: str) -> Any:
        """A literal, or a bare word such as float16 or ND."""
        text = self.get(column)
        return text if text is not None and _WORD.fullmatch(text) else self.literal(column)

    def words(self, column: str) -> tuple[str, ...]:
        """Words with commas between them, however they are quoted."""
        parts = (part.strip(" '\"()[]") for part in (self.get(column) or "").split(","))
        return tuple(part for part in parts if part)

    def switch(self, column: str, otherwise: bool) -> bool:
        text = self.get(column)
        return otherwise if text is None else text.lower() not in ("false", "0", "0.0")

    def tolerances(self, column: str) -> tuple[tuple[float, float], ...]:
        """(rtol, ptol), alone or one for each output; what stands behind them is not read."""
        cell = self.literal(column)
        if is_nothing(cell):
            return ()
        pairs = [cell] if _is_row(cell) or not isinstance(cell, (tuple, list)) else cell
        with telling(f"column {column}"):
            if not all(_is_row(pair) and len(pair) > 1 for pair in pairs):
                raise ValueError(f"(rtol, ptol) is expected, not {cell!r}")
            tolerances = tuple((float(pair[0]), float(pair[1])) for pair in pairs)
            for rtol, ptol in tolerances:
                Rules(rtol=rtol, ptol=ptol)
        return tolerances

    def offsets(self, column: str) -> tuple[float, ...]:
        """How far an element may be off, alone or one for each output."""
        cell = self.literal(column)
        if is_nothing(cell):
            return ()
        with telling(f"column {column}"):
            offsets = tuple(number_of(each) for each in _listed(cell))
            for atol in offsets:
                Rules(atol=atol)
        return offsets

    def names(self, column: str) -> tuple[str | None, ...]:
        """Names of files, one or several, None among them."""
        names = _listed(self.literal_or_word(column))
        with telling(f"column {column}"):
            return tuple(map(file_name, names))

    def shapes(self, column: str) -> list[Any]:
        """One entry a tensor; a row of numbers alone is one tensor's. Nothing where the operator's rule is meant."""
        text = self.get(column)
        if text is None or _RULE.fullmatch(text):
            return []
        cell = self.literal(column)
        if not isinstance(cell, (tuple, list)):
            cell = () if cell is None else (cell,)
        return [cell] if _is_row(cell) or not cell else list(cell)

    def each(self, column: str, count: int, one_for_all: bool = True) -> list[Any]:
        """One entry for each of so many tensors, None where there is none; a word, or the only entry, is that of all."""
        cell = self.literal_or_word(column)
        values = [] if is_nothing(cell) else list(_listed(cell))
        if len(values) == 1 and one_for_all:
            return values * count
        return [*values[:count], *[None] * (count - len(values))]

    def ranges(self, column: str, count: int) -> list[Any]:
        """As `each`; numbers alone are one range for all tensors."""
        cell = self.literal(column)
        return [cell] * count if _is_row(cell) else self.each(column, count)


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (tuple, list)) else [value]


def _is_row(value: Any) -> bool:
    """Whether a value is numbers alone, not one thing for each of several tensors."""
    if not isinstance(value, (tuple, list)) or not value:
        return False
    return all(isinstance(each, (int, float)) for each in value)


def is_nothing(value: Any) -> bool:
    """Whether a cell is unset: empty, (), [] or None."""
    return value is None or (isinstance(value, (tuple, list, dict)) and not value)


def file_name(value: Any) -> str | None:
    """A file's name, or None for none."""
    if value is not None and not isinstance(value, str):
        raise ValueError(f"a file's name is expected, not {value!r}")
    return value


def read_literal(text: str) -> Any:
    """A number, string, tuple, list, dict or None, read and never evaluated; ValueError where the text is anything else."""
    if len(text) > _LONGEST:
        raise ValueError(f"a cell of {len(text)} characters is not read")
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"not a Python literal: {text[:60]!r}") from None


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=value) if (
            not isinstance(value, (bytes, complex)) and value is not ...
        ):
            return value
        case ast.Tuple(elts=parts):
            return tuple(_value(part) for part in parts)
        case ast.List(elts=parts):
            return [_value(part) for part in parts]
        case ast.Dict(keys=keys, values=values) if None not in keys:
            pairs = zip(keys, values, strict=True)
            return {_key(key): _value(value) for key, value in pairs}
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
            number = _value(operand)
            if isinstance(number, (int, float)) and not isinstance(number, bool):
                return -number if isinstance(sign, ast.USub) else number
        case ast.Name(id=name) if name.lower() in _NAMES:
            return _NAMES[name.lower()]
    raise ValueError(f"not a Python literal: {ast.unparse(node)[:60]!r}")


def _key(node: Any) -> str:
    key = _value(node)
    if not isinstance(key, str):
        raise ValueError(f"names are expected before colons, not {key!r}")
    return key


def read_rows(path: Path, needed: Sequence[str], sheet: str | None = None) -> Iterator[Row]:
    """The rows below the header; FileError where the file is no table, or has none of the columns that are needed."""
    lines = _xlsx(path, sheet) if path.suffix.lower() == ".xlsx" else _csv(path)
    header: list[str] | None = None
    for line, cells in lines:
        if header is None:
            header = [cell.strip() for cell in cells]
            if not any(name in header for name in needed):
                raise FileError(f"{path}: no column {' or '.join(needed)} in its first line")
            continue
        named = ((name, cell.strip()) for name, cell in zip(header, cells, strict=False))
        filled = {name: cell for name, cell in named if name and cell}
        if filled:
            yield Row(line, filled)
    if header is None:
        raise FileError(f"{path}: an empty table")


def _csv(path: Path) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(1 << 24)
    try:
        reader = csv.reader(io.StringIO(_decoded(read_whole(path)), newline=""))
        line = 1
        for cells in reader:
            yield line, cells
            line = reader.line_num + 1
    except (UnicodeDecodeError, csv.Error) as error:
        raise FileError(f"{path}: not a CSV file: {error}") from None


def _decoded(text: bytes) -> str:
    """UTF-8, or what spreadsheets write: UTF-16 with its mark, and Chinese ones GB 18030."""
    if text.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return text.decode("utf-16")
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError:
        return text.decode("gb18030")


def _xlsx(path: Path, sheet: str | None) -> Iterator[tuple[int, list[str]]]:
    openpyxl: Any = need("openpyxl", f"{path}: openpyxl reads it")
    held = io.BytesIO(read_whole(path))
    try:
        with zipfile.ZipFile(held) as parts:
            size = sum(part.file_size for part in parts.infolist())
        if size > _LARGEST_UNPACKED:
            raise FileError(f"{path}: {size:,} bytes unpacked; at most {_LARGEST_UNPACKED:,} are read")  # fmt: skip
        book = openpyxl.load_workbook(held, read_only=True, data_only=True)
    except FileError:
        raise
    except Exception as error:  # zip and XML errors of all kinds
        raise FileError(f"{path}: not an .xlsx file: {error}") from None
    try:
        if sheet is not None and sheet not in book.sheetnames:
            raise FileError(f"{path}: no sheet {sheet!r}; it has {', '.join(book.sheetnames)}")
        page = book[sheet] if sheet is not None else book.worksheets[0]
        for line, cells in enumerate(page.iter_rows(values_only=True), 1):
            yield line, ["" if cell is None else str(cell) for cell in cells]
    except FileError:
        raise
    except Exception as error:  # a sheet is read row by row: what is wrong with it shows here
        raise FileError(f"{path}: a damaged sheet: {error}") from None
    finally:
        book.close()
