"""PyTorch's own operators as they are and as `openaclnn.torch.enable` replaces them: the same call, with and without.

Which operators: those of the table of replacements; their arguments are those of our operator's workload, under PyTorch's
signature. Replacing and giving back is no part of what is timed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from openaclnn.bench.problems.problem import to_torch
from openaclnn.bench.sections.pairs import OURS, SHAPES, THEIRS, run_pair
from openaclnn.bench.timing.contenders import Contender
from openaclnn.bench.timing.measure import Clock
from openaclnn.core.dtypes import FLOATS, DType
from openaclnn.core.interface import REDUCTIONS

__all__ = ["OverrideCase", "all_overrides", "run_override"]


@dataclass(frozen=True)
class OverrideCase:
    """An operator of PyTorch's, with what replaces it."""

    name: str
    workload: str  # a variant of our operator's
    weighted: bool
    dtype: DType
    own: Any = field(repr=False, compare=False)

    @property
    def variant(self) -> str:
        return self.workload if self.weighted else f"{self.workload}, no weight"

    @property
    def title(self) -> str:
        return f"{self.name} override {self.variant} {self.dtype.name}"

    @property
    def shape(self) -> tuple[int, ...]:
        return SHAPES[self.own.kernel.operator.workloads.PATTERN]


def all_overrides(dtypes: Sequence[DType] = ()) -> list[OverrideCase]:
    """Every operator that can be replaced, by each variant of its workload, and without weights where they may be missing."""
    from openaclnn.torch.override import OVERRIDES
    from openaclnn.torch.signatures import WEIGHT

    return [
        OverrideCase(name, variant, weighted, dtype, own)
        for name, own in OVERRIDES.items()
        for variant in own.kernel.operator.workloads.VARIANTS
        for weighted in ((True, False) if WEIGHT in own.signature.kinds else (True,))
        for dtype in dtypes or FLOATS
    ]


@dataclass(frozen=True)
class _Replaced(Contender):
    """The call while our kernel is in the place of PyTorch's."""

    replace: Callable[[], AbstractContextManager[None]] = lambda: NotImplemented

    def chosen(self) -> AbstractContextManager[None]:
        return self.replace()


def run_override(
    case: OverrideCase, device: str, torch: Any, clock: Clock, rounds: int, budget: float, threads: int
) -> list[dict[str, Any]]:  # fmt: skip
    """Check and time a case: a row for each side."""
    from openaclnn.torch import use

    function, given = getattr(torch.ops.aten, case.name).default, _arguments(case, device, torch)

    def call() -> Any:
        return function(*given)

    sides = [
        Contender(THEIRS, call),
        _Replaced(OURS, call, True, replace=lambda: use(only=[case.name])),
    ]
    about = {
        "operator": case.name, "regime": "override", "variant": case.variant,
        "shape": list(case.shape), "dtype": case.dtype.name,
    }  # fmt: skip
    fault = _fault(case, function, given, torch)
    return run_pair(about, sides, fault, device, clock, rounds, budget, threads)


def _arguments(case: OverrideCase, device: str, torch: Any) -> list[Any]:
    """The workload's, in PyTorch's order; one element has no axis, as autograd hands it over."""
    kernel, signature = case.own.kernel, case.own.signature
    make = kernel.operator.workloads.make
    made = make(np.random.default_rng(5), case.dtype, case.shape, case.workload)
    values = [made.get(*own) for own in zip(kernel.names, kernel.defaults, strict=True)]
    options = [own for place, own in enumerate(values) if place not in kernel.tensors]
    tensors = [to_torch(torch, values[place]).to(device) for place in kernel.tensors]
    if not case.weighted:
        tensors[kernel.tensors.index(kernel.names.index("weight"))] = None
    taken = [
        own.reshape(()) if isinstance(own, torch.Tensor) and own.numel() == 1 else own
        for own in (*tensors, *options)
    ]
    found: list[Any] = [None] * len(signature.kinds)
    for place, own in zip(signature.order, taken, strict=True):
        found[place] = REDUCTIONS.index(own) if isinstance(own, str) else own
    return found


def _fault(case: OverrideCase, function: Any, given: Sequence[Any], torch: Any) -> str:
    """Why our kernel is not timed: it does not serve, or is further from float64 than PyTorch's by more than a rounding."""
    from openaclnn.torch import served, use
    from openaclnn.torch.signatures import REDUCTION

    with use(only=[case.name]):
        for _ in range(2):
            ours = list(_results(function, given, torch))
    count = served()[case.name]
    if count.ours != count.calls:
        return f"PyTorch's served: {'; '.join(count.reasons)}"
    theirs = _results(function, given, torch)
    wide = [
        own.double() if isinstance(own, torch.Tensor) and own.is_floating_point() else own
        for own in given
    ]
    unit = torch.finfo(ours[0].dtype).eps
    found: Iterator[Any] = zip(ours, theirs, _results(function, wide, torch), strict=True)
    reduction = case.own.signature.kinds.find(REDUCTION)
    # What is beside losses that nobody adds up PyTorch may leave as it was allocated.
    if reduction >= 0 and not given[reduction]:
        found = itertools.islice(found, 1)
    for own, other, exact in found:
        off, allowed = ((each.double() - exact).abs().max().item() for each in (own, other))
        if not off <= allowed + unit * exact.abs().max().item() or math.isnan(allowed):
            return f"{off:.3g} off float64, PyTorch's {allowed:.3g}"
    return ""


def _results(function: Any, given: Sequence[Any], torch: Any) -> Iterator[Any]:
    """One or several, of copies: an operator may write over what it is given."""
    found = function(*[own.clone() if isinstance(own, torch.Tensor) else own for own in given])
    yield from found if isinstance(found, tuple) else (found,)
