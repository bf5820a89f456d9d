"""Two-phase calls that the cache of phase one serves: other sizes skip bind, check and plan, have the bits of the slow path, and break the same rules."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import openaclnn
from conftest import (
    APART,
    OPERATORS,
    SIZED,
    assert_matches_oracle,
    assert_same_bits,
    device_tensor,
    each,
    families,
    floats_of,
    has_halves,
    laid_out,
    of_one_size,
    places_for,
    plain,
    read_back,
    table_of,
)
from openaclnn import acl, aclnn
from openaclnn.calls import executor
from openaclnn.core import products
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import BFLOAT16, FLOAT
from openaclnn.core.interface import Kind
from openaclnn.core.tensor import Tensor
from openaclnn.runtime import memory
from openaclnn.testing.goldens import plan_of
from test_fast_path import CLASS_NUMBERS, NUMBERS
from test_interop import to_torch
from workloads import data_of
from workloads.mistakes import Mistake

pytestmark = pytest.mark.usefixtures("any_size")
names = pytest.mark.parametrize("operator", families(SIZED), ids=lambda op: op.python_name)
every = pytest.mark.parametrize("operator", families(APART), ids=lambda op: op.python_name)
of_any_size = pytest.mark.parametrize(
    "operator", [op for op in families(APART) if not has_halves(op)], ids=lambda op: op.python_name
)
ELU = openaclnn.find_operator("elu_backward")


def forget() -> None:
    """Nothing is known of any call."""
    for listener in products.listeners:
        listener()


@pytest.fixture
def slow_paths(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The operators of phase ones that were bound, checked and planned from here on; nothing is known at first."""
    bound: list[str] = []
    bind = executor.bind_arguments

    def counted(operator: Any, *rest: Any) -> Any:
        bound.append(operator.python_name)
        return bind(operator, *rest)

    monkeypatch.setattr(executor, "bind_arguments", counted)
    forget()
    return bound


def in_c_order(operator: Operator, arguments: dict[str, Any], out: Any) -> list[Any]:
    """The plain call's arguments as phase one takes them; several outputs are a list."""
    by_name = operator.plain_defaults | arguments
    if operator.output.in_place:
        out[...] = by_name[operator.output.python_name]
    outputs = iter([out] if operator.result_type is None else out)
    values = []
    for parameter in operator.parameters:
        written = parameter.kind is Kind.OUTPUT
        value = next(outputs) if written else by_name[parameter.python_name]
        if parameter.choices and parameter.kind is Kind.INT64:
            value = parameter.choices.index(value)
        values.append(value)
    return values


def phase_one(operator: Operator, arguments: list[Any]) -> tuple[int, int, Any]:
    first: tuple[int, int, Any] = getattr(aclnn, f"{operator.name}GetWorkspaceSize")(*arguments)
    return first


def both(operator: Operator, arguments: list[Any], stream: Any = None) -> tuple[int, str]:
    """Status and message of the phase that refuses, or of a round trip."""
    acl.aclGetRecentErrMsg()
    status, size, executor = phase_one(operator, arguments)
    if status == 0:
        status = getattr(aclnn, operator.name)(None, size, executor, stream)
    if status == 0:
        status = acl.aclrtSynchronizeStream(stream)
    message = acl.aclGetRecentErrMsg() or ""
    return status, message.partition("Error(")[2]


def computed(operator: Operator, arguments: dict[str, Any], out: Any) -> str:
    assert both(operator, in_c_order(operator, arguments, out)) == (0, "")
    return digest(out)


def digest(array: Any) -> str:
    """Of an array's bits: pytest would compare megabytes that differ for minutes."""
    return hashlib.sha256(array.tobytes()).hexdigest()


def anew(call: Callable[..., Any], *arguments: Any) -> Any:
    """What a call gives when nothing is known before it."""
    forget()
    result = call(*arguments)
    forget()
    return result


SHAPES = {
    "elementwise": [(2, 3), (7, 5), (64, 64), (300, 333), (3, 1), (1, 900), (2, 2)],
    "rows": [(4, 5), (9, 30), (300, 33), (1, 7), (5, 70_000), (2, 2)],
    "pixels": [(2, 3, 4, 5), (1, 21, 4, 5), (3, 2, 40, 37), (1, 12, 300, 210), (2, 9, 16, 16)],
}


@names
@pytest.mark.parametrize("dtype", [FLOAT, BFLOAT16], ids=str)
@pytest.mark.in_turns
def test_other_sizes_have_the_bits_of_the_slow_path(
    operator: Operator, dtype: Any, slow_paths: list[str]
) -> None:
    rng = np.random.default_rng(5)
    for variant in operator.workloads.VARIANTS:
        problems, expected = [], []
        for shape in SHAPES[operator.workloads.PATTERN]:
            arguments = operator.workloads.make(rng, dtype, shape, variant)
            out = np.empty_like(plain(operator)(**arguments))
            problems.append((arguments, out))
            expected.append(anew(computed, operator, arguments, out))
        slow_paths.clear()
        for (arguments, out), wanted in zip(problems, expected, strict=True):
            out.view(np.uint8)[...] = 0xA5
            assert computed(operator, arguments, out) == wanted
        # Where a form serves some counts only, each range is a kind.
        assert len(slow_paths) <= 2
        assert_matches_oracle(operator, problems[0][0], problems[0][1])


