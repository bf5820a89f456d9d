"""How launches of cross entropy from logits of images follow from sizes, in machine code: what `sizes/logit_pixels.py` says in Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from openaclnn.engines.gpu.fits import code as fit_code
from openaclnn.engines.gpu.fits.classes import ClassFit, power_of_two
from openaclnn.engines.gpu.fits.code import Step
from openaclnn.engines.gpu.fits.flat import blocks, names_of
from openaclnn.engines.gpu.kernels.logit_pixels import pixel_gradients, pixel_losses
from openaclnn.engines.gpu.launching.launch import VECTOR_BYTES
from openaclnn.engines.gpu.launching.operands import INT32_LIMIT
from openaclnn.engines.gpu.plans.logit_pixels import (
    FEW_EACH,
    MANY,
    MOST_BLOCK,
    SUM_BYTES,
    THREADS,
)
from openaclnn.engines.machine.code import Array
from openaclnn.engines.machine.values import Value

__all__ = ["PixelGradientFit", "PixelLossFit"]

CONSTANTS = {"DENSE": 1, "UNIT": 5, "PIXELS_UNIT": 5, "BLOCK": 11}
LONGEST = THREADS * VECTOR_BYTES // 2  # a block, of the shortest elements


class Images(NamedTuple):
    """The sizes of a call."""

    images: Value
    classes: Value
    pixels: Value  # of each image

    @property
    def positions(self) -> Value:
        return self.images * self.pixels


class ImageFit(ClassFit):
    """Of row-major (images, classes, ...), whatever the number of axes."""

    VECTOR, EACH = range(
        1, 3
    )  # facts: elements of a vector; whether losses, or their gradients, are of each pixel
    full: tuple[str, ...] = ("x",)
    """What of the kernel's operands has classes."""
    perhaps = ""
    """What has a number for each pixel where EACH says so, beside those that always have."""

    def fit(self, shape: Array, axes: Value) -> None:
        code = self.code
        self.anywhere.set(code.integer(0))
        self.expect(axes >= 2)
        pixels = code.variable(code.integer(1))
        with code.loop(2, axes) as axis:
            side = self.size(shape, axis)
            self.expect((side > 0) & (side < INT32_LIMIT))
            pixels.set(pixels.get() * side)
            self.expect(pixels.get() < INT32_LIMIT)
        with self.when_fit():
            own = Images(self.size(shape, 0), self.size(shape, 1), pixels.get())
            # One class or one pixel in all has other strides.
            self.expect((own.classes > 1) & (own.classes < INT32_LIMIT))
            self.expect((own.images > 0) & (own.images < INT32_LIMIT))
            with self.when_fit():
                self.expect(own.positions > 1)
                self.fit_images(own)

    def fit_images(self, own: Images) -> None:
        """All launches."""
        raise NotImplementedError

    def fit_pixels(self, step: Step, names: list[str], own: Images) -> None:
        """What `plans.logit_pixels.Pixels` says: images of a pixel each are the pixels of one that has its classes side by side."""
        images, classes, pixels = own
        dots = pixels == 1
        lanes, seconds = dots.choose(images, pixels), dots.choose(1, images)
        most = (own.positions >= MANY).choose(self.fact(self.VECTOR), FEW_EACH) * THREADS
        block = self.power(lanes, LONGEST).least(most)
        across, unit = blocks(lanes, block), dots.choose(1, power_of_two(pixels))
        lanes_unit = power_of_two(lanes)
        programs = seconds * across
        # To the next image, and to the next pixel, which the kernel knows unless it is 1.
        second, pixel = (seconds == 1).choose(0, pixels // unit), (unit == 1).to("i64")
        self.expect((programs < INT32_LIMIT) & (classes * second < INT32_LIMIT))
        step.begin()
        step.programs.set(programs)
        numbers = {
            "pixels": lanes // lanes_unit, "seconds": seconds, "blocks": across, "classes": classes,
            f"{self.perhaps}_second": second * self.fact(self.EACH),
            f"{self.perhaps}_pixel": pixel * self.fact(self.EACH),
        }  # fmt: skip
        for name in ("target", "top", "rest"):
            numbers |= {f"{name}_second": second, f"{name}_pixel": pixel}
        for name in self.full:
            numbers |= {
                f"{name}_second": second * classes, f"{name}_pixel": dots.choose(classes, pixel),
                f"{name}_class": pixels // unit,
            }  # fmt: skip
        step.put(names, numbers)
        self.choose(
            step,
            {"DENSE": (~dots).to("i64"), "UNIT": unit, "PIXELS_UNIT": lanes_unit, "BLOCK": block},
        )


class PixelLossFit(ImageFit):
    """The other kernel reads the logits, the first one adds up, if anything is added up."""

    name, perhaps = "logit_pixels.losses", "out"
    bits: Mapping[str, int] = {"BLOCK": 11}
    other_bits = CONSTANTS

    def fit_images(self, own: Images) -> None:
        names = names_of(pixel_losses, "pixels")
        self.fit_pixels(self.other, names, own)
        self.other.put(names, self.loss_numbers())
        programs = self.other.programs.get()
        self.scratch.set(programs * SUM_BYTES)
        self.main.begin()
        self.main.programs.set(self.code.integer(1))
        self.main.numbers.write(0, programs)
        self.choose(self.main, {"BLOCK": self.power(programs, MOST_BLOCK)})

    def wanted(self) -> dict[int, Value]:
        return {fit_code.OTHER: self.code.integer(1), fit_code.MAIN: self.summed.get()}


class PixelGradientFit(ImageFit):
    """Sums come first, if it takes any."""

    name, perhaps, full = "logit_pixels.gradients", "gradient", ("x", "out")
    bits: Mapping[str, int] = {"PARTS": 5, **CONSTANTS}

    def fit_images(self, own: Images) -> None:
        ignored, names = self.ignored(), names_of(pixel_gradients, "pixels")
        self.fit_sums(own.positions, own.classes, ignored)
        self.fit_pixels(self.main, names, own)
        self.main.put(names, self.gradient_numbers(ignored))
