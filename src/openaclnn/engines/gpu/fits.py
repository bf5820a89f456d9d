"""How launches of each access pattern follow from sizes, in machine code: what `sizes` of `elementwise`, `rows` and `pixels`
say in Python, for the sizes that small calls have.
"""

from __future__ import annotations

from typing import Any

from openaclnn.engines.gpu.fit_code import FORMS, Fit, Step
from openaclnn.engines.gpu.operands import INT32_LIMIT
from openaclnn.engines.gpu.pixel_kernel import nll_loss2d_backward
from openaclnn.engines.gpu.row_kernel import cross_entropy_loss_grad
from openaclnn.engines.gpu.sum_kernel import add_up
from openaclnn.engines.gpu.sums import FEW_PARTS, FEW_POSITIONS, FLOAT64_BYTES, SUM_BLOCK, SUMS
from openaclnn.engines.gpu.tuned import CHOICES
from openaclnn.engines.machine.code import Array
from openaclnn.engines.machine.values import Value

__all__ = [
    "AnyRowFit",
    "ClassFit",
    "FlatFit",
    "PixelFit",
    "RowFit",
    "blocks",
    "flat_fit",
    "names_of",
    "word",
]

UNITS = 5  # powers of two up to 16
MAX_FORMS = 5
ANYWHERE = MAX_FORMS * UNITS  # the first way of those that take no address as aligned
MAX_FORM_NUMBERS = 12
# Of each form: how many numbers, then each one's word, and which of the values known at the call it is instead, or -1.
FORM_WORDS, FORM_SOURCES = 1, 1 + MAX_FORM_NUMBERS
FORM_SLOTS = 1 + 2 * MAX_FORM_NUMBERS
# Those values are the call's numbers, one over the count, and what a choice of forms makes.
SHARE, MADE, KNOWN = 4, 5, 8


def blocks(size: Value, block: Value | int) -> Value:
    """How many blocks cover a size."""
    return (size + block - 1) // block


def names_of(kernel: Any, first: str) -> list[str]:
    """A kernel's parameters from the first number on."""
    names: list[str] = kernel.arg_names
    return names[names.index(first) :]


def word(number: Value) -> Value:
    """A FLOAT as a parameter."""
    return number.bits_as("i32").unsigned("i64")


class FlatFit(Fit):
    """Elementwise kernels over dense operands: a kernel for each form and each power of two that divides the count.

    As many more serve few elements anywhere.
    """

    name = "flat"
    BLOCK, EXACT, FEW = range(3)  # facts
    choice = ""

    def fit(self, shape: Array, axes: Value) -> None:
        code, main = self.code, self.main
        count = code.variable(code.integer(1))
        with code.loop(0, axes) as axis:
            count.set(count.get() * self.size(shape, axis))
        total, block = count.get(), self.fact(self.BLOCK)
        self.expect((total > 0) & (total + block < INT32_LIMIT))
        unit = code.integer(0)
        for power in range(1, UNITS):
            unit = unit + (total & (1 << power) - 1).equals(0).to("i64")
        main.begin()
        main.numbers.write(0, total >> unit)
        main.programs.set(blocks(total, block))
        known = code.frame("i64", KNOWN)
        numbers = [self.single(index) for index in range(SHARE)]
        for place, number in enumerate(numbers):
            known.write(place, word(number))
        known.write(SHARE, word((code.double(1.0) / total.to("f64")).to("f32")))
        form = code.integer(0)
        if self.choice:
            choice = CHOICES[self.choice]
            form, made = choice.write(code, self.fact(self.EXACT).differs(0), numbers[0])
            for place, number in enumerate(made, MADE):
                known.write(place, word(number))
        main.way.set(form * UNITS + unit)
        self.total = count
        own = self.control.at(form * FORM_SLOTS + FORMS)
        with code.loop(0, own.read(0)) as index:
            source, fixed = own.at(FORM_SOURCES).read(index), own.at(FORM_WORDS).read(index)
            main.numbers.write(index + 1, fixed)
            with code.when(source >= 0):
                main.numbers.write(index + 1, known.read(source))

    def align(self, step: Step, astray: Value) -> None:
        with self.code.when(astray.differs(0)):
            self.expect(self.total.get() <= self.fact(self.FEW))
            step.way.set(step.way.get() + ANYWHERE)


def flat_fit(kernel: str) -> type[FlatFit]:
    """The fit of a kernel, which may choose among forms by its numbers."""
    if kernel not in CHOICES:
        return FlatFit
    return type("ChosenFit", (FlatFit,), {"name": f"flat.{kernel}", "choice": kernel})


