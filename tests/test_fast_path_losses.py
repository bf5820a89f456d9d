"""The fast path of losses: sums over arrays of any size, numbers and strides, and several outputs, which it makes."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import openaclnn
from conftest import APART, SIZED, assert_matches_oracle, each, plain
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import FLOAT, FLOATS, DType
from openaclnn.core.status import AclnnError
from openaclnn.engines.cpu.formulas.sums import BLOCK
from openaclnn.repeat import slots as at
from test_fast_path import bits, cache_of, counted_fast_paths
from test_fast_path_layouts import SHAPES, as_it_lies, spread

LOSSES = [
    op for op in APART if op not in SIZED and op.reduction and not (op.result_type is None and op.workloads.PATTERN != "elementwise")
    and getattr(op.workloads, "ANY_SIZE", True)
]  # fmt: skip
names = pytest.mark.parametrize("operator", LOSSES, ids=lambda op: op.python_name)
libraries = pytest.mark.parametrize("convert", [np.asarray, as_it_lies], ids=["numpy", "torch"])
SIZES: dict[str, list[Any]] = {
    **SHAPES,
    "elementwise": [(7,), (1,), (40, 3), (2, 3, 4), (5, 1, 9), (1, 1), (4100,), ()],
}
NUMBERS: dict[str, list[Any]] = {
    "beta": [1.0, 0.5, 0.0, 2, 0.3, 1e30],
    "ignore_index": [-100, 0, 2, -7],
    "label_smoothing": [0.1, 0.25, 0.0, 1.0],
    "lse_square_scale_for_zloss": [0.5, 0.0, 0.125],
}


@pytest.fixture
def taken() -> Iterator[list[bool]]:
    """Whether each call from here on took the fast path; nothing is known at first."""
    with counted_fast_paths(LOSSES) as counted:
        yield counted


def data_of(result: Any) -> list[bytes]:
    """The bits of each of the results."""
    return [
        bits(output.reshape(-1)) if isinstance(output, torch.Tensor) else output.tobytes()
        for output in each(result)
    ]


def assert_same_as_the_slow_path(operator: Operator, arguments: dict[str, Any], got: Any) -> Any:
    with openaclnn.use_engine("cpu"):
        expected = plain(operator)(**arguments)
    assert data_of(got) == data_of(expected)
    assert [output.shape for output in each(got)] == [output.shape for output in each(expected)]
    return expected


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_sequences_of_losses(data: st.DataObject) -> None:
    """Sizes, numbers, layouts, stretched or not, in any order: the slow path's bits, and the oracle's numbers."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    operator = data.draw(st.sampled_from(LOSSES))
    pattern, dtype = operator.workloads.PATTERN, data.draw(st.sampled_from(FLOATS))
    fixed: dict[str, Any] = {"reduction": data.draw(st.sampled_from(["none", "mean", "sum"]))}
    if "return_zloss" in operator.signature():
        fixed["return_zloss"] = data.draw(st.booleans())
    names = [name for name in NUMBERS if name in operator.signature()]
    convert = data.draw(st.sampled_from([np.asarray, as_it_lies]))
    lies = data.draw(st.sampled_from(["dense", "anyhow"]))
    given_out = operator.result_type is None and data.draw(st.booleans())
    for _ in range(4):  # calls of one kind mostly
        shape = data.draw(st.sampled_from(SIZES[pattern]))
        drawn = operator.workloads.make(
            rng, dtype, shape, next(iter(operator.workloads.VARIANTS))
        ) | fixed  # fmt: skip
        drawn |= {name: data.draw(st.sampled_from(NUMBERS[name])) for name in names}
        stretches = pattern == "elementwise" and "broadcasts with" in operator["target"].shape
        if stretches and shape and data.draw(st.booleans()):
            drawn["target"] = drawn["target"][..., :1]
        if "target" in drawn and pattern != "elementwise":
            drawn["target"] = np.maximum(drawn["target"], 0)
        if lies == "anyhow":
            drawn = {name: spread(data, name, values) for name, values in drawn.items()}
        strides = [
            stride for a in drawn.values() if isinstance(a, np.ndarray) for stride in a.strides
        ]
        if convert is np.asarray or min(strides, default=0) >= 0:
            arguments = {
                name: convert(values) if isinstance(values, np.ndarray) else values
                for name, values in drawn.items()
            }
        else:
            arguments = drawn
        with np.errstate(all="ignore"):
            options: dict[str, Any] = {}
            if given_out:
                options["out"] = plain(operator)(**arguments)
            got = plain(operator)(**arguments, **options)
            expected = assert_same_as_the_slow_path(operator, arguments, got)
            if convert is np.asarray:
                assert_matches_oracle(operator, drawn, expected)


@libraries
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("reduction", ["mean", "none"])
@names
@pytest.mark.in_turns
def test_what_changes_from_call_to_call_takes_the_road(
    operator: Operator, reduction: str, dtype: DType, convert: Any, taken: list[bool]
) -> None:
    rng = np.random.default_rng(11)
    variant = next(iter(operator.workloads.VARIANTS))
    # A zero or an integer where others are floats is another kind, and so is a beta that is no power of two.
    free = {
        name: [value for value in values if value and type(value) is type(values[0])]
        for name, values in (NUMBERS | {"beta": [1.0, 0.5, 0.25, 4.0]}).items()
        if name in operator.signature()
    }
    for turned in (False, True):
        cache_of(operator).forget()
        seen = []
        for number, size in enumerate((6, 9, 200, 31)):
            pixels = operator.workloads.PATTERN == "pixels"
            shape = (2, 3, size, 3) if pixels else (size, 5)
            drawn = operator.workloads.make(rng, dtype, shape, variant)
            drawn |= {name: values[number % len(values)] for name, values in free.items()}
            drawn = {
                name: np.asfortranarray(array) if turned and array.ndim > 1 else array
                for name, array in drawn.items()
                if isinstance(array, np.ndarray)
            } | {
                name: option for name, option in drawn.items() if not isinstance(option, np.ndarray)
            }
            arguments = {
                name: convert(value) if isinstance(value, np.ndarray) else value
                for name, value in drawn.items()
            } | {"reduction": reduction}
            taken.clear()
            got = plain(operator)(**arguments)
            seen += taken
            assert_same_as_the_slow_path(operator, arguments, got)
        assert seen == [False, True, True, True]


