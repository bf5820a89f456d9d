"""aclnnCrossEntropyLoss over fewer classes than a vector has lanes: as many rows at once as there are lanes, class after class.

Alone, a row of 4 classes took 200 ns, its numbers in FLOAT64 one after the other. The bits are those of `rows.py`: so few classes
are added up one by one there, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from openaclnn.engines.cpu.arithmetic import numerics
from openaclnn.engines.cpu.arithmetic.doubles import exp64, log1p_64
from openaclnn.engines.cpu.arithmetic.exponential import Exp
from openaclnn.engines.cpu.classes.logits.chunks import PARTS, below, larger
from openaclnn.engines.cpu.classes.logits.rows import RECORD, SLOTS
from openaclnn.engines.cpu.classes.shared.parameters import Parameters
from openaclnn.engines.cpu.classes.shared.targets import Target, Targets
from openaclnn.engines.machine.cache import Emit
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.values import Shape, Value, fma

__all__ = ["emit_short_rows"]

OPERANDS = ("target", "input", "loss", "log_prob", "square", "lse")


def emit_short_rows(dtype: str, target: str, each: bool) -> Emit:
    """The kernel: pieces of work are rows. It leaves records in scratch memory, or writes each row's loss."""

    def emit(code: Code, arguments: Sequence[Value]) -> None:
        block, first, last = arguments
        rows = _Rows(code, Parameters(code, block, SLOTS), dtype, target, each)
        with code.loop(first, last, code.lanes) as start:
            # Lanes past the end do the last row again.
            rows.write([(start + lane).least(last - 1) for lane in range(code.lanes)])

    return emit


