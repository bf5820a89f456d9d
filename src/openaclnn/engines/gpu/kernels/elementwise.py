# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
"""A formula's kernels: for operands that lie in a row, a program for each block of elements; for operands of any strides, one for each
tile over two axes."""

from __future__ import annotations

import functools
from itertools import chain
from typing import Any

import triton
import triton.language as tl

from openaclnn.engines.formulas import Formula
from openaclnn.engines.gpu.formulas.compiled import (
    Kernel,
    Names,
    compiled,
    constexprs,
    listed,
    widen,
    widen_pairs,
)


@triton.jit
def _read(pointer, index, inside, COMPUTE: tl.constexpr, STEP: tl.constexpr):
    if STEP:
        values = tl.load(pointer + index, inside)
    else:
        values = tl.load(pointer)
    return widen_pairs(values, COMPUTE)


FLAT = '''
def flat_{name}(
    {pointers}{outs}count, {numbers}
    {constexprs}UNIT: tl.constexpr, MASKED: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):
    """Operands that lie one after another (step 1), or are one element for all (step 0)."""
    block = tl.program_id(0)
    if WIDE:
        block = block.to(tl.int64)
        count = count.to(tl.int64)
    count = count * UNIT
    index = block * BLOCK + tl.arange(0, BLOCK)
    if MASKED and UNIT % 16 == 0:
        flat_block({pointers}{outs}index, index < count, {numbers}{known})
    elif (block + 1) * BLOCK <= count:
        # A mask that can end anywhere forbids vectors, so only the last block has one.
        flat_block({pointers}{outs}index, None, {numbers}{known})
    else:
        flat_block({pointers}{outs}index, index < count, {numbers}{known})


{block}'''

SHIFTED = '''
def shifted_{name}(
    {pointers}{outs}count, {numbers}
    {constexprs}WIDE: tl.constexpr, BLOCK: tl.constexpr,
):
    """The same where all that lie one after another begin equally far from a vector's bounds: blocks begin at those before."""
    block = tl.program_id(0)
    ITEMSIZE: tl.constexpr = out.dtype.element_ty.primitive_bitwidth // 8
    head = (out.to(tl.int64) % 16) // ITEMSIZE
{moved}
    head = head.to(tl.int32)
    if WIDE:
        block = block.to(tl.int64)
        count = count.to(tl.int64)
    index = block * BLOCK + tl.arange(0, BLOCK)
    if (block > 0) & ((block + 1) * BLOCK <= head + count):
        flat_block({pointers}{outs}index, None, {numbers}{known})
    else:
        flat_block({pointers}{outs}index, (index >= head) & (index < head + count), {numbers}{known})


{block}'''

BLOCK = """
def flat_block({pointers}{outs}index, inside, {numbers}{constexprs}):
{reads}
    {results} = {call}
{writes}
""".lstrip()


@functools.cache
def flat_kernel(formula: Formula, shifted: bool = False) -> Any:
    """The formula's kernel for dense operands; `shifted` for those that begin equally far from a vector's bounds."""
    names = Names(formula)
    known = [*names.switches, *(f"STEP_{name}" for name in formula.values), "COMPUTE", "PRECISE"]
    reads = (
        f"    value_{name} = read(from_{name}, index, inside, COMPUTE, STEP_{name})"
        for name in formula.values
    )
    moved = [f"    {out} = tl.multiple_of({out} - head, 16)" for out in names.outs]
    moved += [
        f"    if STEP_{name}:\n        from_{name} = tl.multiple_of(from_{name} - head, 16)"
        for name in formula.values
    ]
    writes = (
        f"    tl.store({out} + index, {result}.to(COMPUTE), inside)"
        for out, result in zip(names.outs, names.results, strict=True)
    )
    words = {
        "name": formula.name, "pointers": listed(names.pointers), "numbers": listed(names.numbers),
        "constexprs": constexprs(known), "known": listed(known), "reads": "\n".join(reads), "call": names.call(),
        "moved": "\n".join(moved), "outs": listed(names.outs), "results": ", ".join(names.results), "writes": "\n".join(writes),
    }  # fmt: skip
    text = (SHIFTED if shifted else FLAT).format(block=BLOCK.format(**words), **words)
    scope = {"formula": compiled(formula), "read": _read}
    return Kernel(text, scope)


@triton.jit
def _places(
    pointer, at_first, at_second, at_third, row_start, column_start, row_lanes, column_lanes,
    first_stride, second_stride, third_stride, row_stride, column_stride,
    ROW_STEP: tl.constexpr, COLUMN_STEP: tl.constexpr, UNIT: tl.constexpr,
):  # fmt: skip
    """An operand's pointers over a tile. A step is 0, 1, or 2 for a stride known at run time only.

    Along a step of 0 the tile is one element thick: each value is loaded once and then broadcast.
    """
    corner = at_first * first_stride + at_second * second_stride + at_third * third_stride
    pointer += corner * UNIT
    lanes = tl.zeros([1, 1], tl.int32)
    if ROW_STEP == 1:
        pointer += row_start
        lanes = lanes + row_lanes[:, None]
    elif ROW_STEP == 2:
        pointer += row_start * row_stride * UNIT
        lanes = lanes + row_lanes[:, None] * (row_stride * UNIT)
    if COLUMN_STEP == 1:
        pointer += column_start
        lanes = lanes + column_lanes[None, :]
    elif COLUMN_STEP == 2:
        pointer += column_start * column_stride * UNIT
        lanes = lanes + column_lanes[None, :] * (column_stride * UNIT)
    return pointer + lanes


