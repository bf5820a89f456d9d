"""Cases shared among processes; results keep the order of the cases."""

from __future__ import annotations

import itertools
import multiprocessing
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor

from openaclnn.engines.threads import get_num_threads, set_num_threads
from openaclnn.testing.running.pipeline import Item, Settings, run_here
from openaclnn.testing.running.results import CaseResult

__all__ = ["run_in_processes"]

_TOGETHER = 16  # cases handed to a process at once


def run_in_processes(cases: Iterable[Item], settings: Settings, jobs: int) -> Iterator[CaseResult]:
    """Bundles of cases, of which some wait for a process; all that are not done share the memory that is allowed."""
    bundles = _bundles(iter(cases), settings, settings.memory // (2 * jobs))
    waiting: deque[tuple[int, Future[list[CaseResult]]]] = deque()
    threads = max(get_num_threads() // jobs, 1)
    # Started afresh: a fork would take locks and worker threads along in an unknown state.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context, set_num_threads, (threads,)) as pool:
        for bundle, share in bundles:
            while waiting and (
                len(waiting) >= 2 * jobs or _taken(waiting) + share > settings.memory
            ):
                yield from waiting.popleft()[1].result()
            waiting.append((share, pool.submit(_run_bundle, bundle, settings, share)))
        while waiting:
            yield from waiting.popleft()[1].result()


def _bundles(
    coming: Iterator[Item], settings: Settings, share: int
) -> Iterator[tuple[list[Item], int]]:
    """Cases that a process takes at once, and the memory for them: a share, or what the largest of them needs."""
    while bundle := list(itertools.islice(coming, _TOGETHER)):
        yield bundle, max(share, *map(settings.need, bundle))


def _taken(waiting: Iterable[tuple[int, Future[list[CaseResult]]]]) -> int:
    return sum(share for share, future in waiting if not future.done())


def _run_bundle(bundle: list[Item], settings: Settings, share: int) -> list[CaseResult]:
    return list(run_here(bundle, settings, share))
