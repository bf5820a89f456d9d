"""How long contenders take: in turns round by round in one process, in an order that rotates; and what else a time depends on.

Before a sample a contender runs untimed if that is cheap, so that it is timed warm: on a CPU for some milliseconds, since one call does not
bring back what others drove out of sixteen cores' caches, on a GPU once. Nothing rests in between: on x86-64
OpenMP's threads spin for milliseconds after each of PyTorch's operators, and whoever is next meets them, as in training.
A GPU is still at that run when its clock starts: the host is ahead of it, as in training, unless it is what a call waits for. Functions' steps on large
problems are the GPU's time alone (`AheadClock`), beside which their rows tell the host's.
"""

from __future__ import annotations

import functools
import gc
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

COPY = "copy"
BESIDE = ", beside"  # ends the names of what is timed for others to be compared with
SAMPLE_SECONDS = 1e-3  # a sample repeats its call until it lasts this long
CHEAP_SECONDS = 10e-3  # calls below this are warmed up before each sample
SLOW_SECONDS = 0.5  # of all turns of one contender that is slow, but for the least number of turns
MINIMUM_ROUNDS = 3
MAXIMUM_INNER = 20_000
WARM_CALLS = 16  # at most, where calls are counted

Row = dict[str, Any]
"""A contender's line of results, as the JSON file holds it."""
Call = Callable[[], Any]


def nothing() -> None:
    """Before a sample that is taken cold, or of a contender that cannot be had."""


@dataclass(frozen=True)
class Contender:
    """One way to the result. `unavailable` says why there is nothing to call, `fault` what is wrong with the result."""

    name: str
    call: Call = nothing
    ours: bool = False
    engine: str = ""
    writes_out: bool = False  # the result is in the problem's `out`, else it is returned
    unavailable: str = ""
    fault: str = ""
    warm_up: Call | None = None  # before a sample, where it is not the call itself
    calls: int = 0  # of a sample, where they are counted; else as many as last long enough
    # What its calls run inside of, entered before the clock starts: the choice of an engine that calls do not get by themselves.
    inside: Callable[[], AbstractContextManager[Any]] = nullcontext

    @property
    def status(self) -> str:
        """How it stands: one of ours that is wrong is not timed, another's is, and marked."""
        if self.unavailable:
            return "unavailable"
        return "ok" if not self.fault else "WRONG" if self.ours else "inexact"


class Sample(NamedTuple):
    """Seconds per call: until the work is done, and until the call returned."""

    seconds: float
    host: float


class Clock:
    """Wall time of `inner` calls as one sample, right after what is done before."""

    warm_seconds = 4e-3  # how long calls that are cheap run before a sample, and once at least
    step_seconds = 10e-3  # of a sample of steps: a GPU that has to wait for the first of them does not wait in training

    def sample(self, call: Call, inner: int, before: Call = nothing) -> Sample:
        before()
        start = time.perf_counter()
        for _ in range(inner):
            call()
        each = (time.perf_counter() - start) / inner
        return Sample(each, each)

    @property
    def ahead(self) -> Clock:
        """The clock of what follows a model's work in training: where there is a GPU, of its time alone."""
        return self


class CudaClock(Clock):
    """CUDA events on torch's current stream; the host's share is wall time before the synchronisation."""

    warm_seconds = 0.0

    def __init__(self, torch: Any) -> None:
        self.torch = torch

    def sample(self, call: Call, inner: int, before: Call = nothing) -> Sample:
        return self._sample(call, inner, before)[0]

    @functools.cached_property
    def ahead(self) -> Clock:
        return AheadClock(self.torch)

    def _sample(self, call: Call, inner: int, before: Call) -> tuple[Sample, bool]:
        """A sample, and whether the GPU was still at what came before when the host had queued all calls."""
        event = self.torch.cuda.Event
        first, last = event(enable_timing=True), event(enable_timing=True)
        self.torch.cuda.synchronize()
        before()
        start = time.perf_counter()
        first.record()
        for _ in range(inner):
            call()
        last.record()
        host, ahead = time.perf_counter() - start, not first.query()
        last.synchronize()
        return Sample(first.elapsed_time(last) * 1e-3 / inner, host / inner), ahead