class _Rows:
    """The function being written; what does not depend on the row is read before the loop."""

    def __init__(
        self, code: Code, parameters: Parameters, dtype: str, target: str, each: bool
    ) -> None:
        self.code, self.parameters, self.dtype, self.each = code, parameters, dtype, each
        self.targets = Targets(code, parameters, target)
        self.base = {name: parameters.address(name) for name in OPERANDS}
        self.step = {name: parameters[f"{name}.step2"] for name in OPERANDS}
        self.along = {name: parameters[f"{name}.class_step"] for name in ("input", "log_prob")}
        self.weights, self.weight_step = (
            parameters.address("weight"),
            parameters["weight.class_step"],
        )
        self.weighted, self.smooths, self.zloss, self.returns = (
            parameters.flag(name) for name in ("weighted", "smooths", "zloss", "returns")
        )
        self.opaque, self.exp = numerics.Opaque(code), Exp(code, None, "negative")
        self.x = code.frame("f32", code.lanes * code.lanes)  # class after class
        self.shape = Shape(1, code.lanes)

    def at(self, operand: str, row: Value) -> Value:
        return self.base[operand] + row * self.step[operand]

    def write(self, rows: list[Value]) -> None:
        """All results of some rows; all of theirs is read before anything is written."""
        code, classes = self.code, self.targets.classes
        labels = [code.load(self.at("target", row), self.targets.kind) for row in rows]
        found = self.targets.of(code.lanes_of(labels))
        with code.when(found.stray.reduce("or"), likely=False):
            self.parameters.report_stray()
        inputs = [self.at("input", row) for row in rows]
        highest = code.variable(code.constant("f32", -math.inf, code.lanes))
        with code.loop(0, classes) as current:
            values = self._read([place + current * self.along["input"] for place in inputs])
            self.x.store(values, current * code.lanes)
            highest.set(larger(highest.get(), values))
        top = highest.get()
        others = self._others(top)
        rest = self._rest(top.to("f64"), others)
        self._losses(rows, labels, found, top.to("f64"), rest)
        results = [self.at("log_prob", row) for row in rows]
        with code.loop(0, classes) as current:
            values = (self._class(current) - top) - rest.to("f32")
            narrowed = numerics.narrow(values, self.dtype, self.opaque, any_nan=True)
            for lane, place in enumerate(results):
                where = code.array(place + current * self.along["log_prob"], self.dtype)
                where.write(0, narrowed.lane(lane))

    def _read(self, places: list[Value]) -> Value:
        """An element of each row, as FLOAT."""
        elements = [self.code.array(place, self.dtype).read(0) for place in places]
        return numerics.widen(self.code.lanes_of(elements), self.dtype)

    def _class(self, current: Value) -> Value:
        return self.x.load(current * self.code.lanes, self.shape)

    def _zeros(self, kind: str) -> Value:
        return self.code.constant(kind, 0.0, self.code.lanes)

    def _others(self, top: Value) -> Value:
        """The sum of exp(x - top) over all but one of the largest."""
        code = self.code
        total, ties = (code.variable(self._zeros(kind)) for kind in ("f64", "f32"))
        shift = (top == -math.inf).choose(0.0, top)
        with code.loop(0, self.targets.classes) as current:
            values = self._class(current)
            powers, tie = self.exp(values - shift), values == shift
            ties.set(ties.get() + tie.choose(code.single(1.0), 0.0))
            total.set(total.get() + tie.choose(code.single(0.0), powers).to("f64"))
        powers = total.get() + 0.0
        # A row begins with a sum that is lowered by as much as can be.
        lowered = exp64(code, code.double(-math.inf))
        apart = powers + ((ties.get().to("f64") + 0.0) - 1.0)
        others: Value = (top > -math.inf).choose(apart + lowered, powers + 0.0)
        return others

    def _rest(self, top: Value, others: Value) -> Value:
        """log-sum-exp less the largest; none where that is infinite and no other is."""
        rest = log1p_64(self.code, others)
        many = self.targets.classes > 1
        none = ((top == -math.inf) & many) | ((top == math.inf) & (others >= 0.5))
        unlike: Value = none.choose(math.nan, rest)
        return unlike

    def _losses(
        self, rows: list[Value], labels: list[Value], found: Target, top: Value, rest: Value
    ) -> None:
        code, counted = self.code, found.counted
        safe = [counted.lane(lane).choose(label, 0) for lane, label in enumerate(labels)]
        weight = code.variable(code.constant("f64", 1.0, code.lanes))
        with code.when(self.weighted):
            places = [self.weights + label * self.weight_step for label in safe]
            weight.set(code.lanes_of([code.load(place, "f32") for place in places]).to("f64"))
        own = self._own(safe).to("f64")
        loss = code.variable(-(weight.get() * ((own - top) - rest)))
        with code.when(self.smooths):
            smoothing = self.parameters.double("smoothing")
            classes = self.targets.classes.to("f64")
            loss.set(
                fma(loss.get(), 1.0 - smoothing, smoothing / classes * self._spread(top, rest))
            )
        square = code.variable(code.constant("f64", 0.0, code.lanes))
        with code.when(self.zloss):
            square.set(self.parameters.double("zloss_scale") * (top + rest) * (top + rest))
        ones = code.constant("f64", 1.0, code.lanes)
        parts = [
            counted.choose(part, 0.0) for part in (loss.get(), square.get(), weight.get(), ones)
        ]
        if self.each:
            self._put("loss", rows, parts[0] + parts[1])
        else:
            for lane, row in enumerate(rows):
                record = code.array(self.parameters.scratch + row * (8 * RECORD), "f64")
                for slot, part in enumerate(parts):
                    record.write(slot, part.lane(lane))
        with code.when(self.returns):
            self._put("lse", rows, top + rest)
            if self.each:
                self._put("square", rows, parts[1])

    def _own(self, labels: list[Value]) -> Value:
        """The logit of each row's target."""
        lanes = self.code.lanes
        return self.code.gathered(
            self.x, [label * lanes + lane for lane, label in enumerate(labels)]
        )

    def _spread(self, top: Value, rest: Value) -> Value:
        """What label smoothing adds: the sum of weight * (log-sum-exp - x)."""
        code, largest = self.code, top.to("f32")
        spread, weights = code.variable(self._zeros("f64")), code.variable(code.double(0.0))
        with code.loop(0, self.targets.classes) as current:
            distance = below(self._class(current), largest)
            with code.either(self.weighted) as (weighted, alike):
                with weighted:
                    factor = code.load(self.weights + current * self.weight_step, "f32")
                    spread.set(spread.get() + (distance * factor).to("f64"))
                    weights.set(weights.get() + factor.to("f64"))
                with alike:
                    spread.set(spread.get() + distance.to("f64"))
        count = self.targets.classes.to("f64")
        every = self.weighted.choose(weights.get() + 0.0, count)
        return rest * every - (spread.get() + 0.0) * PARTS

    def _put(self, operand: str, rows: list[Value], values: Value) -> None:
        """A number of each row."""
        rounded = values.to("f32")
        for lane, row in enumerate(rows):
            self.code.store(rounded.lane(lane), self.at(operand, row), self.dtype)
