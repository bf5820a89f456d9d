"""How launches that add up all elements or positions follow from sizes, in machine code: what `reduced` says in Python."""

from __future__ import annotations

from openaclnn.engines.gpu.fit_code import FACTS, Fit
from openaclnn.engines.gpu.fits import blocks, names_of, word
from openaclnn.engines.gpu.operands import INT32_LIMIT
from openaclnn.engines.gpu.reduction_kernel import nll_losses
from openaclnn.engines.gpu.reductions import BLOCK, FLOAT64_BYTES, NLL_SUMS, PARTS
from openaclnn.engines.machine.code import Array
from openaclnn.engines.machine.values import Value

__all__ = ["NllFit", "SumFit"]


class ReducedFit(Fit):
    """Two launches: one adds up, in parts, and one finishes."""

    def fit_parts(self, count: Value, sums: int) -> Value:
        """In how many parts so many are added up, each of which leaves so many sums."""
        code = self.code
        self.expect((count > 0) & (count < INT32_LIMIT))
        parts = blocks(count, BLOCK).least(PARTS)
        way, covered = code.integer(0), 1
        while covered < PARTS:
            way, covered = way + (parts > covered).to("i64"), 2 * covered
        self.scratch.set(parts * (sums * FLOAT64_BYTES))
        for step in (self.sums, self.main):
            step.begin()
        self.sums.programs.set(parts)
        self.main.programs.set(code.integer(1))
        self.main.way.set(way)
        self.main.numbers.write(0, parts)
        return parts

    def product(self, shape: Array, axes: Value, first: int = 0) -> Value:
        """Of the sizes from one on."""
        total = self.code.variable(self.code.integer(1))
        with self.code.loop(first, axes) as axis:
            total.set(total.get() * self.size(shape, axis))
        return total.get()


class SumFit(ReducedFit):
    """Of a formula over row-major operands."""

    name = "summed"
    MEAN, NUMBERS, SOURCES = range(3)  # facts

    def fit(self, shape: Array, axes: Value) -> None:
        code, count = self.code, self.product(shape, axes)
        parts = self.fit_parts(count, 1)
        self.sums.numbers.write(0, count)
        self.sums.numbers.write(1, parts)
        self.main.numbers.write(1, self.fact(self.MEAN).differs(0).choose(count, 1))
        with code.loop(0, self.fact(self.NUMBERS)) as index:
            source = self.control.at(FACTS + self.SOURCES).read(index)
            with code.when(source >= 0):
                number = self.numbers.read(source).bits_as("f64").to("f32")
                self.sums.numbers.write(index + 2, word(number))


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
            parts, each = self.fit_parts(count, NLL_SUMS), self.fact(self.EACH)
            rows = pixels.equals(1)
            self.sums.put(
                names_of(nll_losses, "count"),
                {
                    "count": count, "second_size": rows.choose(1, images), "third_size": rows.choose(count, pixels),
                    "target_second": rows.choose(0, pixels), "values_second": rows.choose(0, classes * pixels),
                    "out_second": rows.choose(0, pixels * each), "values_third": rows.choose(classes, 1),
                    "class_stride": pixels, "classes": classes,
                    "ignore_index": (number < -1).choose(-1, number), "parts": parts,
                },
            )  # fmt: skip
