"""Faults in ourselves, in the short form: `make faults` injects each at every point."""

from __future__ import annotations

import ctypes
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import openaclnn
from conftest import in_turn
from faults.bits import LARGE, SMALL, Grid, problems
from faults.fuzz import Fuzzer
from faults.inject import available, run_driver
from faults.references import growth, kinds
from faults.soak import Soak
from faults.targets import all_targets, c_functions
from openaclnn import acl, aclnn
from openaclnn.core import forks
from openaclnn.core.trust import CODE_MARK
from openaclnn.engines.machine import cache
from openaclnn.engines.numpy import elementwise
from openaclnn.runtime import AclFailure, context, device as runtime_device, memory, stream
from openaclnn.runtime.device import CudaDevice
from openaclnn.runtime.memory import used_bytes
from openaclnn.testing import read_cases
from openaclnn.testing.drawing import Recipe
from openaclnn.testing.files import FileError, split_name
from openaclnn.testing.manifest import MANIFEST, expected_of, write_cases
from test_capi_tools import installed


@pytest.fixture(autouse=True, scope="module")
def nothing_left_by_others() -> None:
    """What is left after a test is counted, other files' memory of hosts too, which no reset frees."""
    for block in memory._table.blocks():
        if block.kind == "host":
            assert acl.aclrtFreeHost(block.address) == 0


@pytest.mark.skipif(not available(), reason="faults.c stands before glibc, and reads the interpreter's steps as 3.11 counts them")  # fmt: skip
def test_every_fault_at_some_points() -> None:
    code, said = run_driver(["--most", "5"], 240)
    assert code == 0, said
    assert said.count(" / ") > 40
    for outcome in ("MemoryError: ", "KeyboardInterrupt: ", "Terminated: ", "status 200000: ", "status 207005: ", "killed: "):  # fmt: skip
        assert outcome in said


