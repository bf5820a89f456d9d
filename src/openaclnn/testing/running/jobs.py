"""Cases shared among processes; results keep the order of the cases."""

from __future__ import annotations

import itertools
import multiprocessing
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor

from openaclnn.testing.running.pipeline import Item, Settings, run_here
from openaclnn.testing.running.results import CaseResult

__all__ = ["run_in_processes"]

_TOGETHER = 16  # cases handed to a process at once


def run_in_processes(cases: Iterable[Item], settings: Settings, jobs: int) -> Iterator[CaseResult]:
    """Bundles of cases, two of them waiting for each process."""
    coming = iter(cases)
    waiting: deque[Future[list[CaseResult]]] = deque()
    # Started afresh: a fork would take locks and worker threads along in an unknown state.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        while True:
            while len(waiting) < 2 * jobs:
                bundle = list(itertools.islice(coming, _TOGETHER))
                if not bundle:
                    break
                waiting.append(pool.submit(_run_bundle, bundle, settings))
            if not waiting:
                return
            yield from waiting.popleft().result()


def _run_bundle(bundle: list[Item], settings: Settings) -> list[CaseResult]:
    return list(run_here(bundle, settings))
