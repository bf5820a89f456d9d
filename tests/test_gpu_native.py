"""The builtin that launches GPU kernels, with a driver's function of our own in the place of CUDA's."""

from __future__ import annotations

import ctypes
import gc
import struct
from typing import Any

import pytest

pytest.importorskip("llvmlite")

from openaclnn.engines.gpu.launching import native, variants
from openaclnn.engines.gpu.launching.code import LAUNCH as LAUNCH_SLOT, BoundBlock
from openaclnn.engines.gpu.launching.launch import KernelSpec, Launch, PointerArg
from openaclnn.engines.gpu.launching.native import Kernel
from openaclnn.engines.machine.builtins import address_of_function

LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.POINTER(ctypes.c_uint32),
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_void_p,
)


class Driver:
    """Notes what it is asked to launch, and answers with `code`."""

    def __init__(self) -> None:
        self.code = 0
        self.launched: list[Any] = []
        self._function = LAUNCH(self._launch)
        self.address = address_of_function(self._function)

    def _launch(self, config: Any, function: int, parameters: Any, extra: Any) -> int:
        words = ctypes.cast(config, ctypes.POINTER(ctypes.c_uint64))
        attributes = words[6] & 0xFFFFFFFF
        attribute = ctypes.cast(words[5], ctypes.POINTER(ctypes.c_uint32))
        self.launched.append(
            {
                "function": function, "grid": config[0:7], "stream": words[4], "extra": extra,
                "attributes": [(attribute[0], attribute[2])] if attributes else [], "sides": attribute[2:5] if attributes else [],
                "words": [ctypes.c_uint64.from_address(parameters[n]).value for n in range(6)],
            }
        )  # fmt: skip
        return self.code


def kernel(function: int, overlaps: bool = False, cluster: int = 1) -> tuple[Launch, Kernel]:
    """A launch, and its kernel: what a block is filled with."""
    compiled = Kernel(function, 128, 4096, ("i32", "i64", "fp32"), 1, overlaps, cluster)
    return Launch(KernelSpec(None, ()), 70_000, (-5, 1 << 40, 0.5), (), 4), compiled


@pytest.fixture
def driver() -> Driver:
    return Driver()


def entry(
    driver: Driver, launches: list[Any], fell: list[Any], scratch: Any = None
) -> tuple[BoundBlock, Any]:
    def fallback(addresses: Any, stream: int = 0) -> int:
        fell.append((addresses, stream))
        return 7

    return with_fallback(driver, launches, fallback, scratch)


def with_fallback(
    driver: Driver, launches: list[Any], fallback: Any, scratch: Any = None
) -> tuple[BoundBlock, Any]:
    """The builtin of launches with such pointers (place among the addresses, bytes to add, whether it must be aligned), and three numbers."""
    several = [([PointerArg(at, "", shift, wide) for at, shift, wide in pointers], 3) for pointers in launches]  # fmt: skip
    block = BoundBlock(several, scratch)
    block._block[LAUNCH_SLOT] = driver.address
    return block, block.function(fallback)


POINTERS = [(0, 0, True), (2, 32, True)]


def test_the_driver_gets_addresses_and_numbers(driver: Driver) -> None:
    fell: list[Any] = []
    block, run = entry(driver, [POINTERS], fell)
    block.fill(0, *kernel(0x5000))
    assert run((1 << 46, 3, 1 << 45), 0x77) == 0
    half = int.from_bytes(struct.pack("<f", 0.5), "little")
    (got,) = driver.launched
    assert got["function"] == 0x5000
    assert got["grid"] == [70_000, 1, 1, 128, 1, 1, 4096]
    assert got["stream"] == 0x77
    assert got["attributes"] == []
    assert got["extra"] is None
    assert got["words"] == [1 << 46, (1 << 45) + 32, 2**64 - 5, 1 << 40, half, 0]
    assert fell == []


def test_launches_go_in_order_each_with_its_own(driver: Driver) -> None:
    block, run = entry(driver, [POINTERS, [(3, 0, False), (1, 0, False)]], [])
    block.fill(0, *kernel(0x5000))
    block.fill(1, *kernel(0x6000, overlaps=True))
    assert run((16, 32, 48, 65), 0) == 0
    first, second = driver.launched
    assert (first["function"], first["words"][:2]) == (0x5000, [16, 48 + 32])
    assert (second["function"], second["words"][:2]) == (0x6000, [65, 32])
    assert (first["attributes"], second["attributes"]) == ([], [(6, 1)])


