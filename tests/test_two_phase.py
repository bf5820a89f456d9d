"""The two-phase interface: protocol, executors, address setters, and the documents' programs in Python."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch

import openaclnn
from conftest import OPERATORS, device_tensor, document_program, each, read_back, table_of
from openaclnn import acl, aclnn
from openaclnn.core.declare import Operator
from openaclnn.core.tensor import Tensor
from openaclnn.runtime import memory
from openaclnn.runtime.device import Device

names = pytest.mark.parametrize("operator", OPERATORS, ids=lambda op: op.python_name)


@names
def test_the_documents_program(operator: Operator, stream: Any) -> None:
    """Phase one, workspace, phase two, synchronise, copy back: the example's flow and numbers."""
    arguments, addresses, outputs, expected = document_program(operator)
    status, size, executor = getattr(aclnn, f"{operator.name}GetWorkspaceSize")(*arguments)
    assert (status, size) == (0, 0)
    assert getattr(aclnn, operator.name)(None, size, executor, stream) == 0
    assert acl.aclrtSynchronizeStream(stream) == 0
    for place, known in zip(outputs, each(expected), strict=False):
        assert read_back(addresses[place], known).tobytes() == known.tobytes()
    tensors = [value for value in arguments if isinstance(value, Tensor)]
    assert len(tensors) == len(addresses)
    assert all(acl.aclDestroyTensor(tensor) == 0 for tensor in tensors)
    assert all(acl.aclrtFree(address) == 0 for address in addresses)


def elu(x: np.ndarray, out: Any, **options: Any) -> tuple[int, int, Any]:
    return aclnn.aclnnEluBackwardGetWorkspaceSize(
        x, 1.0, 1.0, 1.0, options.get("is_result", False), x, out
    )


def synchronize() -> None:
    assert acl.aclrtSynchronizeStream(None) == 0


def test_arrays_work_without_any_setup() -> None:
    x = np.array([-1.0, 2.0], np.float32)
    out = np.zeros(2, np.float32)
    status, _, executor = elu(x, out)
    assert status == 0
    assert aclnn.aclnnEluBackward(None, 0, executor, None) == 0
    synchronize()
    np.testing.assert_array_equal(out, openaclnn.elu_backward(x, x))


def test_executor_is_single_use() -> None:
    x = np.ones(2, np.float32)
    _, _, executor = elu(x, np.zeros(2, np.float32))
    assert aclnn.aclnnEluBackward(None, 0, executor, None) == 0
    assert aclnn.aclnnEluBackward(None, 0, executor, None) == 561103
    told = "got one that has run already; phase one makes a new one, aclSetAclOpExecutorRepeatable one that runs again"  # fmt: skip
    assert told in aclnn.aclGetRecentErrMsg()
    synchronize()


def test_executor_is_consumed_even_by_a_failing_phase_two() -> None:
    x = np.ones(2, np.float32)
    _, _, executor = elu(x, np.zeros(2, np.float32))
    assert aclnn.aclnnEluBackward(None, 16, executor, None) == 161001
    assert "workspace" in aclnn.aclGetRecentErrMsg()
    assert aclnn.aclnnEluBackward(None, 0, executor, None) == 561103


def test_foreign_executors_give_a_status() -> None:
    x = np.ones(2, np.float32)
    _, _, executor = elu(x, np.zeros(2, np.float32))
    assert aclnn.aclnnEluBackward(None, 0, None, None) == 161001
    for foreign in (0, 12345, "executor", object(), x):
        assert aclnn.aclnnEluBackward(None, 0, foreign, None) == 561103
    assert aclnn.aclnnL1LossBackward(None, 0, executor, None) == 561103
    assert "aclnnEluBackward" in aclnn.aclGetRecentErrMsg()
    # the right operator still can
    assert aclnn.aclnnEluBackward(None, 0, executor, None) == 0
    synchronize()


def test_foreign_streams_give_a_status() -> None:
    x = np.ones(2, np.float32)
    for foreign in (12345, "stream", object()):
        _, _, executor = elu(x, np.zeros(2, np.float32))
        assert aclnn.aclnnEluBackward(None, 0, executor, foreign) == 361001
        assert (
            "aclnnEluBackward: stream: expected a stream or null, got" in aclnn.aclGetRecentErrMsg()
        )


