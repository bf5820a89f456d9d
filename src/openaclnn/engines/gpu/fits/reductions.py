"""How launches that add up all elements or positions follow from sizes, in machine code: what `sizes/reductions.py` says in Python."""

from __future__ import annotations

import functools
import operator

from openaclnn.engines.gpu.fits import code as fit_code
from openaclnn.engines.gpu.fits.code import ADDRESSES, FACTS, MASKS, Fit, Step
from openaclnn.engines.gpu.fits.flat import blocks, names_of, word
from openaclnn.engines.gpu.fits.strided import StridedFit, along
from openaclnn.engines.gpu.kernels.reductions import nll_losses
from openaclnn.engines.gpu.launching.launch import VECTOR_BYTES
from openaclnn.engines.gpu.launching.operands import INT32_LIMIT
from openaclnn.engines.gpu.plans.reductions import (
    ALONE,
    AXES,
    BLOCK,
    FLOAT64_BYTES,
    NLL_AXES,
    NLL_SUMS,
    PARTS,
)
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.values import Value

__all__ = ["NllFit", "StridedNllFit", "StridedSumFit", "SumFit"]


class ReducedFit(Fit):
    """Two launches: one adds up, in parts, and one finishes; of few elements the other does both, and needs no memory."""

    def fit_parts(self, count: Value, sums: int) -> tuple[Step, Value]:
        """What adds up so many, and in how many parts, each of which leaves so many sums."""
        code, alone = self.code, count <= ALONE
        self.expect((count > 0) & (count < INT32_LIMIT))
        self.replaced.set(alone.to("i64"))
        self.summed.set(alone.choose(0, self.summed.get()))
        parts = alone.choose(1, blocks(count, BLOCK).least(PARTS))
        way, covered = code.integer(0), 1
        while covered < PARTS:
            way, covered = way + (parts > covered).to("i64"), 2 * covered
        self.scratch.set(parts * (sums * FLOAT64_BYTES))
        add = self.step(alone.choose(fit_code.OTHER, code.integer(fit_code.SUMS)))
        for step in (add, self.main):
            step.begin()
        add.programs.set(parts)
        self.main.programs.set(code.integer(1))
        self.main.way.set(way)
        self.main.numbers.write(0, parts)
        return add, parts

    def product(self, shape: Array, axes: Value, first: int = 0) -> Value:
        """Of the sizes from one on."""
        total = self.code.variable(self.code.integer(1))
        with self.code.loop(first, axes) as axis:
            total.set(total.get() * self.size(shape, axis))
        return total.get()


class SumFit(ReducedFit):
    """Of a formula over row-major operands."""

    name = "summed"
    MEAN, FEW, NUMBERS, SOURCES = range(4)  # facts
    ANYWHERE, ALIKE = 1, 2  # ways

    def fit(self, shape: Array, axes: Value) -> None:
        code, count = self.code, self.product(shape, axes)
        self.many = code.variable((count > self.fact(self.FEW)).to("i64"))
        add, parts = self.fit_parts(count, 1)
        add.numbers.write(0, count)
        add.numbers.write(1, parts)
        self.main.numbers.write(1, (self.fact(self.MEAN) != 0).choose(count, 1))
        with code.loop(0, self.fact(self.NUMBERS)) as index:
            source = self.control.at(FACTS + self.SOURCES).read(index)
            with code.when(source >= 0):
                number = self.numbers.read(source).bits_as("f64").to("f32")
                add.numbers.write(index + 2, word(number))

    def align(self, step: Step, astray: Value) -> None:
        """Many that begin equally far from a vector's bounds have a kernel of their own."""
        code = self.code
        with code.when(astray != 0):
            least, most = code.variable(code.integer(VECTOR_BYTES)), code.variable(code.integer(0))
            with code.loop(0, step.pointers) as index:
                mask = step.block.at(MASKS).read(index)
                with code.when(mask != 0):
                    off = step.values.read(index) & mask
                    least.set(least.get().least(off))
                    most.set((off > most.get()).choose(off, most.get()))
            alike = (least.get() == most.get()) & (self.many.get() != 0)
            step.way.set(alike.choose(self.ALIKE, code.integer(self.ANYWHERE)))


