"""Rows of a table, CSV or .xlsx, each with its place in the file."""

from __future__ import annotations

import codecs
import csv
import io
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openaclnn.testing.extras import need
from openaclnn.testing.files.sources import FileError, read_whole

__all__ = ["CellError", "Row", "read_rows"]


_LARGEST_UNPACKED = 1 << 30  # bytes


class CellError(ValueError):
    """A cell that cannot be read, with its column."""

    def __init__(self, column: str, why: str) -> None:
        self.column = column
        super().__init__(f"column {column}: {why}")


@dataclass(frozen=True)
class Row:
    """One row: its line in the file, and its cells by column; cells that hold nothing are left out."""

    line: int
    cells: dict[str, str]

    def get(self, column: str) -> str | None:
        return self.cells.get(column)


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
        held = {
            name: cell.strip()
            for name, cell in zip(header, cells, strict=False)
            if name and cell.strip()
        }
        if held:
            yield Row(line, held)
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
    finally:
        book.close()
