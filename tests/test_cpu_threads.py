"""The CPU engine's threads and its cache of compiled code: same bits, no deadlock, clean fork and exit."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import openaclnn
from conftest import SOURCE, planned, run_python
from openaclnn.core.call import bind_plain
from openaclnn.core.products import current_product
from openaclnn.core.trust import cache_folder
from openaclnn.engines import cpu
from openaclnn.engines.cpu.launching import pool
from openaclnn.engines.machine import cache
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.values import Value
from openaclnn.operators import find_operator

PREAMBLE = """
import os, sys, threading, time, openaclnn
import numpy as np
from openaclnn.core.call import bind_plain
from openaclnn.operators import find_operator
from openaclnn.engines import cpu
from openaclnn.engines.cpu.launching import control
from openaclnn.engines.cpu.launching import pool
from openaclnn.engines.machine import cache
from openaclnn.calls.plain import plan_tensors
from openaclnn.core.products import current_product

def elu(x):
    out = np.full_like(x, np.nan)
    operator = find_operator("elu_backward")
    given = {p.python_name: p.default for p in operator.parameters}
    given |= {"grad_output": x, "self_or_result": x, "out": out}
    call = bind_plain(operator, given, current_product())
    plan = operator.plan(call)
    cpu.prepare(plan)(tuple(tensor.address for tensor in plan_tensors(plan, call)), 0)
    return out

