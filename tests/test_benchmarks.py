"""The benchmark runner: what it counts, how it takes turns, that it refuses wrong results. Nothing here is timed."""

from __future__ import annotations

import csv
import importlib
import json
import math
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import openaclnn
from conftest import each as arrays_of, families, floats_of, has_halves, in_turn, run_python, whole
from openaclnn import cli
from openaclnn.bench.calls import (
    CHANGES,
    CallRegime,
    Turn,
    call_case,
    call_cases,
    find_fault,
    sequences,
)
from openaclnn.bench.contenders import (
    build_contenders,
    disagreement,
    find_faults,
)
from openaclnn.bench.problems import LAYOUTS, build, bytes_moved, load_torch, measured, taken
from openaclnn.bench.regimes import ELEMENTWISE, REGIMES, STEPS, Regime
from openaclnn.bench.reports import (
    case_tables,
    command_of,
    disturbances,
    find_wrong,
    pictures,
    report_page,
    same_kind,
    sheet,
    short_tables,
    terminal_tables,
    write_pictures,
)
from openaclnn.bench.runner import (
    ALONE,
    SECTIONS,
    SelectionError,
    Settings,
    choose,
    first_calls,
    run,
    speed_case,
)
from openaclnn.bench.timing import (
    BESIDE,
    COPY,
    AheadClock,
    Bench,
    Case,
    Clock,
    Contender,
    CudaClock,
    OtherLoad,
    Sample,
    Timing,
    interleave,
    paired_ratio,
    rotated,
)
from openaclnn.bench.training import module_cases, step_cases
from openaclnn.cli import bench as command
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import BFLOAT16, FLOAT, FLOAT16, FLOATS, DType
from openaclnn.engines import threads
from openaclnn.engines.dispatch import objections
from openaclnn.testing.goldens import plan_of

MEASURED = families(measured())
TINY: dict[str, tuple[Regime, ...]] = {
    "elementwise": (Regime("tiny", (3, 5)),),
    "rows": (Regime("tiny", (3, 5)),),
    "pixels": (Regime("tiny", (2, 3, 4, 5)),),
}
SETTINGS = Settings(
    rounds=2, again_seconds=0, sections=("speed",), engines=("numpy",),
    command="a test",
)  # fmt: skip
ROW_FIELDS = {
    "section", "operator", "variant", "regime", "family", "near", "layout", "shape", "dtype", "bytes", "touched",
    "contender", "ours", "engine", "threads", "status", "note", "gbps", "of_copy", "of_beside", "of_round", "ratios",
    "inexact", "others_cores", "disturbed", "attempts",
}  # fmt: skip
TIME_FIELDS = {"median_us", "q1_us", "q3_us", "minimum_us", "host_us", "rounds", "inner"}


def text_of(results: dict[str, Any]) -> str:
    """All tables, as Markdown."""
    return "\n".join(f"### {each.title}\n{each.markdown()}" for each in terminal_tables(results))


def of_section(
    results: dict[str, Any], rows: list[dict[str, Any]], section: str = "speed"
) -> dict[str, Any]:
    """As if these were a run's only rows."""
    return results | {"rows": [row | {"section": section} for row in rows]}


def main(arguments: list[str]) -> int:
    return cli.main(["bench", *arguments])


def parsed(arguments: list[str]) -> dict[str, Any]:
    return command.bench.make_context("bench", list(arguments)).params


def first_of(pattern: str) -> Operator:
    return next(each for each in measured() if pattern == each.workloads.PATTERN)


def tiny_case(pattern: str = "elementwise", regime: Regime | None = None) -> Case:
    operator = first_of(pattern)
    variant = next(iter(operator.workloads.VARIANTS))
    return speed_case(operator, variant, FLOAT, regime or TINY[pattern][0])


BENCH = Bench("cpu", ["numpy"], None, Clock(), 2, named=True)


def rows_of(case: Case, **options: Any) -> list[dict[str, Any]]:
    """Of a case run with numpy alone, and with what its runner is told beside."""
    rows: list[dict[str, Any]] = case.runner(case, BENCH, **options)  # type: ignore[call-arg]
    return rows


def selected(*only: str, **settings: Any) -> list[Case]:
    return choose(Settings(only=only, sections=("speed",), **settings))["speed"]


@pytest.fixture(autouse=True, scope="module")
def few_calls() -> Iterator[None]:
    """Nothing here depends on the times: a case is tried once, and a sample has few calls, however short they are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("openaclnn.bench.timing.MAXIMUM_INNER", 3)
        patch.setattr("openaclnn.bench.timing.SLOW_SECONDS", 0.01)
        yield


@pytest.fixture
def restored_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For runs that choose numbers of threads, which they leave behind."""
    monkeypatch.setenv("OPENACLNN_NUM_THREADS", "2")
    chosen, torch = list(threads._chosen), sys.modules.get("torch")
    theirs = torch.get_num_threads() if torch else 0
    yield
    threads._chosen[:] = chosen
    threads._tell()
    if torch:
        torch.set_num_threads(theirs)


def cases_of(*dtypes: DType) -> int:
    """How many operators and dtypes are in the results, of these dtypes."""
    return sum(len(taken(operator, dtypes)) for operator in MEASURED)


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    only = tuple(f"{operator.python_name} " for operator in MEASURED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(REGIMES, "cpu", TINY)
        return run(replace(SETTINGS, use_torch=False, dtypes=(FLOAT, BFLOAT16), only=only))


def test_a_run_without_torch_has_ours_and_the_copy(results: dict[str, Any]) -> None:
    assert json.loads(json.dumps(results, allow_nan=False)) == results
    assert {"date", "command", "device", "threads", "copy_gbps"} <= results.keys()
    assert results["mode"] == ALONE
    assert {"cpu", "cores", "memory_gib", "system"} <= results["machine"].keys()
    assert {"python", "numpy", "torch", "openaclnn"} <= results["versions"].keys()
    assert results["engines"]["numpy"] == "available"
    assert len(results["rows"]) == cases_of(FLOAT, BFLOAT16) * 3
    for row in results["rows"]:
        assert row.keys() == ROW_FIELDS | TIME_FIELDS
        assert row["status"] == "ok", row["note"]
    names = {row["contender"] for row in results["rows"]}
    assert names == {"numpy", "numpy out=", COPY}
    assert not find_wrong(results)


def test_torch_takes_part_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGIMES, "cpu", TINY)
    torch = pytest.importorskip("torch", reason="PyTorch's contenders need PyTorch")
    operators = in_turn(measured(), "torch_takes_part")
    only = tuple(f"{operator.python_name} " for operator in operators)
    rows = run(replace(SETTINGS, dtypes=(BFLOAT16,), only=only))["rows"]
    assert {row["status"] for row in rows} == {"ok"}, [r["note"] for r in rows if r["note"]]
    ours = [row for row in rows if row["ours"]]
    assert len(ours) == sum(len(taken(operator, (BFLOAT16,))) for operator in operators) * 2
    for row in ours:
        operator = openaclnn.find_operator(row["operator"])
        peer = getattr(operator, "peer", "elu")
        alone = not peer or callable(peer) or len(getattr(torch.ops.aten, peer).overloads()) == 1
        into = set() if alone or whole(operator) else {"torch out="}
        assert row["ratios"].keys() >= {"torch"} | into, row


def test_every_engine_is_listed_with_its_state() -> None:
    assert objections("cpu")["numpy"] == ""
    assert "cpu" in objections("cuda")["numpy"]


def wrong_factory(problem: Any, engines: Any, torch: Any, **options: Any) -> list[Contender]:
    right = build_contenders(problem, engines, None)

    def off() -> Any:
        result = right[0].call().copy()
        result.reshape(-1)[-1] += 1
        return result

    def partial() -> None:  # leaves the output as it found it
        pass

    return [
        *right,
        Contender("off", off, ours=True),
        Contender("gap", partial, True, writes_out=True),
    ]


