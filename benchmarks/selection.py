"""What to run: the settings, and the cases of each section that they ask for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from benchmarks.calls import select_calls
from benchmarks.problems import measured
from benchmarks.regimes import REGIMES, Regime
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import FLOAT, FLOATS, DType

__all__ = ["SECTIONS", "Case", "Settings", "choose", "select", "title_of"]

SECTIONS = ("speed", "calls", "first-call", "memory")


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
    only: str = ""
    dtypes: tuple[DType, ...] = ()
    engines: tuple[str, ...] = ()
    threads: int | None = None
    rounds: int = 15
    budget_seconds: float = 2.0
    sections: tuple[str, ...] = SECTIONS
    use_torch: bool = True
    command: str = ""
    regimes: dict[str, tuple[Regime, ...]] = field(default_factory=dict)  # {}: the table's


def select(settings: Settings) -> list[Case]:
    """The cases that the settings ask for, operator by operator."""
    table = settings.regimes or REGIMES[settings.device]
    cases = []
    for operator in measured():
        for regime in table.get(operator.workloads.PATTERN, ()):
            if settings.quick and not regime.quick:
                continue
            if settings.headline and not regime.all_variants:
                continue
            names = list(operator.workloads.VARIANTS)
            wide = regime.all_variants and not settings.quick
            default = FLOATS if regime.all_dtypes and not settings.quick else (FLOAT,)
            for variant in names if wide else names[:1]:
                for dtype in settings.dtypes or default:
                    cases.append(Case(operator, variant, dtype, regime))
    wanted = settings.only.lower()
    return [case for case in cases if wanted in case.title.lower()]


def choose(settings: Settings) -> dict[str, list[Any]]:
    """The cases of each section, none for those not asked for; a filter that matches nothing at all is an error."""
    cases = select(settings)
    found: dict[str, list[Any]] = {section: [] for section in SECTIONS}
    for section in settings.sections:
        if section == "speed":
            found[section] = cases
        elif section == "calls":
            default = (FLOAT,) if settings.quick else FLOATS
            found[section] = select_calls(settings.dtypes or default, settings.only)
        else:
            found[section] = list(_process_specs(cases, settings))
    if not any(found.values()):
        asked = ", ".join(settings.sections)
        raise SystemExit(f"--only {settings.only!r} matches no case of {asked}; --list names them")
    return found


def title_of(item: Any) -> str:
    """A case's name, for people."""
    if isinstance(item, dict):
        return f"{item['operator']} {item['variant']} {item['dtype']}"
    title: str = item.title
    return title


def _process_specs(cases: list[Case], settings: Settings) -> Iterator[dict[str, Any]]:
    """One spec for each selected operator: its first variant in FLOAT, at its cache-sized and headline shapes."""
    table = settings.regimes or REGIMES[settings.device]
    for operator in {case.operator.name: case.operator for case in cases}.values():
        regimes = table[operator.workloads.PATTERN]
        headline = next((each for each in regimes if each.all_variants), regimes[-1])
        yield {
            "operator": operator.python_name,
            "variant": next(iter(operator.workloads.VARIANTS)),
            "dtype": FLOAT.name,
            "device": settings.device,
            "shape": list(headline.shape),
            "warm_shape": list(regimes[min(1, len(regimes) - 1)].shape),
        }
