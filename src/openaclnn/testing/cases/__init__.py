"""Case lists of other tools, read: each row or object becomes a case, or says what is wrong with it.

In the order to read: `case.py` says what a case is, and reads the words of lists; `ttk.py` (tables) and `atk.py` (JSON) are the two kinds of lists. No data are
drawn here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from openaclnn.testing.cases.atk import read_atk
from openaclnn.testing.cases.case import Case, Malformed
from openaclnn.testing.cases.ttk import read_ttk
from openaclnn.testing.files import FileError

__all__ = ["read_cases"]


def read_cases(path: str | Path, sheet: str | None = None) -> Iterator[Case | Malformed]:
    """The cases of a TTK table (.csv, .tsv, .xlsx; `sheet` names one) or an ATK list (.json), and rows that are none.

    FileError where the file cannot be read at all.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix == ".json":
        return read_atk(path)
    if suffix in (".csv", ".tsv", ".xlsx"):
        return read_ttk(path, sheet)
    raise FileError(f"{path}: a case list named .csv, .tsv, .xlsx or .json is expected")