x = np.linspace(-5, 5, 300_001).astype(np.float32)
expected = np.where(x > 0, x, x * np.exp(x))
def right(): return np.allclose(elu(x), expected, rtol=1e-5)
"""


@pytest.fixture(autouse=True)
def restore_threads() -> Iterator[None]:
    before = pool.get_num_threads()
    yield
    openaclnn.set_num_threads(before)


def script(body: str, preamble: str = PREAMBLE, **environment: str) -> str:
    """Run a script in a process of its own, where OpenMP's threads spin as they do elsewhere; its standard output. It must end by itself, with
    status 0."""
    usual = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", preamble + textwrap.dedent(body)],
        env={**usual, "PYTHONPATH": SOURCE, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def prepared(name: str, out: np.ndarray, **arguments: Any) -> Callable[[], int]:
    plan, addresses = planned(find_operator(name), arguments | {"out": out})
    runner = cpu.prepare(plan)
    return lambda: runner(addresses, 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_the_number_of_threads_does_not_change_a_bit(dtype: Any) -> None:
    rng = np.random.default_rng(1)
    size = (1 << 18) + 37
    arrays = [rng.normal(size=size).astype(dtype) for _ in range(3)]
    square = [rng.normal(size=(700, 600)).astype(dtype) for _ in range(3)]
    outputs: dict[str, list[bytes]] = {"elu": [], "smooth": [], "turned": []}
    for threads in (1, 2, 3, 4, 2):
        openaclnn.set_num_threads(threads)
        assert pool.get_num_threads() == threads
        for key, name, arguments in (
            ("elu", "elu_backward", {"grad_output": arrays[0], "self_or_result": arrays[1]}),
            ("smooth", "smooth_l1_loss_backward",
             {"grad_out": arrays[0], "self": arrays[1], "target": arrays[2], "beta": 0.7}),
            ("turned", "l1_loss_backward",
             {"grad_output": square[0], "self": square[1], "target": square[2].T.copy().T}),
        ):  # fmt: skip
            out = np.full(arguments[next(iter(arguments))].shape, np.nan, dtype)
            prepared(name, out, **arguments)()
            outputs[key].append(out.tobytes())
    assert all(len(set(results)) == 1 for results in outputs.values())


def test_numbers_of_threads() -> None:
    with pytest.raises(ValueError, match="positive integer, got 0"):
        openaclnn.set_num_threads(0)
    assert script("print(pool.get_num_threads())", OPENACLNN_NUM_THREADS="3") == "3"
    cpus = len(os.sched_getaffinity(0))
    assert script("print(pool.get_num_threads())", OPENACLNN_NUM_THREADS="") == str(cpus)


def test_status_word_and_coverage() -> None:
    """Every unit runs exactly once; the status word comes back."""

    def emit(code: Code, arguments: Sequence[Value]) -> None:
        block, start, stop = arguments
        words = code.array(block, "i64")
        seen = code.array(words.read(1), "u8")
        with code.loop(start, stop) as index:
            seen.write(index, seen.read(index) + 1)
        words.write(0, 7)

    kernel = cache.compiled("test.count", emit)
    for threads in (1, 2, 5):
        openaclnn.set_num_threads(threads)
        for count in (1, 3, 17, 1000, 99_991):
            for grain in (1, 64, 10**6):
                seen = np.zeros(count, np.uint8)
                assert pool.launch(kernel, count, grain, seen.ctypes.data) == 7
                assert (seen == 1).all()
                run = pool.bind(kernel, count, grain)
                # By the builtin, and by the function in Python.
                for addresses in ((seen.ctypes.data,), [seen.ctypes.data]):
                    assert run(addresses, 0) == 7
                assert run((seen.ctypes.data,)) == 7
                assert (seen == 4).all()
                with pytest.raises(TypeError):
                    run()


def test_many_callers_at_once() -> None:
    openaclnn.set_num_threads(3)
    rng = np.random.default_rng(2)
    x = rng.normal(size=1 << 17).astype(np.float32)
    expected = np.empty_like(x)
    prepared("elu_backward", expected, grad_output=x, self_or_result=x)()
    faults: list[str] = []

    def call(index: int) -> None:
        out = np.empty_like(x)
        shared = prepared("elu_backward", out, grad_output=x, self_or_result=x)
        for _ in range(50):
            out.fill(np.nan)
            shared()
            if not np.array_equal(out, expected):
                faults.append(f"caller {index}")
                return

    callers = [threading.Thread(target=call, args=(index,)) for index in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert not faults
    assert not any(caller.is_alive() for caller in callers)


def test_one_plan_shared_by_many_callers() -> None:
    openaclnn.set_num_threads(2)
    operator = find_operator("elu_backward")
    x = np.linspace(-3, 3, 1000).astype(np.float32)
    arguments = {p.python_name: p.default for p in operator.parameters}
    arguments |= {"grad_output": x, "self_or_result": x, "out": np.empty_like(x)}
    runner = cpu.prepare(operator.plan(bind_plain(operator, arguments, current_product())))
    expected = np.empty_like(x)
    runner([x.ctypes.data, x.ctypes.data, expected.ctypes.data], 0)
    wrong: list[float] = []

    def call(factor: float) -> None:
        gradient, out = (factor * x).astype(np.float32), np.empty_like(x)
        for _ in range(2000):
            runner([gradient.ctypes.data, x.ctypes.data, out.ctypes.data], 0)
            if not np.array_equal(out, factor * expected):
                wrong.append(factor)

    callers = [threading.Thread(target=call, args=(2.0**k,)) for k in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert not wrong


def test_workers_are_made_again_after_a_fork() -> None:
    output = script(
        """
        openaclnn.set_num_threads(3)
        assert right()
        child = os.fork()
        if child == 0:
            good = right() and pool.get_num_threads() == 3 and pool._CONTROL[control.ACTIVE] == 2
            grandchild = os.fork()
            if grandchild == 0:
                os._exit(0 if right() else 1)
            _, status = os.waitpid(grandchild, 0)
            os._exit(0 if good and status == 0 else 1)
        _, status = os.waitpid(child, 0)
        print(status, right())
        """
    )
    assert output == "0 True"


def test_fork_while_another_thread_computes(tmp_path: Path) -> None:
    output = script(
        """
        openaclnn.set_num_threads(2)
        assert right()
        stop, half = [], x.astype(np.float16)
        def busy():
            while not stop: elu(half), elu(x)
        thread = threading.Thread(target=busy); thread.start()
        statuses = []
        for _ in range(10):
            time.sleep(0.003)
            child = os.fork()
            if child == 0:
                os._exit(0 if right() and np.isfinite(elu(half)).all() else 1)
            statuses.append(os.waitpid(child, 0)[1])
        stop.append(1); thread.join()
        print(statuses == [0] * 10)
        """,
        OPENACLNN_CACHE_DIR=str(tmp_path),
    )
    assert output == "True"


FIRST_CALL = """
import os, sys, threading, time
import numpy as np
import openaclnn

