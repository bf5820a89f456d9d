"""`run_cases`: case lists, drawn, run and judged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from openaclnn.core.products import PRODUCTS
from openaclnn.testing.jobs import run_in_processes
from openaclnn.testing.pipeline import Item, Settings, run_here
from openaclnn.testing.results import CaseResult
from openaclnn.testing.through import WAYS

__all__ = ["run_cases"]


def run_cases(
    cases: Iterable[Item],
    *,
    seed: int = 0,
    through: str = WAYS[0],
    compare: str | None = None,
    product: str = PRODUCTS[0].tag,
    golden: Path | None = None,
    jobs: int = 1,
) -> Iterator[CaseResult]:
    """Run cases (of `read_cases`, `level_cases`) and give their results in the same order, as they come.

    `through` is "two-phase", "plain" or "c"; `compare` a precision standard, by default mixed, and close for cases that
    have tolerances of their own. Cases are checked against `product`, and skipped where a list means them for others.
    `golden` is a folder for every case's inputs and golden values. `jobs` processes share the work.
    """
    settings = Settings(seed, through, compare, product=product, golden=golden)
    if jobs > 1:
        yield from run_in_processes(cases, settings, jobs)
    else:
        yield from run_here(cases, settings)
