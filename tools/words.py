"""How exact the words of formulas are: `python -m tools.words --markdown docs/numerics.md`
measures and writes their section.

FLOAT16 and BFLOAT16 in full; of FLOAT every 997th number, all signs, subnormal numbers, infinities and NaN included, and all
numbers around those where functions begin, end or bend. Errors are in ulp against float64; a wrong infinity, NaN or sign of 0 is an infinite one.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from openaclnn.bench.machine import describe_machine
from openaclnn.bench.tables import Table
from openaclnn.cli.bench import tabulated
from openaclnn.core.dtypes import FLOAT, FLOATS, DType
from openaclnn.core.plan import Operand, Plan
from openaclnn.core.writing import write_text
from openaclnn.engines import cpu
from openaclnn.engines import numpy as numpy_engine
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
SECTION = """## Words

The functions that formulas are written with, and their largest errors in ulp (0.5 is a correctly rounded result): over all FLOAT16 and BFLOAT16 numbers, and every {step}th FLOAT, on the engine `cpu`. `gate(x, v)` is x sigmoid(v), here
with v = x. Functions that are not listed are exact. Results of two functions, or of a function and a product, have the errors of both. Infinities, NaN and signs of 0 are all right.
On an H200, every 1999th FLOAT and a million between -4 and 4, `triton` had at most 1.02, `gate` 1.6, `gelu_tanh` 1.9 and `erfinv` 1.8.

{table}
Made by `python -m tools.words` on {machine}.
"""


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


def errors(got: Array, wanted: Array, x: Array) -> Errors:
    """Of results of x, against float64."""
    finfo: Any = ml_dtypes.finfo
    info = finfo(got.dtype)
    with np.errstate(all="ignore"):
        rounded, size, result = wanted.astype(got.dtype), np.abs(wanted), got.astype(np.float64)
        power = np.maximum(np.floor(np.log2(size)), np.log2(float(info.smallest_normal)))
        off = np.abs(result - wanted) / (np.exp2(power) * float(info.eps))
        same = (got == rounded) | (np.isnan(result) & np.isnan(wanted))
        finite = np.isfinite(result) & np.isfinite(rounded.astype(np.float64))
        signs = (result == 0) & (wanted == 0) & (np.signbit(result) != np.signbit(wanted))
        off = np.where(signs | ~same & ~finite, np.inf, np.where(finite & (wanted != 0), off, 0.0))
        off = np.where(finite & (wanted == 0) & (result != 0), np.inf, off)
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
    return f"`{word}`", f"{ours.largest:.3f}", f"{ours.at:.8g}", *cells, f"{theirs.largest:.3f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every word that rounds; print the table, and write the section where asked."""
    parser = argparse.ArgumentParser(prog="python -m tools.words", description=__doc__)
    parser.add_argument("--step", type=int, default=997, help="take every so many FLOATs")
    parser.add_argument("--markdown", type=Path, nargs="*", default=[], help="files with the section")  # fmt: skip
    options = parser.parse_args(arguments)
    table = Table("", HEADINGS, 1, [measure(word, options.step) for word in BOUNDS])
    print(tabulated(table))
    machine = ", ".join(f"{name} {fact}" for name, fact in describe_machine().items())
    section = SECTION.format(step=options.step, table=table.markdown(), machine=machine)
    for page in options.markdown:
        before, _, rest = page.read_text(encoding="utf-8").partition("## Words\n")
        _, mark, after = rest.partition("\n## ")
        write_text(page, f"{before}{section}{mark}{after}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