FEW = {
    "elementwise": [(1,), (), (1, 1, 1), (0,), (3, 0), (5, 4)],
    "rows": [(1, 1), (1, 4), (0, 4), (5, 4)],
    "pixels": [(1, 1, 1, 1), (0, 2, 3, 3), (2, 3, 2, 3)],
}


@pytest.mark.parametrize(
    "convert", [np.asarray, torch.from_numpy, Tensor.from_numpy], ids=["arrays", "tensors", "ours"]
)
@every
@pytest.mark.in_turns
def test_calls_of_one_size_are_known_when_they_come_again(
    operator: Operator, convert: Any, slow_paths: list[str]
) -> None:
    """One element, none, and axes that lie otherwise; at other addresses and with other values each time."""
    rng = np.random.default_rng(3)
    for shape in FEW[operator.workloads.PATTERN]:
        for variant in operator.workloads.VARIANTS:
            forget()
            for number in range(3):
                drawn = operator.workloads.make(rng, FLOAT, shape, variant)
                drawn = {
                    name: laid_out(np.asarray(value), "transposed")[0]
                    if isinstance(value, (np.ndarray, np.generic))
                    else value
                    for name, value in drawn.items()
                }
                arguments = {
                    n: convert(v) if isinstance(v, np.ndarray) else v for n, v in drawn.items()
                }
                places = list(places_for(operator, drawn))
                outputs: Any = list(map(convert, places))
                slow_paths.clear()
                out = outputs[0] if operator.result_type is None else outputs
                status, message = both(operator, in_c_order(operator, arguments, out))
                if 0 in shape and "none of them 0" in message:
                    written = []
                    continue
                assert not status, message
                assert not (slow_paths and number), (shape, variant)
                expected, exact = plain(operator)(**drawn), operator.oracle(**drawn)
                if operator.result_type is None:
                    expected, exact = (expected,), (exact,)
                written = [place for place, result in enumerate(exact) if result is not None]
                if plan_of(operator, drawn).empty:
                    written = []  # a plain call's own place has zeros there
                for place in written:
                    assert_same_bits(places[place], expected[place])
            if written:
                assert_matches_oracle(operator, drawn, tuple([places[place] for place in written]))


@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy], ids=["arrays", "tensors"])
def test_overlap_where_strides_are_part_of_the_kind(convert: Any, slow_paths: list[str]) -> None:
    """Apart, in place and interleaved; half over each other is refused, however often the kind was seen."""
    for _ in range(4):
        for start, wanted in ((20, 0), (0, 0), (1, 0), (2, 161002)):
            values = np.linspace(-1, 1, 40, dtype=np.float32)
            x, out = values[:20:2], values[start : start + 20 : 2]
            expected = openaclnn.elu_backward(x.copy(), x.copy()) if not wanted else out.copy()
            status, message = both(
                ELU, elu_on(convert(values)[:20:2], convert(values)[start : start + 20 : 2])
            )
            assert (status, "partial overlap" in message) == (wanted, wanted != 0)
            np.testing.assert_array_equal(out, expected)
    assert len(slow_paths) == 2  # what interleaves is a kind of its own


IN_C = {"none": b"none", "tanh": b"tanh"}


@pytest.mark.parametrize("word", ["".join, lambda text: IN_C["".join(text)]], ids=["Python", "C"])
def test_words_are_known_by_value(word: Any, slow_paths: list[str]) -> None:
    """Python may make a string anew; C's are one object for each word."""
    operator = openaclnn.find_operator("gelu_backward_v2")
    for size in (7, 9, 30):
        x = np.linspace(-3, 3, size, dtype=np.float32)
        for text in IN_C:
            out = np.empty_like(x)
            assert both(operator, [x, x, word(list(text)), out]) == (0, "")
            np.testing.assert_array_equal(out, plain(operator)(x, x, approximate=text))
    assert len(slow_paths) == 2


STEPS = [(1, 6), (14, 2), (28, -2), (7, 1)]  # of (5, 6), the first first


@pytest.mark.parametrize(
    "convert", [np.asarray, torch.from_numpy, Tensor.from_numpy], ids=["arrays", "tensors", "ours"]
)
def test_strides_that_were_not_seen_before(convert: Any, slow_paths: list[str]) -> None:
    """They are known as soon as others were seen, and so are their overlaps."""
    values = np.random.default_rng(6).normal(size=200).astype(np.float32)

    def laid(memory: Any, steps: tuple[int, int], start: int = 0) -> Any:
        start += 5 * max(-steps[1], 0)
        strides = tuple([4 * step for step in steps])
        return np.lib.stride_tricks.as_strided(memory[start:], (5, 6), strides)

    for steps in STEPS:
        if convert is torch.from_numpy and min(steps) < 0:
            continue
        # Apart, in place, over itself along other strides.
        for there, apart, refused in ((STEPS[1], True, 0), (steps, False, 0), ((35, 3), False, 1)):
            memory = values.copy()
            x, out = (
                laid(memory, steps),
                laid(np.zeros(200, np.float32) if apart else memory, there),
            )
            expected = openaclnn.elu_backward(x.copy(), x.copy())
            status, message = both(ELU, elu_on(convert(x), convert(out)))
            assert (status, "partial overlap" in message) == (161002 * refused, bool(refused))
            assert bool(refused) or np.array_equal(out, expected)
    assert len(slow_paths) <= 2  # those that are refused may be entered, too


