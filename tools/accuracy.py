"""How exact results are: `python -m tools.accuracy --csv docs` measures, and writes the two tables of docs/numerics.md.

Errors are in units in the last place (ulp) of the output's dtype against the float64 oracle: of the benchmark's data, over normal
results, and the largest that a search finds where results are hard to get right (`--search ROUNDS`; `--only elu` for some).
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import openaclnn
from openaclnn.bench.problems import load_torch, measured, taken, to_torch
from openaclnn.bench.reports import Table
from openaclnn.cli.bench import tabulated
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import FLOATS, DType
from openaclnn.engines.dispatch import use_engine
from openaclnn.engines.machine.host import vectors_of
from openaclnn.operators import registry
from tools.hard import HARD, UNBOUNDED
from tools.words import ulps, write_table

Array = np.ndarray[Any, Any]

SHAPES = {"elementwise": (1 << 20,), "rows": (256, 4096), "pixels": (4, 21, 128, 128)}
ROW = ("operator", "variant", "ours, largest ulp", "ours, mean", "PyTorch, largest")
FILES = ("numerics-largest.csv", "numerics-measured.csv")


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
    off = ulps(got[normal].astype(dtype.numpy), exact[normal])
    return Errors(float(off.max(initial=0.0)), float(off.mean()) if off.size else 0.0)


def row_of(operator: Operator, variant: str) -> tuple[str, ...]:
    """Ours and PyTorch's errors on the same data, in every dtype that the operator takes."""
    measured_in = [measure(operator, variant, dtype) for dtype in taken(operator, FLOATS)]
    return operator.name, variant, *(", ".join(numbers) for numbers in zip(*measured_in, strict=True))  # fmt: skip


def measure(operator: Operator, variant: str, dtype: DType) -> tuple[str, str, str]:
    """Our largest and mean error, and PyTorch's largest."""
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
    return f"{ours.largest:.3g}", f"{ours.mean:.3g}", theirs


class Worst(NamedTuple):
    """The largest error that a search came to, with its arguments (of one element or row), and PyTorch's largest."""

    ours: float
    theirs: float
    at: Mapping[str, Any]


def _outputs(result: Any) -> list[Any]:
    return [part for part in result if part is not None] if isinstance(result, tuple) else [result]