def test_destroyed_executor() -> None:
    x = np.ones(2, np.float32)
    _, _, executor = elu(x, np.zeros(2, np.float32))
    assert aclnn.aclDestroyAclOpExecutor(executor) == 0
    assert aclnn.aclnnEluBackward(None, 0, executor, None) == 561103
    assert aclnn.aclDestroyAclOpExecutor(executor) == 561103
    assert aclnn.aclDestroyAclOpExecutor(None) == 561103
    assert aclnn.aclSetAclOpExecutorRepeatable(None) == 561103
    assert aclnn.aclSetAclOpExecutorRepeatable(executor) == 561000


def test_repeatable_executor_and_address_setters(stream: Any) -> None:
    x = np.array([-1.0, 0.5, -2.0], np.float32)
    first, first_address = device_tensor(x)
    out, out_address = device_tensor(np.zeros(3, np.float32))
    _, second_address = device_tensor(2 * x)
    _, third_address = device_tensor(np.zeros(3, np.float32))
    status, size, executor = aclnn.aclnnEluBackwardGetWorkspaceSize(
        first, 1.0, 1.0, 1.0, False, first, out
    )
    assert status == 0
    assert aclnn.aclSetAclOpExecutorRepeatable(executor) == 0
    for _ in range(3):
        assert aclnn.aclnnEluBackward(None, size, executor, stream) == 0
    assert acl.aclrtSynchronizeStream(stream) == 0
    np.testing.assert_array_equal(read_back(out_address, x), openaclnn.elu_backward(x, x))
    assert aclnn.aclSetInputTensorAddr(executor, 0, first, second_address) == 0
    assert aclnn.AclSetOutputTensorAddr(executor, 0, out, third_address) == 0
    assert aclnn.aclnnEluBackward(None, size, executor, stream) == 0
    assert acl.aclrtSynchronizeStream(stream) == 0
    np.testing.assert_array_equal(read_back(third_address, x), openaclnn.elu_backward(2 * x, 2 * x))
    np.testing.assert_array_equal(read_back(out_address, x), openaclnn.elu_backward(x, x))
    assert first_address != second_address
    assert aclnn.aclSetTensorAddr(executor, 0, None, second_address) == 561103
    assert aclnn.aclSetTensorAddr(None, 0, first, second_address) == 561103
    assert aclnn.aclSetDynamicInputTensorAddr(executor, 0, 0, None, 0) == 161002
    assert aclnn.aclDestroyAclOpExecutor(executor) == 0


def test_addresses_are_set_of_what_lives(stream: Any) -> None:
    """Not through a destroyed descriptor, nor for an executor that cannot run any more."""
    tensor, address = device_tensor(np.ones(3, np.float32))
    gone, _ = device_tensor(np.ones(3, np.float32))
    assert acl.aclDestroyTensor(gone) == 0
    executors = [elu(tensor, tensor)[2] for _ in range(3)]
    assert aclnn.aclnnEluBackward(None, 0, executors[1], stream) == 0
    assert aclnn.aclDestroyAclOpExecutor(executors[2]) == 0
    cases = [(executors[0], gone, "tensor: expected a live tensor, got a destroyed one")]
    cases += [(one, tensor, "executor: expected one that can run") for one in executors[1:]]
    for name in ("aclSetInputTensorAddr", "aclSetOutputTensorAddr", "aclSetTensorAddr"):
        for executor, descriptor, said in cases:
            acl.aclGetRecentErrMsg()
            assert getattr(aclnn, name)(executor, 0, descriptor, 64) == 561103
            assert f"{name}: {said}" in (acl.aclGetRecentErrMsg() or "")
    assert tensor.base == address


def test_generated_interface_checks_the_index() -> None:
    operator = openaclnn.find_operator("cross_entropy_loss_grad")
    sound, _ = table_of(operator)
    arguments = sound() | {"weightOptional": None, "gradZlossOptional": None}
    values = [arguments[p.name] for p in operator.parameters]
    status, _, executor = aclnn.aclnnCrossEntropyLossGradGetWorkspaceSize(*values)
    assert status == 0
    assert aclnn.aclSetInputTensorAddr(executor, 1, arguments["logProb"], 64) == 0
    assert arguments["logProb"].base == 64
    assert aclnn.aclSetInputTensorAddr(executor, 9, arguments["logProb"], 64) == 161002
    assert aclnn.aclSetInputTensorAddr(executor, 3, arguments["logProb"], 64) == 161002  # was null
    assert aclnn.aclSetOutputTensorAddr(executor, 1, arguments["out"], 64) == 161002
    assert aclnn.aclSetTensorAddr(executor, 6, arguments["out"], 128) == 0
    assert arguments["out"].base == 128


