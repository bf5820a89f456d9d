# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
"""Sums and means over all elements or positions: programs leave float64 sums of their parts, one more adds those up. Of
few, one program does both.

Which elements a part has depends on the shape, and of many elements on how far they begin from a vector's bounds, as views do that start
one element in: the same call gives the same bits.
"""

from __future__ import annotations

import functools
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
    widen_pairs,
)
from openaclnn.engines.gpu.formulas.tuned import FINITE_TERMS
from openaclnn.engines.gpu.kernels.sums import await_sums, let_next_start


@triton.jit
def store_result(out, total, divisor, COMPUTE: tl.constexpr):
    """A sum over all, or their mean."""
    tl.store(out, (total / divisor).to(tl.float32).to(COMPUTE))


@triton.jit
def store_sum(
    sums, part, total, count, ALONE: tl.constexpr, MEAN: tl.constexpr, COMPUTE: tl.constexpr
):
    """A part's sum into its place or, of the only part (ALONE), the result into `sums`, which is the output."""
    if not ALONE:
        tl.store(sums + part, total)
    elif MEAN:
        store_result(sums, total, count.to(tl.float64), COMPUTE)
    else:
        store_result(sums, total, 1.0, COMPUTE)


@triton.jit
def finish_reduction(
    sums, out, parts, divisor, OVERLAPPED: tl.constexpr, COMPUTE: tl.constexpr, BLOCK: tl.constexpr
):
    lanes = tl.arange(0, BLOCK)
    await_sums(OVERLAPPED)
    total = tl.sum(tl.load(sums + lanes, lanes < parts, other=0))
    store_result(out, total, divisor.to(tl.float64), COMPUTE)


@triton.jit
def fill(out, number, count, stride, BLOCK: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + index * stride, number, index < count)


@triton.jit
def store_nll(
    out, total, loss, weight, EACH: tl.constexpr, MEAN: tl.constexpr, COMPUTE: tl.constexpr
):
    """The total weight and, unless each position's loss was asked for, the sum of all or their mean."""
    if not EACH:
        if MEAN:
            store_result(out, loss, weight, COMPUTE)
        else:
            store_result(out, loss, 1.0, COMPUTE)
    store_result(total, weight, 1.0, COMPUTE)


