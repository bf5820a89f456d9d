"""What to run: the settings, and the cases of each section that they ask for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from openaclnn.bench.problems.problem import build, measured, torch_objection
from openaclnn.bench.problems.regimes import REGIMES, Regime, shrink
from openaclnn.bench.sections.calls import all_calls
from openaclnn.bench.sections.modules import all_modules
from openaclnn.bench.sections.overrides import all_overrides
from openaclnn.bench.sections.training import all_steps
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import FLOAT, FLOATS, DType

__all__ = [
    "SECTIONS", "Case", "SelectionError", "Settings", "choose", "left_out", "matching", "select", "title_of",
]  # fmt: skip

SECTIONS = ("speed", "calls", "training", "overrides", "first-call", "memory")
_OF_TORCH = ("training", "overrides")  # these time openaclnn.torch
_PROBE = 1 << 8  # elements of a problem that shows whether an operator takes a layout


class SelectionError(ValueError):
    """The settings ask for nothing that there is; the message is a sentence."""


@dataclass(frozen=True)
class Case:
    """One cell of the table."""

    operator: Operator
    variant: str
    dtype: DType
    regime: Regime

    @property
    def title(self) -> str:
        return f"{self.operator.python_name} {self.variant} {self.regime.name} {self.dtype}"


@dataclass(frozen=True)
class Settings:
    """What to run, as the command line says it."""

    device: str = "cpu"
    quick: bool = False
    headline: bool = False
    only: tuple[str, ...] = ()
    dtypes: tuple[DType, ...] = ()
    engines: tuple[str, ...] = ()
    threads: tuple[int, ...] = ()  # each side's own number where there is none
    rounds: int = 15
    budget_seconds: float = 0.5  # of one contender that is slow; it takes three turns at least
    # For calls that met a slow machine; None: as long as their section took.
    again_seconds: float | None = None
    sections: tuple[str, ...] = SECTIONS
    use_torch: bool = True
    command: str = ""
    regimes: dict[str, tuple[Regime, ...]] = field(default_factory=dict)  # {}: the table's


def matching(items: Sequence[Any], only: Sequence[str]) -> list[Any]:
    """The items in whose title one of the texts begins with a word; of a text that is a title, that one alone."""
    titles = [title_of(item).lower() for item in items]
    wanted = [text.lower().lstrip() for text in only]
    exact = set(wanted) & set(titles)

    def fits(title: str) -> bool:
        return any(
            title == text or (text not in exact and f" {text}" in f" {title}") for text in wanted
        )

    return [item for item, title in zip(items, titles, strict=True) if not wanted or fits(title)]


def title_of(item: Any) -> str:
    """A case's name: operator, variant, regime and dtype."""
    if isinstance(item, dict):
        return f"{item['operator']} {item['variant']} {item['section']} {item['dtype']}"
    title: str = item.title
    return title


def select(settings: Settings) -> list[Case]:
    """The cases that the settings ask for, operator by operator."""
    chosen: list[Case] = matching(list(_all_cases(settings)), settings.only)
    taken: dict[tuple[str, str, str], bool] = {}
    for case in chosen:
        key = (case.operator.name, case.variant, case.regime.layout)
        if key not in taken:
            taken[key] = _takes(case)
    return [c for c in chosen if taken[c.operator.name, c.variant, c.regime.layout]]


def _all_cases(settings: Settings) -> Iterator[Case]:
    table = settings.regimes or REGIMES[settings.device]
    for operator in measured():
        for regime in table.get(operator.workloads.PATTERN, ()):
            if settings.quick and not regime.quick:
                continue
            if settings.headline and not regime.headline:
                continue
            names = list(operator.workloads.VARIANTS)
            wide = regime.all_variants and not settings.quick
            default = FLOATS if regime.all_dtypes and not settings.quick else (FLOAT,)
            for variant in names if wide else names[:1]:
                for dtype in settings.dtypes or default:
                    yield Case(operator, variant, dtype, regime)


def _takes(case: Case) -> bool:
    """Whether the operator has problems of this layout."""
    regime = case.regime
    small = shrink(case.operator.workloads.PATTERN, regime.shape, _PROBE)
    return build(case.operator, case.variant, case.dtype, small, regime.layout) is not None


def choose(settings: Settings) -> dict[str, list[Any]]:
    """The cases of each section, none for those not asked for; a filter that matches nothing at all is an error."""
    found: dict[str, list[Any]] = {section: [] for section in SECTIONS}
    missing = left_out(settings)
    if missing and set(settings.sections) <= set(_OF_TORCH):
        raise SelectionError(missing)
    for section in settings.sections:
        if missing and section in _OF_TORCH:
            continue
        if section == "speed":
            found[section] = select(settings)
        elif section == "calls":
            default = (FLOAT,) if settings.quick else FLOATS
            found[section] = matching(all_calls(settings.dtypes or default), settings.only)
        elif section == "training":
            large, small = all_steps(settings.device, settings.dtypes), all_modules(settings.dtypes)
            found[section] = matching([*large, *small], settings.only)
        elif section == "overrides":
            found[section] = matching(all_overrides(settings.dtypes), settings.only)
        else:
            found[section] = matching(list(_process_specs(section, settings)), settings.only)
    if not any(found.values()):
        asked = ", ".join(settings.sections)
        only = (
            f"--only {' or '.join(map(repr, settings.only))} matches"
            if settings.only
            else "there is"
        )
        fewer = " of --headline" if settings.headline else " of --quick" if settings.quick else ""
        raise SelectionError(f"{only} no case of {asked}{fewer}; --list names them")
    return found


def left_out(settings: Settings) -> str:
    """Which sections that were asked for are not run without PyTorch, and why; "" where none is left out."""
    named = " and ".join(section for section in settings.sections if section in _OF_TORCH)
    if not named:
        return ""
    if not settings.use_torch:
        return f"{named}: openaclnn.torch needs PyTorch, and --alone is without it"
    objection = torch_objection()
    return objection and f"{named}: {objection}"


def _process_specs(section: str, settings: Settings) -> Iterator[dict[str, Any]]:
    """One spec for each operator: its first variant in FLOAT, at its cache-sized and headline shapes."""
    table = settings.regimes or REGIMES[settings.device]
    for operator in measured():
        regimes = table[operator.workloads.PATTERN]
        headline = next((each for each in regimes if each.headline), regimes[-1])
        yield {
            "section": section,
            "operator": operator.python_name,
            "variant": next(iter(operator.workloads.VARIANTS)),
            "dtype": FLOAT.name,
            "device": settings.device,
            "shape": list(headline.shape),
            "warm_shape": list(regimes[min(1, len(regimes) - 1)].shape),
        }