def test_the_compiler_fails_at_each_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call says so, the lock is free, and the next call compiles."""
    monkeypatch.setenv("OPENACLNN_CACHE_DIR", str(tmp_path))
    real, left = cache.llvm, [0]

    class Failing:
        def __getattr__(self, name: str) -> Any:
            function = getattr(real, name)
            if name not in ("parse_assembly", "create_pass_builder", "create_mcjit_compiler"):
                return function

            def call(*arguments: Any) -> Any:
                left[0] -= 1
                if left[0] == 0:
                    raise RuntimeError("LLVM says no")
                return function(*arguments)

            return call

    def emit(code: Any, arguments: Any) -> None:
        code.array(arguments[0], "i64").write(0, 7)

    monkeypatch.setattr(cache, "llvm", Failing())
    failures = 0
    for step in range(1, 8):
        left[0] = step
        try:
            assert cache.compiled(f"faults.step {step}", emit)
        except RuntimeError:
            failures += 1
        left[0] = 0
        assert cache.compiled(f"faults.step {step}", emit)
    assert 3 <= failures < 7


@pytest.mark.parametrize("text", ["can't allocate lock", "can't allocate read lock"])
def test_pythons_words_for_a_lack_of_memory(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(*arguments: Any) -> None:
        raise RuntimeError(text)

    assert acl.aclrtSetDevice(0) == 0
    monkeypatch.setattr(memory._table, "add", lacking)
    assert acl.aclrtMalloc(64, 0)[0] == 200000
    monkeypatch.undo()
    assert acl.aclrtResetDevice(0) == 0


@pytest.mark.parametrize("name", ["elu", "cross_entropy_loss"])
def test_calls_of_every_kind_leave_as_many_references(name: str) -> None:
    for kind, call, values in kinds(openaclnn.find_operator(name)):
        assert growth(call, values, 80) == {}, kind


def test_every_damaged_byte_of_kept_code_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x.o"
    code = bytes(range(100, 164))
    cache._write(path, code)
    whole = path.read_bytes()
    assert cache._read(path) == code
    for place in range(len(whole)):
        path.write_bytes(
            whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :]
        )
        assert cache._read(path) is None
        path.write_bytes(whole[:place])
        assert cache._read(path) is None
    path.write_bytes(whole + b"\0")
    assert cache._read(path) is None
    names = tmp_path / "x.names"
    name = cache._digest("name").encode()
    for line in (name, name + b" ", b"\xff" * 81, name + b" " + name[:39], name + b" " + name.upper() + b"x"):  # fmt: skip
        names.write_bytes(CODE_MARK + line + b"\n")
        assert cache._LINE.findall(names.read_bytes()) == []


class Driver:
    """The part of CUDA's driver that the runtime calls, over ordinary memory. The n-th call fails with a code."""

    def __init__(self) -> None:
        self.calls, self.failing, self.code = 0, -1, 0
        self.memory: dict[int, Any] = {}
        self.streams: set[int] = set()

    def __getattr__(self, name: str) -> Any:
        action = object.__getattribute__(self, f"_{name}")

        def call(*arguments: Any) -> int:
            if name == "cuGetErrorString":
                return 0
            self.calls += 1
            if self.calls - 1 == self.failing and "Free" not in name and "Destroy" not in name:
                return self.code
            action(*arguments)
            return 0

        return call

    def _cuGetErrorString(self, code: int, text: Any) -> None: ...

    def _cuCtxSetCurrent(self, handle: Any) -> None: ...

    def _cuMemGetInfo_v2(self, free: Any, total: Any) -> None:
        total._obj.value = 1 << 30

    def _cuMemAlloc_v2(self, address: Any, size: Any) -> None:
        block = (ctypes.c_char * (size.value + 64))()
        address._obj.value = -(-ctypes.addressof(block) // 64) * 64
        self.memory[address._obj.value] = block

    def _cuMemFree_v2(self, address: Any) -> None:
        del self.memory[address.value]

    def _cuMemcpy(self, target: Any, source: Any, count: Any) -> None:
        ctypes.memmove(target.value, source.value, count.value)

    def _cuMemsetD8_v2(self, address: Any, value: Any, count: Any) -> None:
        ctypes.memset(address.value, value.value, count.value)

    def _cuStreamCreate(self, stream: Any, flags: int) -> None:
        stream._obj.value = 1 + len(self.streams)
        self.streams.add(stream._obj.value)

    def _cuStreamQuery(self, stream: Any) -> None: ...

    def _cuStreamSynchronize(self, stream: Any) -> None: ...

    def _cuStreamDestroy_v2(self, stream: Any) -> None:
        self.streams.discard(stream.value)


def test_the_cuda_driver_fails_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    for name in ("cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain"):
        monkeypatch.setattr(Driver, f"_{name}", lambda *_: None, raising=False)
    device = CudaDevice()
    monkeypatch.undo()
    acl.aclInit(None)
    acl.aclFinalize()
    monkeypatch.setattr(context, "selected_device", lambda: device)
    monkeypatch.setitem(runtime_device._devices, device.name, device)
    x = np.arange(50, dtype=np.float32)

    def program() -> tuple[list[int], bytes]:
        """Statuses of a program that goes on after failures, and what it read back."""
        out = np.zeros_like(x)
        statuses = [acl.aclrtSetDevice(0)]
        status, stream = acl.aclrtCreateStream()
        first, address = acl.aclrtMalloc(x.nbytes, 0)
        statuses += [status, first]
        if address:
            statuses += [
                acl.aclrtMemset(address, x.nbytes, 1, x.nbytes),
                acl.aclrtMemcpyAsync(address, x.nbytes, x, x.nbytes, acl.ACL_MEMCPY_HOST_TO_DEVICE, stream),
                acl.aclrtSynchronizeStream(stream),
                acl.aclrtMemcpy(out, x.nbytes, address, x.nbytes, acl.ACL_MEMCPY_DEVICE_TO_HOST),
            ]  # fmt: skip
            stream.native  # noqa: B018 - opens the device's own stream
            statuses += [acl.aclrtSynchronizeStream(stream), acl.aclrtFree(address)]
        statuses += [acl.aclrtDestroyStream(stream), acl.aclrtResetDevice(0)]
        return statuses, out.tobytes()

    sound, calls = program(), driver.calls
    assert sound == ([0] * 11, x.tobytes())
    expected = {2: {207001, 200000, 507015}, 700: {507015}, 999: {507015}}
    seen: set[int] = set()
    for code, known in expected.items():
        for number in range(calls):
            driver.calls, driver.failing, driver.code = 0, number, code
            device._entered.done = False
            try:
                statuses, _ = program()
            except (AclFailure, MemoryError) as error:  # of `stream.native` itself
                statuses = [200000 if isinstance(error, MemoryError) else 507015]
                acl.aclrtResetDeviceForce(0)
            seen |= {*statuses} - {0}
            assert {*statuses} <= known | {0}, (code, number, aclnn.aclGetRecentErrMsg())
            driver.failing = -1
            assert program() == sound
            assert used_bytes(device.name) == 0
            assert not driver.memory
            assert not driver.streams
    assert seen == {207001, 200000, 507015}


@pytest.mark.parametrize("size", [50, 100_000], ids=["on the caller", "on the stream's worker"])
def test_a_kernel_that_raises_at_each_run(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """The call or the stream says so, and those behind it are right."""
    real, left = elementwise.runner, [0]

    def runner(plan: Any) -> Any:
        run_plan = real(plan)

        def run(addresses: Any, stream: int) -> int:
            left[0] -= 1
            if left[0] == 0:
                raise ArithmeticError("the kernel says no")
            return run_plan(addresses, stream)

        return run

    def phases(x: Any, out: Any) -> int:
        status, _, executor = aclnn.aclnnLeakyReluGetWorkspaceSize(x, 0.5, out)
        return status or aclnn.aclnnLeakyRelu(None, 0, executor, stream)

    monkeypatch.setattr(elementwise, "runner", runner)
    x = np.linspace(-1, 1, size, dtype=np.float32)
    right = np.where(x > 0, x, x / 2).astype(np.float32)
    acl.aclrtSetDevice(0)
    status, stream = acl.aclrtCreateStream()
    assert status == 0
    with openaclnn.use_engine("numpy"):
        openaclnn.leaky_relu.cache.forget()
        for number in range(1, 4):
            left[0] = number
            told: list[Any] = []
            for _ in range(2):
                try:
                    np.testing.assert_array_equal(
                        openaclnn.leaky_relu(x, negative_slope=0.5), right
                    )
                except ArithmeticError:
                    told.append("raised")
            out = np.zeros_like(x)
            told += [phases(x, out), acl.aclrtSynchronizeStream(stream)]
            assert [failure for failure in told if failure] in (["raised"], [507015]), told
            left[0] = 0
            assert (phases(x, out), acl.aclrtSynchronizeStream(stream)) == (0, 0)
            np.testing.assert_array_equal(out, right)
        openaclnn.leaky_relu.cache.forget()
    assert acl.aclrtResetDevice(0) == 0


def test_a_worker_that_never_begins_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without memory a thread ends before its first line, and nobody tells."""
    late: list[Any] = []
    acl.aclrtSetDevice(0)
    status, handle = acl.aclrtCreateStream()
    assert status == 0
    with monkeypatch.context() as patch:
        patch.setattr(forks, "_ATTEMPTS", 1)
        patch.setattr(stream._thread, "start_new_thread", lambda run, arguments: late.append(run))
        event = acl.aclrtCreateEvent()[1]
        assert acl.aclrtRecordEvent(event, handle) == 207005
        assert "one that did not begin" in aclnn.aclGetRecentErrMsg()
    assert acl.aclrtRecordEvent(event, handle) == 0
    late[0]()  # if it begins after all, it finds nothing to do
    assert acl.aclrtSynchronizeEvent(event) == 0
    assert acl.aclrtDestroyStream(handle) == 0
    assert acl.aclrtResetDevice(0) == 0


def test_a_worker_goes_on_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step is taken once it can be: a failure is told with its words, and who waits is woken."""
    acl.aclrtSetDevice(0)
    status, handle = acl.aclrtCreateStream()
    assert status == 0
    short, real = [True] * 6, stream.Stream._fail

    def fail(self: Any, error: BaseException) -> None:
        if short:
            short.pop()
            raise MemoryError
        real(self, error)

    ran: list[int] = []
    monkeypatch.setattr(stream.Stream, "_fail", fail)
    for task in (lambda: ran.append(1), lambda: 1 // 0, lambda: ran.append(2)):
        handle.submit(task)
    assert acl.aclrtSynchronizeStream(handle) == 507015
    assert "1 failed, the first with ZeroDivisionError" in aclnn.aclGetRecentErrMsg()
    assert (ran, short) == ([1, 2], [])
    assert acl.aclrtResetDevice(0) == 0


class Interrupt(BaseException):
    """What the handler of a signal raises."""


@pytest.mark.parametrize("error", [MemoryError, Interrupt])
def test_memory_that_nobody_was_given_is_not_in_use(
    monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    acl.aclrtSetDevice(0)
    before = used_bytes("cpu")
    for name in ("count", "add"):  # each is done when it comes
        real = getattr(memory.AllocationTable, name)

        def late(self: Any, *arguments: Any, real: Any = real) -> Any:
            real(self, *arguments)
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(memory.AllocationTable, name, late)
            if error is MemoryError:
                assert acl.aclrtMalloc(100, 0) == (207001, 0)
            else:
                with pytest.raises(Interrupt):
                    acl.aclrtMalloc(100, 0)
        assert used_bytes("cpu") == before
    assert acl.aclrtResetDevice(0) == 0


def test_a_reset_that_was_interrupted_is_finished_by_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    acl.aclrtSetDevice(0)
    status, address = acl.aclrtMalloc(100, 0)
    assert status == 0

    def interrupted(*_: Any) -> None:
        raise Interrupt

    with monkeypatch.context() as patch:
        patch.setattr(memory, "release_device", interrupted)
        with pytest.raises(Interrupt):
            acl.aclrtResetDevice(0)
    assert memory.find_allocation(address) is not None
    assert acl.aclrtResetDevice(0) == 0
    assert memory.find_allocation(address) is None


def test_an_interrupt_does_not_keep_anybody_from_being_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Executors that relied on freed memory would run on it."""
    told: list[int] = []
    comes = [Interrupt, MemoryError]

    def listener() -> None:
        if comes:
            raise comes.pop()
        told.append(1)

    monkeypatch.setattr(memory, "listeners", [listener, lambda: told.append(2)])
    acl.aclrtSetDevice(0)
    address = acl.aclrtMalloc(100, 0)[1]
    with pytest.raises(Interrupt):
        acl.aclrtFree(address)
    assert told == [1, 2]
    assert memory.find_allocation(address) is None
    assert acl.aclrtResetDevice(0) == 0


# --- what coverage guides, and what it found ---------------------------------------------------------------------


def test_readers_and_programs_with_strange_input() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("openpyxl")
    for target in all_targets():
        fuzzer = Fuzzer(target, np.random.default_rng(11))
        assert [
            str(fault) for fault in fuzzer.run(25 if target.name in (".xlsx", "programs") else 50)
        ] == []
        assert len(fuzzer.corpus) > len(target.seeds)


def test_c_functions_with_strange_input(tmp_path: Path) -> None:
    fuzzer = Fuzzer(c_functions(installed(), tmp_path), np.random.default_rng(11))
    assert [str(fault) for fault in fuzzer.run(40)] == []
    assert fuzzer.extra > 300
    assert len(fuzzer.corpus) > len(fuzzer.target.seeds)


def test_a_damaged_sheet_is_told(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["op_name", "input_shapes"])
    book.active.append(["elu", "((2, 3),)"])
    book.save(tmp_path / "sound.xlsx")
    for damage in (lambda text: text[:-40], lambda text: text.replace(b"<row", b"<\x00row")):
        with zipfile.ZipFile(tmp_path / "sound.xlsx") as sound, zipfile.ZipFile(tmp_path / "x.xlsx", "w") as other:  # fmt: skip
            for name in sound.namelist():
                text = sound.read(name)
                other.writestr(name, damage(text) if name.endswith("sheet1.xml") else text)
        with pytest.raises(FileError, match=r"x\.xlsx: a damaged sheet: "):
            list(read_cases(tmp_path / "x.xlsx"))


def test_a_name_that_is_too_long_is_told() -> None:
    with pytest.raises(FileError, match="is expected"):
        split_name("x" * 5000)


def test_a_size_without_end_is_told(tmp_path: Path) -> None:
    write_cases(Recipe("elu", shape=(2, 3)), tmp_path)
    manifest = (tmp_path / MANIFEST).read_text()
    (tmp_path / MANIFEST).write_text(manifest.replace("\n      2,", "\n      1e999,"))
    with pytest.raises(FileError, match="has no dtype and shape: expected a shape"):
        expected_of(tmp_path)


# --- the same bits, and nothing that grows ------------------------------------------------------------------------


def test_the_grid_of_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some operators of each pattern, in turns; `python -m faults bits` has all."""
    names = ("elu", "smooth_l1_loss", "log_softmax", "nll_loss2d", "cross_entropy_loss_grad")
    operators = [openaclnn.find_operator(name) for name in in_turn(names, "grid")]
    threads = openaclnn.get_num_threads()
    grid = Grid()
    try:
        grid.run({"small": list(problems(SMALL, operators)), "large": list(problems(LARGE, operators))}, 8, [])  # fmt: skip
    finally:
        openaclnn.set_num_threads(threads)
        openaclnn.use_threads_of("auto")
    assert dict(grid.differing) == {}
    assert sum(grid.runs.values()) > 40 * len(operators)


def test_a_short_soak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("faults.soak.STREAMS", 300)
    monkeypatch.setattr("faults.soak.EVENTS", 600)
    soak = Soak(8, [operator for operator in openaclnn.registry() if operator.python_name in ("elu", "softmax", "nll_loss")])  # fmt: skip
    soak.run(1.0)
    assert soak.faults == []
    assert sum(soak.counts) > 500
