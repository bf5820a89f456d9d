"""Steps of training on large problems: a loss and its gradient by `openaclnn.torch`, beside PyTorch's own function and others'.

Which functions: the workloads that say `TRAINED`, the function's name in both.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from openaclnn.bench.problems.problem import to_torch
from openaclnn.bench.sections.pairs import OURS, THEIRS
from openaclnn.bench.sections.steps import Step, step_faults
from openaclnn.bench.timing.contenders import COPY, Contender
from openaclnn.bench.timing.machine import OtherLoad
from openaclnn.bench.timing.measure import Clock, interleave, paired_ratio
from openaclnn.bench.timing.verify import status_of
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import FLOATS, DType
from openaclnn.operators import registry

__all__ = ["PEERS", "SAMPLE_SECONDS", "TrainingCase", "all_steps", "run_step"]

PEERS = (THEIRS, "torch.compile", "torch.compile dynamic", "liger")
DRAWN = 1 << 22  # elements
SAMPLE_SECONDS = 10e-3
"""Steps follow each other for so long: a GPU that has to wait for the first of them does not wait in training."""

_SHAPES: dict[str, dict[str, tuple[tuple[str, tuple[int, ...]], ...]]] = {
    "cpu": {
        "elementwise": (("bandwidth", (1 << 24,)),),
        "rows": (("vocabulary 32k", (512, 32000)), ("segmentation", (8, 21, 512, 512))),
        "pixels": (("21 classes", (8, 21, 512, 512)),),
    },
    "cuda": {
        "elementwise": (("bandwidth", (1 << 26,)),),
        "rows": (
            ("vocabulary 32k", (8192, 32000)), ("vocabulary 128k", (4096, 128256)),
            ("odd 50257", (16384, 50257)), ("segmentation", (32, 21, 512, 512)),
        ),
        "pixels": (("21 classes", (32, 21, 512, 512)),),
    },
}  # fmt: skip


@dataclass(frozen=True)
class TrainingCase:
    """A function at some size."""

    operator: Operator
    dtype: DType
    regime: str
    shape: tuple[int, ...]

    @property
    def function(self) -> str:
        name: str = self.operator.workloads.TRAINED
        return name

    @property
    def title(self) -> str:
        return f"{self.function} training {self.regime} {self.dtype.name}"


def all_steps(device: str, dtypes: Sequence[DType] = ()) -> list[TrainingCase]:
    """The cases of a device."""
    return [
        TrainingCase(operator, dtype, regime, shape)
        for operator in registry()
        if hasattr(operator.workloads, "TRAINED")
        for regime, shape in _SHAPES[device][operator.workloads.PATTERN]
        for dtype in dtypes or FLOATS
    ]


def run_step(
    case: TrainingCase, device: str, torch: Any, clock: Clock, rounds: int, budget: float, threads: int
) -> list[dict[str, Any]]:  # fmt: skip
    """Check and time a case: a row for each contender."""
    own, *others = _tensors(case, device, torch)
    steps = dict(_steps(case, own, others, torch))
    faults = {name: step for name, step in steps.items() if isinstance(step, str)}
    ready = {name: step for name, step in steps.items() if not isinstance(step, str)}
    faults |= step_faults(ready, torch)
    timed = [Contender(name, step, name == OURS) for name, step in ready.items() if name not in faults]  # fmt: skip
    place = torch.empty_like(own)
    copying = Contender(COPY, lambda: place.copy_(own))
    with OtherLoad() as load:
        timings = interleave(
            [*timed, copying], clock, rounds, budget, sample_seconds=SAMPLE_SECONDS
        )
    rows = []
    for name in (*steps, COPY):
        found = timings.get(name)
        row: dict[str, Any] = {
            "operator": case.function, "regime": case.regime, "variant": "forward and backward",
            "shape": list(case.shape), "dtype": case.dtype.name, "contender": name, "ours": name == OURS,
            "status": status_of(faults.get(name, ""), found), "note": faults.get(name, ""),
            "threads": threads if device == "cpu" else None, "disturbed": load.disturbs(threads),
            "copies": None, "ratios": {},
        }  # fmt: skip
        if found is not None:
            row |= found.summary()
            copied = paired_ratio(timings[COPY], found)
            row["copies"] = copied and 1 / copied
        if found is not None and name == OURS:
            row["ratios"] = {peer: paired_ratio(timings[peer], found) for peer in PEERS if peer in timings}  # fmt: skip
        rows.append(row)
    return rows


def _tensors(case: TrainingCase, device: str, torch: Any) -> list[Any]:
    """What the function is called with: the first rows are drawn, the others repeat them."""
    work = case.operator.workloads
    count, *rest = case.shape
    rows = min(count, max(1, DRAWN // math.prod(rest)))
    while rows in rest:  # a weight for each class would look like rows
        rows -= 1
    arguments = work.make(np.random.default_rng(5), case.dtype, (rows, *rest), next(iter(work.VARIANTS)))  # fmt: skip
    tensors = [to_torch(torch, own).to(device) for own in arguments.values() if isinstance(own, np.ndarray)]  # fmt: skip
    places = torch.arange(count, device=device) % rows
    return [own[places] if rows < count and own.shape[:1] == (rows,) else own for own in tensors]


def _steps(
    case: TrainingCase, own: Any, others: list[Any], torch: Any
) -> Iterator[tuple[str, Any]]:
    """Ours and the peers'; a sentence for one that cannot be had."""
    from openaclnn.torch import functional

    theirs = getattr(torch.nn.functional, case.function)
    yield OURS, Step(getattr(functional, case.function), own, others)
    yield PEERS[0], Step(theirs, own, others)
    if own.is_cuda:
        torch.compiler.reset()  # else the ninth shape falls back to eager without a word
        yield PEERS[1], Step(torch.compile(theirs, dynamic=False), own, others)
    if own.is_cuda and own.dim() == 2:
        # Code of its own: what is compiled belongs to that, not to the function.
        of_any_size = torch.compile(lambda *given: theirs(*given), dynamic=True)
        yield PEERS[2], Step(of_any_size, own, others)
    liger = _liger(case.function) if own.is_cuda and own.dim() == 2 else None
    if liger is not None:
        yield PEERS[3], Step(liger, own, others[:1])


def _liger(function: str) -> Callable[..., Any] | None:
    """Liger-Kernel's function of that name, where it is installed and has one."""
    try:
        functional = importlib.import_module("liger_kernel.transformers.functional")
    except ImportError:
        return None
    found: Callable[..., Any] | None = getattr(functional, f"liger_{function}", None)
    return found
