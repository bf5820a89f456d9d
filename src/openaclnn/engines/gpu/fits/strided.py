"""How launches over few elements of any strides follow from these and from sizes, in machine code: what `sizes/tiles.py` and
`sizes/strided.py` say in Python.
"""

from __future__ import annotations

from collections.abc import Sequence

from openaclnn.engines.gpu.fits.classes import AnyRowFit, ClassFit
from openaclnn.engines.gpu.fits.code import ADDRESSES, FORMS, Fit
from openaclnn.engines.gpu.fits.flat import blocks, names_of, word
from openaclnn.engines.gpu.kernels.pixels import nll_loss2d_backward
from openaclnn.engines.gpu.kernels.rows import cross_entropy_loss_grad
from openaclnn.engines.gpu.kernels.sums import add_up
from openaclnn.engines.gpu.launching.native_code import MAX_POINTERS
from openaclnn.engines.gpu.launching.operands import INT32_LIMIT
from openaclnn.engines.machine.builtins import integer_of
from openaclnn.engines.machine.code import Array
from openaclnn.engines.machine.objects import TUPLE_ITEMS, TUPLE_LENGTH
from openaclnn.engines.machine.values import Value

__all__ = ["StridedFit", "StridedPixelFit", "StridedRowFit", "TileFit", "along"]


class StridedFit(Fit):
    """Few elements of any strides: `depth` axes, the missing ones before the others, of one element."""

    depth = 0

    def take_strides(self, given: Array, axes: Value) -> None:
        """Every operand's strides along the axes, as 32 bits."""
        code, count = self.code, self.control.read(ADDRESSES)
        self.expect((axes > 0) & (axes <= self.depth))
        self.expect(given.read(TUPLE_LENGTH) == count * axes)
        self.table = code.frame("i64", MAX_POINTERS * self.depth)
        with self.when_fit():
            missing = code.integer(self.depth) - axes
            with code.loop(0, count) as operand:
                own = self.steps(operand)
                for axis in range(self.depth):
                    own.write(axis, 0)
                with code.loop(0, axes) as place:
                    stride = integer_of(code, given.read(operand * axes + place + TUPLE_ITEMS))
                    self.expect(abs(stride) < INT32_LIMIT)
                    own.write(missing + place, stride)

    def steps(self, operand: Value | int) -> Array:
        """An operand's strides along all axes."""
        return self.table.at(operand * self.depth)

    def sizes(self, shape: Array, axes: Value, limit: Value) -> list[Value]:
        """Of all axes; up to so many elements."""
        code, found = self.code, self.code.frame("i64", self.depth)
        for axis in range(self.depth):
            found.write(axis, 1)
        with code.loop(0, axes) as place:
            found.write(code.integer(self.depth) - axes + place, self.size(shape, place))
        several = [found.read(axis) for axis in range(self.depth)]
        total = code.integer(1)
        for size in several:
            self.expect((size > 0) & (size <= limit))
            total = (total * size).least(limit + 1)
        self.expect(total <= limit)
        return several


def along(axes: Sequence[str], **operands: Array) -> dict[str, Value]:
    """Operands' strides along axes, under the names that kernels have for them."""
    return {
        f"{name}_{axis}": steps.read(place)
        for name, steps in operands.items()
        for place, axis in enumerate(axes)
    }


class TileFit(StridedFit):
    """Elementwise kernels over tiles."""

    name, depth, more = "tiles", 5, ("strides",)
    # Facts: which number is one over the count, or -1; elements; a tile's sides.
    SHARE_AT, FEW, TALL, WIDE = range(4)

    def fit(self, shape: Array, axes: Value) -> None:
        code, main = self.code, self.main
        sizes = self.sizes(shape, axes, self.fact(self.FEW))
        first, second, third, rows, columns = sizes
        row_tiles, column_tiles = (
            blocks(rows, self.fact(self.TALL)),
            blocks(columns, self.fact(self.WIDE)),
        )
        main.begin()
        main.programs.set(first * second * third * row_tiles * column_tiles)
        ahead = (rows, columns, row_tiles, column_tiles, second, third)
        for place, number in enumerate(ahead):
            main.numbers.write(place, number)
        with code.loop(0, self.control.read(ADDRESSES) * self.depth) as index:
            main.numbers.write(index + len(ahead), self.table.read(index))
        share = self.fact(self.SHARE_AT)
        with code.when(share >= 0):
            total = (first * second * third * rows * columns).to("f64")
            main.numbers.write(share, word((code.double(1.0) / total).to("f32")))