def test_a_mean_follows_the_size(slow_paths: list[str]) -> None:
    for name in ("l1_loss_backward", "smooth_l1_loss_backward"):
        operator = openaclnn.find_operator(name)
        first = operator.tensors[0].python_name
        for size in (7, 3, 1000, 70_001):
            x, y = np.random.default_rng(size).normal(size=(2, size)).astype(np.float32)
            arguments = {
                first: np.ones((), np.float32),
                "self": x,
                "target": y,
                "reduction": "mean",
            }
            out = np.empty_like(x)
            got = computed(operator, arguments, out)
            with openaclnn.use_engine("cpu"):
                assert got == digest(plain(operator)(**arguments))
    assert slow_paths == ["l1_loss_backward", "smooth_l1_loss_backward"]


@every
@pytest.mark.in_turns
def test_what_is_wrong_is_told_alike_after_a_good_call(
    operator: Operator, slow_paths: list[str]
) -> None:
    """Every mistake: the same status and message whether or not the kind of the sound call is known."""
    sound, mistakes = table_of(operator)

    def refused(mistake: Mistake) -> tuple[int, str]:
        arguments = sound() | mistake.change
        pointers = [object() if present else None for present in mistake.pointers]
        acl.aclGetRecentErrMsg()
        values = [arguments[p.name] for p in operator.parameters]
        status, _, _ = phase_one(operator, [*values, *pointers])
        return status, (acl.aclGetRecentErrMsg() or "").partition("Error(")[2]

    for mistake in mistakes:
        wanted = anew(refused, mistake)
        assert wanted[0] != 0
        for _ in range(2):
            assert phase_one(operator, [sound()[p.name] for p in operator.parameters])[0] == 0
            assert refused(mistake) == wanted


def elu_on(x: Any, out: Any, **options: Any) -> list[Any]:
    return in_c_order(ELU, {"grad_output": x, "self_or_result": x, **options}, out)


def descriptor(
    shape: tuple[int, ...], address: int, offset: int = 0, dtype: int = acl.ACL_FLOAT
) -> Any:
    return acl.aclCreateTensor(shape, dtype, None, offset, acl.ACL_FORMAT_ND, shape, address)


@pytest.fixture
def known(stream: Any, slow_paths: list[str]) -> Any:
    """ELU on row-major FLOAT of two axes is known; gives the stream."""
    x, _ = device_tensor(np.ones((3, 4), np.float32))
    out, _ = device_tensor(np.zeros((3, 4), np.float32))
    assert both(ELU, elu_on(x, out), stream) == (0, "")
    slow_paths.clear()
    return stream


def test_memory_of_other_sizes_is_checked(known: Any, slow_paths: list[str]) -> None:
    x, address = device_tensor(np.linspace(-2, 2, 64, dtype=np.float32).reshape(8, 8))
    out, out_address = device_tensor(np.zeros((8, 8), np.float32))
    for rows in (8, 5, 2):
        view, result = descriptor((rows, 8), address), descriptor((rows, 8), out_address)
        assert both(ELU, elu_on(view, result), known) == (0, "")
    half, rest = descriptor((4, 8), address, 32), descriptor((4, 8), out_address, 32)
    assert both(ELU, elu_on(half, rest), known) == (0, "")
    assert slow_paths == []
    x_back = read_back(address, np.empty((8, 8), np.float32))
    np.testing.assert_array_equal(
        read_back(out_address, x_back), openaclnn.elu_backward(x_back, x_back)
    )
    status, host = acl.aclrtMallocHost(512)
    assert status == 0
    for bad, why in (
        (descriptor((8, 16), address), "a view inside its allocation"),
        (descriptor((8, 8), address, 32), "a view inside its allocation"),
        (descriptor((8, 8), address, 1 << 20), "got one of its bytes 4194304 to 4194560"),
        (descriptor((8, 8), address - 64), "device memory from aclrtMalloc"),
        (descriptor((8, 8), 64), "unknown memory"),
        (descriptor((8, 8), host), "host memory"),
    ):
        shaped = elu_on(bad, bad)
        refusal = both(ELU, shaped, known)
        assert refusal[0] == 161002
        assert why in refusal[1]
        assert "gradOutput" in refusal[1]
        assert anew(both, ELU, shaped, known) == refusal
        assert both(ELU, elu_on(x, out), known) == (0, "")
    later = elu_on(x, descriptor((8, 8), 0))
    assert phase_one(ELU, later)[0] == 0  # the address may still come
    refusal = both(ELU, later, known)
    assert refusal[0] == 161001
    assert "null" in refusal[1]


