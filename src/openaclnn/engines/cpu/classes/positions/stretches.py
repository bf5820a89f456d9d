"""Rows of the two cross entropy gradients in stretches: pieces of work are tiles of rows times chunks of classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from openaclnn.engines.cpu.classes.positions.tile import TILE_CLASSES, TILE_ROWS, Tile
from openaclnn.engines.cpu.classes.shared.parameters import Parameters
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.values import Value

__all__ = ["ALONE", "CHUNK", "Cut", "Stretch", "cut_rows", "each_stretch"]

ALONE = 1 << 15  # elements that one thread does faster than two
CHUNK = 1 << 16  # classes of one piece of work: few long rows keep all threads busy


class Stretch(NamedTuple):
    """Some classes of a row, side by side, but for weights, which lie `weight_step` bytes apart."""

    x: Value
    out: Value
    weight: Value
    weight_step: Value
    many: Value


class Cut(NamedTuple):
    """How the work is cut into pieces: some rows times some classes."""

    tile: int  # rows of a piece
    staged: bool  # whether they are copied together first
    chunk: int  # classes of a piece
    chunks: int  # pieces of a row
    pieces: int  # in all
    grain: int  # pieces that one thread does faster than two
    past: bool = False  # whether what is written goes past the caches


def cut_rows(positions: int, classes: int, here: bool, together: int = 1) -> Cut:
    """`here`: rows are read where they lie, and so many are one piece."""
    tile = together if here else TILE_ROWS
    chunk = min(classes, CHUNK if here else TILE_CLASSES)
    chunks = -(-classes // chunk)
    grain = max(1, ALONE // (min(tile, positions) * chunk))
    return Cut(tile, not here, chunk, chunks, -(-positions // tile) * chunks, grain)


def each_stretch(
    code: Code, parameters: Parameters, tile: Tile, first: Value, last: Value,
    body: Callable[[Value, Value, Stretch, Value], None],
    begin: Callable[[Value, Value, Value, Value], None] | None = None,
) -> None:  # fmt: skip
    """`body(position, first_class, stretch, index)` for those of some pieces, in each of which rows are counted from 0 on;
    before, `begin(first_row, first_class, rows, classes)`.
    """
    height, chunk, chunks = (parameters[name] for name in ("tile", "chunk", "chunks"))
    positions, classes = parameters["positions"], parameters["classes"]
    weights, weight_step = parameters.address("weight"), parameters["weight.class_step"]
    with code.loop(first, last) as piece:
        band = piece.unsigned_div(chunks)
        first_class, first_row = (piece - band * chunks) * chunk, band * height
        count = (classes - first_class).least(chunk)
        many = (positions - first_row).least(height)
        tile.read(first_row, first_class, many, count)
        if begin is not None:
            begin(first_row, first_class, many, count)
        with code.loop(0, many) as index:
            x, out = tile.row(first_row, first_class, index)
            weight = weights + first_class * weight_step
            own = Stretch(x, out, weight, weight_step, count)
            body(first_row + index, first_class, own, index)
        tile.write(first_row, first_class, many, count)
