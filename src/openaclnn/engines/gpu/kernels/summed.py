"""A formula's kernel that adds up what it gives: a program for each part of the sum, or for all of it."""

from __future__ import annotations

import functools
from typing import Any

from openaclnn.engines.formulas import Formula
from openaclnn.engines.gpu.formulas.compiled import Names, compiled, widen
from openaclnn.engines.gpu.formulas.source import constants, define, listed
from openaclnn.engines.gpu.kernels.reductions import store_sum
from openaclnn.engines.gpu.kernels.sums import let_next_start

SUMMED = '''
def summed_{name}(
    {pointers}sums, count, parts, {numbers}{sizes}{strides}
    OVERLAPPED: tl.constexpr, ALONE: tl.constexpr, MEAN: tl.constexpr, {constants}BLOCK: tl.constexpr,
):
    """One part of the sum; part p takes every block whose number is p modulo `parts`."""
    let_next_start(OVERLAPPED)
    part = tl.program_id(0)
    total = tl.zeros([BLOCK], tl.float64)
    whole = count // BLOCK * BLOCK
    # A mask that can end anywhere forbids vectors, so only the last block has one.
    for start in range(part.to(tl.int64) * BLOCK, whole, parts * BLOCK):
        index = start + tl.arange(0, BLOCK)
        total += summed_block({pointers}index, None, {numbers}{sizes}{strides}{known})
    if part == 0:
        index = whole + tl.arange(0, BLOCK)
        inside = index < count
        last = summed_block({pointers}index, inside, {numbers}{sizes}{strides}{known})
        total += tl.where(inside, last, 0.0)
    store_sum(sums, part, tl.sum(total), count, ALONE, MEAN, COMPUTE)


{block}'''

SHIFTED = '''
def shifted_{name}(
    {pointers}sums, count, parts, {numbers}
    OVERLAPPED: tl.constexpr, ALONE: tl.constexpr, MEAN: tl.constexpr, {constants}BLOCK: tl.constexpr,
):
    """The same where all that lie in a row begin equally far from a vector's bounds: blocks begin at those before."""
    let_next_start(OVERLAPPED)
    part = tl.program_id(0)
    ITEMSIZE: tl.constexpr = {lead}.dtype.element_ty.primitive_bitwidth // 8
    head = ({lead}.to(tl.int64) % 16) // ITEMSIZE
{moved}
    total = tl.zeros([BLOCK], tl.float64)
    end = head + count
    whole = end // BLOCK * BLOCK
    first = tl.where(part == 0, parts, part)
    for start in range(first.to(tl.int64) * BLOCK, whole, parts * BLOCK):
        index = start + tl.arange(0, BLOCK)
        total += summed_block({pointers}index, None, {numbers}{known})
    if part == 0:
        for start in range(0, end, tl.maximum(whole, BLOCK)):  # the first block and the last, if that is another
            index = start + tl.arange(0, BLOCK)
            inside = (index >= head) & (index < end)
            last = summed_block({pointers}index, inside, {numbers}{known})
            total += tl.where(inside, last, 0.0)
    store_sum(sums, part, tl.sum(total), count, ALONE, MEAN, COMPUTE)


{block}'''

SUMMED_BLOCK = """
def summed_block({pointers}index, inside, {numbers}{sizes}{strides}{constants}):
{places}
{reads}
    result = {call}
    return result.to(tl.float64)
""".lstrip()


@functools.cache
def summed_kernel(
    formula: Formula, axes: int, single: tuple[bool, ...], shifted: bool = False
) -> Any:
    """The kernel of a formula over so many axes; 0: all operands lie in a row. `single` ones are one element, and `shifted` is
    for others that begin equally far from a vector's bounds."""
    names = Names(formula)
    known = [*names.switches, "COMPUTE", "PRECISE"]
    sizes = [f"size_{axis}" for axis in range(axes)]
    strides = [f"stride_{own}_{axis}" for own in formula.values for axis in range(axes)]
    places, reads, rest = [], [], "index"
    for axis in reversed(range(axes)):
        places.append(f"    rest_{axis} = ({rest}) // size_{axis}")
        places.append(f"    at_{axis} = ({rest}) - rest_{axis} * size_{axis}")
        rest = f"rest_{axis}"
    for own, one in zip(formula.values, single, strict=True):
        place = " + ".join(f"at_{axis} * stride_{own}_{axis}" for axis in range(axes)) or "index"
        read = f"tl.load(from_{own})" if one else f"tl.load(from_{own} + {place}, inside)"
        reads.append(f"    value_{own} = widen({read}, COMPUTE)")
    in_a_row = [name for name, one in zip(names.pointers, single, strict=True) if not one]
    moved = [f"    {name} = tl.multiple_of({name} - head, 16)" for name in in_a_row]
    words = {
        "name": formula.name, "pointers": listed(names.pointers), "numbers": listed(names.numbers),
        "sizes": listed(sizes), "strides": listed(strides), "constants": constants(known), "known": listed(known),
        "places": "\n".join(places), "reads": "\n".join(reads), "call": names.call(), "moved": "\n".join(moved),
        "lead": in_a_row[0] if in_a_row else "",
    }  # fmt: skip
    text = (SHIFTED if shifted else SUMMED).format(block=SUMMED_BLOCK.format(**words), **words)
    scope = {
        "formula": compiled(formula),
        "widen": widen,
        "let_next_start": let_next_start,
        "store_sum": store_sum,
    }
    return define(text, scope, do_not_specialize=["count", "parts", *sizes, *strides])
