"""The runtime on a real GPU, and GPU arrays of other libraries: `python -m pytest tests/gpu_runtime.py`."""

from __future__ import annotations

import os

os.environ["OPENACLNN_DEVICE"] = "cuda"

import threading
from typing import Any

import numpy as np
import pytest

import openaclnn
from conftest import SIZED, device_tensor, document_program, read_back
from openaclnn import acl, aclnn
from openaclnn.core.declare import Operator

names = pytest.mark.parametrize("operator", SIZED, ids=lambda op: op.python_name)


@names
def test_the_documents_program_on_the_gpu(operator: Operator, stream: Any) -> None:
    arguments, addresses, _, expected = document_program(operator)
    tensors = [value for value in arguments if hasattr(value, "device")]
    assert tensors
    assert {tensor.device for tensor in tensors} == {"cuda:0"}
    status, size, executor = getattr(aclnn, f"{operator.name}GetWorkspaceSize")(*arguments)
    assert status == 0, aclnn.aclGetRecentErrMsg()
    assert getattr(aclnn, operator.name)(None, size, executor, stream) == 0
    assert acl.aclrtSynchronizeStream(stream) == 0, aclnn.aclGetRecentErrMsg()
    np.testing.assert_allclose(read_back(addresses[-1], expected), expected, rtol=3e-7, atol=1e-8)


def test_large_asynchronous_work_copies_and_events(stream: Any) -> None:
    x = np.random.default_rng(0).normal(size=1 << 24).astype(np.float32)
    source, _ = device_tensor(x)
    out, address = device_tensor(np.zeros_like(x))
    _, begin = acl.aclrtCreateEvent()
    _, end = acl.aclrtCreateEvent()
    status, _, executor = aclnn.aclnnEluBackwardGetWorkspaceSize(
        source, 1.0, 1.0, 1.0, False, source, out
    )
    assert status == 0
    assert aclnn.aclSetAclOpExecutorRepeatable(executor) == 0
    assert acl.aclrtRecordEvent(begin, stream) == 0
    for _ in range(20):
        assert aclnn.aclnnEluBackward(None, 0, executor, stream) == 0
    assert acl.aclrtRecordEvent(end, stream) == 0
    assert acl.aclrtSynchronizeStream(stream) == 0
    status, milliseconds = acl.aclrtEventElapsedTime(begin, end)
    assert status == 0
    assert milliseconds > 0
    got = read_back(address, x)
    exact = np.where(x <= 0, x * np.exp(x.astype(np.float64)), x)
    np.testing.assert_allclose(got, exact, rtol=1e-6, atol=1e-30)
    assert acl.aclrtMemset(address, x.nbytes, 0, x.nbytes) == 0
    assert not read_back(address, x).any()
    assert acl.aclrtGetMemInfo(acl.ACL_HBM_MEM)[0] == 0


def test_cupy_and_jax_arrays() -> None:
    cupy = pytest.importorskip("cupy")
    x = np.linspace(-3, 3, 1001, dtype=np.float32)
    expected = openaclnn.elu_backward(x, x)
    got = openaclnn.elu_backward(cupy.asarray(x), cupy.asarray(x))
    assert isinstance(got, cupy.ndarray)
    np.testing.assert_allclose(cupy.asnumpy(got), expected, rtol=1e-6)
    with cupy.cuda.Stream(non_blocking=True):
        out = cupy.empty(1001, np.float32)
        assert openaclnn.elu_backward(cupy.asarray(x), cupy.asarray(x), out=out) is out
        np.testing.assert_allclose(cupy.asnumpy(out), expected, rtol=1e-6)
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    jax = pytest.importorskip("jax")
    array = jax.numpy.asarray(x)
    got = openaclnn.elu_backward(array, array)
    assert isinstance(got, jax.Array)
    np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-6)


def test_capabilities_overflow_and_callbacks(stream: Any) -> None:
    properties = pytest.importorskip("torch").cuda.get_device_properties(0)
    cores, cache = acl.ACL_DEVICE_INFO_AI_CORE_NUM, acl.ACL_DEVICE_INFO_L2_SIZE
    assert acl.aclGetDeviceCapability(0, cores) == (0, properties.multi_processor_count)
    assert acl.aclGetDeviceCapability(0, cache) == (0, properties.L2_cache_size)
    ones = np.ones(16, np.float32)
    _, address = device_tensor(ones)
    assert acl.aclrtGetOverflowStatus(address, 64, stream) == 0
    ran: list[int] = []
    assert acl.aclrtSubscribeReport(threading.get_ident(), stream) == 0
    assert acl.aclrtLaunchCallback(ran.append, 7, acl.ACL_CALLBACK_BLOCK, stream) == 0
    assert acl.aclrtProcessReport(-1) == 0
    assert acl.aclrtSynchronizeStream(stream) == 0
    assert acl.aclrtUnSubscribeReport(threading.get_ident(), stream) == 0
    assert (ran, read_back(address, ones).any()) == ([7], False)
