"""Device and host memory, copies and fills: sizes, bounds, and the order of checks."""

import ctypes
import threading

import numpy as np
import pytest

from openaclnn import acl, runtime

H2H, H2D, D2H, D2D, DEFAULT, H2B2D = range(6)


pytestmark = pytest.mark.usefixtures("fresh_device")


def malloc(size, fill=None):
    status, pointer = acl.aclrtMalloc(size, acl.ACL_MEM_MALLOC_HUGE_FIRST)
    assert status == 0
    if fill is not None:
        assert acl.aclrtMemset(pointer, size, fill, size) == 0
    return pointer


def pinned(size):
    status, pointer = acl.aclrtMallocHost(size)
    assert status == 0
    return pointer


def read(pointer, count):
    host = np.zeros(count, np.uint8)
    kind = D2H if runtime.find_allocation(pointer).kind == "device" else H2H
    assert acl.aclrtMemcpy(host, count, pointer, count, kind) == 0
    return host.tolist()


@pytest.mark.parametrize(
    ("size", "real"), [(1, 64), (31, 64), (32, 64), (33, 96), (64, 96), (65, 128), (4096, 4128)]
)
@pytest.mark.parametrize("malloc", [acl.aclrtMalloc, acl.aclrtMallocCached, acl.aclrtMallocWithCfg])
def test_padding(malloc, size, real):
    status, pointer = malloc(size, 0)
    assert status == 0
    assert pointer % 64 == 0
    block = runtime.find_allocation(pointer)
    assert (block.address, block.size, block.kind, block.device) == (pointer, real, "device", "cpu")
    assert acl.aclrtFree(pointer) == 0
    assert runtime.find_allocation(pointer) is None


@pytest.mark.parametrize(("size", "real"), [(1, 32), (32, 32), (33, 64)])
def test_no_padding(tmp_path, size, real):
    for status, pointer in (
        acl.aclrtMallocAlign32(size, 0),
        acl.aclrtMalloc(size, acl.ACL_MEM_MALLOC_HUGE1G_ONLY),
        acl.aclrtMalloc(size, acl.ACL_MEM_MALLOC_HUGE1G_ONLY_P2P | acl.ACL_MEM_TYPE_LOW_BAND_WIDTH),
    ):
        assert status == 0
        assert runtime.find_allocation(pointer).size == real
    acl.aclFinalize()
    path = tmp_path / "acl.json"
    path.write_text('{"openaclnn": {"product": "Ascend950"}}')
    assert acl.aclInit(path) == 0
    acl.aclrtSetDevice(0)
    assert runtime.find_allocation(malloc(size)).size == real


@pytest.mark.parametrize("policy", [8, 99, -1, 0x1000 | 2])
def test_unknown_policies_are_taken(policy):
    status, pointer = acl.aclrtMalloc(5, policy)
    assert status == 0
    assert runtime.find_allocation(pointer).size == 64


def test_sizes_refused():
    for size in (0, -1, 2**64, 2**64 - 1, 2**64 - 63, "8", None, 8.0):
        assert acl.aclrtMalloc(size, 0) == (100000, 0)
    assert acl.aclrtMalloc(8, "huge") == (100000, 0)
    for size in (0, -1, 2**64, None):
        assert acl.aclrtMallocHost(size) == (100000, 0)
    for size in (2**64 - 64, 2**62, 2**48):
        assert acl.aclrtMalloc(size, 0) == (207001, 0)
    assert acl.aclrtMallocHost(2**60) == (207001, 0)
    assert "bytes left" in acl.aclGetRecentErrMsg()


def test_the_device_has_an_end():
    status, (free, total) = acl.aclrtGetMemInfo(acl.ACL_HBM_MEM)
    assert status == 0
    assert 0 < free <= total
    assert acl.aclrtMalloc(free + 1, 0) == (207001, 0)
    pointer = malloc(1 << 20)
    assert acl.aclrtGetMemInfo(acl.ACL_HBM_MEM) == (0, (free - (1 << 20) - 32, total))
    assert acl.aclrtFree(pointer) == 0
    assert acl.aclrtGetMemInfo(acl.ACL_HBM_MEM) == (0, (free, total))
    assert acl.aclrtGetMemInfo(18)[0] == 100000


def test_a_failed_allocation_counts_nothing(monkeypatch):
    from openaclnn.runtime import device

    before = acl.aclrtGetMemInfo(0)

    def exhausted(self, size):
        raise MemoryError

    monkeypatch.setattr(device.Device, "allocate", exhausted)
    assert acl.aclrtMalloc(64, 0) == (207001, 0)
    assert acl.aclrtGetMemInfo(0) == before


