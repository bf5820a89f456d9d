"""What happens in the middle of a call or between its phases: modes that run code, signals, memory that is taken away or short."""

from __future__ import annotations

import contextlib
import functools
import gc
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as theirs
from torch.overrides import TorchFunctionMode

import openaclnn
from attack.scarce import Scarce
from conftest import OPERATORS, families, plain
from openaclnn import AclnnError, acl, aclnn
from openaclnn.calls import executor, plain as plain_calls
from openaclnn.core import products, results
from openaclnn.core.declare import Operator
from openaclnn.core.tensor import Tensor
from openaclnn.repeat import cache, phases, slots as at
from openaclnn.repeat.cache import CallCache
from openaclnn.repeat.code.read_copy_update import Published
from openaclnn.torch import kernels, use
from openaclnn.torch.override import OVERRIDES
from test_fast_path import cache_of, counted_fast_paths
from test_torch_override import has_natives

ELU = openaclnn.find_operator("elu_backward")


@pytest.fixture(scope="module")
def scarce(tmp_path_factory: pytest.TempPathFactory) -> Scarce:
    return Scarce(tmp_path_factory.mktemp("scarce"))


def values(result: Any) -> Any:
    """Of a call's first result."""
    first = result[0] if isinstance(result, tuple) else result
    return np.array(first.numpy() if isinstance(first, torch.Tensor) else first)


class Taking(TorchFunctionMode):
    """Takes a tensor's memory away whenever PyTorch is asked for anything from Python."""

    def __init__(self, tensor: Any) -> None:
        super().__init__()
        self.storage, self.asked = tensor.untyped_storage(), 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.asked += 1
        self.storage.resize_(0)
        return func(*args, **(kwargs or {}))


def test_no_mode_runs_while_the_road_reads_tensors() -> None:
    """The fast path asks tensors nothing that a mode's code would hear: the slow path does, and finds the memory gone."""
    x, out = torch.randn(50), torch.empty(50)
    with counted_fast_paths([ELU]) as taken:
        openaclnn.elu_backward(x, x, out=out)
        taken[:] = []
        with Taking(x) as mode, pytest.raises(AclnnError, match="memory of its own"):
            openaclnn.elu_backward(x, x, out=out)
    assert mode.asked
    assert True not in taken


def take_away(array: Any) -> None:
    """An array's memory."""
    if isinstance(array, torch.Tensor):
        array.untyped_storage().resize_(0)
    else:
        with contextlib.suppress(
            ValueError
        ):  # the slow path has it already, and keeps it where it is
            array.resize(1, refcheck=False)


class Finalised:
    """Garbage whose finaliser takes the memory of an array away."""

    def __init__(self, array: Any) -> None:
        self.array, self.ring = array, self

    def __del__(self) -> None:
        take_away(self.array)


def entering(function: Any, act: Callable[[], None]) -> Callable[..., Any]:
    """A tracer that acts, as another thread or a signal's handler may, when a function begins."""

    def trace(frame: Any, event: str, _: Any) -> None:
        if frame.f_code is function.__code__:
            act()

    return trace