x = np.ones((2, 3), np.float32)
def call(): return openaclnn.elu_backward(x, x, alpha=1.5)
thread = threading.Thread(target=call); thread.start()
time.sleep(float(sys.argv[1]) / 1000)
child = os.fork()
if child == 0:
    os._exit(0 if (call() == 1).all() else 1)
deadline = time.monotonic() + 60
while os.waitpid(child, os.WNOHANG) == (0, 0):
    if time.monotonic() > deadline:
        os.kill(child, 9)
    time.sleep(0.005)
thread.join()
print(time.monotonic() <= deadline and (call() == 1).all())
"""


@pytest.mark.parametrize("delay", [2, 20, 100])
def test_fork_while_another_thread_makes_its_first_call(tmp_path: Path, delay: int) -> None:
    """It imports and compiles; then the same with code that is on disk."""
    environment = {"PYTHONWARNINGS": "ignore", "OPENACLNN_CACHE_DIR": str(tmp_path)}
    for _ in ("compiled", "read")[: 1 + (delay == 20)]:
        done = run_python(FIRST_CALL, str(delay), **environment)
        assert (done.stdout, done.stderr) == ("True\n", "")


UNDIVIDED = """
from openaclnn.core import forks

def forked():
    child = os.fork()
    if child == 0:
        os._exit(len(entered))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

entered, go, lock = [], threading.Event(), threading.RLock()
forks.hold_over_forks(lock)

@forks.undivided
def enter(seconds):
    entered.append(1); go.set(); time.sleep(seconds); entered.pop()
"""


def test_a_fork_waits_for_what_must_not_be_divided() -> None:
    output = script(
        UNDIVIDED
        + """
threads = [threading.Thread(target=lambda: [enter(0.02) for _ in range(20)]) for _ in range(4)]
for thread in threads: thread.start()
go.wait()
print([forked() for _ in range(5)])
for thread in threads: thread.join()
"""
    )
    assert output == "[0, 0, 0, 0, 0]"


def test_a_fork_goes_on_where_waiting_would_not_end() -> None:
    """A thread that has a lock and wants to go inside; one that is inside and waits for the forking one; and the forking one itself."""
    output = script(
        UNDIVIDED
        + """
def locked():
    with lock:
        go.set(); time.sleep(0.05); enter(0.01)
thread = threading.Thread(target=locked); thread.start()
go.wait(); print(forked(), end=" "); thread.join()

print(forks.undivided(forked)(), end=" ")

