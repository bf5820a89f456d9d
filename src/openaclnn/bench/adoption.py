"""Steps of every module that `openaclnn.torch.apply_to` can replace, beside PyTorch's, by size: which of them it replaces unasked is decided by these."""

from __future__ import annotations

import functools
import importlib
import itertools
from collections.abc import Sequence
from typing import Any

from openaclnn.bench.timing import Bench, Case, Row
from openaclnn.bench.training import OURS, THEIRS, Step, beside_a_copy
from openaclnn.core.dtypes import FLOAT, FLOATS, DType

ROW = 1024
LABELS = 8  # of a row, up to the first -1: each is compared with all classes
SIZES = {"small": 1, "cache": 64, "middle": 1024, "large": 16384}
"""Rows."""
_ARGUMENTS: dict[str, tuple[float, ...]] = {"Softmax": (-1,), "LogSoftmax": (-1,), "GLU": (-1,), "Threshold": (0.5, 20.0)}  # fmt: skip
_ELSEWHERE = ("LinearCrossEntropyLoss", "NLLLoss2d")  # of other arguments, or another's other name


def adoption_cases(dtypes: Sequence[DType] = ()) -> list[Case]:
    from openaclnn.torch.adopt import replacements

    names = sorted({module.__name__ for module in replacements()} - set(_ELSEWHERE))
    return [
        Case(name, "forward and backward", size, (SIZES[size], ROW), dtype.name, functools.partial(_run, dtype), f"module {size}")
        for name, size, dtype in itertools.product(names, SIZES, dtypes or FLOATS)
        # Which PyTorch computes in FLOAT alone, and by one thread: of 16,384 rows for seconds, in which nobody hears Ctrl-C.
        if name != "MultiLabelMarginLoss" or (dtype is FLOAT and size != "large")
    ]  # fmt: skip


def _run(dtype: DType, case: Case, bench: Bench) -> list[Row]:
    torch = bench.torch
    kind, name = getattr(torch, str(dtype.torch_name)), case.name
    numbers = torch.Generator(bench.device).manual_seed(5)
    drawn = functools.partial(torch.randn, case.shape, generator=numbers, device=bench.device)
    shares = functools.partial(torch.rand, case.shape, generator=numbers, device=bench.device)
    indices = functools.partial(torch.randint, generator=numbers, device=bench.device)
    x, targets = drawn(), list[Any]()
    if name in ("CrossEntropyLoss", "NLLLoss"):
        targets = [indices(0, ROW, case.shape[:1])]
    elif name == "MultiLabelMarginLoss":
        targets = [indices(0, ROW, case.shape)]
        targets[0][:, LABELS] = -1
    elif name in ("BCELoss", "BCEWithLogitsLoss", "KLDivLoss"):
        targets = [shares().to(kind)]
    elif name == "SoftMarginLoss":
        targets = [drawn().sign().to(kind)]
    elif name.endswith("Loss"):
        targets = [drawn().to(kind)]
    if name == "BCELoss":
        x = shares()
    elif name in ("NLLLoss", "KLDivLoss"):
        x = -x.abs()
    x = x.to(kind)
    libraries = {OURS: importlib.import_module("openaclnn.torch.nn"), THEIRS: torch.nn}
    steps = {
        side: Step(getattr(library, name)(*_ARGUMENTS.get(name, ())).to(bench.device, kind), x, targets)
        for side, library in libraries.items()
    }  # fmt: skip
    return beside_a_copy(case, steps, x, bench)
