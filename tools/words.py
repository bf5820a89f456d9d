"""How exact the words of formulas are: `python -m tools.words --csv docs/numerics-words.csv` measures and writes their table.

FLOAT16 and BFLOAT16 in full; of FLOAT every 997th number, all signs, subnormal numbers, infinities and NaN included, and all
numbers around those where functions begin, end or bend. Errors are in ulp against float64; a wrong infinity, NaN or sign of 0 is an infinite one.
"""

from __future__ import annotations

import argparse
import csv
import functools
import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from openaclnn.bench.reports import Table
from openaclnn.cli.bench import tabulated
from openaclnn.core.dtypes import FLOAT, FLOATS, DType
from openaclnn.core.plan import Operand, Plan
from openaclnn.core.writing import write_text
from openaclnn.engines import cpu, numpy as numpy_engine
from openaclnn.engines.formulas import FORMULAS, described
from openaclnn.engines.formulas.words import BOUNDS, WORDS

__all__ = [
    "BOUNDS",
    "SHORT_BOUND",
    "errors",
    "every",
    "evaluate",
    "exact",
    "main",
    "near",
    "spaced",
    "ulps",
    "write_table",
]

Array = np.ndarray[Any, Any]
Prepare = Callable[[Plan], Callable[[Sequence[int], int], int]]

SHORT_BOUND = 0.502
"""The largest error that FLOAT16 and BFLOAT16 may have, in ulp."""
BENDS = (
    0.0, 2.0**-126, 2.0**-26, 0.35, 0.4, 0.5, 2**-0.5, 0.7, 0.9965, 1.0, 2**0.5, 2.236, 3.0, 4.0, 5.0, 8.66, 9.01, 10.05, 10.225, 13.0,
    14.17, 14.46, 16.64, 60.0, 70.0, 80.0, 87.34, 88.73, 103.98, 104.66, 110.9, 150.0, 174.0, 3.4e38,
)  # fmt: skip
HEADINGS = ("word", "FLOAT", "at", "FLOAT16", "BFLOAT16", "`numpy`, FLOAT")


class Errors(NamedTuple):
    """The largest error in ulp, and of what."""

    largest: float
    at: float


def spaced(step: int) -> Array:
    """Every so many FLOATs by their bits, NaN and infinities among them."""
    return np.arange(0, 1 << 32, step, dtype=np.uint64).astype(np.uint32).view(np.float32)


def near(count: int) -> Array:
    """So many FLOATs on either side of each number where a function or its code bends."""
    bends = np.array(BENDS, np.float32).view(np.int32)[:, None] + np.arange(-count, count + 1)
    values = bends[(bends >= 0) & (bends <= 0x7F800000)].astype(np.int32).view(np.float32)
    return np.concatenate([values, -values, np.array([np.inf, -np.inf, np.nan], np.float32)])


def every(dtype: DType) -> Array:
    """Every number of a 16-bit dtype."""
    return np.arange(1 << 16, dtype=np.uint16).view(dtype.numpy)


def exact(word: str, x: Array) -> Array:
    """A word in float64."""
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        result: Array = WORDS[word](wide, wide) if word == "gate" else WORDS[word](wide)
    return result


@functools.cache
def _kernel(word: str) -> str:
    """The name of the formula that is this word and nothing else."""
    scope: dict[str, Any] = dict(WORDS)
    exec(f"def word_{word}(x): return {word}({'x, x' if word == 'gate' else 'x'})", scope)
    formula = described(scope[f"word_{word}"])
    FORMULAS.setdefault(formula.name, formula)
    return formula.name


def evaluate(prepare: Prepare, word: str, x: Array) -> Array:
    """A word by an engine."""
    dtype = next(each for each in FLOATS if each.numpy == x.dtype)
    out, operand = np.empty_like(x), Operand("x", dtype, (1,))
    plan = Plan("", _kernel(word), dtype, x.shape, (operand,), operand, {})
    prepare(plan)([x.ctypes.data, out.ctypes.data], 0)
    return out


def ulps(got: Array, exact: Array) -> Array:
    """Errors in units in the last place of the results' dtype, of subnormal results too; infinite where an infinity or NaN stands in the wrong place."""
    finfo: Any = ml_dtypes.finfo
    info = finfo(got.dtype)
    with np.errstate(all="ignore"):
        rounded, result = exact.astype(got.dtype), got.astype(np.float64)
        power = np.floor(np.log2(np.abs(exact)))
        unit = np.exp2(np.maximum(power, np.log2(float(info.smallest_normal)))) * float(info.eps)
        off = np.abs(result - exact) / unit
        same = (got == rounded) | (np.isnan(result) & np.isnan(exact))
        finite = np.isfinite(result) & np.isfinite(rounded.astype(np.float64))
        return np.where(finite, off, np.where(same, 0.0, np.inf))


def errors(got: Array, wanted: Array, x: Array) -> Errors:
    """Of results of x, against float64; a 0 that is none, or of the wrong sign, is wrong."""
    with np.errstate(invalid="ignore"):
        result = got.astype(np.float64)
    right = (result == 0) & (np.signbit(result) == np.signbit(wanted))
    off = np.where(wanted == 0, np.where(right, 0.0, np.inf), ulps(got, wanted))
    place = int(np.argmax(off))
    return Errors(float(off[place]), float(x[place]))


def _chunks(values: Array) -> Iterator[Array]:
    yield from np.array_split(values, max(1, values.size >> 20))


def measure(word: str, step: int) -> tuple[str, ...]:
    """One row of the table."""
    cells: list[str] = []
    floats = np.concatenate([spaced(step), near(2000)])
    worst = {cpu: Errors(0.0, 0.0), numpy_engine: Errors(0.0, 0.0)}
    for x in _chunks(floats):
        wanted = exact(word, x)
        for engine, before in worst.items():
            worst[engine] = max(before, errors(evaluate(engine.prepare, word, x), wanted, x))
    for dtype in FLOATS:
        if dtype is not FLOAT:
            x = every(dtype)
            cells.append(f"{errors(evaluate(cpu.prepare, word, x), exact(word, x), x).largest:.4f}")
    ours, theirs = worst.values()
    return word, f"{ours.largest:.3f}", f"{ours.at:.8g}", *cells, f"{theirs.largest:.3f}"


def write_table(path: Path, lines: Sequence[Sequence[str]]) -> None:
    """A table as CSV, its headings first."""
    target = io.StringIO()
    csv.writer(target, lineterminator="\n").writerows(lines)
    write_text(path, target.getvalue())


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every word that rounds; print the table, and write it where asked."""
    parser = argparse.ArgumentParser(prog="python -m tools.words", description=__doc__)
    parser.add_argument("--step", type=int, default=997, help="take every so many FLOATs")
    parser.add_argument("--csv", type=Path, help="the file to write the table into")
    options = parser.parse_args(arguments)
    rows = [measure(word, options.step) for word in BOUNDS]
    print(tabulated(Table("", HEADINGS, 1, rows)))
    if options.csv:
        write_table(options.csv, [HEADINGS, *rows])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