@triton.jit
def finish_nll(
    sums, out, total, parts,
    OVERLAPPED: tl.constexpr, EACH: tl.constexpr, MEAN: tl.constexpr, COMPUTE: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    lanes = tl.arange(0, BLOCK)
    await_sums(OVERLAPPED)
    loss = tl.sum(tl.load(sums + lanes, lanes < parts, other=0))
    weight = tl.sum(tl.load(sums + parts + lanes, lanes < parts, other=0))
    store_nll(out, total, loss, weight, EACH, MEAN, COMPUTE)


# Of what a formula gives: a program for each part of the sum, or for all of it.

SUMMED = '''
def summed_{name}(
    {pointers}sums, count, parts, {numbers}{sizes}{strides}
    OVERLAPPED: tl.constexpr, ALONE: tl.constexpr, MEAN: tl.constexpr, FOURS: tl.constexpr, {constexprs}BLOCK: tl.constexpr,
):
    """One part of the sum; part p takes every block whose number is p modulo `parts`. What FLOAT does not hold of four elements, or eight of 16 bits, is added up again without it, by the formula as it is."""
    let_next_start(OVERLAPPED)
    part = tl.program_id(0)
    total = summed_part({pointers}part, count, parts, {numbers}{sizes}{strides}{known}FOURS, BLOCK)
    if FOURS:
        if (total - total) != 0:
            total = summed_part({pointers}part, count, parts, {numbers}{sizes}{strides}{known}False, BLOCK)
    store_sum(sums, part, total, count, ALONE, MEAN, COMPUTE)


def summed_part({pointers}part, count, parts, {numbers}{sizes}{strides}{constexprs}FOURS: tl.constexpr, BLOCK: tl.constexpr):
    IN_PAIRS: tl.constexpr = {in_pairs}
    SIZE: tl.constexpr = BLOCK // (4 if FOURS else 1) // (2 if IN_PAIRS else 1)
    total = tl.zeros([SIZE], tl.float64)
    lanes = tl.arange(0, BLOCK)
{bounds}
    # A mask that can end anywhere forbids vectors, so no whole block has one. Blocks are counted in 32 bits and those in a row found by a scalar: places of 64 bits in a thread
    # took 2 of 26 instructions, and the registers with which all programs run at once.
    if IN_PAIRS:
        # The next block is asked for before one is added up. Behind the last it is the same again.
        is_any = tl.full([BLOCK], 1, tl.int1) & (first < blocks)
        start = first.to(tl.int64) * BLOCK
        {values} = read_block({begun}lanes, is_any, {sizes}{strides})
{pair}
        for block in range(first, blocks, parts):
            start = tl.where(block + parts < blocks, block + parts, block).to(tl.int64) * BLOCK
            {ahead} = read_block({begun}lanes, None, {sizes}{strides})
            lower = summed_block({lower}, {numbers}{known}FOURS)
            upper = summed_block({upper}, {numbers}{known}FOURS)
            if FOURS:
                total += widened(lower + upper, SIZE, FOURS)
            else:
                total += widened(lower, SIZE, FOURS) + widened(upper, SIZE, FOURS)
{pair_ahead}
    else:
        for block in range(first, blocks, parts):
            start = tl.cast(block, tl.int64) * BLOCK
            {values} = read_block({pointers}start + lanes, None, {sizes}{strides})
            total += widened(summed_block({floats}, {numbers}{known}FOURS), SIZE, FOURS)
    if part == 0:
{masked}
    return tl.sum(total)


def read_block({pointers}index, inside, {sizes}{strides}):
{places}
    return {reads}


def summed_block({values}, {numbers}{constexprs}FOURS: tl.constexpr):
    if FOURS:
        result = {finite}
    else:
        result = {call}
    return result
'''

# Of elements that lie anywhere.
BOUNDS = """
    first = part
    blocks = (count // BLOCK).to(tl.int32)
    whole = count // BLOCK * BLOCK
""".strip("\n")
MASKED = """
        index = whole + lanes
        inside = index < count
        {values} = read_block({pointers}index, inside, {sizes}{strides})
        total += widened(tl.where(inside, summed_block({floats}, {numbers}{known}FOURS), 0.0), SIZE, FOURS)
""".strip("\n")

# Of those that all begin equally far from a vector's bounds: blocks begin at those before.
SHIFTED_BOUNDS = """
    ITEMSIZE: tl.constexpr = {lead}.dtype.element_ty.primitive_bitwidth // 8
    head = ({lead}.to(tl.int64) % 16) // ITEMSIZE
{moved}
    end = head + count
    blocks = (end // BLOCK).to(tl.int32)
    whole = end // BLOCK * BLOCK
    first = tl.where(part == 0, parts, part)
""".strip("\n")
SHIFTED_MASKED = """
        for start in range(0, end, tl.maximum(whole, BLOCK)):  # the first block and the last, if that is another
            index = start + lanes
            inside = (index >= head) & (index < end)
            {values} = read_block({pointers}index, inside, {sizes}{strides})
            total += widened(tl.where(inside, summed_block({floats}, {numbers}{known}FOURS), 0.0), SIZE, FOURS)
""".strip("\n")


@triton.jit
def widened(values, SIZE: tl.constexpr, FOURS: tl.constexpr):
    """So many sums of neighbours, which a thread has, in float64. FOURS: they are added up in FLOAT, since a conversion takes as long as eight other instructions."""
    if not FOURS:
        values = values.to(tl.float64)
    if values.shape[0] > SIZE:
        values = tl.sum(tl.reshape(values, [SIZE, values.shape[0] // SIZE]), 1)
    return values.to(tl.float64)


@triton.jit
def pairs(values):
    """Two elements of 16 bits as one integer, as they lie in a register: what a loop keeps would else be taken apart and put together again, 2 of 26 instructions."""
    if len(values.shape) == 0:
        result = values
    else:
        bits = values.to(tl.uint16, bitcast=True).to(tl.uint32)
        lower, upper = tl.split(tl.reshape(bits, [values.shape[0] // 2, 2]))
        result = lower | (upper << 16)
    return result


@triton.jit
def half_of(pair, UPPER: tl.constexpr, KIND: tl.constexpr, COMPUTE: tl.constexpr):
    """One element of pairs as float32; a single one for all is none of these."""
    if len(pair.shape) == 0:
        result = widen_pairs(pair, COMPUTE)
    elif tl.bfloat16 == KIND:
        bits = (pair & 0xFFFF0000) if UPPER else (pair << 16)
        result = bits.to(tl.float32, bitcast=True)
    else:
        bits = (pair >> 16) if UPPER else pair
        result = widen_pairs(bits.to(tl.uint16).to(KIND, bitcast=True), COMPUTE)
    return result


@functools.cache
def summed_kernel(
    formula: Formula, axes: int, single: tuple[bool, ...], shifted: bool = False
) -> Any:
    """The kernel of a formula over so many axes; 0: all operands lie in a row. `single` ones are one element, and `shifted` is
    for others that begin equally far from a vector's bounds."""
    names = Names(formula)
    known = [*names.switches, "COMPUTE", "PRECISE"]
    sizes = [f"size_{axis}" for axis in range(axes)]
    strides = [f"stride_{name}_{axis}" for name in formula.values for axis in range(axes)]
    places, reads, rest = [], [], "index"
    for axis in reversed(range(axes)):
        places.append(f"    rest_{axis} = ({rest}) // size_{axis}")
        places.append(f"    at_{axis} = ({rest}) - rest_{axis} * size_{axis}")
        rest = f"rest_{axis}"
    for name, one in zip(formula.values, single, strict=True):
        place = " + ".join(f"at_{axis} * stride_{name}_{axis}" for axis in range(axes)) or "index"
        if one and all(single):  # of as many numbers as there are elements
            place, one = "index * 0", False
        read = f"tl.load(from_{name})" if one else f"tl.load(from_{name} + {place}, inside)"
        reads.append(read)
    values = [f"value_{name}" for name in formula.values]
    in_a_row = [name for name, one in zip(names.pointers, single, strict=True) if not one]
    moved = [f"    {name} = tl.multiple_of({name} - head, 16)" for name in in_a_row]
    # Triton forgets that where something is added.
    place = "tl.multiple_of({} + start, 16)" if shifted else "{} + start"
    begun = [place.format(name) if name in in_a_row else name for name in names.pointers]

    def halves(upper: bool) -> str:
        return ", ".join(f"half_of(pair_{name}, {upper}, from_{name}.dtype.element_ty, COMPUTE)" for name in formula.values)  # fmt: skip

    words = {
        "name": formula.name, "pointers": listed(names.pointers), "numbers": listed(names.numbers),
        "sizes": listed(sizes), "strides": listed(strides), "constexprs": constexprs(known), "known": listed(known),
        "places": "\n".join(places), "reads": ", ".join(reads), "call": names.call(), "finite": names.call("finite_term"), "moved": "\n".join(moved),
        "lead": (in_a_row or names.pointers)[0], "begun": listed(begun),
        "values": ", ".join(values), "ahead": ", ".join(f"next_{name}" for name in values),
        "pair": "\n".join(f"        pair_{name} = pairs(value_{name})" for name in formula.values),
        "pair_ahead": "\n".join(f"            pair_{name} = pairs(next_value_{name})" for name in formula.values),
        "lower": halves(False), "upper": halves(True),
        "in_pairs": " and ".join(f"{name}.dtype.element_ty.primitive_bitwidth == 16" for name in in_a_row * (not axes)) or "False",
        "floats": ", ".join(f"widen_pairs({name}, COMPUTE)" for name in values),
    }  # fmt: skip
    bounds, masked = (SHIFTED_BOUNDS, SHIFTED_MASKED) if shifted else (BOUNDS, MASKED)
    text = SUMMED.format(bounds=bounds.format(**words), masked=masked.format(**words), **words)
    scope = {
        "formula": compiled(formula, is_term=True),
        "finite_term": compiled(FINITE_TERMS.get(formula.name, formula), is_term=True),
        "widen_pairs": widen_pairs,
        "let_next_start": let_next_start,
        "store_sum": store_sum,
        "widened": widened,
        "pairs": pairs,
        "half_of": half_of,
    }
    return Kernel(text, scope)