@pytest.mark.parametrize("convert", [np.array, torch.tensor], ids=["arrays", "tensors"])
@pytest.mark.parametrize("way", ["small", "large", "several", "a runner"])
def test_memory_that_goes_while_results_are_made(
    convert: Any, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Making them runs Python code, at times: what the fast path has read before is read again."""
    if way == "large":  # in memory that is kept, by a function in Python
        monkeypatch.setattr(results, "LARGE", 0)
        monkeypatch.setattr(results, "LARGE_TENSOR", 0)
    make = results.empty if convert is np.array else results.empty_tensor
    target, weight = convert(np.arange(100) % 7), convert(np.ones(7, np.float32))
    calls: dict[str, Callable[[Any], Any]] = {
        "several": lambda x: openaclnn.cross_entropy_loss(x, target),
        "a runner": lambda x: openaclnn.nll_loss(x, target, weight),
    }
    call = calls.get(way, openaclnn.elu)
    cache_of(openaclnn.find_operator("elu")).forget()
    x = convert(np.full((100, 7), 2, np.float32))
    for _ in range(3):
        known = values(call(x))
    gc.freeze()  # garbage is collected at every step below, among few objects
    for turn in range(12):
        x = convert(np.full((100, 7), 2, np.float32))
        gc.disable()
        try:
            if way == "large":
                sys.settrace(entering(make, functools.partial(take_away, x)))
            else:
                Finalised(x)
                gc.set_threshold(1 + turn, 1, 1)
                gc.enable()
            got = values(call(x))
        except (AclnnError, ValueError):  # it is gone
            continue
        finally:
            sys.settrace(None)
            gc.set_threshold(700, 10, 10)
            gc.enable()
            gc.collect()
        if got.shape == known.shape:  # else it was gone before the call began
            np.testing.assert_array_equal(got, known)
    cache_of(openaclnn.find_operator("elu")).forget()


def frees(array: Any) -> Any:
    """A number whose conversion takes the memory of an array away."""

    class Number(float):
        def __float__(self) -> float:
            take_away(array)
            return 0.5

        def __index__(self) -> int:
            take_away(array)
            return 3

    return Number(0.5)


@pytest.mark.parametrize(
    "call",
    [
        lambda x, target, number: openaclnn.elu(x, alpha=number),
        lambda x, target, number: openaclnn.smooth_l1_loss(x, x, beta=number),
        lambda x, target, number: openaclnn.l1_loss_backward(number, x, x),
        lambda x, target, number: openaclnn.nll_loss(x, target, x[0], ignore_index=number),
        lambda x, target, number: openaclnn.cross_entropy_loss(x, target, label_smoothing=number),
    ],
)
def test_memory_that_an_option_takes_away(call: Any) -> None:
    x, target = torch.full((9, 5), 2.0), torch.arange(9) % 5
    with pytest.raises(AclnnError, match="a tensor with the memory that the call began with"):
        call(x, target, frees(x))


def phase_one(x: Any, out: Any) -> Any:
    status, _, executor = aclnn.aclnnEluBackwardGetWorkspaceSize(x, 1.0, 1.0, 1.0, False, x, out)
    assert status == 0
    return executor


def phase_two(executor: Any) -> int:
    status: int = aclnn.aclnnEluBackward(None, 0, executor, None)
    assert acl.aclrtSynchronizeStream(None) == 0
    return status


STRIDES = pytest.mark.parametrize("step", [1, 2], ids=["dense", "strided"])


@STRIDES
@pytest.mark.parametrize("size", [0, 16, 4096])
def test_a_storage_that_is_resized_between_the_phases(step: int, size: int) -> None:
    for _ in range(3):  # by the slow path, and where the kind is known
        x, out = torch.ones(200)[::step], torch.zeros(200)[::step]
        executor = phase_one(x, out)
        out.untyped_storage().resize_(size)
        assert phase_two(executor) == 161002
        assert "gradInput: expected a tensor with the memory of phase one" in (
            aclnn.aclGetRecentErrMsg() or ""
        )


@pytest.fixture
def known() -> None:
    """ELU on PyTorch's tensors is known."""
    for _ in range(2):
        x, out = torch.ones(200), torch.zeros(200)
        assert phase_two(phase_one(x, out)) == 0
    assert out._version == 1
    assert bool((out == 1).all())


def test_a_tensor_gets_other_memory_between_the_phases(known: None) -> None:
    """The work is over the memory of phase one, as long as that is there."""
    x, out = torch.ones(200), torch.zeros(200)
    storage, replacement, prepared = (
        out.untyped_storage(),
        torch.full((200,), 7.0),
        phase_one(x, out),
    )
    out.data, x.data = replacement, torch.zeros(3)
    assert phase_two(prepared) == 0
    assert bool((torch.empty(0).set_(storage, 0, (200,)) == 1).all())
    assert bool((out == 7).all())
    prepared = phase_one(torch.ones(200), out)
    replacement.untyped_storage().resize_(8)
    out.data = torch.zeros(200)
    assert phase_two(prepared) == 161002
    other, prepared = torch.zeros(200), phase_one(torch.ones(200), out)
    torch.utils.swap_tensors(out, other)
    assert phase_two(prepared) == 0
    assert (bool((other == 1).all()), bool((out == 0).all())) == (True, True)


def test_a_copy_that_is_yet_to_be_made_is_not_written(known: None) -> None:
    out = torch.zeros(200)
    prepared = phase_one(torch.ones(200), out)
    copy = torch._lazy_clone(out)
    assert phase_two(prepared) == 161002
    assert not copy.any()


def test_memory_that_comes_back_between_the_phases_will_do(known: None) -> None:
    x, out = torch.ones(200), torch.zeros(200)
    for _ in range(8):
        storage, start, prepared = out.untyped_storage(), out.data_ptr(), phase_one(x, out)
        storage.resize_(8)
        storage.resize_(800)
        same = out.data_ptr() == start  # the allocator may give the very same
        assert phase_two(prepared) == (0 if same else 161002)


def test_a_leaf_is_not_written_once_gradients_are_recorded(known: None) -> None:
    x, out = torch.ones(200), torch.zeros(200)
    prepared = phase_one(x, out)
    out.requires_grad_()
    assert phase_two(prepared) == 161002
    assert "a leaf that requires grad" in (aclnn.aclGetRecentErrMsg() or "")
    assert (out._version, float(out.detach().sum())) == (0, 0)
    prepared = phase_one(x, out.detach())
    with torch.no_grad():
        assert phase_two(prepared) == 0
    assert out._version == 1


@STRIDES
def test_an_array_is_not_resized_between_the_phases(step: int) -> None:
    for _ in range(3):
        x, out = np.ones(200, np.float32)[::step], np.zeros(200 // step, np.float32)
        executor = phase_one(x, out)
        with pytest.raises(ValueError, match="cannot resize"):
            out.resize(2, refcheck=False)
        assert phase_two(executor) == 0
        assert (out == 1).all()


def test_an_array_is_not_resized_while_a_descriptor_has_it() -> None:
    array = np.zeros(200, np.float32)
    tensor = acl.aclCreateTensor((200,), acl.ACL_FLOAT, (1,), 0, acl.ACL_FORMAT_ND, (200,), array)
    with pytest.raises(ValueError, match="cannot resize"):
        array.resize(2, refcheck=False)
    assert acl.aclDestroyTensor(tensor) == 0


def test_a_proxy_s_array_lives_as_long_as_its_descriptor() -> None:
    array = np.full(3000, 7, np.float32)
    known = weakref.ref(array)
    tensor = Tensor.from_numpy(weakref.proxy(array))
    del array
    gc.collect()
    assert known() is not None
    del tensor
    assert known() is None


def stopped_at(function: Callable[..., Any], line: int) -> Callable[..., Any]:
    """A tracer that raises, as the handler of a signal may, at a line of a function."""

    def trace(frame: Any, event: str, _: Any) -> Any:
        if frame.f_code is not function.__code__:  # type: ignore[attr-defined]
            return None
        if event == "line" and frame.f_lineno == function.__code__.co_firstlineno + line:  # type: ignore[attr-defined]
            raise InterruptedError
        return trace

    return trace


@pytest.mark.parametrize("line", range(12))
@pytest.mark.parametrize("function", [CallCache._enter, Published.replace])
def test_entries_that_are_read_are_held(function: Callable[..., None], line: int) -> None:
    """Wherever a signal's handler raises while a kind is remembered."""
    road, x = cache_of(ELU), np.ones(9, np.float32)
    openaclnn.elu_backward(x, x)
    for dtype in (np.float32, np.float16):
        road.forget()
        openaclnn.elu_backward(x, x)
        sys.settrace(stopped_at(function, line))
        try:
            openaclnn.elu_backward(x.astype(dtype), x.astype(dtype), out=np.ones(9, np.float32))
        except InterruptedError:
            pass
        finally:
            sys.settrace(None)
        openaclnn.elu_backward(x, x, alpha=2)
        lists = road._published._lists
        (read,) = [known for known in lists if known.address == road._published._place[0]]
        assert all(entry.words[at.KEEP] == id(entry) for entry in read.entries)
    road.forget()


def two_phases(x: Any) -> Any:
    out = np.zeros_like(x)
    status, size, executor = aclnn.aclnnEluBackwardGetWorkspaceSize(x, 1.0, 1.0, 1.0, False, x, out)
    assert status == aclnn.aclnnEluBackward(None, size, executor, None) == 0
    assert acl.aclrtSynchronizeStream(None) == 0
    return out


@pytest.mark.parametrize("in_two_phases", [False, True])
def test_first_calls_at_the_same_time_open_one_block(
    in_two_phases: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Machine code keeps the addresses of an operator's control block and of its list of entries, whichever thread opened them."""
    monkeypatch.setattr(products, "listeners", [])
    road = phases.PhaseCache(ELU) if in_two_phases else CallCache(ELU)
    monkeypatch.setitem(plain(ELU).__globals__, "_cache", road)
    for module in (phases, executor):
        monkeypatch.setattr(module, "phase_cache", lambda operator: road)
    x, readable, outputs = np.ones(9, np.float32), cache.numpy_is_readable, []

    def call() -> None:
        outputs.append(two_phases(x) if in_two_phases else openaclnn.elu_backward(x, x))

    def meanwhile() -> bool:
        """In the middle of opening: all that another thread's calls do."""
        monkeypatch.setattr(cache, "numpy_is_readable", readable)
        other = threading.Thread(target=lambda: [call() for _ in range(3)])
        other.start()
        other.join(60)
        assert not other.is_alive()
        return readable()

    monkeypatch.setattr(cache, "numpy_is_readable", meanwhile)
    call()
    call()
    assert len(outputs) == 5
    assert all((output == 1).all() for output in outputs)
    assert int(road._builtin.__self__) == road._control.buffer_info()[0]  # type: ignore[attr-defined]
    assert road._control[at.ENTRY_LIST] == road._published.address


class Unlucky(Exception):  # noqa: N818
    def __init__(self, number: int) -> None:
        super().__init__(number)


@has_natives
@pytest.mark.parametrize("kind", [KeyboardInterrupt, Unlucky])
def test_what_is_raised_below_pytorch_reaches_the_caller(
    kind: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its arguments; and what was written over already is not written over again."""
    x, error = torch.tensor([[-1.0, 2.0], [0.5, -3.0]]), kind(7)
    known, done = theirs.elu(x), kernels.call_plain

    def interrupted(*arguments: Any) -> Any:
        done(*arguments)
        raise error

    monkeypatch.setattr(kernels, "call_plain", interrupted)
    with use():
        for function in (theirs.elu, theirs.elu_):
            OVERRIDES[function.__name__].kernel.cache.forget()
            with pytest.raises(kind) as raised:
                function(x)
            assert raised.value is error
    assert torch.equal(x, known)


# Where PyTorch cannot have a Python object for a tensor, it ends the process by itself: no calls of its own functions here.
@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy], ids=["arrays", "tensors"])
@pytest.mark.parametrize("operator", families(OPERATORS), ids=lambda op: op.python_name)
def test_memory_is_short_for_an_object(operator: Operator, convert: Any, scarce: Scarce) -> None:
    """At each allocation of a call in turn: it raises or gives what it gives, and the next one is as ever."""
    arguments = {
        name: convert(value.copy()) if isinstance(value, np.ndarray) else value
        for name, value in operator.samples[0].arrays().items()
    }
    call = functools.partial(plain(operator), **arguments)
    known = values(call())
    if operator.output.in_place:
        return
    for number in range(14):
        try:
            with scarce.at(number):
                got = call()
        except (MemoryError, RuntimeError, AclnnError, SystemError):
            continue
        np.testing.assert_array_equal(values(got), known)
    np.testing.assert_array_equal(values(call()), known)


@pytest.mark.parametrize("again", [False, True])
def test_a_stray_target_that_another_thread_mends_is_refused(monkeypatch: Any, again: bool) -> None:
    """The kernel has seen it, and who asks which it was finds none."""
    logits, target = np.zeros((3, 4), np.float32), np.array([0, 1, 2])
    if again:
        openaclnn.cross_entropy_loss(logits, target)
    target[1] = 4
    asked = plain_calls.stray_target

    def late(plan: Any, tensor: Any) -> Any:
        target[1] = 0
        return asked(plan, tensor)

    monkeypatch.setattr(plain_calls, "stray_target", late)
    with pytest.raises(AclnnError, match=r"target: expected an array that no thread changes"):
        openaclnn.cross_entropy_loss(logits, target)
    openaclnn.cross_entropy_loss(logits, target)
