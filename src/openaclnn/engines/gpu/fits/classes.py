"""How launches with a class axis follow from sizes, in machine code: what `sizes/rows.py` and `sizes/pixels.py` say in Python."""

from __future__ import annotations

from collections.abc import Mapping

from openaclnn.engines.gpu.fits import code as fit_code
from openaclnn.engines.gpu.fits.code import ADDRESSES, Fit, Step
from openaclnn.engines.gpu.fits.flat import blocks, names_of, word
from openaclnn.engines.gpu.kernels.pixels import nll_loss2d_backward
from openaclnn.engines.gpu.kernels.planes import nll_loss2d_backward_planes
from openaclnn.engines.gpu.kernels.rows import cross_entropy_loss_grad
from openaclnn.engines.gpu.kernels.sums import add_up
from openaclnn.engines.gpu.launching.launch import VECTOR_BYTES
from openaclnn.engines.gpu.launching.operands import INT32_LIMIT
from openaclnn.engines.gpu.plans.sums import (
    ADD,
    FEW_PARTS,
    FEW_POSITIONS,
    FINISH,
    FLOAT64_BYTES,
    MANY_PARTS,
    SUM_BLOCK,
    SUMS,
)
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.values import Value

__all__ = ["AnyRowFit", "ClassFit", "NllRowFit", "PixelFit", "RowFit", "places_of"]

STEP_OF = {
    "main": fit_code.MAIN, "anywhere": fit_code.MAIN, "other": fit_code.OTHER, ADD: fit_code.SUMS,
    FINISH: fit_code.FINISH,
}  # fmt: skip
"""The step of each launch that `fitting` names."""


# Where a key has a bit for each of ten pointers that may be off a vector's bounds.
ASTRAY = 64 - 2 - 10


def places_of(bits: Mapping[str, int]) -> dict[str, int]:
    """Where in a key each constant begins, of so many bits each."""
    places, at = {}, 0
    for name, width in bits.items():
        places[name], at = at, at + width
    assert at <= ASTRAY, bits
    return places


class ClassFit(Fit):
    """Kernels with a class axis: what sizes decide of a kernel's constants is its key."""

    WEIGHTED, FEW = range(2)  # facts
    bits: Mapping[str, int] = {"PARTS": 5}
    """The constants that sizes decide, and how many bits each takes in a key; `warps`, and `anywhere` where no address is
    taken as aligned."""
    other_bits: Mapping[str, int] = {"PARTS": 5}
    """The same of the other kernel."""

    def __init__(self, code: Code, control: Array) -> None:
        super().__init__(code, control)
        self.parts = code.variable(code.integer(1))
        self.anywhere = code.variable(code.integer(1))

    def choose(self, step: Step, constants: Mapping[str, Value]) -> None:
        """The kernel that has these constants, and as many parts as there are."""
        bits = self.other_bits if step is self.other else self.bits
        key = self.code.integer(0)
        for name, at in places_of(bits).items():
            own = {"PARTS": self.parts.get(), "anywhere": self.anywhere.get(), **constants}[name]
            key = key | own << at
        step.key.set(key)

    def align(self, step: Step, astray: Value) -> None:
        off = (self.anywhere.get() != 0).choose(0, astray)
        step.key.set(step.key.get() | off << ASTRAY)

    def ignored(self) -> Value:
        """As kernels are told it, see `operands.ignored`."""
        number = self.numbers.read(0)
        self.expect(number < INT32_LIMIT)
        return (number < -1).choose(-1, number)

    def loss_numbers(self) -> dict[str, Value]:
        """The call's numbers as cross entropy's kernels are told them: what `logits.last_of` of `plans/` says."""
        return {
            "ignore_index": self.ignored(), "smoothing": word(self.single(1)), "zloss_scale": word(self.single(2)),
        }  # fmt: skip

    def gradient_numbers(self, ignored: Value) -> dict[str, Value]:
        """The same for its gradients: what `rows.last_numbers` says."""
        smoothing, scale = self.single(1), self.single(2)
        kept = (self.code.double(1.0) - smoothing.to("f64")).to("f32")
        return {
            "ignore_index": ignored, "kept": word(kept), "smoothing": word(smoothing), "zloss_scale": word(scale * 2.0),
        }  # fmt: skip

    def power(self, size: Value, most: int) -> Value:
        """The least power of two that is not below, up to the one that is most."""
        value = self.code.integer(1)
        for _ in range(most.bit_length() - 1):
            value = (value < size).choose(value * 2, value)
        return value

    def fit_sums(self, positions: Value, classes: Value, ignored: Value) -> None:
        """What `sizes/sums.py` says."""
        sums, weighted = self.sums, self.fact(self.WEIGHTED)
        with self.when_summed():
            longest = ((weighted != 0) & (classes > positions)).choose(classes, positions)
            self.expect(longest + (MANY_PARTS + 1) * SUM_BLOCK < INT32_LIMIT)
            many = longest > FEW_POSITIONS
            few_parts = self.power(blocks(longest, SUM_BLOCK), FEW_PARTS)
            parts = many.choose(MANY_PARTS, few_parts)
            self.parts.set(many.choose(1, few_parts))
            end = parts * (SUMS * FLOAT64_BYTES)
            self.finished.set(many.choose(end, 0))
            self.scratch.set(many.choose(end + SUMS * FLOAT64_BYTES, end))
            sums.begin()
            sums.programs.set(parts)
            sums.put(
                names_of(add_up, "count"),
                {
                    "count": positions, "third_size": positions, "classes": classes, "ignore_index": ignored,
                    "parts": parts,
                },
            )  # fmt: skip
            self.finish.begin()
            self.finish.programs.set(weighted * (SUMS - 2) + 2)


