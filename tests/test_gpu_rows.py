"""Row formulas on the Triton engine: every traversal and layout, interpreted on host memory; launches, and kernels compiled (not run) for an
H200. To look at one alone: OPENACLNN_GPU_TESTS=interpret pytest tests/test_gpu_rows.py
"""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest

if sys.platform != "linux":
    pytest.skip("Triton has wheels for Linux alone", allow_module_level=True)

MODE = os.environ.get("OPENACLNN_GPU_TESTS", "")
if MODE == "interpret":
    import interpreted  # noqa: F401

if MODE:
    import openaclnn.engines.formulas.log_probs
    import openaclnn.engines.formulas.softmax  # noqa: F401
    import step_formulas  # noqa: F401
    from gpu_process import nothing_remembered  # noqa: F401
    from openaclnn.core.dtypes import BFLOAT16, FLOAT, FLOATS, DType
    from openaclnn.core.interop import as_tensor
    from openaclnn.core.plan import Operand, Plan, class_plan, row_major_strides
    from openaclnn.engines import gpu
    from openaclnn.engines.formulas.rows import (
        ROLES,
        ROW_FORMULAS,
        PerClass,
        PerRow,
        Row,
        largest,
        row_formula,
        total,
    )
    from openaclnn.engines.formulas.words import exp, sqrt
    from openaclnn.engines.gpu.launchers import launcher, row_formulas
    from openaclnn.engines.numpy.rows import evaluate

    Array = np.ndarray[Any, Any]
    Laid = Callable[[str, Array], Array]

    @row_formula
    def scaled_norm(x: Row, weight: PerClass, share: PerRow, *, eps: float, centred: bool) -> Row:
        """All kinds of operands but targets, a number, and a switch that makes another graph of it."""
        if centred:
            x = x - total(x) * 0.05
        return x / sqrt(total(x * x) + eps) * weight * share

    @row_formula
    def peaks(x: Row) -> tuple[PerRow, PerRow]:
        """Numbers of rows alone, and a maximum that rescales nothing."""
        return largest(x * -1.0), total(exp(x - largest(x)))

    SOFTMAX = ("softmax", "log_softmax", "softmax_backward", "log_softmax_backward")
    formulas = pytest.mark.parametrize(
        "name",
        [
            *SOFTMAX,
            "softmax_cross_entropy",
            "cross_entropy_step",
            "scaled_norm",
            "peaks",
            "log_probs_and_entropy",
        ],
    )
    NUMBERS: dict[str, dict[str, Any]] = {
        "scaled_norm": {"eps": 0.25, "centred": True},
        "cross_entropy_step": {"ignore_index": 2},
        "log_probs_and_entropy": {"ignore_index": 2, "excess": 0.25, "scales": True},
    }

    def as_it_is(name: str, array: Array) -> Array:
        return array

    class Case:
        """A formula's operands and, by their places, results that are full of sevens, laid out anew by a function of name and array."""

        def __init__(
            self, name: str, dtype: DType, shape: tuple[int, ...], axis: int, laid: Laid = as_it_is
        ) -> None:
            draw, self.formula = np.random.default_rng(1), ROW_FORMULAS[name]
            self.dtype, self.axis, self.numbers = dtype, axis, NUMBERS.get(name, {})
            self.graph = self.formula.graph(self.numbers)
            classes, positions = shape[axis], shape[:axis] + shape[axis + 1 :]
            self.sizes = {"full": shape, "positions": positions, "classes": (classes,)}
            self.roles = {operand: ROLES[kind] for operand, kind in self.formula.operands}
            self.arrays: dict[str, Array] = {}
            for operand, kind in self.formula.operands:
                values: Array = np.array(
                    draw.standard_normal(self.sizes[ROLES[kind]]) * 2, dtype.numpy
                )
                if kind == "Target":
                    values = np.array(draw.integers(-1, classes + 1, positions))
                self.arrays[operand] = laid(operand, values)
            for place, result in enumerate(self.graph.results):
                role = self.roles[str(place)] = "full" if "c" in result.axes else "positions"
                self.arrays[str(place)] = laid(str(place), np.full(self.sizes[role], 7, dtype.numpy))  # fmt: skip

        def plan(self) -> tuple[Plan, tuple[int, ...]]:
            """The plan, and the addresses of its operands."""
            tensors = {operand: as_tensor(array) for operand, array in self.arrays.items()}
            operands = [
                (operand, tensor, self.roles[operand]) for operand, tensor in tensors.items()
            ]
            kinds = [kind for _, kind in self.formula.operands]
            plan = class_plan(
                "aclnn", self.formula.name, self.dtype, operands[: len(kinds)], operands[len(kinds) :], self.sizes["full"],
                self.axis, kinds.index("Target") if "Target" in kinds else -1, self.numbers,
            )  # fmt: skip
            assert gpu.declines(plan) is None
            return plan, tuple(tensor.address for tensor in tensors.values())

        def results(self) -> list[Array]:
            return [self.arrays[str(place)] for place in range(len(self.graph.results))]

        def in_rows(self, operand: str) -> Array:
            """An array as (positions, classes), (1, classes) or (positions, 1)."""
            array, role = self.arrays[operand], self.roles[operand]
            if role == "full":
                return np.moveaxis(array, self.axis, -1).reshape(-1, array.shape[self.axis])
            return array.reshape(1, -1) if role == "classes" else array.reshape(-1, 1)

        def evaluated(self, work: Any, draw: Any = None) -> list[Array]:
            """The results in another precision, as `in_rows` gives them; of other operands, if it is asked to draw them."""
            inputs = {operand: self.in_rows(operand) for operand, _ in self.formula.operands}
            for operand, array in inputs.items():
                if array.dtype != np.int64:
                    by = 0.0 if draw is None else draw.uniform(-(2.0**-21), 2.0**-21, array.shape)
                    inputs[operand] = (array.astype(np.float64) * (1.0 + by)).astype(work)
            return evaluate(self.graph, inputs, self.numbers, work)

        def expected(self) -> Callable[[], None]:
            """What compares results with float64: they are no further off than all of some operands together that differ in the 21st bit, in
            the worst class of a row, and 16 bits are rounded once. To be called before results may lie where operands do."""
            draw, half = np.random.default_rng(2), {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}  # fmt: skip
            with np.errstate(all="ignore"):
                exact, rough = self.evaluated(np.float64), self.evaluated(np.float32)
                moved = [self.evaluated(np.float64, draw) for _ in range(8)]

            def check() -> None:
                for place, (wanted, single) in enumerate(zip(exact, rough, strict=True)):
                    got = self.in_rows(str(place)).astype(np.float64)
                    finite = np.isfinite(single)
                    np.testing.assert_array_equal(got[~finite], single[~finite])
                    apart = [
                        np.where(finite, np.abs(values[place] - wanted), 0.0) for values in moved
                    ]
                    error = np.sum(apart, axis=0).max(1, keepdims=True)
                    size = np.where(finite, np.abs(wanted), 0.0)
                    # Operands are no more than 8; where terms of their size cancel, it shows.
                    bound = error + (size + 2.0**-14) * half[self.dtype.numpy_name] + (size + 8) * 2.0**-23  # fmt: skip
                    assert (np.abs(got - wanted) <= bound)[finite].all(), place

            return check


