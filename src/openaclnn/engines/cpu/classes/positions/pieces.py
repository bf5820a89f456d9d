"""What kernels over positions share: the loop over pieces of work, each a run of positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from openaclnn.engines.cpu.classes.shared.parameters import Parameters
from openaclnn.engines.cpu.classes.shared.totals import runs
from openaclnn.engines.machine.cache import Emit
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.values import Value


class Worker(Protocol):
    """Writes the code for a piece: `clear` for all of it, then `run` for each stretch at one stride."""

    def clear(self, start: Value, stop: Value) -> None: ...

    def run(self, addresses: list[Value], count: Value) -> None: ...


def emit_pieces(
    worker: Callable[[Code, Parameters, str, str, Value | None], Worker],
    dtype: str,
    target: str,
    single: bool,
    slots: dict[str, int],
    scale: Callable[[Code, Parameters], Value],
    lanes: int,
) -> Emit:
    """The kernel of a worker. `scale` gives the gradient of all positions where there is but one."""

    def emit(code: Code, arguments: Sequence[Value]) -> None:
        code.lanes = lanes or code.lanes
        block, first, last = arguments
        parameters = Parameters(code, block, slots)
        unit, positions = parameters["unit"], parameters["positions"]
        gradient = scale(code, parameters) if single else None
        made = worker(code, parameters, dtype, target, gradient)
        with code.loop(first, last) as piece:
            start = piece * unit
            stop = (start + unit).least(positions)
            made.clear(start, stop)
            runs(code, parameters, start, stop, ("target", "gradient", "out"), made.run)

    return emit