def test_memory_freed_between_the_phases(known: Any, slow_paths: list[str]) -> None:
    x, address = device_tensor(np.ones((5, 7), np.float32))
    out, _ = device_tensor(np.zeros((5, 7), np.float32))
    _, other = device_tensor(np.zeros(3, np.float32))
    status, size, executor = phase_one(ELU, elu_on(x, out))
    assert status == 0
    assert acl.aclrtFree(other) == 0  # not ours: looked at again, and found
    assert aclnn.aclnnEluBackward(None, size, executor, known) == 0
    status, size, executor = phase_one(ELU, elu_on(x, out))
    assert status == 0
    assert acl.aclrtFree(address) == 0
    assert aclnn.aclnnEluBackward(None, size, executor, known) == 161002
    assert "unknown memory" in (acl.aclGetRecentErrMsg() or "")
    assert slow_paths == []


def test_a_descriptor_that_changes_between_the_phases(known: Any, slow_paths: list[str]) -> None:
    """What was planned is what is done: the memory has to do for the shape of phase one."""
    values = np.linspace(-1, 1, 35, dtype=np.float32).reshape(5, 7)
    x, _ = device_tensor(values)
    out, _ = device_tensor(np.zeros_like(values))
    _, roomy = device_tensor(np.zeros_like(values))
    _, tight = device_tensor(np.zeros(2, np.float32))
    for address, wanted in ((roomy, 0), (tight, 161002)):
        status, size, executor = phase_one(ELU, elu_on(x, out))
        assert status == 0
        assert acl.aclInitTensor(out, (2,), acl.ACL_FLOAT, (1,), 0, 2, (2,), address) == 0
        assert aclnn.aclnnEluBackward(None, size, executor, known) == wanted
        assert acl.aclInitTensor(out, (5, 7), acl.ACL_FLOAT, (7, 1), 0, 2, (5, 7), roomy) == 0
    assert acl.aclrtSynchronizeStream(known) == 0
    np.testing.assert_array_equal(read_back(roomy, values), openaclnn.elu_backward(values, values))
    assert slow_paths == []


def test_overlap_of_other_sizes_is_refused(known: Any, slow_paths: list[str]) -> None:
    values = np.linspace(-1, 1, 60, dtype=np.float32)
    _, address = device_tensor(values)
    same = descriptor((6, 5), address)
    assert both(ELU, elu_on(same, descriptor((6, 5), address)), known) == (0, "")  # in place
    expected = openaclnn.elu_backward(values[:30], values[:30])
    np.testing.assert_array_equal(read_back(address, values[:30]), expected)
    assert slow_paths == []
    apart = elu_on(same, descriptor((6, 5), address, 30))
    assert both(ELU, apart, known) == (0, "")
    shifted = elu_on(same, descriptor((6, 5), address, 29))
    assert phase_one(ELU, shifted)[0] == 0  # phase two refuses it
    refusal = both(ELU, shifted, known)
    assert refusal[0] == 161002
    assert "partial overlap" in refusal[1]
    assert anew(both, ELU, shifted, known) == refusal


def test_one_element_inside_the_output_is_refused(stream: Any, slow_paths: list[str]) -> None:
    operator = openaclnn.find_operator("l1_loss_backward")
    _, address = device_tensor(np.ones(64, np.float32))
    _, place = device_tensor(np.ones(64, np.float32))
    for rows in (3, 4, 2):
        x = descriptor((rows, 5), address)
        out = descriptor((rows, 5), place)
        for offset, wanted in ((5 * rows, 0), (0, 161002), (5 * rows - 1, 161002)):
            gradient = descriptor((1,), place, offset)
            arguments = {"grad_output": gradient, "self": x, "target": x, "reduction": "mean"}
            status, message = both(operator, in_c_order(operator, arguments, out), stream)
            assert status == wanted
            assert ("partial overlap" in message) == (wanted != 0)
    assert len(slow_paths) == 1


def test_shapes_that_are_not_of_the_kind(known: Any, slow_paths: list[str]) -> None:
    """Empty, one element, more axes, other layouts, formats and dtypes: each as if nothing were known."""
    _, address = device_tensor(np.ones(64, np.float32))
    _, place = device_tensor(np.zeros(64, np.float32))

    def pair(shape: Any, strides: Any = None, form: int = 2, dtype: int = 0) -> tuple[Any, Any]:
        tensors = [
            acl.aclCreateTensor(shape, dtype, strides, 0, form, shape, where)
            for where in (address, place)
        ]
        return tensors[0], tensors[1]

    for x, out in (
        pair((0, 4)), pair((1, 1)), pair((2, 3, 4)), pair((1,) * 9), pair((4, 4), (1, 4)),
        pair((4, 4), (5, 1)), pair((4, 4), (0, 1)), pair((4, 4), form=29), pair((4, 4), dtype=1),
        pair((4, 4), dtype=3),
    ):  # fmt: skip
        for arguments in (
            elu_on(x, out), elu_on(x, pair((3, 4))[1]), elu_on(pair((3, 4))[0], out),
        ):  # fmt: skip
            outcomes = [both(ELU, arguments, known) for _ in range(3)]
            assert [anew(both, ELU, arguments, known)] * 3 == outcomes
    gone, out = pair((3, 4))
    assert acl.aclDestroyTensor(gone) == 0
    assert both(ELU, elu_on(gone, out), known)[0] == 161002


