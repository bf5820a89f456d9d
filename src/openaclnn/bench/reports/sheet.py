"""Every timing as CSV, a line for each contender of each case."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import Any

from openaclnn.bench.tables.cells import PEERS, size

__all__ = ["sheet"]

_ABOUT = (
    "operator", "variant", "regime", "layout", "dtype", "threads", "team", "contender", "status",
    "disturbed", "slow", "median_us", "q1_us", "q3_us", "minimum_us", "host_us", "rounds", "inner", "gbps", "of_copy",
    "of_round",
)  # fmt: skip


def sheet(reports: Iterable[dict[str, Any]]) -> str:
    """The text of the file."""
    target = io.StringIO()
    names = (
        "machine",
        "mode",
        "date",
        "shape",
        "round shape",
        *_ABOUT,
        *(f"x {peer}" for peer in PEERS),
        "note",
    )
    lines = csv.DictWriter(target, names, lineterminator="\n")
    lines.writeheader()
    for results in reports:
        where = results["machine"].get("gpu") or results["machine"]["cpu"]
        for row in (*results["rows"], *results.get("overrides", ())):
            known = {name: _told(row.get(name)) for name in _ABOUT}
            ratios = {f"x {peer}": _told(row["ratios"].get(peer)) for peer in PEERS}
            lines.writerow(
                {"machine": where, "mode": results["mode"], "date": results["date"],
                 "shape": size(row["shape"]), "round shape": size(row["near"]), "note": row["note"], **known, **ratios}
            )  # fmt: skip
    return target.getvalue()


def _told(value: Any) -> Any:
    return f"{value:.4g}" if isinstance(value, float) else value