def test_free_refuses_what_is_not_a_live_block():
    pointer, host = malloc(64), pinned(64)
    assert acl.aclrtFree(None) == acl.aclrtFree(0) == 100000
    assert acl.aclrtFreeHost(None) == 100000
    assert acl.aclrtFree(pointer + 1) == 107000
    assert "1 bytes into" in acl.aclGetRecentErrMsg()
    assert acl.aclrtFree(host) == 107000
    assert acl.aclrtFreeHost(pointer) == 107000
    assert acl.aclrtFree(12345678) == 107000
    for garbage in ("x", -5, 2**64, object(), 1.5):
        assert acl.aclrtFree(garbage) == 100000
    assert acl.aclrtFree(pointer) == 0
    assert acl.aclrtFree(pointer) == 107000
    assert "already freed" in acl.aclGetRecentErrMsg()
    assert acl.aclrtFreeHost(host) == 0
    assert acl.aclrtFreeHost(host) == 107000


def test_free_with_sync_waits_for_the_device():
    pointer, go, ran = malloc(64), threading.Event(), []
    runtime.current_stream(None).submit(lambda: (go.wait(), ran.append(1)))
    threading.Timer(0.05, go.set).start()
    assert acl.aclrtFreeWithDevSync(pointer) == 0
    assert ran == [1]
    assert acl.aclrtFreeWithDevSync(pointer) == 107000
    assert acl.aclrtFreeWithDevSync(None) == 100000


def test_copies_of_every_kind():
    data = np.arange(100, dtype=np.uint8)
    back = np.zeros(100, np.uint8)
    a, b, host = malloc(100), malloc(100), pinned(100)
    assert acl.aclrtMemcpy(a, 100, data, 100, H2D) == 0
    assert acl.aclrtMemcpy(b, 100, a, 100, D2D) == 0
    assert acl.aclrtMemcpy(host, 100, b, 100, D2H) == 0
    assert acl.aclrtMemcpy(back, 100, host, 100, H2H) == 0
    assert (back == data).all()
    assert acl.aclrtMemcpy(a + 50, 50, data, 50, H2B2D) == 0
    assert read(a, 100) == [*range(50), *range(50)]
    for target, source in ((a, b), (back, a), (b, data), (back, data)):
        assert acl.aclrtMemcpy(target, 100, source, 100, DEFAULT) == 0


def test_host_sides_may_be_any_buffer():
    pointer = malloc(8)
    raw = ctypes.create_string_buffer(b"12345678", 8)
    assert acl.aclrtMemcpy(pointer, 8, raw, 8, H2D) == 0
    target = bytearray(8)
    assert acl.aclrtMemcpy(target, 8, pointer, 8, D2H) == 0
    assert target == b"12345678"
    assert acl.aclrtMemcpy(pointer, 8, b"abcdefgh", 8, H2D) == 0
    numbers = np.zeros((2, 2), np.uint16)
    assert acl.aclrtMemcpy(numbers.ctypes.data, 8, pointer, 8, D2H) == 0
    assert numbers.tobytes() == b"abcdefgh"
    assert acl.aclrtMemcpy(ctypes.c_void_p(pointer), 8, numbers.T, 8, H2D) == 0
    assert acl.aclrtMemcpy(memoryview(target), 8, np.int64(pointer), 8, D2H) == 0
    assert acl.aclrtMemcpy(pointer, 8, ctypes.addressof(raw), 8, H2D) == 0


def test_buffers_refused():
    pointer = malloc(8)
    assert acl.aclrtMemcpy(pointer, 8, bytearray(7), 8, H2D) == 107000
    assert acl.aclrtMemcpy(pointer, 8, b"", 8, H2D) == 107000
    assert acl.aclrtMemcpy(bytearray(7), 8, pointer, 8, D2H) == 107000
    assert acl.aclrtMemcpy(b"12345678", 8, pointer, 8, D2H) == 107000
    assert "read-only" in acl.aclGetRecentErrMsg()
    assert acl.aclrtMemcpy(pointer, 8, np.zeros(16, np.uint8)[::2], 8, H2D) == 107000
    assert acl.aclrtMemcpy(pointer, 8, memoryview(bytearray(16))[::2], 8, H2D) == 107000
    frozen = np.zeros(8, np.uint8)
    frozen.flags.writeable = False
    assert acl.aclrtMemcpy(frozen, 8, pointer, 8, D2H) == 107000