def test_axes_of_one_element_may_have_any_stride(known: Any, slow_paths: list[str]) -> None:
    values = np.linspace(-1, 1, 5, dtype=np.float32)
    _, address = device_tensor(values)
    _, place = device_tensor(np.zeros_like(values))
    for strides in ((5, 1), (77, 1), (0, 1)):
        x = acl.aclCreateTensor((1, 5), 0, strides, 0, 2, (1, 5), address)
        assert both(ELU, elu_on(x, descriptor((1, 5), place)), known) == (0, "")
        np.testing.assert_array_equal(
            read_back(place, values), openaclnn.elu_backward(values, values)
        )
    assert slow_paths == []


def test_repeatable_executors_of_other_sizes(known: Any, slow_paths: list[str]) -> None:
    executors = []
    for rows in (2, 30, 20_000):
        values = np.random.default_rng(rows).normal(size=(rows, 6)).astype(np.float32)
        (x, _), (out, place) = device_tensor(values), device_tensor(np.zeros_like(values))
        status, _, executor = phase_one(ELU, elu_on(x, out))
        assert status == 0
        assert aclnn.aclSetAclOpExecutorRepeatable(executor) == 0
        executors.append((executor, values, place))
    assert slow_paths == []
    for executor, values, place in executors * 2:
        assert aclnn.aclnnEluBackward(None, 0, executor, known) == 0
        assert acl.aclrtSynchronizeStream(known) == 0
        np.testing.assert_array_equal(
            read_back(place, values), openaclnn.elu_backward(values, values)
        )
        assert acl.aclrtMemset(place, values.nbytes, 0, values.nbytes) == 0


def test_a_large_size_waits_for_its_turn(known: Any, slow_paths: list[str]) -> None:
    values = np.random.default_rng(1).normal(size=(300, 400)).astype(np.float32)
    out = np.zeros_like(values)
    go = threading.Event()
    known.submit(lambda: go.wait(10) and None)
    status, size, executor = phase_one(ELU, elu_on(values, out))
    assert status == 0
    assert aclnn.aclnnEluBackward(None, size, executor, known) == 0
    del executor
    assert not out.any()
    go.set()
    assert acl.aclrtSynchronizeStream(known) == 0
    np.testing.assert_array_equal(out, openaclnn.elu_backward(values, values))
    assert slow_paths == []  # what is known of descriptors is known of arrays


def test_many_threads_with_sizes_of_their_own(slow_paths: list[str]) -> None:
    failures: list[Any] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(40):
            x = rng.normal(size=tuple(rng.integers(1, 40, 2))).astype(np.float32)
            out = np.zeros_like(x)
            outcome = both(ELU, elu_on(x, out))
            if outcome != (0, "") or not np.array_equal(out, openaclnn.elu_backward(x, x)):
                failures.append((seed, x.shape, outcome))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_an_executor_runs_once_though_many_threads_come(known: Any) -> None:
    x, out = np.ones((40, 40), np.float32), np.zeros((40, 40), np.float32)
    for _ in range(20):
        _, _, executor = phase_one(ELU, elu_on(x, out))
        start, statuses = threading.Barrier(4), []

        def run(executor: Any = executor, start: Any = start, statuses: Any = statuses) -> None:
            start.wait()
            statuses.append(aclnn.aclnnEluBackward(None, 0, executor, None))

        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(statuses) == [0, 561103, 561103, 561103]


LAYOUTS = ("contiguous", "contiguous", "transposed", "sliced")


