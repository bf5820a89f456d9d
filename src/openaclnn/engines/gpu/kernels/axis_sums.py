# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
"""What a formula gives, added up along some axes: the gradients of what is stretched over others. Further results are written as they are.

A program has a tile, whose columns lie side by side, and goes through some of the elements that are added up: along the tile's rows where columns are
kept, else along its columns. Each element is added in FLOAT to that of the tile before, then those of a tile in float64, which is the program's part
of a sum; one more kernel adds up the parts. All of that has an order that follows from shapes and strides alone. Operands that do not vary along what is
added up are read once, and what follows from them alone is computed once.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from openaclnn.engines.formulas import Formula
from openaclnn.engines.gpu.formulas.compiled import Kernel, Names, compiled, constexprs, widen
from openaclnn.engines.gpu.kernels.sums import await_sums, let_next_start


class Walk(NamedTuple):
    """How many axes are kept and how many are added up, and whether the last of the kept lies along the columns. Of each operand, then each result:
    whether it varies along the axes that are kept, along those that are added up, and how along the columns (0, 1: side by side, 2)."""

    kept: int
    summed: int
    keeps_columns: bool
    operands: tuple[tuple[bool, bool, int], ...]


def _taken_apart(index: str, letter: str, axes: range) -> list[str]:
    """Where an element that is numbered through several axes lies along each."""
    lines, rest = [], index
    for axis in reversed(axes[1:]):
        lines += [f"at_{letter}{axis} = {rest} % size_{letter}{axis}", f"rest_{letter}{axis} = {rest} // size_{letter}{axis}"]  # fmt: skip
        rest = f"rest_{letter}{axis}"
    return [*lines, f"at_{letter}{axes[0]} = {rest}"] if axes else lines


def _offset(name: str, letter: str, axes: range) -> str:
    return " + ".join(f"at_{letter}{axis} * stride_{name}_{letter}{axis}" for axis in axes) or "0"


class _Writer:
    def __init__(self, formula: Formula, walk: Walk) -> None:
        self.formula, self.walk, self.names = formula, walk, Names(formula)
        self.results = self.names.results
        self.walked = dict(zip((*formula.values, *self.results), walk.operands, strict=True))

    def place(self, name: str, pointer: str, summed: bool) -> str:
        """An operand's elements of the tile; those that do not vary along what is added up lie at its first element."""
        _, _, step = self.walked[name]
        apart = "column[None, :]" if step == 1 else f"(column * step_{name})[None, :]"
        columns = f" + {apart}" if step and (self.walk.keeps_columns or summed) else ""
        along = f" + along_{name}" if summed else ""
        return f"{pointer} + first_{name}{along}{columns}"

    def read(self, name: str, summed: bool) -> str:
        place = f"{self.place(name, f'from_{name}', summed)} + tl.zeros([1, 1], INDEX)"
        return f"value_{name} = widen(tl.load({place}, {self.mask(name, summed)}), COMPUTE)"

    def mask(self, name: str, summed: bool) -> str:
        """Which of an operand's elements there are: along the axes that it varies along."""
        kept, added, step = self.walked[name]
        by_columns = self.walk.keeps_columns
        rows = (summed and added) if by_columns else kept
        terms = ["inside_rows[:, None]"] * bool(rows) + ["inside_columns[None, :]"] * bool(step and (by_columns or summed))  # fmt: skip
        return " & ".join(terms) or "tl.full([1, 1], 1, tl.int1)"

    def source(self) -> str:
        walk, names, formula = self.walk, self.names, self.formula
        *written, total = self.results
        letters = "k" if walk.keeps_columns else "s"
        kept, summed = range(walk.kept), range(walk.summed)
        sizes = [*(f"size_k{axis}" for axis in kept), *(f"size_s{axis}" for axis in summed)]
        strides = [f"stride_{name}_k{axis}" for name in self.walked for axis in kept]
        strides += [
            f"stride_{name}_s{axis}" for name in self.walked if name != total for axis in summed
        ]
        divided = [
            f"stride_{name}_{axis}" for name, (_, _, step) in self.walked.items() if step == 1 and name != total
            for axis in (*(f"k{axis}" for axis in kept), *(f"s{axis}" for axis in summed))
        ]  # fmt: skip
        last = (walk.kept if walk.keeps_columns else walk.summed) - 1
        columns = f"{letters}{last}"
        lines = [
            "let_next_start(OVERLAPPED)",
            "INDEX: tl.constexpr = tl.int64 if WIDE else tl.int32",
            *(f"{name} = {name}.to(INDEX)" for name in (*sizes, *strides, "span")),
            *(f"{name} = {name} * UNIT" for name in (f"size_{columns}", *divided)),
            *(f"step_{name} = stride_{name}_{columns}" for name in self.walked if name != total or walk.keeps_columns),
            "rest = tl.program_id(0).to(INDEX)",
        ]  # fmt: skip
        if walk.keeps_columns:
            lines += [
                f"blocks = (size_{columns} + COLUMNS - 1) // COLUMNS",
                "column = rest % blocks * COLUMNS + tl.arange(0, COLUMNS)",
                f"inside_columns = column < size_{columns}",
                "rest = rest // blocks",
                f"batches = {' * '.join(f'size_k{axis}' for axis in kept[:-1]) or '1'}",
                "batch = rest % batches",
                "split = rest // batches",
                *_taken_apart("batch", "k", kept[:-1]),
                f"number = batch * size_{columns} + column",
                "inside_kept = inside_columns",
                f"count = {' * '.join(f'size_s{axis}' for axis in summed) or '1'}",
            ]
            batch = kept[:-1]
        else:
            count = " * ".join(f"size_k{axis}" for axis in kept) or "1"
            lines += [
                f"kept_count = tl.full([], 1, INDEX) * {count}",
                "blocks = (kept_count + ROWS - 1) // ROWS",
                "row = rest % blocks * ROWS + tl.arange(0, ROWS)",
                "inside_rows = row < kept_count",
                "split = rest // blocks",
                *_taken_apart("row", "k", kept),
                "number = row",
                "inside_kept = inside_rows",
                f"chunks = (size_{columns} + COLUMNS - 1) // COLUMNS",
                f"count = chunks * {' * '.join(f'size_s{axis}' for axis in summed[:-1]) or '1'}",
            ]
            batch = kept
        wide = "" if walk.keeps_columns else "[:, None]"
        for name in self.walked:
            varies = batch and self.walked[name][0]
            lines.append(f"first_{name} = ({_offset(name, 'k', batch)}){wide}" if varies else f"first_{name} = 0")  # fmt: skip
        varying = [name for name in formula.values if self.walked[name][1]]
        lines += [self.read(name, False) for name in formula.values if name not in varying]
        lines += ["lanes = tl.zeros([ROWS, COLUMNS], tl.float32)"]
        lines += [
            "end = tl.minimum((split + 1) * span, count)",
            f"for turn in range(split * span, end, {'ROWS' if walk.keeps_columns else '1'}):",
        ]
        if walk.keeps_columns:
            body = [
                "row = turn + tl.arange(0, ROWS)",
                "inside_rows = row < end",
                *_taken_apart("row", "s", summed),
            ]
            along, wide = summed, "[:, None]"
        else:
            body = [
                "column = turn % chunks * COLUMNS + tl.arange(0, COLUMNS)",
                f"inside_columns = column < size_{columns}",
                "outer = turn // chunks",
                *_taken_apart("outer", "s", summed[:-1]),
            ]
            along, wide = summed[:-1], ""
        for name in (*varying, *written):
            place = _offset(name, "s", along)
            body.append(f"along_{name} = ({place}){wide if along else ''}")
        body += [self.read(name, True) for name in varying]
        body += [
            f"{', '.join(self.results)} = {names.call()}",
            "inside = inside_rows[:, None] & inside_columns[None, :]",
            f"lanes += tl.where(inside, {total}, 0.0)",
        ]
        for name, out in zip(written, names.outs, strict=False):
            body += [
                f"places, _ = tl.broadcast({self.place(name, out, True)}, inside)",
                f"{name}, _ = tl.broadcast({name}.to(COMPUTE), inside)",
                f"tl.store(places, {name}, inside)",
            ]  # fmt: skip
        lines += [f"    {line}" for line in body]
        out = names.outs[-1]
        if walk.keeps_columns:
            place = " + ".join(filter(None, [f"first_{total}" if walk.kept > 1 else "", f"column * step_{total}"]))  # fmt: skip
        else:
            place = _offset(total, "k", kept) if walk.kept else "row * 0"
        lines += [
            f"total = tl.sum(lanes.to(tl.float64), {0 if walk.keeps_columns else 1})",
            "if ALONE:",
            f"    tl.store({out} + {place}, total.to(tl.float32).to(COMPUTE), inside_kept)",
            "else:",
            "    tl.store(sums + split.to(tl.int64) * kept_size.to(tl.int64) + number, total, inside_kept)",
        ]
        pointers = [*names.pointers, *names.outs, "sums"]
        numbers = ["span", "kept_size", *sizes, *strides, *names.numbers]
        known = ["OVERLAPPED", *names.switches, "COMPUTE", "PRECISE", "ALONE", "UNIT", "WIDE", "ROWS", "COLUMNS"]  # fmt: skip
        head = (
            f"def sums_of_{formula.name}({', '.join([*pointers, *numbers])}, {constexprs(known)}):"
        )
        return head + "\n" + "".join(f"    {line}\n" for line in lines)