def test_descriptors_may_go_right_after_phase_two(stream: Any) -> None:
    x = np.linspace(-3, 3, 1000, dtype=np.float32)
    source, source_address = device_tensor(x)
    out, out_address = device_tensor(np.zeros_like(x))
    gate = threading.Event()
    openaclnn.runtime.current_stream(stream).submit(lambda: gate.wait(10) and None)
    _, _, executor = aclnn.aclnnEluBackwardGetWorkspaceSize(
        source, 1.0, 1.0, 1.0, False, source, out
    )
    assert aclnn.aclnnEluBackward(None, 0, executor, stream) == 0
    assert acl.aclDestroyTensor(source) == 0
    assert acl.aclDestroyTensor(out) == 0
    assert not np.any(read_back(out_address, x))  # queued, not run
    gate.set()
    assert acl.aclrtSynchronizeStream(stream) == 0
    np.testing.assert_array_equal(read_back(out_address, x), openaclnn.elu_backward(x, x))
    assert source_address != out_address


def test_null_is_told_before_what_cannot_be_bound(stream: Any) -> None:
    good, _ = device_tensor(np.ones(2, np.float32))
    gone, _ = device_tensor(np.ones(2, np.float32))
    assert acl.aclDestroyTensor(gone) == 0
    phase_one = aclnn.aclnnEluBackwardGetWorkspaceSize
    assert phase_one(gone, 1.0, 1.0, 1.0, "no", good, None)[0] == 161001
    assert "gradInput: expected a tensor, got null" in (aclnn.aclGetRecentErrMsg() or "")
    assert phase_one(gone, 1.0, None, 1.0, "no", good, good)[0] == 161001
    assert phase_one(gone, 1.0, 1.0, 1.0, "no", good, good, None)[0] == 161001
    assert phase_one(good, "one", 1.0, 1.0, "no", good, good)[0] == 161002
    losses, target = np.zeros(2, np.float32), np.zeros(2, np.int64)
    scores = np.zeros((2, 3), np.float32)
    acl.aclGetRecentErrMsg()
    for scale, parameter in ((0.5, "lseForZlossOptional"), ([1, 2], "lseSquareScaleForZloss")):
        status, _, _ = aclnn.aclnnCrossEntropyLossGradGetWorkspaceSize(
            losses, scores, target, None, None, None, "none", object(), 0.0, scale, scores
        )
        message = aclnn.aclGetRecentErrMsg() or ""
        assert (status == 161001) == (parameter in message) == (scale == 0.5), message


def test_destroyed_descriptor_in_phase_one() -> None:
    tensor = acl.aclCreateTensor((2,), acl.ACL_FLOAT, None, 0, acl.ACL_FORMAT_ND, (2,), 0)
    assert acl.aclDestroyTensor(tensor) == 0
    assert elu(tensor, tensor)[0] == 161002
    assert "destroyed" in aclnn.aclGetRecentErrMsg()


