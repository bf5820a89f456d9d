# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
"""A formula's kernel for operands that lie in a row: a program for each block of elements."""

from __future__ import annotations

import functools
from typing import Any

import triton
import triton.language as tl

from openaclnn.engines.formulas import Formula
from openaclnn.engines.gpu.formulas.compiled import Names, compiled, widen
from openaclnn.engines.gpu.formulas.source import constants, define, listed


@triton.jit
def _read(pointer, index, inside, COMPUTE: tl.constexpr, STEP: tl.constexpr):
    if STEP:
        values = tl.load(pointer + index, inside)
    else:
        values = tl.load(pointer)
    return widen(values, COMPUTE)


FLAT = '''
def flat_{name}(
    {pointers}out, count, {numbers}
    {constants}UNIT: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):
    """Operands that lie one after another (step 1), or are one element for all (step 0)."""
    block = tl.program_id(0)
    if WIDE:
        block = block.to(tl.int64)
        count = count.to(tl.int64)
    count = count * UNIT
    index = block * BLOCK + tl.arange(0, BLOCK)
    if UNIT % 16 == 0:
        flat_block({pointers}out, index, index < count, {numbers}{known})
    elif (block + 1) * BLOCK <= count:
        # A mask that can end anywhere forbids vectors, so only the last block has one.
        flat_block({pointers}out, index, None, {numbers}{known})
    else:
        flat_block({pointers}out, index, index < count, {numbers}{known})


{block}'''

SHIFTED = '''
def shifted_{name}(
    {pointers}out, count, {numbers}
    {constants}WIDE: tl.constexpr, BLOCK: tl.constexpr,
):
    """The same where all that lie one after another begin equally far from a vector's bounds: blocks begin at those before."""
    block = tl.program_id(0)
    ITEMSIZE: tl.constexpr = out.dtype.element_ty.primitive_bitwidth // 8
    head = (out.to(tl.int64) % 16) // ITEMSIZE
    out = tl.multiple_of(out - head, 16)
{moved}
    head = head.to(tl.int32)
    if WIDE:
        block = block.to(tl.int64)
        count = count.to(tl.int64)
    index = block * BLOCK + tl.arange(0, BLOCK)
    if (block > 0) & ((block + 1) * BLOCK <= head + count):
        flat_block({pointers}out, index, None, {numbers}{known})
    else:
        flat_block({pointers}out, index, (index >= head) & (index < head + count), {numbers}{known})


{block}'''

BLOCK = """
def flat_block({pointers}out, index, inside, {numbers}{constants}):
{reads}
    result = {call}
    tl.store(out + index, result.to(COMPUTE), inside)
""".lstrip()


@functools.cache
def flat_kernel(formula: Formula, shifted: bool = False) -> Any:
    """The formula's kernel for dense operands; `shifted` for those that begin equally far from a vector's bounds."""
    names = Names(formula)
    known = [*names.switches, *(f"STEP_{own}" for own in formula.values), "COMPUTE", "PRECISE"]
    reads = (
        f"    value_{own} = read(from_{own}, index, inside, COMPUTE, STEP_{own})"
        for own in formula.values
    )
    moved = (
        f"    if STEP_{own}:\n        from_{own} = tl.multiple_of(from_{own} - head, 16)"
        for own in formula.values
    )
    words = {
        "name": formula.name, "pointers": listed(names.pointers), "numbers": listed(names.numbers),
        "constants": constants(known), "known": listed(known), "reads": "\n".join(reads), "call": names.call(),
        "moved": "\n".join(moved),
    }  # fmt: skip
    text = (SHIFTED if shifted else FLAT).format(block=BLOCK.format(**words), **words)
    scope = {"formula": compiled(formula), "read": _read}
    return define(text, scope, do_not_specialize=["count"])
