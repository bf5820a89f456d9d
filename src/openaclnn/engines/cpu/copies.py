"""Copies between a strided tile of a tensor and a dense buffer, for `tiles`."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from openaclnn.engines.cpu.simd import add_loop, shuffle
from openaclnn.engines.machine import cache
from openaclnn.engines.machine.words import I16, I32, I64, PTR, for_range, i64

COPY_TYPE = ir.FunctionType(ir.VoidType(), [I64] * 6)  # buffer, tensor, rows, columns, two steps


def copier(item: int, writes: bool) -> int:
    """The compiled copy between a dense buffer and a strided tile."""
    name = f"tiles.{'unpack' if writes else 'pack'}{item}"
    return cache.compiled(
        name, lambda builder, arguments: _emit_copy(builder, arguments, item, writes), COPY_TYPE
    )


def _emit_copy(builder: Any, arguments: Any, item: int, writes: bool) -> None:
    buffer, tensor, rows, columns, row_step, column_step = arguments
    element = I32 if item == 4 else I16
    wide = 16 // item  # a square of this many vectors is turned round in registers

    def buffered(row: Any, column: Any) -> Any:
        index = builder.add(builder.mul(row, columns), column)
        return builder.inttoptr(builder.add(buffer, builder.mul(index, i64(item))), PTR)

    def strided(row: Any, column: Any) -> Any:
        down, along = builder.mul(row, row_step), builder.mul(column, column_step)
        return builder.inttoptr(builder.add(tensor, builder.add(down, along)), PTR)

    def one(row: Any, column: Any) -> None:
        source, target = (buffered, strided) if writes else (strided, buffered)
        value = builder.load(source(row, column), typ=element, align=item)
        builder.store(value, target(row, column), align=item)

    def by_rows() -> None:
        for_range(builder, rows, lambda row: for_range(builder, columns, lambda at: one(row, at)))

    if writes:  # the output is walked in memory order already
        by_rows()
        return
    vector = ir.VectorType(element, wide)

    def square(row: Any, column: Any) -> None:
        lines = [
            builder.load(strided(row, builder.add(column, i64(k))), typ=vector, align=item)
            for k in range(wide)
        ]
        for k, line in enumerate(_transposed(builder, lines, wide)):
            builder.store(line, buffered(builder.add(row, i64(k)), column), align=item)

    def turned() -> None:
        """Whole cache lines of the tensor, one after the other, into columns of the buffer."""

        def strip(column: Any) -> None:
            rest = add_loop(builder, i64(0), rows, wide, lambda row: square(row, column))
            edge(rest, column, wide)

        def edge(row: Any, column: Any, width: int) -> None:
            def single(offset: Any) -> None:
                for k in range(width):
                    one(builder.add(row, offset), builder.add(column, i64(k)))

            for_range(builder, builder.sub(rows, row), single)

        rest = add_loop(builder, i64(0), columns, wide, strip)
        add_loop(builder, rest, columns, 1, lambda column: edge(i64(0), column, 1))

    def backwards() -> None:
        """Rows that run downwards through memory: vectors turned end for end."""
        flipped = range(wide - 1, -1, -1)

        def vector_of(row: Any, column: Any) -> None:
            last = strided(row, builder.add(column, i64(wide - 1)))
            value = shuffle(builder, builder.load(last, typ=vector, align=item), None, flipped)
            builder.store(value, buffered(row, column), align=item)

        def line(row: Any) -> None:
            rest = add_loop(builder, i64(0), columns, wide, lambda at: vector_of(row, at))
            add_loop(builder, rest, columns, 1, lambda at: one(row, at))

        for_range(builder, rows, line)

    def halved() -> None:
        """Every second element: the even lanes of two vectors. 17 ms instead of 27 for L1's 2^24 FLOAT elements."""
        even = range(0, 2 * wide, 2)

        def vector_of(row: Any, column: Any) -> None:
            low = strided(row, column)
            high = strided(row, builder.add(column, i64(wide // 2)))
            both = [builder.load(at, typ=vector, align=item) for at in (low, high)]
            builder.store(
                shuffle(builder, both[0], both[1], even), buffered(row, column), align=item
            )

        def line(row: Any) -> None:
            # A vector reads one element behind its last; the row's own last is therefore left to `one`.
            inside = builder.sub(columns, i64(1))
            rest = add_loop(builder, i64(0), inside, wide, lambda at: vector_of(row, at))
            add_loop(builder, rest, columns, 1, lambda at: one(row, at))

        for_range(builder, rows, line)

    contiguous = builder.icmp_signed("==", row_step, i64(item))
    with builder.if_else(contiguous) as (then, otherwise):
        with then:
            turned()
        with otherwise:
            reversed_ = builder.icmp_signed("==", column_step, i64(-item))
            with builder.if_else(reversed_) as (then_back, otherwise_back):
                with then_back:
                    backwards()
                with otherwise_back:
                    second = builder.icmp_signed("==", column_step, i64(2 * item))
                    with builder.if_else(second) as (then_half, otherwise_half):
                        with then_half:
                            halved()
                        with otherwise_half:
                            by_rows()


def _transposed(builder: Any, lines: list[Any], wide: int) -> list[Any]:
    """A square turned round by interleaving its halves log2(wide) times."""
    half = wide // 2
    low = [lane for k in range(half) for lane in (k, wide + k)]
    high = [lane + half for lane in low]
    size = wide
    while size > 1:
        lines = [
            shuffle(builder, lines[k], lines[k + half], order)
            for k in range(half)
            for order in (low, high)
        ]
        size //= 2
    return lines
