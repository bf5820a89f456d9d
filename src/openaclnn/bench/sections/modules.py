"""Steps of training on few elements: our module beside PyTorch's of the same name, eager both. What such a step takes is the host's time.

Which modules: those that workloads name in `MODULE`; with a weight for each class and without, where an operator has one.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from openaclnn.bench.problems.problem import to_torch
from openaclnn.bench.sections.pairs import OURS, SHAPES, THEIRS, run_pair
from openaclnn.bench.sections.steps import Step, step_faults
from openaclnn.bench.sections.training import SAMPLE_SECONDS
from openaclnn.bench.timing.contenders import Contender
from openaclnn.bench.timing.measure import Clock
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import FLOATS, DType
from openaclnn.operators import registry

__all__ = ["REGIME", "ModuleCase", "all_modules", "run_module"]

REGIME = "module"
WEIGHT = "weight"


@dataclass(frozen=True)
class ModuleCase:
    """A module, and what it is given."""

    operator: Operator
    pattern: str
    weighted: bool | None  # None: it knows no weights
    dtype: DType

    @property
    def name(self) -> str:
        name: str = self.operator.workloads.MODULE.name
        return name

    @property
    def variant(self) -> str:
        said = {None: "", True: ", weighted", False: ", no weight"}
        return self.pattern + said[self.weighted]

    @property
    def title(self) -> str:
        return f"{self.name} training {REGIME} {self.variant} {self.dtype.name}"


def all_modules(dtypes: Sequence[DType] = ()) -> list[ModuleCase]:
    """Every case."""
    return [
        ModuleCase(operator, pattern, weighted, dtype)
        for operator in registry()
        if hasattr(operator.workloads, "MODULE")
        for pattern in operator.workloads.MODULE.patterns
        for weighted in _weightings(operator)
        for dtype in dtypes or FLOATS
    ]


def _weightings(operator: Operator) -> Iterator[bool | None]:
    known = WEIGHT in [own.python_name for own in operator.parameters]
    yield from (True, False) if known else (None,)


def run_module(
    case: ModuleCase, device: str, torch: Any, clock: Clock, rounds: int, budget: float, threads: int
) -> list[dict[str, Any]]:  # fmt: skip
    """Check and time a case: a row for each side."""
    shape = SHAPES[case.pattern]
    own, *others = _tensors(case, shape, device, torch)
    options = {WEIGHT: _weight(case, shape[1], device, torch)} if case.weighted else {}
    kinds = {OURS: importlib.import_module("openaclnn.torch.nn"), THEIRS: torch.nn}
    steps = {
        name: Step(getattr(kind, case.name)(**options), own, others) for name, kind in kinds.items()
    }
    fault = step_faults(steps, torch).get(OURS, "")
    about = {
        "operator": case.name, "regime": REGIME, "variant": case.variant, "shape": list(shape), "dtype": case.dtype.name,
    }  # fmt: skip
    sides = [Contender(name, step, name == OURS) for name, step in steps.items()]
    return run_pair(about, sides, fault, device, clock, rounds, budget, threads, SAMPLE_SECONDS)


def _tensors(case: ModuleCase, shape: tuple[int, ...], device: str, torch: Any) -> list[Any]:
    """The workload's, but for its weights."""
    work = case.operator.workloads
    made = work.make(np.random.default_rng(5), case.dtype, shape, next(iter(work.VARIANTS)))
    arrays = [own for name, own in made.items() if isinstance(own, np.ndarray) and name != WEIGHT]
    return [to_torch(torch, own).to(device) for own in arrays]


def _weight(case: ModuleCase, classes: int, device: str, torch: Any) -> Any:
    drawn = (0.5 + np.random.default_rng(5).random(classes)).astype(case.dtype.numpy)
    return to_torch(torch, drawn).to(device)
