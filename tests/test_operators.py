"""Every operator, engine, dtype, layout and option against the float64 oracle."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import openaclnn
from conftest import (
    APART,
    CANARY,
    OPERATORS,
    TURN,
    assert_matches_oracle,
    assert_matches_sample,
    assert_same_bits,
    call_on,
    each,
    expected_of,
    families,
    floats_of,
    fresh,
    has_one_dtype,
    in_layouts,
    laid_out,
    places_for,
    plain,
    tensor_names,
    told,
    whole,
)  # fmt: skip
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import (
    BFLOAT16,
    DOUBLE,
    FLOAT,
    FLOAT16,
    FLOATS,
    INT32,
    INT64,
    UINT8,
    DType,
)
from workloads import (
    EVERYTHING,
    cases_of,
    cases_to_compile,
    data_of,
    few_to_compile,
    most_to_compile,
)

names = pytest.mark.parametrize("operator", OPERATORS, ids=lambda op: op.python_name)
of_each_family = pytest.mark.parametrize(
    "operator", families(OPERATORS), ids=lambda op: op.python_name
)
SINGLE = [op for op in OPERATORS if op.result_type is None]
dtypes = pytest.mark.parametrize("dtype", FLOATS, ids=str)


@names
def test_samples_of_the_spec(operator: Operator, engine: str) -> None:
    """The document's example, the first of them, to the last digit."""
    assert operator.samples, (
        f"{operator.name} has no sample: operators say a call with a known answer"
    )
    for sample in operator.samples:
        arguments = sample.arrays()
        got = call_on(engine, operator, arguments)
        assert_matches_sample(operator, sample, got)
        expected = expected_of(sample, np.float64)
        if sample.exact:
            for result, known in zip(
                each(operator.oracle(**arguments)), each(expected), strict=True
            ):
                np.testing.assert_array_equal(result, known)
        else:
            written = {
                k: np.asarray(v[1]) if isinstance(v, tuple) else v
                for k, v in sample.arguments.items()
            }
            reference = operator.reference(**operator.reference_arguments(**arguments) | written)
            for result, known in zip(each(reference), each(expected), strict=True):
                assert (np.abs(result - known) <= 0.5e-12 + 2 * np.spacing(np.abs(known))).all()
            exact = operator.oracle(**arguments) if sample is operator.samples[0] else got
            for result, known in zip(each(got), each(exact), strict=True):
                np.testing.assert_array_almost_equal_nulp(result, known.astype(result.dtype), 2)


@names
def test_cases(
    operator: Operator,
    engine_of_any_width: str,
    dtypes_of_width: tuple[DType, ...],
    of_another_width: bool,
) -> None:
    """Where kernels are compiled, a third of the operators have FLOAT16 beside FLOAT, another third BFLOAT16: what converts them is the same for all."""
    compiled, turn = engine_of_any_width == "cpu", (OPERATORS.index(operator) + TURN) % 3
    for place, dtype in enumerate(dtypes_of_width):
        if compiled and place and dtype is not (FLOAT16, BFLOAT16, FLOAT)[turn] and not EVERYTHING:
            continue
        cases = [*cases_of(operator, np.random.default_rng(7), dtype)]
        if compiled:
            few = dtype is not FLOAT or of_another_width
            cases = few_to_compile(cases, place) if few else most_to_compile(cases)
        for arguments in cases:
            with told(dtype):
                got = call_on(engine_of_any_width, operator, arguments)
                places = [*places_for(operator, arguments)]
                every = got if isinstance(got, tuple) else (got,)
                for result, place in zip(every, places, strict=True):
                    assert result is None or result.dtype == place.dtype
                assert_matches_oracle(operator, arguments, got)


@of_each_family
@pytest.mark.in_turns
def test_input_layouts(operator: Operator, engine: str) -> None:
    for shift, dtype in enumerate(floats_of(operator)):
        cases = [*cases_of(operator, np.random.default_rng(11), dtype)]
        if engine == "cpu":
            cases = few_to_compile(cases, shift)
        for arguments, layout in in_layouts(cases, shift):
            with told(dtype, layout):
                check_input_layout(operator, dtype, layout, engine, arguments)


