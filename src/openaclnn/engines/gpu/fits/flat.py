"""How elementwise launches over dense operands follow from sizes, in machine code: what `sizes/elementwise.py` says in Python. Tests
compare the two word for word, here and in the files beside it.
"""

from __future__ import annotations

from typing import Any

from openaclnn.engines.gpu.fits.code import FORMS, MASKS, Fit, Step
from openaclnn.engines.gpu.formulas.tuned import CHOICES
from openaclnn.engines.gpu.launching.operands import INT32_LIMIT
from openaclnn.engines.machine.code import Array
from openaclnn.engines.machine.values import Value

__all__ = ["FlatFit", "blocks", "flat_fit", "names_of", "word"]

UNITS = 5  # powers of two up to 16
MAX_FORMS = 5
# The first ways of those that take no address as aligned, and of those that take all as equally far from it.
ANYWHERE, ALIKE = MAX_FORMS * UNITS, 2 * MAX_FORMS * UNITS
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

    As many more serve few elements anywhere, and one for each form many that begin equally far from a vector's bounds.
    """

    name = "flat"
    BLOCK, EXACT, FEW, VECTOR = range(4)  # facts
    choice = ""

    def fit(self, shape: Array, axes: Value) -> None:
        code, main = self.code, self.main
        count = code.variable(code.integer(1))
        with code.loop(0, axes) as axis:
            count.set(count.get() * self.size(shape, axis))
        total, block = count.get(), self.fact(self.BLOCK)
        self.expect((total > 0) & (total + block * 2 < INT32_LIMIT))
        unit = code.integer(0)
        for power in range(1, UNITS):
            unit = unit + ((total & (1 << power) - 1) == 0).to("i64")
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
            form, made = choice.write(code, self.fact(self.EXACT) != 0, numbers[0])
            for place, number in enumerate(made, MADE):
                known.write(place, word(number))
        main.way.set(form * UNITS + unit)
        self.total, self.form = count, code.variable(form)
        own = self.control.at(form * FORM_SLOTS + FORMS)
        with code.loop(0, own.read(0)) as index:
            source, fixed = own.at(FORM_SOURCES).read(index), own.at(FORM_WORDS).read(index)
            main.numbers.write(index + 1, fixed)
            with code.when(source >= 0):
                main.numbers.write(index + 1, known.read(source))

    def align(self, step: Step, astray: Value) -> None:
        code, total, vector = self.code, self.total.get(), self.fact(self.VECTOR)
        off, few = astray != 0, total <= self.fact(self.FEW)
        with code.when(off & few):
            step.way.set(step.way.get() + ANYWHERE)
        with code.when(off & ~few):
            self.expect(vector > 0)
            out = step.values.read(step.pointers - 1)
            with code.loop(0, step.pointers) as index:
                own = step.values.read(index)
                self.mark((own ^ out) & step.block.at(MASKS).read(index))
            step.way.set(self.form.get() + ALIKE)
            step.numbers.write(0, total)
            step.programs.set(blocks(total + vector - 1, self.fact(self.BLOCK)))


def flat_fit(kernel: str) -> type[FlatFit]:
    """The fit of a kernel, which may choose among forms by its numbers."""
    if kernel not in CHOICES:
        return FlatFit
    return type("ChosenFit", (FlatFit,), {"name": f"flat.{kernel}", "choice": kernel})
