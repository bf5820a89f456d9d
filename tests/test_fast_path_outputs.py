"""The fast path of operators with several outputs that a caller gives: each is written where it may be, and nothing else."""

from __future__ import annotations

import gc
import itertools
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import openaclnn
from conftest import (
    APART,
    assert_matches_oracle,
    assert_same_bits,
    device_tensor,
    floats_of,
    has_halves,
    has_targets,
    lacks,
    laid_out,
    of_one_size,
    places_for,
    plain,
    read_back,
)
from openaclnn import acl, aclnn
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import FLOAT, FLOATS, DType, dtype_of_numpy
from openaclnn.core.status import AclnnError
from openaclnn.engines.cpu.formulas import axis_sums
from test_fast_path import cache_of, counted_fast_paths
from test_fast_path_layouts import SHAPES, as_it_lies, spread
from test_fast_path_losses import NUMBERS, data_of, libraries
from test_two_phase_kinds import (
    anew,
    both,
    descriptor,
    forget,
    in_c_order,
    phase_one,
    slow_paths as slow_paths,
)

pytestmark = pytest.mark.usefixtures("any_size")
SEVERAL = [op for op in APART if op.result_type is not None]
SERVED = [op for op in SEVERAL if lacks(op) is None]
names, of_any_size = (
    pytest.mark.parametrize("operator", operators, ids=lambda op: op.python_name)
    for operators in (SEVERAL, [op for op in SEVERAL if not has_halves(op)])
)
FILL = 0.1875  # in every dtype, and no result
LAYOUTS = ("contiguous", "contiguous", "transposed", "sliced", "reversed")


@pytest.fixture
def taken() -> Iterator[list[bool]]:
    """Whether each call from here on took the fast path; nothing is known at first."""
    with counted_fast_paths(SEVERAL) as counted:
        yield counted


def problem(operator: Operator, size: int, dtype: DType = FLOAT, **options: Any) -> dict[str, Any]:
    shape = (2, 3, size, 3) if operator.workloads.PATTERN == "pixels" else (size, 5)
    variant = next(iter(operator.workloads.VARIANTS))
    arguments: dict[str, Any] = operator.workloads.make(
        np.random.default_rng(size), dtype, shape, variant
    )
    if operator.reduction:
        arguments |= options
    return arguments | (
        {"target": np.maximum(arguments["target"], 0)} if "target" in arguments else {}
    )


def test_sums_along_axes_of_many_elements_have_an_entry_for_each_size(taken: list[bool]) -> None:
    """Few elements, and rows, have one for all."""
    rng = np.random.default_rng(6)

    def drawn(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32)

    known: set[int] = set()
    for n in (8, 16, 24, 3000, 16, 2000, 3000):
        labels, size = rng.integers(-1, 4, (n, 4)), n if n * 4 * 6 > axis_sums.MOST else 0
        for call, arguments, key in (
            (openaclnn.prelu_backward, (drawn(n, 4, 6), drawn(n, 4, 6), drawn(4)), size),
            (openaclnn.multilabel_margin_loss, (drawn(n, 4), labels), 0),
        ):
            with openaclnn.use_engine("cpu"):  # the slow path alone
                expected = call(*arguments)
            taken.clear()
            assert_same_bits(call(*arguments), expected)
            assert taken == [key in known]
        known |= {0, size}