class AheadClock(CudaClock):
    """The GPU's time alone: copies keep it busy until the host has queued all calls, as a model's layers do in training.

    A call that waits for the GPU itself is never ahead of it: its time has the wait in it.
    """

    step_seconds = 2e-3  # no more than a GPU's queue holds
    ATTEMPTS, BYTES = 4, 1 << 30

    def __init__(self, torch: Any) -> None:
        super().__init__(torch)
        self._bytes = torch.empty(2, self.BYTES, dtype=torch.uint8, device="cuda")
        self._copy()
        self._seconds = CudaClock.sample(self, self._copy, 16).seconds

    def _copy(self) -> None:
        self._bytes[0].copy_(self._bytes[1])

    def sample(self, call: Call, inner: int, before: Call = nothing) -> Sample:
        sample, ahead = self._sample(call, inner, before)
        for attempt in range(self.ATTEMPTS):
            # A host that needs far less than the GPU is ahead of it after the first call.
            if ahead or sample.host < 0.5 * sample.seconds:
                break
            copies = math.ceil(1.5 * (attempt + 1) * sample.host * inner / self._seconds)

            def busy(copies: int = copies) -> None:
                before()
                for _ in range(copies):
                    self._copy()

            sample, ahead = self._sample(call, inner, busy)
        return sample


@dataclass
class Timing:
    """One contender's samples by round; a slow contender sits later rounds out."""

    inner: int
    turns: int
    warm_up: int  # untimed calls before each sample
    samples: dict[int, Sample] = field(default_factory=dict)

    @property
    def median(self) -> float:
        return float(np.median([sample.seconds for sample in self.samples.values()]))

    def summary(self) -> Row:
        """Microseconds per call: median, quartiles, minimum, host; and how they were sampled."""
        seconds = np.array([sample.seconds for sample in self.samples.values()]) * 1e6
        low, middle, high = (float(value) for value in np.percentile(seconds, (25, 50, 75)))
        host = float(np.median([sample.host for sample in self.samples.values()])) * 1e6
        return {
            "median_us": middle, "q1_us": low, "q3_us": high, "minimum_us": float(seconds.min()),
            "host_us": host, "rounds": len(seconds), "inner": self.inner,
        }  # fmt: skip


def paired_ratio(peer: Timing, ours: Timing, what: str = "seconds") -> float | None:
    """Median over the rounds that both took part in of peer's time / ours, or of what else a sample has."""
    common = peer.samples.keys() & ours.samples.keys()
    if not common:
        return None
    ratios = [getattr(peer.samples[n], what) / getattr(ours.samples[n], what) for n in common]
    return float(np.median(ratios))


def rotated(items: Sequence[Contender], turn: int) -> list[Contender]:
    """The order of one round: each contender comes first in turn."""
    shift = turn % len(items) if items else 0
    return [*items[shift:], *items[:shift]]


def interleave(
    contenders: Sequence[Contender],
    clock: Clock,
    rounds: int,
    sample_seconds: float = SAMPLE_SECONDS,
) -> dict[str, Timing]:
    """Time contenders against each other.

    A contender whose calls are counted has none to calibrate with: each sample is its `calls`, after as many to warm up, or some.
    """
    timings = {
        each.name: Timing(each.calls, rounds, min(each.calls, WARM_CALLS))
        if each.calls
        else _calibrated(each, clock, rounds, sample_seconds)
        for each in contenders
    }
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for turn in range(rounds):
            for contender in rotated(contenders, turn):
                timing = timings[contender.name]
                if turn < timing.turns:
                    with contender.inside():
                        timing.samples[turn] = clock.sample(
                            contender.call, timing.inner, _warming(contender, timing.warm_up)
                        )
    finally:
        if collecting:
            gc.enable()
    return timings


def _warming(contender: Contender, times: int) -> Call:
    warm_up = contender.warm_up or contender.call
    return lambda: [warm_up() for _ in range(times)]