def test_wrong_results_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, results: dict[str, Any]
) -> None:
    rows = rows_of(tiny_case(), factory=wrong_factory)
    states = {row["contender"]: row["status"] for row in rows}
    assert states == {"numpy": "ok", "numpy out=": "ok", COPY: "ok", "off": "WRONG", "gap": "WRONG"}
    refused = [row for row in rows if row["status"] == "WRONG"]
    assert all("median_us" not in row and row["gbps"] is None for row in refused)
    assert all("float64" in row["note"] for row in refused)
    monkeypatch.setattr(command, "run", lambda *_: of_section(results, rows))
    target = tmp_path / "wrong.json"
    assert main(["--json", str(target)]) == 1
    assert main(["--from", str(target)]) == 1


def inexact_factory(problem: Any, engines: Any, torch: Any, **options: Any) -> list[Contender]:
    right = build_contenders(problem, engines, None)
    return [*right, Contender("torch", lambda: right[0].call() * 1.5)]


def test_inexact_results_of_others_are_timed_and_marked(results: dict[str, Any]) -> None:
    rows = rows_of(tiny_case(), factory=inexact_factory)
    peer = next(row for row in rows if row["contender"] == "torch")
    assert peer["status"] == "inexact"
    assert "float64" in peer["note"]
    assert peer.keys() >= TIME_FIELDS
    ours = [row for row in rows if row["ours"]]
    assert all(row["status"] == "ok" and row["inexact"] == ["torch"] for row in ours)
    assert all(row["ratios"]["torch"] > 0 for row in ours)
    assert not find_wrong({"rows": rows})
    table, *_ = terminal_tables(of_section(results, rows))
    assert "†" in table.markdown()
    assert "- torch: inexact at" in table.markdown()