def test_rows_may_change_where_options_depend_on_the_classes(taken: list[bool]) -> None:
    """Each number of classes, which two options say, has an entry of its own."""
    rng, call = np.random.default_rng(6), openaclnn.cross_entropy_sum_exp_and_index_logit
    known: set[tuple[int, int]] = set()
    for rows, classes, start in ((8, 16, 0), (24, 16, 0), (3000, 16, 0), (9, 18, 0), (9, 16, 0), (7, 18, 0), (7, 16, 16), (8, 16, 16)):  # fmt: skip
        x, target = rng.standard_normal((rows, classes)), np.arange(rows, dtype=np.int32)
        arguments = x.astype(np.float32), target, np.ones(rows, np.float32), start, start + classes
        with openaclnn.use_engine("cpu"):  # the slow path alone
            expected = call(*arguments)
        taken.clear()
        assert_same_bits(call(*arguments), expected)
        assert taken == [(classes, start) in known]
        known.add((classes, start))
    with pytest.raises(AclnnError, match="vocabEndIndex"):
        call(*arguments[:-1], 33)
    with pytest.raises(AclnnError, match="vocabEndIndex"):
        call(arguments[0][:, 1:].copy(), *arguments[1:])


def empty(operator: Operator, arguments: dict[str, Any]) -> list[Any]:
    """Memory for each of the outputs, those too that are not written."""
    return [np.full_like(output, FILL) for output in places_for(operator, arguments)]


def converted(convert: Callable[[Any], Any], arguments: dict[str, Any]) -> dict[str, Any]:
    return {
        name: convert(value) if isinstance(value, np.ndarray) else value
        for name, value in arguments.items()
    }


def options_of(operator: Operator) -> Iterator[dict[str, Any]]:
    """What decides which outputs are written, and of which shape."""
    for reduction in ("mean", "none") if operator.reduction else ():
        yield {"reduction": reduction}
        if "return_zloss" in operator.signature():
            yield {"reduction": reduction, "return_zloss": True}
    if not operator.reduction:
        yield {}


@libraries
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@of_any_size
@pytest.mark.in_turns
def test_outputs_of_any_size_are_written_on_the_road(
    operator: Operator, dtype: DType, convert: Any, taken: list[bool]
) -> None:
    for options in options_of(operator):
        cache_of(operator).forget()
        for number, size in enumerate((6, 9, 200, 31)):
            drawn = problem(operator, size, dtype, **options)
            out, arguments = tuple(map(convert, empty(operator, drawn))), converted(convert, drawn)
            with openaclnn.use_engine("cpu"):
                expected = plain(operator)(**arguments)
            taken.clear()
            got = plain(operator)(
                **arguments, out=out if number % 2 else operator.result_type(*out)
            )
            assert taken == [number > 0 and not of_one_size(operator, drawn)]
            assert type(got) is operator.result_type
            for mine, place, wanted in zip(got, out, expected, strict=True):
                assert mine is place
                if wanted is None:
                    assert bool((mine == FILL).all())
                else:
                    assert data_of(mine) == data_of(wanted)


@libraries
@of_any_size
def test_some_outputs_may_be_given_and_others_made(
    operator: Operator, convert: Any, taken: list[bool]
) -> None:
    for options in options_of(operator):
        for which in range(1, 1 << len(operator.outputs)):
            for number, size in enumerate((6, 9)):
                drawn = problem(operator, size, **options)
                arguments, places = converted(convert, drawn), map(convert, empty(operator, drawn))
                out = tuple([place if which >> k & 1 else None for k, place in enumerate(places)])
                expected = plain(operator)(**arguments)
                got = plain(operator)(**arguments, out=out)
                assert taken[-1] == (number > 0 and not of_one_size(operator, drawn))
                for mine, place, wanted in zip(got, out, expected, strict=True):
                    assert mine is place or place is None
                    if wanted is not None:
                        assert data_of(mine) == data_of(wanted)
                    elif place is None:
                        assert mine is None