class StridedRowFit(AnyRowFit, StridedFit):
    """Cross entropy's gradients over rows that lie anyhow."""

    name, depth, more = "rows.strided", 2, ("strides", "numbers")
    TALL, WIDE, WEIGHT = (
        2,
        3,
        4,
    )  # more facts; the last is where the weights are among the operands, or -1

    def fit(self, shape: Array, axes: Value) -> None:
        code, main = self.code, self.main
        rows, classes = self.sizes(shape, axes, self.fact(self.FEW))
        self.expect(axes == 2)
        ignored, out = self.ignored(), self.steps(self.control.read(ADDRESSES) - 1)
        main.begin()
        self.fit_sums(rows, classes, ignored)
        self.choose(main, {})
        across = blocks(classes, self.fact(self.WIDE))
        main.programs.set(across * blocks(rows, self.fact(self.TALL)))
        names = names_of(cross_entropy_loss_grad, "rows")
        # Of one number a row; the fit's words say where they are among the operands, or -1.
        for place in range(6):
            operand = self.control.read(FORMS + place)
            with code.when(operand >= 0):
                main.numbers.write(
                    names.index("target_stride") + place, self.steps(operand).read(0)
                )
        weight = self.fact(self.WEIGHT)
        weight_step = code.variable(code.integer(0))
        with code.when(weight >= 0):
            weight_step.set(self.steps(weight).read(1))
        self.put_rows(main, rows, classes, across, ignored)
        log_prob = self.steps(2)
        main.put(
            names,
            {
                "weight_stride": weight_step.get(), "log_prob_row": log_prob.read(0), "log_prob_class": log_prob.read(1),
                "out_row": out.read(0), "out_class": out.read(1),
            },
        )  # fmt: skip
        with self.when_summed():
            self.sums.put(
                names_of(add_up, "count"),
                {"third_stride": self.steps(0).read(0), "weight_stride": weight_step.get()},
            )


class StridedPixelFit(ClassFit, StridedFit):
    """NLL's gradient over images, or rows, that lie anyhow."""

    name, depth, more = "pixels.strided", 4, ("strides", "numbers")
    ACROSS, CHUNK = 2, 3  # more facts

    def fit(self, shape: Array, axes: Value) -> None:
        main = self.main
        first, second, third, classes = self.sizes(shape, axes, self.fact(self.FEW))
        self.expect(axes > 1)
        ignored, out = self.ignored(), self.steps(self.control.read(ADDRESSES) - 1)
        main.begin()
        self.fit_sums(first * second * third, classes, ignored)
        self.choose(main, {})
        across = blocks(third, self.fact(self.ACROSS))
        chunks = blocks(classes, self.fact(self.CHUNK))
        main.programs.set(first * second * chunks * across)
        target, gradient, weight = (self.steps(place) for place in range(3))
        steps = along(("first", "second", "pixel"), target=target, gradient=gradient, out=out)
        main.put(
            names_of(nll_loss2d_backward, "pixels"),
            {
                "pixels": third, "second_size": second, "second_blocks": second, "panel_blocks": across,
                "classes": classes, "chunk_classes": blocks(classes, chunks), "chunks": chunks, **steps,
                "out_class": out.read(3), "weight_stride": weight.read(3), "ignore_index": ignored,
            },
        )  # fmt: skip
        with self.when_summed():
            self.sums.put(
                names_of(add_up, "count"),
                {
                    "second_size": second, "third_size": third, "first_stride": target.read(0),
                    "second_stride": target.read(1), "third_stride": target.read(2), "weight_stride": weight.read(3),
                },
            )  # fmt: skip
