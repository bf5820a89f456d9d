"""Determinism: every operator and dtype gives the same bits for any number of threads, either team of threads, any vectors, on each of many repeats,
alone and beside other work. What to run comes from the declarations' workloads.

python -m faults bits                              the complete grid on this machine's CPU
python -m faults bits --device cuda                repeats on a GPU
python -m faults bits --device interpreter         kernels of the GPU, their programs in any order
python -m faults bits --operator elu --lanes 16    a part of it
python -m faults bits --shard 3/16                 every 16th operator, from the fourth on
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

import openaclnn
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import FLOATS, DType
from openaclnn.engines.machine.host import machine, vectors_of

__all__ = ["Problem", "digest", "main", "problems"]

THREADS = (1, 2, 3, 8, 16)
LANES = (4, 8, 16)
REPEATS = 1000
SMALL = {"elementwise": (37, 11), "rows": (5, 37), "pixels": (2, 5, 3, 7)}
LARGE = {"elementwise": (300_001,), "rows": (257, 1031), "pixels": (3, 21, 45, 43)}
"""Shapes that one thread computes, and that many share."""
INTERPRETED = {"elementwise": (40_001,), "rows": (67, 131), "pixels": (2, 5, 37, 19)}
"""Shapes of several programs a kernel, not so large that Triton's interpreter takes long."""
ORDERS = 4


class Problem(NamedTuple):
    operator: Operator
    dtype: DType
    variant: str
    arguments: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.operator.python_name} {self.dtype.name} {self.variant}"

    def call(self) -> Any:
        function = getattr(openaclnn, self.operator.python_name)
        arguments = self.arguments
        if self.operator.output.in_place:  # what it writes is its input
            arguments = {name: _copied(value) for name, value in arguments.items()}
        return function(**arguments)


def _copied(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.copy()
    return value.clone() if hasattr(value, "clone") else value


def problems(shapes: dict[str, tuple[int, ...]], operators: list[Operator]) -> Iterator[Problem]:
    """Of each operator, floating dtype and variant."""
    for operator in operators:
        work = operator.workloads
        for dtype in (floating for floating in FLOATS if floating in operator.data_dtypes):
            for variant in work.VARIANTS:
                arguments = work.make(
                    np.random.default_rng(5), dtype, shapes[work.PATTERN], variant
                )
                yield Problem(operator, dtype, variant, arguments)


def digest(result: Any) -> tuple[bytes, ...]:
    several = result if isinstance(result, tuple) else (result,)
    return tuple(b"" if output is None else np.asarray(output).tobytes() for output in several)


BURNING = "while True: sum(range(10**6))"
BURNING_ON_GPU = """
import torch
x = torch.ones(4096, 4096, device="cuda")
while True:
    x @ x
    torch.cuda.synchronize()
"""


@contextlib.contextmanager
def load(count: int, program: str = BURNING) -> Iterator[None]:
    """Other processes that compute all the time."""
    burning = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(count)]
    try:
        yield
    finally:
        for process in burning:
            process.kill()
            process.wait()


