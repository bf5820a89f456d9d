"""What kernels over positions share: the loop over pieces of work, each a run of positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from openaclnn.engines.cpu.classes.code import Code, Number
from openaclnn.engines.cpu.classes.parameters import Parameters
from openaclnn.engines.cpu.classes.totals import runs


class Worker(Protocol):
    """Writes the code for a piece: `clear` for all of it, then `run` for each stretch at one stride."""

    def clear(self, start: Number, stop: Number) -> None: ...

    def run(self, addresses: list[Number], count: Number) -> None: ...


def emit_pieces(
    worker: Callable[[Code, Parameters, str, str, Number | None], Worker],
    dtype: str,
    target: str,
    single: bool,
    slots: dict[str, int],
    scale: Callable[[Code, Parameters], Number],
    lanes: int = 0,
) -> Callable[[Any, Any], None]:
    """The kernel of a worker. `scale` gives the gradient of all positions where there is but one."""

    def emit(builder: Any, arguments: Any) -> None:
        code = Code(builder, lanes)
        parameters = Parameters(code, arguments[0], slots)
        unit, positions = parameters["unit"], parameters["positions"]
        gradient = scale(code, parameters) if single else None
        made = worker(code, parameters, dtype, target, gradient)
        with code.loop(code.number(arguments[1]), code.number(arguments[2])) as piece:
            start = piece * unit
            stop = (start + unit).least(positions)
            made.clear(start, stop)
            runs(code, parameters, start, stop, ("target", "gradient", "out"), made.run)

    return emit