@pytest.mark.parametrize("limit", [1 << 20, 64])
def test_large_problems_are_checked_whole(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the oracle, and beyond its limit by PyTorch's operators on float64, where there is PyTorch: one element in 512 is wrong."""
    monkeypatch.setattr("openaclnn.bench.contenders.ORACLE_LIMIT", limit)
    for operator in families(measured()):
        variant, pattern = next(iter(operator.workloads.VARIANTS)), operator.workloads.PATTERN
        shape = {"elementwise": (512,), "rows": (8, 64), "pixels": (2, 4, 8, 8)}[pattern]
        for dtype in taken(operator, (FLOAT, BFLOAT16)):
            problem = build(operator, variant, dtype, shape)
            assert problem is not None
            right, *others = wrong_factory(problem, ["numpy"], None)

            def spoiled(right: Contender = right) -> Any:
                result = right.call().copy()
                result.reshape(-1)[-1] = 2 * abs(result).max() + 1
                return result

            contenders = [right, *others, Contender("spoiled", spoiled, ours=True)]
            contenders = [each for each in contenders if each.name != "off"]  # 1 may be little
            for torch in (None, load_torch()):
                judged = find_faults(problem, contenders, torch)
                faults = {each.name: each.fault for each in judged if each.status != "ok"}
                assert list(faults) == ["gap", "spoiled"], operator
                assert all("of float64" in fault for fault in faults.values())


def test_disagreement_knows_rounding_from_error() -> None:
    expected = np.linspace(-1, 1, 1000, dtype=np.float32)
    assert disagreement(expected * np.float32(1 + 1e-7), expected, FLOAT, None) == ""
    spoiled = expected.copy()
    spoiled[3] = np.nan
    assert "nan" in disagreement(spoiled, expected, FLOAT, None)
    assert "shape" in disagreement(expected[:-1], expected, FLOAT, None)
    for special in (math.nan, math.inf, -math.inf):
        known = expected.copy()
        known.flat[1] = special
        assert disagreement(known, known, FLOAT, None) == ""
        assert disagreement(expected, known, FLOAT, None)
        assert disagreement(known, known + np.float32(1), FLOAT, None)
    small = np.full(1000, 1e-4, np.float32)  # wrong everywhere, but small beside the largest value
    small[0] = 1.0
    wrong = np.where(small == 1, small, 2 * small).astype(BFLOAT16.numpy)
    assert "mean" in disagreement(wrong, small.astype(BFLOAT16.numpy), BFLOAT16, None)


def narrow(operator: Operator) -> DType:
    """A dtype of 16 bits that the operator takes."""
    return taken(operator, (BFLOAT16, FLOAT16))[0]


@pytest.mark.parametrize("operator", measured(), ids=lambda operator: operator.python_name)
def test_bytes_are_those_the_plan_must_move(operator: Operator) -> None:
    pattern = operator.workloads.PATTERN
    variant = next(iter(operator.workloads.VARIANTS))
    for layout in LAYOUTS:
        if layout == "broadcast" and pattern != "elementwise":
            continue  # no such regime
        problem = build(operator, variant, narrow(operator), TINY[pattern][0].shape, layout)
        if problem is None:
            assert layout in ("broadcast", "outer")
            continue
        read = {operator[operand.parameter].python_name for operand in problem.plan.inputs}
        expected = problem.out.nbytes + sum(problem.arguments[name].nbytes for name in read)
        assert problem.moved == expected, layout


def test_bytes_of_known_plans() -> None:
    for operator in measured():
        variant = next(iter(operator.workloads.VARIANTS))
        if operator.workloads.PATTERN == "pixels":
            # The log-probabilities are not read: out + int64 targets + one gradient per pixel + weights.
            problem = build(operator, variant, FLOAT, (2, 3, 4, 5))
            assert problem is not None
            assert problem.moved == 2 * 3 * 4 * 5 * 4 + 2 * 4 * 5 * (8 + 4) + 3 * 4
        if operator.workloads.PATTERN == "rows":
            problem = build(operator, variant, FLOAT, (6, 10))
            assert problem is not None
            if operator.reduction is not None:  # one gradient for all rows
                assert problem.moved == 2 * 60 * 4 + 6 * 8 + 4
            else:
                assert problem.moved == len(operator.tensors) * 60 * 4


def test_layouts_keep_the_numbers_and_change_the_strides() -> None:
    operator = first_of("elementwise")
    variant = next(iter(operator.workloads.VARIANTS))
    plain = build(operator, variant, FLOAT, (6, 8))
    assert plain is not None
    for layout in ("transposed", "sliced"):
        other = build(operator, variant, FLOAT, (6, 8), layout)
        assert other is not None
        assert np.array_equal(plain.oracle(), other.oracle())
        assert other.plan.inputs != plain.plan.inputs


def test_turns_rotate_and_are_taken_round_by_round() -> None:
    class Recorder:
        warm_seconds = 0.0

        def __init__(self) -> None:
            self.order: list[str] = []

        def sample(self, call: Any, inner: int, before: Any = None) -> Sample:
            self.order.append(call())
            return Sample(1.0, 1.0)

    contenders = [Contender(name, lambda name=name: name) for name in "abc"]  # type: ignore[misc]
    assert [each.name for each in rotated(contenders, 4)] == ["b", "c", "a"]
    clock = Recorder()
    timings = interleave(contenders, clock, rounds=3)
    assert "".join(clock.order) == "abc" + "abc" + "bca" + "cab"  # calibration, then the rounds
    assert all(len(timing.samples) == 3 for timing in timings.values())


class Queue:
    """As much of `torch` as a clock asks, and a GPU that works off what a slower host queues."""

    uint8 = "uint8"

    def __init__(self) -> None:
        self.now = self.free = 0.0
        self.cuda = SimpleNamespace(Event=lambda enable_timing: Event(self), synchronize=self.wait)

    def wait(self) -> None:
        self.now = max(self.now, self.free)

    def work(self, host: float, gpu: float) -> None:
        self.now += host
        self.free = max(self.free, self.now) + gpu

    def empty(self, *shape: int, dtype: str, device: str) -> list[Any]:
        return [SimpleNamespace(copy_=lambda source: self.work(0.5, 8.0))] * 2


class Event:
    def __init__(self, queue: Queue) -> None:
        self.queue = queue

    def record(self) -> None:
        self.at = max(self.queue.now, self.queue.free)

    def query(self) -> bool:
        return self.at <= self.queue.now

    def synchronize(self) -> None:
        self.queue.now = max(self.queue.now, self.at)

    def elapsed_time(self, last: Event) -> float:
        return (last.at - self.at) * 1e3


def test_a_large_step_is_the_gpus_time_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = Queue()
    monkeypatch.setattr("time.perf_counter", lambda: torch.now)
    plain = CudaClock(torch)
    clock = plain.ahead
    assert isinstance(clock, AheadClock)

    def step() -> None:
        torch.work(host=20.0, gpu=3.0)

    def waits() -> None:
        step()
        torch.wait()

    assert plain.sample(step, 10) == Sample(pytest.approx(20.0, rel=0.05), 20.0)
    assert clock.sample(step, 10) == Sample(pytest.approx(3.0), pytest.approx(20.0))
    assert clock.sample(waits, 10).seconds == pytest.approx(23.0, rel=0.2)
    assert Clock().ahead.sample(step, 10).seconds == 20.0  # on a CPU there is no other


def test_ratios_pair_samples_of_the_same_round() -> None:
    ours = Timing(1, 3, False, {0: Sample(1, 1), 1: Sample(2, 2), 2: Sample(4, 4)})
    peer = Timing(1, 3, False, {0: Sample(3, 3), 1: Sample(6, 6), 2: Sample(12, 12)})
    assert paired_ratio(peer, ours) == 3
    assert paired_ratio(Timing(1, 0, False), ours) is None
    summary = ours.summary()
    assert summary["median_us"] == 2e6
    assert summary["rounds"] == 3
    order: list[str] = []
    sampled = Clock().sample(lambda: order.append("timed"), 2, lambda: order.append("before"))
    assert order == ["before", "timed", "timed"]
    assert sampled.seconds >= 0


def test_regimes_cover_every_pattern() -> None:
    patterns = {operator.workloads.PATTERN for operator in measured()}
    for table in REGIMES.values():
        assert table.keys() == patterns
        for regimes in table.values():
            assert len({regime.name for regime in regimes}) == len(regimes)
            assert sum(bool(regime.headline) for regime in regimes) == 1
            for regime in regimes:
                assert regime.layout in LAYOUTS


def test_a_quick_run_of_training_has_what_tells_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cross entropy of few and of many classes, of rows and of images, with weights and smoothing."""
    monkeypatch.setattr("openaclnn.bench.runner.torch_objection", lambda: "")
    for device in STEPS:
        settings = Settings(device=device, sections=("training",))
        quick = choose(replace(settings, quick=True))["training"]
        steps = [case for case in quick if case.regime != "module"]
        assert 0 < 4 * len(steps) < len(choose(settings)["training"])
        assert {case.name for case in steps} == {"cross_entropy"}
        assert {case.dtype for case in quick} == {"FLOAT"}
        assert {len(case.shape) for case in steps} == {2, 4}
        assert {case.regime.partition(", ")[2] for case in steps} == {"", "weight", "smoothing"}
        few, many = (chosen(case.shape[1] for case in steps) for chosen in (min, max))
        assert few < 32 < 30000 < many


def test_odd_sizes_have_a_round_neighbour() -> None:
    for device, table in REGIMES.items():
        for pattern, regimes in table.items():
            odd = [regime for regime in regimes if regime.family == "odd"]
            assert len(odd) >= (2 if pattern == "elementwise" else 3)
            for regime in odd:
                assert len(regime.near) == len(regime.shape)
                assert math.prod(regime.near) == pytest.approx(math.prod(regime.shape), rel=0.03)
                last = regime.near[-1]
                assert last & -last >= 128
                assert any(length % 2 for length in regime.shape) or regime.layout == "shifted"
        cases = selected("odd", device=device)
        assert all(case.regime.startswith("odd ") for case in cases)
        assert {case.name for case in cases} == {each.python_name for each in measured()}


def test_views_that_start_one_element_in() -> None:
    for operator in measured():
        pattern, variant = operator.workloads.PATTERN, next(iter(operator.workloads.VARIANTS))
        plain = build(operator, variant, narrow(operator), TINY[pattern][0].shape)
        moved = build(operator, variant, narrow(operator), TINY[pattern][0].shape, "shifted")
        assert plain is not None
        assert moved is not None
        assert np.array_equal(plain.oracle(), moved.oracle())
        assert moved.plan.inputs == plain.plan.inputs
        for array in (moved.out, *moved.arguments.values()):
            if isinstance(array, np.ndarray) and array.size > 1:
                assert array.flags.c_contiguous
                if array.base is not None:
                    first = array.base.__array_interface__["data"][0]
                    assert array.__array_interface__["data"][0] == first + array.itemsize
        assert moved.out.base is not None


ODD = Regime("odd 5", (3, 5), family="odd", near=(3, 4))


def test_odd_sizes_are_timed_beside_round_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    def constant(contenders: Any, *_: Any) -> dict[str, Timing]:
        """The round size, of four fifths of the elements, takes half the time."""
        seconds = {c.name: 0.5 if c.name.endswith(BESIDE) else 1.0 for c in contenders}
        return {n: Timing(1, 1, 0, {0: Sample(s, s)}) for n, s in seconds.items()}

    monkeypatch.setattr("openaclnn.bench.timing.interleave", constant)
    rows = rows_of(tiny_case(regime=ODD))
    assert [row["contender"] for row in rows] == ["numpy", "numpy out=", COPY]
    expected = 0.5 * 5 / 4
    assert [row["of_round"] for row in rows] == [None, pytest.approx(expected), None]
    assert all(row["near"] == [3, 4] for row in rows)
    [*_, odd] = short_tables(rows)
    assert odd.title.startswith("Odd sizes")
    assert odd.lines[0][0] == "odd 5"
    assert odd.lines[0][2] == f"{expected:.2f} / {expected:.2f}"


def test_ours_is_wrong_where_it_fails_at_the_round_size() -> None:
    def factory(problem: Any, *arguments: Any, **options: Any) -> list[Contender]:
        if problem.shape == ODD.shape:
            return build_contenders(problem, ["numpy"], None)
        return [c for c in wrong_factory(problem, ["numpy"], None) if c.name == "off"] + [
            replace(c, name="numpy out=")
            for c in wrong_factory(problem, ["numpy"], None)
            if c.name == "gap"
        ]

    rows = rows_of(tiny_case(regime=ODD), factory=factory)
    states = {row["contender"]: row["status"] for row in rows}
    assert states == {"numpy": "ok", "numpy out=": "WRONG", COPY: "ok"}
    assert any("at the round size" in row["note"] for row in rows)


def test_selection() -> None:
    name = measured()[0].python_name
    chosen = selected(name, dtypes=(BFLOAT16,))
    assert {case.name for case in chosen} == {name}
    assert {case.dtype for case in chosen} == {"BFLOAT16"}
    assert {case.regime for case in selected("scaling 2^10")} == {"scaling 2^10"}
    both = {case.regime for case in selected("scaling 2^10", "middle 2^17")}
    assert both == {"scaling 2^10", "middle 2^17"}
    assert 0 < len(selected(quick=True)) < len(selected()) / 4
    assert {case.shape for case in selected("shape 4096x1000")} == {(4096, 1000)}
    images = {case.name for case in selected("shape 4x19x256x256")}  # of those that take any axis
    assert images == {case.name for case in selected("shape 4096x1000")} - {
        "cross_entropy_loss_grad"
    }
    inside = name.partition("_")[2]  # a word is matched from its start
    with pytest.raises(SelectionError, match="matches no case of speed;"):
        selected(inside)
    with pytest.raises(
        SelectionError, match="'no such case' matches no case of speed, elementwise, calls"
    ):
        run(Settings(only=("no such case",)))
    with pytest.raises(SelectionError, match="no case of calls;"):
        choose(Settings(only=("scaling 2^10",), sections=("calls",)))
    with pytest.raises(SelectionError, match=r"no engine of ours is left .*triton: serves cuda"):
        run(replace(SETTINGS, engines=("triton",)))


def test_sections_that_need_pytorch_say_so_where_there_is_none() -> None:
    program = """
import sys
sys.modules["torch"] = None
from openaclnn.cli import main
both = ["--section", "training", "--section", "overrides"]
assert main(["bench", *both]) == main(["bench", "--list", *both]) == 2
assert main(["bench", "--list", *both, "--section", "speed", "--only", "elu bandwidth"]) == 0
"""
    done = run_python(program)
    told = r"training and overrides: openaclnn\.torch needs PyTorch \d.* or newer \(pip install .*\), and there is none"
    lines = done.stderr.splitlines()
    assert len(lines) == 3
    assert all(re.fullmatch(f"openaclnn: {told}", line) for line in lines[:2])
    assert re.fullmatch(f"left out, {told}", lines[2])


def test_without_a_filter_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openaclnn.bench.runner.torch_objection", lambda: "none here")
    with pytest.raises(SelectionError, match=r"^overrides: none here$"):
        run(replace(SETTINGS, sections=("overrides",)))
    monkeypatch.setattr("openaclnn.bench.runner.call_cases", lambda dtypes: [])
    with pytest.raises(SelectionError, match=r"^there is no case of calls, training; --list"):
        choose(replace(SETTINGS, sections=("calls", "training")))


def test_the_floors_are_read_off_one_command() -> None:
    """2^17 to 2^20 and 2^25 elements, 32,000 and 21 classes, in every variant and dtype."""
    chosen = selected("middle", "large", "21 classes")
    for operator in measured():
        cases = [case for case in chosen if case.name == operator.python_name]
        sizes = {math.prod(case.shape) for case in cases}
        assert {1 << power for power in range(17, 21)} <= sizes
        assert max(sizes) > 1 << 24
        for variant in operator.workloads.VARIANTS:
            dtypes = {case.dtype for case in cases if case.variant == variant}
            assert dtypes == {dtype.name for dtype in taken(operator, FLOATS)}


def test_elementwise_operators_have_a_line_for_each_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ELEMENTWISE, "cpu", (Regime("few", (8, 8)),))
    chosen = replace(SETTINGS, sections=("elementwise",), only=("swi_glu_grad last", "shrink"))
    results = run(chosen)
    assert {row["contender"] for row in results["rows"] if row["ours"]} == {"numpy out="}
    (table,) = case_tables(results)
    narrow = [f"last axis, few, 8x8, {dtype.name}" for dtype in FLOATS]
    cases = [("shrink", f"plain, few, 8x8, {name}") for name in ("FLOAT", "FLOAT16")]
    assert [(line[0], line[1].rstrip(" !")) for line in table.lines] == [
        *cases, *(("swi_glu_grad", case) for case in narrow),
    ]  # fmt: skip


def test_a_layout_that_an_operator_refuses_is_no_case() -> None:
    cases = selected("outer")
    for case in cases:
        operator = openaclnn.find_operator(case.name)
        assert build(operator, case.variant, FLOAT, (16, 16), "outer") is not None
    assert 0 < len({case.name for case in cases}) < len(measured())


def test_the_list_names_the_cases_of_all_sections_as_they_can_be_pasted(capsys: Any) -> None:
    assert main(["--list"]) == 0
    lines = [shlex.split(line) for line in capsys.readouterr().out.splitlines()]
    assert all(line[::2] == ["--section", "--only"] for line in lines)
    assert tuple(dict.fromkeys(line[1] for line in lines)) == SECTIONS
    for operator in measured():
        for section in set(SECTIONS) - {"elementwise", "training", "modules", "overrides"}:
            assert any(line[1] == section and operator.python_name in line[3] for line in lines)
    for section, cases in (("training", step_cases("cpu")), ("modules", module_cases())):
        assert {case.title for case in cases} == {line[3] for line in lines if line[1] == section}
    assert len({(line[1], line[3]) for line in lines}) == len(lines)
    for line in (next(x for x in lines if x[1] == name) for name in SECTIONS):
        assert main(["--list", *line]) == 0
        assert [shlex.split(text) for text in capsys.readouterr().out.splitlines()] == [line]
    assert main(["--list", "--section", "calls", "--only", "in place float"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert listed
    assert all(line.startswith("--section calls ") and "in place" in line for line in listed)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--only", "no such case"], "--only 'no such case' matches no case of speed"),
        (["--list", "--only", "no such case"], "matches no case"),
        (["--quick", "--only", "odd"], "matches no case of speed, calls of --quick"),
        (["--headline", "--only", "foo"], "--only 'foo' matches no case of speed of --headline"),
        (
            ["--alone", "--list", "--section", "training"],
            "training: openaclnn.torch needs PyTorch, and --alone is",
        ),
        (
            ["--alone", "--list", "--section", "overrides"],
            "overrides: openaclnn.torch needs PyTorch",
        ),
        (["--engine", "triton", "--section", "speed", "--only", "cache"], "no engine of ours"),
        (["--device", "cuda", "--alone"], "--alone and --threads are for the CPU"),
        (["--device", "cuda", "--threads", "1,2"], "--alone and --threads are for the CPU"),
    ],
)
def test_nothing_to_run_is_an_error_of_one_sentence(
    arguments: list[str], says: str, capsys: Any
) -> None:
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert says in shown.err
    assert len(shown.err.splitlines()) == 1
    assert not shown.out


def test_numbers_of_threads(
    restored_threads: None, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for bad in ("0", "1,,2", "many", "-1"):
        assert main(["--threads", bad]) == 2
        assert "numbers of threads such as 1,4,16" in capsys.readouterr().err
    regime = Regime("wide", (1 << 18,))
    monkeypatch.setitem(REGIMES, "cpu", TINY | {"elementwise": (regime,)})
    name = first_of("elementwise").python_name
    asked = replace(SETTINGS, engines=("cpu",), threads=(1, 2), only=(name,), dtypes=(FLOAT,))
    results = run(asked)
    ours = [row for row in results["rows"] if row["ours"]]
    assert {row["threads"] for row in ours} == {1, 2}
    assert "ours up to 2" in results["threads"]
    [table, *_] = short_tables(results["rows"])
    assert [line[:2] for line in table.lines] == [["wide", "1"], ["wide", "2"]]


def test_alone_pytorch_is_never_loaded(tmp_path: Path) -> None:
    target = tmp_path / "alone.json"
    name, variant = measured()[0].python_name, tiny_case("rows").variant
    only = [f"--only={name} {variant} {regime}" for regime in ("call", "same")]
    arguments = ["--alone", "--quick", *only, "--rounds", "1", "--json", str(target)]
    program = f"""
import sys
from openaclnn.cli import main
assert main(["bench", *{arguments!r}]) == 0
assert "torch" not in sys.modules
sys.modules["torch"] = sys
assert main(["bench", *{arguments!r}]) == 2
"""
    done = run_python(program)
    assert "has not loaded PyTorch" in done.stderr
    results = json.loads(target.read_text())
    assert results["mode"] == ALONE
    assert not any(row["contender"].startswith("torch") for row in results["rows"])
    assert str(tmp_path) not in results["command"]
    assert ", alone" in report_page([results], [{}])


def test_other_load_disturbs_only_beyond_the_spare_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    load = OtherLoad()
    assert not load.disturbs(4)  # unknown
    load.cores = 1.0
    assert load.disturbs(4)
    assert not load.disturbs(3)


def test_reports_render(results: dict[str, Any], tmp_path: Path, capsys: Any) -> None:
    noisy = [row | {"disturbed": row["dtype"] == "FLOAT"} for row in results["rows"]]
    assert "Calls that change" not in text_of(results)
    first = {
        "section": "first-call", "operator": "x", "variant": "v", "regime": "first-call", "shape": [2], "dtype": "FLOAT",
        "threads": None, "contender": "numpy", "engine": "numpy", "ours": True, "ratios": {"torch": 2.0}, "status": "ok", "note": "",
        "disturbed": True, "median_us": 5e3, "again_us": 10.0, "import_us": 1e5, "extra_bytes": 3 << 20,
    }  # fmt: skip
    failed = first | {"contender": "numpy, empty cache", "status": "unavailable", "note": "it | failed"}  # fmt: skip
    del failed["extra_bytes"]
    combined = results | {"rows": [*noisy, first, failed]}
    text = text_of(combined)
    [line, *_] = [line for line in text.splitlines() if "first-call" in line]
    assert "| 5 ms | 10 us | 100 ms | 3 | 2.00 |" in line, line
    assert "numpy, empty cache: unavailable at v, first-call, FLOAT: it | failed" in text
    [noise] = disturbances(combined)
    assert noise.startswith(f"{1 + len(MEASURED)} of {1 + cases_of(FLOAT, BFLOAT16)} cases (!)")
    short = len(short_tables(combined["rows"][:-2]))
    shown = list(terminal_tables(combined))
    assert "FLOAT !" in "".join(table.markdown() for table in shown[: len(MEASURED)])
    assert len(shown) == len(MEASURED) + short + 1
    source, target = tmp_path / "results.json", tmp_path / "report.html"
    source.write_text(json.dumps(combined))
    assert main(["--from", str(source), "--html", str(target)]) == 0
    page = target.read_text()
    assert results["machine"]["cpu"] in page
    assert results["date"] in page
    assert "command: <code>a test</code>" in page
    assert f"<strong>{noise}</strong>" in page
    assert measured()[0].python_name in capsys.readouterr().out


def beside_torch(results: dict[str, Any], ratio: float, **changes: Any) -> dict[str, Any]:
    """As if PyTorch had taken part: its time over ours is this everywhere."""
    rows = [
        row | {"ratios": {"torch": ratio, "torch out=": 2 * ratio, "torch.compile": 3 * ratio}}
        if row["ours"]
        else row
        for row in results["rows"]
    ]
    return results | {"mode": "beside PyTorch", "rows": rows} | changes


def test_short_tables_have_the_median_and_the_worst(results: dict[str, Any]) -> None:
    rows = beside_torch(results, 0.5)["rows"]
    times, copies = short_tables(rows)
    assert times.headings == ["regime", "threads", *(each.python_name for each in MEASURED)]
    # Allocating 0.5; into out= beside PyTorch's out=, 1.0.
    assert [line[0] for line in times.lines] == ["tiny"]
    assert set(times.lines[0][2:]) == {"0.75 / 0.50"}
    assert copies.title.startswith("Of a copy")
    allocating = cases_of(FLOAT, BFLOAT16)
    every = 2 * allocating
    assert times.notes == (
        f"PyTorch's way of the same kind is faster in {allocating} of {every} timings",
        f"`torch.compile` is faster in 0 of {every} timings",
    )
    assert [table.notes for table in short_tables(results["rows"])] == [()]
    alone = {"contender": "x out=", "engine": "x", "ratios": {"torch": 3.0}}
    assert same_kind(alone) == 3.0


def test_commands_can_be_pasted_on_any_machine() -> None:
    arguments = [
        "--only",
        "a b",
        "--json",
        "/home/x/a.json",
        "--html=/tmp/b.html",
        "--csv",
        "c.csv",
    ]
    assert command_of(arguments) == "openaclnn bench --only 'a b'"
    assert (
        command_of(["--json", "--quick", "--plots", "x", "--html=y"]) == "openaclnn bench --quick"
    )


def test_the_page_has_the_short_tables_first_and_a_command_for_each_part(
    results: dict[str, Any], tmp_path: Path, capsys: Any
) -> None:
    names = ("a", "b", "c")
    machines = [
        beside_torch(results, 2.0, command=command_of(["--threads", "1,4", "--json", "/x/y.json"])),
        results | {"command": command_of(["--alone", "--only", "call"])},
        beside_torch(results, 2.0, command=command_of(["--device", "cuda"]), device="cuda")
        | {"machine": results["machine"] | {"gpu": "a GPU"}},
    ]
    for name, machine in zip(names, machines, strict=True):
        (tmp_path / name).write_text(json.dumps(machine))
    page, sheet_file = tmp_path / "page.html", tmp_path / "cases.csv"
    sources = [f"--from={tmp_path / name}" for name in names]
    assert main([*sources, "--html", str(page), "--csv", str(sheet_file)]) == 0
    text = page.read_text()
    assert str(tmp_path) not in text
    assert "/x/y.json" not in text
    sections = text.split("<h2>")[1:]
    assert len(sections) == 3
    first = MEASURED[0].python_name
    assert sections[0].index("time over ours, median") < sections[0].index(f"<h3>{first}</h3>")
    assert "time over ours, median" not in sections[1]
    for part in sections:
        commands = re.findall(r"<li>command: <code>(.*)</code></li>", part)
        assert commands
        for line in commands:
            program, *rest = shlex.split(line)
            assert (program, rest[0]) == ("openaclnn", "bench")
            parsed(rest[1:])
    lines = list(csv.DictReader(sheet_file.read_text().splitlines()))
    assert len(lines) == 3 * len(results["rows"])
    assert {line["machine"] for line in lines} == {results["machine"]["cpu"], "a GPU"}
    assert lines[0]["x torch"] == "2"
    assert sheet(machines) == sheet_file.read_text()
    capsys.readouterr()


def test_fresh_processes_report_first_calls_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    three = {
        pattern: (regime, regime, replace(regime, headline=regime.shape))
        for pattern, (regime,) in TINY.items()
    }
    monkeypatch.setitem(REGIMES, "cpu", three)
    case = next(first_calls("cpu"))
    empty, kept = case.run(BENCH)
    assert (empty["contender"], kept["contender"]) == ("numpy, empty cache", "numpy")
    assert all(row["status"] == "ok" for row in (empty, kept)), empty["note"]
    assert kept["median_us"] >= kept["again_us"] > 0
    assert kept["import_us"] > 0
    assert kept["extra_bytes"] >= 0
    unknown = case.run(replace(BENCH, engines=["none such"]))
    assert {row["status"] for row in unknown} == {"unavailable"}
    assert all("unknown engine" in row["note"] for row in unknown)


def test_unknown_dtypes_are_refused_with_the_known_ones(capsys: Any) -> None:
    assert main(["--dtype", "int8"]) == 2
    assert "FLOAT16" in capsys.readouterr().err
    assert main(["--dtype", "fp16", "--list", "--section", "speed"]) == 0
    assert {line.strip("'").split()[-1] for line in capsys.readouterr().out.splitlines()} == {
        "FLOAT16"
    }


def test_places_that_are_not_there_are_told_before_the_run(capsys: Any) -> None:
    for option in ("--json", "--html", "--csv"):
        assert main(["--quick", option, "none/results"]) == 2
        assert "there is no folder none" in capsys.readouterr().err


def test_what_lies_between_elements_counts_as_touched() -> None:
    operator = openaclnn.find_operator("elu_backward")
    shape = (16, 8)
    dense = build(operator, "input", FLOAT, shape)
    sliced = build(operator, "input", FLOAT, shape, "sliced")
    assert dense is not None
    assert sliced is not None
    assert dense.moved == dense.touched == sliced.moved == 3 * 128 * 4
    assert sliced.touched == (2 * 2 + 1) * 128 * 4  # two inputs by every second element
    assert bytes_moved(sliced.plan, 4) == sliced.moved
    far = build(
        openaclnn.find_operator("l1_loss_backward"), "one gradient", BFLOAT16, shape, "transposed"
    )
    assert far is not None
    assert far.touched == far.moved


def numbers_of(operator: Operator) -> list[str]:
    """What the signature has beside tensors: floats, and integers that are no truth values, nor axes, nor one of two, nor always 0."""
    defaults = operator.plain_defaults
    two = {check.rule.split()[0] for check in operator.checks if " is 0 or 1" in check.rule}
    tensors = {p.python_name for p in operator.parameters if p.is_tensor or p.axis or p.text == "0"}
    return [
        name
        for name, value in defaults.items()
        if name not in tensors | two and type(value) in (int, float)
    ]


def changing(name: str) -> CallRegime:
    return next(each for each in CHANGES if each.name == name)


OPERATORS = openaclnn.registry()
CALLED = [
    first_of("elementwise"),
    next(operator for operator in OPERATORS if operator.result_type is not None),
    next(operator for operator in OPERATORS if operator.output.in_place),
]
"""One output, several, and the input itself: those that are timed here."""


def has_the_results_shape(operator: Operator) -> bool:
    """Whether an input can be where the first result is written."""
    make, variant = operator.workloads.make, next(iter(operator.workloads.VARIANTS))
    shape = TINY[operator.workloads.PATTERN][0].shape
    arguments = make(np.random.default_rng(1), FLOAT, shape, variant)
    result = arrays_of(operator.oracle(**arguments))[0]
    inputs = [array for array in arguments.values() if isinstance(array, np.ndarray)]
    return any((array.shape, array.dtype) == (result.shape, FLOAT.numpy) for array in inputs)


def has_rows(operator: Operator) -> bool:
    """Whether its first result is one of rows, not of a number for each."""
    return plan_of(operator, operator.samples[0].arrays()).output.role == "full"


def has(operator: Operator, regime: CallRegime) -> bool:
    """Whether an operator has such calls, by what is declared."""
    if regime.name == "new numbers":
        return bool(numbers_of(operator))
    if regime.name == "refusal":
        read = [p for p in operator.parameters if p.is_read and "not looked at" not in p.text]
        return len(read) > 1 or has_halves(operator)  # any other shape is as good for one
    if regime.name == "in place":
        of_rows = operator.workloads.PATTERN != "elementwise" and not has_rows(operator)
        return has_the_results_shape(operator) and not has_halves(operator) and not of_rows
    if regime.name == "outer" and operator.output.in_place:
        return False  # the input has the shape of the output
    if regime.name == "outer":
        told = " ".join(parameter.shape for parameter in operator.parameters)
        return "broadcasts with" in told or "they broadcast" in told
    return True


def test_every_operator_is_called_in_every_regime() -> None:
    listed = {(case.name, case.regime) for case in call_cases((FLOAT,))}
    expected = {
        (op.python_name, each.name) for op in OPERATORS for each in CHANGES if has(op, each)
    }
    assert listed == expected


@pytest.mark.parametrize("operator", families(OPERATORS), ids=lambda op: op.python_name)
@pytest.mark.in_turns
def test_every_way_to_call_an_operator_is_right(operator: Operator) -> None:
    """Ours and PyTorch's; a sequence has a call of each kind, or two that differ. Other operators, other regimes."""
    torch = load_torch()
    every = [each for each in CHANGES if has(operator, each)]
    for regime in every[OPERATORS.index(operator) % 3 :: 3]:
        turn = Turn(operator, FLOAT, "cpu", 8 if regime.mixed else 2)
        ways = {
            name
            for way in regime.ways_of(operator)
            for name in (f", arrays{way}", f", tensors{way}")
        }
        beside = 0
        for problems, contender in sequences(regime, turn, ["numpy"], torch):
            beside += not contender.ours
            assert not contender.unavailable
            assert not find_fault(regime, problems, contender, torch), (regime, contender.name)
            ways -= {contender.name.removeprefix("numpy")}
        assert torch is None or not ways
        peer = getattr(operator, "peer", operator.result_type)
        if callable(peer):  # written by us, or of several outputs, which has no `out`
            assert torch is None or beside or "" not in regime.ways_of(operator)
        else:
            assert torch is None or not contender.ours  # PyTorch's is last, beside each


@pytest.fixture(scope="module")
def calls() -> dict[str, Any]:
    only = tuple(f"{operator.python_name} " for operator in CALLED)
    return run(replace(SETTINGS, rounds=1, sections=("calls",), dtypes=(FLOAT,), only=only))


def test_calls_that_change_are_checked_and_timed(calls: dict[str, Any]) -> None:
    assert json.loads(json.dumps(calls, allow_nan=False)) == calls
    rows = calls["rows"]
    assert {row["section"] for row in rows} == {"calls"}
    assert not find_wrong(calls)
    for operator in CALLED:
        of_operator = [row for row in rows if row["operator"] == operator.python_name]
        regimes = [regime for regime in CHANGES if has(operator, regime)]
        assert {row["regime"] for row in of_operator} == {regime.name for regime in regimes}
        for regime in regimes:
            here = [row for row in of_operator if row["regime"] == regime.name and row["ours"]]
            assert all(row["status"] == "ok" for row in here), here
            arrays = {f"numpy, arrays{way}" for way in regime.ways_of(operator)}
            assert {row["contender"] for row in here if "arrays" in row["contender"]} == arrays
            assert all(row.keys() >= TIME_FIELDS for row in here)
            assert all(row["of_same"] for row in here)


def test_torch_makes_the_same_calls_where_it_can(calls: dict[str, Any]) -> None:
    pytest.importorskip("torch", reason="PyTorch's contenders need PyTorch")
    for row in calls["rows"]:
        if row["ours"] and row["contender"].endswith((", tensors", ", tensors two-phase")):
            assert "torch" in row["ratios"], row
    peers = [row for row in calls["rows"] if not row["ours"]]
    assert {row["contender"] for row in peers} == {"torch", "torch out="}
    assert {row["status"] for row in peers} == {"ok"}, [row["note"] for row in peers]


def test_without_torch_calls_are_made_on_arrays_alone() -> None:
    rows = rows_of(call_case(measured()[0], FLOAT, changing("new sizes")), per_turn=2)
    assert [row["contender"] for row in rows] == ["numpy, arrays", "numpy, arrays out="]
    assert all(row["of_same"] > 0 and row["rounds"] == 2 for row in rows)


@pytest.mark.parametrize("operator", families(OPERATORS), ids=lambda op: op.python_name)
@pytest.mark.in_turns
def test_what_is_new_was_not_seen_before(operator: Operator) -> None:
    def all_problems(name: str) -> list[Any]:
        turns = [Turn(operator, FLOAT, "cpu", 20, place, 3) for place in range(3)]
        return [problem for turn in turns for problem in changing(name).sequence(turn)]

    sizes = [problem.shape for problem in all_problems("new sizes")]
    assert len(set(sizes)) == len(sizes) == 60
    assert min(map(math.prod, sizes)) == 16
    layouts = [
        tuple(value.strides for value in problem.arguments.values() if hasattr(value, "strides"))
        for problem in all_problems("new layout")
    ]
    assert len(set(layouts)) == len(layouts) == 60
    for problem in all_problems("outer"):
        shapes = [
            array.shape for array in problem.arguments.values() if isinstance(array, np.ndarray)
        ]
        assert np.broadcast_shapes(*shapes) == problem.shape
        assert problem.shape not in shapes
    outer = [problem.shape for problem in all_problems("outer")]
    assert len(set(outer)) == len(outer) == (60 if has(operator, changing("outer")) else 0)
    for name in numbers_of(operator):
        values = {
            problem.arguments.get(name, operator.plain_defaults[name])
            for problem in all_problems("new numbers")
        }
        assert len(values) in (1, 60)  # one that needs more than itself stays
    kinds = all_problems("kinds in turn")[:8]
    told = {(each.variant, each.dtype, each.layout) for each in kinds}
    assert len(told) == 8
    rows = list(changing("kinds in a row").sequence(Turn(operator, FLOAT, "cpu", 16 + 64)))
    assert len({id(each) for each in rows[:8]}) == 8  # what is checked, twice
    assert [rows.index(each) for each in rows[16:]] == [n for n in range(8) for _ in range(8)]
    assert {each.dtype for each in kinds} == set(floats_of(operator))
    if has(operator, changing("in place")):
        same, other = all_problems("in place")[:2]
        first, second = (arrays_of(each.out)[0] for each in (same, other))
        assert any(first is value for value in same.arguments.values())
        assert not np.shares_memory(first, second)
    assert (
        len({id(problem) for problem in changing("same").sequence(Turn(operator, FLOAT, "cpu", 5))})
        == 1
    )


def test_calls_are_looked_at_before_they_are_timed() -> None:
    """As many as are warmed up for; nothing is made of them, and nothing changes."""
    regime = changing("new sizes")
    turn = Turn(first_of("elementwise"), FLOAT, "cpu", regime.checked + 2)
    for problems, contender in sequences(regime, turn, ["cpu"], load_torch()):
        before = [np.copy(problem.out) for problem in problems[regime.checked :]]
        assert contender.warm_up is not None
        for _ in range(2):
            contender.warm_up()
        with pytest.raises(StopIteration):
            contender.warm_up()
        for problem, out in zip(problems[regime.checked :], before, strict=True):
            np.testing.assert_array_equal(problem.out, out)


@pytest.mark.parametrize("name", ["elu_backward", "elu"])  # whose eight kinds are eight, and three
def test_the_first_of_a_kind_goes_the_slow_path(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call that is timed, and none of those that are no first ones; the kernels were there before."""
    operator = openaclnn.find_operator(name)
    scope = getattr(openaclnn, operator.python_name).__globals__
    whole, slow_calls = scope["_call"], []
    monkeypatch.setitem(
        scope, "_call", lambda *arguments: slow_calls.append(arguments) or whole(*arguments)
    )
    for regime, expected in (("first of a kind", 1), ("kinds in turn", 0)):
        turn = Turn(operator, FLOAT, "cpu", 32)
        for _, contender in sequences(changing(regime), turn, ["cpu"], load_torch()):
            for _ in range(changing(regime).checked):
                contender.call()
            assert contender.warm_up is not None
            for _ in range(8):
                contender.warm_up()
                slow_calls.clear()
                contender.call()
                assert len(slow_calls) == (expected if contender.ours else 0), contender.name


def test_wrong_sequences_are_refused(
    monkeypatch: pytest.MonkeyPatch, calls: dict[str, Any]
) -> None:
    """One that is right at first and wrong later, and one that accepts what it must refuse."""
    problems: list[Any] = []

    def late(problem: Any, *_: Any) -> Any:
        problems.append(problem)
        right = openaclnn.find_operator(problem.operator.name).oracle(**problem.arguments)
        wrong = right * 2 if len(problems) % 12 == changing("same").checked else right
        return lambda: wrong.astype(problem.dtype.numpy)

    monkeypatch.setattr("openaclnn.bench.calls.our_call", late)
    regime, operator = (
        replace(changing("same"), ways=("",)),
        openaclnn.find_operator("elu_backward"),
    )
    [row] = rows_of(call_case(operator, FLOAT, regime), per_turn=2)
    assert row["status"] == "WRONG"
    assert "float64" in row["note"]
    assert "median_us" not in row
    monkeypatch.setattr("openaclnn.bench.calls.our_call", lambda *_: lambda: None)
    [lax] = rows_of(call_case(operator, FLOAT, changing("refusal")), per_turn=1)
    assert (lax["status"], lax["note"]) == ("WRONG", "RuntimeError: a wrong shape was not refused")
    assert find_wrong(calls | {"rows": [row, lax]}) == [row, lax]


def test_calls_that_change_have_tables(calls: dict[str, Any]) -> None:
    tables = list(terminal_tables(calls))
    assert {each.title for each in tables} == {
        f"{each.python_name}: Calls that change" for each in CALLED
    }
    assert all(", same, " in table.markdown() for table in tables)
    assert len(sheet([calls]).splitlines()) == 1 + len(calls["rows"])
    timed = calls["rows"][0]
    spoiled = timed | {"status": "unavailable", "note": "it | failed"}
    assert "unavailable at" in text_of(calls | {"rows": [spoiled, *calls["rows"][1:]]})


def test_the_engine_that_calls_get_by_themselves_is_not_asked_for() -> None:
    """A block around a call keeps it from the fast path."""
    problem = build(first_of("elementwise"), tiny_case().variant, FLOAT, (16,))
    assert problem is not None
    names = [name for name, objection in objections("cpu").items() if not objection]
    asked = {
        each.name: each.inside is not nullcontext
        for each in build_contenders(problem, names)
        if each.ours
    }
    assert [asked[name] for name in names] == [False, *[True] * (len(names) - 1)]
    turn = Turn(problem.operator, FLOAT, "cpu", 8)
    contenders = [each for _, each in sequences(changing("same"), turn, names, None)]
    asked_for = [each.inside is not nullcontext for each in contenders]
    assert asked_for == [each.engine != names[0] for each in contenders]


def timed_by(results: dict[str, Any], *regimes: str) -> dict[str, Any]:
    """As if these regimes had been timed beside PyTorch, at sizes of their own."""
    rows = beside_torch(results, 2.0)["rows"]
    peers = [
        row | {"contender": "torch out=", "ours": False, "engine": "", "ratios": {}}
        for row in rows
        if row["contender"] == "numpy out="
    ]
    return results | {
        "mode": "beside PyTorch",
        "rows": [
            row | {"regime": name, "family": name.split()[0], "shape": [1 << 10 + place]}
            for operator in measured()[:2]
            for place, name in enumerate(regimes)
            for row in [*rows, *peers]
            if row["operator"] == operator.python_name
        ],
    }


def test_pictures_and_the_report_are_made_from_kept_results(
    results: dict[str, Any], tmp_path: Path, capsys: Any
) -> None:
    source, folder, target = tmp_path / "r.json", tmp_path / "pictures", tmp_path / "r.html"
    source.write_text(json.dumps(timed_by(results, "call", "scaling 2^10", "scaling 2^12")))
    arguments = ["--from", str(source), "--plots", str(folder), "--html", str(target)]
    assert main(arguments) == 0
    names = ("of-a-copy", "ratios-by-size", "ratios")
    assert sorted(path.name for path in folder.iterdir()) == [f"{name}.png" for name in names]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in folder.iterdir())
    assert str(folder / "ratios-by-size.png") in capsys.readouterr().err
    page = target.read_text()
    assert page.count('src="data:image/png;base64,') == 3
    assert results["machine"]["cpu"] in page
    names = [operator.python_name.replace("_", "_<wbr>") for operator in measured()[:2]]
    assert all(f">{name}</th>" in page for name in names)
    assert not re.search(r"(src|href)=\"(?!data:)|@import|url\(|https?://", page)


def test_several_machines_have_numbered_pictures(results: dict[str, Any], tmp_path: Path) -> None:
    written = write_pictures([{"of a copy": b"1"}, {"of a copy": b"2"}], tmp_path)
    assert [path.name for path in written] == ["of-a-copy-1.png", "of-a-copy-2.png"]
    assert written[1].read_bytes() == b"2"
    other = results | {"machine": results["machine"] | {"cpu": "<another> & more"}}
    page = report_page([results, other], [{}, {}])
    assert "&lt;another&gt; &amp; more" in page
    assert "<another>" not in page


def test_results_without_pytorch_have_the_pictures_that_they_can(results: dict[str, Any]) -> None:
    large = [row | {"family": "large"} for row in results["rows"][:8]]
    assert list(pictures(results | {"rows": large})) == ["of a copy"]
    assert pictures(results | {"rows": []}) == {}
    first = next(row for row in large if row["ours"] and row["of_copy"])
    assert pictures(results | {"rows": [first]}) == {}, "a dot alone is no picture"


def test_json_is_printed_in_place_of_the_tables(
    results: dict[str, Any], tmp_path: Path, capsys: Any
) -> None:
    source = tmp_path / "r.json"
    source.write_text(json.dumps(results))
    assert main(["--from", str(source), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == results
    assert main(["--json", str(tmp_path / "again.json"), "--from", str(source)]) == 0
    assert json.loads((tmp_path / "again.json").read_text()) == results


@pytest.mark.parametrize("text", ["no JSON", "[1]", '{"rows": []}'])
def test_files_without_results_are_refused(text: str, tmp_path: Path, capsys: Any) -> None:
    source = tmp_path / "r.json"
    source.write_text(text)
    assert main(["--from", str(source)]) == 2
    err = capsys.readouterr().err
    assert str(source) in err
    assert len(err.splitlines()) == 1


def test_a_missing_library_is_told_before_anything_is_timed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr(command, "run", lambda *_: pytest.fail("timed"))
    assert main(["--quick", "--html", str(tmp_path / "r.html")]) == 2
    assert "pip install 'openaclnn[tools]'" in capsys.readouterr().err


def test_the_door_of_a_checkout_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--list", "--section", "first-call"],
        cwd=Path(__file__).parent.parent, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert len(done.stdout.splitlines()) == len(measured())


def test_steps_of_training_are_checked_and_timed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    shapes = {"elementwise": (16,), "rows": (2, 8), "pixels": (1, 4, 2, 2), "linear": (6, 8, 16)}
    few = {pattern: (Regime("some", shape),) for pattern, shape in shapes.items()}
    monkeypatch.setitem(STEPS, "cpu", few)
    functions = list(dict.fromkeys(step.name for step in step_cases("cpu")))
    steps = tuple(f"{name} training some" for name in functions)
    settings = Settings(only=steps, sections=("training",), dtypes=(BFLOAT16,), rounds=1)
    results = run(settings)
    ours = [row for row in results["rows"] if row["ours"]]
    assert [row["operator"] for row in ours] == functions
    assert all(row["status"] == "ok" and row["ratios"]["torch"] > 0 for row in ours)
    contenders = {row["contender"] for row in results["rows"]}
    assert contenders - {"torch's function"} == {"openaclnn.torch", "torch", "products", COPY}
    assert all(row["extra_bytes"] >= 0 for row in ours if row["operator"] == "linear_cross_entropy")
    text = text_of(results)
    assert "Forward and backward" in text
    assert all(re.search(rf"\| {name} \| step, some, ", text) for name in functions)
    assert any("Forward and backward" in table.title for table in terminal_tables(results))
    lines = list(csv.DictReader(sheet([results]).splitlines()))
    assert len(lines) == len(results["rows"])
    assert all(float(line["of_copy"]) > 0 for line in lines)

    rows = (Regime("shape 4x3", (4, 3), all_variants=True),)
    monkeypatch.setitem(STEPS, "cpu", few | {"rows": rows})
    forms = run(replace(settings, only=("cross_entropy training shape",), dtypes=(FLOAT,)))
    ours = [row for row in forms["rows"] if row["ours"]]
    assert [row["regime"] for row in ours] == [f"shape 4x3{form}" for form in ("", ", weight", ", smoothing")]  # fmt: skip
    assert all(row["status"] == "ok" for row in ours)
    monkeypatch.setitem(STEPS, "cpu", few)

    modules = tuple(f"{name} module small" for name in ("Softmax", "BCELoss", "PReLU"))
    adopted = run(replace(settings, only=modules, sections=("modules",)))["rows"]
    assert [row["operator"] for row in adopted if row["ours"]] == ["BCELoss", "PReLU", "Softmax"]
    assert all(row["status"] == "ok" for row in adopted)

    wrong = getattr(importlib.import_module("openaclnn.torch.functional"), functions[-1])
    monkeypatch.setattr(
        f"openaclnn.torch.functional.{functions[-1]}", lambda *arguments: wrong(*arguments) * 1.01
    )
    again = run(replace(settings, only=(steps[-1],), dtypes=(FLOAT,)))
    [row] = find_wrong(again)
    assert "of float64" in row["note"]


def test_modules_step_on_few_elements_beside_pytorchs(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    settings = Settings(
        only=("module few",), sections=("modules",), dtypes=(FLOAT,), rounds=1, again_seconds=0,
    )  # fmt: skip
    cases = choose(settings)["modules"]
    nn = importlib.import_module("openaclnn.torch.nn")
    assert {case.name for case in cases} == {*nn.__all__} - {"LinearCrossEntropyLoss", "NLLLoss2d"}
    for said in (", weighted", ", no weight"):
        # Rows and pixels of two losses.
        assert sum(case.variant.endswith(said) for case in cases) == 4
    results = run(settings)
    rows = results["rows"]
    assert [row["variant"] for row in rows if row["ours"]] == [case.variant for case in cases]
    assert all(row["status"] == "ok" and row["yardstick_us"] > 0 and "slow" in row for row in rows)
    assert all(row["host_ratios"]["torch"] > 0 for row in rows if row["ours"])
    text = text_of(results)
    assert all(text.count(f"| {case.name} | {case.variant}, few, ") == 1 for case in cases)
    assert [table.title for table in terminal_tables(results)] == ["Modules"]

    case = next(case for case in cases if case.name == "ELU")
    forward = nn.ELU.forward
    monkeypatch.setattr(nn.ELU, "forward", lambda module, *inputs: forward(module, *inputs) * 2)
    [row] = find_wrong(run(replace(settings, only=(case.title,))))
    assert "of float64" in row["note"]


def test_pytorchs_operators_are_timed_replaced_and_not(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    override = importlib.import_module("openaclnn.torch.override")
    settings = Settings(sections=("overrides",), dtypes=(FLOAT,), rounds=1, again_seconds=0)
    every = choose(settings)["overrides"]
    assert {math.prod(case.shape) for case in every} == {16, 1 << 12, 1 << 16, 1 << 20}
    assert {case.name for case in every} == {name for name, entry in override.OVERRIDES.items() if entry.devices}  # fmt: skip
    cases = choose(replace(settings, quick=True))["overrides"]
    names = [name for name, entry in override.OVERRIDES.items() if entry.devices]
    assert list(dict.fromkeys(case.name for case in cases)) == names
    cases = [next(case for case in cases if case.name == name) for name in names]
    results = run(replace(settings, only=tuple(case.title for case in cases)))
    assert [row["operator"] for row in results["rows"] if row["ours"]] == [c.name for c in cases]
    assert all(row["status"] == "ok" for row in results["rows"])
    assert all(row["ratios"]["torch"] > 0 for row in results["rows"] if row["ours"])
    assert all(row["yardstick_us"] > 0 for row in results["rows"])
    assert not override._libraries  # PyTorch has its own again
    text, lines = text_of(results), sheet([results]).splitlines()
    assert all(f"| {case.name} | {case.variant}, override, " in text for case in cases)
    assert len(lines) == 1 + 2 * len(cases)
    assert any("replaced" in table.title for table in terminal_tables(results))

    name = "smooth_l1_loss"
    entry, case = override.OVERRIDES[name], next(case for case in cases if case.name == name)
    for wrong, says in (
        (
            lambda run, *arguments: type(entry).run(entry, run, *arguments) * 1.01,
            "of float64",
        ),
        (lambda run, *arguments: override._decline("no"), "PyTorch's served"),
    ):
        monkeypatch.setattr(entry, "run", wrong)
        monkeypatch.setattr(override, "_native", lambda *_: None)
        again = run(replace(settings, only=(case.title,)))
        assert says in again["rows"][0]["note"]
        assert bool(find_wrong(again)) == (says == "of float64")