class Search:
    """Looks for the largest errors of an operator in one of its hard places, always in the same way.

    Every other draw is new; in between, the elements or rows that were worst come again with other last bits, beside numbers a little off.
    """

    def __init__(self, operator: Operator, place: str, seed: int = 1) -> None:
        self.operator, self.make = operator, HARD[operator.python_name][place]
        self.rng, self.count = np.random.default_rng(seed), 1 << 13
        self.worst: dict[str, dict[str, Worst]] = {}  # by what computes, then by output
        self.kept: Mapping[str, Any] = {}

    def run(self, rounds: int, engines: Sequence[str]) -> dict[str, dict[str, Worst]]:
        """So many draws, computed by engines: `numpy`, or `cpu` with the lanes of its vectors behind."""
        for turn in range(rounds):
            given = self.varied() if turn % 2 and self.kept else self.make(self.rng, self.count)
            self.look(given, engines)
        return self.worst

    def look(self, given: Mapping[str, Any], engines: Sequence[str]) -> None:
        operator, torch = self.operator, load_torch()
        exact = _outputs(operator.oracle(**given))
        hidden = UNBOUNDED.get(operator.python_name)
        names = getattr(operator.result_type, "_fields", ("",))

        def off(results: Any) -> list[Array]:
            errors = [
                ulps(np.asarray(one), right)
                for one, right in zip(_outputs(results), exact, strict=True)
            ]
            if hidden is not None:
                errors = [
                    np.where(hidden(given, right), 0.0, one)
                    for one, right in zip(errors, exact, strict=True)
                ]
            return [one.reshape(len(one), -1).max(axis=1) for one in errors]

        theirs = [np.zeros(1)] * len(exact)
        if torch is not None:
            tensors = {name: to_torch(torch, value) for name, value in given.items()}
            peer = operator.workloads.torch_peers(torch, tensors, None)["torch"]()
            theirs = off(
                tuple(one.numpy() for one in peer) if isinstance(peer, tuple) else peer.numpy()
            )
        worst = np.zeros(len(exact[0]))
        for engine in engines:
            name, _, lanes = engine.partition(" ")
            with use_engine(name), vectors_of(int(lanes)) if lanes else nullcontext():
                ours = off(getattr(openaclnn, operator.python_name)(**given))
            worst = np.maximum(worst, np.max(ours, axis=0))
            for output, errors, other in zip(names, ours, theirs, strict=False):
                best, at = self.worst.setdefault(engine, {}), int(errors.argmax())
                before = best.get(output, Worst(-1.0, 0.0, {}))
                now = Worst(
                    float(errors[at]),
                    max(float(other.max()), before.theirs),
                    self.rows(given, [at]),
                )
                best[output] = now if now.ours > before.ours else before._replace(theirs=now.theirs)
        worst[~np.isfinite(worst)] = 0  # others are to be looked for, too
        self.kept = self.rows(given, np.argsort(worst)[-64:])

    def rows(self, given: Mapping[str, Any], rows: Any) -> dict[str, Any]:
        """The same of some elements or rows."""
        many = max(len(value) for value in given.values() if isinstance(value, np.ndarray))
        return {
            name: value[rows] if np.shape(value)[:1] == (many,) else value
            for name, value in given.items()
        }

    def varied(self) -> dict[str, Any]:
        """What was worst, many times, with other last bits."""
        rng, given = self.rng, {}
        few = max(len(value) for value in self.kept.values() if isinstance(value, np.ndarray))
        elements = max(value.size for value in self.kept.values() if isinstance(value, np.ndarray))
        again = np.tile(np.arange(few), max(1, self.count // elements))
        bits = int(rng.integers(1, 20))
        for name, value in self.rows(self.kept, again).items():
            if isinstance(value, np.ndarray) and value.dtype == np.float32:
                changes = rng.integers(0, 1 << bits, value.shape, np.uint32)
                changes[rng.random(value.shape) < 0.3] = 0
                value = (value.view(np.uint32) ^ changes).view(np.float32)
            elif isinstance(value, float) and value not in (0.0, 1.0) and rng.random() < 0.5:
                value = float(np.float32(value * (1 + rng.normal() * 2.0 ** -rng.integers(12, 24))))
            given[name] = value
        return given


ENGINES = ("cpu 4", "cpu 8", "cpu 16", "numpy")
SEARCHED = ("operator", "where", "`cpu`", "`numpy`", "PyTorch")
ROUNDS = 100


class Place(NamedTuple):
    """The largest errors of an operator in a hard place, of one output."""

    operator: str
    where: str
    by_engine: dict[str, Worst]

    def row(self) -> tuple[str, ...]:
        """As the table has it: of all lanes together, rounded up."""
        of_cpu = max(one.ours for engine, one in self.by_engine.items() if engine != "numpy")
        theirs = max(one.theirs for one in self.by_engine.values())
        numbers = (of_cpu, self.by_engine["numpy"].ours, theirs)
        return self.operator, self.where or "as it is", *map(_rounded_up, numbers)


def _rounded_up(number: float) -> str:
    if not math.isfinite(number):
        return "infinite"
    digits = 2 - math.floor(math.log10(number)) if number >= 1 else 3
    return f"{math.ceil(number * 10.0**digits) / 10.0**digits:.3g}"


def searched(rounds: int, only: str = "") -> Iterator[Place]:
    """The largest errors in hard places of all operators, or of those with a text in their names and places."""
    for operator in registry():
        for place in HARD.get(operator.python_name, {}):
            if only in f" {operator.python_name} {place}":
                worst = Search(operator, place).run(rounds, ENGINES)
                for output in worst[ENGINES[0]]:
                    title = ", ".join(filter(None, (place, output)))
                    yield Place(
                        operator.name, title, {name: of[output] for name, of in worst.items()}
                    )


def _short(given: Mapping[str, Any]) -> str:
    """Arguments of one element or row as a line, long rows by their ends."""
    with np.printoptions(threshold=8, edgeitems=2, linewidth=1000, precision=9):
        return ", ".join(f"{name} {value}" for name, value in given.items())


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every operator, variant and dtype; print the table, and write the files where asked."""
    parser = argparse.ArgumentParser(prog="python -m tools.accuracy", description=__doc__)
    parser.add_argument("--csv", type=Path, help="write the tables into this folder")
    parser.add_argument(
        "--search",
        type=int,
        metavar="ROUNDS",
        help="only look for the largest errors, in so many draws a place",
    )
    parser.add_argument(
        "--only", default="", help="of operators and places with this text in their names"
    )
    chosen = parser.parse_args(arguments)
    if chosen.search:
        for place in searched(chosen.search, chosen.only):
            lanes = ", ".join(
                f"{engine}: {one.ours:.3g}" for engine, one in place.by_engine.items()
            )
            print(*place.row()[:2], lanes, f"PyTorch: {place.row()[-1]}", sep=" | ", flush=True)
            print("   ", _short(max(place.by_engine.values(), key=lambda one: one.ours).at))
        return 0
    rows = [
        row_of(operator, variant)
        for operator in measured()
        for variant in operator.workloads.VARIANTS
    ]
    print(tabulated(Table("", ROW, 2, rows)))
    if chosen.csv:
        found = [place.row() for place in searched(ROUNDS)]
        for name, lines in zip(FILES, ([SEARCHED, *found], [ROW, *rows]), strict=True):
            write_table(chosen.csv / name, lines)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