@functools.cache
def axis_sums_kernel(formula: Formula, walk: Walk) -> Any:
    """The kernel that leaves a formula's parts of sums, or the sums where there is one part of each (ALONE)."""
    scope = {"formula": compiled(formula), "widen": widen, "let_next_start": let_next_start}
    return Kernel(_Writer(formula, walk).source(), scope)


AXES = 5  # that the kernel of few elements walks


@functools.cache
def few_sums_kernel(formula: Formula) -> Any:
    """The kernel of few elements of any strides: a program adds up all of a sum, and takes another. Axes are kept where the last result has a stride, others added up, in
    the order of the axes."""
    names, axes = Names(formula), range(AXES)
    *written, total = names.results
    walked = [*formula.values, *names.results]
    sizes = [f"size_{axis}" for axis in axes]
    strides = [f"stride_{name}_{axis}" for name in walked for axis in axes]

    def place(name: str, at: str = "at_") -> str:
        return " + ".join(f"{at}{axis} * stride_{name}_{axis}" for axis in axes)

    of_element = [
        "index = begin + lanes",
        "inside = index < count",
        *_taken_apart("index", "s", axes),
        *(f"at_{axis} = at_k{axis} + at_s{axis}" for axis in axes),
        *(f"value_{name} = widen(tl.load(from_{name} + {place(name)}, inside), COMPUTE)" for name in formula.values),
        f"{', '.join(names.results)} = {names.call()}",
        *(f"tl.store({out} + {place(name)}, {name}.to(COMPUTE), inside)" for name, out in zip(written, names.outs, strict=False)),
        f"total += tl.where(inside, {total}, 0.0).to(tl.float64)",
    ]  # fmt: skip
    of_sum = [
        *_taken_apart("number", "k", axes),
        "total = tl.zeros([COLUMNS], tl.float64)",
        "for begin in range(0, count, COLUMNS):",
        *(f"    {line}" for line in of_element),
        f"tl.store({names.outs[-1]} + {place(total, 'at_k')}, tl.sum(total).to(tl.float32).to(COMPUTE))",
    ]
    lines = [
        *(
            f"{name} = {name}.to(tl.int32)" for name in sizes
        ),  # few: wider numbers take several times as long to divide
        *(f"{name} = {name}.to(tl.int64)" for name in strides),
        *(f"size_k{axis} = tl.where(stride_{total}_{axis} != 0, size_{axis}, 1)" for axis in axes),
        *(f"size_s{axis} = size_{axis} // size_k{axis}" for axis in axes),
        f"count = {' * '.join(f'size_s{axis}' for axis in axes)}",
        f"sums = {' * '.join(f'size_k{axis}' for axis in axes)}",
        "lanes = tl.arange(0, COLUMNS)",
        "for number in range(tl.program_id(0), sums, tl.num_programs(0)):",
        *(f"    {line}" for line in of_sum),
    ]
    head = (
        f"def few_sums_of_{formula.name}({', '.join([*names.pointers, *names.outs, *sizes, *strides, *names.numbers])}, "
        f"{constexprs([*names.switches, 'COMPUTE', 'PRECISE', 'COLUMNS'])}):\n"
    )
    text = head + "".join(f"    {line}\n" for line in lines)
    return Kernel(text, {"formula": compiled(formula), "widen": widen})