if MODE == "interpret":

    @pytest.fixture(autouse=True)
    def as_on_a_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """One without clusters of programs, unless a test says otherwise."""
        monkeypatch.setattr(row_formulas, "has_clusters", lambda: False)
        with np.errstate(all="ignore"):
            yield

    def run_checked(case: Case) -> tuple[Plan, tuple[int, ...]]:
        check = case.expected()
        plan, addresses = case.plan()
        assert gpu.prepare(plan)(addresses, 0) == 0
        check()
        return plan, addresses

    def same_bits(case: Case, run: Callable[[], int]) -> None:
        """The results that are there already, from another runner."""
        before = [result.tobytes() for result in case.results()]
        for result in case.results():
            result[...] = 7
        assert run() == 0
        assert [result.tobytes() for result in case.results()] == before

    HELD, STREAMED = (2, 8, 8, False, 4), (4, 2, 4, True, 4)

    @formulas
    @pytest.mark.parametrize("tile", [HELD, STREAMED])
    @pytest.mark.in_turns
    def test_every_traversal(name: str, tile: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """Rows and images, of sizes that fill no tile, by the dtypes in turn: what is held has those of rows that are streamed as images."""
        monkeypatch.setattr(row_formulas, "tile_of", lambda *_: row_formulas.Tile(*tile))
        shapes = ((5, 37), (3, 21, 5))
        for turn, dtype in enumerate(FLOATS, tile is HELD):
            run_checked(Case(name, dtype, shapes[turn % 2], 1))

    @formulas
    @pytest.mark.in_turns
    def test_what_serves_many_elements(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Images cut into blocks, code for a number of classes, rows that begin off a vector's bounds, and may have no whole one, short
        ones that are dealt out; nothing is written beside them."""
        monkeypatch.setattr(row_formulas, "SMALL", 0)
        held, cut = (4, 4, 8, False, 4, True), (8, 32, 1, False, 1, True)
        alone, long, wide = (1, 8, 16, False, 4), (1, 2, 16, True, 4), (4, 16, 8, False, 4)
        several = (
            ((9, 24), held), ((131, 21), held), ((128, 3), held), ((9, 37), wide), ((5, 71), wide), ((2, 19, 3, 5), cut), ((2, 19, 7), cut), ((5, 101), alone), ((5, 101), long),
            ((9, 4), long), ((3, 64), long),
        )  # fmt: skip
        for turn, (shape, tile) in enumerate(several, len(name)):
            monkeypatch.setattr(row_formulas, "tile_of", lambda *_: row_formulas.Tile(*tile))  # noqa: B023
            run_checked(Case(name, FLOATS[turn % 2 * 2], shape, 1))

    @pytest.mark.parametrize("name", SOFTMAX)
    @pytest.mark.in_turns
    def test_long_rows_are_shared_among_programs(
        name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Those that begin off a vector's bounds, too; some programs have no class at all."""
        monkeypatch.setattr(row_formulas, "has_clusters", lambda: True)
        monkeypatch.setattr(row_formulas, "SMALL", 0)
        instead_of_streams("shared", ((FLOAT, (3, 101)), (BFLOAT16, (2, 640))), name, monkeypatch)

    @pytest.mark.parametrize("name", SOFTMAX)
    def test_special_values_of_shared_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """NaN and infinities in some pieces of a row, or all."""
        monkeypatch.setattr(row_formulas, "has_clusters", lambda: True)
        monkeypatch.setattr(row_formulas, "SMALL", 0)
        monkeypatch.setattr(
            row_formulas, "tile_of", lambda *_: row_formulas.Tile(1, 2, 16, True, 4)
        )
        nan, inf = np.nan, np.inf
        rows: list[tuple[slice | list[int], float]] = [
            (slice(64), -inf), (slice(64, 128), -inf), (slice(1, None), -inf), (slice(None), -inf), (slice(None), inf), ([3, 70], inf), ([70], inf),
            ([140], nan), ([9, 141], nan), ([65], -inf), ([100], 1e30), (slice(70), -1e30),
        ]  # fmt: skip
        for operand in ROW_FORMULAS[name].operands:
            case = Case(name, FLOAT, (len(rows), 150), 1)
            for row, (places, value) in zip(case.arrays[operand[0]], rows, strict=True):
                row[places] = value
            run_checked(case)

    @pytest.mark.parametrize("name", [*SOFTMAX, "scaled_norm"])
    @pytest.mark.in_turns
    def test_long_rows_are_held_in_tiles(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of which the last one is full, or all but empty."""
        monkeypatch.setattr(row_formulas, "SMALL", 0)
        monkeypatch.setattr(row_formulas, "_tiles", lambda *_: (2, 16, 4, 1))
        shapes = (FLOAT, (3, 101)), (BFLOAT16, (2, 256)), (BFLOAT16, (5, 65)), (FLOAT, (1, 20))
        instead_of_streams("tiled", shapes, name, monkeypatch)

    def instead_of_streams(
        traversal: str, shapes: Iterable[tuple[DType, tuple[int, int]]], name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:  # fmt: skip
        monkeypatch.setattr(
            row_formulas, "tile_of", lambda *_: row_formulas.Tile(1, 2, 16, True, 4)
        )
        known, launched = getattr(row_formulas.RowLauncher, traversal), []

        def noted(*arguments: Any) -> Any:
            chosen = known(*arguments)
            launched.append(chosen.when)
            return chosen

        monkeypatch.setattr(row_formulas.RowLauncher, traversal, noted)
        for dtype, shape in shapes:
            run_checked(Case(name, dtype, shape, 1))
        assert launched
        assert all(launched)

    @pytest.mark.parametrize("tile", [HELD, STREAMED, None])
    @pytest.mark.parametrize("name", [*SOFTMAX, "peaks"])
    @pytest.mark.in_turns
    def test_special_values(name: str, tile: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """NaN and infinities, alone, together, and as all there is; numbers so far apart that powers vanish."""
        if tile is not None:
            monkeypatch.setattr(row_formulas, "tile_of", lambda *_: row_formulas.Tile(*tile))
        nan, inf, most = np.nan, np.inf, float(np.finfo(np.float32).max)
        rows: list[dict[int, float]] = [
            {3: nan}, {0: inf}, {5: -inf}, {1: inf, 2: inf}, {4: inf, 17: -inf}, {6: nan, 9: inf},
            dict.fromkeys(range(19), -inf), dict.fromkeys(range(19), inf), dict.fromkeys(range(18), -inf),
            dict.fromkeys(range(8), -inf), {0: 1e-42, 1: -1e-42}, {4: 1e30}, {4: 1e30, 5: 1e30, 6: -1e30},
        ]  # fmt: skip
        if not name.endswith("backward"):  # whose sums may leave the range
            rows += dict.fromkeys(range(19), most), dict.fromkeys(range(19), -most), {2: most}, {7: -most}  # fmt: skip
        for axis, operand in itertools.product((0, 1), ROW_FORMULAS[name].operands):
            case = Case(name, FLOAT, (19, len(rows))[:: 1 if axis == 0 else -1], axis)
            for place, row in enumerate(rows):
                for at, value in row.items():
                    case.arrays[operand[0]][(at, place) if axis == 0 else (place, at)] = value
            run_checked(case)

    def turned(name: str, array: Array) -> Array:
        """Last axis first in memory, backwards, with gaps; results are not backwards."""
        if array.ndim < 2:
            return array
        order = [array.ndim - 1, *range(array.ndim - 1)]
        memory = np.zeros([2 * array.shape[axis] for axis in order], array.dtype)
        step = 2 if name.isdigit() else -2
        view = memory[(slice(None, None, step),) * array.ndim].transpose(np.argsort(order))
        view[...] = array
        return view

    def stretched(name: str, array: Array) -> Array:
        """The first position's values for all; results stay."""
        if name.isdigit() or array.ndim < 2:
            return array
        return np.broadcast_to(array[:1], array.shape)

    def off_bounds(name: str, array: Array) -> Array:
        """One element off any vector."""
        memory = np.zeros(array.size + 1, array.dtype)
        view = memory[1:].reshape(array.shape)
        view[...] = array
        return view

    @formulas
    @pytest.mark.parametrize("laid", [turned, stretched, off_bounds])
    @pytest.mark.in_turns
    def test_any_layout(name: str, laid: Laid) -> None:
        """By one runner for all strides, too, which has the same bits."""
        for turn, (shape, axis) in enumerate((((4, 9), 1), ((3, 5, 2, 4), 1), ((3, 4, 6), 2))):
            case = Case(name, FLOATS[turn], shape, axis, laid)
            plan, addresses = run_checked(case)
            if any(operand.offset for operand in plan.operands):
                continue
            offered = gpu.dynamic_strides(plan)
            assert offered is not None
            sizes = (*plan.shape, plan.classes)
            strides = [
                step
                for operand in plan.operands
                for step in (*operand.strides, operand.class_stride)
            ]
            same_bits(case, lambda: offered[0](addresses, 0, sizes, strides, ()))  # noqa: B023

    def test_eight_axes_that_do_not_merge() -> None:
        def sliced(name: str, array: Array) -> Array:
            memory = np.zeros([2 * size for size in array.shape], array.dtype)
            view = memory[(slice(None, None, 2),) * array.ndim]
            view[...] = array
            return view

        case = Case("softmax", FLOAT, (2, 1, 3, 2, 2, 5, 2, 2), 5, sliced)
        plan, _ = run_checked(case)
        assert len(plan.shape) == 6
        assert gpu.dynamic_strides(plan) is None
        plan, _ = run_checked(Case("log_softmax_backward", FLOAT, (2,) * 8, 0, sliced))
        assert len(plan.shape) == 7

    @formulas
    @pytest.mark.in_turns
    def test_any_size_has_the_bits_of_its_own_plan(name: str) -> None:
        """One runner for each axis of classes; positions before them, behind, both or neither."""
        for axis in (0, 1, 2):
            sizes = [(3, 4, 5), (2, 1, 6), (1, 1, 1), (2, 40, 3), (1, 130, 1), (7, 2, 33)]
            run = gpu.dynamic_shapes(Case(name, FLOAT, sizes[axis], axis).plan()[0])
            assert run is not None
            for shape in (*sizes[axis % 2 :: 2], (4, 3, 2, 3)):
                case = Case(name, FLOAT, shape, axis)
                plan, addresses = run_checked(case)
                same_bits(case, lambda: run(addresses, 0, shape, ()))  # noqa: B023
        case = Case(name, FLOAT, (6,), 0)
        plan, addresses = run_checked(case)
        same_bits(case, lambda: gpu.dynamic_shapes(plan)(addresses, 0, (6,), ()))  # type: ignore[misc]

    def test_other_layouts_have_no_runner_of_row_major_sizes() -> None:
        assert gpu.dynamic_shapes(Case("softmax", FLOAT, (3, 4, 5), 1, turned).plan()[0]) is None

    def test_more_axes_than_the_strided_kernel_takes() -> None:
        offered = gpu.dynamic_strides(Case("softmax", FLOAT, (3, 4), 1).plan()[0])
        assert offered is not None
        assert offered[0]((0, 0), 0, (2,) * 5, (2,) * 10, ()) == launcher.NOT_SERVED

    @pytest.mark.parametrize("tile", [HELD, STREAMED])
    def test_in_place(tile: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(row_formulas, "tile_of", lambda *_: row_formulas.Tile(*tile))
        for name, shape in itertools.product(SOFTMAX, ((5, 37), (3, 21, 5))):
            case = Case(name, FLOAT, shape, 1)
            check = case.expected()
            case.arrays["0"] = case.arrays[case.formula.operands[0][0]]
            plan, addresses = case.plan()
            assert gpu.prepare(plan)(addresses, 0) == 0
            check()

    def test_nothing_else_is_written() -> None:
        """Beside results with gaps, and behind them."""
        memory = np.full((6, 50), 7, np.float32)

        def inside(name: str, array: Array) -> Array:
            view = memory[1:5, 3:40]
            return view if name == "0" else array

        run_checked(Case("softmax", FLOAT, (4, 37), 1, inside))
        memory[1:5, 3:40] = 7
        assert (memory == 7).all()

    @pytest.mark.parametrize("tile", [HELD, STREAMED])
    def test_probabilities_have_their_digits(tile: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """Small ones, too: an exponent is off by as much as it is in FLOAT, and one alone is 1."""
        monkeypatch.setattr(row_formulas, "tile_of", lambda *_: row_formulas.Tile(*tile))
        case = Case("softmax", FLOAT, (7, 57), 1)
        x = case.arrays["x"] = case.arrays["x"] * 8
        plan, addresses = case.plan()
        assert gpu.prepare(plan)(addresses, 0) == 0
        (wanted,) = case.evaluated(np.float64)
        bound = wanted * (x.max(1, keepdims=True) - x + 4) * 2.0**-24 + 2.0**-149
        assert (np.abs(case.arrays["0"] - wanted) <= bound).all()
        case = Case("log_softmax", FLOAT, (9, 1), 1)
        plan, addresses = case.plan()
        assert gpu.prepare(plan)(addresses, 0) == 0
        assert not case.arrays["0"].any()


if MODE == "compile":
    from openaclnn.engines.gpu.launching import variants
    from test_gpu_kernels import device  # noqa: F401
    from test_gpu_sized import ALIGNED, Pretended

    def drawn(draw: Any, axes: int, most: int) -> tuple[int, ...]:
        """Sizes of all magnitudes, some of them round, of so many elements together."""
        sizes, left = [], float(most)
        for _ in range(axes):
            size = int(2 ** draw.uniform(0, left))
            sizes.append(size + -size % 16 if draw.random() < 0.4 else size)
            left -= np.log2(size)
        return tuple(sizes[:: 1 if draw.random() < 0.5 else -1])

    some_formulas = pytest.mark.parametrize(
        "name", ["log_softmax", "cross_entropy_step", "scaled_norm"]
    )

    @some_formulas
    @pytest.mark.in_turns
    def test_the_builtin_launches_what_python_would(
        name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Kernel, grid, stream and every parameter: of rows and images, short and long ones, for every class axis."""
        from openaclnn.engines.gpu.launching import scratch

        monkeypatch.setattr(row_formulas, "has_clusters", lambda: True)
        monkeypatch.setattr(
            scratch, "functions", lambda: (lambda size, stream: 1 << 30, lambda at: None)
        )
        draw = np.random.default_rng(3)
        for dtype, axis in ((FLOAT, 1), (BFLOAT16, 2), (FLOAT, 0)):
            driver, natively = Pretended(monkeypatch), 0
            plan, _ = Case(name, dtype, (3, 4, 5), axis).plan()
            run, count = gpu.dynamic_shapes(plan), len(plan.operands)
            for turn in range(60):
                axes = int(draw.integers(axis + 1, 5))
                off = [4 * bool(draw.random() < 0.2) for _ in range(count)]
                addresses = tuple([((2 + k) << 20) + by for k, by in enumerate(off)])
                call = addresses, 5 + turn, drawn(draw, axes, (12, 20, 27)[turn % 3]), ()
                status, by_itself = driver.alike(run, call, name)
                assert status == 0
                natively += by_itself
            assert natively > 45

    @some_formulas
    @pytest.mark.in_turns
    def test_the_builtin_of_any_strides_launches_what_python_would(
        name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Sizes and strides are those of no memory: nobody reads it."""
        draw, driver, natively = np.random.default_rng(6), Pretended(monkeypatch), 0
        plan, _ = Case(name, FLOAT, (3, 4, 5), 1).plan()
        offered = gpu.dynamic_strides(plan)
        assert offered is not None
        for turn in range(60):
            axes = int(draw.integers(2, 5))
            strides = draw.integers(-(1 << 14), 1 << 14, len(plan.operands) * axes) >> draw.integers(0, 14)  # fmt: skip
            sizes = tuple(draw.integers(1, 14, axes).tolist())
            call = ALIGNED[: len(plan.operands)], 5 + turn, sizes, tuple(strides.tolist()), ()
            status, by_itself = driver.alike(offered[0], call, name)
            assert status == 0
            natively += by_itself
        assert natively > 45

    @pytest.mark.parametrize(
        ("sizes", "wide", "vectors"),
        [
            ((4000, 1000, 1), False, True),
            ((4000, 1001, 1), False, True),
            ((40000, 101, 1), False, False),
            ((3, 21, 512 * 512), False, True),
            ((3_000_000, 1000, 1), True, True),
            ((40, 200, 1_000_000), True, True),
        ],
        ids=str,
    )
    @pytest.mark.in_turns
    def test_kernels_for_an_h200(
        sizes: tuple[int, int, int], wide: bool, vectors: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Rows that have a program each, aligned ones and images move by vectors; offsets have 64 bits where 32 are not enough."""
        monkeypatch.setattr(variants, "_variants", {})
        shape, walks = row_major_strides(*sizes)
        strides, class_stride, _ = walks["full"]
        x, out = (Operand(name, FLOAT, strides, class_stride) for name in ("x", "out"))
        plan = Plan("aclnn", "softmax", FLOAT, shape, (x,), out, {}, sizes[1], class_axis=1)
        assert gpu.prepare(plan)(ALIGNED[:2], 5) == 0
        ((key, variant),) = variants._variants.items()
        assert key[-3][1] is wide
        text = variant.binary.asm["ptx"]
        assert bool(re.search(r"ld\.global\S*\.v4", text)) is vectors
        assert bool(re.search(r"st\.global\S*\.v4", text)) is vectors
