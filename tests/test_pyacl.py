"""The pyACL-shaped module: outputs first, the status last, handles that are integers."""

import numpy as np
import pytest

from conftest import run_python
from openaclnn import acl as c_named, pyacl as acl


@pytest.fixture(autouse=True)
def runtime():
    assert acl.init() == 0
    assert acl.rt.set_device(0) == 0
    yield
    acl.finalize()
    acl.get_recent_err_msg()


def test_round_trip_through_device_memory():
    data = np.arange(8, dtype=np.float32)
    back = np.zeros_like(data)
    ptr, ret = acl.rt.malloc(data.nbytes, acl.ACL_MEM_MALLOC_HUGE_FIRST)
    assert ret == 0
    host_to_device, device_to_host = acl.ACL_MEMCPY_HOST_TO_DEVICE, acl.ACL_MEMCPY_DEVICE_TO_HOST
    source, target = acl.util.numpy_to_ptr(data), acl.util.numpy_to_ptr(back)
    assert acl.rt.memcpy(ptr, data.nbytes, source, data.nbytes, host_to_device) == 0
    assert acl.rt.memcpy(target, back.nbytes, ptr, back.nbytes, device_to_host) == 0
    assert np.array_equal(data, back)
    assert acl.rt.free(ptr) == 0
    assert acl.rt.free(ptr) == 107000


def test_streams_events_and_contexts_are_integers():
    stream, ret = acl.rt.create_stream()
    assert (type(stream), ret) == (int, 0)
    start, ret = acl.rt.create_event()
    assert ret == 0
    end, ret = acl.rt.create_event()
    assert ret == 0
    assert acl.rt.record_event(start, stream) == 0
    assert acl.rt.record_event(end, stream) == 0
    assert acl.rt.stream_wait_event(stream, end) == 0
    assert acl.rt.synchronize_stream(stream) == 0
    milliseconds, ret = acl.rt.event_elapsed_time(start, end)
    assert ret == 0
    assert milliseconds >= 0
    assert acl.rt.query_event(end) == (0, 0)
    context, ret = acl.rt.get_context()
    assert (acl.rt.get_context(), ret) == ((context, 0), 0)
    other, ret = acl.rt.create_context(0)
    assert (other != context, ret) == (True, 0)
    assert acl.rt.set_context(context) == 0
    assert acl.rt.destroy_context(other) == 0
    assert acl.rt.destroy_stream(stream) == 0


def test_nothing_raises_for_bad_input():
    stream, _ = acl.rt.create_stream()
    assert acl.rt.destroy_stream(stream) == 0
    assert acl.rt.destroy_stream(stream) == 107017
    assert acl.rt.destroy_stream(0) == 100000
    assert acl.rt.synchronize_stream(12345) == 107017
    assert acl.rt.synchronize_stream("stream") == 107017
    assert "unknown or already destroyed" in acl.get_recent_err_msg()
    assert acl.rt.malloc(0, 0) == (0, 100000)
    assert acl.rt.malloc("much", 0) == (0, 100000)
    assert acl.rt.set_device(99) == 107001
    assert acl.rt.memcpy(0, 4, 0, 4, 0) == 100000
    assert acl.util.numpy_to_ptr([1, 2]) == 0
    assert acl.util.bytes_to_ptr("text") == 0
    assert acl.util.ptr_to_bytes(0, 4) == b""
    assert acl.util.ptr_to_numpy(0, (2,), np.float32) is None
    assert acl.util.ptr_to_numpy(1, "shape", np.float32) is None
    assert acl.util.ptr_to_numpy(65536, (-1,), np.float32) is None
    assert "acl.util.ptr_to_numpy" in acl.get_recent_err_msg()


def test_bytes_and_arrays_at_addresses():
    data = b"sixteen bytes!!!"
    ptr, ret = acl.rt.malloc_host(len(data))
    assert ret == 0
    assert acl.rt.memcpy(ptr, 16, acl.util.bytes_to_ptr(data), 16, 0) == 0
    assert acl.util.ptr_to_bytes(ptr, 16) == data
    assert acl.util.ptr_to_bytes(ptr, 1 << 40) == b""
    array = acl.util.ptr_to_numpy(ptr, (4, 4), np.uint8)
    assert array.tobytes() == data
    assert acl.util.ptr_to_numpy(ptr, (4, 4), 2).tobytes() == data  # NumPy's number of uint8
    array[0, 0] = ord("S")
    assert acl.util.ptr_to_bytes(ptr, 1) == b"S"
    assert acl.rt.free_host(ptr) == 0
    assert array[0, 1] == ord("i")  # the array keeps the memory


def test_several_outputs_come_before_the_status():
    free, total, ret = acl.rt.get_mem_info(acl.ACL_HBM_MEM)
    assert ret == 0
    assert 0 < free <= total
    assert acl.rt.get_device() == (0, 0)
    assert acl.rt.get_run_mode() == (acl.ACL_HOST, 0)
    count, ret = acl.rt.get_device_count()
    assert (count >= 1, ret) == (True, 0)
    assert acl.data_type_size(acl.ACL_FLOAT) == 4


def test_everything_of_the_runtime_is_there_under_its_name():
    names = {
        "set_context",
        "get_context",
        "unsubscribe_report",
        "malloc_align32",
        "ctx_get_sys_param_opt",
        "stream_query",
    }
    assert names <= set(acl.rt.__all__)
    left_out = {
        "aclrtMallocWithCfg",
        "aclrtGetLastError",
        "aclrtPeekAtLastError",
        "aclrtGetSocName",
    }
    runtime = {name for name in c_named.__all__ if name.startswith("aclrt")} - left_out
    assert len(acl.rt.__all__) == len(runtime)
    assert acl.get_soc_name() == c_named.aclrtGetSocName()


def test_handles_die_with_the_runtime():
    stream, _ = acl.rt.create_stream()
    assert acl.finalize() == 0
    assert acl.finalize() == 100037
    assert acl.init() == 0
    assert acl.rt.set_device(0) == 0
    assert acl.rt.synchronize_stream(stream) == 107017


def test_it_can_be_installed_as_acl():
    code = (
        "import openaclnn.pyacl; openaclnn.pyacl.install()\n"
        "import acl, acl.rt, acl.util\n"
        "assert acl.init() == 0 and acl.rt.set_device(0) == 0\n"
        "print(acl.rt.get_device(), acl.ACL_FLOAT16, 'cffi' in __import__('sys').modules)"
    )
    done = run_python(code)
    assert done.stdout.strip() == "(0, 0) 1 False"
