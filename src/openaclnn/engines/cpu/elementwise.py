"""Elementwise kernels: which formula serves a plan, and its runner.

A formula gets a `Site` (the function being written) and emits the vector loop for dense or single-valued
operands; `tiles` brings every other geometry to that form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir

from openaclnn.core.dtypes import FLOAT, FLOAT16, FLOATS, DType
from openaclnn.core.plan import Operand, Plan
from openaclnn.engines.cpu import numerics, tiles
from openaclnn.engines.cpu.simd import ITEMSIZE, Opaque, Value, Values, Vec, loops, machine
from openaclnn.engines.machine import cache
from openaclnn.engines.machine.words import F32, I32, PTR, i64, read_slot


class Formula(NamedTuple):
    """How to compute a plan's elements."""

    name: str  # tells this code from others', together with the operands' dtypes
    emit: Callable[[Site], None]
    numbers: tuple[float, ...] = ()  # run-time constants, as float32
    table: Any = None  # 65,536 float32 values, after the numbers


class Site:
    """The function under construction: its operands, numbers and loop."""

    def __init__(
        self,
        builder: Any,
        arguments: Any,
        numbers: int,
        table: bool,
        signature: Signature,
        lanes: int,
    ) -> None:
        block, start, stop = arguments
        self.builder, self.signature, self.lanes = builder, signature, lanes
        self.count = builder.sub(stop, start)
        self.opaque = Opaque(builder, lanes)
        words = [read_slot(builder, block, 1 + index) for index in range(numbers)]
        self.numbers = [builder.bitcast(builder.trunc(word, I32), F32) for word in words]
        first = 1 + numbers
        if table:
            self.table = builder.inttoptr(read_slot(builder, block, first), PTR)
            first += 1
        self.pointers = []
        for index, dtype in enumerate((*signature.inputs, signature.output)):
            address = read_slot(builder, block, first + index)
            if index not in signature.single:
                address = builder.add(address, builder.mul(start, i64(ITEMSIZE[dtype])))
            self.pointers.append(builder.inttoptr(address, PTR))
        one = Vec(builder, 1, 1)
        self.singles = {
            index: builder.extract_element(
                numerics.load(one, self.pointers[index], i64(0), signature.inputs[index])[0],
                ir.Constant(I32, 0),
            )
            for index in signature.single
        }

    def load(self, vec: Vec, operand: int, index: Value, volatile: bool = False) -> Values:
        """An input's values as float32."""
        if operand in self.singles:
            return [vec.splat(self.singles[operand])] * vec.streams
        dtype = self.signature.inputs[operand]
        return numerics.load(vec, self.pointers[operand], index, dtype, volatile)

    def load_in_order(self, vec: Vec, operands: Sequence[int], index: Value) -> list[Values]:
        """Inputs loaded one after another, as written, where only memory is the limit.

        LLVM would put each load next to its use, which hides less of the memory's latency: smooth L1 on
        2^24 FLOAT elements took 6.9 ms so and takes 6.2 in order (PyTorch 6.7, a bare loop over the bytes 6.3).
        """
        plain = all(dtype == "f32" for dtype in self.signature.inputs)
        return [self.load(vec, operand, index, volatile=plain) for operand in operands]

    def streaming(self, otherwise: int) -> int:
        """Streams for a loop that memory limits: nine, where three inputs of nine vectors fit the registers."""
        plain = all(dtype == "f32" for dtype in self.signature.inputs)
        return 9 if plain and machine().registers >= 32 else otherwise

    def loop(self, streams: int, body: Callable[[Vec, Value], Values]) -> None:
        """Write what `body` computes for every index: rounded to the computation type, then the output's."""
        inputs, compute, output = (
            self.signature.inputs,
            self.signature.compute,
            self.signature.output,
        )
        any_nan = any(dtype != "bf16" for dtype in inputs)

        def one(vec: Vec, index: Value) -> None:
            values = body(vec, index)
            if compute not in ("f32", output):
                rounded = numerics.narrow(vec, values, compute, self.opaque, any_nan)
                values = vec.each(lambda v: numerics.widen(self.builder, v, compute), rounded)
            numerics.store(vec, values, self.pointers[-1], index, output, self.opaque, any_nan)

        loops(self.builder, self.count, _fitting(streams, self.lanes), one, self.lanes)

    def not_positive(self, vec: Vec, x: Values) -> Values:
        """x <= 0, which is false for NaN."""
        narrow = "f16" in self.signature.inputs
        zero = self.opaque.zero(vec.lanes) if narrow else vec.const(0.0)
        return vec.compare("<=", x, zero)


