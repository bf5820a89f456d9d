"""Random shapes, strides, options and values against the oracle."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import openaclnn
from conftest import (
    CPU_ENGINES,
    OPERATORS,
    assert_matches_oracle,
    call_on,
    families,
    floats_of,
    tensor_names,
)
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import FLOATS, dtype_of_numpy, promote
from openaclnn.core.plan import broadcast_shapes
from openaclnn.testing.goldens import plan_of
from workloads import cases_of

quick = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
engines = pytest.mark.parametrize("engine_name", CPU_ENGINES)
float_dtypes = st.sampled_from(FLOATS)
scalars = st.floats(-3, 3, width=32)


@st.composite
def views(draw: Any, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array of this shape in some layout: axes permuted, steps of any sign and size, an offset."""
    order = draw(st.permutations(range(len(shape))))
    steps = [draw(st.sampled_from([1, 1, 2, 3, -1, -2])) for _ in shape]
    room = [
        abs(step) * size + draw(st.integers(0, 2)) for step, size in zip(steps, shape, strict=True)
    ]
    memory = np.zeros([room[axis] for axis in order], dtype.numpy)
    view = memory.transpose(np.argsort(order)) if shape else memory
    cut = tuple(
        slice(0, size * step, step) if step > 0 else slice(size * -step - 1, None, step)
        for size, step in zip(shape, steps, strict=True)
    )
    view = view[cut] if shape else view
    seed = draw(st.integers(0, 2**32 - 1))
    values = np.random.default_rng(seed).normal(size=shape) * draw(
        st.sampled_from([0.1, 1.0, 10.0])
    )
    view[...] = np.asarray(np.round(values, 1)).astype(dtype.numpy)
    assert view.shape == shape
    return view


shapes = st.lists(st.integers(1, 5), max_size=5).map(tuple)