def check_input_layout(
    operator: Operator, dtype: DType, layout: str, engine: str, arguments: dict[str, Any]
) -> None:
    dense = call_on(engine, operator, arguments)
    moved = dict(arguments)
    for name in tensor_names(operator):
        if isinstance(arguments.get(name), np.ndarray):
            moved[name], _ = laid_out(arguments[name], layout)
    got = call_on(engine, operator, moved)
    assert_matches_oracle(operator, moved, got)
    again = call_on(engine, operator, moved)  # a repeated call takes a shorter way
    assert_same_bits(again, got)
    summed = getattr(data_of(operator), "summed", lambda **inputs: each(dense))
    for result, other, size in zip(each(got), each(dense), summed(**arguments), strict=True):
        if dtype is FLOAT:  # other code may walk this layout, and round its steps otherwise
            bound = 2 * np.spacing(np.maximum(np.abs(result), np.abs(size).astype(np.float32)))
            assert (np.abs(result - other) <= bound).all()
        else:
            np.testing.assert_array_equal(result.astype(np.float32), other.astype(np.float32))


@pytest.mark.parametrize("operator", families(SINGLE), ids=lambda op: op.python_name)
@pytest.mark.in_turns
def test_output_layouts_keep_their_gaps(operator: Operator, engine: str) -> None:
    for shift, dtype in enumerate(floats_of(operator)):
        cases = [*cases_of(operator, np.random.default_rng(13), dtype)]
        if engine == "cpu":
            cases = few_to_compile(cases, shift)
        for arguments, layout in in_layouts(cases, shift):
            with told(dtype, layout):
                check_output_layout(operator, dtype, layout, engine, arguments)


def check_output_layout(
    operator: Operator, dtype: DType, layout: str, engine: str, arguments: dict[str, Any]
) -> None:
    view, memory = laid_out(np.zeros(operator.oracle(**arguments).shape, dtype.numpy), layout)
    touched = np.zeros(memory.size, bool)
    touched[memory_index(view, memory).reshape(-1)] = True
    assert touched.sum() == view.size
    before = memory.copy()
    results = []
    for _ in range(3):  # a repeated call takes a shorter way
        view[...] = np.nan
        assert call_on(engine, operator, {**arguments, "out": view}) is view
        results.append(view.copy())
    assert_matches_oracle(operator, arguments, results[0])
    for again in results[1:]:
        assert_same_bits(again, results[0])
    left, known = (array.reshape(-1)[~touched].view(np.uint8) for array in (memory, before))
    np.testing.assert_array_equal(left, known)