@functools.cache
def finish_kernel(axes: int) -> Any:
    """The kernel that adds up the parts of sums that lie along so many axes."""
    sizes, strides = (
        [f"{kind}_k{axis}" for axis in range(axes)] for kind in ("size", "stride_out")
    )
    lines = [
        "await_sums(OVERLAPPED)",
        *(
            f"{name} = {name}.to(tl.int32)" for name in sizes
        ),  # few: wider numbers take several times as long to divide
        *(f"{name} = {name}.to(tl.int64)" for name in strides),
        "number = tl.program_id(0).to(tl.int64) * KEPT + tl.arange(0, KEPT)",
        "inside = number < kept_size",
        "lanes = tl.zeros([PARTS, KEPT], tl.float64)",
        "for turn in range(0, parts, PARTS):",
        "    part = turn + tl.arange(0, PARTS).to(tl.int64)[:, None]",
        "    lanes += tl.load(sums + part * kept_size + number[None, :], (part < parts) & inside[None, :], other=0)",
        *_taken_apart("number", "k", range(axes)),
        f"place = {_offset('out', 'k', range(axes)) if axes else 'number * 0'}",
        "tl.store(out + place, tl.sum(lanes, 0).to(tl.float32).to(COMPUTE), inside)",
    ]
    names = ["sums", "out", "parts", "kept_size", *sizes, *strides]
    head = f"def finish_axis_sums({', '.join(names)}, {constexprs(['OVERLAPPED', 'COMPUTE', 'PARTS', 'KEPT'])}):"
    text = head + "\n" + "".join(f"    {line}\n" for line in lines)
    return Kernel(text, {"await_sums": await_sums})
