# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
"""Writes Triton kernels for row formulas: `kernel_of` makes one for each formula, `Traversal` and number of axes. `launchers/row_formulas.py` chooses the traversal.

A program's tile has the axes [classes of a thread, classes or positions, positions or classes]: a thread reduces the first axis without an exchange with others, and
`by_class` puts classes last, for rows that are contiguous along them; otherwise positions are last, as in images. Kernels are
- held: the tile has all classes of its positions. Each element is read and written once.
- `streamed`: a loop over chunks of classes for each level of reductions, then a loop that writes. Loops alternate their direction, so that each begins with what is cached.
- `tiled`: a program holds a row in several tiles, where a single one would be mostly padding.
- `shared`: a cluster of programs holds a row that is too long for one, and exchanges partial reductions.
- `dealt`: for short rows of any alignment. A program reads a run of rows by vectors, and transposes them through shared memory, so that one thread (`by_class`: a few) has all
  classes of a row. Results go back the same way.

Sizes and strides are arguments, so that one kernel serves all. Constexprs tell the compiler what it must know for vectors: UNIT divides the strides of rows and the size
along the tile's last axis; NEAR_x is 1 if operand x is contiguous along that axis, 2 if along the tile's other axis, whose size UNIT divides then, too. CLASSES is the number
of classes if code for that number is faster, and for `dealt` kernels, else 0. With CUT, a program's positions are in one image. Padding classes have the neutral element of each reduction.

A program with one misaligned row reads aligned vectors of VECTOR elements. The few classes before the first and behind the last of these are the row's edges, which are
read at once, reduced separately, and written last.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import triton
import triton.language as tl

from openaclnn.engines.formulas.rows import Graph, Node, RowFormula
from openaclnn.engines.gpu.formulas.compiled import PRECISE_WORDS, Kernel, widen
from openaclnn.engines.gpu.formulas.words import LOG2_E, WORDS, divide, hardware_exp, log_from_one
from openaclnn.engines.gpu.kernels.reductions import store_nll
from openaclnn.engines.gpu.kernels.sums import (
    await_sums,
    is_counted,
    let_next_start,
    read_sum,
    read_wide_sum,
)

DIVISORS, OF_WEIGHTS = ("total_weight", "rows_counted"), ("weight_sum", "infinite_sum")
"""The names of formulas' numbers that are sums over all positions, and over the weights of all classes, in the order of `kernels.sums.add_up`."""


class Signature(NamedTuple):
    """What a kernel takes and returns beside its formula."""

    name: str
    operands: tuple[tuple[str, str], ...]  # name and kind (Row, PerRow, PerClass, Target)
    targets: tuple[str, ...]  # integer arguments about class indices, as ignore_index
    numbers: tuple[str, ...]  # FLOAT arguments
    sums: bool = False  # whether it reads DIVISORS or OF_WEIGHTS, sums that lie in memory
    singles: tuple[str, ...] = ()  # PerRow operands that have one element for all rows
    added: tuple[int, ...] = ()  # results of which a program leaves the sum over its positions
    hidden: int = 0  # how many of the last results are not outputs: they are added up alone
    step: str = ""  # AHEAD or LATE for the kernels of a training step (`steps.py`)


def signature_of(formula: RowFormula) -> Signature:
    return Signature(formula.name, formula.operands, formula.targets, formula.numbers)


AHEAD, LATE = "ahead", "late"


class Traversal(NamedTuple):
    """How a kernel goes over positions and classes; the module's docstring has more."""

    by_class: bool  # whether classes are along the tile's last axis; else positions
    streamed: bool
    axes: int  # of positions
    shared: bool = False  # among PIECES programs
    dealt: bool = False
    cut: bool = False  # no reduction over classes: a program has HELD tiles of a row's classes
    tiled: bool = False  # into TILES tiles
    summed: bool = False  # no classes: results of positions are added up over all of them


START = (
    "rest = tl.program_id(0).to(INDEX)"  # the line from which on a kernel computes its positions
)
MOST_TILES = 8  # tiles of a row that a program holds
PAIRINGS = tl.constexpr(10)  # halvings that reduce all classes of a thread
INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)
NEUTRAL = {"total": "0.0", "largest": "float('-inf')"}


@triton.jit
def total_of(x, AXIS: tl.constexpr):
    return tl.sum(held_total(x), AXIS, keep_dims=True)