@libraries
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_sums_of_any_length_have_the_bits_of_the_slow_path(
    dtype: DType, convert: Any, taken: list[bool]
) -> None:
    """Around every bound at which they are added up otherwise: in rows, in pairs, in blocks; with gaps, and stretched."""
    rng = np.random.default_rng(3)
    most = BLOCK  # of elements with gaps
    for count in (
        2,
        7,
        8,
        9,
        16,
        100,
        127,
        128,
        129,
        136,
        500,
        1023,
        1025,
        most - 1,
        most,
        most + 1,
        3 * most,
    ):
        x, y = (rng.normal(size=2 * count).astype(dtype.numpy) for _ in range(2))
        rows = x.reshape(2, -1)
        for arrays in (
            (x, y), (x, y[:1]), (x[::2], y[::2]), (x[::2], y[:1]), (x[::-1], y), (rows, y.reshape(2, -1)),
            (rows.T, y.reshape(2, -1).T), (rows.T, y.reshape(-1, 2)), (rows, y[:1]), (rows, y[:2].reshape(2, 1)),
        ):  # fmt: skip
            if convert is as_it_lies and min(stride for a in arrays for stride in a.strides) < 0:
                continue
            for reduction in ("mean", "sum"):
                arguments = {
                    "self": convert(arrays[0]), "target": convert(arrays[1]), "reduction": reduction, "beta": count / 64,
                }  # fmt: skip
                operator = openaclnn.find_operator("smooth_l1_loss")
                assert_same_as_the_slow_path(operator, arguments, plain(operator)(**arguments))
    assert taken.count(True) > 200


@libraries
def test_a_loss_is_written_where_it_may_be(convert: Any, taken: list[bool]) -> None:
    x, y = (np.random.default_rng(n).normal(size=(3, 7)).astype(np.float32) for n in (1, 2))
    expected = openaclnn.l1_loss(convert(x), convert(y))
    for shape in ((3, 7), (7,), (2, 3)):
        inputs = [convert(one.reshape(-1)[: int(np.prod(shape))].reshape(shape)) for one in (x, y)]
        out = convert(np.zeros((), np.float32))
        assert openaclnn.l1_loss(*inputs, out=out) is out
        assert data_of(out) == data_of(openaclnn.l1_loss(*inputs))
    assert taken == [False, False, True, True, True, True, True]
    assert float(out) != float(expected)
    taken.clear()
    memory = convert(x.copy())
    with pytest.raises(AclnnError, match="overlap"):
        openaclnn.l1_loss(memory, convert(y), out=memory[1, 2:3].reshape(()))
    with pytest.raises(AclnnError, match="out"):
        openaclnn.l1_loss(convert(x), convert(y), out=convert(np.zeros(2, np.float32)))
    assert True not in taken


@libraries
@pytest.mark.parametrize(
    "operator", [op for op in LOSSES if op.result_type is not None], ids=lambda op: op.python_name
)
def test_a_stray_target_is_refused_and_nothing_is_lost(
    operator: Operator, convert: Any, taken: list[bool]
) -> None:
    rng, pixels = np.random.default_rng(4), operator.workloads.PATTERN == "pixels"
    variant = next(iter(operator.workloads.VARIANTS))

    def arguments(size: int) -> dict[str, Any]:
        shape = (1, 3, size, 2) if pixels else (size, 3)
        drawn = operator.workloads.make(rng, FLOAT, shape, variant)
        return {name: convert(v) if isinstance(v, np.ndarray) else v for name, v in drawn.items()}

    plain(operator)(**arguments(5))
    inputs = arguments(6)
    assert len(each(plain(operator)(**inputs))) >= 2
    inputs["target"][-1] = 3
    for _ in range(3):
        with pytest.raises(AclnnError, match="class indices"):
            plain(operator)(**inputs)
    assert taken == [False, True, False, False, False]
    inputs["target"][-1] = 0
    call = plain(operator)
    gc.collect()
    counts = [sys.getrefcount(value) for value in (inputs["target"], None)]
    for _ in range(1000):
        call(**inputs)
    after = [sys.getrefcount(value) for value in (inputs["target"], None)]
    assert after[0] == counts[0]
    assert abs(after[1] - counts[1]) < 500


def test_what_a_road_knows_may_go_while_results_are_made(taken: list[bool]) -> None:
    """A finaliser may run in an allocation, and call what it likes."""
    x, target, weight = -np.ones((5, 3), np.float32), np.arange(5) % 3, np.ones(3, np.float32)
    road = cache_of(openaclnn.find_operator("nll_loss"))

    def make(shape: Any, dtype: Any) -> Any:
        road.forget()
        return np.empty(shape, dtype)

    for _ in range(3):
        openaclnn.nll_loss(x, target, weight, reduction="none")
        for slot in (at.MAKE, at.MAKE_LARGE):
            road.entries[0].words[slot] = id(make)
        loss, total = openaclnn.nll_loss(x, target, weight, reduction="none")
        assert (loss.tolist(), float(total)) == ([1.0] * 5, 5.0)
    assert taken == [False, True] * 3