@settings(deadline=None, max_examples=20)
@given(data=st.data())
def test_sequences_of_calls(data: st.DataObject) -> None:
    """Sizes, dtypes, layouts, scalars and mistakes in any order: each as the oracle says, or refused as ever."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    for _ in range(data.draw(st.integers(2, 8))):
        operator = data.draw(st.sampled_from(SIZED))
        dtype = data.draw(st.sampled_from(floats_of(operator)))
        variant = data.draw(st.sampled_from(sorted(operator.workloads.VARIANTS)))
        pattern = operator.workloads.PATTERN
        axes = {"rows": 2, "pixels": 4}.get(pattern) or data.draw(st.integers(1, 3))
        shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=axes, max_size=axes)))
        drawn = operator.workloads.make(rng, dtype, shape, variant)
        if "scale" in operator.plain_defaults:
            drawn["scale"] = data.draw(st.sampled_from([1.0, 0.5, -0.0, 3]))
        expected = plain(operator)(**drawn)
        laid = {
            name: laid_out(value, data.draw(st.sampled_from(LAYOUTS)))[0]
            if isinstance(value, np.ndarray) and value.shape == shape
            else value
            for name, value in drawn.items()
        }
        out, memory = laid_out(np.zeros_like(expected), data.draw(st.sampled_from(LAYOUTS)))
        outside = memory.copy()
        arguments = in_c_order(operator, laid, out)
        if data.draw(st.booleans()):
            wrong = list(arguments)
            wrong[operator.output_places[0]] = np.zeros((*expected.shape[:-1], 11), expected.dtype)
            outcome = both(operator, wrong)
            if operator.output.in_place:  # any shape is its own
                assert outcome[0] == 0
            else:
                assert outcome[0] in (161002, 561002)
                assert "got shape" in outcome[1]
        assert both(operator, arguments) == (0, "")
        assert out.tobytes() == expected.tobytes()
        assert_matches_oracle(operator, drawn, np.ascontiguousarray(out))
        out[...] = 0
        assert memory.tobytes() == outside.tobytes()


def test_a_first_size_is_any_size(slow_paths: list[str]) -> None:
    """Whichever comes first, the others follow it."""
    for first in SHAPES["elementwise"]:
        forget()
        slow_paths.clear()
        for shape in (first, (4, 9), (30, 7)):
            x = np.random.default_rng(3).normal(size=shape).astype(FLOAT.numpy)
            out = np.empty_like(x)
            got = computed(ELU, {"grad_output": x, "self_or_result": x}, out)
            assert got == digest(openaclnn.elu_backward(x, x))
        assert len(slow_paths) == 1


def test_descriptors_are_compared(slow_paths: list[str], stream: Any) -> None:
    """Scalars by value and dtype; an end, other bits, another dtype or format are seen."""
    values = np.linspace(-2, 2, 64, dtype=np.float32)
    _, address = device_tensor(values)
    _, place = device_tensor(values)

    def give(shape: tuple[int, ...], scale: Any, form: int = 2) -> tuple[int, str]:
        x = acl.aclCreateTensor(shape, 0, None, 0, form, shape, address)
        slow_paths.clear()
        return both(ELU, elu_on(x, descriptor(shape, place), scale=scale), stream)

    def scalar(value: float, code: int = acl.ACL_FLOAT) -> Any:
        return acl.aclCreateScalar(value, code)

    kept = scalar(0.5)
    assert give((8, 8), kept) == (0, "")
    for shape in ((8, 8), (3, 4), (64,), (2, 2, 2, 2, 2, 2), (1, 7)):
        assert give(shape, scalar(0.5)) == give(shape, kept) == (0, "")
        assert not slow_paths
        x = values[: np.prod(shape)]
        np.testing.assert_array_equal(read_back(place, x), openaclnn.elu_backward(x, x, scale=0.5))
    # Another number or another dtype is another entry.
    for other in (scalar(0.0), scalar(-0.0), scalar(2.0), scalar(0.5, acl.ACL_DOUBLE), 0.5):
        assert give((8, 8), other) == (0, "")
        assert slow_paths
        number = other if isinstance(other, float) else float(other.value)
        expected = openaclnn.elu_backward(values, values, scale=number)
        assert read_back(place, values).tobytes() == expected.tobytes()
        assert give((5, 3), other) == (0, "")
        assert not slow_paths
    assert give((8, 8), scalar(0.5), form=0) == (0, "")
    assert slow_paths
    assert acl.aclDestroyScalar(kept) == 0
    assert give((8, 8), kept)[0] != 0


def as_plain(operator: Operator, named: dict[str, Any], arguments: list[Any], stream: Any) -> bytes:
    """The bits of the plain call, where phase one and two do not refuse what it refuses; they must give the same."""
    try:
        expected = plain(operator)(**named).tobytes()
    except (openaclnn.AclnnError, TypeError):
        expected = b""
    assert (both(operator, arguments, stream)[0] == 0) == bool(expected), arguments
    return expected


@pytest.mark.parametrize("kind", ["numbers", "scalars"])
def test_any_numbers_have_the_bits_of_plain_calls(kind: str, stream: Any) -> None:
    """In any order, as floats, integers and scalars of three dtypes."""
    rng = np.random.default_rng(12)
    values = rng.normal(size=40).astype(np.float32)
    (x, _), (out, place) = device_tensor(values), device_tensor(values)
    for turn in range(100):
        numbers = [NUMBERS[rng.integers(len(NUMBERS))] for _ in range(3)]
        codes = rng.choice([acl.ACL_FLOAT, acl.ACL_DOUBLE, acl.ACL_FLOAT16], 3)
        if turn % 2:
            numbers, codes = [*rng.uniform(1.1, 1.9, 2).tolist(), 1.0], codes * 0
        passed: list[Any] = numbers
        if kind == "scalars":
            with np.errstate(over="ignore"):
                passed = [acl.aclCreateScalar(*each) for each in zip(numbers, codes, strict=True)]
                numbers = [float(scalar.value) for scalar in passed]
        options = dict(zip(("alpha", "scale", "input_scale"), numbers, strict=True))
        options |= {"is_result": bool(rng.integers(2))}
        arguments = [x, *passed, options["is_result"], x, out]
        expected = as_plain(
            ELU, {"grad_output": values, "self_or_result": values, **options}, arguments, stream
        )
        assert not expected or read_back(place, values).tobytes() == expected


@names
def test_other_numbers_of_arrays_have_the_bits_of_plain_calls(
    operator: Operator,
) -> None:
    rng = np.random.default_rng(13)
    named = {"beta": NUMBERS, **CLASS_NUMBERS}
    variant = next(iter(operator.workloads.VARIANTS))
    for name in [
        parameter.python_name for parameter in operator.parameters if parameter.python_name in named
    ]:
        shape = SHAPES[operator.workloads.PATTERN][0]
        arguments = operator.workloads.make(rng, FLOAT, shape, variant)
        out = np.empty_like(plain(operator)(**arguments))
        for number in [*named[name], *reversed(named[name])]:
            arguments[name] = number
            expected = as_plain(operator, arguments, in_c_order(operator, arguments, out), None)
            assert not expected or out.tobytes() == expected, (name, number)


def test_memory_that_is_freed_though_somebody_keeps_it(slow_paths: list[str], stream: Any) -> None:
    x, address = device_tensor(np.ones((5, 7), np.float32))
    out, _ = device_tensor(np.zeros((5, 7), np.float32))
    for _ in range(2):
        assert both(ELU, elu_on(x, out), stream) == (0, "")
    kept = memory.find_allocation(address)
    assert acl.aclrtFree(address) == 0
    slow_paths.clear()
    status, message = both(ELU, elu_on(x, out), stream)
    assert kept is not None
    assert (status, "unknown memory" in message) == (161002, True)
    assert not slow_paths
    _, other = device_tensor(np.ones((5, 7), np.float32))
    assert acl.aclSetRawTensorAddr(x, other) == 0
    assert both(ELU, elu_on(x, out), stream) == (0, "")
    assert not slow_paths


@pytest.mark.parametrize("operator", [op for op in OPERATORS if op not in APART], ids=str)
def test_what_is_written_over_its_input_has_any_size(
    operator: Operator, slow_paths: list[str], stream: Any
) -> None:
    rng = np.random.default_rng(4)
    for number, shape in enumerate(((5, 7), (64,), (3, 1, 9))):
        variant = next(iter(operator.workloads.VARIANTS))
        arguments = operator.workloads.make(rng, FLOAT, shape, variant)
        expected = plain(operator)(**{name: np.copy(value) for name, value in arguments.items()})
        name = operator.output.python_name
        tensor, place = device_tensor(arguments[name])
        values = in_c_order(operator, arguments, np.empty_like(arguments[name]))
        values[operator.output_places[0]] = tensor
        assert both(operator, values, stream) == (0, "")
        assert read_back(place, np.empty_like(expected)).tobytes() == expected.tobytes()
        assert len(slow_paths) == 1, number


def test_a_product_s_calls_are_nobody_else_s(slow_paths: list[str], stream: Any) -> None:
    x, out = (device_tensor(np.ones((5, 7), np.float32))[0] for _ in range(2))
    with openaclnn.use_product(products.FAMILIES[0].tag):
        assert both(ELU, elu_on(x, out), stream) == (0, "")
    assert both(ELU, elu_on(x, out), stream) == (0, "")
    assert len(slow_paths) == 2


@pytest.mark.parametrize("convert", [lambda array: array, to_torch], ids=["numpy", "torch"])
@of_any_size
@pytest.mark.in_turns
def test_arrays_of_other_sizes_are_known(
    operator: Operator, convert: Any, slow_paths: list[str]
) -> None:
    rng = np.random.default_rng(8)
    whole = getattr(data_of(operator), "WHOLE", {})
    for variant in operator.workloads.VARIANTS:
        forget()
        for number, shape in enumerate(SHAPES[operator.workloads.PATTERN]):
            drawn = operator.workloads.make(rng, FLOAT, shape, variant) | whole
            expected = plain(operator)(**drawn)
            arguments = {name: convert(value) for name, value in drawn.items()}
            out = [convert(place) for place in places_for(operator, drawn)]
            passed = out[0] if operator.result_type is None else out
            slow_paths.clear()
            assert both(operator, in_c_order(operator, arguments, passed)) == (0, "")
            assert_same_bits(
                tuple(map(np.asarray, out))[: len(each(expected))], tuple(each(expected))
            )
            # Where a form or a layout serves some counts only, each range is a kind.
            some = operator is ELU or plan_of(operator, drawn).shape_specific
            if not of_one_size(operator, drawn, classes=True) and (
                number == 2 or (number > 2 and not some)
            ):
                assert not slow_paths, (variant, shape)


@pytest.mark.parametrize("convert", [lambda array: array, to_torch], ids=["numpy", "torch"])
@of_any_size
def test_arrays_are_found_by_machine_code(
    operator: Operator, convert: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the second call on, of any size."""
    forget()
    rng, variant = np.random.default_rng(9), next(iter(operator.workloads.VARIANTS))
    for number, shape in enumerate(SHAPES[operator.workloads.PATTERN][:2]):
        drawn = operator.workloads.make(rng, FLOAT, shape, variant)
        if number == 1 and not of_one_size(operator, drawn, classes=True):
            monkeypatch.delattr(executor, "planned")
        expected = plain(operator)(**drawn)
        out = [convert(place) for place in places_for(operator, drawn)]
        passed = out[0] if operator.result_type is None else out
        arguments = {name: convert(value) for name, value in drawn.items()}
        assert both(operator, in_c_order(operator, arguments, passed)) == (0, "")
        assert_same_bits(tuple(map(np.asarray, out))[: len(each(expected))], tuple(each(expected)))


