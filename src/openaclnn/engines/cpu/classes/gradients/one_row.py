"""One row of the cross entropy gradient: its numbers, its target's element, and the rest."""

from __future__ import annotations

from openaclnn.engines.cpu.classes.gradients import rows
from openaclnn.engines.cpu.classes.gradients.formula import (
    CONSTANT,
    PLAIN,
    TABLE,
    WEIGHTS,
    Terms,
    foldable,
)
from openaclnn.engines.cpu.classes.gradients.numbers import Numbers, Sums, numbers_of
from openaclnn.engines.cpu.classes.positions.stretches import Stretch
from openaclnn.engines.cpu.classes.shared.parameters import Parameters
from openaclnn.engines.cpu.classes.shared.targets import Targets
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.kinds import SIZE
from openaclnn.engines.machine.values import Value


def emit_one_row(
    code: Code, parameters: Parameters, dtype: str, target: str, position: Value,
    first_class: Value, row: Stretch, sums: Sums, buffers: rows.Buffers,
) -> None:  # fmt: skip
    """A row's chunk of classes. Its target's element is read before and written after all others."""
    size = SIZE[dtype]

    def at(operand: str) -> Value:
        return parameters.address(operand) + position * parameters[f"{operand}.step2"]

    def read(operand: str) -> Value:
        return code.load(at(operand), dtype).to("f64")

    own = Targets(code, parameters, target).at(at("target"))
    label, counted = own.label, own.counted
    with code.when(own.stray, likely=False):
        parameters.report_stray()

    def weight() -> Value:
        step = counted.choose(label, 0) * parameters["weight.class_step"]
        return code.load(parameters.address("weight") + step, "f32").to("f64")

    numbers = numbers_of(code, parameters, sums, counted, weight, read)
    column = label - first_class
    hit = counted & column.below(row.many)
    exact = code.variable(code.double(0.0))
    with code.when(hit):
        exact.set(numbers.at_target(code.load(row.x + column * size, dtype).to("f64")))
    _write(code, parameters, dtype, row, numbers, sums.weight_sum, buffers)
    with code.when(hit):
        code.store(exact.get().to("f32"), row.out + column * size, dtype)


def _write(
    code: Code, parameters: Parameters, dtype: str, row: Stretch, numbers: Numbers,
    weight_sum: Value, buffers: rows.Buffers,
) -> None:  # fmt: skip
    """Choose the cheapest way for a row and take it."""
    smooths = numbers.smooths
    factor, addend, infinite = numbers.rounded()
    table = parameters["table"]
    table = infinite.is_nan().choose(table + 4 * TABLE, table)
    terms = Terms(factor, addend, infinite, table)
    folds = foldable(factor)
    # A NaN among the weights makes their sum and so the whole row NaN: then they need not be read.
    weighted = smooths & parameters.flag("weighted") & ~weight_sum.is_nan()
    ways = [(~smooths, PLAIN, False), (weighted, WEIGHTS, False)]
    if dtype == "f32":
        ways = [
            (folds & ~smooths, PLAIN, True),
            (folds & smooths & ~weighted, CONSTANT, True),
            (folds & weighted, WEIGHTS, True),
            (weighted, WEIGHTS, False),
        ]
    with code.first_of() as written:
        with code.when((factor == 0.0) & (addend == 0.0)):
            filled = rows.emit_zero(code, dtype, row, factor + addend)
            with code.when(filled):
                written()
        for condition, mode, folded in ways:
            with code.when(condition):
                rows.emit_row(code, dtype, mode, row, terms, buffers, folded)
                written()
        rows.emit_row(code, dtype, CONSTANT, row, terms, buffers, folded=False)
