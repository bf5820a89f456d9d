"""Timing: contenders take turns round by round in one process, in an order that rotates.

Before a sample a contender runs untimed if that is cheap, so that it is timed warm: on a CPU for some milliseconds, since one call does not
bring back what others drove out of sixteen cores' caches, on a GPU once. Nothing rests in between: on x86-64
OpenMP's threads spin for milliseconds after each of PyTorch's operators, and whoever is next meets them, as in training.
A GPU is still at that run when its clock starts: the host is ahead of it, as in training, unless it is what a call waits for.
"""

from __future__ import annotations

import functools
import gc
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from openaclnn.bench.timing.contenders import Contender

__all__ = ["CpuClock", "CudaClock", "Sample", "Timing", "interleave", "paired_ratio", "rotated"]

SAMPLE_SECONDS = 1e-3  # a sample repeats its call until it lasts this long
CHEAP_SECONDS = 10e-3  # calls below this are warmed up before each sample
MINIMUM_ROUNDS = 3
MAXIMUM_INNER = 20_000
WARM_CALLS = 16  # at most, where calls are counted


class Sample(NamedTuple):
    """Seconds per call: until the work is done, and until the call returned."""

    seconds: float
    host: float

    def without(self, aside: float) -> Sample:
        """The same less what the host did aside, which a GPU waited for if a sample has any: such calls take the host longest."""
        return Sample(self.seconds - aside, self.host - aside)


def nothing() -> None:
    """Before a sample that is taken cold."""


class Clock(Protocol):
    """What times `inner` calls as one sample, right after what is done before."""

    warm_seconds: float  # how long calls that are cheap run before a sample, and once at least

    def sample(
        self, call: Callable[[], Any], inner: int, before: Callable[[], Any] = nothing
    ) -> Sample: ...


class CpuClock:
    """Wall time."""

    warm_seconds = 4e-3

    def sample(
        self, call: Callable[[], Any], inner: int, before: Callable[[], Any] = nothing
    ) -> Sample:
        before()
        start = time.perf_counter()
        for _ in range(inner):
            call()
        each = (time.perf_counter() - start) / inner
        return Sample(each, each)


class CudaClock:
    """CUDA events on torch's current stream; the host's share is wall time before the synchronisation."""

    warm_seconds = 0.0

    def __init__(self, torch: Any) -> None:
        self.torch = torch

    def sample(
        self, call: Callable[[], Any], inner: int, before: Callable[[], Any] = nothing
    ) -> Sample:
        event = self.torch.cuda.Event
        first, last = event(enable_timing=True), event(enable_timing=True)
        self.torch.cuda.synchronize()
        before()
        start = time.perf_counter()
        first.record()
        for _ in range(inner):
            call()
        last.record()
        host = time.perf_counter() - start
        last.synchronize()
        return Sample(first.elapsed_time(last) * 1e-3 / inner, host / inner)


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

    def summary(self) -> dict[str, Any]:
        """Microseconds per call: median, quartiles, minimum, host; and how they were sampled."""
        seconds = np.array([sample.seconds for sample in self.samples.values()]) * 1e6
        low, middle, high = (float(value) for value in np.percentile(seconds, (25, 50, 75)))
        host = float(np.median([sample.host for sample in self.samples.values()])) * 1e6
        return {
            "median_us": middle, "q1_us": low, "q3_us": high, "minimum_us": float(seconds.min()),
            "host_us": host, "rounds": len(seconds), "inner": self.inner,
        }  # fmt: skip


def rotated(items: Sequence[Contender], turn: int) -> list[Contender]:
    """The order of one round: each contender comes first in turn."""
    shift = turn % len(items) if items else 0
    return [*items[shift:], *items[:shift]]


def interleave(
    contenders: Sequence[Contender],
    clock: Clock,
    rounds: int,
    budget_seconds: float = 0.5,
    sample_seconds: float = SAMPLE_SECONDS,
) -> dict[str, Timing]:
    """Time contenders against each other; `budget_seconds` bounds what one slow contender may take.

    A contender whose calls are counted has none to calibrate with: each sample is its `calls`, after as many to warm up, or some.
    """
    timings = {
        each.name: Timing(each.calls, rounds, min(each.calls, WARM_CALLS))
        if each.calls
        else _calibrated(each, clock, rounds, budget_seconds, sample_seconds)
        for each in contenders
    }
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for turn in range(rounds):
            for contender in rotated(contenders, turn):
                timing = timings[contender.name]
                if turn >= timing.turns:
                    continue
                warm_up = functools.partial(
                    _repeat, contender.warm_up or contender.call, timing.warm_up
                )
                with contender.chosen():
                    timing.samples[turn] = _sampled(contender, clock, timing.inner, warm_up)
    finally:
        if collecting:
            gc.enable()
    return timings


def _sampled(contender: Contender, clock: Clock, inner: int, warm_up: Callable[[], Any]) -> Sample:
    """A sample of what counts of the contender's calls."""
    aside = contender.aside
    if aside is None:
        return clock.sample(contender.call, inner, warm_up)

    def before() -> None:
        warm_up()
        aside.taken()

    return clock.sample(contender.call, inner, before).without(aside.taken() / inner)


def _repeat(call: Callable[[], Any], times: int) -> None:
    for _ in range(times):
        call()


def _calibrated(
    contender: Contender, clock: Clock, rounds: int, budget_seconds: float, sample_seconds: float
) -> Timing:
    """How often to repeat the call in a sample, and in how many rounds."""
    with contender.chosen():
        # It ran before, when it was checked: of a call that takes long, one tells enough.
        once = clock.sample(contender.call, 1).seconds
        if once < CHEAP_SECONDS:
            once = clock.sample(contender.call, 1).seconds
        if once < SAMPLE_SECONDS:
            once = max(clock.sample(contender.call, 5).seconds, 1e-9)
    inner = min(max(1, math.ceil(sample_seconds / once)), MAXIMUM_INNER)
    turns = min(rounds, max(MINIMUM_ROUNDS, int(budget_seconds / (once * inner))))
    warm_up = max(1, min(round(clock.warm_seconds / once), MAXIMUM_INNER))
    return Timing(inner, turns, warm_up if once < CHEAP_SECONDS else 0)


def paired_ratio(peer: Timing, own: Timing, what: str = "seconds") -> float | None:
    """Median over the rounds that both took part in of peer's time / own time, or of what else a sample has."""
    common = peer.samples.keys() & own.samples.keys()
    if not common:
        return None
    times = [[getattr(each.samples[r], what) for each in (peer, own)] for r in common]
    return float(np.median([theirs / ours for theirs, ours in times]))