def test_order_of_checks():
    pointer, data = malloc(64), np.zeros(64, np.uint8)
    assert acl.aclrtMemcpy(None, 0, None, 0, 99) == 0, "nothing to copy comes first"
    assert acl.aclrtMemcpy(None, 0, None, 8, 99) == 100000
    assert "dst" in acl.aclGetRecentErrMsg()
    assert acl.aclrtMemcpy(pointer, 0, None, 8, 99) == 100000
    assert "src" in acl.aclGetRecentErrMsg()
    for kind in (-1, 6, 7, 99, None):
        assert acl.aclrtMemcpy(pointer, 0, data, 8, kind) == 100000
        assert "kind" in acl.aclGetRecentErrMsg()
    assert acl.aclrtMemcpy(pointer, 0, data, 8, H2D) == 107000
    assert acl.aclrtMemcpy(pointer, 7, data, 8, H2D) == 107000
    assert acl.aclrtMemcpy(pointer, 8, pointer, 8, H2H) == 0, "dst == src comes before directions"
    for garbage in ("x", object(), -1, 1.5):
        assert acl.aclrtMemcpy(garbage, 8, data, 8, H2D) == 100000
        assert acl.aclrtMemcpy(pointer, 8, data, garbage, H2D) == 100000
        assert acl.aclrtMemcpy(pointer, garbage, data, 8, H2D) == 100000


def test_impossible_directions():
    a, b, host, data = malloc(64), malloc(64), pinned(64), np.zeros(64, np.uint8)
    for target, source, kinds in (
        (a, data, (H2H, D2H, D2D)),
        (a, host, (H2H, D2H, D2D)),
        (data, a, (H2H, H2D, D2D, H2B2D)),
        (a, b, (H2H, H2D, D2H, H2B2D)),
        (data, host, (H2D, D2H, D2D, H2B2D)),
    ):
        for kind in kinds:
            assert acl.aclrtMemcpy(target, 64, source, 64, kind) == 107000
            assert "kind" in acl.aclGetRecentErrMsg()
    acl.aclrtFree(b)
    assert acl.aclrtMemcpy(b, 64, data, 64, H2D) == 107000, "freed memory is not the device's"
    assert acl.aclrtMemcpy(data, 8, 4096, 8, DEFAULT) == 107000, "no memory can be there"


def test_bounds_are_those_of_the_block_with_its_padding():
    pointer, data = malloc(33), np.zeros(200, np.uint8)
    assert acl.aclrtMemcpy(pointer, 200, data, 96, H2D) == 0
    assert acl.aclrtMemcpy(pointer, 200, data, 97, H2D) == 107000
    assert acl.aclrtMemcpy(data, 200, pointer, 97, D2H) == 107000
    assert acl.aclrtMemcpy(pointer + 95, 200, data, 1, H2D) == 0
    assert acl.aclrtMemcpy(pointer + 95, 200, data, 2, H2D) == 107000
    assert acl.aclrtMemcpy(data, 200, pointer + 64, 33, D2H) == 107000
    host = pinned(10)
    assert acl.aclrtMemcpy(host, 200, data, 11, H2H) == 107000
    assert acl.aclrtMemcpy(host, 200, data, 10, H2H) == 0


def test_overlapping_copy_is_a_move():
    pointer = malloc(64)
    acl.aclrtMemcpy(pointer, 64, np.arange(64, dtype=np.uint8), 64, H2D)
    assert acl.aclrtMemcpy(pointer + 1, 63, pointer, 63, D2D) == 0
    assert read(pointer, 64) == [0, *range(63)]


def test_memset():
    pointer, host = malloc(64, fill=0), pinned(8)
    assert acl.aclrtMemset(pointer + 2, 62, 0x1FF, 3) == 0
    assert read(pointer, 6) == [0, 0, 255, 255, 255, 0]
    assert acl.aclrtMemset(host, 8, -1, 8) == 0
    assert read(host, 8) == [255] * 8
    assert acl.aclrtMemset(None, 0, 0, 0) == 0
    assert acl.aclrtMemset(None, 0, 0, 1) == 100000
    assert acl.aclrtMemset(pointer, 7, 0, 8) == 107000
    assert acl.aclrtMemset(pointer, 200, 0, 97) == 107000
    assert acl.aclrtMemset(pointer + 95, 200, 0, 2) == 107000
    assert acl.aclrtMemset(pointer, 8, "0", 8) == 100000
    assert acl.aclrtMemset(np.zeros(8, np.uint8), 8, 0, 8) == 107000, "not memory of the runtime"


@pytest.fixture
def blocked():
    """A stream that is held up, and what lets it go on."""
    _, stream = acl.aclrtCreateStream()
    go = threading.Event()
    stream.submit(go.wait)
    yield stream, go
    go.set()


def test_pinned_copies_are_asynchronous(blocked):
    stream, go = blocked
    pointer, host = malloc(64, fill=7), pinned(64)
    acl.aclrtMemset(host, 64, 0, 64)
    assert acl.aclrtMemcpyAsync(host, 64, pointer, 64, D2H, stream) == 0
    assert acl.aclrtMemsetAsync(pointer, 64, 9, 64, stream) == 0
    assert read(host, 64) == [0] * 64
    assert read(pointer, 64) == [7] * 64
    go.set()
    assert acl.aclrtSynchronizeStream(stream) == 0
    assert read(host, 64) == [7] * 64
    assert read(pointer, 64) == [9] * 64