def test_programs_that_wait_for_each_other_are_a_cluster(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first time, which Python queues, and from then on."""
    block, run = entry(driver, [POINTERS, POINTERS], [])
    block.fill(0, *kernel(0x5000, cluster=5))
    block.fill(1, *kernel(0x6000, overlaps=True))
    assert run((16, 32, 48), 9) == 0
    launch, compiled = kernel(0x5000, cluster=5)
    monkeypatch.setattr(native, "launch_function", lambda: driver.address)
    start = variants._start_clusters(launch, compiled, [("float32", True), None, ("float32", True)])
    start(launch.grid, 9, 16, 0, 80, *launch.numbers)
    first, second, third = driver.launched
    assert (first["attributes"], first["sides"]) == ([(4, 5)], [5, 1, 1])
    assert second["attributes"] == [(6, 1)]
    assert third == first
    driver.code = 912
    with pytest.raises(RuntimeError, match="no 5 programs at once"):
        start(launch.grid, 9, 16, 0, 80, *launch.numbers)


def test_what_it_is_not_ready_for_falls_back(driver: Driver) -> None:
    fell: list[Any] = []
    block, run = entry(driver, [POINTERS, POINTERS], fell)
    block.fill(0, *kernel(0x5000))
    good = (16, 32, 48)
    assert run(good, 1) == 7, "the second kernel is not compiled"
    block.fill(1, *kernel(0x6000))
    assert run((16, 32, 49), 2) == 7, "an address is off"
    assert run([16, 32, 48], 3) == 7, "a list"
    assert run((16, 32), 4) == 7, "an address is missing"
    assert run(good) == 7, "no stream"
    with pytest.raises(TypeError):
        run()
    assert driver.launched == []
    assert fell == [(good, 1), ((16, 32, 49), 2), ([16, 32, 48], 3), ((16, 32), 4), (good, 0)]
    assert run(good, 5) == 0


def test_addresses_off_a_vector_s_bounds_have_a_kernel_of_their_own(driver: Driver) -> None:
    fell: list[Any] = []
    block, run = entry(driver, [POINTERS], fell)
    for misaligned in (0b10, 0b00, 0b10, 0b11, 0b01):
        block.fill(0, *kernel(0x5000 + misaligned), misaligned)
    several = ((16, 32, 49), (16, 32, 48), (17, 32, 40), (8, 32, 64))
    assert [run(addresses, 1) for addresses in several] == [0] * 4
    assert [launch["function"] for launch in driver.launched] == [0x5002, 0x5000, 0x5003, 0x5001]
    assert fell == []


def test_items_that_are_no_integers_of_64_bits_fall_back(driver: Driver) -> None:
    fell: list[Any] = []
    block, run = entry(driver, [POINTERS], fell)
    block.fill(0, *kernel(0x5000))
    for addresses, stream in (((16, "32", 48), 1), ((16, 32, 1 << 70), 1), ((16, 32, 48), 1 << 64)):
        assert run(addresses, stream) == 7
    assert run((1,) * 100, 1) == 7, "more than there is room for"
    assert len(fell) == 4
    assert driver.launched == []


def test_a_refusal_of_the_driver_falls_back(driver: Driver) -> None:
    fell: list[Any] = []
    block, run = entry(driver, [POINTERS], fell)
    block.fill(0, *kernel(0x5000))
    driver.code = 201
    assert run((16, 32, 48), 9) == 7
    assert len(driver.launched) == 1
    assert fell == [((16, 32, 48), 9)]


def test_scratch_memory_is_there_for_the_launches_and_given_back(driver: Driver) -> None:
    fell: list[Any] = []
    events: list[Any] = []

    def allocate(size: int, stream: int) -> int:
        events.append((size, stream, len(driver.launched)))
        if stream == 13:
            raise MemoryError("no scratch")
        return 1 << 40

    def release(address: int) -> None:
        events.append((address, len(driver.launched)))

    launches = [[(0, 0, True), (2, 8, False)], [(2, 0, False), (1, 0, True)]]
    block, run = entry(driver, launches, fell, (4096, allocate, release))
    good = (16, 32)
    block.fill(0, *kernel(0x5000))
    assert run(good, 1) == 7, "the second kernel is not compiled"
    block.fill(1, *kernel(0x6000))
    assert run((16, 33), 2) == 7, "an address is off"
    assert events == []
    assert run(good, 3) == 0
    assert [call["words"][:2] for call in driver.launched] == [[16, (1 << 40) + 8], [1 << 40, 32]]
    assert events == [(4096, 3, 0), (1 << 40, 2)]
    with pytest.raises(MemoryError, match="no scratch"):
        run(good, 13)
    driver.code = 201
    assert run(good, 4) == 7, "the driver refuses the first, and the second is not tried"
    assert events[3:] == [(4096, 4, 2), (1 << 40, 3)]
    assert [stream for _, stream in fell] == [1, 2, 4]


def test_the_function_keeps_what_it_reads(driver: Driver) -> None:
    fell: list[Any] = []
    block, run = entry(driver, [POINTERS], fell)
    block.fill(0, *kernel(0x5000))
    del block
    gc.collect()
    assert run((16, 32, 48), 0) == 0
    assert run((17, 32, 48), 0) == 7


def test_a_fallback_may_raise(driver: Driver) -> None:
    def fallback(addresses: Any, stream: int = 0) -> int:
        raise ValueError("no such stream")

    _, run = with_fallback(driver, [POINTERS], fallback)
    with pytest.raises(ValueError, match="no such stream"):
        run((16, 32, 48), 0)


def test_a_kernel_is_compiled_with_numbers_that_triton_assumes_nothing_of() -> None:
    """It serves launches with others: once a 1, for which a kernel was compiled first, was its number of programs for all."""
    seen: list[tuple[Any, ...]] = []

    class Kernel:
        def warmup(self, *arguments: Any, **options: Any) -> Any:
            seen.append(arguments)
            raise NotImplementedError

    numbers = (1, 0, 16, -48, 2**31 - 16, 2**31, 2**40, -(2**40), 1.0, 16.0)
    launch = Launch(KernelSpec(Kernel(), ()), 1, numbers, (1, 16), 4)
    with pytest.raises(NotImplementedError):
        variants._compiled(launch, ())
    (compiled,) = seen
    told, constexprs = compiled[: len(numbers)], compiled[len(numbers) :]
    assert constexprs == (1, 16)
    assert list(map(type, told)) == list(map(type, numbers))
    assert variants.are_64_bit(told) == variants.are_64_bit(numbers)
    assert not [
        number for number in told if type(number) is int and (number == 1 or number % 16 == 0)
    ]