@triton.jit
def held_total(x):
    """The sum of the classes of a thread, added up in pairs, which has small rounding errors."""
    for _ in tl.static_range(PAIRINGS):
        if x.shape[0] > 1:
            x = tl.sum(tl.reshape(x, [2, x.shape[0] // 2, x.shape[1], x.shape[2]]), 0)
    return x


@triton.jit
def folded(x, FOLD: tl.constexpr):
    """The tile with FOLD neighbours of its last axis, which a thread has read as a vector, moved to the first axis."""
    if FOLD > 1:
        x = tl.reshape(x, [x.shape[0], x.shape[1], x.shape[2] // FOLD, FOLD])
        x = tl.permute(x, (3, 0, 1, 2))
        x = tl.reshape(x, [FOLD * x.shape[1], x.shape[2], x.shape[3]])
    return x


@triton.jit
def largest_of(x, y):
    return tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def largest_along(x, AXIS: tl.constexpr):
    """The largest along an axis, NaN if one is. The interpreter would take seconds for a reduction by a function, so it has another way."""
    if INTERPRETED:
        unknown = tl.sum((x != x).to(tl.int32), AXIS, keep_dims=True) > 0
        top = tl.max(tl.where(x != x, float("-inf"), x), AXIS, keep_dims=True)
        result = tl.where(unknown, float("nan"), top)
    else:
        result = tl.reduce(x, AXIS, largest_of, keep_dims=True)
    return result


@triton.jit
def largest(x, AXIS: tl.constexpr):
    return largest_along(largest_along(x, 0), AXIS)


@triton.jit
def least_of(x, y):
    return tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def halves(x):
    """The classes of a thread in pairs: the larger of each pair, and the smaller."""
    x = tl.reshape(x, [2, x.shape[0] // 2, x.shape[1], x.shape[2]])
    large = largest_along(x, 0)
    if INTERPRETED:
        small = largest_along(x * -1.0, 0) * -1.0
    else:
        small = tl.reduce(x, 0, least_of, keep_dims=True)
    shape: tl.constexpr = [x.shape[1], x.shape[2], x.shape[3]]
    return tl.reshape(large, shape), tl.reshape(small, shape)


@triton.jit
def held_largest(x):
    for _ in tl.static_range(PAIRINGS):
        if x.shape[0] > 1:
            x, _small = halves(x)
    return x


@triton.jit
def held_powers(x, top):
    """The sum of exp(x - top) over the classes of a thread but its largest. In each round of pairs the smaller one's power is added and the larger one stays, so that no
    element needs a comparison with the largest."""
    total = tl.zeros([1, x.shape[1], x.shape[2]], tl.float32)
    for _ in tl.static_range(PAIRINGS):
        if x.shape[0] > 1:
            x, small = halves(x)
            total += held_total(tl.exp2((small - top) * LOG2_E))
    return total


@triton.jit
def share(x, whole, PRECISE: tl.constexpr):
    """x / whole, where `whole` has one number for each row, 1 or more, or NaN: a product with the reciprocal, corrected by its remainder if PRECISE."""
    inverse = tl.div_rn(1.0, whole)
    quotient = x * inverse
    if PRECISE:
        quotient = tl.fma(tl.fma(quotient * -1.0, whole, x), inverse, quotient)
    return quotient


MINUS_LN2 = tl.constexpr(-0.6931471805599453)
LOWEST_POWER = tl.constexpr(-200.0)  # exp of it is 0 in FLOAT


@triton.jit
def power(x, top, PRECISE: tl.constexpr):
    """exp(x - top), where `top` is the largest of x's row: the hardware's exp2 of a product, corrected by the product's rounding error if PRECISE. It is 1 where
    both are equal, and 0 from LOWEST_POWER down.
    """
    shifted = x - top
    if PRECISE:
        shifted = tl.maximum(shifted, LOWEST_POWER, propagate_nan=tl.PropagateNan.ALL)
        exponent = shifted * LOG2_E
        result = tl.exp2(exponent)
        result = tl.fma(result, tl.fma(exponent, MINUS_LN2, shifted), result)
    else:
        result = tl.exp2(shifted * LOG2_E)
    return result


@triton.jit
def below(x, y):
    """-|x - y|, at least LOWEST_POWER; 0 for two infinities of one sign and for NaN, which the row's largest carries on by itself."""
    distance = tl.minimum(tl.abs(x - y) * -1.0, 0.0, propagate_nan=tl.PropagateNan.NONE)
    return tl.maximum(distance, LOWEST_POWER)


@triton.jit
def min_or_second(x, y):
    """where(x < y, x, y), which is y if x is NaN, in one instruction."""
    return tl.where(x < y, x, y) if INTERPRETED else tl.minimum(x, y)


@triton.jit
def opaque_copy(x, zero):
    """x, hidden from the compiler if it has 16 bits: it then computes anew what it had computed from x, rather than keep it in registers. `zero` is a 0 unknown to it."""
    if not INTERPRETED and x.dtype.primitive_bitwidth == 16:
        x = tl.inline_asm_elementwise("add.u32 $0, $1, $2;", "=r,r,r", [x, zero], dtype=x.dtype, is_pure=True, pack=2)  # fmt: skip
    return x


@triton.jit
def load_row(pointer, mask, LOWEST: tl.constexpr, POLICY: tl.constexpr):
    """A tile of a row; padding classes are 0, or with LOWEST minus infinity."""
    if LOWEST and not pointer.dtype.scalar.element_ty.is_floating():
        result = tl.load(pointer, mask=mask, other=0, eviction_policy=POLICY).to(tl.float32)
        result = tl.where(mask, result, float("-inf"))
    elif LOWEST:
        result = tl.load(pointer, mask=mask, other=float("-inf"), eviction_policy=POLICY)
    else:
        result = tl.load(pointer, mask=mask, other=0, eviction_policy=POLICY)
    return result


@triton.jit
def load_dealt(
    pointer, rows, there, LOWEST: tl.constexpr, BY_CLASS: tl.constexpr, HELD: tl.constexpr, LANES: tl.constexpr,
    POSITIONS: tl.constexpr, CLASSES: tl.constexpr,
):  # fmt: skip
    """A tile of the first rows from a pointer on, at most POSITIONS. No mask divides a vector but in the last program. The mask there has the bound POSITIONS * CLASSES,
    too, since the compiler must assume that rows * CLASSES may overflow."""
    at = tl.arange(0, HELD * LANES * POSITIONS)
    if rows >= POSITIONS:
        run = tl.load(pointer + at, mask=at < POSITIONS * CLASSES, other=0)
    else:
        run = tl.load(
            pointer + at, mask=(at < rows * CLASSES) & (at < POSITIONS * CLASSES), other=0
        )
    if BY_CLASS:
        row, c = at // LANES % POSITIONS, at // (LANES * POSITIONS) * LANES + at % LANES
    else:
        row, c = at % POSITIONS, at // POSITIONS
    dealt = tl.gather(run, row * CLASSES + tl.minimum(c, CLASSES - 1), 0)
    if BY_CLASS:
        result = tl.reshape(dealt, [HELD, POSITIONS, LANES])
    else:
        result = tl.reshape(dealt, [HELD, LANES, POSITIONS])
    if LOWEST:
        if not result.dtype.is_floating():
            result = result.to(tl.float32)
        result = tl.where(there, result, float("-inf"))
    else:
        result = tl.where(there, result, 0)
    return result


@triton.jit
def store_dealt(
    pointer, values, rows, BY_CLASS: tl.constexpr, HELD: tl.constexpr, LANES: tl.constexpr, POSITIONS: tl.constexpr,
    CLASSES: tl.constexpr,
):  # fmt: skip
    at = tl.arange(0, HELD * LANES * POSITIONS)
    row, c = tl.minimum(at // CLASSES, POSITIONS - 1), at % CLASSES
    if BY_CLASS:
        place = (c // LANES * POSITIONS + row) * LANES + c % LANES
    else:
        place = c * POSITIONS + row
    run = tl.gather(tl.ravel(values), place, 0)
    if rows >= POSITIONS:
        tl.store(pointer + at, run, mask=at < POSITIONS * CLASSES)
    else:
        tl.store(pointer + at, run, mask=(at < rows * CLASSES) & (at < POSITIONS * CLASSES))


@triton.jit
def store_hits(
    pointer, target, value, other, rows, SIZE: tl.constexpr, POSITIONS: tl.constexpr, CLASSES: tl.constexpr,
):  # fmt: skip
    """Write rows that have `value` at their target and `other` elsewhere. Targets and values go through shared memory, not the elements, which would have bank conflicts.
    Microseconds, FLOAT and BFLOAT16, in brackets by elements: NLL's gradient of (300000, 21) 11.4 and 10.9 (15.0 and 15.0), of (100000, 50) 9.2 (16.7), a memset 9.1 and 7.4, 8.4.
    In parts, which take fewer registers (all at once 14.6 and 13.5)."""
    for part in tl.static_range((POSITIONS * CLASSES + SIZE - 1) // SIZE):
        at = part * SIZE + tl.arange(0, SIZE)
        row = tl.minimum(at // CLASSES, POSITIONS - 1)
        hit = tl.gather(tl.ravel(target), row, 0) == at % CLASSES
        run = tl.where(hit, tl.gather(tl.ravel(value), row, 0), other)
        if rows >= POSITIONS:
            tl.store(pointer + at, run, mask=at < POSITIONS * CLASSES)
        else:
            tl.store(pointer + at, run, mask=at < rows * CLASSES)


@triton.jit
def class_of(target, classes, INDEX: tl.constexpr):
    """A target as an index of INDEX's type, to compare with all classes; -1 if it is no class."""
    return tl.where((target >= 0) & (target < classes), target, -1).to(INDEX)


PIECES = tl.constexpr(8)  # programs of a shared row: the largest cluster that every device can run
SPANS = tl.constexpr(64)  # pieces have multiples of so many classes: all are as aligned as the row


@triton.jit
def reduce_over_cluster(value, memory, piece, TOTAL: tl.constexpr):
    """A reduction of a shared row from those of its pieces, in their order: each program writes its own `value`, and waits for the others of its cluster.

    Interpreted programs run one after the other and cannot wait: they run again, and read what all wrote the time before.
    """
    tl.store(memory + piece + tl.zeros([1, 1, 1], tl.int32), value)
    zero = tl.program_id(0) * 0
    if not INTERPRETED:
        zero = tl.inline_asm_elementwise(
            "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned; mov.b32 $0, $1;",
            "=r,r", [zero], dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
    partial = tl.load(memory + tl.arange(0, PIECES) + zero, volatile=True)
    if TOTAL:
        result = tl.sum(partial)
    elif INTERPRETED:
        unknown = tl.sum((partial != partial).to(tl.int32)) > 0
        result = tl.where(unknown, float("nan"), tl.max(partial))
    else:
        result = tl.reduce(partial, 0, largest_of)
    return tl.full([1, 1, 1], result, tl.float32)


@triton.jit
def broadcast_positions(x, BY_CLASS: tl.constexpr, POSITIONS: tl.constexpr):
    """Numbers of positions, each in one thread, moved to all threads that have the position's classes. From one axis Triton moves these few numbers, else a whole tile."""
    if POSITIONS > 1 and len(x.shape) == 3:
        x = tl.reshape(x, [POSITIONS])
        x = x[None, :, None] if BY_CLASS else x[None, None, :]
    return x


@triton.jit
def store_added(place, x, POSITIONS: tl.constexpr):
    """Write the sum over a program's positions. One position needs no sum, which would make the program wait."""
    if POSITIONS > 1:
        tl.store(place, tl.sum(tl.ravel(x)).to(tl.float64))
    else:
        tl.store(place + tl.zeros([1, 1, 1], tl.int32), x.to(tl.float64))


COUNTED = tl.constexpr(1024)  # targets that each program counts itself, at most


@triton.jit
def rows_counted(target, rows, stride, classes, ignore_index):
    """How many of at most COUNTED targets count, which is the sum of their weights if each is 1."""
    row = tl.arange(0, COUNTED)
    inside = row < rows
    indices = tl.load(target + row * stride, inside, other=0).to(tl.int64)
    counted = inside & is_counted(indices, classes, ignore_index)
    return tl.sum(counted.to(tl.int32)).to(tl.float32)


@triton.jit
def divisor(
    sums, target, rows, stride, classes, ignore_index, WHICH: tl.constexpr, PARTS: tl.constexpr, MEAN: tl.constexpr
):  # fmt: skip
    """What a mean divides by: a sum that was added up before, or, without `sums`, the number of targets that count."""
    if MEAN:
        if sums is None:
            result = rows_counted(target, rows, stride, classes, ignore_index)
        else:
            result = read_sum(sums, WHICH, PARTS)
    else:
        result = tl.full([], 1.0, tl.float32)
    return result


@triton.jit
def expm1_float64(x):
    """expm1 in float64: near 0 a series, since exp(x) - 1 would cancel."""
    near = x * (1.0 + x * (0.5 + x * (0.16666666666666666 + x * 0.041666666666666664)))
    return tl.where(tl.abs(x) < 1e-3, near, tl.exp(x) - 1.0)


WIDE_WORDS = {"exp": "tl.exp", "expm1": "expm1_float64", "where": "tl.where", "abs": "tl.abs"}


class Writer:
    """Writes the source of one kernel, line by line. Variables v0, v1, ... are the nodes of the formula's graph."""

    words: Mapping[str, Any] = {}  # functions that the source may call beside those of all kernels
    early: tuple[str, ...] = ("input", "at")  # nodes of a position that held kernels compute first
    rows_left = "size_0 - number * POSITIONS"  # rows from the program's first one on, if dealt

    def __init__(self, formula: Signature, graph: Graph, traversal: Traversal) -> None:
        self.formula, self.graph, self.traversal = formula, graph, traversal
        self.axis = "2" if traversal.by_class else "1"
        held = "1" if traversal.cut else "HELD"
        self.tile = f"[{held}, POSITIONS, LANES]" if traversal.by_class else f"[{held}, LANES, POSITIONS]"  # fmt: skip
        self.has_edges = traversal.by_class and traversal.axes == 1 and not traversal.dealt
        self.of_positions = "[1, POSITIONS, 1]" if traversal.by_class else "[1, 1, POSITIONS]"
        needed = graph.needed(graph.results)
        self.needed = {node.index for node in needed}
        self.outputs = graph.results[: len(graph.results) - formula.hidden]
        self.level = levels_of(graph)
        self.wide = self.float64_nodes(needed) if formula.sums else set()
        self.awaited = False
        self.reads_rows = "Row" in dict(formula.operands).values()
        self.reductions = [node for node in needed if node.what in NEUTRAL]
        maxima = [node.of[0] for node in graph.nodes if node.what == "largest"]
        self.lowest = {node.name for node in maxima if node.kind == "Row"}
        self.row, self.column = ("[None, :, None]", "[None, None, :]") if traversal.by_class else ("[None, None, :]", "[None, :, None]")  # fmt: skip

    def float64_nodes(self, nodes: Iterable[Node]) -> set[int]:
        """The nodes that are computed in float64, since they cancel: those that follow from a row's element at its target, where the formula has sums."""
        wide: set[int] = set()
        for node in nodes:
            at_target = node.what == "at" and node.of[0].kind == "Row"
            if at_target or ("c" not in node.axes and any(each.index in wide for each in node.of)):
                wide.add(node.index)
        return wide

    def name(self, node: Node) -> str:
        if node.what == "constant":
            return f"float('{node.name}')" if math.isinf(node.name) else repr(node.name)
        rounded = node.index in self.wide and not node.truth
        return f"v{node.index}.to(tl.float32)" if rounded else f"v{node.index}"

    def wide_name(self, node: Node) -> str:
        if node.what == "constant":
            return self.name(node)
        exact = node.truth or node.index in self.wide
        return f"v{node.index}" if exact else f"v{node.index}.to(tl.float64)"

    def wide_line(self, node: Node) -> str:
        """`line` for a node in float64."""
        operands = [self.wide_name(each) for each in node.of]
        if node.what == "at":
            x, target = node.of[0].name, self.name(node.of[1])
            hit = f"inside & ({target} >= 0) & ({target} < classes)"
            place = f"from_{x} + first_{x} + {target} * {self.step(x)}"
            text = f"tl.load({place}, mask={hit}, other=0).to(tl.float32).to(tl.float64)"
        elif node.what == "neg":
            text = f"{operands[0]} * -1.0"
        elif node.what in WIDE_WORDS:
            text = f"{WIDE_WORDS[node.what]}({', '.join(operands)})"
        elif len(operands) == 2 and not node.what.isidentifier():
            text = f"{operands[0]} {node.what} {operands[1]}"
        else:
            raise TypeError(f"{self.formula.name}: `{node.what}` has no float64")
        return f"v{node.index} = {text}"

    def number(self, name: str) -> str:
        """The expression of a formula's number, or of a sum."""
        if self.formula.sums and name == "class_count":
            return "tl.full([], 1.0, tl.float32) * classes"
        if self.formula.sums and name in DIVISORS:
            rows = "from_target, size_0, stride_target_0, classes, ignore_index"
            return f"divisor(totals, {rows}, {DIVISORS.index(name)}, PARTS, MEAN)"
        if self.formula.sums and name in OF_WEIGHTS:
            if "weight" in dict(self.formula.operands):
                return f"read_wide_sum(totals, {2 + OF_WEIGHTS.index(name)}, PARTS)"
            each = "1.0" if name == "weight_sum" else "float('inf')"
            return f"tl.full([], {each}, tl.float64) * classes"
        return f"tl.full([], number_{name}, tl.float32)"

    def line(self, node: Node) -> str:
        """The line that computes a node from its operands."""
        if node.index in self.wide:
            return self.wide_line(node)
        operands = [self.name(each) for each in node.of]
        match node.what:
            case "input":
                text = self.load(node)
            case "number":
                text = self.number(node.name)
            case "*" if self.formula.sums and node.of[1].name in OF_WEIGHTS:
                # As FLOAT the sum may be infinite, and 0 times it NaN.
                text = f"({operands[0]}.to(tl.float64) * {operands[1]}).to(tl.float32)"
            case "classes":
                text = "tl.full([], 1.0, tl.float32) * classes"
            case "rounded":
                text = f"widen({operands[0]}.to(COMPUTE), COMPUTE)"
            case "is_target":
                text = f"lane == class_of({operands[0]}, classes, INDEX) - start"
            case "is_counted":
                text = f"({operands[0]} >= 0) & ({operands[0]} < classes) & ({operands[0]} != ignore_index)"
            case "is_inside":
                text = f"({operands[0]} >= 0) & ({operands[0]} < classes)"
            case "index_of":
                text = (
                    f"tl.where(({operands[0]} >= 0) & ({operands[0]} < classes), {operands[0]}, 0)"
                )
            case "at":
                x = node.of[0].name
                hit = f"inside & ({operands[1]} >= 0) & ({operands[1]} < classes)"
                first = f"from_{x} + first_{x}" if node.of[0].kind == "Row" else f"from_{x}"
                text = f"widen(tl.load({first} + {operands[1]} * {self.step(x)}, mask={hit}, other=0), COMPUTE)"
            case "/" if node.of[1].sums_powers:
                text = f"share({', '.join(operands)}, PRECISE)"
            case "/":
                text = f"divide({', '.join(operands)})"
            case "log" if node.of[0].sums_powers:  # with the largest one's 1 among what is summed
                text = f"log_from_one({operands[0]}, PRECISE)"
            case "exp" if is_below_largest(node.of[0]):
                text = f"power({', '.join(map(self.name, node.of[0].of))}, PRECISE)"
            case "exp" if "c" in node.axes:
                text = f"hardware_exp({operands[0]}, PRECISE)"
            case "where" if _is_min_or_second(node):
                text = f"min_or_second({operands[1]}, {operands[2]})"
            case "neg":
                text = f"{operands[0]} * -1.0"
            case "~":
                text = f"{operands[0]} == 0"
            case "log1p" if "c" not in node.axes:  # of which 16 bits are not all that is kept
                text = f"log1p({operands[0]})"
            case word if word in WORDS:
                precise = ["PRECISE=PRECISE"] if word in PRECISE_WORDS else []
                text = f"{word}({', '.join(operands + precise)})"
            case sign:
                text = f"{operands[0]} {sign} {operands[1]}"
        return f"v{node.index} = {text}"

    def reduction(self, node: Node, lanes: str = "") -> list[str]:
        """The lines of a reduction: of the tile, or of `lanes`, which have accumulated several tiles; then of the row's edges, and of other programs' pieces."""
        value, text = f"v{node.index}", self.reduced(node.what, lanes or self.masked(node))
        lines = [f"{value} = {text}"]
        if self.has_edges:
            edges = self.reduced(node.what, self.masked(node))
            both = f"{value} + {edges}" if node.what == "total" else f"largest_of({value}, {edges})"
            lines += self.edges([*self.lines(self.computed(node.of)), f"{value} = {both}"])
        if self.traversal.shared:
            place = f"number * {len(self.reductions)} + {[each.index for each in self.reductions].index(node.index)}"
            lines.append(f"{value} = reduce_over_cluster({value}, exchange + ({place}) * PIECES, block, {node.what == 'total'})")  # fmt: skip
        return lines

    def computed(self, nodes: tuple[Node, ...]) -> list[Node]:
        """The nodes with a class axis that others need, without inputs."""
        return [node for node in self.graph.needed(nodes, "c") if node.what != "input"]

    def masked(self, node: Node) -> str:
        """A reduction's operand, with the neutral element for padding classes."""
        operand = node.of[0]
        value, neutral = self.name(operand), NEUTRAL[node.what]
        if self.padding_value(operand) == neutral:
            return value
        value = f"tl.where(there, {value}, {neutral})"
        return value if "c" in operand.axes else f"tl.broadcast_to({value}, {self.tile})"

    def padding_value(self, node: Node) -> str:
        """What a node is for padding classes, if that is known; else an empty string. exp(-inf - top) is 0 where the row's largest is finite, and where that is not, sums of
        powers are NaN anyway."""
        if node.kind == "Row":
            return NEUTRAL["largest" if node.name in self.lowest else "total"]
        zero, of = NEUTRAL["total"], [self.padding_value(operand) for operand in node.of]
        if node.what in ("+", "-", "*") and of == [zero, zero]:
            return zero
        if node.what == "rounded":
            return of[0]
        if node.what == "constant" and node.name == 0.0:
            return zero
        if node.what == "where" and of[1:] == [zero, zero]:
            return zero
        if node.what == "exp" and is_below_largest(node.of[0]):
            a, _ = node.of[0].of
            return zero if self.padding_value(a) == NEUTRAL["largest"] else ""
        return ""

    def reduced(self, what: str, value: str) -> str:
        if what == "total":
            return f"total_of({value}, {self.axis})"
        return f"largest({value}, {self.axis})"

    def load(self, node: Node, policy: str = "") -> str:
        name = node.name
        if node.kind == "Target":
            first = " - first_class" if "first_class" in self.formula.targets else ""
            return f"tl.load(from_{name} + first_{name}, mask=inside, other=-1).to(tl.int64){first}"
        if name in self.formula.singles:
            return f"widen(tl.load(from_{name}), COMPUTE)"
        place, mask = {
            "Row": (self.row_place(name), "inside & there"),
            "PerClass": (f"c * {self.step(name)}", "there"),
            "PerRow": (f"first_{name}", "inside"),
        }[node.kind]
        lowest = name in self.lowest
        if self.traversal.dealt and node.kind == "Row":
            return f"widen(load_dealt(from_{name} + run, size_0 - number * POSITIONS, there, {lowest}, {self.traversal.by_class}, HELD, LANES, POSITIONS, CLASSES), COMPUTE)"
        return f"widen(load_row(from_{name} + {place}, {mask}, {lowest}, {policy!r}), COMPUTE)"

    def row_place(self, name: str) -> str:
        place = f"first_{name} + c * {self.step(name)}"
        return f"(whole + place if VECTOR > 1 else {place})" if self.has_edges else place

    def lines(self, nodes: Iterable[Node], policy: str = "") -> list[str]:
        lines = []
        for node in nodes:
            if node.what == "number" and node.name in DIVISORS + OF_WEIGHTS and self.formula.sums:
                if not self.awaited:
                    lines.append("await_sums(OVERLAPPED)")
                self.awaited = True
            if node.what == "input" and policy:
                lines.append(f"v{node.index} = {self.load(node, policy)}")
            elif node.what in NEUTRAL:
                lines += self.reduction(node)
            elif node.what != "constant":
                lines.append(self.line(node))
        return lines

    def values(self, nodes: Iterable[Node]) -> list[str]:
        """`lines`, with nodes in float64 behind all that they need."""
        ordered = [*nodes]
        return self.lines(
            [node for part in self.parts(ordered) for node in part] if self.wide else ordered
        )

    def parts(self, nodes: Iterable[Node]) -> tuple[list[Node], list[Node], list[Node], list[Node]]:
        """Nodes in four parts: inputs with a class axis, nodes without one in FLOAT, those in float64, and others with a class axis."""
        parts: tuple[list[Node], list[Node], list[Node], list[Node]] = [], [], [], []
        for node in nodes:
            by_class = "c" in node.axes
            place = (
                (0 if node.what == "input" else 3) if by_class else 1 + (node.index in self.wide)
            )
            parts[place].append(node)
        return parts

    def cut_lines(self, nodes: Iterable[Node]) -> list[str]:
        """The lines of a `cut` kernel: nodes without a class axis, then a tile after the other. Each tile is read while the one before is computed, and is widened
        only after that, which takes half as many registers. Nodes in float64 are computed only by programs that may have the target; the first has the row's edges."""
        inputs, numbers, wide, across = self.parts(nodes)
        rows = [node for node in inputs if node.kind == "Row"]
        weights = [node for node in inputs if node.kind != "Row"]

        def read(start: str, more: str) -> list[str]:
            return [
                *self.chunk(start), *[f"there = there & ({more})"] * bool(more),
                *(f"read{node.index} = {self.raw(node)}" for node in rows),
            ]  # fmt: skip

        widened = [f"v{node.index} = widen(read{node.index}, COMPUTE)" for node in rows]
        written = [*self.lines([*weights, *across]), *self.stores(True)]
        target = next(f"v{node.index}" for node in numbers if node.kind == "Target")
        after = f"{target} - first"
        of_classes = {operand.index for node in across for operand in node.of}
        used = [node.index for node in (*numbers, *wide) if node.index in of_classes and node.what != "constant"]  # fmt: skip
        return [
            "first = block * CHUNK",
            *read("first", ""),
            *self.lines(numbers),
            *(f"v{node.index} = tl.zeros({self.of_positions}, {'tl.int1' if node.truth else 'tl.float64'})" for node in wide),
            *[f"if tl.max(((block == 0) | (({after} >= 0) & ({after} < CHUNK + VECTOR))).to(tl.int32)) > 0:"] * bool(wide),
            *(f"    {line}" for line in self.lines(wide)),
            *(f"v{index} = broadcast_positions(v{index}, {self.traversal.by_class}, POSITIONS)" for index in used),
            *self.edge_lines(),
            "if HELD > 1:",
            f"    last = tl.minimum(first + CHUNK, {'end' if self.has_edges else 'classes'})",
            "    for turn in range(first, last, LANES):",
            *(f"        {line}" for line in (*widened, *read("(turn + LANES)", f"{'place' if self.has_edges else 'c'} < last"), *self.chunk("turn"), *written)),
            "else:",
            *(f"    {line}" for line in (*widened, *written)),
        ]  # fmt: skip

    def stores(self, by_class: bool) -> list[str]:
        """The lines that write the results with a class axis, or those without."""
        lines = []
        for place, result in enumerate(self.graph.results):
            if ("c" in result.axes) == by_class:
                if place in self.formula.added:
                    lines.append(self.added(self.formula.added.index(place), result))
                    continue
                at, mask, how = f"first_{place}", "inside", ""
                if by_class:
                    at, mask = self.row_place(str(place)), "inside & there"
                    if self.traversal.streamed and self.graph.levels:
                        # What is written must not take the cache from what will be read again.
                        how = ", eviction_policy='evict_first'"
                    elif not (self.reads_rows or self.traversal.by_class):
                        # (8,150,512,512) and (2,80,2048,2048), FLOAT, 0.94 and 0.91 of a memset (without, 0.87 and 0.78).
                        how = ", cache_modifier='.cs'"
                narrow = f".to(to_{place}.dtype.element_ty)"
                if result.what != "index_of":
                    narrow = f".to(COMPUTE){narrow}"
                value = f"{self.name(result)}{narrow}"
                if by_class and self.chooses(result):
                    condition, row, other = map(self.name, result.of)
                    value = f"tl.where({condition}, {row}{narrow}, {other})"
                    if self.traversal.dealt and not self.traversal.by_class and result.of[0].what == "is_target":  # fmt: skip
                        target = f"class_of({self.name(result.of[0].of[0])}, classes, tl.int32)"
                        lines.append(f"store_hits(to_{place} + run, {target}, {row}{narrow}, {other}, size_0 - number * POSITIONS, 4 * POSITIONS, POSITIONS, CLASSES)")  # fmt: skip
                        continue
                if by_class and self.traversal.dealt:
                    value = f"tl.broadcast_to({value}, {self.tile})"
                    lines.append(f"store_dealt(to_{place} + run, {value}, {self.rows_left}, {self.traversal.by_class}, HELD, LANES, POSITIONS, CLASSES)")  # fmt: skip
                    continue
                lines.append(f"tl.store(to_{place} + {at}, {value}, mask={mask}{how})")
        return lines

    @staticmethod
    def chooses(node: Node) -> bool:
        """Whether a result is, for each class, either one number of the row or a constant: then that number is rounded once."""
        return node.what == "where" and node.of[1].axes == "r" and node.of[2].what == "constant"

    def added(self, which: int, result: Node) -> str:
        """The line that writes a program's sum of a result over its positions; `which` counts such results, whose sums follow each other. Counts are added as integers."""
        programs = f"tl.num_programs(0) // {'PIECES' if self.traversal.shared else 1}"
        each = f"tl.where(inside, {self.name(result)}, 0.0).to(tl.float64)"
        if result.what == "where" and [node.name for node in result.of[1:]] == [1.0, 0.0]:
            each = f"(inside & {self.name(result.of[0])}).to(tl.int32)"
        return f"store_added(sums + number + {which} * ({programs}), {each}, POSITIONS)"

    # Traversals.

    def step(self, name: str) -> str:
        """An operand's stride along the classes."""
        return f"(1 if NEAR_{name} == {1 if self.traversal.by_class else 2} else step_{name})"

    def stride(self, name: str, axis: int) -> str:
        stride = f"stride_{name}_{axis}"
        if axis < self.traversal.axes - 1:
            return stride
        return f"(1 if NEAR_{name} == {2 if self.traversal.by_class else 1} else {stride})"

    def prologue(self) -> list[str]:
        """The first lines: types and units of the arguments, the program's positions, and the offsets of its operands there."""
        by_class, axes = self.traversal.by_class, self.traversal.axes
        text = ["INDEX: tl.constexpr = tl.int64 if WIDE else tl.int32"]
        results = [(str(place), "Row" if "c" in result.axes else "PerRow") for place, result in enumerate(self.outputs)]  # fmt: skip
        if self.formula.added:
            text.append("let_next_start(OVERLAPPED)")
        divided = ["classes" if by_class else f"size_{axes - 1}"]
        for name, kind in (*self.formula.operands, *results):
            strides = [f"step_{name}", *(f"stride_{name}_{axis}" for axis in range(axes))]
            text += [f"{number} = {number}.to(INDEX)" for number in strides]
            if is_divided(kind, by_class):
                divided += strides
        text += [f"{number} = {number}.to(INDEX)" for number in ("classes", *(f"size_{axis}" for axis in range(axes)))]  # fmt: skip
        text += [f"{number} = {number} * UNIT" for number in divided]
        rows = [name for name, kind in (*self.formula.operands, *results) if kind == "Row"]
        other = f"size_{axes - 1}" if by_class else "classes"
        text += [f"if {' or '.join(f'NEAR_{name} == 2' for name in rows)}:", f"    {other} = {other} * UNIT"]  # fmt: skip
        text += ["if CLASSES > 0:", "    classes = tl.full([], CLASSES, INDEX)"]
        text += ["CHUNK: tl.constexpr = HELD * LANES", START]
        text += self.fold()
        if self.traversal.shared:
            text += [
                "block = rest % PIECES",
                "rest = rest // PIECES",
                "span = span.to(INDEX) * SPANS",
            ]
        if self.traversal.cut:
            text += self.cut_position()
        text.append("number = rest")
        if self.traversal.dealt:
            text.append("run = number * (POSITIONS * CLASSES)")
        last = axes - 1
        if by_class:
            text.append(f"rest = rest * POSITIONS + tl.arange(0, POSITIONS){self.row}")
            text += self.split_position(last)
        else:
            blocks = f"((size_{last} + POSITIONS - 1) // POSITIONS)"
            text += [
                "if CUT:",
                f"    at_{last} = rest % {blocks} * POSITIONS + tl.arange(0, POSITIONS){self.row}",
                f"    inside = at_{last} < size_{last}",
                f"    rest = rest // {blocks}",
                *(f"    {line}" for line in self.split_position(last - 1)),
                "else:",
                f"    rest = rest * POSITIONS + tl.arange(0, POSITIONS){self.row}",
                *(f"    {line}" for line in self.split_position(last)),
                "    inside = at_0 < size_0",
            ]
        if by_class:
            text.append("inside = at_0 < size_0")
        for name in self.operands_by_position():
            terms = [f"at_{axis} * {self.stride(name, axis)}" for axis in range(axes)]
            text.append(f"first_{name} = {' + '.join(terms)}")
        if (
            self.has_edges
        ):  # with VECTOR > 1 a program has one position, and all rows have one stride
            pointers = [f"from_{name}" for name, kind in self.formula.operands if kind == "Row"]
            pointers += [f"to_{name}" for name, kind in results if kind == "Row"]
            row, first = rows[0], pointers[0]
            text += [
                "end = classes",
                "if VECTOR > 1:",
                # All rows are misaligned by the same bytes: offsets are counted from the aligned address before them.
                f"    BYTES: tl.constexpr = {first}.dtype.element_ty.primitive_bitwidth // 8",
                f"    off = ({first}.to(tl.int64) % (VECTOR * BYTES) // BYTES).to(INDEX)",
                *(f"    {name} = tl.multiple_of({name} - off, 16)" for name in pointers),
                *(f"    first_{name} = first_{name} + off" for name in rows),
                f"    begin = number * stride_{row}_0 + off",
                "    whole = (begin + (VECTOR - 1)) // VECTOR * VECTOR",
                "    lead = tl.minimum(whole - begin, classes)",
                "    end = (classes - lead) // VECTOR * VECTOR",
                *([] if self.traversal.cut else self.edges(self.edge_values())[1:]),
            ]  # fmt: skip
        lanes = f"tl.arange(0, LANES).to(INDEX){self.column}"
        if self.traversal.cut:
            return [*text, f"lane = {lanes}"]
        if self.traversal.tiled:
            text += [
                "PACKED: tl.constexpr = COMPUTE.primitive_bitwidth < 32",
                "zero = (classes >> 31).to(tl.int16)",
            ]
        return [*text, f"lane = tl.arange(0, HELD).to(INDEX)[:, None, None] * LANES + {lanes}"]

    def cut_position(self) -> list[str]:
        """The lines for the piece of classes and the positions of a `cut` program. In rows, all pieces of some positions follow each other; in images, programs write the
        planes of a panel of positions one after the other."""
        if self.traversal.by_class:
            return ["block = rest % pieces", "rest = rest // pieces"]
        return [
            "before = rest // (panel * pieces) * panel",
            "wide = tl.minimum(panel, tl.num_programs(0).to(INDEX) // pieces - before)",
            "rest = rest - before * pieces",
            "block = rest // wide",
            "rest = before + rest % wide",
        ]

    def edge_values(self) -> list[str]:
        """The lines for the classes of a row's edges, and their inputs."""
        others = (
            " + block * (2 * VECTOR)" if self.traversal.shared else ""
        )  # other pieces have none
        inputs = [node for node in self.graph.nodes if node.what == "input" and "c" in node.axes and node.index in self.needed]  # fmt: skip
        return [
            f"c = tl.arange(0, 2 * VECTOR).to(INDEX){self.column}",
            f"there = c{others} < tl.where(c < VECTOR, lead, VECTOR + classes - lead - end)",
            "c = tl.where(c < VECTOR, c, c - VECTOR + lead + end)",
            "place = c + (begin - whole)",
            "lane = c",
            "start = 0",
            *self.lines(inputs),
        ]

    def fold(self) -> list[str]:
        """The line for FOLD: how many neighbouring classes a thread has, since it reads them as a vector."""
        rows = [name for name, kind in self.formula.operands if kind == "Row"]
        if not self.traversal.by_class or not rows:
            return ["FOLD: tl.constexpr = 1"]
        widest = f"128 // from_{rows[0]}.dtype.element_ty.primitive_bitwidth"
        near = " and ".join(f"NEAR_{name} == 1" for name in rows)
        return [
            f"WIDEST: tl.constexpr = {widest}",
            "SIDE: tl.constexpr = VECTOR if VECTOR > 1 else (UNIT if UNIT < WIDEST else WIDEST)",
            f"FOLD: tl.constexpr = SIDE if {near} else 1",
        ]

    @staticmethod
    def split_position(last: int) -> list[str]:
        """The lines that split the number of a position into its indices along the axes up to `last`."""
        text = []
        for axis in reversed(range(1, last + 1)):
            text += [f"at_{axis} = rest % size_{axis}", f"rest = rest // size_{axis}"]
        return [*text, "at_0 = rest"] if last >= 0 else text

    def chunk(self, start: str) -> list[str]:
        """The lines for the classes of a tile that begins at `start`. Targets are compared with `lane`, which is a constant."""
        if not self.has_edges:
            return [f"start = {start}", "c = lane + start", "there = c < classes"]
        mine = " & (lane < span)" if self.traversal.shared else ""
        if self.traversal.shared and self.traversal.streamed:
            mine = f" & (lane + {start} < span)"
            start = f"block * span + {start}"
        return [
            f"place = lane + {start}",
            f"start = {start} + lead if VECTOR > 1 else {start}",
            "c = lane + start",
            f"there = (place < end){mine}",
        ]

    def operands_by_position(self) -> list[str]:
        """The operands and results that vary along positions."""
        inputs = [name for name, kind in self.formula.operands if kind != "PerClass"]
        return [*inputs, *map(str, range(len(self.outputs)))]

    def held_lines(self) -> list[str]:
        """The lines of a held kernel: each reduction as early as possible, so that fewer registers are in use at a time."""
        # Loads of positions come first, so that nothing waits for them later.
        order = {
            node.index: node
            for node in self.graph.needed(self.graph.results)
            if node.what in self.early and "c" not in node.axes
        }
        for node in sorted(self.reductions, key=lambda each: (each.level, each.online is not None, each.index)):  # fmt: skip
            order |= {each.index: each for each in self.graph.needed((node,))}
        order |= {each.index: each for each in self.graph.needed(self.graph.results)}
        if self.traversal.cut:
            return self.cut_lines(order.values())
        if self.traversal.tiled:
            return self.tiled_lines([*order.values()])
        chunk = self.chunk("block * span" if self.traversal.shared else "0")
        return chunk + self.tile_lines([*order.values()])

    def tile_lines(self, nodes: list[Node]) -> list[str]:
        """The lines that compute a tile and write its results."""
        return [*self.values(nodes), *self.stores(True), *self.edge_lines(), *self.stores(False)]

    def tiled_lines(self, nodes: list[Node]) -> list[str]:
        """`tile_lines` for a row in several tiles, whose variables have suffixes. Of 16 bits a thread holds the inputs, and computes all from them again after each reduction,
        which takes half as many registers."""
        known: set[int] = set()
        pending: list[Node] = []
        rows = [node for node in nodes if node.kind == "Row"]
        read = [f"read{node.index} = {self.raw(node)}" for node in rows]
        text = self.for_each_tile([*self.chunk("TILE * CHUNK"), *read])

        def values(nodes: list[Node], again: bool) -> list[str]:
            lines = []
            for node in nodes:
                raw = f"read{node.index}"
                if node.kind == "Row":
                    lines += [f"{raw} = opaque_copy({raw}, zero)"] * again + [f"v{node.index} = widen({raw}, COMPUTE)"]  # fmt: skip
                else:
                    lines += self.lines([node])
            return lines

        def stage(last: list[str], targets: tuple[Node, ...]) -> list[str]:
            again = [each for each in self.graph.needed(targets, "c") if each.index in known]
            packed = [f"    {line}" for line in values(again, True)]
            lines = [*["if PACKED:"] * bool(packed), *packed, *values(pending, False), *last]
            known.update(node.index for node in pending)
            pending.clear()
            return self.for_each_tile(lines)

        for node in nodes:
            if node.what in NEUTRAL:
                step = "so_far + value" if node.what == "total" else "largest_of(so_far, value)"
                last = [f"value = {self.masked(node)}", f"so_far = value if TILE == 0 else {step}"]
                text += [*stage(last, node.of), *self.reduction(node, "so_far")]
            elif "c" in node.axes:
                pending.append(node)
            else:
                text += self.lines([node])
        text += stage(self.stores(True), self.graph.results)
        return [*text, *self.edge_lines(), *self.stores(False)]

    def raw(self, node: Node) -> str:
        """The expression that loads an input, before it is widened."""
        return self.load(node).removeprefix("widen(").removesuffix(", COMPUTE)")

    def for_each_tile(self, lines: list[str]) -> list[str]:
        text = []
        for tile in range(MOST_TILES):
            text += [f"if TILES > {tile}:", *(f"    {self.for_tile(tile, line)}" for line in lines)]
        return text

    def for_tile(self, tile: int, line: str) -> str:
        return self.renamed(re.sub(r"\bTILE\b", str(tile), line), f"_{tile}", ())

    def loop(
        self, turn: int, nodes: tuple[Node, ...], policy: str, last: list[str], writes: bool = False
    ) -> list[str]:
        size = "span" if self.traversal.shared else "end" if self.has_edges else "classes"
        forward, backward = "turn", f"(({size} - 1) // CHUNK * CHUNK - turn)"
        inside = self.graph.needed(nodes, "c")
        body = [*self.chunk(forward if turn % 2 else backward), *self.lines(inside, policy), *last]
        # Where positions are last and all is read once, the next classes are loaded while these are added up.
        ahead = not (self.traversal.by_class or writes or any(node.what == "exp" for node in inside)) and max(self.level.values()) == 1  # fmt: skip
        turns = f"tl.range(0, {size}, CHUNK, num_stages=3)" if ahead else f"range(0, {size}, CHUNK)"
        return [f"for turn in {turns}:", *(f"    {line}" for line in body)]

    def edges(self, lines: list[str]) -> list[str]:
        """The same lines for a row's edges, whose variables have a suffix."""
        shaped = [line.replace(self.tile, "[1, 1, 2 * VECTOR]") for line in lines]
        return ["if VECTOR > 1:", *(f"    {self.renamed(line, '_of_edge', ('lane',))}" for line in shaped)]  # fmt: skip

    def renamed(self, line: str, suffix: str, others: tuple[str, ...]) -> str:
        """A line with a suffix for the variables that have a class axis."""
        named = [f"{kind}{node.index}" for node in self.graph.nodes if "c" in node.axes for kind in ("v", "read")]  # fmt: skip
        pattern = re.compile(
            rf"\b({'|'.join(['c', 'start', 'there', 'place', *others, *named])})\b"
        )
        return pattern.sub(rf"\1{suffix}", line)

    def edge_lines(self) -> list[str]:
        if not self.has_edges or not self.stores(True):
            return []
        written = [*self.lines(self.computed(self.graph.results)), *self.stores(True)]
        if not self.traversal.cut:
            return self.edges(written)
        first, *lines = self.edges([*self.edge_values(), *written])
        return [first, "    if block == 0:", *(f"    {line}" for line in lines)]

    def row_values(self, level: int) -> list[str]:
        """The lines for nodes without a class axis that can be computed after a level's loop, beside its reductions."""
        nodes = [node for node in self.graph.nodes if self.is_of_rows(node, level)]
        return self.lines(node for node in nodes if node.index in self.needed)

    def is_of_rows(self, node: Node, level: int) -> bool:
        return self.level[node.index] == level and "c" not in node.axes and node.what not in NEUTRAL

    def online_update(self, top: Node, relatives: Mapping[str, Node]) -> list[str]:
        """The lines of an online softmax: they update each lane's largest with a tile, and the sums that are relative to it (`relatives`, see `online_of`).

        Where a thread has several classes, their largest is found first, and the sums are rescaled once. Where it has one, there is one exp: to rescale the sum if the
        element is above the largest, else of the element."""
        lanes = f"lanes{top.index}"
        sums = {kind: f"lanes{node.index}" for kind, node in relatives.items()}
        several = [
            f"tile_top = {'held_largest(value)' if OTHERS in sums else 'largest_along(value, 0)'}",
            f"new = largest_of({lanes}, tile_top)",
            f"apart = below(new, {lanes})",
            "less = tl.exp2(apart * LOG2_E)",
            # Where all are minus infinity, so that their powers are 0.
            "finite = tl.where(new == float('-inf'), 0.0, new)",
        ]
        if POWERS in sums:
            several += [
                "apart_from_new = value - finite",
                "powers = tl.exp2(apart_from_new * LOG2_E)",
            ]
        if WEIGHTED in sums:
            several.append(f"{sums[WEIGHTED]} = tl.fma(apart, {sums[POWERS]}, {sums[WEIGHTED]}) * less + held_total(powers * tl.maximum(apart_from_new, LOWEST_POWER))")  # fmt: skip
        if POWERS in sums:
            several.append(f"{sums[POWERS]} = {sums[POWERS]} * less + held_total(powers)")
        if OTHERS in sums:  # the lane's largest before, or the tile's, is one of them
            small = f"tl.exp2((least_of({lanes}, tile_top) - finite) * LOG2_E)"
            several.append(f"{sums[OTHERS]} = {sums[OTHERS]} * less + held_powers(value, finite) + {small}")  # fmt: skip
        if APART in sums:
            # Each of those summed is as much farther from the largest as that has grown.
            weight, constant, _ = part_of(relatives[APART])
            part = repr(constant.name)
            seen = (
                f"{lanes}_weights"
                if weight is not None
                else "(turn // CHUNK * (HELD * FOLD) * 1.0)"
            )
            several += [
                f"fallen = tl.fma({lanes}, {part}, -(finite * {part}))",
                "here = folded(there, FOLD)",
                f"apart = tl.fma(value, {part}, -(finite * {part}))",
            ]
            if weight is not None:
                several += [
                    f"weights = folded(tl.where(there, {self.name(weight)}, 0.0), FOLD)",
                    "apart = apart * weights",
                ]
            # What a sum loses is kept: beside one class far from the others, each of those is a few units of it.
            several += [
                f"more = tl.where({lanes} == float('-inf'), 0.0, fallen * {seen}) + held_total(tl.where(here, apart, 0.0))",
                f"whole_sum = {sums[APART]} + more",
                f"{lanes}_lost += more - (whole_sum - {sums[APART]})",
                f"{sums[APART]} = whole_sum",
            ]
            if weight is not None:
                several.append(f"{seen} += held_total(weights)")
        several.append(f"{lanes} = new")
        if not {*sums} <= {POWERS, WEIGHTED}:
            return ["value = folded(value, FOLD)", *several]
        total = sums[POWERS]
        one = [
            f"apart = below(value, {lanes})",
            "less = tl.exp2(apart * LOG2_E)",
            f"{total} = tl.where(value > {lanes}, {total} * less + 1.0, {total} + less)",
            f"{lanes} = largest_of({lanes}, value)",
        ]
        if WEIGHTED in sums:
            each = sums[WEIGHTED]
            one.insert(2, f"{each} = tl.where(value > {lanes}, tl.fma(apart, {total}, {each}) * less, tl.fma(apart, less, {each}))")  # fmt: skip
        return ["value = folded(value, FOLD)", "if HELD * FOLD == 1:", *(f"    {line}" for line in one), "else:", *(f"    {line}" for line in several)]  # fmt: skip

    @staticmethod
    def rescaled(node: Node, kind: str, top: Node, relatives: Mapping[str, Node]) -> str:
        """The expression of a lane's sum, which is relative to the lane's largest, rescaled to the row's."""
        lanes, own, whole = f"lanes{node.index}", f"lanes{top.index}", f"v{top.index}"
        scale = f"power({own}, {whole}, PRECISE)"
        match kind:
            case "weighted":
                fall = f"tl.maximum({own} - {whole}, LOWEST_POWER)"
                return f"tl.fma({fall}, lanes{relatives[POWERS].index}, {lanes}) * {scale}"
            case "others":
                return f"tl.where({own} == {whole}, {lanes}, ({lanes} + 1.0) * {scale})"
            case "equals":
                return f"tl.where({own} == {whole}, 1.0, 0.0)"  # of those with others, the rest are among these
            case "apart":
                constant = repr(part_of(node)[1].name)
                fallen = f"tl.fma({own}, {constant}, -({whole} * {constant})) * {own}_weights"
                lost = f"tl.where(tl.abs({lanes}) < float('inf'), {own}_lost, 0.0)"
                return f"{lanes} + ({lost} + tl.where({own} == float('-inf'), 0.0, {fallen}))"
        return f"{lanes} * {scale}"

    def streamed_lines(self) -> list[str]:
        """The lines of a streamed kernel: a loop for each level of reductions, then one that writes."""
        text, levels = self.row_values(0), max(self.level.values())
        for level in range(1, levels + 1):
            reductions = [node for node in self.reductions if self.level[node.index] == level]
            online = {node.index: online_of(node) for node in reductions}
            relatives: dict[int, dict[str, Node]] = {}  # by the largest that they are relative to
            for node in reductions:
                kind, top = online[node.index]
                if top is not None:
                    relatives.setdefault(top.index, {})[kind] = node
            alone, last = [node for node in reductions if online[node.index][1] is None], []
            read = [node.of[0] for node in alone]
            counted = []  # what is summed of each lane beside its largest, without weights
            for node in reductions:
                relative = node.index in relatives or online[node.index][1] is not None
                shape = self.tile.replace("HELD", "1").replace("LANES", "LANES // FOLD") if relative else self.tile  # fmt: skip
                text.append(f"lanes{node.index} = tl.full({shape}, {NEUTRAL[node.what]}, tl.float32)")  # fmt: skip
                if APART in relatives.get(node.index, ()):
                    weight = part_of(relatives[node.index][APART])[0]
                    text.append(f"lanes{node.index}_lost = tl.zeros({shape}, tl.float32)")
                    if weight is None:
                        counted.append(f"lanes{node.index}_weights")
                    else:
                        text.append(f"lanes{node.index}_weights = tl.zeros({shape}, tl.float32)")
                        read.append(weight)
            for node in alone:
                lanes = f"lanes{node.index}"
                last.append(f"value = {self.masked(node)}")
                if node.index in relatives:
                    last += self.online_update(node, relatives[node.index])
                    continue
                step = f"{lanes} + value" if node.what == "total" else f"largest_of({lanes}, value)"
                last.append(f"{lanes} = {step}")
            text += self.loop(level, tuple(read), "evict_last", last)
            if counted:
                whole = f"({'end' if self.has_edges else 'classes'} - 1) // CHUNK"
                text += [*self.chunk(f"{whole} * CHUNK"), "here = folded(tl.where(there, 1.0, 0.0), FOLD)"]  # fmt: skip
                text += [f"{each} = {whole} * (HELD * FOLD) * 1.0 + held_total(here)" for each in counted]  # fmt: skip
            for node in reductions:
                kind, top = online[node.index]
                lanes = f"lanes{node.index}"
                if top is not None:
                    lanes = self.rescaled(node, kind, top, relatives[top.index])
                    # What of a row its edges need beside the largest.
                    text += self.lines(each for each in self.graph.needed(node.of) if self.is_of_rows(each, level))  # fmt: skip
                text += self.reduction(node, lanes)
            text += self.row_values(level)
        writing = self.stores(True)
        if writing:
            # What is read for the last time, but not what is read once.
            text += self.loop(levels + 1, self.graph.results, "evict_first" if levels else "", writing, True)  # fmt: skip
            text += self.edge_lines()
        return text + self.stores(False)

    def summed_lines(self) -> list[str]:
        """The lines of a `summed` kernel: a program adds up every `parts`-th block of positions in float64, and writes its sums, or, if it is the only one (ALONE), the
        results. With EACH, the first result of each position is written, too."""
        head, results = self.prologue(), self.graph.results
        start = head.index(START)
        sums = [f"sum{place}" for place in range(len(results))]
        return [
            *head[:start],
            "let_next_start(OVERLAPPED)",
            *(f"{each} = tl.zeros({self.of_positions}, tl.float64)" for each in sums),
            "for turn in range(tl.program_id(0), blocks, parts):",
            "    rest = tl.cast(turn, INDEX)",
            *(f"    {line}" for line in (*head[start + 1 :], *self.values(node for node in self.graph.needed(results) if "c" not in node.axes))),
            *(f"    {each} += {self.wide_name(node)}" for each, node in zip(sums, results, strict=True)),
            "    if EACH:",
            f"        {self.stores(False)[0]}",
            *(f"{each} = tl.sum(tl.ravel({each}))" for each in sums),
            "if ALONE:",
            f"    store_nll(to_0, to_1, {', '.join(sums)}, EACH, MEAN, KIND)",
            "else:",
            *(f"    tl.store(sums + {place} * parts + tl.program_id(0), {each})" for place, each in enumerate(sums)),
        ]  # fmt: skip

    def body(self) -> list[str]:
        if self.traversal.summed:
            return self.summed_lines()
        return self.prologue() + (
            self.streamed_lines() if self.traversal.streamed else self.held_lines()
        )

    def source(self) -> str:
        pointers, numbers, constexprs = parameters_of(self.formula, len(self.outputs), self.traversal)  # fmt: skip
        names = [*pointers, *numbers, *(f"{name}: tl.constexpr" for name in constexprs)]
        lines = "".join(f"    {line}\n" for line in self.body())
        return f"def {self.formula.name}({', '.join(names)}):\n{lines}"


POWERS, WEIGHTED, OTHERS, EQUALS, APART = "powers", "weighted", "others", "equals", "apart"


def online_of(node: Node) -> tuple[str, Node | None]:
    """Of a total that is relative to the largest of its row, so that one pass can compute both: which sum it is, and the node of the largest; else "" and None. Beside those that
    `rows.py` marks (powers, weighted), these are the powers of all below the largest (others), the number of classes that are as large (equals), and the sum of
    weight * constant * (x - largest) (apart)."""
    if node.what != "total" or node.online is not None:
        return (POWERS if node.sums_powers else WEIGHTED), node.online
    others, _equals, top = beside_largest(node)
    if top is not None:
        return (OTHERS if node is others else EQUALS), top
    part = part_of(node)
    return ("", None) if part is None else (APART, part[-1])


def beside_largest(node: Node) -> tuple[Node | None, Node | None, Node | None]:
    """The two totals and the largest of total(where(x == top, 0, exp(x - top))) + (total(where(x == top, 1, 0)) - 1), if the node is a total that is used in nothing else."""
    several, none = node, (None, None, None)
    while several.what != "+":
        users = [each for each in node.graph.nodes if any(used is several for used in each.of)]
        if len(users) != 1:
            return none
        (several,) = users
    others, less = several.of
    if others.what != "total" or less.what != "-" or less.of[0].what != "total":
        return none
    (chosen,), (counting,) = others.of[:1], less.of[0].of[:1]
    if (
        chosen.what != "where"
        or counting.what != "where"
        or counting.of[0] is not chosen.of[0]
        or counting.of[0].what != "=="
    ):
        return none
    x, top = chosen.of[0].of
    power = chosen.of[2]
    constants = [each.name for each in (chosen.of[1], *counting.of[1:], less.of[1])]
    known = (
        constants == [0.0, 1.0, 0.0, 1.0] and power.what == "exp" and is_below_largest(power.of[0])
    )
    if not known or top.what != "largest" or top.of[0] is not x or power.of[0].of[0] is not x:
        return none
    return others, less.of[0], top


def part_of(node: Node) -> Any:
    """The weight (None: there is none), the constant and the largest, if a total is total(weight * fma(x, constant, -(largest(x) * constant))); else None."""
    operand, weight = node.of[0], None
    if operand.what == "*" and operand.of[0].kind == "PerClass":
        weight, operand = operand.of
    if operand.what == "fma" and operand.of[2].what == "neg":
        x, constant, product = operand.of[0], operand.of[1], operand.of[2].of[0]
        if constant.what == "constant" and product.what == "*" and product.of[1] is constant:
            top = product.of[0]
            if top.what == "largest" and top.of[0] is x:
                return weight, constant, top
    return None


def levels_of(graph: Graph) -> dict[int, int]:
    """By a node's index: how many passes over a row must end before it is known."""
    levels: dict[int, int] = {}
    for node in graph.nodes:
        before = max((levels[each.index] for each in node.of), default=0)
        levels[node.index] = before + (node.what in NEUTRAL and online_of(node)[1] is None)
    return levels


def is_below_largest(node: Node) -> bool:
    """Whether a node is a row less its largest."""
    return node.what == "-" and node.of[1].what == "largest" and node.of[1].of[0] is node.of[0]


def _is_min_or_second(node: Node) -> bool:
    """Whether a node is where(x < y, x, y)."""
    condition, x, y = node.of
    return condition.what == "<" and condition.of[0] is x and _same(condition.of[1], y)


def _same(a: Node, b: Node) -> bool:
    return a is b or (a.what == b.what == "constant" and a.name == b.name)


def is_divided(kind: str, by_class: bool) -> bool:
    """Whether the strides of an operand of this kind are passed divided by UNIT."""
    return kind == "Row" or (kind in ("PerRow", "Target") and not by_class)


def parameters_of(
    formula: Signature, results: int, traversal: Traversal
) -> tuple[list[str], list[str], list[str]]:
    """The names of a kernel's parameters: pointers, numbers, and constexprs."""
    inputs = [name for name, _ in formula.operands]
    outputs = [str(place) for place in range(results)]
    pointers = [*(f"from_{name}" for name in inputs), *(f"to_{place}" for place in outputs)]
    pointers += {"": [], AHEAD: ["expected"], LATE: ["expected", "memory"]}[formula.step]
    pointers += ["totals"] * (formula.sums and not traversal.summed)
    pointers += ["sums"] * (traversal.summed or bool(formula.added))
    pointers += ["exchange"] * traversal.shared
    axes = range(traversal.axes)
    numbers = [
        "classes",
        *(f"size_{axis}" for axis in axes),
        *["span"] * traversal.shared,
        *["programs"] * (formula.step == LATE),
        *["pieces"] * traversal.cut,
        *["panel"] * (traversal.cut and not traversal.by_class),
        *["blocks", "parts"] * traversal.summed,
    ]
    numbers += formula.targets
    for name in (*inputs, *outputs):
        numbers += [f"step_{name}", *(f"stride_{name}_{axis}" for axis in axes)]
    numbers += [f"number_{name}" for name in formula.numbers]
    near = [f"NEAR_{name}" for name in (*inputs, *outputs)]
    constexprs = [
        *["OVERLAPPED"] * (formula.sums or bool(formula.added)), "COMPUTE", "PRECISE", *["MEAN", "PARTS"] * formula.sums, *["ALONE", "EACH", "KIND"] * traversal.summed, "UNIT", "WIDE", *near, "CLASSES", "CUT", *["FULL"] * bool(formula.step), "VECTOR", "POSITIONS", "HELD", "LANES",
        *["TILES"] * traversal.tiled,
    ]  # fmt: skip
    return pointers, numbers, constexprs


@functools.cache
def kernel_of(signature: Signature, graph: Graph, traversal: Traversal, writer: type[Writer] = Writer) -> Any:  # fmt: skip
    """The kernel that computes a graph's results."""
    scope = {
        **WORDS, "await_sums": await_sums, "let_next_start": let_next_start, "store_nll": store_nll, "store_added": store_added, "divisor": divisor, "expm1_float64": expm1_float64, "min_or_second": min_or_second, "broadcast_positions": broadcast_positions, "read_wide_sum": read_wide_sum, "PIECES": PIECES, "SPANS": SPANS, "class_of": class_of, "reduce_over_cluster": reduce_over_cluster, "divide": divide, "hardware_exp": hardware_exp, "log_from_one": log_from_one, "widen": widen, "largest": largest, "largest_of": largest_of, "folded": folded, "load_row": load_row, "load_dealt": load_dealt, "store_dealt": store_dealt, "store_hits": store_hits, "power": power, "LOG2_E": LOG2_E, "LOWEST_POWER": LOWEST_POWER,
        "below": below, "opaque_copy": opaque_copy, "largest_along": largest_along, "held_total": held_total, "held_largest": held_largest, "held_powers": held_powers, "least_of": least_of, "share": share, "total_of": total_of,
    }  # fmt: skip
    scope |= writer.words
    return Kernel(writer(signature, graph, traversal).source(), scope)