def _calibrated(contender: Contender, clock: Clock, rounds: int, sample_seconds: float) -> Timing:
    """How often to repeat the call in a sample, and in how many rounds."""
    with contender.inside():
        # It ran before, when it was checked: of a call that takes long, one tells enough.
        once = clock.sample(contender.call, 1).seconds
        if once < CHEAP_SECONDS:
            once = clock.sample(contender.call, 1).seconds
        if once < SAMPLE_SECONDS:
            once = max(clock.sample(contender.call, 5).seconds, 1e-9)
    inner = min(max(1, math.ceil(sample_seconds / once)), MAXIMUM_INNER)
    turns = min(rounds, max(MINIMUM_ROUNDS, int(SLOW_SECONDS / (once * inner))))
    warm_up = max(1, min(round(clock.warm_seconds / once), MAXIMUM_INNER))
    return Timing(inner, turns, warm_up if once < CHEAP_SECONDS else 0)


class OtherLoad:
    """How many cores other processes used until it was stopped; `cores` stays None where Linux's /proc is missing.

    PyTorch's threads spin at barriers: with one of two cores taken by another process, a call of 17 us was
    measured at 505 us and one of 152 us at 750 us. Ratios taken then are not ours to report.
    """

    def __init__(self) -> None:
        self.cores: float | None = None
        self._start = time.perf_counter(), _busy_cores(), sum(os.times()[:4])

    def stop(self) -> None:
        start, busy, this_process = self._start
        now = _busy_cores()
        if busy is not None and now is not None:
            others = (now - busy) - (sum(os.times()[:4]) - this_process)
            self.cores = max(others / (time.perf_counter() - start), 0.0)

    def disturbs(self, threads: int) -> bool:
        """Whether they took more than the cores that the benchmark leaves free; 0.2 is noise of the ticks."""
        spare = max((os.cpu_count() or 1) - threads, 0)
        return self.cores is not None and self.cores > spare + 0.2


def _busy_cores() -> float | None:
    """Seconds that all cores together have worked since the machine started."""
    statistics = Path("/proc/stat")
    if not statistics.exists():
        return None
    ticks = [int(number) for number in statistics.read_text().split("\n", 1)[0].split()[1:8]]
    user, nice, system, _, _, interrupts, soft = ticks  # idle and waiting are left out
    return (user + nice + system + interrupts + soft) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Bench:
    """What every case of a run is timed with."""

    device: str
    engines: Sequence[str]  # ours, the one that calls get by themselves first
    torch: Any
    clock: Clock
    rounds: int
    threads: int = 1  # that ours may use now
    quick: bool = False
    named: bool = False  # the engines were asked for


@dataclass(frozen=True)
class Case:
    """What a line of a table tells of, and what runs it: the operator, function or module as the table calls it."""

    name: str
    variant: str
    regime: str
    shape: tuple[int, ...]
    dtype: str
    runner: Callable[[Case, Bench], list[Row]] = field(repr=False, compare=False)
    kind: str = ""  # in its title, where that does not name variant and regime

    def run(self, bench: Bench) -> list[Row]:
        """Check and time it: a row for each contender."""
        return self.runner(self, bench)

    @property
    def title(self) -> str:
        """By which it is selected."""
        return f"{self.name} {self.kind or f'{self.variant} {self.regime}'} {self.dtype}"

    @property
    def about(self) -> Row:
        """What all its rows say."""
        return {
            "operator": self.name, "variant": self.variant, "regime": self.regime, "shape": list(self.shape),
            "dtype": self.dtype,
        }  # fmt: skip


