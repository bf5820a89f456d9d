"""GPU launches of any size: one function for a pattern gives, at every shape, what `prepare` gives for that shape.

Interpreted on host memory, and compiled (not run) for an H200, each in a process of its own: see test_gpu.py.
To look at one alone: OPENACLNN_GPU_TESTS=interpret pytest tests/test_gpu_sized.py
"""

from __future__ import annotations

import itertools
import os
import struct
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

if sys.platform != "linux":
    pytest.skip("Triton has wheels for Linux alone", allow_module_level=True)

MODE = os.environ.get("OPENACLNN_GPU_TESTS", "")
if MODE == "interpret":
    import interpreted  # noqa: F401

if MODE:
    import openaclnn
    from conftest import GRADIENTS, INTERPRETED, families, planned
    from gpu_process import nothing_remembered  # noqa: F401
    from openaclnn.core.declare import Operator
    from openaclnn.core.dtypes import BFLOAT16, FLOAT, DType
    from openaclnn.core.plan import Free, Plan
    from openaclnn.engines import gpu
    from openaclnn.engines.gpu.launchers import launcher
    from openaclnn.engines.gpu.launching import runners
    from workloads import logits

    names = pytest.mark.parametrize("operator", families(GRADIENTS), ids=lambda op: op.python_name)
    dtypes = pytest.mark.parametrize("dtype", INTERPRETED[1:], ids=str)

    def drawn(operator: Operator, dtype: DType, shape: tuple[int, ...], variant: str) -> Any:
        """A variant's arguments; of pixels without the total weight, so that sums are made, if it says so."""
        variant, _, more = variant.partition(" / ")
        arguments = operator.workloads.make(np.random.default_rng(5), dtype, shape, variant)
        if more:
            del arguments["total_weight"]
        return arguments | {"out": np.full(shape, 7, dtype.numpy)}

    SHAPES: dict[str, list[tuple[int, ...]]] = {
        "elementwise": [
            (6, 7), (1,), (3,), (16,), (1024,), (1025,), (4, 1000), (2, 3, 4, 5, 6), (1, 1, 2),
        ],
        "rows": [(5, 13), (1, 13), (7, 1), (1, 1), (16, 64), (3, 1030), (40, 300), (2, 2057)],
        "pixels": [
            (2, 5, 3, 7), (1, 5, 8, 8), (3, 1, 4, 4), (17, 6, 1, 1), (1, 1, 1, 1), (2, 20, 16, 33),
            (1, 3, 17, 80),
        ],
    }  # fmt: skip

    NUMBERS: dict[str, list[tuple[Any, ...]]] = {
        "elu_backward": [(1.0, 1.0, 1.0), (0.5, 2.0, -0.7), (-0.0, 3.3, 1e39), (2, -1e-50, 0.0), (0.5, 2.0, -0.7)],
        "elu": [(1.0, 1.0, 1.0), (0.5, 2.0, -0.7), (-0.0, 3.3, 1e38), (2, -1e-50, 0.0), (0.5, 2.0, -0.7)],
        "smooth_l1_loss_backward": [(1.0,), (0.7,), (2.0,), (0.0,), (1e300,), (-0.0,), (1e-40,), (0.7,), (3,)],
        "nll_loss2d_backward": [(-100,), (2,), (0,), (-1,), (2**40,), (-(2**40),)],
        "cross_entropy_loss_grad": [
            (-100, 0.1, 1e-4), (3, 0.25, -2.5), (0, 1.0, 1e39), (2**40, 1e-40, 1.5), (-(2**40), 1, 2),
        ],
    }  # fmt: skip
    """Of free options, in their order, where some numbers are special to an operator."""

    def numbers_for(operator: Operator) -> list[tuple[Any, ...]]:
        """Those above; of other operators ordinary ones, inside the bounds that its plan gives."""
        if operator.python_name in NUMBERS:
            return NUMBERS[operator.python_name]
        shape, variant = SHAPES[operator.workloads.PATTERN][0], variants_of(operator)[0]
        free = planned(operator, drawn(operator, FLOAT, shape, variant))[0].free

        def inside(limits: Free, number: float) -> float:
            bounded = min(max(number, limits.low), limits.high)
            return int(bounded) if limits.integer else bounded

        rows = [tuple(inside(limits, n) for limits in free) for n in (1.0, 0.7, -2.5, 3)]
        return [*dict.fromkeys(rows)]

    def numbered(
        operator: Operator, arguments: Any, numbers: tuple[Any, ...]
    ) -> tuple[Any, tuple[Any, ...]]:
        """The arguments with these numbers, and the numbers: those that select code stay 0 where they were."""
        free = planned(operator, arguments)[0].free
        chosen = {
            slot.option: 0.0 if slot.keeps_zero and not arguments.get(slot.option) else number
            for slot, number in zip(free, numbers, strict=True)
        }
        return arguments | chosen, tuple(chosen.values())

    def variants_of(operator: Operator) -> list[str]:
        names = [*operator.workloads.VARIANTS]
        if operator.workloads.PATTERN == "pixels":
            names += [f"{name} / summed" for name in names]
        return names

    def anyhow(values: Any, draw: Any, backwards: bool) -> Any:
        """The same in memory with its axes in another order, and gaps."""
        order = draw.permutation(values.ndim)
        steps = [int(step) for step in draw.integers(1, 4, values.ndim)]
        memory = np.zeros([values.shape[axis] * steps[axis] for axis in order], values.dtype)
        turned = backwards and draw.random() < 0.3
        cut = tuple(slice(None, None, -steps[axis] if turned else steps[axis]) for axis in order)
        view = memory[(..., *cut)].transpose(np.argsort(order))
        view[...] = values
        return view


