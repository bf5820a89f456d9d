"""The CPU engine: kernels written as vector code for LLVM (through Numba's llvmlite), on a thread pool of our own."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence

from openaclnn.core.plan import Plan

DEVICES = ("cpu",)
TAKES_ARRAYS = True  # runners take NumPy arrays in the place of addresses


def unavailable() -> str | None:
    """Why this engine cannot be used on this machine; None if it can."""
    if importlib.util.find_spec("llvmlite") is None:
        return "llvmlite, Numba's code generator, is not installed"
    from openaclnn.engines.cpu.simd import machine

    return None if machine().fma else "this CPU has no fused multiply-add"


def declines(plan: Plan) -> str | None:
    """Why this engine does not serve a plan; None if it does."""
    if plan.classes:
        from openaclnn.engines.cpu import classes

        reason: str | None = classes.declines(plan)
        return reason
    from openaclnn.engines.cpu import elementwise

    return elementwise.declines(plan)


def prepare(plan: Plan) -> Callable[[Sequence[int], int], int]:
    """What runs the plan: a function of the operands' addresses (the output's last) and a stream."""
    if plan.classes:
        from openaclnn.engines.cpu import classes

        runner: Callable[[Sequence[int], int], int] = classes.runner(plan)
        return runner
    from openaclnn.engines.cpu import elementwise

    return elementwise.runner(plan)


def warmup(progress: Callable[[int, int, str], None] | None = None) -> int:
    """Compile every kernel, so that no later call waits; returns how many plans that took.

    `progress(done, total, kernel)` is called after each.
    """
    from openaclnn.engines.cpu import classes, elementwise

    plans = list(elementwise.variants())
    plans += classes.variants()
    for done, plan in enumerate(plans, 1):
        prepare(plan)
        if progress is not None:
            progress(done, len(plans), plan.kernel)
    return len(plans)