def memory_index(view: np.ndarray, memory: np.ndarray) -> np.ndarray:
    """The flat index in `memory` of each element of `view`."""
    start = view.__array_interface__["data"][0] - memory.__array_interface__["data"][0]
    places = np.full(view.shape, start // view.itemsize)
    for axis, stride in enumerate(view.strides):
        steps = np.arange(view.shape[axis]) * (stride // view.itemsize)
        places = places + steps.reshape([-1 if k == axis else 1 for k in range(view.ndim)])
    return places


def elementwise() -> list[Operator]:
    """Those whose tensors have one shape; of halves along an axis tests/test_gated.py tries the same."""
    return [op for op in OPERATORS if op.workloads.PATTERN == "elementwise" and op.axis is None]


def of_any_rank() -> list[Operator]:
    """Elementwise, or of rows along any axis, where all tensors have one shape."""
    rows = [op for op in OPERATORS if op.workloads.PATTERN == "rows" and op.axis is not None]
    return [*elementwise(), *filter(has_one_shape, rows)]


def has_one_shape(operator: Operator) -> bool:
    work, shape = operator.workloads, (3, 4)
    arguments = work.make(np.random.default_rng(1), FLOAT, shape, next(iter(work.VARIANTS)))
    arrays = [arguments[name] for name in tensor_names(operator)]
    return operator.result_type is None and all(array.shape == shape for array in arrays)


@pytest.mark.parametrize("operator", families(of_any_rank()), ids=lambda op: op.python_name)
def test_ranks_0_to_8(operator: Operator, engine: str) -> None:
    for rank in range(9):
        shape = (2, 3, 1, 2, 3, 2, 1, 2)[:rank]
        dtypes, rng = floats_of(operator), np.random.default_rng(rank)
        dtype = dtypes[rank % len(dtypes)]
        arguments = {
            name: np.asarray(rng.normal(size=shape)).astype(dtype.numpy)
            for name in tensor_names(operator)
        } | whole(operator)
        for axis in range(-max(rank, 1), max(rank, 1)) if operator.axis is not None else (None,):
            inputs = arguments if axis is None else {**arguments, "dim": axis}
            with told(dtype, shape, axis):
                got = call_on(engine, operator, inputs)
                assert got.shape == shape
                assert_matches_oracle(operator, inputs, got)


def lists_outputs(operator: Operator) -> bool:
    """Whether its document lists the output's dtypes, not only what they convert from."""
    rules = (check.rule for check in operator.checks if operator.output.name in check.names)
    return any(rule.startswith("the product supports the dtype") for rule in rules)


def converted(operator: Operator) -> list[tuple[DType, DType]]:
    """Dtypes of inputs and output that it takes together.

    Where its document lists the output's dtypes, the refusal of others is tested with its checks.
    """
    taken = floats_of(operator)
    outputs = taken if lists_outputs(operator) else (*taken, DOUBLE)
    pairs = itertools.product(taken, outputs)
    return [pair for pair in pairs if not has_one_dtype(operator, pair[1], pair[0])]


@pytest.mark.parametrize(
    "operator",
    families([op for op in elementwise() if op in APART and len(converted(op)) > 3]),
    ids=lambda op: op.python_name,
)
@pytest.mark.in_turns
def test_two_roundings(operator: Operator, engine: str) -> None:
    """The result is rounded to the computation type first, then to the output's."""
    for dtype, output in converted(operator):
        with told(dtype, output):
            check_two_roundings(operator, dtype, output, engine)


def check_two_roundings(operator: Operator, dtype: DType, output: DType, engine: str) -> None:
    rng = np.random.default_rng(3)
    arguments = {
        name: rng.normal(size=(33, 5)).astype(dtype.numpy) for name in tensor_names(operator)
    } | whole(operator)
    out = np.full((33, 5), np.nan, output.numpy)
    call_on(engine, operator, {**arguments, "out": out})
    served = openaclnn.explain(operator, **arguments, out=out).error is None
    with openaclnn.use_engine(engine if served else "numpy"):
        same = np.empty(out.shape, openaclnn.explain(operator, **arguments).plan.compute.numpy)
        plain(operator)(**arguments, out=same)
    with np.errstate(over="ignore"):
        expected = same.astype(output.numpy).astype(np.float64)
    np.testing.assert_array_equal(out.astype(np.float64), expected)


def promotes(operator: Operator) -> bool:
    return not any("has the dtype of" in check.rule for check in operator.checks)


MIXED = [
    (FLOAT16, BFLOAT16, FLOAT),
    (FLOAT16, FLOAT16, BFLOAT16),
    (BFLOAT16, FLOAT, FLOAT16),
    (FLOAT, BFLOAT16, BFLOAT16),
]


@pytest.mark.parametrize(
    "operator",
    [op for op in elementwise() if len(tensor_names(op)) == 3 and promotes(op)],
    ids=lambda op: op.python_name,
)
@pytest.mark.parametrize("mix", MIXED, ids=str)
def test_mixed_dtypes_promote(operator: Operator, mix: tuple[DType, ...], engine: str) -> None:
    rng = np.random.default_rng(5)
    arguments = {
        name: np.round(rng.normal(size=(9, 7)), 1).astype(dtype.numpy)
        for name, dtype in zip(tensor_names(operator), mix, strict=True)
    }
    got = call_on(engine, operator, arguments)
    assert got.dtype == np.float32
    assert_matches_oracle(operator, arguments, got)


def test_l1_takes_integers_that_promote(engine: str) -> None:
    operator = openaclnn.find_operator("l1_loss_backward")
    arguments = {
        "grad_output": np.ones((4,), np.float16),
        "self": np.array([1, 2, 3, 4], np.int32),
        "target": np.array([True, False, True, True]),
    }
    got = call_on(engine, operator, arguments)
    assert got.dtype == np.float16
    np.testing.assert_array_equal(got, np.array([0, 0.25, 0.25, 0.25], np.float16))


@pytest.mark.parametrize("operator", SINGLE, ids=lambda op: op.python_name)
def test_empty_tensors_succeed_and_write_nothing(operator: Operator, engine: str) -> None:
    shapes = {"elementwise": (0, 3), "rows": (0, 5), "pixels": (2, 4, 0, 3)}
    first = next(iter(operator.workloads.VARIANTS))
    shape = shapes[operator.workloads.PATTERN]
    for dtype in floats_of(operator):
        rng = np.random.default_rng(1)
        arguments = operator.workloads.make(rng, dtype, shape, first) | whole(operator)
        for parameter in operator.parameters:
            if parameter.computed:
                arguments.pop(parameter.python_name)
        with told(dtype):
            got = plain(operator)(**arguments)
            assert got.shape == (operator.oracle(**arguments).shape if operator.axis else shape)
            assert not got.size
            assert got.dtype == dtype.numpy


@dtypes
@pytest.mark.parametrize("operator", families(of_any_rank()), ids=lambda op: op.python_name)
def test_in_place(operator: Operator, dtype: DType, engine: str) -> None:
    rng = np.random.default_rng(17)
    places = 1 if operator.output.in_place else len(tensor_names(operator))
    for position in range(places):
        arguments = {
            name: rng.normal(size=(13, 70)).astype(dtype.numpy) for name in tensor_names(operator)
        } | whole(operator)
        separate = call_on(engine, operator, arguments)
        target = arguments[tensor_names(operator)[position]]
        got = call_on(engine, operator, {**arguments, "out": target})
        assert got is target
        assert_same_bits(got, separate)


@dtypes
def test_cross_entropy_in_place(dtype: DType, engine: str) -> None:
    operator = openaclnn.find_operator("cross_entropy_loss_grad")
    for arguments in cases_to_compile(operator, np.random.default_rng(19), dtype):
        separate = plain(operator)(**arguments)
        got = plain(operator)(**arguments, out=arguments["log_prob"])
        assert_same_bits(got, separate)


def test_partial_overlap_is_refused(engine: str) -> None:
    memory = np.ones(20, np.float32)
    other = np.ones(10, np.float32)
    with pytest.raises(openaclnn.AclnnError, match="partial overlap") as caught:
        openaclnn.elu_backward(memory[:10], other, out=memory[5:15])
    assert caught.value.parameter == "gradInput"
    # Interleaved views share a range of memory but not one byte.
    got = openaclnn.elu_backward(memory[0::2], other, out=memory[1::2])
    np.testing.assert_array_equal(got, 1)


def test_an_output_over_itself_is_refused(engine: str) -> None:
    out = np.lib.stride_tricks.as_strided(np.zeros(4, np.float32), (3, 4), (0, 4))
    ones = np.ones((3, 4), np.float32)
    with pytest.raises(openaclnn.AclnnError, match="lie apart"):
        openaclnn.elu_backward(ones, ones, out=out)


@of_each_family
@pytest.mark.parametrize("engine", ["cpu"], indirect=True)
@pytest.mark.in_turns
def test_same_bits_every_time(operator: Operator, engine: str) -> None:
    """Of so many elements that several threads compute them."""
    shape = {"elementwise": (70_001,), "rows": (257, 301), "pixels": (3, 9, 64, 50)}
    for place, variant in enumerate([*operator.workloads.VARIANTS] * (1 + EVERYTHING)):
        dtypes, rng = floats_of(operator), np.random.default_rng(23)
        dtype = dtypes[place % len(dtypes)]
        arguments = operator.workloads.make(rng, dtype, shape[operator.workloads.PATTERN], variant)
        with told(dtype, variant):
            first = call_on(engine, operator, arguments)
            for _ in range(3):
                assert_same_bits(call_on(engine, operator, arguments), first)
            assert_matches_oracle(operator, arguments, first)


@pytest.mark.parametrize("index", [INT64, INT32, UINT8], ids=str)
@dtypes
def test_nll_target_types(index: DType, dtype: DType, engine: str) -> None:
    operator = openaclnn.find_operator("nll_loss2d_backward")
    for arguments in cases_to_compile(operator, np.random.default_rng(29), dtype):
        arguments["ignore_index"] = 2
        arguments["target"] = np.where(arguments["target"] < 0, 2, arguments["target"]).astype(
            index.numpy
        )
        assert_matches_oracle(operator, arguments, plain(operator)(**arguments))


def test_canary_helper_fills() -> None:
    assert (fresh((3,), np.dtype(np.float32)).view(np.uint8) == CANARY).all()


@dtypes
@pytest.mark.parametrize("operator", families(of_any_rank()), ids=lambda op: op.python_name)
def test_everything_backwards_and_repeated(operator: Operator, dtype: DType, engine: str) -> None:
    """All operands run downwards: walked upwards from their other end, also on the shorter way."""
    rng = np.random.default_rng(53)
    for _ in range(3):
        arguments = {
            name: rng.normal(size=(5, 40)).astype(dtype.numpy)[::-1, ::-1]
            for name in tensor_names(operator)
        } | whole(operator)
        out = np.full((5, 40), np.nan, dtype.numpy)[::-1, ::-1]
        assert call_on(engine, operator, {**arguments, "out": out}) is out
        assert_matches_oracle(operator, arguments, out.copy())
