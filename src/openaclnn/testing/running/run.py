"""`run_cases`: case lists, drawn, run and judged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from openaclnn.core.products import current_product
from openaclnn.testing.cases.case import Case, Malformed
from openaclnn.testing.running.budget import default_memory
from openaclnn.testing.running.jobs import run_in_processes
from openaclnn.testing.running.pipeline import Item, Settings, run_here
from openaclnn.testing.running.results import CaseResult
from openaclnn.testing.running.through import WAYS

__all__ = ["run_cases"]


def run_cases(
    cases: Iterable[Item],
    *,
    seed: int = 0,
    through: str = WAYS[0],
    compare: str | None = None,
    product: str | None = None,
    golden: Path | None = None,
    jobs: int = 1,
    memory: int | None = None,
) -> Iterator[CaseResult]:
    """Run cases (of `read_cases`, `level_cases`) and give their results in the same order, as they come.

    `through` is "two-phase", "plain" or "c"; `compare` a precision standard, by default mixed, and close for cases that
    have tolerances of their own. Cases are checked against `product` (by default the one in force), run under its profile,
    and skipped where a list means them for others.
    `golden` is a folder for every case's inputs and golden values; the second case of a name is `NAME-2` there. `jobs` processes share the work.
    `memory` is how many bytes the data of the cases in work may take, of all processes together, by default half of what the
    process may use; a case that needs more is skipped.
    """
    profile = current_product().tag if product is None else product
    allowed = default_memory() if memory is None else memory
    settings = Settings(seed, through, compare, product=profile, golden=golden, memory=allowed)
    if golden is not None:
        cases = _apart(cases)
    if jobs > 1:
        yield from run_in_processes(cases, settings, jobs)
    else:
        yield from run_here(cases, settings)


def _apart(cases: Iterable[Item]) -> Iterator[Item]:
    """A folder for each, whatever names lists have given twice."""
    taken: set[str] = set()
    for case in cases:
        known = isinstance(case, Case) and case.identity
        name = folder = _file_name(f"{case.name}-{case.identity}" if known else case.name)
        number = 1
        while folder in taken:
            number += 1
            folder = f"{name}-{number}"
        taken.add(folder)
        yield case if isinstance(case, Malformed) else replace(case, folder=folder)


def _file_name(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name).strip(".") or "case"