def test_memory_is_checked_before_a_kernel_may_touch_it(stream: Any) -> None:
    good, address = device_tensor(np.ones(4, np.float32))
    make = lambda shape, where, strides=None, offset=0: acl.aclCreateTensor(  # noqa: E731
        shape, acl.ACL_FLOAT, strides, offset, acl.ACL_FORMAT_ND, shape, where
    )
    allocation = openaclnn.runtime.find_allocation(address)
    assert allocation is not None
    inside = make((allocation.size // 4,), address)  # the padding belongs to the allocation
    assert elu(inside, inside)[0] == 0
    for bad in (
        make((allocation.size // 4 + 1,), address),
        make((2,), address, [allocation.size // 4]),
        make((1,), address, [1], allocation.size // 4),
        make((4,), 64),
    ):
        status, _, _ = aclnn.aclnnEluBackwardGetWorkspaceSize(bad, 1.0, 1.0, 1.0, False, bad, bad)
        assert status == 161002
        told = aclnn.aclGetRecentErrMsg()
        assert "gradOutput" in told
        assert ("bytes, padding included" in told) == (bad.address > 64)
    status, host = acl.aclrtMallocHost(64)
    assert status == 0
    pinned = make((4,), host)
    assert elu(pinned, pinned)[0] == 161002
    assert "host memory" in aclnn.aclGetRecentErrMsg()
    later = make((4,), None)
    status, _, executor = aclnn.aclnnEluBackwardGetWorkspaceSize(
        later, 1.0, 1.0, 1.0, False, good, good
    )
    assert status == 0  # the address may still come
    assert aclnn.aclnnEluBackward(None, 0, executor, stream) == 161001
    assert "null" in aclnn.aclGetRecentErrMsg()
    # freed between the phases
    _, _, executor = elu(good, good)
    assert acl.aclrtFree(address) == 0
    assert aclnn.aclnnEluBackward(None, 0, executor, stream) == 161002


class Pretend(Device):
    """A device whose memory no engine may touch."""

    name = "pretend"


def test_a_descriptor_is_of_the_device_that_its_memory_is(stream: Any) -> None:
    """Whatever the context of the thread that makes it, or gives it another address."""
    block = memory.allocate(Pretend(), 64)
    here, address = device_tensor(np.ones(4, np.float32))
    make = lambda where: acl.aclCreateTensor((4,), 0, None, 0, 2, (4,), where)  # noqa: E731
    assert (make(block.address).device, here.device, make(None).device) == ("pretend", "cpu", "cpu")
    assert elu(make(block.address), make(block.address))[0] == 561003  # no engine runs there
    moved, later = make(address), make(None)
    assert acl.aclSetRawTensorAddr(moved, block.address) == 0
    assert moved.device == "pretend"
    message = (
        "gradInput: expected memory of cpu, which the call was planned for, got memory of pretend"
    )
    for tensor in (make(address), later):
        status, _, executor = elu(here, tensor)
        assert (status, aclnn.aclSetAclOpExecutorRepeatable(executor)) == (0, 0)
        assert aclnn.aclSetOutputTensorAddr(executor, 0, tensor, block.address) == 0
        assert tensor.device == "pretend"
        acl.aclGetRecentErrMsg()
        assert aclnn.aclnnEluBackward(None, 0, executor, stream) == 161002
        assert message in (aclnn.aclGetRecentErrMsg() or "")
        assert aclnn.aclSetOutputTensorAddr(executor, 0, tensor, address) == 0
        assert (tensor.device, aclnn.aclnnEluBackward(None, 0, executor, stream)) == ("cpu", 0)
    memory.release(block.address, "devPtr", "device")


def test_a_descriptor_made_before_its_memory_is_refused_where_that_is_elsewhere() -> None:
    block = memory.allocate(Pretend(), 64)
    tensor = acl.aclCreateTensor((4,), 0, None, 0, 2, (4,), block.address)
    tensor.device = "cpu"  # as it says where the memory came later
    acl.aclGetRecentErrMsg()
    assert elu(tensor, np.zeros(4, np.float32))[0] == 161002
    assert "gradOutput: expected memory of cpu" in (aclnn.aclGetRecentErrMsg() or "")
    with pytest.raises(openaclnn.AclnnError, match="gradOutput: expected memory of cpu"):
        openaclnn.elu_backward(tensor, tensor, out=np.zeros(4, np.float32))
    memory.release(block.address, "devPtr", "device")


@pytest.mark.parametrize("rank", [8, 64, 65, 70])
def test_memory_under_many_axes_of_one_element(rank: int, stream: Any) -> None:
    """NumPy has 64 axes at most; weights may have more."""
    _, address = device_tensor(np.zeros(64, np.float32))
    make = lambda shape, strides, code=0, offset=0: acl.aclCreateTensor(  # noqa: E731
        shape, code, strides, offset, 2, shape, address
    )
    array, target = np.ones((1, 3, 2, 2), np.float32), np.zeros((1, 2, 2), np.int64)
    out = make((1, 3, 2, 2), (24, 8, 4, 2))
    for weight, status in (
        (make((1,) * (rank - 1) + (3,), (1,) * (rank - 1) + (2,), 0, 1), 0),  # between its elements
        (make((1,) * (rank - 1) + (3,), (1,) * rank), 161002),
    ):
        first_status, _, executor = aclnn.aclnnNLLLoss2dBackwardGetWorkspaceSize(
            array[:, 0], array, target, weight, 0, -100, array[0, 0, 0, :1], out
        )
        assert first_status == 0
        assert aclnn.aclnnNLLLoss2dBackward(None, 0, executor, stream) == status


def test_stray_targets_contribute_nothing_without_an_error() -> None:
    out = np.full((2, 3), np.nan, np.float32)
    status, _, executor = aclnn.aclnnCrossEntropyLossGradGetWorkspaceSize(
        np.float32([1, 1]), np.zeros((2, 3), np.float32), np.array([0, 77]), None, None, None,
        "none", -100, 0.0, 0.0, out,
    )  # fmt: skip
    assert status == 0
    assert aclnn.aclnnCrossEntropyLossGrad(None, 0, executor, None) == 0
    synchronize()
    np.testing.assert_array_equal(out, [[0, 1, 1], [0, 0, 0]])


def test_null_reduction_means_mean() -> None:
    arguments = (np.float32([2]), np.zeros((2, 3), np.float32), np.array([0, 1]), None, None, None)
    out = np.zeros((2, 3), np.float32)
    status, _, executor = aclnn.aclnnCrossEntropyLossGradGetWorkspaceSize(
        *arguments, None, -100, 0.0, 0.0, out
    )
    assert status == 0
    assert aclnn.aclnnCrossEntropyLossGrad(None, 0, executor, None) == 0
    synchronize()
    np.testing.assert_array_equal(out, [[0, 1, 1], [1, 0, 1]])


def test_many_threads_at_once() -> None:
    failures: list[Any] = []

    def work(seed: int) -> None:
        x = np.random.default_rng(seed).normal(size=500).astype(np.float32)
        expected = openaclnn.elu_backward(x, x)
        for _ in range(50):
            out = np.zeros_like(x)
            status, _, executor = elu(x, out)
            status |= aclnn.aclnnEluBackward(None, 0, executor, None)
            status |= acl.aclrtSynchronizeStream(None)
            if status or not np.array_equal(out, expected):
                failures.append((seed, status))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_autograd_hears_of_every_write() -> None:
    """Also of those of a repeatable executor, and of large ones, which a stream's worker does."""
    for size in (4, 100_000):
        gradient, x, out = (torch.ones(size) for _ in range(3))
        for repeatable in (False, True):
            status, _, executor = aclnn.aclnnEluBackwardGetWorkspaceSize(
                gradient, 1.0, 1.0, 1.0, False, x, out
            )
            assert status == 0
            if repeatable:
                assert aclnn.aclSetAclOpExecutorRepeatable(executor) == 0
            before = out._version
            for turn in range(1, 4 if repeatable else 2):
                assert aclnn.aclnnEluBackward(None, 0, executor, None) == 0
                assert out._version == before + turn
            assert acl.aclrtSynchronizeStream(None) == 0
    weight = torch.ones(4, requires_grad=True)
    saved = torch.ones(4)
    loss = (weight * saved).sum()
    status, _, executor = aclnn.aclnnEluBackwardGetWorkspaceSize(
        gradient[:4], 1.0, 1.0, 1.0, False, x[:4], saved
    )
    assert (status, aclnn.aclnnEluBackward(None, 0, executor, None)) == (0, 0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_leaf_that_requires_grad_is_written_in_neither_phase() -> None:
    gradient, x, out = (torch.ones(4) for _ in range(3))
    status, _, executor = aclnn.aclnnEluBackwardGetWorkspaceSize(
        gradient, 1.0, 1.0, 1.0, False, x, out
    )
    assert status == 0
    out.requires_grad_()
    assert aclnn.aclnnEluBackward(None, 0, executor, None) == 161002
    assert "a leaf that requires grad" in (aclnn.aclGetRecentErrMsg() or "")
    arguments = (gradient, 1.0, 1.0, 1.0, False, x, out)
    assert aclnn.aclnnEluBackwardGetWorkspaceSize(*arguments)[0] == 161002
    with torch.no_grad():
        status, _, executor = aclnn.aclnnEluBackwardGetWorkspaceSize(*arguments)
        assert (status, aclnn.aclnnEluBackward(None, 0, executor, None)) == (0, 0)
