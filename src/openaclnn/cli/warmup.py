"""`openaclnn warmup`: compile every CPU kernel into the cache."""

from __future__ import annotations

import time

from rich.progress import Progress

from openaclnn.core.folders import cache_folder
from openaclnn.engines import cpu

__all__ = ["run_warmup"]


def run_warmup() -> int:
    """Compile with a progress bar; returns 1 where the CPU engine cannot be used, and says why."""
    reason = cpu.unavailable()
    if reason is not None:
        print(f"the CPU engine cannot be used: {reason}")
        return 1
    started = time.perf_counter()
    with Progress() as progress:
        bar = progress.add_task("compiling")

        def show(done: int, total: int, kernel: str) -> None:
            progress.update(bar, completed=done, total=total, description=kernel)

        count = cpu.warmup(show)
    print(f"{count} plans ready in {time.perf_counter() - started:.1f} s; kept in {cache_folder()}")
    return 0