class AnyRowFit(ClassFit):
    """Cross entropy's gradients, however rows lie."""

    def put_rows(
        self, step: Step, rows: Value, classes: Value, across: Value, ignored: Value
    ) -> None:
        """The numbers that have nothing to do with strides; `classes` as the kernel is told them."""
        step.put(
            names_of(cross_entropy_loss_grad, "rows"),
            {
                "rows": rows, "classes": classes, "class_blocks": across,
                **self.gradient_numbers(ignored),
            },
        )  # fmt: skip


class RowFit(AnyRowFit):
    """Of row-major (rows, classes); the other kernel counts its targets itself."""

    name, axes = "rows", 2
    TALL, WIDE, WARPS, ITEM, VECTOR, SHORTEST, LOGITS, COUNTED = range(2, 10)  # more facts
    bits: Mapping[str, int] = {
        "PARTS": 5, "UNIT": 5, "CLASSES_UNIT": 5, "VECTOR": 5, "ROWS": 12, "CLASSES": 12, "warps": 4, "anywhere": 1,
    }  # fmt: skip
    other_bits = bits

    def fit(self, shape: Array, axes: Value) -> None:
        code = self.code
        rows, classes = (self.size(shape, axis) for axis in range(2))
        # A row of one class is no longer than the step to the next: other constants.
        self.expect((classes > 1) & (classes < INT32_LIMIT) & (rows < INT32_LIMIT))
        few, ignored = rows * classes <= self.fact(self.FEW), self.ignored()
        counts = few & (rows <= self.fact(self.COUNTED))
        self.replaced.set(counts.to("i64"))
        with code.when(counts):
            self.summed.set(code.integer(0))
        self.fit_sums(rows, classes, ignored)

        off, out_off = (
            self.addresses.read(place) & VECTOR_BYTES - 1
            for place in (code.integer(2), self.control.read(ADDRESSES) - 1)
        )
        vector = self.fact(self.VECTOR)
        shifted = ((off | classes % vector) != 0) & (off == out_off)
        shifted = shifted & (classes >= self.fact(self.SHORTEST)) & ~few
        longest = shifted.choose(classes + vector - 1, classes)
        tall, wide, warps = self.tile(rows, longest, shifted)
        tall, wide, warps = (
            few.choose(self.fact(own), usual)
            for own, usual in zip(
                (self.TALL, self.WIDE, self.WARPS), (tall, wide, warps), strict=True
            )
        )
        unit = few.choose(1, power_of_two(classes))
        self.anywhere.set((few | shifted).to("i64"))
        across, apart = blocks(longest, wide), classes // unit
        programs = across * blocks(rows, tall)
        self.expect(programs < INT32_LIMIT)
        step = self.step(counts.choose(fit_code.OTHER, code.integer(fit_code.MAIN)))
        step.begin()
        step.programs.set(programs)
        self.put_rows(step, rows, apart, across, ignored)
        step.put(
            names_of(cross_entropy_loss_grad, "rows"), {"log_prob_row": apart, "out_row": apart}
        )
        self.choose(
            step,
            {
                "UNIT": unit, "CLASSES_UNIT": unit, "VECTOR": shifted.choose(vector, 0), "ROWS": tall,
                "CLASSES": wide, "warps": warps,
            },
        )  # fmt: skip

    def tile(self, rows: Value, longest: Value, shifted: Value) -> tuple[Value, Value, Value]:
        """What `row_tile` of `plans/rows.py` says."""
        long, narrow = longest > 1024, self.fact(self.ITEM) < 4
        most = narrow.choose(2048, self.code.integer(1024))
        wide = self.power(longest, 2048).least(most)
        tall = self.power(rows, 2048).least(most // wide)
        warps = clamped(tall * wide // 128)
        over = (self.fact(self.LOGITS) != 0) & (longest >= 1 << 14)
        alone = narrow & long
        wide = alone.choose(over.choose(2048, self.code.integer(1024)), wide)
        tall, warps = alone.choose(1, tall), alone.choose(2, warps)
        brief = shifted & long & (longest < 1 << 14)
        return (
            brief.choose(1, tall),
            brief.choose(1024, wide),
            brief.choose(narrow.choose(1, self.code.integer(2)), warps),
        )


def power_of_two(size: Value) -> Value:
    """The largest up to 16 that divides a size."""
    return (size & -size).least(16)


def clamped(warps: Value) -> Value:
    """From 1 to 4."""
    return (warps < 1).choose(1, warps.least(4))


class PixelFit(ClassFit):
    """NLL's gradient over row-major (images, classes, height, width); the other kernel is that of odd planes."""

    name, axes = "pixels", 4
    (
        ACROSS, CHUNK, WARPS, EACH, ITEM, MOST, PANEL, FEW_PIXELS, PLANE_CLASSES, PLANE_VECTOR, PLANE_BLOCK,
    ) = range(2, 13)  # fmt: skip
    bits: Mapping[str, int] = {
        "PARTS": 5, "PIXEL_STEP": 2, "CLASS_STEP": 2, "READ_UNIT": 5, "UNIT": 5, "PIXELS_UNIT": 5, "CHUNKED": 1,
        "ACROSS": 12, "CLASSES": 8, "warps": 4, "anywhere": 1,
    }  # fmt: skip

    def lengths(self, shape: Array) -> tuple[Value, Value, Value]:
        """Images, classes, pixels of one image."""
        images, classes, height, width = (self.size(shape, axis) for axis in range(4))
        return images, classes, height * width

    def fit(self, shape: Array, axes: Value) -> None:
        images, classes, pixels = self.lengths(shape)
        # One class of one pixel has other steps; what is left are numbers of 32 bits, and offsets inside a program's reach.
        self.expect((pixels > 1) | (classes > 1))
        for size in (images, classes, pixels):
            self.expect(size < INT32_LIMIT)
        with self.when_fit():
            self.expect((classes + 1) * pixels + 512 < INT32_LIMIT)
        ignored = self.ignored()
        self.fit_sums(images * pixels, classes, ignored)
        aligned = self.code.integer(VECTOR_BYTES) // self.fact(self.ITEM)
        odd = (pixels >= self.fact(self.FEW_PIXELS)) & ((pixels % aligned) != 0)
        self.replaced.set(odd.to("i64"))
        self.fit_planes(images, classes, pixels, ignored)
        self.fit_pixels(images, classes, pixels, ignored)

    def fit_pixels(self, images: Value, classes: Value, pixels: Value, ignored: Value) -> None:
        """What `pixels.Pixels` says: images of one pixel are the pixels of one that has its channels last."""
        code, main = self.code, self.main
        few = images * classes * pixels <= self.fact(self.FEW)
        last = pixels == 1
        own, seconds = last.choose(images, pixels), last.choose(1, images)
        wide = last.choose(self.power(classes, 128), 1)
        across = last.choose(
            self.power(images, 2048).least(code.integer(2048) // wide), self.power(pixels, 512)
        )
        warps = clamped(last.choose(across * wide * self.fact(self.ITEM) // 512, across // 128))
        most = last.choose(classes, self.fact(self.MOST))
        unit = power_of_two(last.choose(classes, pixels))
        read_unit, own_unit = last.choose(16, unit), power_of_two(own)
        wide, across = few.choose(1, wide), few.choose(self.fact(self.ACROSS), across)
        warps, most = (
            few.choose(self.fact(self.WARPS), warps),
            few.choose(self.fact(self.CHUNK), most),
        )
        unit, read_unit, own_unit = (few.choose(1, one) for one in (unit, read_unit, own_unit))
        self.expect(across * classes + wide < INT32_LIMIT)

        along, chunks = blocks(own, across), blocks(classes, most)
        panels = blocks(along * across, self.fact(self.PANEL))
        panel_blocks = blocks(along, panels)
        programs = seconds * panels * chunks * panel_blocks
        self.expect(programs < INT32_LIMIT)
        main.begin()
        main.programs.set(programs)
        read = last.choose(0, pixels // read_unit)
        main.put(
            names_of(nll_loss2d_backward, "pixels"),
            {
                "pixels": own // own_unit, "second_size": seconds, "second_blocks": seconds, "panels": panels,
                "panel_blocks": panel_blocks, "classes": classes, "chunk_classes": blocks(classes, chunks),
                "chunks": chunks, "target_second": read, "gradient_second": read * self.fact(self.EACH),
                "out_second": last.choose(0, classes * pixels // unit),
                "out_pixel": last.choose(classes // unit, 0), "out_class": last.choose(0, pixels // unit),
                "ignore_index": ignored,
            },
        )  # fmt: skip
        self.anywhere.set((few | (self.replaced.get() != 0)).to("i64"))
        self.choose(
            main,
            {
                "PIXEL_STEP": last.choose(2, code.integer(1)), "CLASS_STEP": last.choose(1, code.integer(2)),
                "READ_UNIT": read_unit, "UNIT": unit, "PIXELS_UNIT": own_unit,
                "CHUNKED": (few | (chunks > 1)).to("i64"), "ACROSS": across, "CLASSES": wide, "warps": warps,
            },
        )  # fmt: skip

    def fit_planes(self, images: Value, classes: Value, pixels: Value, ignored: Value) -> None:
        """What `pixels._Planes` says."""
        other = self.other
        across = blocks(pixels + self.fact(self.PLANE_VECTOR) - 1, self.fact(self.PLANE_BLOCK))
        chunks = blocks(classes, self.fact(self.PLANE_CLASSES))
        other.begin()
        other.programs.set(images * chunks * across)
        other.put(
            names_of(nll_loss2d_backward_planes, "pixels"),
            {
                "pixels": pixels, "second_size": images, "blocks": across, "classes": classes,
                "chunk_classes": blocks(classes, chunks), "chunks": chunks, "target_second": pixels,
                "gradient_second": pixels * self.fact(self.EACH), "out_second": classes * pixels,
                "out_class": pixels, "ignore_index": ignored,
            },
        )  # fmt: skip
        self.choose(other, {})


class NllRowFit(PixelFit):
    """NLL's gradient over row-major (rows, classes): rows are images of one pixel."""

    name, axes = "pixels.rows", 2

    def lengths(self, shape: Array) -> tuple[Value, Value, Value]:
        rows, classes = (self.size(shape, axis) for axis in range(2))
        return rows, classes, self.code.integer(1)