class Grid:
    """What differs from the bits of one thread, and how many runs there were."""

    def __init__(self) -> None:
        self.runs: Counter[str] = Counter()
        self.differing: Counter[str] = Counter()
        self.expected: dict[tuple[str, str], tuple[bytes, ...]] = {}

    def compare(self, kind: str, size: str, problem: Problem) -> None:
        bits = digest(problem.call())
        self.runs[kind] += 1
        if bits != self.expected.setdefault((str(problem), size), bits):
            self.differing[f"{problem}, {size}: {kind}"] += 1

    def run(self, problems: dict[str, list[Problem]], repeats: int, lanes: list[int]) -> None:
        openaclnn.use_threads_of("own")
        teams = ["own"]
        with contextlib.suppress(ImportError):
            import torch

            torch.ones(1 << 18).exp()
            teams.append("openmp")
        for team in teams:
            openaclnn.use_threads_of(team)
            for count in THREADS:
                openaclnn.set_num_threads(count)
                for size in ("small", "large"):
                    for problem in problems[size]:
                        self.compare(f"{count} threads, {team}", size, problem)
        openaclnn.use_threads_of("own")
        openaclnn.set_num_threads(3)
        for width in lanes:
            with vectors_of(width):
                for size in ("small", "large"):
                    for problem in problems[size]:
                        getattr(openaclnn, problem.operator.python_name).cache.forget()
                        self.compare(f"{width} lanes", size, problem)
                        getattr(openaclnn, problem.operator.python_name).cache.forget()
        for kind, burning in (("repeats", 0), ("repeats beside other work", 2)):
            with load(burning):
                for problem in problems["small"]:
                    for _ in range(repeats // 2):
                        self.compare(kind, "small", problem)
                for problem in problems["large"]:
                    for _ in range(max(repeats // 20, 1)):
                        self.compare(kind, "large", problem)


def on_gpu(problems: list[Problem], repeats: int, end: float) -> tuple[int, Counter[str]]:
    """The same call again and again, beside other processes on the device, which take turns with it: what is not in order then shows.
    Bits are compared on the device, with those of the first."""
    import torch

    words = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    runs, differing = 0, Counter[str]()
    for problem in sorted(problems, key=lambda p: FLOATS.index(p.dtype)):
        if time.monotonic() > end:
            break
        arguments = {name: _moved(torch, value) for name, value in problem.arguments.items()}
        moved = problem._replace(arguments=arguments)

        def held(problem: Problem = moved) -> list[Any]:
            result = problem.call()
            several = result if isinstance(result, tuple) else (result,)
            return [
                output.contiguous().view(-1).view(words[output.element_size()])
                for output in several
                if output is not None and output.numel()
            ]

        try:
            first = held()
        except openaclnn.AclnnError as error:
            differing[f"{problem}: {error}"] += 1
            continue
        wrong = torch.zeros((), dtype=torch.int64, device="cuda")
        for _ in range(repeats):
            for now, before in zip(held(), first, strict=True):
                wrong += (now != before).any()
        runs += repeats
        if int(wrong):
            differing[f"{problem}: repeats"] += int(wrong)
    return runs, differing


def in_any_order(problems: list[Problem]) -> tuple[str, Counter[str]]:
    """Triton's interpreter runs the programs of each kernel forwards, backwards and shuffled."""
    import interpreted

    builder = interpreted.interpreter.InterpreterBuilder
    forwards, places, programs = builder.set_grid_idx, {}, Counter[int]()

    def set_grid_idx(self: Any, x: int, y: int, z: int) -> None:
        count, place = np.prod(self.grid_dim), np.ravel_multi_index((x, y, z), self.grid_dim)
        if place == 0:
            programs[int(count)] += 1
            places[0] = rng.permutation(count) if order > 1 else np.arange(count)[::-1]
        forwards(self, *map(int, np.unravel_index(places[0][place], self.grid_dim)))

    differing, runs = Counter[str](), 0
    rng = np.random.default_rng(9)
    with openaclnn.use_engine("interpreted"), np.errstate(all="ignore"):
        for problem in problems:
            builder.set_grid_idx = forwards
            expected = digest(problem.call())
            builder.set_grid_idx = set_grid_idx
            for order in range(1, ORDERS):
                runs += 1
                differing[f"{problem}: order {order}"] += digest(problem.call()) != expected
    several = sum(times for count, times in programs.items() if count > 1)
    told = f"{runs} runs in other orders, {several} launches of several programs, {max(programs)} at most"
    return told, +differing


def _moved(torch: Any, value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype.name == "bfloat16":
        return torch.from_numpy(value.view(np.int16).copy()).cuda().view(torch.bfloat16)
    return torch.from_numpy(value.copy()).cuda()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="faults bits")
    parser.add_argument("--device", choices=("cpu", "cuda", "interpreter"), default="cpu")
    parser.add_argument("--operator", action="append")
    parser.add_argument("--shard", default="0/1", help="every N-th operator, from the I-th on")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--lanes", type=int, action="append")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="of repeats on a GPU")
    parser.add_argument("--first", action="store_true", help="the first variant of each operator")
    options = parser.parse_args(arguments)
    operators = [
        operator
        for operator in openaclnn.registry()
        if not options.operator or operator.python_name in options.operator
    ]
    first, step = map(int, options.shard.split("/"))
    operators = operators[first::step]
    start = time.monotonic()
    small, large = (
        [
            problem
            for problem in problems(shapes, operators)
            if not options.first
            or problem.variant == next(iter(problem.operator.workloads.VARIANTS))
        ]
        for shapes in (INTERPRETED if options.device == "interpreter" else SMALL, LARGE)
    )
    if options.device == "interpreter":
        told, differing = in_any_order(small)
    elif options.device == "cuda":
        with load(2, BURNING_ON_GPU):
            runs, differing = on_gpu(small, options.repeats, start + options.seconds)
        told = f"{runs} repeats, {runs // options.repeats} problems"
    else:
        grid = Grid()
        lanes = list(LANES) if options.lanes is None else [n for n in options.lanes if n]
        grid.run({"small": small, "large": large}, options.repeats, lanes)
        differing = grid.differing
        told = ", ".join(f"{kind}: {count}" for kind, count in grid.runs.items())
    print(
        f"{len(operators)} operators, {len(small)} problems; {told}; {time.monotonic() - start:.0f} s"
    )
    for text, count in differing.items():
        print(f"other bits, {count} times: {text}")
    print(f"bits: {len(differing)} findings on {machine().lanes} lanes")
    return 1 if differing else 0