def test_pageable_copies_block_but_keep_the_order(blocked):
    stream, go = blocked
    pointer, data = malloc(64, fill=7), np.zeros(64, np.uint8)
    acl.aclrtMemsetAsync(pointer, 64, 9, 64, stream)
    threading.Timer(0.05, go.set).start()
    assert acl.aclrtMemcpyAsync(data, 64, pointer, 64, D2H, stream) == 0
    assert (data == 9).all(), "done when the call returns, and behind the fill"


def test_a_queued_copy_keeps_freed_memory(blocked):
    stream, go = blocked
    a, b = malloc(1 << 22, fill=3), malloc(1 << 22, fill=4)
    assert acl.aclrtMemcpyAsync(b, 1 << 22, a, 1 << 22, D2D, stream) == 0
    assert acl.aclrtFree(a) == 0
    go.set()
    assert acl.aclrtSynchronizeStream(stream) == 0
    assert read(b, 16) == [3] * 16


def test_asynchronous_copies_refused():
    a, b, host, data = malloc(256), malloc(256), pinned(64), np.zeros(64, np.uint8)
    assert acl.aclrtMemcpyAsync(host, 64, data, 64, H2H, None) == 207000
    assert acl.aclrtMemcpyAsync(host, 64, data, 64, DEFAULT, None) == 207000
    assert acl.aclrtMemcpyAsync(a + 32, 64, b, 64, D2D, None) == 107008
    assert acl.aclrtMemcpyAsync(a, 64, b + 8, 64, D2D, None) == 107008
    assert acl.aclrtMemcpyAsync(a + 64, 64, b, 64, D2D, None) == 0
    assert acl.aclrtMemcpyAsync(None, 0, None, 0, 99, None) == 0
    assert acl.aclrtMemcpyAsync(None, 8, b, 8, D2D, None) == 100000
    assert acl.aclrtMemcpyAsync(a, 8, b, 8, 6, None) == 100000
    assert acl.aclrtMemcpyAsync(a, 7, b, 8, D2D, None) == 107000
    assert acl.aclrtMemcpyAsync(a, 999, b, 300, D2D, None) == 107000
    assert acl.aclrtMemcpyAsync(a, 8, b, 8, D2D, 1234) == 107017
    assert acl.aclrtMemsetAsync(a, 8, 0, 8, "stream") == 107017
    assert acl.aclrtMemsetAsync(None, 8, 0, 8, None) == 100000
    assert acl.aclrtMemsetAsync(a, 8, 0, 9, None) == 107000


def test_float16_helpers_saturate():
    inf, nan = float("inf"), float("nan")
    to_half = {
        0.0: 0, 1.0: 0x3C00, -2.0: 0xC000, 65504.0: 0x7BFF, 65520.0: 0x7BFF,
        1e30: 0x7BFF, -1e300: 0xFBFF, inf: 0x7BFF, -inf: 0xFBFF, 2.0**-24: 1, 2.0**-25: 0,
        1 + 2.0**-11: 0x3C00, 1 + 3 * 2.0**-11: 0x3C02,
    }  # fmt: skip
    for value, bits in to_half.items():
        assert acl.aclFloatToFloat16(value) == bits, value
    assert acl.aclFloatToFloat16(-0.0) == 0x8000
    assert acl.aclFloatToFloat16(nan) == acl.aclFloatToFloat16(-nan) == 0x7BFF
    assert acl.aclFloat16ToFloat(0x7C00) == 65536.0
    assert acl.aclFloat16ToFloat(0xFC00) == -65536.0
    assert acl.aclFloat16ToFloat(0x7E00) == 98304.0
    for bits in range(65536):
        value = float(np.uint16(bits).view(np.float16))
        if np.isfinite(value):
            assert acl.aclFloat16ToFloat(bits) == value
            assert acl.aclFloatToFloat16(value) == bits
    assert acl.aclFloat16ToFloat("x") == 0.0
    assert acl.aclFloatToFloat16(None) == 0


def test_data_type_sizes():
    sizes = {
        acl.ACL_FLOAT: 4, acl.ACL_FLOAT16: 2, acl.ACL_BF16: 2, acl.ACL_DOUBLE: 8, acl.ACL_BOOL: 1,
        acl.ACL_COMPLEX128: 16, acl.ACL_INT4: 0, acl.ACL_STRING: 0, acl.ACL_DT_UNDEFINED: 0, 5: 0,
        999: 0, "x": 0,
    }  # fmt: skip
    assert {code: acl.aclDataTypeSize(code) for code in sizes} == sizes