def test_what_is_known_is_compared_and_checked(slow_paths: list[str]) -> None:
    x = np.linspace(-2, 2, 40, dtype=np.float32)

    def give(x: Any, out: Any, **options: Any) -> tuple[int, str]:
        slow_paths.clear()
        return both(ELU, elu_on(x, out, **options))

    out = np.empty_like(x)
    for _ in range(3):
        assert give(x, out) == (0, "")
    assert not slow_paths
    # In place, and beside each other in one memory.
    same, both_of = x.copy(), np.concatenate([x, x])
    assert give(same, same) == give(both_of[:40], both_of[40:]) == (0, "")
    assert not slow_paths
    np.testing.assert_array_equal(same, out)
    np.testing.assert_array_equal(both_of[40:], out)
    # Another number, dtype or layout is another kind.
    assert give(x, out, alpha=2.0) == (0, "")
    np.testing.assert_array_equal(out, openaclnn.elu_backward(x, x, alpha=2.0))
    assert slow_paths
    assert give(x[::2], out[::2]) == (0, "")
    np.testing.assert_array_equal(out[::2], openaclnn.elu_backward(x[::2], x[::2]))
    assert slow_paths
    frozen = x.copy()
    frozen.flags.writeable = False
    for wrong, says in (
        (frozen, "a read-only one"), (both_of[8:48], "a partial overlap"), (np.empty(39, np.float32), "got shape"),
        (np.empty(40, np.int32), "INT32"), (None, "null"), (np.ma.masked_array(x), "masked"),
    ):  # fmt: skip
        status, message = give(both_of[:40], wrong)
        assert status
        assert says in message
    with openaclnn.use_engine("numpy"):
        assert give(x, out) == (0, "")
    assert slow_paths