if MODE == "interpret":
    OFFSETS = (0, 1, 3)

    @pytest.fixture(autouse=True)
    def as_on_a_device() -> Iterator[None]:
        with np.errstate(all="ignore"):
            yield

    def run_both(operator: Operator, arguments: Any, run: Any, numbers: Any = ()) -> None:
        """The same bits from `run` as from the plan prepared for this very shape."""
        out = arguments["out"]
        plan, addresses = planned(operator, arguments)
        assert gpu.prepare(plan)(addresses, 0) == 0
        expected = out.copy()
        out.fill(7)
        assert run(addresses, 0, out.shape, numbers) == 0
        result = np.frombuffer(out.tobytes(), np.uint8)
        np.testing.assert_array_equal(result, np.frombuffer(expected.tobytes(), np.uint8))

    @names
    @dtypes
    @pytest.mark.parametrize("few", [True, False])
    @pytest.mark.in_turns
    def test_any_shape_has_the_bits_of_its_own_plan(
        operator: Operator, dtype: DType, few: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With what is chosen for few elements and for many."""
        from openaclnn.engines.gpu.launchers import pixels, row_formulas

        single = operator.workloads.PATTERN == "elementwise"
        if single and not few:
            return
        for module in (pixels, row_formulas):
            monkeypatch.setattr(module, "SMALL", module.SMALL if few else 0)
        shapes = SHAPES[operator.workloads.PATTERN]
        for place, variant in enumerate(variants_of(operator)):
            run = gpu.dynamic_shapes(
                planned(operator, drawn(operator, dtype, shapes[0], variant))[0]
            )
            assert run is not None
            # Each of two ways has every other pair of a shape and a variant; where there is one, each operator every third.
            step = 3 if single else 2
            turn = GRADIENTS.index(operator) if single else few
            for shape in shapes[(place + turn) % step :: step]:
                run_both(operator, drawn(operator, dtype, shape, variant), run)

    @names
    def test_a_plan_of_one_position_or_class_serves_all_shapes(operator: Operator) -> None:
        """Its strides are 0 where others step."""
        pattern = operator.workloads.PATTERN
        if pattern == "elementwise":
            return
        first = {"rows": [(1, 13), (9, 1), (1, 1)], "pixels": [(1, 5, 2, 3), (3, 1, 2, 2)]}[pattern]
        for shape in first:
            for variant in variants_of(operator):
                run = gpu.dynamic_shapes(
                    planned(operator, drawn(operator, FLOAT, shape, variant))[0]
                )
                assert run is not None
                run_both(operator, drawn(operator, FLOAT, SHAPES[pattern][0], variant), run)

    def test_counted_targets_divide_the_z_loss_too() -> None:
        (operator,) = (op for op in GRADIENTS if op.workloads.PATTERN == "rows")
        for shape in ((5, 13), (30, 3)):
            arguments = drawn(operator, FLOAT, shape, "mean, z-loss")
            arguments |= {"grad_zloss": np.float32([0.75]), "label_smoothing": 0.25}
            run_both(operator, arguments, gpu.dynamic_shapes(planned(operator, arguments)[0]))

    @dtypes
    @pytest.mark.parametrize("off", OFFSETS)
    def test_rows_that_begin_anywhere(
        dtype: DType, off: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Vectors of rows that are off by as much, in place and beside."""
        from openaclnn.engines.gpu.launchers import row_formulas

        monkeypatch.setattr(row_formulas, "SMALL", 0)
        (operator,) = (op for op in GRADIENTS if op.workloads.PATTERN == "rows")
        run = gpu.dynamic_shapes(
            planned(operator, drawn(operator, dtype, (5, 13), "mean, weight"))[0]
        )
        for shape in ((4, 257), (3, 512)):
            for apart in (0, 1):
                arguments = drawn(operator, dtype, shape, "mean, weight")
                for name, shift in (("log_prob", off), ("out", off + apart)):
                    memory = np.zeros(arguments[name].size + 16, dtype.numpy)
                    view = memory[shift:][: arguments[name].size].reshape(shape)
                    view[...] = arguments[name]
                    arguments[name] = view
                run_both(operator, arguments, run)

    @names
    @dtypes
    @pytest.mark.in_turns
    def test_elements_that_begin_anywhere(
        operator: Operator, dtype: DType, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Equally far from a vector's bounds they have a kernel of their own, which writes nothing else."""
        if operator.workloads.PATTERN != "elementwise":
            return
        from openaclnn.engines.gpu.launchers import elementwise

        for place, variant in enumerate(variants_of(operator)):
            for off, apart, count in (
                (0, 0, 1030),
                (1, 0, 2047),
                (3, 0, 2),
                (7, 0, 1024),
                (2, 1, 5),
            ):
                arguments = drawn(operator, dtype, (count,), variant)
                results = []
                for few in (1 << 40, 0):
                    monkeypatch.setattr(elementwise, "SMALL", few)
                    moved = dict(arguments)
                    for name, value in arguments.items():
                        if isinstance(value, np.ndarray) and value.size > 1:
                            memory = np.full(count + 64, 7, dtype.numpy)
                            by = (
                                off
                                + apart * (name == "out")
                                + (-memory.ctypes.data // dtype.itemsize) % 8
                            )
                            moved[name] = memory[32 + by :][:count]
                            moved[name][...] = value
                    plan, addresses = planned(operator, moved)
                    for run, more in (
                        (gpu.prepare(plan), ()),
                        (gpu.dynamic_shapes(plan), ((count,), ())),
                    ):
                        assert run(addresses, 0, *more) == 0  # type: ignore[misc]
                        results.append(memory[24 + by :][: count + 16].tobytes())
                assert len(set(results)) == 1, (variant, off, place)

    @names
    @dtypes
    @pytest.mark.in_turns
    def test_any_layout_has_the_bits_of_its_own_plan(operator: Operator, dtype: DType) -> None:
        """Transposed, with gaps, stretched: other variants and operators, other shapes."""
        if operator.workloads.PATTERN != "elementwise":
            return  # see below
        layouts = (
            ((4, 6), (1, 0), 2), ((7, 3, 5), (2, 0, 1), 1), ((2, 3, 2, 3, 2), (4, 1, 2, 0, 3), 3),
            ((300, 2), (0, 1), 2), ((9,), (0,), 4), ((1, 1), (0, 1), 1),
        )  # fmt: skip
        for turn, variant in enumerate(variants_of(operator), GRADIENTS.index(operator)):
            first = laid_out(drawn(operator, dtype, (4, 6), variant), (1, 0), 1)
            offered = gpu.dynamic_strides(planned(operator, first)[0])
            assert offered is not None
            run, most = offered
            assert most >= 4096
            for shape, order, step in layouts[turn % 2 :: 2]:
                arguments = laid_out(drawn(operator, dtype, shape, variant), order, step)
                plan = planned(operator, arguments)[0]
                strides = [n for operand in (*plan.inputs, plan.output) for n in operand.strides]
                run_both(operator, arguments, lambda *a: run(*a[:2], plan.shape, strides))  # noqa: B023
            operands = len(plan.inputs) + 1
            assert run((0,) * operands, 0, (2,) * 6, (2,) * 6 * operands) == launcher.NOT_SERVED

    @names
    @dtypes
    @pytest.mark.in_turns
    def test_any_layout_with_classes_has_the_bits_of_its_own_plan(
        operator: Operator, dtype: DType
    ) -> None:
        """Every array turned, with gaps, or backwards, the output too; one kind's runner takes them all."""
        pattern = operator.workloads.PATTERN
        if pattern == "elementwise":
            return
        draw, shapes = np.random.default_rng(2), itertools.cycle(SHAPES[pattern][:5])
        for variant in variants_of(operator):
            offered = gpu.dynamic_strides(
                planned(operator, drawn(operator, dtype, SHAPES[pattern][0], variant))[0]
            )
            assert offered is not None
            run, most = offered
            several = numbers_for(operator)
            for turn, shape in enumerate(itertools.islice(shapes, 2)):
                arguments = drawn(operator, dtype, shape, variant)
                arguments, numbers = numbered(operator, arguments, several[turn % len(several)])
                arguments = {
                    name: anyhow(value, draw, name != "out")
                    if isinstance(value, np.ndarray)
                    else value
                    for name, value in arguments.items()
                }
                plan = planned(operator, arguments)[0]
                sizes, covered = (*plan.shape, plan.classes), plan.operands
                strides = [
                    n for operand in covered for n in (*operand.strides, operand.class_stride)
                ]
                assert all(operand.offset == 0 for operand in covered)
                assert np.prod(sizes) <= most
                run_both(operator, arguments, lambda *a: run(*a[:2], sizes, strides, a[3]), numbers)  # noqa: B023
            assert run((), 0, (1, 2, 3, 4, 5), (), ()) == 1, "more axes than a kernel takes"

    def laid_out(arguments: Any, order: tuple[int, ...], step: int) -> Any:
        """Inputs with their axes in another order in memory, and gaps; the output row-major."""

        def moved(values: Any) -> Any:
            if not isinstance(values, np.ndarray) or values.ndim != len(order):
                return values
            memory = np.zeros([values.shape[axis] for axis in order] + [step], values.dtype)
            view = memory[..., 0].transpose(np.argsort(order))
            view[...] = values
            return view

        return {name: value if name == "out" else moved(value) for name, value in arguments.items()}

    @pytest.mark.parametrize("few", [True, False])
    def test_rows_of_nll_have_the_bits_of_their_own_plan(
        few: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from openaclnn.engines.gpu.launchers import row_formulas

        operator = openaclnn.find_operator("nll_loss_backward")
        for variant in operator.workloads.VARIANTS:
            arguments = drawn(operator, FLOAT, (5, 13), variant)
            run = gpu.dynamic_shapes(planned(operator, arguments)[0])
            assert run is not None
            monkeypatch.setattr(row_formulas, "SMALL", row_formulas.SMALL if few else 0)
            for shape in ((5, 13), (1, 7), (9, 1), (300, 4), (2, 300)):
                arguments = drawn(operator, FLOAT, shape, variant)
                for number in (-100, 3):
                    run_both(operator, arguments | {"ignore_index": number}, run, (number,))
        classes_alone = replace(planned(operator, arguments)[0], class_axis=0)
        assert gpu.dynamic_shapes(classes_alone) is None

    @dtypes
    @pytest.mark.parametrize("off", OFFSETS)
    @pytest.mark.in_turns
    def test_planes_that_begin_anywhere(
        dtype: DType, off: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The kernel of odd images has the bits of the other, and writes nothing else."""
        from openaclnn.engines.gpu.launchers import pixels

        (operator,) = (op for op in GRADIENTS if op.workloads.PATTERN == "pixels")
        small = {key: (vector, 32, warps) for key, (vector, _, warps) in pixels.PLANES.items()}
        monkeypatch.setattr(pixels, "PLANES", small)
        shapes = ((2, 5, 3, 7), (1, 26, 9, 5), (3, 9, 1, 33), (1, 1, 5, 5))
        for place, shape in enumerate(shapes, OFFSETS.index(off)):
            for variant in variants_of(operator)[place % 3 :: 3]:
                arguments = drawn(operator, dtype, shape, variant)
                stray = np.resize(
                    [-100, shape[1], 2**32, -1, 0], arguments["target"][..., ::3].shape
                )
                arguments["target"][..., ::3] = stray
                memory = np.full(arguments["out"].size + 64, 7, dtype.numpy)
                arguments["out"] = memory[32 + off :][: arguments["out"].size].reshape(shape)
                plan, addresses = planned(operator, arguments)
                results = []
                for few in (1 << 40, 4):
                    monkeypatch.setattr(pixels, "FEW_PIXELS", few)
                    for run in (gpu.prepare(plan), gpu.dynamic_shapes(plan)):
                        memory.fill(7)
                        more = () if len(results) % 2 == 0 else (shape, ())
                        assert run(addresses, 0, *more) == 0  # type: ignore[misc]
                        results.append(memory.tobytes())
                assert len(set(results)) == 1

    @names
    def test_other_patterns_are_declined(operator: Operator) -> None:
        pattern, variant = operator.workloads.PATTERN, variants_of(operator)[0]
        arguments = drawn(operator, FLOAT, SHAPES[pattern][0], variant)
        assert gpu.dynamic_shapes(planned(operator, arguments)[0]) is not None
        shape = arguments["out"].shape
        turned = np.zeros(shape[::-1], np.float32).T
        spread = np.zeros((*shape[:-1], 2 * shape[-1]), np.float32)[..., ::2]
        backwards = np.zeros(shape, np.float32)[..., ::-1]
        for out in (turned, spread, backwards):
            assert gpu.dynamic_shapes(planned(operator, arguments | {"out": out})[0]) is None
        if pattern == "elementwise":
            one = drawn(operator, FLOAT, (1,), variant)
            assert gpu.dynamic_shapes(planned(operator, one)[0]) is None
        else:
            wide = np.repeat(arguments["target"], 2, axis=-1)[..., ::2]
            assert gpu.dynamic_shapes(planned(operator, arguments | {"target": wide})[0]) is None


if MODE == "compile":
    import contextlib
    import ctypes
    import types

    from conftest import plain
    from openaclnn.core import products
    from openaclnn.engines import dispatch
    from openaclnn.engines.gpu.launching import code as fit_code, native, scratch, variants
    from openaclnn.engines.gpu.launching.launch import Launch
    from openaclnn.engines.gpu.launching.variants import Variant
    from openaclnn.engines.machine import callers
    from openaclnn.engines.machine.builtins import address_of_function
    from openaclnn.operators.logits import CROSS_ENTROPY_GRAD
    from test_gpu_kernels import COMPILED, TwoDevices, device, plans, row_plan  # noqa: F401

    ALIGNED = (1 << 20,) * 8

    @pytest.fixture(autouse=True)
    def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(scratch, "functions", lambda: (lambda *_: 1 << 30, lambda at: None))

    def arguments_of(launched: Any) -> tuple[Any, ...]:
        """Grid, stream, kernel, then what the kernel gets."""
        return (*launched[:5], *launched[9:])

    SIZES: dict[str, list[tuple[int, ...]]] = {
        "elementwise": [
            (1 << 20,),
            (3, 1 << 18),
            (1023,),
            (1 << 31,),
            (1 << 40,),
            ((1 << 40) + 4,),
        ],
        "rows": [(4096, 4096), (100, 128256), (300_000, 17), (7, 50257), (3, 1 << 34)],
        "pixels": [(4, 21, 512, 512), (3, 150, 77, 3), (70, 31, 1000, 1000), (9990, 9, 1, 2)],
    }

    def named(launch: Launch, types: Any) -> Variant:
        """In place of a compiled variant, which takes a second: what would make it another one."""
        name = (launch.spec, types, launch.constexprs, launch.warps)

        def start(programs: int, stream: int, *arguments: Any) -> None:
            COMPILED.append((None, (programs, 1, 1, stream, name, *[None] * 4, *arguments)))

        return Variant(start, None, None)

    @names
    @pytest.mark.parametrize("off", [0, 4])
    def test_the_launch_is_the_plan_s_own(
        operator: Operator, off: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Programs, numbers and constants: the kernel itself need not run to be the same."""
        pattern = operator.workloads.PATTERN
        small = {"elementwise": (6, 7), "rows": (5, 13), "pixels": (2, 5, 3, 7)}[pattern]
        monkeypatch.setattr(variants, "_variants", {})
        monkeypatch.setattr(variants, "_compiled", named)
        for variant in variants_of(operator):
            first = drawn(operator, FLOAT, small, variant)
            run = gpu.dynamic_shapes(planned(operator, first)[0])
            assert run is not None
            for shape in SIZES[pattern]:
                plan = planned(operator, stretched(operator, first, small, shape))[0]
                addresses = tuple(at + off for at in ALIGNED[: len(plan.inputs) + 1])
                COMPILED.clear()
                gpu.prepare(plan)(addresses, 5)
                expected = [arguments_of(launched) for _, launched in COMPILED]
                COMPILED.clear()
                run(addresses, 5, shape, ())
                assert [arguments_of(launched) for _, launched in COMPILED] == expected, shape

    def stretched(operator: Operator, first: Any, small: Any, shape: Any) -> dict[str, Any]:
        """Arguments of another shape over no memory: nobody reads them."""
        axis = None if operator.workloads.PATTERN == "elementwise" else 1
        parts = {small: shape}
        if axis is not None:
            parts[small[:1] + small[2:]] = shape[:1] + shape[2:]
            parts[(small[1],)] = (shape[1],)
        arguments = dict(first)
        for name, array in first.items():
            if isinstance(array, np.ndarray) and array.shape in parts:
                sizes = parts[array.shape]
                strides = np.cumprod([array.itemsize, *sizes[:0:-1]])[::-1]
                arguments[name] = np.lib.stride_tricks.as_strided(array, sizes, strides)
        return arguments

    @names
    def test_sizes_with_the_same_constants_are_not_compiled_again(
        operator: Operator, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pattern = operator.workloads.PATTERN
        first, *others = {
            "elementwise": [(1 << 20,), (1 << 10,), (48,), (7, 5, 16)],
            "rows": [(1 << 13, 4096), (5001, 8192), (8000, 6144)],
            "pixels": [(4, 21, 512, 512), (9, 150, 128, 128), (50, 30, 64, 48)],
        }[pattern]
        small = {"elementwise": (6, 7), "rows": (5, 13), "pixels": (2, 5, 3, 7)}[pattern]
        monkeypatch.setattr(variants, "_variants", {})
        monkeypatch.setattr(variants, "_compiled", named)
        for variant in variants_of(operator):
            plan = planned(operator, drawn(operator, BFLOAT16, small, variant))[0]
            run = gpu.dynamic_shapes(plan)
            assert run is not None
            addresses = ALIGNED[: len(plan.inputs) + 1]
            run(addresses, 5, first, ())
            with monkeypatch.context() as patched:
                patched.setattr(variants, "_compiled", None)
                for shape in others:
                    assert run(addresses, 5, shape, ()) == 0
                launcher._dynamic_runners.clear()
                again = gpu.dynamic_shapes(plan)
                assert again is not None
                assert again(addresses, 5, first, ()) == 0, "another call's variants serve"

    @names
    def test_other_numbers_are_launched_as_the_plan_s_own_and_not_compiled_again(
        operator: Operator, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from openaclnn.engines.gpu.launchers import pixels, row_formulas

        for module in (pixels, row_formulas):  # few elements are launched otherwise
            monkeypatch.setattr(module, "SMALL", 0)
        monkeypatch.setattr(variants, "_variants", {})
        monkeypatch.setattr(variants, "_compiled", named)
        small = {"elementwise": (6, 7), "rows": (5, 13), "pixels": (2, 5, 3, 7)}
        shape = small[operator.workloads.PATTERN]
        for variant in variants_of(operator):
            first = drawn(operator, FLOAT, shape, variant)
            plan = planned(operator, first)[0]
            run = gpu.dynamic_shapes(plan)
            assert run is not None
            addresses = ALIGNED[: len(plan.inputs) + 1]
            for numbers in numbers_for(operator):
                arguments, numbers = numbered(operator, first, numbers)
                COMPILED.clear()
                gpu.prepare(planned(operator, arguments)[0])(addresses, 5)
                expected = [arguments_of(launched) for _, launched in COMPILED]
                with monkeypatch.context() as patched:
                    patched.setattr(variants, "_compiled", None)
                    COMPILED.clear()
                    assert run(addresses, 5, shape, numbers) == 0
                assert str([arguments_of(launched) for _, launched in COMPILED]) == str(expected)

    def test_few_targets_are_counted_by_the_kernel_that_needs_their_number(
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        operator = next(op for op in GRADIENTS if "cross_entropy" in op.python_name)
        monkeypatch.setattr(variants, "_variants", {})
        monkeypatch.setattr(variants, "_compiled", named)
        for variant, rows, launches in (
            ("mean", 1024, 1), ("mean", 1025, 2), ("mean, weight", 5, 2), ("none", 5, 1),
        ):  # fmt: skip
            plan = planned(operator, drawn(operator, FLOAT, (5, 13), variant))[0]
            run = gpu.dynamic_shapes(plan)
            COMPILED.clear()
            assert run is not None
            assert run(ALIGNED[: len(plan.inputs) + 1], 5, (rows, 13), ()) == 0
            assert len(COMPILED) == launches, variant

    def test_a_number_below_32_bits_does_not_meet_a_variant_of_less(
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Every negative number that is ignored is the same to a kernel."""
        monkeypatch.setattr(variants, "_variants", {})
        monkeypatch.setattr(variants, "_compiled", named)
        operator = next(op for op in GRADIENTS if "cross_entropy" in op.python_name)
        arguments = drawn(operator, FLOAT, (5, 13), "mean")
        seen = []
        for number in (-100, -1, -(2**40), -(2**63)):
            COMPILED.clear()
            plan = planned(operator, arguments | {"ignore_index": number})[0]
            gpu.prepare(plan)(ALIGNED[: len(plan.inputs) + 1], 5)
            seen.append(str([arguments_of(launched) for _, launched in COMPILED]))
        assert len(set(seen)) == 1

    def test_new_numbers_of_a_prepared_plan_are_not_compiled_again(
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        gpu.prepare(row_plan(FLOAT, 5000, 4096, True))(ALIGNED[:4], 5)
        monkeypatch.setattr(variants, "_compiled", None)
        gpu.prepare(row_plan(FLOAT, 6000, 4096, True))(ALIGNED[:4], 5)

    def test_any_size_is_launched_on_the_device_of_the_output(
        device: Any,  # noqa: F811
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(runners, "device_library", TwoDevices)
        run = gpu.dynamic_shapes(plans(FLOAT)["flat"])
        assert run is not None
        for place in (1 << 41, 1 << 20):
            assert run((place,) * 4, 7, (100_000,), ()) == 0
        functions = [arguments[4] for _, arguments in COMPILED]
        assert functions == [f"flat_smooth_l1_clamped on {number}" for number in (1, 0)]
        assert device.current == 0

    TYPES: dict[str, Any] = {"i32": ctypes.c_int32, "i64": ctypes.c_int64, "fp32": ctypes.c_float}

    class Pretended:
        """Kernels that nobody compiles, and a CUDA driver, that note what is launched: which kernel, grid, stream, parameters."""

        def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
            from test_gpu_native import LAUNCH

            self.code = self.in_words = self.with_lock = 0
            self.kernels: list[Any] = []  # each with its parameters' kinds
            self.by_python: list[Any] = []
            self.by_driver: list[Any] = []
            self._function = LAUNCH(self._launch)
            function = address_of_function(self._function)
            monkeypatch.setattr(native, "launch_function", lambda: function)
            monkeypatch.setattr(native, "driver", lambda: self)
            monkeypatch.setattr(variants, "_compiled", self._compiled)
            monkeypatch.setattr(variants, "_variants", {})
            monkeypatch.setattr(launcher, "_dynamic_runners", {})

        def _compiled(self, launch: Any, types: Any) -> Any:
            large = variants.are_64_bit(launch.numbers)
            kinds = [
                "fp32" if type(number) is float else "i64" if is_large else "i32"
                for number, is_large in zip(launch.numbers, large, strict=True)
            ]
            pointers = [place for place, pointer in enumerate(types) if pointer is not None]
            which = len(self.kernels) + 1
            overlaps = launch.spec.follows
            kernel = native.Kernel(which, 32 * launch.warps, 7 * which, tuple(kinds), 2, overlaps)
            self.kernels.append((["*"] * len(pointers) + kinds, kernel))

            def start(programs: int, stream: int, *arguments: Any) -> None:
                passed = [arguments[place] for place in pointers] + [*arguments[len(types) :]]
                words = [
                    TYPES.get(kind, ctypes.c_uint64)(argument).value
                    for kind, argument in zip(self.kernels[which - 1][0], passed, strict=True)
                ]
                self.by_python.append((which, programs, stream, words))

            return variants.Variant(start, kernel, None)

        def _launch(self, config: Any, function: int, parameters: Any, extra: Any) -> int:
            words = ctypes.cast(config, ctypes.POINTER(ctypes.c_uint64))
            kinds, kernel = self.kernels[function - 1]
            passed = [
                TYPES.get(kind, ctypes.c_uint64).from_address(parameters[place]).value
                for place, kind in enumerate([*kinds, "*", "*"])
            ]
            assert config[0:7] == [config[0], 1, 1, kernel.threads, 1, 1, kernel.shared]
            assert words[6] & 0xFFFFFFFF == kernel.overlaps
            assert passed[-2:] == [0, 0]
            self.by_driver.append((function, config[0], words[4], passed[:-2]))
            return self.code

        def launched(self) -> str:
            """Since the last time; by one of the two alone."""
            assert not (self.by_python and self.by_driver)
            text = str(self.by_python or self.by_driver)
            self.by_python.clear()
            self.by_driver.clear()
            return text

        def alike(self, run: Any, call: Any, variant: Any) -> tuple[int, bool]:
            """What a call gives that a builtin launches as Python would, and whether it did so by itself."""
            status = python_of(run)(*call)
            expected = self.launched()
            assert run(*call) == status
            by_itself = bool(self.by_driver)
            assert self.launched() == expected, (variant, call)
            if in_words(run, *call):
                self.in_words += 1
                assert self.launched() == expected, (variant, call)
            if in_words(run, *call, locked=True):
                self.with_lock += 1
                assert self.launched() == expected, (variant, call)
            assert not self.by_driver
            return status, by_itself

    WORDS = (
        ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64,
        ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64,
    )  # fmt: skip

    def in_words(
        run: Any, addresses: Any, stream: int, shape: Any, *more: Any, locked: bool = False
    ) -> bool:
        """Whether a builtin's function of words launches; numbers are as a fast path has them."""
        block = run.__self__.keep.address
        kind = (ctypes.PYFUNCTYPE if locked else ctypes.CFUNCTYPE)(*WORDS)
        function, takes, whole = (
            ctypes.c_int64.from_address(block + 8 * slot).value
            for slot in (callers.RUN, callers.TAKES, callers.INTEGER_NUMBERS)
        )
        strides = more[0] if takes & callers.STRIDES else ()
        numbers = more[-1] if takes & callers.FREE_NUMBERS else ()
        words = [
            int(number) if whole >> place & 1 else struct.unpack("q", struct.pack("d", number))[0]
            for place, number in enumerate(numbers)
        ]
        if not all(-(2**63) <= word < 2**63 for word in words):
            return False
        lists = [
            (ctypes.c_int64 * len(values))(*values) for values in (addresses, shape, words, strides)
        ]
        status = kind(function)(
            block, lists[0], len(addresses), lists[1], len(shape), lists[2], len(words), stream, lists[3], len(strides), locked
        )  # fmt: skip
        assert status in (0, callers.NOT_READY)
        return bool(status == 0)

    def python_of(run: Any) -> Any:
        """What a builtin falls back to."""
        return run.__self__.keep._held[-1]

    DRAWN: dict[str, Any] = {
        "elementwise": lambda draw: tuple(draw.integers(1, 40, draw.integers(1, 4))),
        "rows": lambda draw: (draw.integers(1, 300), draw.integers(1, 260)),
        "pixels": lambda draw: (draw.integers(1, 9), *draw.integers(1, 26, 3)),
    }

    @names
    @pytest.mark.in_turns
    def test_the_builtin_launches_what_python_would(
        operator: Operator, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Kernel, grid, stream and every parameter, for sizes, numbers and alignments in turn."""
        pattern, draw = operator.workloads.PATTERN, np.random.default_rng(3)
        small = {"elementwise": (6, 7), "rows": (5, 13), "pixels": (2, 5, 3, 7)}[pattern]
        several = numbers_for(operator)
        for dtype in (FLOAT, BFLOAT16):
            for variant in variants_of(operator):
                driver = Pretended(monkeypatch)
                first = drawn(operator, dtype, small, variant)
                plan = planned(operator, first)[0]
                run, natively = gpu.dynamic_shapes(plan), 0
                for turn in range(100):
                    shape = tuple(map(int, DRAWN[pattern](draw)))
                    numbers = numbered(operator, first, several[turn % len(several)])[1]
                    off = [4 * bool(draw.random() < 0.2) for _ in ALIGNED[: len(plan.inputs) + 1]]
                    addresses = tuple([((2 + k) << 20) + by for k, by in enumerate(off)])
                    call = addresses, 5 + turn, shape, numbers if turn % 3 else ()
                    status, by_itself = driver.alike(run, call, variant)
                    assert status == 0
                    natively += by_itself
                assert natively > 50, variant
                assert driver.with_lock >= natively, variant
                if not run.__self__.keep._block[fit_code.ALLOCATE]:  # no memory is taken
                    assert driver.in_words >= natively, variant

    def drawn_size(draw: Any, pattern: str) -> tuple[int, ...]:
        """Of all magnitudes, some of them round."""
        most = {"elementwise": (33,), "rows": (20, 17), "pixels": (6, 9, 11, 11)}[pattern]
        sizes = [int(2 ** draw.uniform(0, power)) for power in most]
        return tuple([size + -size % 16 if draw.random() < 0.4 else size for size in sizes])

    def kinds_of(operator: Operator, dtype: DType) -> Iterator[Plan]:
        """A plan of each variant."""
        work = operator.workloads
        small = {"elementwise": (6, 7), "rows": (5, 13), "pixels": (2, 5, 3, 7)}[work.PATTERN]
        if operator is CROSS_ENTROPY_GRAD:
            draw, out = np.random.default_rng(1), np.zeros(small, dtype.numpy)
            for case in logits.cases(draw, dtype, small):
                yield planned(operator, logits.grad_of(draw, case) | {"out": out})[0]
        else:
            for variant in variants_of(operator):
                yield planned(operator, drawn(operator, dtype, small, variant))[0]

    @pytest.mark.parametrize(
        "operator", [*families(GRADIENTS), openaclnn.find_operator("nll_loss_backward"), CROSS_ENTROPY_GRAD],
        ids=lambda op: op.python_name,
    )  # fmt: skip
    @pytest.mark.in_turns
    def test_the_builtin_launches_any_size_as_python_would(
        operator: Operator, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With the kernels that sizes choose: tiles, units, odd planes and rows, sums in few parts and in many."""
        pattern, draw = operator.workloads.PATTERN, np.random.default_rng(9)
        for dtype in (FLOAT, BFLOAT16):
            for variant, plan in enumerate(kinds_of(operator, dtype)):
                driver = Pretended(monkeypatch)
                run, natively = gpu.dynamic_shapes(plan), 0
                for turn in range(60):
                    off = 2 * draw.integers(0, 8, len(plan.inputs) + 1) * (turn % 4 == 3)
                    off = (off if turn % 8 == 3 else off[:1].repeat(off.size)).tolist()
                    addresses = tuple([at + by for at, by in zip(ALIGNED, off, strict=False)])
                    call = addresses, 5 + turn, drawn_size(draw, pattern), ()
                    python_of(run)(*call)
                    expected = driver.launched()
                    assert run(*call) == 0
                    natively += bool(driver.by_driver)
                    assert driver.launched() == expected, (variant, call)
                assert natively > 50, variant

    def test_more_kernels_than_a_builtin_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
        operator = next(op for op in GRADIENTS if op.workloads.PATTERN == "pixels")
        driver = Pretended(monkeypatch)
        monkeypatch.setattr(fit_code, "MAX_VARIANTS", 2)
        plan = planned(operator, drawn(operator, FLOAT, (2, 5, 3, 7), variants_of(operator)[0]))[0]
        run = gpu.dynamic_shapes(plan)
        assert run is not None
        addresses, natively = ALIGNED[: len(plan.inputs) + 1], []
        # 16, 8 and 4 divide their pixels: a kernel each.
        for height, width in (*((256, 256), (252, 254), (254, 254)) * 2, (128, 512)):
            assert run(addresses, 5, (9, 5, height, width), ()) == 0
            natively.append(bool(driver.by_driver))
            driver.launched()
        assert natively == [False, False, False, True, True, False, True]

    @names
    @pytest.mark.in_turns
    def test_the_builtin_of_any_strides_launches_what_python_would(
        operator: Operator, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Sizes and strides are those of no memory: nobody reads it."""
        pattern, draw = operator.workloads.PATTERN, np.random.default_rng(6)
        small, least, most = {
            "elementwise": ((6, 7), 1, 6), "rows": ((5, 13), 2, 2), "pixels": ((2, 5, 3, 7), 2, 5),
        }[pattern]  # fmt: skip
        several = numbers_for(operator)
        for variant in variants_of(operator):
            driver, natively = Pretended(monkeypatch), 0
            first = drawn(operator, FLOAT, small, variant)
            plan = planned(operator, first)[0]
            offered = gpu.dynamic_strides(plan)
            assert offered is not None
            run, operands = offered[0], len(plan.inputs) + 1
            for turn in range(80):
                axes = int(draw.integers(least, most + 1))
                sizes = tuple(draw.integers(1, 14, axes).tolist())
                strides = draw.integers(-(1 << 14), 1 << 14, operands * axes) >> draw.integers(
                    0, 14
                )
                if turn % 10 == 9:
                    strides = strides << 20
                call = ALIGNED[:operands], 5 + turn, sizes, tuple(strides.tolist())
                if pattern != "elementwise":
                    numbers = numbered(operator, first, several[turn % len(several)])[1]
                    call = *call, numbers if turn % 3 else ()  # type: ignore[assignment]
                natively += driver.alike(run, call, variant)[1]
            assert natively > 25, variant

    @names
    @pytest.mark.in_turns
    def test_a_plan_of_few_elements_has_no_launches_of_its_own(
        operator: Operator, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whatever its size, it is launched as the kind is, whose kernels are compiled once."""
        pattern = operator.workloads.PATTERN
        small, *others = {
            "elementwise": [(6, 7), (5,), (2, 3, 16), (1, 64), (70_001,)],
            "rows": [(5, 13), (40, 3), (1, 9), (2000, 17)],
            "pixels": [(2, 5, 3, 7), (1, 4, 8, 8), (3, 9, 1, 5), (3, 2, 6, 1), (1, 3, 1, 77)],
        }[pattern]
        for variant in variants_of(operator):
            driver = Pretended(monkeypatch)
            first = planned(operator, drawn(operator, BFLOAT16, small, variant))[0]
            addresses = ALIGNED[: len(first.inputs) + 1]
            python = python_of(gpu.dynamic_shapes(first))
            for shape in (small, *others):
                plan = planned(operator, drawn(operator, BFLOAT16, shape, variant))[0]
                python(addresses, 5, shape, ())
                expected = driver.launched()
                run = gpu.prepare(plan)
                assert run(addresses, 5) == 0
                driver.launched()
                assert run([*addresses], 5) == 0
                assert driver.by_driver or 1 in shape, "the second time it is a builtin's"
                assert driver.launched() == expected, (variant, shape)
            arguments = drawn(operator, BFLOAT16, small, variant)
            for turn in range(4):
                turned = {
                    name: array[..., ::-1].copy()[..., ::-1]
                    if turn % 2
                    else np.asfortranarray(array)
                    for name, array in arguments.items()
                    if isinstance(array, np.ndarray) and array.ndim and name != "out"
                }
                plan = planned(operator, arguments | turned)[0]
                sizes = (*plan.shape, plan.classes) if plan.classes else plan.shape
                steps = [
                    (*operand.strides, operand.class_stride) if plan.classes else operand.strides
                    for operand in (*plan.inputs, plan.output)
                ]
                more = ((),) if plan.classes else ()
                strides = tuple(step for walk in steps for step in walk)
                python_of(gpu.dynamic_strides(plan)[0])(addresses, 5, sizes, strides, *more)  # type: ignore[index]
                expected = driver.launched()
                run = gpu.prepare(plan)
                run(addresses, 5)
                assert turn < 2 or driver.by_driver
                assert driver.launched() == expected, (variant, turn)
        wide = planned(operator, drawn(operator, FLOAT, small, variant))[0]
        for name in ("dynamic_shapes", "dynamic_strides"):  # nobody asks for it
            monkeypatch.setattr(gpu, name, lambda plan: None)
        assert gpu.prepare(replace(wide, shape=(*wide.shape[:-1], 1 << 20))) is not None

    @pytest.fixture
    def on_host_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """This engine before all others, for the memory of NumPy's arrays."""
        engine = types.ModuleType("pretended_triton")
        engine.__dict__.update(
            DEVICES=("cpu",), unavailable=lambda: None, declines=gpu.declines, prepare=gpu.prepare,
            dynamic_shapes=lambda plan: gpu.dynamic_shapes(plan), dynamic_strides=lambda plan: gpu.dynamic_strides(plan),
        )  # fmt: skip
        monkeypatch.setitem(sys.modules, engine.__name__, engine)
        monkeypatch.setattr(
            dispatch, "ENGINES", {engine.__name__: engine.__name__, **dispatch.ENGINES}
        )
        dispatch._engine.cache_clear()
        yield
        for forget in products.listeners:
            forget()

    @names
    @pytest.mark.in_turns
    def test_calls_of_a_kind_reach_the_driver(
        operator: Operator, on_host_memory: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """From the fast path's reading of arrays and numbers to the parameters of a launch."""
        pattern, draw = operator.workloads.PATTERN, np.random.default_rng(4)
        several, driver = numbers_for(operator), Pretended(monkeypatch)
        for variant in variants_of(operator)[:3]:
            seen = 0
            for turn in range(24):
                shape = tuple(1 + int(size) for size in DRAWN[pattern](draw))
                arguments = drawn(operator, FLOAT, shape, variant)
                if operator.workloads.PATTERN == "elementwise":
                    arguments = numbered(operator, arguments, several[turn % len(several)])[0]
                driver.launched()
                plain(operator)(**arguments)
                got = driver.by_driver[:] or driver.by_python[:]
                natively = bool(driver.by_driver)
                driver.launched()
                plan, addresses = planned(operator, arguments)
                python_of(gpu.dynamic_shapes(plan))(addresses, 0, shape, ())
                assert str(got) == driver.launched(), (variant, shape)
                seen += natively
            assert seen > 5, variant

    @names
    @pytest.mark.in_turns
    def test_calls_of_any_layout_reach_the_driver(
        operator: Operator, on_host_memory: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The fast path merges axes as plans do: the kernel gets the same strides."""
        pattern, draw = operator.workloads.PATTERN, np.random.default_rng(8)
        driver, seen = Pretended(monkeypatch), 0
        for variant in variants_of(operator)[:2]:
            for _ in range(30):
                shape = tuple(2 + int(size) // 5 for size in DRAWN[pattern](draw))
                arguments = drawn(operator, FLOAT, shape, variant)
                for name, value in arguments.items():
                    if isinstance(value, np.ndarray) and value.ndim > 1 and name != "out":
                        arguments[name] = anyhow(value, draw, False)
                plain(operator)(**arguments)
                got = driver.by_driver[:] or driver.by_python[:]
                seen += bool(driver.by_driver)
                driver.launched()
                plan, addresses = planned(operator, arguments)
                assert gpu.prepare(plan)(addresses, 0) == 0
                expected = driver.by_driver[:] or driver.by_python[:]
                driver.launched()
                assert str(got) == str(expected), (variant, shape)
        assert seen > 20

    def summed_call(monkeypatch: pytest.MonkeyPatch) -> tuple[Pretended, Any, tuple[Any, ...]]:
        """Cross entropy's weighted mean: sums into scratch memory, then the gradient; both kernels are known already."""
        operator = next(op for op in GRADIENTS if "cross_entropy" in op.python_name)
        driver = Pretended(monkeypatch)
        plan = planned(operator, drawn(operator, FLOAT, (5, 13), "mean, weight"))[0]
        run = gpu.dynamic_shapes(plan)
        call = ALIGNED[: len(plan.inputs) + 1], 5, (6, 7), (-100, 0.0, 0.0)
        assert run is not None
        assert run(*call) == run(*call) == 0
        assert (len(driver.by_python), len(driver.by_driver)) == (2, 2)
        driver.by_python.clear()
        driver.by_driver.clear()
        return driver, run, call

    def test_scratch_memory_is_given_back_before_the_builtin_returns(
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        events: list[Any] = []

        def allocate(size: int, stream: int) -> int:
            events.append((size, stream, len(driver.by_driver)))
            return 1 << 30

        def release(address: int) -> None:
            events.append((address, len(driver.by_driver)))

        monkeypatch.setattr(scratch, "functions", lambda: (allocate, release))
        driver = Pretended(monkeypatch)  # for what happens before there is one
        driver, run, call = summed_call(monkeypatch)
        events.clear()
        for code in (0, 719):  # what the driver refuses, Python does again
            driver.code = code
            assert run(*call) == 0
        assert events[:2] == [(32, 5, 0), (1 << 30, 2)]
        assert [event[0] for event in events] == [32, 1 << 30] * 3
        assert len(driver.by_driver) == 3, "nothing is launched after what was refused"
        assert len(driver.by_python) == 2

    def test_what_memory_and_numbers_do_not_allow(monkeypatch: pytest.MonkeyPatch) -> None:
        driver, run, call = summed_call(monkeypatch)
        first = call[:3]
        for odd in (
            (-100, True, 0.0),
            (np.int64(3), 0.0, 0.0),
            (2**31, 0.0, 0.0),
            (-100, 2**60, 0.0),
        ):
            assert run(*first, odd) == 0
            assert (len(driver.by_python), driver.by_driver) == (2, [])
            driver.by_python.clear()
        with pytest.raises(OverflowError):
            run(*first, (-100, 1 << 2000, 0.0))
        with pytest.raises(TypeError, match="positional"):
            run(*first, (-100, 0.0, 0.0, 0.0))
        driver.by_python.clear()
        for wrong in ([*call[0]], call[0][:-1]):
            with contextlib.suppress(IndexError):
                run(wrong, *call[1:])
            assert driver.by_driver == []

    def test_memory_that_is_not_to_be_had_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
        full = False

        def allocate(size: int, stream: int) -> int:
            if full:
                raise MemoryError("no scratch")
            return 1 << 30

        monkeypatch.setattr(scratch, "functions", lambda: (allocate, lambda at: None))
        driver, run, call = summed_call(monkeypatch)
        assert in_words(run, *call, locked=True)
        assert len(driver.by_driver) == 2
        driver.by_driver.clear()
        full = True
        for call_again in (in_words, lambda run, *call, locked: run(*call)):
            with pytest.raises(MemoryError, match="no scratch"):
                call_again(run, *call, locked=True)
        assert driver.by_driver == []

    def test_queued_work_is_not_queued_again_for_memory_that_is_not_taken_back(
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """What is written over its own input must not be written twice."""
        broken = False

        def release(address: int) -> None:
            if broken:
                raise RuntimeError("not mine")

        monkeypatch.setattr(scratch, "functions", lambda: (lambda *_: 1 << 30, release))
        driver, run, call = summed_call(monkeypatch)
        broken = True
        for call_again in (in_words, lambda run, *call, locked: run(*call)):
            with pytest.raises(RuntimeError, match="not mine"):
                call_again(run, *call, locked=True)
        assert (len(driver.by_python), len(driver.by_driver)) == (0, 4)