class ClassFit(Fit):
    """Kernels with a class axis on few elements, for which no size selects code but by the parts of a sum."""

    WEIGHTED, FEW = range(2)  # facts

    def ignored(self) -> Value:
        """As kernels are told it, see `operands.ignored`."""
        number = self.numbers.read(0)
        self.expect(number < INT32_LIMIT)
        return (number < -1).choose(-1, number)

    def fit_sums(self, positions: Value, classes: Value, ignored: Value) -> None:
        """What `sums.sized_with_sums` says, of as few positions as have no launch of their own that finishes."""
        code, sums = self.code, self.sums
        self.main.begin()
        with self.when_summed():
            weighed = self.fact(self.WEIGHTED).differs(0) & (classes > positions)
            longest = weighed.choose(classes, positions)
            self.expect(longest <= FEW_POSITIONS)
            needed, way, parts = blocks(longest, SUM_BLOCK), code.integer(0), 1
            while parts < FEW_PARTS:
                way, parts = way + (needed > parts).to("i64"), 2 * parts
            self.main.way.set(way)
            parts_now = code.integer(1) << way
            self.scratch.set(parts_now * (SUMS * FLOAT64_BYTES))
            sums.begin()
            sums.programs.set(parts_now)
            sums.put(
                names_of(add_up, "count"),
                {
                    "count": positions, "third_size": positions, "classes": classes, "ignore_index": ignored,
                    "parts": parts_now,
                },
            )  # fmt: skip


class AnyRowFit(ClassFit):
    """Cross entropy's gradients, however rows lie."""

    def put_rows(self, rows: Value, classes: Value, across: Value, ignored: Value) -> None:
        """The numbers that have nothing to do with strides."""
        smoothing, scale = self.single(1), self.single(2)
        kept = (self.code.double(1.0) - smoothing.to("f64")).to("f32")
        self.main.put(
            names_of(cross_entropy_loss_grad, "rows"),
            {
                "rows": rows, "classes": classes, "class_blocks": across, "ignore_index": ignored,
                "kept": word(kept), "smoothing": word(smoothing), "zloss_scale": word(scale * 2.0),
            },
        )  # fmt: skip


class RowFit(AnyRowFit):
    """Of row-major (rows, classes)."""

    name, axes = "rows", 2
    TALL, WIDE = 2, 3  # more facts

    def fit(self, shape: Array, axes: Value) -> None:
        main = self.main
        rows, classes = (self.size(shape, axis) for axis in range(2))
        # A row of one class is no longer than the step to the next: other constants.
        self.expect((classes > 1) & (rows * classes <= self.fact(self.FEW)))
        ignored = self.ignored()
        self.fit_sums(rows, classes, ignored)
        across = blocks(classes, self.fact(self.WIDE))
        main.programs.set(across * blocks(rows, self.fact(self.TALL)))
        self.put_rows(rows, classes, across, ignored)
        names = names_of(cross_entropy_loss_grad, "rows")
        main.put(names, {"log_prob_row": classes, "out_row": classes})


class PixelFit(ClassFit):
    """NLL's gradient over row-major (images, classes, height, width)."""

    name, axes = "pixels", 4
    ACROSS, CHUNK, FEW_PIXELS, EACH = range(2, 6)  # more facts

    def fit(self, shape: Array, axes: Value) -> None:
        main = self.main
        images, classes, height, width = (self.size(shape, axis) for axis in range(4))
        pixels = height * width
        # Images of one pixel, and planes that may have a kernel of their own, are left to Python.
        self.expect((pixels > 1) & (pixels < self.fact(self.FEW_PIXELS)))
        self.expect(images * classes * pixels <= self.fact(self.FEW))
        ignored = self.ignored()
        self.fit_sums(images * pixels, classes, ignored)
        across = blocks(pixels, self.fact(self.ACROSS))
        chunks = blocks(classes, self.fact(self.CHUNK))
        main.programs.set(images * chunks * across)
        each = self.fact(self.EACH)  # 0: one gradient for all pixels
        main.put(
            names_of(nll_loss2d_backward, "pixels"),
            {
                "pixels": pixels, "second_size": images, "second_blocks": images, "panel_blocks": across,
                "classes": classes, "chunk_classes": blocks(classes, chunks), "chunks": chunks,
                "target_second": pixels, "gradient_second": pixels * each,
                "out_second": classes * pixels, "out_class": pixels, "ignore_index": ignored,
            },
        )  # fmt: skip