@libraries
@pytest.mark.parametrize("operator", [*filter(has_targets, SEVERAL)], ids=lambda op: op.python_name)
@pytest.mark.in_turns
def test_a_stray_target_is_refused_and_nothing_is_lost(
    operator: Operator, convert: Any, taken: list[bool]
) -> None:
    drawn = problem(operator, 6, reduction="none")
    arguments, out = converted(convert, drawn), tuple(map(convert, empty(operator, drawn)))
    call = plain(operator)
    for _ in range(2):
        call(**arguments, out=out)
    arguments["target"][-1] = 99
    for _ in range(2):
        with pytest.raises(AclnnError, match="class indices"):
            call(**arguments, out=out)
    assert taken == [False, True, False, False]
    arguments["target"][-1] = 0
    counted = (
        out,
        *out,
        *[value for value in arguments.values() if not isinstance(value, str)],
        None,
    )
    gc.collect()  # what was refused may still be held, in a ring

    def lost() -> list[int]:
        before = [sys.getrefcount(value) for value in counted]
        for which in (out, (*out[:-1], None), (None, *out[1:])):
            for _ in range(300):
                call(**arguments, out=which)
        del which
        return [sys.getrefcount(value) - old for value, old in zip(counted, before, strict=True)]

    # What is lost in a call is lost in every turn; another thread may let go of something in one.
    *arrays, nothing = min((lost() for _ in range(3)), key=lambda counts: max(map(abs, counts)))
    assert max(map(abs, arrays)) <= 2
    assert abs(nothing) < 200


@of_any_size
def test_a_list_of_outputs_is_as_good_as_a_tuple(operator: Operator, taken: list[bool]) -> None:
    for number, size in enumerate((6, 9, 31)):
        arguments = problem(operator, size, reduction="none")
        expected, out = plain(operator)(**arguments), empty(operator, arguments)
        taken.clear()
        got = plain(operator)(**arguments, out=out)
        assert taken[-1:] == [number > 0]
        assert type(got) is operator.result_type
        assert all(mine is place for mine, place in zip(got, out, strict=True))
        assert data_of(got[0]) == data_of(expected[0])


@names
def test_what_is_no_tuple_takes_the_slow_path(operator: Operator, taken: list[bool]) -> None:
    arguments = problem(operator, 6, reduction="none")
    expected = plain(operator)(**arguments)

    class Outputs(list[Any]):
        """Somebody's own list."""

    for out in (
        tuple(empty(operator, arguments)),
        Outputs(empty(operator, arguments)),
        Outputs(empty(operator, arguments)),
    ):
        got = plain(operator)(**arguments, out=out)
        assert data_of(got[0]) == data_of(expected[0])
    assert taken == [False] * 4
    for wrong in (
        tuple(empty(operator, arguments)[:-1]),
        empty(operator, arguments)[:-1],
        expected[0],
        (),
        [],
        "outputs",
    ):
        with pytest.raises(AclnnError, match=f"{len(operator.outputs)} arrays"):
            plain(operator)(**arguments, out=wrong)


