"""`read_cases`: a case list by the kind of its file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from openaclnn.testing.cases.atk import read_atk
from openaclnn.testing.cases.case import Case, Malformed
from openaclnn.testing.cases.ttk import read_ttk
from openaclnn.testing.files.sources import FileError

__all__ = ["read_cases"]


def read_cases(path: str | Path, sheet: str | None = None) -> Iterator[Case | Malformed]:
    """The cases of a TTK table (.csv, .xlsx; `sheet` names one) or an ATK list (.json), and rows that are none.

    FileError where the file cannot be read at all.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix == ".json":
        return read_atk(path)
    if suffix in (".csv", ".xlsx"):
        return read_ttk(path, sheet)
    raise FileError(f"{path}: a case list named .csv, .xlsx or .json is expected")
