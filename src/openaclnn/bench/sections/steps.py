"""A step of training: the gradient is cleared, the loss computed, and its gradient. Before one is timed, both are compared with float64."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from openaclnn.bench.sections.pairs import OURS, THEIRS
from openaclnn.bench.timing.contenders import first_line

__all__ = ["Step", "step_faults"]


class Step:
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


def step_faults(steps: dict[str, Step], torch: Any) -> dict[str, str]:
    """Contenders that do not run, and ours where it is further from float64 than PyTorch's by more than a rounding."""
    faults: dict[str, str] = {}
    for name, step in steps.items():
        try:
            step()
        except Exception as error:
            faults[name] = first_line(error)
    if OURS in faults or THEIRS in faults:
        return faults
    eps = torch.finfo(steps[OURS].own.dtype).eps
    exact = Step(_widened(steps[THEIRS].function, torch), steps[OURS].own.double(), [
        other.double() if other.is_floating_point() else other for other in steps[OURS].others
    ])  # fmt: skip
    exact.seed = None if steps[OURS].seed is None else steps[OURS].seed.double()
    exact()
    for what in ("loss", "gradient"):
        known, ours, theirs = (
            (each.loss if what == "loss" else each.own.grad).detach()
            for each in (exact, steps[OURS], steps[THEIRS])
        )
        off, allowed = ((each.double() - known).abs().max().item() for each in (ours, theirs))
        if not off <= allowed + eps * known.abs().max().item():
            faults[OURS] = f"{what} is {off:.3g} off float64, PyTorch's {allowed:.3g}"
    return faults


def _widened(function: Callable[..., Any], torch: Any) -> Callable[..., Any]:
    """A module with its weights in float64; a function has none."""
    return copy.deepcopy(function).double() if isinstance(function, torch.nn.Module) else function
