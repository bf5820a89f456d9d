"""`openaclnn warmup`: compile every CPU kernel into the cache."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import Progress

from openaclnn.cli.say import say, say_json
from openaclnn.core.trust import cache_folder, why_unwritable
from openaclnn.engines import cpu

__all__ = ["run_warmup"]


def run_warmup(as_json: bool = False) -> int:
    """Compile with a progress bar; returns 1 where the CPU engine cannot be used or nothing can be kept, and says why."""
    reason, full = cpu.unavailable(), why_unwritable(cache_folder())
    if reason is not None or full is not None:
        told = (
            f"nothing can be kept: {full}"
            if reason is None
            else f"the CPU engine cannot be used: {reason}"
        )
        say(f"openaclnn: {told}", error=True)
        return 1
    started = time.perf_counter()
    console = Console(stderr=True)
    if not console.is_terminal:
        say(f"compiling every CPU kernel into {cache_folder()}: this takes minutes", error=True)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("compiling")

        def show(done: int, total: int, kernel: str) -> None:
            progress.update(bar, completed=done, total=total, description=kernel)

        count = cpu.warmup(show)
    took, folder = time.perf_counter() - started, str(cache_folder())
    if as_json:
        say_json({"plans": count, "seconds": took, "folder": folder})
    else:
        say(f"{count} plans ready in {took:.1f} s; kept in {folder}")
    return 0
