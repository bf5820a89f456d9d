"""Whose threads ran a contender: our own, an OpenMP team's, or the caller's alone."""

from __future__ import annotations

from typing import Any

from openaclnn.bench.timing.contenders import Contender
from openaclnn.engines import threads

__all__ = ["describe_threads", "team_of", "threaded"]

THREADED = "cpu"  # the engine that has threads


def threaded(engines: list[str]) -> list[str]:
    """Those to time by every number of threads; the others' times are the first one's."""
    return [THREADED] if THREADED in engines else engines


def team_of(contender: Contender, device: str, torch: Any) -> str:
    """A word for the table; the contender is run once to see it."""
    if device != "cpu":
        return "GPU"
    if not contender.ours:
        return "Python" if torch is None else "PyTorch"
    if contender.engine != THREADED or not _shared(contender):
        return "caller"
    return "own" if threads.team_in_use() is None else "OpenMP"


def _shared(contender: Contender) -> bool:
    """Whether a call is cut into parts: the pool then writes down how many."""
    from openaclnn.engines.cpu.launching import control, pool

    pool._CONTROL[control.PARTS] = 0
    with contender.chosen():
        contender.call()
    return bool(pool._CONTROL[control.PARTS])


def describe_threads(torch: Any) -> str:
    """How many threads large problems may use, ours and PyTorch's."""
    theirs = "" if torch is None else f"; PyTorch {torch.get_num_threads()}"
    return f"ours {threads.described()}{theirs}"