class Memory:
    """Where a call's input and its outputs lie, with room between them: all in one, so that they may lie over each other. Their
    elements are `step` apart.
    """

    def __init__(self, operator: Operator, convert: Callable[[Any], Any], step: int) -> None:
        self.convert, self.step = convert, step
        options = [*options_of(operator)][-1]
        self.arrays = problem(operator, 7, **options)
        name = next(key for key, value in self.arrays.items() if np.ndim(value) > 1)
        outputs = empty(operator, self.arrays)
        shapes = [self.arrays[name].shape, *[output.shape for output in outputs]]
        self.dtypes = [output.dtype for output in outputs]  # of four bytes
        self.starts = [0]
        for shape in shapes:
            self.starts.append(self.starts[-1] + (math.prod(shape) + 3) * step)
        self.whole = np.full(self.starts[-1], FILL, np.float32)
        self.at(0, shapes[0])[...] = self.arrays[name]
        self.shapes = shapes[1:]
        self.arguments = converted(convert, self.arrays) | {name: convert(self.at(0, shapes[0]))}
        self.sound = [
            convert(self.at(start, shape, dtype))
            for start, shape, dtype in zip(self.starts[1:], self.shapes, self.dtypes, strict=False)
        ]

    def at(self, start: int, shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
        part = slice(start, start + math.prod(shape) * self.step, self.step)
        return self.whole.view(dtype)[part].reshape(shape)

    def faults(self) -> Iterator[list[Any]]:
        """Outputs, one of which is no good."""
        for number, shape in enumerate(self.shapes):
            for faulty in self.faulty(number, shape):
                yield [*self.sound[:number], faulty, *self.sound[number + 1 :]]

    def faulty(self, number: int, shape: tuple[int, ...]) -> Iterator[Any]:
        convert, own = self.convert, self.dtypes[number]
        others = [start for place, start in enumerate(self.starts[:-1]) if place != number + 1]
        for start in others:
            if start + math.prod(shape) * self.step <= self.whole.size:
                yield convert(self.at(start, shape, own))
        yield convert(np.full((*shape, 1), FILL, own))
        yield convert(np.full([n + 1 for n in shape] or [2], FILL, own))
        for dtype in {np.dtype(each) for each in "dfi?"} - {own}:
            yield convert(np.zeros(shape, dtype))
        for steps in ((0,) * len(shape), (4,) * len(shape)):
            yield convert(np.lib.stride_tricks.as_strided(self.at(0, shape, own), shape, steps))
            yield convert(np.lib.stride_tricks.as_strided(np.zeros(99, own), shape, steps))
        if convert is np.asarray:
            frozen = np.zeros(shape, own)
            frozen.flags.writeable = False
            yield frozen
        else:
            yield torch.zeros(shape, requires_grad=True)


@libraries
@pytest.mark.parametrize("step", [1, 2], ids=["row-major", "with gaps"])
@pytest.mark.parametrize("phases", [1, 2], ids=["plain", "two-phase"])
@names
@pytest.mark.in_turns
def test_what_is_wrong_with_an_output_is_told_alike(
    operator: Operator, phases: int, step: int, convert: Any, taken: list[bool]
) -> None:
    """After sound calls as if there had been none; nobody's memory is written."""
    memory = Memory(operator, convert, step)
    untouched = memory.whole.copy()

    def outcome(out: list[Any]) -> tuple[Any, Any]:
        """What is wrong, and what was computed if nothing is; the gradient of a few operators may be where their input was."""
        memory.whole[...] = untouched
        if phases == 2:
            status, message = both(operator, in_c_order(operator, memory.arguments, out))
            return status and message, None if status else data_of(tuple(out))
        try:
            return 0, data_of(plain(operator)(**memory.arguments, out=tuple(out)))
        except AclnnError as error:
            return error.args, None

    refused = 0
    for out in memory.faults():
        forget()
        cache_of(operator).forget()
        cold = outcome(out)
        for _ in range(2):
            assert not outcome(memory.sound)[0]
        assert phases == 2 or taken[-1]
        assert outcome(out) == cold
        if cold[0]:
            refused += 1
            assert memory.whole.tobytes() == untouched.tobytes()
    assert refused > 4 * len(memory.shapes)


@pytest.mark.usefixtures("any_layout")
@pytest.mark.parametrize(
    "convert", [np.asarray, as_it_lies, None], ids=["numpy", "torch", "descriptors"]
)
@of_any_size
def test_two_phases_of_any_size(
    operator: Operator, convert: Any, slow_paths: list[str], stream: Any
) -> None:
    for options in options_of(operator):
        forget()
        slow_paths.clear()
        sizes = 6, 9, 200, 31, 5
        for size in sizes:
            arguments = problem(operator, size, **options)
            expected = plain(operator)(**arguments)
            arrays, places = in_c_order(operator, arguments, empty(operator, arguments)), []
            for place in (*operator.input_places, *operator.output_places):
                array, address = arrays[place], 0
                if array is not None:
                    arrays[place], address = (
                        (convert(array), 0) if convert else device_tensor(array)
                    )
                places.append((array, address))
            assert both(operator, arrays, stream) == (0, "")
            for (array, address), wanted in zip(places[-len(expected) :], expected, strict=True):
                got = read_back(address, array) if address else array
                assert (
                    got.tobytes()
                    == (np.full_like(array, FILL) if wanted is None else wanted).tobytes()
                )
        assert len(slow_paths) == (len(sizes) if of_one_size(operator, arguments) else 1), options


@names
def test_descriptors_of_outputs_keep_the_rules_of_memory(
    operator: Operator, slow_paths: list[str], stream: Any
) -> None:
    """Wherever one of them lies: as if nothing were known, in the phase that says so."""
    memory = Memory(operator, np.asarray, 1)
    _, address = device_tensor(memory.whole)
    _, tight = device_tensor(np.zeros(1, np.float32))
    arguments = {
        name: device_tensor(value)[0] if isinstance(value, np.ndarray) else value
        for name, value in memory.arguments.items()
    }
    name = next(key for key, value in memory.arrays.items() if np.ndim(value) > 1)
    arguments[name] = descriptor(memory.arrays[name].shape, address)

    def outcome(starts: list[int], base: int = address, which: int = -1) -> tuple[int, str]:
        out = [
            descriptor(
                shape, base if number == which else address, start, dtype_of_numpy(dtype).code
            )
            for number, (shape, start, dtype) in enumerate(
                zip(memory.shapes, starts, memory.dtypes, strict=True)
            )
        ]
        return both(operator, in_c_order(operator, arguments, out), stream)

    sound, refused = memory.starts[1:-1], 0
    for number, other in itertools.product(range(len(sound)), [*memory.starts, 4]):
        starts = [*sound[:number], other, *sound[number + 1 :]]
        wanted = anew(outcome, starts)
        refused += wanted[0] != 0
        assert outcome(sound) == (0, "")
        slow_paths.clear()
        assert outcome(starts) == wanted
        assert outcome(starts) == wanted
        assert not slow_paths
    assert refused > len(sound) ** 2
    for base, number in itertools.product((tight, 0, 64), range(len(sound))):
        starts = [start * (place != number) for place, start in enumerate(sound)]
        wanted = anew(outcome, starts, base, number)
        assert outcome(sound) == (0, "")
        assert outcome(starts, base, number) == wanted
        assert wanted[0] != 0 or base == tight


def test_a_located_executor_has_its_outputs_when_asked(slow_paths: list[str], stream: Any) -> None:
    operator = openaclnn.find_operator("nll_loss")
    arguments = problem(operator, 6, reduction="none")
    out = empty(operator, arguments)
    for _ in range(3):
        status, _, executor = phase_one(operator, in_c_order(operator, arguments, out))
        assert status == 0
    assert aclnn.aclSetAclOpExecutorRepeatable(executor) == 0
    assert aclnn.aclnnNLLLoss(None, 0, executor, stream) == 0
    assert acl.aclrtSynchronizeStream(stream) == 0
    expected = plain(operator)(**arguments)
    assert data_of(tuple(out)) == data_of(expected)
    first, second = executor.outputs
    assert (first.owner is out[0], second.owner is out[1]) == (True, True)
    _, address = device_tensor(np.zeros_like(out[0]))
    assert aclnn.aclSetTensorAddr(executor, operator.output_places[0], first, address) == 0
    out[0][...] = out[1][...] = FILL
    assert aclnn.aclnnNLLLoss(None, 0, executor, stream) == 0
    assert acl.aclrtSynchronizeStream(stream) == 0
    assert data_of((read_back(address, out[0]), out[1])) == data_of(expected)
    assert bool((out[0] == FILL).all())


@pytest.mark.parametrize("phases", [1, 2], ids=["plain", "two-phase"])
def test_losses_are_not_written_over_one_class(phases: int) -> None:
    """It lies just as its positions do; in the next call of its kind there may be more."""
    operator = openaclnn.find_operator("nll_loss")

    def outcome(classes: int, over: bool) -> str:
        x = -np.arange(1, 6 * classes + 1, dtype=np.float32).reshape(6, classes)
        arguments = {
            "self": x,
            "target": np.zeros(6, np.int64),
            "weight": np.ones(classes, np.float32),
        }
        out = [x.reshape(-1)[:6] if over else np.empty(6, np.float32), np.zeros((), np.float32)]
        if phases == 2:
            return both(operator, in_c_order(operator, arguments | {"reduction": "none"}, out))[1]
        try:
            plain(operator)(**arguments, reduction="none", out=tuple(out))
        except AclnnError as error:
            return str(error)
        return ""

    for classes in (1, 3, 1, 1, 2, 1, 4):
        for over in (True, False):
            assert ("partial overlap" in outcome(classes, over)) == over


ORDERED = ("prelu_backward", "softmax_cross_entropy_with_logits")


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_sequences_of_calls_with_given_outputs(data: st.DataObject) -> None:
    """Sizes, numbers, layouts, dtypes of the outputs, some given, in one phase or two: the slow path's bits, the oracle's numbers."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    operator = data.draw(st.sampled_from(SERVED))
    dtype = data.draw(st.sampled_from(floats_of(operator)))
    convert = data.draw(st.sampled_from([np.asarray, as_it_lies]))
    fixed = data.draw(st.sampled_from([*options_of(operator)]))
    reduces = operator.reduction is not None  # what has none takes one number alone
    numbers = [name for name in NUMBERS if reduces and name in operator.signature()]
    lies, phases = data.draw(st.booleans()), data.draw(st.sampled_from([1, 2]))
    for _ in range(4):  # calls of one kind mostly
        shape = data.draw(st.sampled_from(SHAPES[operator.workloads.PATTERN]))
        variant = next(iter(operator.workloads.VARIANTS))
        drawn = operator.workloads.make(rng, dtype, shape, variant) | fixed
        drawn |= {name: data.draw(st.sampled_from(NUMBERS[name])) for name in numbers}
        if "target" in drawn:
            drawn["target"] = np.maximum(drawn["target"], 0)
        if lies:
            drawn = {name: spread(data, name, values) for name, values in drawn.items()}
        arrays = [value for value in drawn.values() if isinstance(value, np.ndarray)]
        layouts = LAYOUTS if convert is np.asarray else LAYOUTS[:-1]
        out, beneath = [], []
        for output in empty(operator, drawn):
            layout = data.draw(st.sampled_from(layouts)) if lies else "contiguous"
            view, whole = laid_out(output, layout)
            out.append(view)
            beneath.append((view, whole, whole.copy()))
        backwards = (
            min([step for array in (*arrays, *out) for step in array.strides], default=0) < 0
        )
        conversion = np.asarray if backwards else convert
        arguments = converted(conversion, drawn)
        with np.errstate(all="ignore"), openaclnn.use_engine("cpu"):
            expected = plain(operator)(**converted(np.asarray, drawn))
        places = list(map(conversion, out))
        with np.errstate(all="ignore"):
            if phases == 2:
                assert both(operator, in_c_order(operator, arguments, places)) == (0, "")
                got = out
            else:
                kept = [place if data.draw(st.booleans()) else None for place in places]
                got = plain(operator)(**arguments, out=tuple(kept))
            for mine, wanted in zip(got, expected, strict=True):
                # Sums over channels, and over rows of two tensors, are in the order in which the axes lie.
                if operator.python_name in ORDERED and lies:
                    if isinstance(mine, np.ndarray) and wanted is not None:
                        near = 8 * float(ml_dtypes.finfo(mine.dtype).eps)
                        np.testing.assert_allclose(
                            *(result.astype(np.float64) for result in (mine, wanted)),
                            rtol=near,
                            atol=near,
                        )
                    continue
                assert wanted is None or data_of(mine) == data_of(wanted)
            assert_matches_oracle(operator, drawn, expected)
        for view, whole, outside in beneath:
            view[...] = FILL
            assert whole.tobytes() == outside.tobytes()
