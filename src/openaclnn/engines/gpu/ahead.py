"""How cross entropy from logits is launched with its gradient in one go, and the gradient where another was expected."""

from __future__ import annotations

import functools

from openaclnn.engines.gpu.ahead_kernel import at_targets, expect, gradient_late, loss_ahead
from openaclnn.engines.gpu.launch import Family, Launch, Slot, power_of_two_divisor
from openaclnn.engines.gpu.logit_kernel import logit_losses
from openaclnn.engines.gpu.logits import FINISHED, SUMS, total_loss, total_sizes
from openaclnn.engines.gpu.operands import INT32_LIMIT, ignored
from openaclnn.engines.gpu.runners import runner_of
from openaclnn.engines.gpu.steps import Runner

__all__ = ["MEMORY", "gradient_runner", "kept", "loss_runner", "serves", "sure_at", "tile"]

MEMORY = 2  # FLOATs that are remembered


def kept(rows: int) -> int:
    """FLOATs between loss and gradient: of each row the largest logit and the logarithm of the rest, and two that the gradient is
    made of; and three that are expected."""
    return 4 * rows + 3


def sure_at(rows: int) -> int:
    """Which of them says whether a gradient was written ahead."""
    return 4 * rows + 1


# By the most classes: how many times a lane holds one, and warps, with four lanes in each thread. A step took 1.12 times as long as a
# copy with 5120 classes, 1.10 with 16000, 1.08 with 32000 (loss and gradient one after the other 1.75, 1.51 and 1.52); where half
# of a program's classes are none, 1.31 (1.52).
TILES = {2048: (4, 4), 4096: (8, 4), 8192: (16, 4), 16384: (16, 8), 32768: (16, 16)}
FEWEST = 1 << 10  # classes: shorter rows are better off together
COUNTED = 8192  # rows that are counted at once
WIDE = 1024  # classes that a program writes at once where all is written late
PROGRAMS = 2048  # that keep a device busy then


def serves(rows: int, classes: int) -> bool:
    """Whether whole rows fit into registers, and are worth it."""
    return FEWEST < classes <= max(TILES) and rows * -(-classes // WIDE) < INT32_LIMIT


def tile(classes: int) -> tuple[tuple[int, int, int], int]:
    """The last constants, and warps."""
    held, warps = next(own for most, own in TILES.items() if classes <= most)
    return (power_of_two_divisor(classes), held, warps * 32 * 4), warps


@functools.lru_cache(64)
def loss_runner(rows: int, classes: int, mean: bool, ignore_index: int) -> Runner:
    """What queues it, of addresses: logits, targets, loss, what is kept, what is remembered, gradient."""
    x, target, loss, top, memory, out = (
        Slot(place, "int64" if place == 1 else "float32", wide=place in (0, 5))
        for place in range(6)
    )
    rest, parts, expected = (top._replace(shift=rows * own * 4) for own in (1, 2, 4))
    sums = Slot(6, "float64")
    blocks, last = -(-rows // FINISHED), ignored(ignore_index)
    constants, warps = tile(classes)
    finish = Family(
        logit_losses, (target, x._replace(wide=False), None, parts, None, top, rest, None, None, sums),
        (False, False, False, False), overlapped=True, follows=True,
    )  # fmt: skip
    numbers = rows, classes, classes, 1, 1, 0, 0, 1, 1, 0, 0, 1, last, 0.0, 0.0
    launches = (
        Launch(Family(expect, (target, memory, expected)), 1, (rows, classes, last), (COUNTED,), 16),
        Launch(
            Family(loss_ahead, (x, target, expected, parts, out), (mean,)),
            rows, (rows, classes // constants[0], last), constants, warps,
        ),
        Launch(finish, blocks, numbers, (FINISHED,), 4),
        Launch(total_loss(sums, loss, mean), *total_sizes(blocks)),
    )  # fmt: skip
    return runner_of(launches, blocks * SUMS * 8)


@functools.lru_cache(64)
def gradient_runner(rows: int, classes: int, mean: bool, ignore_index: int) -> Runner:
    """The same of: the loss's gradient, logits, targets, what is kept, what is remembered, gradient."""
    gradient, x, target, top, memory, out = (
        Slot(place, "int64" if place == 2 else "float32", wide=place in (1, 5))
        for place in range(6)
    )
    parts, expected = (top._replace(shift=rows * own * 4) for own in (2, 4))
    unit, blocks, last = power_of_two_divisor(classes), -(-classes // WIDE), ignored(ignore_index)
    programs = min(rows * blocks, PROGRAMS)
    late = Family(gradient_late, (gradient, x, target, parts, expected, memory, out), (mean,))
    own = Family(
        at_targets,
        (gradient, x._replace(wide=False), target, parts, expected, out._replace(wide=False)), (mean,),
    )  # fmt: skip
    launches = (
        Launch(late, programs, (rows, classes // unit, last, blocks, programs), (unit, WIDE), 4),
        Launch(own, -(-rows // FINISHED), (rows, classes, last), (FINISHED,), 4),
    )
    return runner_of(launches)
