"""Steps of training: a loss and its gradient by `openaclnn.torch`, beside PyTorch's own function and others'.

Which functions: the workloads that say `TRAINED`, the function's name in both. Each contender's step clears the gradient, computes the
loss and goes back; before anything is timed, loss and gradient are compared with float64 and with PyTorch's own.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from openaclnn.bench.problems.problem import to_torch
from openaclnn.bench.timing.contenders import COPY, Contender, first_line
from openaclnn.bench.timing.machine import OtherLoad
from openaclnn.bench.timing.measure import Clock, interleave, paired_ratio
from openaclnn.bench.timing.verify import status_of
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import FLOATS, DType
from openaclnn.operators import registry

__all__ = ["OURS", "PEERS", "TrainingCase", "all_steps", "run_step"]

OURS = "openaclnn.torch"
PEERS = ("torch", "torch.compile", "torch.compile dynamic", "liger")
DRAWN = 1 << 22  # elements
SAMPLE_SECONDS = 10e-3
"""Steps follow each other for so long: a GPU that has to wait for the first of them does not wait in training."""

_SHAPES: dict[str, dict[str, tuple[tuple[str, tuple[int, ...]], ...]]] = {
    "cpu": {
        "elementwise": (("call", (16,)), ("bandwidth", (1 << 24,))),
        "rows": (
            ("call", (2, 8)), ("vocabulary 32k", (512, 32000)), ("segmentation", (8, 21, 512, 512)),
        ),
        "pixels": (("call", (1, 4, 2, 2)), ("21 classes", (8, 21, 512, 512))),
    },
    "cuda": {
        "elementwise": (("call", (16,)), ("bandwidth", (1 << 26,))),
        "rows": (
            ("call", (2, 8)), ("vocabulary 32k", (8192, 32000)), ("vocabulary 128k", (4096, 128256)),
            ("odd 50257", (16384, 50257)), ("segmentation", (32, 21, 512, 512)),
        ),
        "pixels": (("call", (1, 4, 2, 2)), ("21 classes", (32, 21, 512, 512))),
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


class _Step:
    """One contender's step: its result and the gradient stay, to be compared."""

    def __init__(self, function: Callable[..., Any], own: Any, others: list[Any]) -> None:
        self.function, self.own, self.others = function, own.detach().requires_grad_(), others
        self.seed: Any = None
        self.loss: Any = None

    def __call__(self) -> None:
        self.own.grad = None
        self.loss = self.function(self.own, *self.others)
        if self.seed is None and self.loss.dim():
            self.seed = self.loss.detach().clone()  # as good a gradient as any
        self.loss.backward(self.seed)


def run_step(
    case: TrainingCase, device: str, torch: Any, clock: Clock, rounds: int, budget: float, threads: int
) -> list[dict[str, Any]]:  # fmt: skip
    """Check and time a case: a row for each contender."""
    own, *others = _tensors(case, device, torch)
    steps = dict(_steps(case, own, others, torch))
    faults = {name: step for name, step in steps.items() if isinstance(step, str)}
    ready = {name: step for name, step in steps.items() if not isinstance(step, str)}
    faults |= _faults(ready, torch)
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
    yield OURS, _Step(getattr(functional, case.function), own, others)
    yield PEERS[0], _Step(theirs, own, others)
    if own.is_cuda and case.regime != "call":
        torch.compiler.reset()  # else the ninth shape falls back to eager without a word
        yield PEERS[1], _Step(torch.compile(theirs, dynamic=False), own, others)
    if own.is_cuda and own.dim() == 2 and case.regime != "call":
        # Code of its own: what is compiled belongs to that, not to the function.
        of_any_size = torch.compile(lambda *given: theirs(*given), dynamic=True)
        yield PEERS[2], _Step(of_any_size, own, others)
    liger = _liger(case.function) if own.is_cuda and own.dim() == 2 else None
    if liger is not None:
        yield PEERS[3], _Step(liger, own, others[:1])


def _liger(function: str) -> Callable[..., Any] | None:
    """Liger-Kernel's function of that name, where it is installed and has one."""
    try:
        functional = importlib.import_module("liger_kernel.transformers.functional")
    except ImportError:
        return None
    found: Callable[..., Any] | None = getattr(functional, f"liger_{function}", None)
    return found


def _faults(steps: dict[str, _Step], torch: Any) -> dict[str, str]:
    """Contenders that do not run, and ours where it is further from float64 than PyTorch's by more than a rounding."""
    faults: dict[str, str] = {}
    for name, step in steps.items():
        try:
            step()
        except Exception as error:
            faults[name] = first_line(error)
    if OURS in faults or PEERS[0] in faults:
        return faults
    eps = torch.finfo(steps[OURS].own.dtype).eps
    exact = _Step(steps[PEERS[0]].function, steps[OURS].own.double(), [
        other.double() if other.is_floating_point() else other for other in steps[OURS].others
    ])  # fmt: skip
    exact.seed = None if steps[OURS].seed is None else steps[OURS].seed.double()
    exact()
    for what in ("loss", "gradient"):
        known, ours, theirs = (
            (each.loss if what == "loss" else each.own.grad).detach()
            for each in (exact, steps[OURS], steps[PEERS[0]])
        )
        off, allowed = ((each.double() - known).abs().max().item() for each in (ours, theirs))
        if not off <= allowed + eps * known.abs().max().item():
            faults[OURS] = f"{what} is {off:.3g} off float64, PyTorch's {allowed:.3g}"
    return faults
