"""How many threads the CPU engine may use, and whose; results never depend on either. Also for work of NumPy's in blocks."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from openaclnn.core.results import usable_cores
from openaclnn.engines import openmp

Item = TypeVar("Item")
Result = TypeVar("Result")

TEAMS = ("auto", "own", "openmp")

_chosen: list[int | None] = []  # None: nobody chose
_asked: list[str] = []

listeners: list[Callable[[], None]] = []
"""Called when something changes."""


def chosen_number() -> int | None:
    """What `set_num_threads` or the environment says."""
    if not _chosen:
        text = os.environ.get("OPENACLNN_NUM_THREADS", "").strip()
        if text and (not text.isdigit() or int(text) < 1):
            raise ValueError(f"OPENACLNN_NUM_THREADS must be a positive integer, got {text!r}")
        _chosen.append(int(text) if text else None)
    return _chosen[0]


def get_num_threads() -> int:
    """The number of threads a large call may use: `set_num_threads`, else `OPENACLNN_NUM_THREADS`, else as many as
    PyTorch uses where its threads are shared, else all.

    The environment is read by the first large call; what is not a number is refused by every one.
    """
    chosen = chosen_number()
    if chosen is not None:
        return chosen
    team = team_in_use()
    if team is not None:
        return team.max_threads()
    return usable_cores()


def set_num_threads(count: int) -> None:
    """Let large calls use this many threads from now on."""
    if not isinstance(count, int) or count < 1:
        raise ValueError(f"the number of threads must be a positive integer, got {count!r}")
    _chosen[:] = [count]
    _tell()


def use_threads_of(team: str) -> None:
    """Whose threads large calls run on: "own", "openmp" (the team of PyTorch or another library of this process, where
    there is one), or "auto": OpenMP's on x86-64, where its threads keep the CPUs busy, and our own elsewhere.

    `OPENACLNN_THREADS_OF` says the same for a whole process; it is read by the first large call.
    """
    if team not in TEAMS:
        raise ValueError(f"threads of {team!r}; known: {', '.join(TEAMS)}")
    _asked[:] = [team]
    _tell()


def team_in_use() -> openmp.Runtime | None:
    """The OpenMP team that large calls run on; None for our own threads."""
    if not _asked:
        name = os.environ.get("OPENACLNN_THREADS_OF", "").strip() or "auto"
        if name not in TEAMS:
            raise ValueError(
                f"OPENACLNN_THREADS_OF must be one of {', '.join(TEAMS)}, got {name!r}"
            )
        _asked.append(name)
    spinning = platform.machine() in ("x86_64", "AMD64")
    if _forked or _asked[0] == "own" or (_asked[0] == "auto" and not spinning):
        return None
    return openmp.at_home()


def blocks_of(length: int, width: int = 1, elements: int = 1 << 15) -> list[slice]:
    """Stretches of so many rows of a width that a block has about so many elements: their float64 stay in a core's cache."""
    rows = max(elements // max(width, 1), 1)
    return [slice(start, min(start + rows, length)) for start in range(0, length, rows)]


def map_in_order(function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """A function's results in the items' order, computed by as many threads as large calls may use.

    NumPy lets other threads run while it computes; its `errstate` is to be set inside of the function.
    """
    workers = 1 if len(items) < 2 else min(get_num_threads(), len(items))
    if workers < 2:
        yield from map(function, items)
        return
    together = min(-(-len(items) // (4 * workers)), 16)  # taken at once
    batches = [items[start : start + together] for start in range(0, len(items), together)]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(
        workers
    ) as pool:  # made for this alone: a child of a fork has no threads
        for results in pool.map(lambda batch: [function(item) for item in batch], batches):
            yield from results


def described() -> str:
    """Whose threads large calls run on, in words."""
    team = team_in_use()
    whose = "our own" if team is None else f"the OpenMP team of {Path(team.library).name}"
    return f"up to {get_num_threads()}, {whose}"


_forked: list[bool] = []
if hasattr(os, "register_at_fork"):
    # OpenMP's threads do not live on in a child, and it waits for them.
    os.register_at_fork(after_in_child=lambda: _forked.append(True))


def _tell() -> None:
    for listener in listeners:
        listener()