def test_an_executor_has_tensors_when_asked(slow_paths: list[str], stream: Any) -> None:
    x, out = np.linspace(-2, 2, 40, dtype=np.float32), np.empty(40, np.float32)
    for _ in range(3):
        status, _, executor = phase_one(ELU, elu_on(x, out))
        assert status == 0
    assert aclnn.aclSetAclOpExecutorRepeatable(executor) == 0
    for _ in range(2):
        assert aclnn.aclnnEluBackward(None, 0, executor, stream) == 0
    assert acl.aclrtSynchronizeStream(stream) == 0
    np.testing.assert_array_equal(out, openaclnn.elu_backward(x, x))
    first, second = executor.inputs
    assert first.owner is x
    assert second.shape == executor.outputs[0].shape == (40,)
    other, address = device_tensor(2 * x)
    for tensor in (first, second):
        assert aclnn.aclSetTensorAddr(executor, 0, tensor, address) == 0
    assert aclnn.aclnnEluBackward(None, 0, executor, stream) == 0
    assert acl.aclrtSynchronizeStream(stream) == 0
    np.testing.assert_array_equal(out, openaclnn.elu_backward(2 * x, 2 * x))
    assert acl.aclrtFree(address) == 0
    assert aclnn.aclnnEluBackward(None, 0, executor, stream) == 161002
    assert acl.aclDestroyTensor(other) == 0


def test_known_tensors_are_pytorch_s(slow_paths: list[str]) -> None:
    """Autograd is told of writes and asked before; memory that is exchanged between the phases is not written."""
    x, out = torch.linspace(-2, 2, 40), torch.empty(40)
    for _ in range(3):  # NumPy's arrays and PyTorch's tensors are of one kind
        assert both(ELU, elu_on(x.numpy(), out.numpy())) == (0, "")
    for _ in range(2):
        assert both(ELU, elu_on(x, out)) == (0, "")
    expected, version = out.clone(), out._version
    slow_paths.clear()
    assert both(ELU, elu_on(x, out)) == (0, "")
    assert not slow_paths
    assert out._version == version + 1
    status, message = both(ELU, elu_on(x, torch.empty(40, requires_grad=True)))
    assert (status, "requires grad" in message) == (161002, True)
    saved = torch.ones(40, requires_grad=True) * out
    assert both(ELU, elu_on(x, out)) == (0, "")
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        saved.sum().backward()
    status, message = both(ELU, elu_on(torch._neg_view(x), out))
    assert (status, "negation" in message) == (161002, True)
    status, size, executor = phase_one(ELU, elu_on(x, out))
    out.fill_(7)
    storage = out.untyped_storage()
    x.data, out.data = torch.full((40,), 5.0), torch.zeros(40)
    assert executor.inputs[0].base != x.data_ptr()
    assert aclnn.aclnnEluBackward(None, size, executor, None) == 0
    assert acl.aclrtSynchronizeStream(None) == 0
    assert not out.any()
    np.testing.assert_array_equal(torch.empty(0).set_(storage, 0, (40,)).numpy(), expected.numpy())
