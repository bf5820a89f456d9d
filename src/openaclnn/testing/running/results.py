"""What came of a case."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

from openaclnn.core.writing import cell_of
from openaclnn.testing.judging.compare import Comparison

__all__ = ["COLUMNS", "VERDICTS", "CaseResult"]

VERDICTS = ("passed", "failed", "refused", "skipped")

_FIGURES = (
    "max_absolute_error", "MERE", "MARE", "root_mean_square_error", "cosine_similarity", "matched", "max_ulp",
)  # fmt: skip
COLUMNS = ("name", "id", "operator", "place", "verdict", "status", "output", "standard", "judged_by", "dtype", "shape", "elements", "bad",
           *_FIGURES, "seconds", "reason", "why")  # fmt: skip
"""The columns of a table of results."""


@dataclass(frozen=True)
class CaseResult:
    """A case's verdict: one of `VERDICTS`, the status, why, and the comparison where there was one.

    Of several outputs it is that of the worst, which it names.
    """

    name: str
    operator: str
    place: str
    verdict: str
    why: str = ""
    status: int = 0
    rule: str = ""  # the check that refused it
    identity: str = ""
    comparison: Comparison | None = None
    seconds: float = 0.0
    reason: str = ""  # of a skipped case, in a word or two
    judged_by: str = ""  # the standard, with the numbers that are the list's

    @property
    def label(self) -> str:
        """Its id and its name: lists may give one name to all."""
        return f"{self.identity} {self.name}" if self.identity else self.name

    @property
    def cause(self) -> str:
        """Why, without the numbers and words that differ from case to case of one cause."""
        text = self.rule or re.sub(r"'[^']*'|[-+]?\b\d[\w.+-]*", "#", self.why)
        return re.sub(r"#(, ?#)*,?", "#", text)

    @property
    def ok(self) -> bool:
        return self.verdict in ("passed", "skipped")

    def as_dict(self) -> dict[str, Any]:
        """Everything, in types that JSON has (but for NaN and infinities among the numbers)."""
        held = asdict(self)
        held["comparison"] = None if self.comparison is None else self.comparison.as_dict()
        return held

    def row(self) -> list[str]:
        """The cells of `COLUMNS`."""
        found = self.comparison
        figures = (None if found is None else found.figures) or {}
        cells: list[Any] = [
            self.name,
            self.identity,
            self.operator,
            self.place,
            self.verdict,
            self.status,
        ]
        cells += (
            [""] * 7
            if found is None
            else [
                found.output,
                found.standard,
                self.judged_by,
                found.dtype,
                found.shape,
                found.count,
                found.bad,
            ]
        )
        cells += [f"{figures[name]:.6g}" if name in figures else "" for name in _FIGURES]
        return [cell_of(cell) for cell in (*cells, f"{self.seconds:.4f}", self.reason, self.why)]