go.clear()
forks._FORK_SECONDS, ending = 0.3, threading.Event()
@forks.undivided
def wait(): go.set(); ending.wait()
thread = threading.Thread(target=wait); thread.start()
go.wait(); print(forked()); ending.set(); thread.join()
"""
    )
    assert output == "0 0 0"


def test_the_interpreter_ends_cleanly() -> None:
    assert script("openaclnn.set_num_threads(4); print(right())") == "True"
    busy = """
        def work():
            while True: elu(x)
        for _ in range(3): threading.Thread(target=work, daemon=True).start()
        time.sleep(0.1)
        print(right())
    """
    assert script(busy) == "True"


def test_a_platform_without_semaphores_runs_on_the_caller() -> None:
    output = script(
        "pool._supported = False; print(right(), pool.get_num_threads(), pool._CONTROL[control.ACTIVE])"
    )
    assert output == "True 1 0"


def test_signals_reach_the_interpreter() -> None:
    output = script(
        """
        import signal
        got = []
        signal.signal(signal.SIGALRM, lambda *_: got.append(1))
        openaclnn.set_num_threads(4); right()
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
        for _ in range(20): assert right()
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(len(got) > 0)
        """
    )
    assert output == "True"


# --- the cache ----------------------------------------------------------------------------------------------

COUNTING = """
compiles = []
real = cache._compile
def counted(source): compiles.append(1); return real(source)
cache._compile = counted
if "OPENACLNN_TEST_LOADED" in os.environ: cache.LOADED = float(os.environ["OPENACLNN_TEST_LOADED"])
written = []
write = cache._source_of
def seen(*kernel): written.append(1); return write(*kernel)
cache._source_of = seen
assert right()
print(len(compiles), len(written))
"""


def counted(folder: Path, **environment: str) -> tuple[int, int]:
    """How many kernels a process compiles, and of how many it writes the code."""
    compiles, written = script(COUNTING, OPENACLNN_CACHE_DIR=str(folder), **environment).split()
    return int(compiles), int(written)


def test_a_second_process_compiles_what_is_damaged_alone(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    many, _ = counted(folder)
    assert many == len([*folder.glob("*.o")]) > 1
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert counted(folder) == (0, 0)
    (names,) = folder.glob("*.names")
    last = names.read_text().split()[-1]  # whose new line follows: the first two have one each
    damaged = folder / f"{last}.o"
    damaged.write_bytes(damaged.read_bytes()[:-9])
    assert counted(folder) == (1, 1)
    assert counted(folder) == (0, 0)
    mark, first, second, *others = names.read_bytes().splitlines(keepends=True)
    names.write_bytes(b"".join((mark, first[:-5], second, *others)))  # two lines run into one
    assert counted(folder) == (0, 2)
    assert counted(folder) == (0, 0)


def test_code_is_known_by_its_name_as_long_as_no_source_changes(tmp_path: Path) -> None:
    many, written = counted(tmp_path)
    assert many == written
    # Sources that changed after a process loaded them are not what wrote its code.
    assert counted(tmp_path, OPENACLNN_TEST_LOADED="1.0") == (0, many)
    (names,) = tmp_path.glob("*.names")
    names.rename(tmp_path / f"{'0' * 40}.names")  # as if it were that of other sources
    assert counted(tmp_path) == (0, many)
    assert counted(tmp_path) == (0, 0)
    (known,) = tmp_path.glob("*.sources")
    known.write_bytes(known.read_bytes()[:-1])  # which says nothing: they are read again
    assert counted(tmp_path) == (0, 0)


def test_copies_of_the_package_share_what_is_known_of_their_code(tmp_path: Path) -> None:
    """A source that differs in anything is another one, at whatever size and times."""
    kept, copy = tmp_path / "kept", tmp_path / "copy"
    many, _ = counted(kept)
    package = copy / "openaclnn"
    shutil.copytree(
        Path(SOURCE, "openaclnn"), package, ignore=shutil.ignore_patterns("__pycache__")
    )
    # Else they changed just before they were loaded.
    of_copy = {"PYTHONPATH": str(copy), "OPENACLNN_TEST_LOADED": str(time.time() + 3600)}
    assert counted(kept, **of_copy) == (0, 0)
    source = package / "engines" / "formulas" / "__init__.py"
    about, text = source.stat(), source.read_bytes()
    source.write_bytes(text.replace(b".", b"!", 1))  # in its docstring
    os.utime(source, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert counted(kept, **of_copy) == (0, many)


def test_a_folder_that_cannot_be_written_is_no_fault(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    assert counted(blocked / "below")[0] > 0
    assert blocked.read_text() == "not a folder"


def test_processes_that_compile_at_once(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": SOURCE, "OPENACLNN_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-W", "ignore", "-c", PREAMBLE + "print(right())"]
    running = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [process.communicate(timeout=120)[0].strip() for process in running] == ["True"] * 3
    left = {path.suffix for path in tmp_path.iterdir()}
    assert left == {".o", ".names", ".sources"}  # nothing temporary
    assert counted(tmp_path) == (0, 0)


def test_where_the_cache_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENACLNN_CACHE_DIR", "/somewhere")
    assert cache_folder() == Path("/somewhere")
    monkeypatch.delenv("OPENACLNN_CACHE_DIR")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_folder() == Path("/xdg/openaclnn")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cache_folder().parts[-3:] == ("Library", "Caches", "openaclnn")
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", "/local")
    assert cache_folder() == Path("/local/openaclnn")


def test_neither_numba_nor_torch_is_imported() -> None:
    assert script("right(); print([m for m in ('numba', 'torch') if m in sys.modules])") == "[]"


TEAM = {
    # Each thread does its share at once, of however many there are: OpenMP may give fewer than were asked for.
    "short tasks": (
        """
