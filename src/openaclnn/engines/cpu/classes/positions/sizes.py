"""Pixels and rows of any number as code: what of a cross entropy's parameters follows from their sizes, where all operands lie row-major."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from openaclnn.engines.cpu.classes.positions.pixel_groups import PIECE, WIDEST
from openaclnn.engines.cpu.classes.positions.stretches import ALONE
from openaclnn.engines.cpu.classes.shared.sized import Problem, at_least_one
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.values import Value

__all__ = ["Pieces", "pieces_of", "place_images", "place_rows", "unit_of_pixels"]


class Pieces(NamedTuple):
    """Of work: how many there are, and how many one thread does faster than two."""

    pieces: Value
    grain: Value


def pieces_of(problem: Problem, tile: Value, chunk: Value, chunks: Value | int = 1) -> Pieces:
    """Tiles of positions times chunks of classes."""
    code, positions = problem.code, problem["positions"]
    problem["tile"] = tile
    grain = at_least_one(code.integer(ALONE).unsigned_div(tile.least(positions) * chunk))
    return Pieces((positions + tile - 1).unsigned_div(tile) * chunks, grain)


def unit_of_pixels(code: Code, classes: Value) -> Value:
    """`unit_of` as code."""
    unit = code.integer(PIECE).unsigned_div(classes) & -WIDEST
    return (unit > WIDEST).choose(unit, WIDEST)


def place_rows(problem: Problem, full: Sequence[str]) -> None:
    """Where rows lie: operands of the whole shape begin with an element's bytes as the step from class to class."""
    positions, classes = problem.shape
    for name, value in (
        ("classes", classes), ("positions", positions), ("size2", positions),
        *((f"{name}.step2", classes * problem[f"{name}.class_step"]) for name in full),
    ):  # fmt: skip
        problem[name] = value


def place_images(problem: Problem, full: Sequence[str], each: Sequence[str]) -> None:
    """Where pixels lie; `each` has one element for each of them, or one for all. Those of one class, and images of one pixel,
    are the pixels of one image, as a plan has it: sums are made in the order of its pieces.
    """
    code, (images, classes, pixels) = problem.code, problem.shape
    positions, dots, alone = images * pixels, pixels == 1, classes == 1
    flat = dots | alone
    for name, value in (
        ("classes", classes), ("positions", positions),
        ("size1", flat.choose(code.integer(1), images)), ("size2", flat.choose(positions, pixels)),
        *((f"{name}.step1", problem[f"{name}.step2"] * pixels) for name in each),
        ("staged", (dots & ~alone).to("i64")),
    ):  # fmt: skip
        problem[name] = value
    for name in full:
        item = problem[f"{name}.class_step"]
        problem[f"{name}.step1"] = pixels * classes * item
        problem[f"{name}.step2"] = dots.choose(classes * item, item)
        problem[f"{name}.class_step"] = pixels * item
