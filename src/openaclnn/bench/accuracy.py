"""How exact results are: `python -m openaclnn.bench.accuracy --markdown docs/numerics.md` measures and writes it.

Errors are in units in the last place (ulp) of the output's dtype against the float64 oracle, over normal results.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from rich.console import Console

import openaclnn
from openaclnn.bench.machine import describe_machine
from openaclnn.bench.problems import load_torch, measured, to_torch
from openaclnn.bench.reports import on_terminal
from openaclnn.bench.tables import Table
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import FLOATS, DType
from openaclnn.core.writing import write_text

SHAPES = {"elementwise": (1 << 20,), "rows": (256, 4096), "pixels": (4, 21, 128, 128)}
ROW = ("operator", "variant", "dtype", "ours, largest ulp", "ours, mean ulp", "PyTorch, largest ulp")  # fmt: skip
RULES = files("openaclnn.bench") / "numerics_rules.md"
PAGE = """# Numerics

{rules}

## Measured

Errors in units in the last place (ulp) of the dtype against the float64 oracle, over results that are normal
numbers; 0.5 is a correctly rounded result. Differences of nearly equal terms (label smoothing and z-loss near a
zero of the gradient) lose digits in any float32 evaluation, PyTorch's too, and show as large ulp counts of
tiny results.

{table}

Made by `python -m openaclnn.bench.accuracy --markdown docs/numerics.md` on {machine}.
"""


class Errors(NamedTuple):
    """The largest and the mean error in ulp."""

    largest: float
    mean: float


def errors(got: np.ndarray[Any, Any], exact: np.ndarray[Any, Any], dtype: DType) -> Errors:
    """Errors over results that are normal numbers of the dtype."""
    finfo: Any = ml_dtypes.finfo
    info = finfo(dtype.numpy)
    size = np.abs(exact)
    normal = (size >= float(info.smallest_normal)) & (size <= float(info.max))
    unit = np.exp2(np.floor(np.log2(size[normal]))) * float(info.eps)
    off = np.abs(got.astype(np.float64)[normal] - exact[normal]) / unit
    return Errors(float(off.max(initial=0.0)), float(off.mean()) if off.size else 0.0)


def measure(operator: Operator, variant: str, dtype: DType) -> tuple[str, ...]:
    """One row: ours and PyTorch's errors on the same data."""
    work, torch = operator.workloads, load_torch()
    arguments = work.make(np.random.default_rng(2), dtype, SHAPES[work.PATTERN], variant)
    exact = operator.oracle(**arguments)
    ours = errors(getattr(openaclnn, operator.python_name)(**arguments), exact, dtype)
    theirs = "-"
    if torch is not None:
        tensors = {name: to_torch(torch, value) for name, value in arguments.items()}
        out = torch.empty(exact.shape, dtype=getattr(torch, dtype.torch_name))
        result = work.torch_peers(torch, tensors, out)["torch"]().double().numpy()
        theirs = f"{errors(result, exact, dtype).largest:.3g}"
    return operator.name, variant, dtype.name, f"{ours.largest:.3g}", f"{ours.mean:.3g}", theirs


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every operator, variant and dtype; print the table, and write the page where asked."""
    parser = argparse.ArgumentParser(prog="python -m openaclnn.bench.accuracy", description=__doc__)
    parser.add_argument("--markdown", type=Path, help="write the page to this file")
    page = parser.parse_args(arguments).markdown
    rows = [
        measure(operator, variant, dtype)
        for operator in measured()
        for variant in operator.workloads.VARIANTS
        for dtype in FLOATS
    ]
    table = Table("", ROW, 3, rows)
    Console().print(on_terminal(table))
    if page:
        machine = ", ".join(f"{name} {fact}" for name, fact in describe_machine().items())
        rules = RULES.read_text(encoding="utf-8").strip()
        write_text(page, PAGE.format(rules=rules, table=table.markdown(), machine=machine))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