torch.set_num_threads(24)
assert openaclnn.get_num_threads() == 24
short = x[:100_003].copy()
print(all(np.allclose(elu(short[:n]), expected[:n], rtol=1e-5) for n in (100_003, 40_000, 33_000)), right())
""",
        "True True",
    ),
    # Asked for by name, since it is the default on x86-64 only.
    "the same bits": (
        """
openaclnn.use_threads_of("own")
own = elu(x)
assert "our own" in threads.described()
openaclnn.use_threads_of("openmp")
assert "libtorch_cpu" in threads.described(), threads.described()
assert right() and (elu(x) == own).all()
torch.set_num_threads(3)
assert openaclnn.get_num_threads() == 3
assert (elu(x) == own).all()
openaclnn.set_num_threads(2)
assert (elu(x) == own).all() and torch.get_num_threads() == 3
openaclnn.use_threads_of("own")
print((elu(x) == own).all())
""",
        "True",
    ),
    # PyTorch's own operators hang in such a child; ours start workers of their own.
    "a fork after the team ran": (
        """
torch.set_num_threads(2)
torch.ones(1 << 20).exp()
assert right()
child = os.fork()
if child == 0:
    assert "our own" in threads.described()
    os._exit(0 if right() else 1)
_, status = os.waitpid(child, 0)
print(status, right())
""",
        "0 True",
    ),
    "many callers": (
        """
good = []
def caller():
    for _ in range(20):
        good.append(right())
        torch.ones(1 << 18).exp()
several = [threading.Thread(target=caller) for _ in range(4)]
for one in several: one.start()
for one in several: one.join()
print(len(good), all(good))
""",
        "80 True",
    ),
    # OpenMP's threads begin in the mode of the thread that first needed them.
    "flushed subnormals": (
        """
assert torch.set_flush_denormal(True)
torch.set_num_threads(4)
torch.ones(1 << 20).exp()
tiny = np.full(1 << 20, 1e-40, np.float32)
out = openaclnn.elu_backward(tiny, tiny)
print((out.view(np.int32) == tiny.view(np.int32)).all(), (torch.from_numpy(tiny) * 1.0).count_nonzero().item())
""",
        "True 0",
    ),
}


@pytest.mark.parametrize(("limit", "bodies"), [("64", TEAM), ("3", ["short tasks"])])
def test_the_team_of_pytorch(limit: str, bodies: Sequence[str]) -> None:
    """Each in a process of its own that has no team yet; they are forks, since PyTorch takes seconds to import. The parent does not
    import us: a child whose parent did leaves the team alone."""
    begin = 'import torch\nfrom openaclnn.engines import threads\nassert "libtorch_cpu" in threads.described()\n'
    said = script(
        f"""
        import os, sys, torch, traceback
        for body in {[begin + TEAM[name][0] for name in bodies]!r}:
            sys.stdout.flush()
            child = os.fork()
            if child == 0:
                try:
                    exec({PREAMBLE!r} + body, globals())
                    sys.stdout.flush()
                except BaseException:
                    traceback.print_exc()
                    os._exit(1)
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0, body
        """,
        preamble="",
        OPENACLNN_THREADS_OF="openmp",
        OMP_THREAD_LIMIT=limit,
    )
    assert said.splitlines() == [TEAM[name][1] for name in bodies]
