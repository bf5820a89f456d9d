"""Our way and PyTorch's to the same result, on few elements: in turn, with a yardstick in every round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from openaclnn.bench.timing.contenders import Contender
from openaclnn.bench.timing.machine import OtherLoad
from openaclnn.bench.timing.measure import SAMPLE_SECONDS, Clock, interleave, paired_ratio
from openaclnn.bench.timing.steady import taken_out, yardstick
from openaclnn.bench.timing.verify import status_of

__all__ = ["OURS", "SHAPES", "THEIRS", "run_pair"]

OURS, THEIRS = "openaclnn.torch", "torch"
SHAPES = {"elementwise": (16,), "rows": (2, 8), "pixels": (1, 4, 2, 2)}
"""16 elements, where nothing but the call itself takes time."""


def run_pair(
    about: dict[str, Any], sides: Sequence[Contender], fault: str, device: str, clock: Clock, rounds: int,
    budget: float, threads: int, sample_seconds: float = SAMPLE_SECONDS,
) -> list[dict[str, Any]]:  # fmt: skip
    """Time both, or PyTorch's alone where ours has a fault: a row for each. Ratios are of the time until the work is done, and of the
    caller's own.
    """
    kept = [each for each in sides if not (each.ours and fault)]
    with OtherLoad() as load:
        timings = interleave([*kept, yardstick()], clock, rounds, budget, sample_seconds)
    steps = taken_out(timings)
    rows = []
    for name in (OURS, THEIRS):
        found, ours = timings.get(name), name == OURS
        row: dict[str, Any] = {
            **about, "near": [], "contender": name, "ours": ours,
            "status": status_of(fault if ours else "", found), "note": fault if ours else "",
            "threads": threads if device == "cpu" else None, "disturbed": load.disturbs(threads),
            "yardstick_us": steps, "ratios": {}, "host_ratios": {},
        }  # fmt: skip
        if found is not None:
            row |= found.summary()
        if found is not None and ours:
            row["ratios"] = {THEIRS: paired_ratio(timings[THEIRS], found)}
            row["host_ratios"] = {THEIRS: paired_ratio(timings[THEIRS], found, "host")}
        rows.append(row)
    return rows