class NllFit(ReducedFit):
    """Of the negative log-likelihood over row-major (images, classes, pixels ...)."""

    name = "summed.nll"
    EACH = 0  # facts: whether each position's loss is written

    def fit(self, shape: Array, axes: Value) -> None:
        self.expect(axes > 1)
        with self.when_fit():
            images, classes = (self.size(shape, axis) for axis in range(2))
            pixels, number = self.product(shape, axes, 2), self.numbers.read(0)
            count = images * pixels
            # What a pixel's step is counts as well; sizes below are products of these.
            self.expect((count * classes < INT32_LIMIT) & (number < INT32_LIMIT))
            (add, parts), each = self.fit_parts(count, NLL_SUMS), self.fact(self.EACH)
            rows = pixels == 1
            add.put(
                names_of(nll_losses, "count"),
                {
                    "count": count, "second_size": rows.choose(1, images), "third_size": rows.choose(count, pixels),
                    "target_second": rows.choose(0, pixels), "values_second": rows.choose(0, classes * pixels),
                    "out_second": rows.choose(0, pixels * each), "values_third": rows.choose(classes, 1),
                    "class_stride": pixels, "classes": classes,
                    "ignore_index": (number < -1).choose(-1, number), "parts": parts,
                },
            )  # fmt: skip


class StridedSumFit(ReducedFit, StridedFit):
    """Of a formula over few elements of any strides; those that lie in a row after all have a kernel of their own."""

    name, depth, more = "summed.strided", AXES, ("strides",)
    # Facts; the last is where sizes and strides begin among the numbers.
    MEAN, FEW, GEOMETRY = range(3)

    def __init__(self, code: Code, control: Array) -> None:
        super().__init__(code, control)
        self.flat = code.variable(code.integer(0))

    def fit(self, shape: Array, axes: Value) -> None:
        code = self.code
        sizes = self.sizes(shape, axes, self.fact(self.FEW))
        count = functools.reduce(operator.mul, sizes)
        add, parts = self.fit_parts(count, 1)
        add.numbers.write(0, count)
        add.numbers.write(1, parts)
        self.main.numbers.write(1, (self.fact(self.MEAN) != 0).choose(count, 1))
        inputs, apart = self.control.read(ADDRESSES) - 1, code.variable(code.integer(0))
        with code.loop(0, inputs) as operand:
            step = self.steps(operand).read(self.depth - 1)
            apart.set(apart.get() | (step - 1))
            # One element for all has yet another kernel.
            self.expect((axes > 1) | (step != 0))
        self.flat.set(((axes == 1) & (apart.get() == 0)).to("i64"))
        add.way.set(self.flat.get())
        with code.when(self.flat.get() == 0):
            geometry = add.numbers.at(self.fact(self.GEOMETRY))
            for axis, size in enumerate(sizes):
                geometry.write(axis, size)
            with code.loop(0, inputs * self.depth) as index:
                geometry.write(index + self.depth, self.table.read(index))

    def align(self, step: Step, astray: Value) -> None:
        with (
            self.code.when(self.flat.get() != 0),
            self.code.loop(0, self.control.read(ADDRESSES) - 1) as index,
        ):
            self.mark(self.addresses.read(index) & VECTOR_BYTES - 1)


class StridedNllFit(ReducedFit, StridedFit):
    """Of the negative log-likelihood over few elements that lie anyhow."""

    name, depth, more = "summed.nll.strided", NLL_AXES + 1, ("strides", "numbers")
    FEW = 0  # facts

    def fit(self, shape: Array, axes: Value) -> None:
        first, second, third, classes = self.sizes(shape, axes, self.fact(self.FEW))
        number = self.numbers.read(0)
        self.expect((axes > 1) & (number < INT32_LIMIT))
        count = first * second * third
        add, parts = self.fit_parts(count, NLL_SUMS)
        target, values, weight, out = (self.steps(place) for place in range(4))
        steps = along(("first", "second", "third"), target=target, values=values, out=out)
        add.put(
            names_of(nll_losses, "count"),
            {
                "count": count, "second_size": second, "third_size": third, **steps,
                "class_stride": values.read(NLL_AXES), "weight_stride": weight.read(NLL_AXES), "classes": classes,
                "ignore_index": (number < -1).choose(-1, number), "parts": parts,
            },
        )  # fmt: skip
