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

__all__ = ["EXPECTED", "MEMORY", "SURE", "gradient_runner", "loss_runner", "serves", "tile"]

EXPECTED, MEMORY = 3, 2  # FLOATs
SURE = 1  # the one among those that is expected which says whether a gradient is written ahead

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
    """What queues it, of addresses: logits, targets, loss, the largest logit of each row and the logarithm of the rest, two FLOATs
    a row for the gradient, what is remembered, what is expected, gradient."""
    x, target, loss, top, rest, parts, memory, expected, out = (
        Slot(place, "int64" if place == 1 else "float32", wide=place in (0, 8))
        for place in range(9)
    )
    blocks = -(-rows // FINISHED)
    sums = Slot(9, "float64")
    last = ignored(ignore_index)
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
        _at_targets(expected, x, target, parts, expected, out, rows, classes, mean, last),
        Launch(finish, blocks, numbers, (FINISHED,), 4),
        Launch(total_loss(sums, loss, mean), *total_sizes(blocks)),
    )  # fmt: skip
    return runner_of(launches, blocks * SUMS * 8)


@functools.lru_cache(64)
def gradient_runner(rows: int, classes: int, mean: bool, ignore_index: int) -> Runner:
    """The same of: the loss's gradient, logits, targets, the two FLOATs a row, what is expected, what is remembered, gradient."""
    slots = [
        Slot(place, "int64" if place == 2 else "float32", wide=place in (1, 6))
        for place in range(7)
    ]
    unit, blocks, last = power_of_two_divisor(classes), -(-classes // WIDE), ignored(ignore_index)
    programs = min(rows * blocks, PROGRAMS)
    numbers = rows, classes // unit, last, blocks, programs
    gradient, x, target, parts, expected, _, out = slots
    return runner_of(
        [
            Launch(
                Family(gradient_late, tuple(slots), (mean,)), programs, numbers, (unit, WIDE), 4
            ),
            _at_targets(gradient, x, target, parts, expected, out, rows, classes, mean, last),
        ]
    )


def _at_targets(
    gradient: Slot, x: Slot, target: Slot, parts: Slot, expected: Slot, out: Slot, rows: int, classes: int, mean: bool, last: int,
) -> Launch:  # fmt: skip
    slots = gradient, x._replace(wide=False), target, parts, expected, out._replace(wide=False)
    family = Family(at_targets, slots, (mean,))
    return Launch(family, -(-rows // FINISHED), (rows, classes, last), (FINISHED,), 4)