@st.composite
def stretched(draw: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that broadcasts to this one: axes shrunk to 1, leading ones left out."""
    sizes = tuple(1 if draw(st.booleans()) and draw(st.booleans()) else size for size in shape)
    drop = draw(st.integers(0, len(sizes)))
    return sizes[drop:] if draw(st.booleans()) else sizes


@engines
@quick
@given(data=st.data())
def test_elementwise_pair(engine_name: str, data: Any) -> None:
    operator = openaclnn.find_operator("elu_backward")
    shape, dtype = data.draw(shapes), data.draw(float_dtypes)
    arguments = {
        "grad_output": data.draw(views(shape, dtype)),
        "self_or_result": data.draw(views(shape, dtype)),
        "alpha": data.draw(st.floats(0, 3, width=32)),
        "scale": data.draw(scalars),
        "input_scale": data.draw(scalars),
        "is_result": data.draw(st.booleans()),
    }
    run(engine_name, operator, arguments, data, shape, dtype)


@engines
@quick
@given(data=st.data(), which=st.sampled_from(["l1_loss_backward", "smooth_l1_loss_backward"]))
def test_elementwise_broadcast(engine_name: str, data: Any, which: str) -> None:
    operator = openaclnn.find_operator(which)
    full = data.draw(shapes)
    operand_shapes = [data.draw(stretched(full)) for _ in range(3)]
    dtypes = [data.draw(float_dtypes)] * 3
    if data.draw(st.booleans()):
        dtypes = [data.draw(float_dtypes) for _ in range(3)]
    names = [p.python_name for p in operator.plain_parameters[0]]
    arguments: dict[str, Any] = {
        name: data.draw(views(shape, dtype))
        for name, shape, dtype in zip(names, operand_shapes, dtypes, strict=True)
    }
    arguments["reduction"] = data.draw(st.sampled_from(["none", "mean", "sum"]))
    if which.startswith("smooth"):
        arguments["beta"] = data.draw(st.sampled_from([0.0, 0.5, 1.0, 3.5]))
    shape = broadcast_shapes(*operand_shapes)
    dtype = promote(promote(dtypes[0], dtypes[1]), dtypes[2])
    run(engine_name, operator, arguments, data, shape, dtype)


@engines
@quick
@given(data=st.data())
def test_cross_entropy(engine_name: str, data: Any) -> None:
    operator = openaclnn.find_operator("cross_entropy_loss_grad")
    dtype = data.draw(float_dtypes)
    rows, classes = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 40))
    reduction = data.draw(st.sampled_from(["none", "mean", "sum"]))
    loss_shape = (rows,) if reduction == "none" else data.draw(st.sampled_from([(), (1,)]))
    index = data.draw(st.sampled_from([np.int64, np.int32]))
    ignored = data.draw(st.sampled_from([-100, -1, 0, 3]))
    log_prob = -np.abs(data.draw(views((rows, classes), dtype)))
    target = np.array(
        data.draw(st.lists(st.integers(0, classes - 1), min_size=rows, max_size=rows))
    )
    target[np.array(data.draw(st.lists(st.booleans(), min_size=rows, max_size=rows)))] = ignored
    target = np.where((target >= classes) & (target != ignored), 0, target)
    arguments: dict[str, Any] = {
        "grad_loss": data.draw(views(loss_shape, dtype)),
        "log_prob": log_prob,
        "target": target.astype(index)[:: data.draw(st.sampled_from([1, -1]))],
        "reduction": reduction,
        "ignore_index": ignored,
        "label_smoothing": data.draw(st.sampled_from([0.0, 0.1, 1.0])),
    }
    if data.draw(st.booleans()):
        arguments["weight"] = np.abs(data.draw(views((classes,), FLOATS[0]))) + np.float32(0.5)
    if data.draw(st.booleans()):
        arguments["lse_square_scale_for_zloss"] = data.draw(st.sampled_from([0.5, -1.0]))
        arguments["lse_for_zloss"] = data.draw(views((rows,), dtype))
        if data.draw(st.booleans()):
            arguments["grad_zloss"] = data.draw(views(loss_shape, dtype))
    run(engine_name, operator, arguments, data, (rows, classes), dtype)


@engines
@quick
@given(data=st.data())
def test_pixels(engine_name: str, data: Any) -> None:
    operator = openaclnn.find_operator("nll_loss2d_backward")
    dtype = data.draw(float_dtypes)
    batch, classes, height, width = (data.draw(st.integers(1, top)) for top in (3, 12, 6, 20))
    reduction = data.draw(st.sampled_from(["none", "mean", "sum"]))
    pixels = (batch, height, width)
    ignored = data.draw(st.sampled_from([-100, 0, 2, 255]))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    target = rng.integers(0, classes, pixels)
    if data.draw(st.booleans()):
        target[...] = target[:, :1, :1]
    keep = rng.random(pixels) < 0.8
    index = data.draw(st.sampled_from([np.int64, np.int32] + ([np.uint8] if ignored >= 0 else [])))
    target = np.where(keep, target, ignored).astype(index)
    arguments: dict[str, Any] = {
        "grad_output": data.draw(views(pixels if reduction == "none" else (1,), dtype)),
        "self": np.zeros((batch, classes, height, width), dtype.numpy),
        "target": target.transpose(0, 2, 1).copy().transpose(0, 2, 1)
        if data.draw(st.booleans())
        else target,
        "weight": np.abs(data.draw(views((classes,), dtype))) + dtype.numpy.type(0.5),
        "reduction": reduction,
        "ignore_index": ignored,
        "total_weight": data.draw(st.sampled_from([None, 2.5])),
    }
    if arguments["total_weight"] is not None:
        arguments["total_weight"] = np.array([2.5], dtype.numpy)
    run(engine_name, operator, arguments, data, (batch, classes, height, width), dtype)


def run(
    engine_name: str, operator: Any, arguments: dict[str, Any], data: Any, shape: Any, dtype: Any
) -> None:
    """Without and with a strided output: both right, both the same bits, the gaps untouched."""
    with openaclnn.use_engine(engine_name):
        got = call_on(engine_name, operator, arguments)
        assert got.shape == shape
        assert got.dtype == dtype.numpy
        assert_matches_oracle(operator, arguments, got)
        out = data.draw(views(shape, dtype))
        base = out
        while base.base is not None and isinstance(base.base, np.ndarray):
            base = base.base
        out[...] = np.nan
        written = np.isnan(base.astype(np.float32))
        base[~written] = 7
        for _ in range(3):  # a call is checked, then remembered, then a builtin's
            assert call_on(engine_name, operator, arguments).tobytes() == got.tobytes()
            out[...] = np.nan
            call_on(engine_name, operator, {**arguments, "out": out})
            assert out.tobytes() == got.tobytes()
            assert (base[~written].astype(np.float32) == 7).all()


@pytest.mark.parametrize("operator", families(OPERATORS), ids=lambda op: op.python_name)
@settings(quick, max_examples=8)
@given(data=st.data(), engine_name=st.sampled_from(CPU_ENGINES))
@pytest.mark.in_turns
def test_workload_in_any_layout(operator: Operator, engine_name: str, data: Any) -> None:
    """Operators without a test of their own above, too: its workload's cases, each tensor somewhere else."""
    dtype = data.draw(st.sampled_from(floats_of(operator)))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    arguments = data.draw(st.sampled_from([*cases_of(operator, rng, dtype)]))
    expected = operator.oracle(**arguments)
    for name in tensor_names(operator):
        value = arguments.get(name)
        if isinstance(value, np.ndarray) and value.dtype == dtype.numpy:
            arguments[name] = data.draw(views(value.shape, dtype))
            arguments[name][...] = value
    if operator.result_type is None:
        run(engine_name, operator, arguments, data, expected.shape, dtype)
        return
    with openaclnn.use_engine(engine_name):
        got = call_on(engine_name, operator, arguments)
        assert_matches_oracle(operator, arguments, got)
        outs = tuple(
            None if known is None else data.draw(views(known.shape, dtype_of_numpy(known.dtype)))
            for known in got
        )
        written = call_on(engine_name, operator, {**arguments, "out": outs})
        for result, place, known in zip(written, outs, got, strict=True):
            assert result is place
            if (
                known is not None
                and known.dtype.kind not in "iu"
                and plan_of(operator, arguments).steps
            ):
                # Layouts decide what the steps are, between which sums are rounded; some cancel.
                near = 2 * float(ml_dtypes.finfo(result.dtype).eps)
                wide = (array.astype(np.float64) for array in (result, known))
                np.testing.assert_allclose(*wide, rtol=near, atol=1e-4)
            elif known is not None:
                assert result.tobytes() == known.tobytes()