def _fitting(streams: int, lanes: int) -> int:
    """Streams were chosen for 32 registers; half as many fit into 16."""
    return streams if machine().registers >= 32 else max(1, streams // 2)


class Signature(NamedTuple):
    """The dtypes a kernel is compiled for, and which inputs are one value for all elements."""

    inputs: tuple[str, ...]
    compute: str
    output: str
    single: tuple[int, ...] = ()

    def __str__(self) -> str:
        kinds = [name + "!" * (index in self.single) for index, name in enumerate(self.inputs)]
        return f"{','.join(kinds)}:{self.compute}->{self.output}"


def kernel_address(formula: Formula, signature: Signature, lanes: int | None = None) -> int:
    """The compiled flat kernel of a formula."""
    wide = lanes or machine().lanes
    table = formula.table is not None

    def emit(builder: Any, arguments: Any) -> None:
        formula.emit(Site(builder, arguments, len(formula.numbers), table, signature, wide))

    return cache.compiled(f"{formula.name} {signature} x{wide}", emit)


def constants(formula: Formula) -> list[int]:
    """The numbers' bits, and the table's address, as the kernel's first arguments."""
    # A NaN's payload would survive the rounding to bfloat16 only by luck: all become the plain one.
    values = [math.nan if math.isnan(value) else value for value in formula.numbers]
    bits = [int(word) for word in np.array(values, np.float32).view(np.uint32)]
    return bits if formula.table is None else [*bits, formula.table.ctypes.data]


def declines(plan: Plan) -> str | None:
    """Why these kernels do not serve a plan."""
    from openaclnn.engines.cpu.formulas import FORMULAS

    if plan.kernel not in FORMULAS:
        return f"no Numba kernel is called {plan.kernel}"
    kinds = {operand.dtype for operand in (*plan.inputs, plan.output)}
    if not kinds <= set(FLOATS):
        return "integer, DOUBLE and COMPLEX operands are served by NumPy"
    if FLOAT16 in kinds and not machine().half:
        return "this CPU has no float16 conversions"
    return None


def runner(plan: Plan, lanes: int | None = None) -> Callable[[Sequence[int], int], int]:
    """What runs a plan that `declines` has nothing against."""
    from openaclnn.engines.cpu.formulas import FORMULAS

    formula = FORMULAS[plan.kernel](plan)
    form = tiles.arrange(plan)
    dtypes = tuple(operand.dtype.short for operand in plan.inputs)
    signature = Signature(dtypes, plan.compute.short, plan.output.dtype.short, form.single)
    kernel = kernel_address(formula, signature, lanes)
    return tiles.runner(plan, form, kernel, constants(formula), keep=formula)


def variants() -> Iterator[Plan]:
    """Plans that between them need every kernel of one dtype throughout, dense and with one gradient."""
    from openaclnn.engines.cpu.elu import TABLE_FROM

    elu = (
        (1, 1, 1, False), (2, 1, 1, False), (2, 1, 0.7, False), (2, 1, -0.7, False), (0, 1, 1, False),
        (0.5, 1, 1, False), (1, 0.5, 1, False), (1, 1, 0.5, False), (1, 1, -0.5, False),
        (1, 1, 1, True), (1, 1, 0.7, True),
    )  # fmt: skip
    for dtype in FLOATS:
        for alpha, scale, inner, is_result in elu:
            numbers = {"alpha": alpha, "scale": scale, "input_scale": inner, "is_result": is_result}
            for count in (1, TABLE_FROM) if dtype is not FLOAT else (1,):
                yield _dense("elu_backward", dtype, numbers, count, (1, 1))
        for strides in ((1, 1, 1), (0, 1, 1)):
            for mean in (1.0, 0.5):
                yield _dense("l1_loss_backward", dtype, {"mean_scale": mean}, 2, strides)
                for beta in (0.0, 0.7, 1.0, 2.0):
                    numbers = {"mean_scale": mean, "beta": beta}
                    yield _dense("smooth_l1_loss_backward", dtype, numbers, 2, strides)
        # A strided and a transposed geometry bring in the driver and the copies.
        turned = Operand("x", dtype, (1, 64))
        output = Operand("out", dtype, (128, 2))
        yield Plan(
            "", "l1_loss_backward", dtype, (64, 64), (turned,) * 3, output, {"mean_scale": 1.0}
        )


def _dense(
    kernel: str, dtype: DType, numbers: Mapping[str, Any], count: int, strides: Sequence[int]
) -> Plan:
    inputs = tuple(Operand("x", dtype, (step,)) for step in strides)
    return Plan("", kernel, dtype, (count,), inputs, Operand("out", dtype, (1,)), numbers)