def time_contenders(
    about: Row,
    contenders: Sequence[Contender],
    bench: Bench,
    *,
    beside: Sequence[Contender] = (),
    measuring: bool = False,
    sample_seconds: float = SAMPLE_SECONDS,
    load: OtherLoad | None = None,
) -> list[Row]:
    """A row for each contender; what has none is timed `beside` them, for those of its name to be compared with.

    With `measuring`, each round has the yardstick, and ratios are of the caller's own time, too. `load` counts what other processes did since before the call.
    """
    timed = [each for each in contenders if each.status in ("ok", "inexact")]
    others = [replace(each, name=each.name + BESIDE) for each in beside]
    everyone = [*timed, *others, *([Contender(YARDSTICK, _work, calls=4)] if measuring else [])]
    load = load or OtherLoad()
    timings = interleave(everyone, bench.clock, bench.rounds, sample_seconds)
    load.stop()
    common = about | {
        "others_cores": load.cores, "disturbed": load.disturbs(bench.threads), "of_copy": None, "of_beside": None,
        "threads": bench.threads if bench.device == "cpu" else None, "inexact": [each.name for each in timed if each.fault],
    }  # fmt: skip
    if measuring:
        common["yardstick_us"] = timings.pop(YARDSTICK).summary()["host_us"]
    peers = [c.name for c in timed if not c.ours and c.name != COPY]
    rows = []
    for each in contenders:
        timing = timings.get(each.name)
        row = common | {
            "contender": each.name, "ours": each.ours, "engine": each.engine, "ratios": {},
            "status": each.status, "note": each.unavailable or each.fault,
        }  # fmt: skip
        if timing is not None:
            row |= timing.summary()
            if COPY in timings:
                row["of_copy"] = paired_ratio(timings[COPY], timing)
            if each.name + BESIDE in timings:
                row["of_beside"] = paired_ratio(timing, timings[each.name + BESIDE])
            for name, what in {"ratios": "seconds", "host_ratios": "host"}.items():
                if each.ours and (measuring or what == "seconds"):
                    row[name] = {peer: paired_ratio(timings[peer], timing, what) for peer in peers}
        rows.append(row)
    return rows


# Cores run at two speeds, 1.5 to 1.7 apart, for seconds at a time. Each round of a case on few elements therefore times a yardstick too, and
# a case that met a slow machine is timed again later. Of the attempts at a case that one is kept during which other processes took no
# cores and the yardstick was the quickest: the contenders' own times have no say in it. One that found a wrong result is always kept. Large problems
# have no yardstick, and are timed again where other processes took cores.
AGAIN = 4  # times that a case is timed again, at most
TOLERATED = 1.15  # a yardstick over the quickest of the run
YARDSTICK = "yardstick"

Progress = Callable[[Sequence[Any], str], Iterator[Any]]


def _work() -> int:
    """Some tens of microseconds of work, which nothing but the machine's speed makes longer."""
    total = 0
    for number in range(1000):
        total ^= number
    return total


class Steady:
    """Runs cases, and those again that met a slow machine or other processes; knows the quickest yardstick of the run.

    Rows have `status` and `disturbed`, and `yardstick_us` where there is one. `seconds` bounds what timing again may take
    in a section; None is as long as the section took.
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
            unsteady = [place for place, rows in enumerate(kept) if self._unsteady(rows)]
            if not unsteady or self.clock() >= limit:
                break
            again = self.follow([cases[place] for place in unsteady], f"{label}, again")
            for place, case in zip(unsteady, again, strict=False):  # fewer where the run is stopped
                if self.clock() >= limit:
                    break
                kept[place] = min(kept[place], self._noted(run_one(case)), key=_badness)
                attempts[place] += 1
        for rows, count in zip(kept, attempts, strict=True):
            for row in rows:
                row["attempts"] = count
        return [row for rows in kept for row in rows]

    def mark(self, rows: Iterable[Row]) -> None:
        """Enter which rows stayed slow, when the quickest yardstick of all sections is known."""
        for row in rows:
            if "yardstick_us" in row:
                row["slow"] = row["yardstick_us"] > TOLERATED * self.quickest

    def _noted(self, rows: list[Row]) -> list[Row]:
        self.quickest = min([self.quickest, *(row.get("yardstick_us", math.inf) for row in rows)])
        return rows

    def _unsteady(self, rows: Sequence[Row]) -> bool:
        right, disturbed, slowest = _badness(rows)
        return right and (disturbed or slowest > TOLERATED * self.quickest)


def _badness(rows: Sequence[Row]) -> tuple[bool, bool, float]:
    """What attempts are compared by; the least is kept. A wrong result is told before all, and a disturbed attempt is worse than any slow one."""
    right = all(row["status"] != "WRONG" for row in rows)
    disturbed = any(row["disturbed"] for row in rows)
    return right, disturbed, max((row.get("yardstick_us", 0.0) for row in rows), default=0.0)