@triton.jit
def _mask(inside_rows, inside_columns, ROW_STEP: tl.constexpr, COLUMN_STEP: tl.constexpr):
    mask = tl.full([1, 1], 1, tl.int1)
    if ROW_STEP:
        mask = mask & inside_rows[:, None]
    if COLUMN_STEP:
        mask = mask & inside_columns[None, :]
    return mask


@triton.jit
def _read_tile(
    pointer, at_first, at_second, at_third, row_start, column_start, row_lanes, column_lanes,
    first_stride, second_stride, third_stride, row_stride, column_stride,
    inside_rows, inside_columns,
    ROW_STEP: tl.constexpr, COLUMN_STEP: tl.constexpr, UNIT: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    places = _places(
        pointer, at_first, at_second, at_third, row_start, column_start, row_lanes, column_lanes,
        first_stride, second_stride, third_stride, row_stride, column_stride,
        ROW_STEP, COLUMN_STEP, UNIT,
    )  # fmt: skip
    mask = _mask(inside_rows, inside_columns, ROW_STEP, COLUMN_STEP)
    return widen(tl.load(places, mask), COMPUTE)


TILED = '''
def tiled_{name}(
    {pointers}{outs}
    rows, columns, row_tiles, column_tiles, second_size, third_size,
    {strides}
    {numbers}
    {constexprs}
    UNIT: tl.constexpr, ROWS_UNIT: tl.constexpr, COLUMNS_UNIT: tl.constexpr,
    BATCHED: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):
    """Any strides: tiles over two axes, and up to three more axes walked by the program number."""
    rest = tl.program_id(0)
    column_start = (rest % column_tiles).to(tl.int64) * COLUMNS
    rest = rest // column_tiles
    row_start = (rest % row_tiles).to(tl.int64) * ROWS
    rest = rest // row_tiles
    at_first = tl.full([], 0, tl.int64)
    at_second = at_first
    at_third = at_first
    if BATCHED:
        at_third = (rest % third_size).to(tl.int64)
        rest = rest // third_size
        at_second = (rest % second_size).to(tl.int64)
        at_first = (rest // second_size).to(tl.int64)
    row_lanes = tl.arange(0, ROWS)
    column_lanes = tl.arange(0, COLUMNS)
    inside_rows = row_start + row_lanes < rows.to(tl.int64) * ROWS_UNIT
    inside_columns = column_start + column_lanes < columns.to(tl.int64) * COLUMNS_UNIT
    if WIDE:
        row_lanes = row_lanes.to(tl.int64)
        column_lanes = column_lanes.to(tl.int64)

{reads}
    {results} = {call}
    mask = inside_rows[:, None] & inside_columns[None, :]
{writes}
'''

AXES = ("first", "second", "third", "row", "column")
READ = """    value_{name} = read(
        from_{name}, at_first, at_second, at_third, row_start, column_start, row_lanes, column_lanes,
        {strides}inside_rows, inside_columns, ROW_{name}, COLUMN_{name}, UNIT, COMPUTE,
    )"""

WRITE = """    places = places_of(
        {out}, at_first, at_second, at_third, row_start, column_start, row_lanes, column_lanes,
        {strides}ROW_{result}, COLUMN_{result}, UNIT,
    )
    {result}, mask = tl.broadcast({result}.to(COMPUTE), mask)
    places, mask = tl.broadcast(places, mask)
    tl.store(places, {result}, mask)"""


@functools.cache
def tiled_kernel(formula: Formula) -> Any:
    """The formula's kernel for any strides."""
    names = Names(formula)
    walked = [*formula.values, *names.results]
    own_strides = {name: [f"stride_{name}_{axis}" for axis in AXES] for name in walked}
    strides = [*chain(*own_strides.values())]
    steps = [f"{axis}_{name}" for name in walked for axis in ("ROW", "COLUMN")]
    writes = (
        WRITE.format(out=out, result=result, strides=listed(own_strides[result]))
        for out, result in zip(names.outs, names.results, strict=True)
    )
    text = TILED.format(
        name=formula.name, pointers=listed(names.pointers), strides=listed(strides),
        numbers=listed(names.numbers),
        constexprs=constexprs([*names.switches, "COMPUTE", "PRECISE", *steps]),
        reads="\n".join(READ.format(name=name, strides=listed(own_strides[name])) for name in formula.values),
        call=names.call(), outs=listed(names.outs), results=", ".join(names.results), writes="\n".join(writes),
    )  # fmt: skip
    scope = {"formula": compiled(formula), "read": _read_tile, "places_of": _places}
    return Kernel(text, scope)
