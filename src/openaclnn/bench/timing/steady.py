"""A machine whose speed changes: each round of a case times a yardstick too, and a case that met a slow machine is timed again later.

Cores run at two speeds, 1.5 to 1.7 apart, for seconds at a time. Of the attempts at a case that one is kept during which other
processes took no cores and the yardstick was the quickest: the contenders' own times have no say in it. One that found a wrong result
is always kept.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from openaclnn.bench.timing.contenders import Contender
from openaclnn.bench.timing.measure import Timing

__all__ = ["AGAIN", "TOLERATED", "Progress", "Steady", "taken_out", "yardstick"]

AGAIN = 4  # times that a case is timed again, at most
TOLERATED = 1.15  # a yardstick over the quickest of the run
TURNS = 1000  # of the yardstick's loop: some tens of microseconds
CALLS = 4  # of it, in a sample
NAME = "yardstick"

Progress = Callable[[Sequence[Any], str], Iterator[Any]]
Row = dict[str, Any]


def yardstick() -> Contender:
    """A fixed piece of work, which nothing but the machine's speed makes longer."""
    return Contender(NAME, _work, calls=CALLS)


def _work() -> int:
    total = 0
    for number in range(TURNS):
        total ^= number
    return total


def taken_out(timings: dict[str, Timing]) -> float:
    """The yardstick's median in microseconds of the host's time; it is no contender any more."""
    found: float = timings.pop(NAME).summary()["host_us"]
    return found


class Steady:
    """Runs cases, and those again that met a slow machine; knows the quickest yardstick of the run.

    A case's rows have `status`, `yardstick_us` and `disturbed`. `seconds` bounds what timing again may take in a section; None is as
    long as the section took.
    """

    def __init__(
        self,
        follow: Progress,
        seconds: float | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.follow, self.seconds, self.clock = follow, seconds, clock
        self.quickest = math.inf

    def rows(
        self, cases: Sequence[Any], run_one: Callable[[Any], list[Row]], label: str
    ) -> list[Row]:
        """All rows of the cases, in their order."""
        start = self.clock()
        kept = [self._noted(run_one(case)) for case in self.follow(cases, label)]
        now = self.clock()
        limit = now + (now - start if self.seconds is None else self.seconds)
        attempts = [1] * len(kept)
        for _ in range(AGAIN):
            put_off = [place for place, rows in enumerate(kept) if self._unsteady(rows)]
            if not put_off or self.clock() >= limit:
                break
            again = self.follow([cases[place] for place in put_off], f"{label}, again")
            for place, case in zip(put_off, again, strict=True):
                if self.clock() >= limit:
                    break
                kept[place] = min(kept[place], self._noted(run_one(case)), key=_faults)
                attempts[place] += 1
        told = zip(kept, attempts, strict=True)
        return [row | {"attempts": count} for rows, count in told for row in rows]

    def mark(self, rows: Iterable[Row]) -> None:
        """Enter which rows stayed slow, when the quickest yardstick of all sections is known."""
        for row in rows:
            row["slow"] = row["yardstick_us"] > TOLERATED * self.quickest

    def _noted(self, rows: list[Row]) -> list[Row]:
        self.quickest = min([self.quickest, *(row["yardstick_us"] for row in rows)])
        return rows

    def _unsteady(self, rows: Sequence[Row]) -> bool:
        right, disturbed, worst = _faults(rows)
        return right and (disturbed or worst > TOLERATED * self.quickest)


def _faults(rows: Sequence[Row]) -> tuple[bool, bool, float]:
    """What attempts are compared by; the least is kept. A wrong result is told before all, and a disturbed attempt is worse than any slow one."""
    right = all(row["status"] != "WRONG" for row in rows)
    disturbed = any(row["disturbed"] for row in rows)
    return right, disturbed, max((row["yardstick_us"] for row in rows), default=0.0)
