"""Launches of row formulas: how many positions and classes a program takes (`Tile`), and by which traversal.

Rows are held in registers while they fit, and streamed beyond that; `kernels/row_source.py` describes all traversals. Row-major operands have their positions on two axes,
before the classes and behind them: rows have none behind, images have. Strided operands have up to eight axes; up to `STRIDED_LIMIT` elements one kernel serves all strides.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from openaclnn.core.plan import Plan, covered_elements
from openaclnn.engines.formulas.rows import ROLES, ROW_FORMULAS, Graph, RowFormula
from openaclnn.engines.gpu.formulas.compiled import precision
from openaclnn.engines.gpu.kernels.row_source import (
    MOST_TILES,
    PIECES,
    SPANS,
    Signature,
    Traversal,
    is_divided,
    kernel_of,
    signature_of,
)
from openaclnn.engines.gpu.launchers.geometry import (
    CLASS_AXIS,
    DIVISOR,
    Geometry,
    Launches,
    LaunchParams,
    Layout,
    Specs,
    clamp,
    entry_within,
    power_of_two_above,
    power_of_two_divisor,
    row_major,
    where_all,
)
from openaclnn.engines.gpu.launchers.launcher import (
    ClassLauncher,
    DynamicRunner,
    Launcher,
    outer_and_inner_sizes,
)
from openaclnn.engines.gpu.launching.launch import (
    INT32_LIMIT,
    VECTOR_BYTES,
    KernelSpec,
    pointers_of,
    scratch_of,
)
from openaclnn.engines.gpu.launching.runners import Runner
from openaclnn.engines.gpu.launching.variants import has_clusters
from openaclnn.engines.machine.numbers import (
    Number,
    Truth,
    all_of,
    any_of,
    ceil_div,
    flag,
    inverse,
    least,
    most,
    where,
)

STRIDED_LIMIT = 1 << 18  # elements up to which one kernel serves all strides
STRIDED_AXES = 3  # axes of positions that it takes
MOST_SHARED = 1 << 18  # elements of a position up to which PIECES programs hold it
MOST_DEALT = 64  # classes up to which rows are dealt, one to a thread
DEALT = 128  # rows of a program then, and its threads
# Classes up to which rows are dealt to SHARING threads each, where no row is written and where one is.
MOST_LANES, FEW_LANES, SHARING = 256, 48, 8
DEALT_EACH = 32  # elements of a thread then
SHORT_ROW = 2048  # classes up to which a program has whole rows where they are read once
FEW_LONG = 64  # rows up to which clusters share them: a program each would leave a device idle
FEW_READ = 512  # rows up to which each has many warps, so that the device is busy
SMALL = 1 << 16  # elements up to which a few tiles serve all sizes: a new size compiles nothing


class Tile(NamedTuple):
    """The tile of a program. Tables and functions of this module have it as a tuple of numbers in this order."""

    positions: Number
    held: Number  # classes of a thread
    lanes: Number  # classes that are spread over threads
    streamed: Truth  # whether a row takes several such tiles, one after the other
    warps: Number
    exact: Truth = False  # whether the number of classes is a constexpr

    @property
    def chunk(self) -> Number:
        """How many classes the tile has."""
        return self.held * self.lanes


# For small problems, by the most classes.
FEW_ROWS = ((32, (32, 4, 8, 0, 4, 0)), (128, (8, 1, 128, 0, 4, 0)), (1024, (1, 2, 512, 0, 4, 0)))
FEW_LONG_ROWS = 1, 2, 1024, 1, 8, 0
FEW_IMAGES = ((32, (32, 32, 1, 0, 4, 0)), (128, (16, 16, 8, 0, 4, 0)))
FEW_LONG_IMAGES = 16, 8, 8, 1, 4, 0


def _few_tile(by_class: bool, classes: Number) -> tuple[Number, ...]:
    return entry_within(classes, *((FEW_ROWS, FEW_LONG_ROWS) if by_class else (FEW_IMAGES, FEW_LONG_IMAGES)))  # fmt: skip


def _row_tile(
    static: Mapping[str, Number], classes: Number, positions: Number
) -> tuple[Number, ...]:
    """The tile of rows. Figures in comments are measured on an H200: the bandwidth as a share of a copy's, for softmax, FLOAT and BFLOAT16."""
    several, narrow = static["rows"] > 1, static["itemsize"] < 4
    wide = power_of_two_above(classes, 1 << 15)
    # One warp for short rows, since warps wait for each other: 50 classes 1.02 and 0.66, 64 1.00 and 1.01, 1000 1.01 and 1.04. Up to 32 classes two, in 16 bits or
    # with a logarithm, which all threads of a row compute: 21 classes 0.62 and 0.36 (on one 0.34), log_softmax 0.53 and 0.33 (0.50 and 0.27).
    logarithm = static["logarithms"] > 0
    # With a logarithm, half as many rows of FLOAT: 100 classes 1.02 (0.99); of 16 bits as many, 64 classes 1.00 (0.81).
    halved = all_of(logarithm, inverse(narrow), wide > 32, wide <= 128)
    tall = most(where(wide <= 32, 512, 1024) // where(halved, 2, 1) // least(wide, 512), 1)
    two = any_of(wide > 256, all_of(wide <= 32, any_of(logarithm, narrow)))
    # 150 classes 1.01 and 0.95, log_softmax 0.95 and 0.87, by code for their number (without, 0.83 and 0.62); 500 1.06 and 1.09, 1.05 and 1.08.
    tile = tall, 1, least(wide, 512), 0, where(two, 2, 1), flag(all_of(wide > 128, wide <= 256))
    short = where_all(classes <= 4, (256, 1, wide, 0, 4, 0), tile)
    # Then 32 elements in a thread, of two rows 16 each: 3001 classes 1.00 and 0.95, 5001 0.96 and 0.83, 16384 0.96 and 0.94, 32000 FLOAT 0.94.
    itemsize, row = static["itemsize"], classes * static["itemsize"]
    sharing = power_of_two_above(classes // 512 + 1, 64) // 2
    warps = clamp(where(several, sharing, wide // 1024), 1, where(several, 32, 16))
    lanes = least(wide, where(narrow, 256, 128) * warps)
    held = where_all(classes <= 512, short, (1, wide // lanes, lanes, 0, warps, 0))
    read_once = all_of(static["levels"] == 0, classes <= SHORT_ROW)
    held = where_all(read_once, once_tile(static, classes), held)
    # Where much of a tile is empty, reading twice is faster: 8193 classes 0.57 and 0.66 held, 0.96 and 0.97 streamed. Of two rows 32000 classes 0.89 in FLOAT (held 0.75),
    # and held 0.93 in BFLOAT16 (0.89).
    filled = classes * 16 > wide * 15
    full = all_of(filled, (classes % (VECTOR_BYTES // itemsize)) == 0)
    # Softmax's gradient, BFLOAT16, 8193, 10001 and 28001 classes 1.05, 0.90 and 0.84 streamed (held 0.65, 0.73 and 0.74), 16383, which fill their tile, 0.91 held (0.88).
    of_two_narrow = where(filled, 1 << 15, 1 << 13)
    # Of two rows and powers, which take registers, too, FLOAT: log_softmax's gradient of 6001 and 10007 classes 1.03 and 1.02 streamed (held 0.88 and 0.66).
    of_two_wide = where(static["powers"] > 0, 1 << 12, 1 << 14)
    longest = where(several, where(narrow, of_two_narrow, of_two_wide), where(full, where(narrow, 1 << 14, 1 << 15), 1 << 13))  # fmt: skip
    # So many programs that their rows stay in the cache, where they are read again. Of two rows 50257 classes 0.75 and 0.78, 131072 0.62 and 0.65.
    by_bytes = (18 << 10, (1, 4, 1024, 1, 4, 0)), (32 << 10, (1, 2, 2048, 1, 8, 0)), (where(narrow, 64 << 10, 96 << 10), (1, 1, 4096, 1, 16, 0))  # fmt: skip
    of_two = entry_within(row, by_bytes, (1, 1, 8192, 1, 32, 0))
    streamed = where_all(several, of_two, _streamed_row(narrow, row))
    # What is read once: gradients of log-probabilities and entropies of 50257 classes 0.88 and 0.79, BFLOAT16 0.84 and 0.82.
    once = where_all(narrow, (1, 1, 2048, 1, 8, 0), where_all(row <= 1 << 16, (1, 1, 4096, 1, 16, 0), (1, 1, 8192, 1, 32, 0)))  # fmt: skip
    streamed = where_all(static["levels"] == 0, once, streamed)
    chosen = where_all(classes <= longest, held, streamed)
    # Where no row is written, a few warps that find the largest of several classes of a thread first, so that there is little to compute; one, which waits for no other, where a
    # row is short. Shares of reading alone, log-probabilities and those with entropies: BFLOAT16 700 classes 0.60 and 0.50 (held 0.43 and 0.34), 3001 1.06 and 0.95, 8001 1.04 and
    # 0.85 (0.78 and 0.54), 50257 1.01 and 1.00; FLOAT 1300 and 6001 0.94 and 0.96, 50257 0.94 and 0.93 (by four warps 0.88), 128256 1.08 and 1.07.
    read = where_all(narrow, (1, 4, 512, 1, 2, 0), (1, 4, 1024, 1, 4, 0))
    read = where_all(row <= where(narrow, 1 << 15, 1 << 18), (1, 4, 256, 1, 1, 0), read)
    few = positions <= FEW_READ
    read = where_all(few, (1, 4, 4096, 1, 16, 0), read)
    reads = all_of(static["writes"] == 0, classes > where(few, 1 << 12, 1 << 9))
    return where_all(reads, read, chosen)


def once_tile(static: Mapping[str, Number], classes: Number) -> tuple[Number, ...]:
    """The tile of rows of up to SHORT_ROW classes that are read once: a warp has one at a time, or a few short ones, since what is computed once for a row is computed by all of its
    threads. Shares of a copy's bandwidth: cross entropy's gradient from logits, FLOAT and BFLOAT16, and by blocks of classes of several rows: 64 classes 0.86 and 0.72 (0.65 and 0.59), 70 0.70 and 0.47 (0.25 and 0.12), 150 0.71 and 0.61
    (0.27 and 0.26), 300 0.85 (0.44), 451 0.76 and 0.54 (0.40 and 0.37), 1000 0.96 and 0.84 (0.93 and 0.63), 1501 0.91 and 0.69 (0.86 and 0.67), 2300 BFLOAT16 0.79 (0.71)."""
    pairs = all_of((classes % 2) == 0, static["itemsize"] > 2)
    table = (
        (4, (256, 1, 4, 1, 4, 0)), (64, (32, 1, 32, 1, 4, 0)), (384, where_all(pairs, (8, 1, 64, 1, 4, 0), (8, 1, 32, 1, 2, 0))),
        (512, (1, 1, 256, 1, 1, 0)), (1024, (1, 1, 512, 1, 2, 0)),
    )  # fmt: skip
    return entry_within(classes, table, (1, 2, 512, 1, 2, 0))


# By the most bytes of a row.
STREAMED = (40 << 10, (1, 4, 2048, 1, 8, 0)), (144 << 10, (1, 8, 2048, 1, 8, 0))
STREAMED_OF_16_BITS = (
    (28 << 10, (1, 4, 1024, 1, 4, 0)), (48 << 10, (1, 4, 2048, 1, 8, 0)), (96 << 10, (1, 8, 2048, 1, 8, 0)), (192 << 10, (1, 4, 4096, 1, 16, 0)),
)  # fmt: skip


def _streamed_row(narrow: Truth, row: Number) -> tuple[Number, ...]:
    """The tile of a row of so many bytes that is read twice. Shares of a copy's bandwidth: softmax, FLOAT: 8193 and 16383 classes 0.96 and 0.98, 20001, 32001 0.84, 0.91, 50257 and 65537 0.78 and 0.87; BFLOAT16: 8193 and
    12001 0.97 and 0.94, 16383 and 20001 0.87 and 0.81, 28001, 32001 0.87, 0.88, 40000 and 50257 0.81 and 0.74, 65537 0.82, 131072 0.77, 200001 0.57."""
    return where_all(narrow, entry_within(row, STREAMED_OF_16_BITS, (1, 4, 8192, 1, 32, 0)), entry_within(row, STREAMED, (1, 8, 4096, 1, 16, 0)))  # fmt: skip


def _tiles(static: Mapping[str, Number], classes: Number) -> tuple[Number, ...]:
    """Of a row in several tiles: classes of a thread, lanes, warps, and whether that is faster. Shares of a copy's bandwidth, in brackets streamed or held in one tile: softmax, FLOAT 10007, 12001, 20011
    classes 0.96, 0.98, 0.89 (0.89, 0.96, 0.81), 28001 0.53 (0.92); BFLOAT16 9001, 12001, 20011, 28001, 32003 0.96, 1.00, 0.91, 0.95, 0.95 (0.88, 0.90, 0.85, 0.78, 0.83), 50257
    0.71 (0.77). Its gradient: FLOAT 20011 and 23001 1.03 and 1.02 (0.85 and 0.81); BFLOAT16 10001, 20011, 28001, 32003 0.99, 0.91, 0.98, 0.99 (0.87, 0.80, 0.85, 0.62). That of
    log_softmax: FLOAT 20011 1.03 (0.92); BFLOAT16 12001 0.93 (0.96), 20011 and 28001 0.99 and 0.95 (0.87 and 0.92)."""
    narrow, one = static["itemsize"] < 4, static["rows"] == 1
    warps = where(all_of(one, narrow, classes <= 1 << 14), 8, 16)
    of_two = where(narrow, where(static["powers"] > 0, 1 << 14, 1 << 13), 1 << 14)
    longest = where(narrow, 1 << 15, where(one, 5 << 12, 6 << 12))
    gains = all_of(classes > where(one, 1 << 13, of_two), classes <= longest)
    return where(narrow, 1, 2), warps * where(narrow, 256, 128), warps, flag(gains)


def _image_tile(static: Mapping[str, Number], classes: Number, along: Number) -> tuple[Number, ...]:
    """The tile of images. Figures as in `_row_tile`, for softmax and its gradient."""
    itemsize = static["itemsize"]
    high = power_of_two_above(classes, 1 << 10)
    several, narrow = static["rows"] > 1, static["itemsize"] < 4
    # One warp for few classes, of which each thread has all: 21 classes 0.97 and 0.98 (on four warps 0.86 and 0.28), 3 1.01 and 0.91; of planes that
    # begin anywhere, 19 classes 0.86 and 0.74, gradient 0.90 (on one warp 0.85) and 0.81.
    few = where_all(
        all_of(several, inverse(narrow)),
        (clamp(8192 // high, 64, 256), high, 1, 0, 4, 1),
        (clamp(4096 // high, 32, 256), high, 1, 0, 1, 1),
    )
    # 64 classes 0.98 and 0.89, of such planes 0.80 and 0.64; 150 0.94 and 0.87, of such planes, twice as many at once, 0.73 and 0.59 (64 0.61 and 0.45).
    odd = (along % (VECTOR_BYTES // itemsize)) != 0
    twice = where(odd, 2, 1)
    some = where_all(high <= 64, (64, 1, high, 0, 2, 0), (64 * twice, 1, high, 0, 4 * twice, 1))
    # 1000 0.83 and 1.04, gradient 0.95 and 0.85 (16 positions of BFLOAT16 0.65).
    across = where(high <= 512, 32, 64 // itemsize)
    # 600, by code for their number as for all that fill less than three quarters of a tile, 0.90 and 0.64 (0.85 and 0.41).
    many = across, 1, high, 0, clamp(across * high // 2048, 2, 8), flag(classes * 4 <= high * 3)
    held = where_all(high <= 32, few, where_all(high <= 256, some, many))
    # Sums of two rows of 16 bits, by whole lines of 128 bytes, as of FLOAT: squared errors 1.01 (128 classes of 32 positions 0.93). No classes on their way, 32 positions of 256 0.89.
    added = all_of(narrow, static["writes"] == 0, static["powers"] == 0, static["rows"] == 2)
    return where_all(classes <= 1 << 10, held, (where(added, 64, 32), 1, 128, 1, 8, 0))


def tile_of(
    by_class: bool, static: Mapping[str, Number], classes: Number, positions: Number, along: Number
) -> Tile:
    """The tile by static parameters (as how many rows are read, and their element's bytes) and sizes; `along` is the size along the tile's last axis."""
    tile = (
        _row_tile(static, classes, positions) if by_class else _image_tile(static, classes, along)
    )
    few = positions * classes <= SMALL
    tile = where_all(few, _few_tile(by_class, classes), tile)
    positions, held, lanes, streamed, warps, exact = tile
    return Tile(positions, held, lanes, streamed > 0, warps, exact > 0)


class Walk(NamedTuple):
    """Sizes and strides in the order in which a kernel's traversal takes them."""

    traversal: Traversal
    shape: tuple[Number, ...]  # of positions
    classes: Number
    strides: Mapping[str, tuple[Number, ...]]  # of each operand, along positions, then classes

    @property
    def by_class(self) -> bool:
        return self.traversal.by_class

    @property
    def positions(self) -> Number:
        return math.prod(self.shape[1:], start=self.shape[0])

    @property
    def along(self) -> Number:
        """The size along the tile's last axis."""
        return self.classes if self.by_class else self.shape[-1]

    def last_stride(self, name: str) -> Number:
        """An operand's stride along the tile's last axis; 1 if that is the class axis and there is one class, whose stride does not matter."""
        strides = self.strides[name]
        return where(self.classes > 1, strides[-1], 1) if self.by_class else strides[-2]

    def other_strides(self, name: str) -> tuple[Number, ...]:
        """An operand's strides along all other axes."""
        strides = self.strides[name]
        return strides[:-1] if self.by_class else (*strides[:-2], strides[-1])

    def reach(self, tile: Tile) -> Number:
        """A bound of all offsets that a program computes, those of padding too: it decides between 32 and 64 bits."""
        reach = self.positions + tile.positions
        # Padding behind the last position is beyond the first axis alone if positions are numbered through all axes, with CUT beyond the last.
        behind = math.prod(self.shape[2:], start=self.shape[1]) if len(self.shape) > 1 else 1
        for *along, step in self.strides.values():
            span = abs(step) * (self.classes + tile.chunk) + abs(along[0]) * (
                tile.positions // behind + 1
            )
            span = span + abs(along[-1]) * (0 if self.by_class else tile.positions)
            for size, stride in zip(self.shape, along, strict=True):
                span = span + abs(stride) * size
            reach = most(reach, span)
        return reach


class RowLauncher(ClassLauncher):
    """The launcher of one row formula's kernels: over row-major operands (`dense`), whose positions are before the classes and behind them, or over strided ones. A kernel's
    key is its traversal."""

    others: Mapping[Any, Any] = {}  # kernels that are launched before those of the formula
    last: Mapping[Any, Any] = {}  # kernels that are launched after them

    def __init__(self, name: str, signature: Signature, graph: Graph, axes: int) -> None:
        """`axes`: how many axes of positions strided operands have; 0 for row-major operands."""
        nodes = graph.nodes
        results = [(str(place), "Row" if "c" in node.axes else "PerRow") for place, node in enumerate(graph.results)]  # fmt: skip
        results = results[: len(results) - signature.hidden]
        self.signature, self.dense = signature, not axes
        self.kinds = (*signature.operands, *results)  # kernels' names and kinds of all operands
        self.rows, self.images = Traversal(True, False, axes or 1), Traversal(False, False, axes or 2)  # fmt: skip
        self.reductions = sum(node.what in ("total", "largest") for node in nodes)
        self.traversed = {traversal: self.kernel(graph, traversal) for traversal in self.traversals()}  # fmt: skip
        self.formula_counts = {
            "rows": sum(kind == "Row" for _, kind in signature.operands),
            "writes": sum(kind == "Row" for _, kind in results),
            "powers": sum(node.what == "exp" and "c" in node.axes for node in nodes),
            "logarithms": sum(node.what in ("log", "log1p") and "c" not in node.axes for node in nodes),
            "levels": graph.levels,
        }  # fmt: skip
        super().__init__(
            f"{name}.{signature}{self.kinds}{self.reductions}", self.launch, {**self.others, **self.traversed, **self.last},
            {operand: ROLES[kind] for operand, kind in self.kinds}, len(self.kinds), (*signature.targets, *signature.numbers), axes or 2,
            self.specs, self.static, limit=STRIDED_LIMIT,
        )  # fmt: skip

    def kernel(self, graph: Graph, traversal: Traversal) -> Any:
        return kernel_of(self.signature, graph, traversal)

    def specs(self, plan: Plan, offset: int = 0) -> Specs:
        slots = pointers_of(plan, lambda operand: operand.role == "full")
        specs = {
            traversal: KernelSpec(kernel, slots, precision(plan))
            for traversal, kernel in self.traversed.items()
        }
        if self.shares:
            # So that two programs of 16 warps run at once: softmax of 32003 classes, BFLOAT16, 0.92 (0.65 without). Two rows would not fit (20011 classes 0.67, 0.88 without).
            tiled, shared = self.rows._replace(tiled=True), self.rows._replace(shared=True)
            if self.formula_counts["rows"] == 1:
                specs[tiled] = specs[tiled]._replace(registers=64)
            memory = scratch_of(plan, "float32")
            specs[shared] = specs[shared]._replace(slots=(*slots, memory), cluster=PIECES.value)
        return specs

    def static(self, plan: Plan) -> Mapping[str, int]:
        sizes = {operand.dtype.itemsize for operand in plan.operands if operand.role == "full"}
        return {
            **self.formula_counts, "clusters": int(has_clusters()), CLASS_AXIS: plan.class_axis, "itemsize": max(sizes), "alike": int(len(sizes) == 1),
        }  # fmt: skip

    def _as_planned(self, plan: Plan) -> Layout:
        sizes = outer_and_inner_sizes(plan) if self.dense else None
        if sizes is None:
            return super()._as_planned(plan)
        each = {name: int(plan.operands[place].role != "single") for name, place in self._places(plan).items()}  # fmt: skip
        return row_major(2, self.roles, sizes[0], plan.classes, sizes[1], each)

    def traversals(self) -> list[Traversal]:
        """The traversals for which there are kernels."""
        traversals = [each._replace(streamed=streamed) for each in (self.rows, self.images) for streamed in (False, True)]  # fmt: skip
        if self.dense:
            traversals += [Traversal(by_class, False, 1, dealt=True) for by_class in (False, True)]
        if self.shares:
            traversals += [self.rows._replace(shared=True), self.rows._replace(tiled=True)]
        return traversals

    @property
    def shares(self) -> bool:
        """Whether long rows may be shared among programs: not if rows are read once, nor if a program could read at a target what another has already overwritten."""
        writes = any(kind == "Row" for _, kind in self.kinds[len(self.signature.operands) :])
        return self.dense and self.reductions > 0 and writes and not self.signature.targets

    def shared(self, g: Geometry, walk: Walk, tile: Tile, streamed: LaunchParams) -> LaunchParams:
        """The launch by clusters in place of a streamed one: a program holds a piece of a row, up to 128 elements in a thread."""
        itemsize = g.static["itemsize"]
        spans = ceil_div(walk.classes, PIECES.value * SPANS.value)
        span, rows = spans * SPANS.value, power_of_two_above(g.static["rows"], 4)
        warps = where(span > 1 << 14, 8, 4) * rows
        lanes = warps * (32 * VECTOR_BYTES) // itemsize
        held = power_of_two_above(ceil_div(span, lanes), 64)
        fits = all_of(walk.classes * rows <= MOST_SHARED, walk.positions * walk.classes > SMALL)
        # Shares of a copy, and streamed: softmax of 131072 and 200001 classes, FLOAT, 0.78 and 0.64 (0.71 and 0.56), of 65537 0.59 (0.87); BFLOAT16 131072 0.61 (0.77).
        # Its gradient, FLOAT, 32000, 50257, 65536 and 131072 0.98, 0.89, 0.97 and 0.92 (0.75, 0.76, 0.65 and 0.62), BFLOAT16 65536 and 131071 0.85 and 0.73
        # (0.70 and 0.67), 50257, which begin anywhere, 0.69 (0.78). Few rows, 16 of 131072, 2.4 to 2.7 times as fast.
        # Addresses decide nothing here: a launch has one kernel for all of them.
        aligned, wide = (walk.classes % (VECTOR_BYTES // itemsize)) == 0, itemsize > 2
        long = walk.classes > 1 << 16
        # Shorter ones that begin anywhere: gradients of softmax and log_softmax of 20011 classes, FLOAT, 0.83 and 0.86 (streamed 0.88 and 0.95).
        longer = all_of(wide, walk.classes * itemsize > 96 << 10)
        gains = where(rows > 1, any_of(longer, aligned, long), all_of(wide, walk.classes > 3 << 15))
        when = all_of(
            streamed.when, g.static["clusters"] > 0, fits, any_of(gains, walk.positions <= FEW_LONG)
        )
        constexprs = {**streamed.constexprs, "HELD": held, "LANES": lanes}
        return streamed._replace(
            kernel=self.rows._replace(shared=True), grid=streamed.grid * PIECES.value, args={**streamed.args, "span": spans}, constexprs=constexprs,
            warps=warps, when=when,
        )  # fmt: skip

    def tiled(self, g: Geometry, walk: Walk, when: Truth, params: LaunchParams) -> LaunchParams:
        """The launch in place of others where a program holds a row in several tiles."""
        held, lanes, warps, gains = _tiles(g.static, walk.classes)
        tiles = ceil_div(walk.classes, held * lanes)
        constexprs = {**params.constexprs, "HELD": held, "LANES": lanes, "TILES": least(tiles, MOST_TILES)}  # fmt: skip
        when = all_of(when, gains > 0, walk.positions * walk.classes > SMALL, tiles <= MOST_TILES)
        tiled = self.rows._replace(tiled=True)
        return params._replace(kernel=tiled, constexprs=constexprs, warps=warps, when=when)

    def tile(self, g: Geometry, walk: Walk) -> Tile:
        if walk.traversal.dealt:
            wide = power_of_two_above(walk.classes, MOST_LANES)
            lanes = SHARING if walk.by_class else 1
            positions = DEALT * DEALT_EACH // wide if walk.by_class else DEALT
            return Tile(positions, wide // lanes, lanes, False, DEALT // 32, True)
        return tile_of(walk.by_class, g.static, walk.classes, walk.positions, walk.along)

    def launch(self, g: Geometry) -> Launches:
        classes_along = self.classes_along(g.layout)
        steps: list[LaunchParams] = []
        rows, classes = classes_along, g.layout.classes
        if self.dense:
            contiguous_rows = all_of(
                classes_along, g.layout.shape[0] * classes > SMALL,
                *(g.layout.strides[name][0] == classes for name, kind in self.kinds if kind == "Row"),
            )  # fmt: skip
            dealt, shared = (all_of(contiguous_rows, each) for each in self.deals(g, classes))
            shared = all_of(shared, inverse(dealt))
            rows = all_of(classes_along, inverse(dealt), inverse(shared))
            for by_class, when in ((False, dealt), (True, shared)):
                if when is not False:
                    dealt_out = Traversal(by_class, False, 1, dealt=True)
                    steps += self.launches(g, self.walk(g.layout, True)._replace(traversal=dealt_out), when)  # fmt: skip
        for by_class, when in ((True, rows), (False, inverse(classes_along))):
            if when is not False:
                steps += self.launches(g, self.walk(g.layout, by_class), when)
        shared = [step.when for step in steps if step.kernel.shared]
        if not shared:
            return Launches(steps)
        bytes_of_row = PIECES.value * 4 * self.reductions
        return Launches(steps, where(shared[0], g.layout.shape[0] * bytes_of_row, 0), (0,))

    def deals(self, g: Geometry, classes: Number) -> tuple[Truth, Truth]:
        """Whether rows are dealt, one to a thread; and whether they are dealt to several threads each."""
        # Not where threads would read the same banks of shared memory. Shares of a copy, in brackets by several rows in a warp: softmax of 21 classes 0.89 and 0.52 (0.67 and
        # 0.38), log_softmax 0.85 and 0.52 (0.56 and 0.34), 7 classes 1.04 and 0.75 (0.84 and 0.57), gradients of log-probabilities 0.71 (0.21); softmax's gradient
        # of 21 and 3 classes 0.97 and 0.94 (0.93 and 1.02), BFLOAT16 0.59 and 0.64 (0.70 and 0.84).
        # Where much is computed for each row, as at its target, more classes gain, too: log-probabilities of 38 and 49 classes 1.46 and 1.50 (0.62 and 0.75).
        one, wide = g.static["rows"] < 2, g.static["itemsize"] > 2
        longest = MOST_DEALT if self.signature.targets else MOST_DEALT // 2
        # Kernels that read no row deal out two numbers of each, so that banks do not matter.
        no_conflicts = any_of(g.static["rows"] == 0, (classes % 4) != 0)
        dealt = all_of(classes > where(one, 2, 4), classes <= longest, no_conflicts, any_of(one, wide))  # fmt: skip
        # To several threads a row where no row is written: BFLOAT16 and FLOAT log-probabilities of 70 classes 0.72 and 0.78 of reading (0.30 and 0.42), with entropies 0.62 and 0.72
        # (0.24 and 0.35), 150 0.72 (0.43); and of few with a logarithm, log_softmax of 38 classes 0.48 and 0.76 of a copy (0.38 and 0.64), 101 0.33 and 0.56 (0.39 and 0.76).
        most_lanes = where(
            g.static["writes"] == 0, MOST_LANES, where(g.static["logarithms"] > 0, FEW_LANES, 0)
        )
        unaligned = (classes % (VECTOR_BYTES // g.static["itemsize"])) != 0
        shared = all_of(one, unaligned, classes > MOST_DEALT // 2, classes <= most_lanes)  # fmt: skip
        return dealt, shared

    def classes_along(self, layout: Layout) -> Truth:
        """Whether classes, and not positions, are contiguous: decided by the last operand that is a row, a result if one is."""
        if self.dense:
            return layout.shape[1] == 1
        *_, last = [layout.strides[name] for name, kind in self.kinds if kind == "Row"]
        position, step = (abs(stride) for stride in last[-2:])
        return all_of(step != 0, any_of(position == 0, step <= position))

    def walk(self, layout: Layout, by_class: bool) -> Walk:
        shape, classes, strides = layout
        if self.dense and by_class:
            shape, strides = (
                shape[:1],
                {name: (steps[0], steps[2]) for name, steps in strides.items()},
            )
        return Walk(self.rows if by_class else self.images, shape, classes, strides)

    def launches(self, g: Geometry, walk: Walk, when: Truth) -> list[LaunchParams]:
        """The launches with classes, or with positions, along the tile's last axis; of these, held, streamed and others, one takes place."""
        by_class, classes, positions = walk.by_class, walk.classes, walk.positions
        dealt = walk.traversal.dealt
        tile = self.tile(g, walk)
        # One kernel for all strides, and few for all sizes of few elements.
        small = any_of(g.strided, positions * classes <= SMALL)
        near = {
            name: all_of(not g.strided, not by_class or kind in ("Row", "PerClass"), walk.last_stride(name) == 1)
            for name, kind in self.kinds
        }  # fmt: skip
        divided = [name for name, kind in self.kinds if is_divided(kind, by_class)]
        # Strides that the kernel knows as 1 need not be multiples of the unit: along the tile's last axis or, of a transposed operand, along the other.
        turned = {
            name: all_of(not self.dense, not g.strided, kind == "Row", inverse(near[name]), walk.other_strides(name)[-1] == 1)
            for name, kind in self.kinds
        }  # fmt: skip
        apart = [where(near[name], 0, walk.last_stride(name)) for name in divided]
        across = [step for name in divided for step in walk.other_strides(name)[:-1]]
        across += [where(turned[name], 0, walk.other_strides(name)[-1]) for name in divided]
        turns = any_of(*turned.values())
        across.append(where(turns, walk.shape[-1] if by_class else classes, 0))
        unit = least(where(small, 1, power_of_two_divisor(walk.along, *apart, *across)), self.unit(walk))  # fmt: skip
        blocks, grid = ceil_div(walk.shape[-1], tile.positions), ceil_div(positions, tile.positions)
        cut = all_of(not by_class, not dealt, inverse(small), self.is_cut(blocks * tile.positions, walk.shape[-1]))  # fmt: skip
        grid = where(cut, positions // walk.shape[-1] * blocks, grid)
        alone = all_of(by_class, not dealt, tile.positions == 1, inverse(small))
        vector = self.vector(g, near, unit, alone)
        constexprs: dict[str, Number] = {
            "UNIT": unit, "WIDE": g.strided or walk.reach(tile) >= INT32_LIMIT,
            **{f"NEAR_{name}": where(near[name], 1, where(turned[name], 2, 0)) for name in near},
            "CLASSES": where(all_of(tile.exact, inverse(g.strided)), classes, 0), "CUT": cut, "VECTOR": vector,
            "POSITIONS": tile.positions, "HELD": tile.held, "LANES": tile.lanes,
        }  # fmt: skip
        held = LaunchParams(
            walk.traversal, grid, self.args(g, walk, unit, where(turns, unit, 1), divided), constexprs,
            tile.warps, all_of(when, inverse(tile.streamed)), inverse(small),
        )  # fmt: skip
        if dealt:
            return [held] if walk.traversal in self.traversed else []
        streamed = held._replace(kernel=walk.traversal._replace(streamed=True), when=all_of(when, tile.streamed))  # fmt: skip
        if not (by_class and self.shares):
            return [params for params in (held, streamed) if params.kernel in self.traversed]
        # Where a row would be streamed, and two of 16 bits would be held in one tile that is not full.
        streams = any_of(tile.streamed, all_of(g.static["rows"] > 1, g.static["itemsize"] < 4))
        tiled = self.tiled(g, walk, all_of(when, streams), held)
        held, streamed = (params._replace(when=all_of(params.when, inverse(tiled.when))) for params in (held, streamed))  # fmt: skip
        shared = self.shared(g, walk, tile, streamed)
        return [held, streamed._replace(when=all_of(streamed.when, inverse(shared.when))), shared, tiled]  # fmt: skip

    def unit(self, walk: Walk) -> Number:
        """The largest divisor of sizes and strides that is passed as UNIT."""
        return DIVISOR

    def is_cut(self, places: Number, pixels: Number) -> Truth:
        """Whether programs have positions of one image each, with `places` for its pixels: if that leaves few of them empty."""
        return places * 7 <= pixels * 8

    def vector(self, g: Geometry, near: Mapping[str, Truth], unit: Number, alone: Truth) -> Number:
        """VECTOR: how many elements a vector has, for rows that have a program each and are all misaligned by the same bytes; else 1."""
        longest = VECTOR_BYTES // g.static["itemsize"]
        if not self.dense or alone is False:
            return 1
        rows = [place for place, (_, kind) in enumerate(self.kinds) if kind == "Row"]
        off = g.offset(rows[0])
        alike = [all_of(near[self.kinds[place][0]], g.offset(place) == off) for place in rows]
        alike.append(any_of(off == 0, all_of(g.static["alike"] > 0, (off % g.static["itemsize"]) == 0)))  # fmt: skip
        return where(all_of(alone, any_of(unit < longest, off != 0), *alike), longest, 1)

    def args(
        self, g: Geometry, walk: Walk, unit: Number, other_unit: Number, divided: Sequence[str]
    ) -> dict[str, Number]:
        """The kernel's arguments: sizes, strides and numbers; those of `divided` operands are divided by the unit."""
        args = {f"size_{axis}": size for axis, size in enumerate(walk.shape)}
        args["classes"] = walk.classes
        last, other = f"size_{len(walk.shape) - 1}", "classes"
        if walk.by_class:
            last, other = other, last
        args |= {other: args[other] // other_unit, last: walk.along // unit}
        for name, strides in walk.strides.items():
            *along, step = [each // unit for each in strides] if name in divided else strides
            args[f"step_{name}"] = step
            args |= {f"stride_{name}_{axis}": each for axis, each in enumerate(along)}
        args |= {name: g.numbers[name] for name in self.signature.targets}
        return args | {f"number_{name}": g.numbers[name] for name in self.signature.numbers}


@functools.cache
def _launcher(formula: RowFormula, switches: tuple[bool, ...], axes: int) -> RowLauncher:
    """The launcher for row-major operands (`axes` is 0), or for so many axes of strided ones."""
    graph = formula.graph(dict(zip(formula.switches, switches, strict=True)))
    name = ".".join(["row", formula.name, *(str(int(on)) for on in switches)])
    return RowLauncher(name, signature_of(formula), graph, axes)


class RowFormulas(Launcher):
    """The launcher of all row formulas: it leaves a plan to the `RowLauncher` of its formula and switches."""

    limit = STRIDED_LIMIT

    def _launcher(self, plan: Plan, axes: int) -> RowLauncher:
        formula = ROW_FORMULAS[plan.kernel]
        switches = tuple([bool(plan.numbers[name]) for name in formula.switches])
        return _launcher(formula, switches, axes)

    def _serves_numbers(self, plan: Plan) -> bool:
        """Whether the plan's free numbers are the kernel's arguments, in their order."""
        formula = ROW_FORMULAS[plan.kernel]
        arguments = [*formula.targets, *formula.numbers]
        return [number.option for number in plan.free] in ([], arguments)

    def runner(self, plan: Plan) -> Runner:
        axes = 0 if outer_and_inner_sizes(plan) else len(plan.shape)
        if not self.serves_row_major(plan) and self._serves_numbers(plan):
            launcher = self._launcher(plan, STRIDED_AXES)
            if launcher.serves_strides(plan):
                return launcher.runner_by(plan, strided=True)  # its kernel serves all strides
        return self._launcher(plan, axes).runner(plan)

    def serves_row_major(self, plan: Plan) -> bool:
        return outer_and_inner_sizes(plan) is not None

    def dynamic_runner(self, plan: Plan, strided: bool) -> DynamicRunner | None:
        if not self._serves_numbers(plan):
            return None
        return self._launcher(plan, STRIDED_AXES if strided else 0).dynamic_runner(plan, strided)

    def small_shape(self, plan: Plan) -> tuple[int, ...] | None:
        sizes = outer_and_inner_sizes(plan)
        # Beyond the limit, the kernel of any strides does not take its place.
        if sizes is None or covered_elements(plan) > STRIDED_LIMIT:
            return None
        before, behind = sizes
        if plan.class_axis == 0:
            return plan.classes, behind
        return *(1,) * (plan.class_axis - 1), before, plan.classes, behind


ROW_KERNELS = RowFormulas()
