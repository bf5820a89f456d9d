"""The benchmark runner: what it counts, how it takes turns, that it refuses wrong results. Nothing here is timed."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import benchmarks
import numpy as np
import pytest
from benchmarks import __main__ as command
from benchmarks import machine
from benchmarks.calls import relate, run_calls, select_calls
from benchmarks.changes import CHANGES, CallRegime, Turn
from benchmarks.contenders import COPY, Contender, build_contenders, engine_states
from benchmarks.first_call import first_calls, peak_memory
from benchmarks.measure import CpuClock, Sample, Timing, interleave, paired_ratio, rotated
from benchmarks.problems import build, bytes_moved, load_torch, measured
from benchmarks.regimes import LAYOUTS, REGIMES, Regime, shrink
from benchmarks.report import console_tables, disturbed, find_wrong, markdown
from benchmarks.runner import run, run_case
from benchmarks.selection import SECTIONS, Case, Settings, choose, select
from benchmarks.sequences import CHECKED, sequences
from benchmarks.verify import ORACLE_LIMIT, disagreement, find_faults

import openaclnn
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import BFLOAT16, FLOAT, FLOATS, DType

TINY: dict[str, tuple[Regime, ...]] = {
    "elementwise": (Regime("tiny", (3, 5), "a test", two_phase=True),),
    "rows": (Regime("tiny", (3, 5), "a test", two_phase=True),),
    "pixels": (Regime("tiny", (2, 3, 4, 5), "a test", two_phase=True),),
}
SETTINGS = Settings(
    rounds=2, budget_seconds=0.01, sections=("speed",), regimes=TINY, engines=("numpy",),
    command="a test",
)  # fmt: skip
ROW_FIELDS = {
    "operator", "variant", "regime", "reason", "layout", "shape", "dtype", "bytes", "touched", "contender",
    "ours", "engine", "status", "note", "gbps", "of_copy", "ratios", "others_cores", "disturbed",
}  # fmt: skip
TIME_FIELDS = {"median_us", "q1_us", "q3_us", "minimum_us", "host_us", "rounds", "inner"}


def first_of(pattern: str) -> Operator:
    return next(each for each in measured() if pattern == each.workloads.PATTERN)


def tiny_case(pattern: str = "elementwise", dtype: DType = FLOAT) -> Case:
    operator = first_of(pattern)
    return Case(operator, next(iter(operator.workloads.VARIANTS)), dtype, TINY[pattern][0])


@pytest.fixture(autouse=True)
def one_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests may run on a busy machine: nothing here depends on the times."""
    monkeypatch.setattr("benchmarks.runner.ATTEMPTS", 1)


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    return run(replace(SETTINGS, use_torch=False, dtypes=(FLOAT, BFLOAT16)))


def test_a_run_without_torch_has_ours_and_the_copy(results: dict[str, Any]) -> None:
    assert json.loads(json.dumps(results, allow_nan=False)) == results
    assert {"date", "command", "device", "threads", "copy_gbps"} <= results.keys()
    assert {"cpu", "cores", "memory_gib", "system"} <= results["machine"].keys()
    assert {"python", "numpy", "torch", "openaclnn"} <= results["versions"].keys()
    assert results["engines"]["numpy"] == "available"
    assert len(results["rows"]) == len(measured()) * 2 * 4
    for row in results["rows"]:
        assert row.keys() == ROW_FIELDS | TIME_FIELDS
        assert row["status"] == "ok", row["note"]
    names = {row["contender"] for row in results["rows"]}
    assert names == {"numpy", "numpy out=", "numpy two-phase", COPY}
    assert not find_wrong(results)


def test_torch_takes_part_where_it_is_installed() -> None:
    pytest.importorskip("torch", reason="PyTorch's contenders need PyTorch")
    rows = run(replace(SETTINGS, dtypes=FLOATS))["rows"]
    assert {row["status"] for row in rows} == {"ok"}, [r["note"] for r in rows if r["note"]]
    ours = [row for row in rows if row["ours"]]
    assert len(ours) == len(measured()) * len(FLOATS) * 3
    for row in ours:
        workloads = openaclnn.find_operator(row["operator"]).workloads
        into = set() if hasattr(workloads, "WHOLE") else {"torch out="}
        assert row["ratios"].keys() >= {"torch"} | into, row


def test_every_engine_is_listed_with_its_state() -> None:
    assert engine_states("cpu")["numpy"] == ""
    assert "cpu" in engine_states("cuda")["numpy"]


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
    rows = run_case(tiny_case(), SETTINGS, ["numpy"], None, wrong_factory)
    states = {row["contender"]: row["status"] for row in rows}
    assert states == {"numpy": "ok", "numpy out=": "ok", COPY: "ok", "off": "WRONG", "gap": "WRONG"}
    refused = [row for row in rows if row["status"] == "WRONG"]
    assert all("median_us" not in row and row["gbps"] is None for row in refused)
    assert all("oracle" in row["note"] for row in refused)
    monkeypatch.setattr(command, "run", lambda *_: results | {"rows": rows})
    target = tmp_path / "wrong.json"
    assert command.main(["--json", str(target)]) == 1
    assert command.main(["--report", str(target)]) == 1


def test_large_problems_are_checked_small_and_against_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("benchmarks.verify.ORACLE_LIMIT", 64)
    problem = build(first_of("elementwise"), tiny_case().variant, FLOAT, (512,))
    assert problem is not None
    checked: list[tuple[int, ...]] = []

    def factory(given: Any) -> list[Contender]:
        checked.append(given.shape)
        return build_contenders(given, ["numpy"])

    right = factory(problem)
    late = Contender(
        "late", lambda: right[0].call() * 1.5, ours=True
    )  # right at no size but the small one
    faults = find_faults(problem, [*right, late], factory, None)
    assert checked == [(512,), (64,)]
    assert list(faults) == ["late"]
    assert "numpy" in faults["late"]


def test_disagreement_knows_rounding_from_error() -> None:
    expected = np.linspace(-1, 1, 1000, dtype=np.float32)
    assert disagreement(expected * np.float32(1 + 1e-7), expected, FLOAT, None) == ""
    spoiled = expected.copy()
    spoiled[3] = np.nan
    assert "nan" in disagreement(spoiled, expected, FLOAT, None)
    assert "shape" in disagreement(expected[:-1], expected, FLOAT, None)
    small = np.full(1000, 1e-4, np.float32)  # wrong everywhere, but small beside the largest value
    small[0] = 1.0
    wrong = np.where(small == 1, small, 2 * small).astype(BFLOAT16.numpy)
    assert "mean" in disagreement(wrong, small.astype(BFLOAT16.numpy), BFLOAT16, None)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("operator", measured(), ids=lambda operator: operator.python_name)
def test_bytes_are_those_the_plan_must_move(operator: Operator, layout: str) -> None:
    pattern = operator.workloads.PATTERN
    variant = next(iter(operator.workloads.VARIANTS))
    if layout == "broadcast" and pattern != "elementwise":
        return  # no such regime
    problem = build(operator, variant, BFLOAT16, TINY[pattern][0].shape, layout)
    if problem is None:
        assert layout in ("broadcast", "outer")
        return
    read = {operator[operand.parameter].python_name for operand in problem.plan.inputs}
    expected = problem.out.nbytes + sum(problem.arguments[name].nbytes for name in read)
    assert problem.moved == expected


def test_bytes_of_known_plans() -> None:
    for operator in measured():
        variant = next(iter(operator.workloads.VARIANTS))
        if operator.workloads.PATTERN == "pixels":
            # The log-probabilities are not read: out + int64 targets + one gradient per pixel + weights.
            problem = build(operator, variant, FLOAT, (2, 3, 4, 5))
            assert problem is not None
            assert problem.moved == 2 * 3 * 4 * 5 * 4 + 2 * 4 * 5 * (8 + 4) + 3 * 4
        if operator.workloads.PATTERN == "rows":
            problem = build(operator, variant, FLOAT, (6, 10))  # one gradient for all rows
            assert problem is not None
            assert problem.moved == 2 * 60 * 4 + 6 * 8 + 4


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
        def __init__(self) -> None:
            self.order: list[str] = []

        def sample(self, call: Any, inner: int) -> Sample:
            self.order.append(call())
            return Sample(1.0, 1.0)

    contenders = [Contender(name, lambda name=name: name) for name in "abc"]  # type: ignore[misc]
    assert [each.name for each in rotated(contenders, 4)] == ["b", "c", "a"]
    clock = Recorder()
    timings = interleave(contenders, clock, rounds=3, pause_seconds=0.0)
    assert "".join(clock.order) == "abc" + "abc" + "bca" + "cab"  # calibration, then the rounds
    assert all(len(timing.samples) == 3 for timing in timings.values())


def test_ratios_pair_samples_of_the_same_round() -> None:
    own = Timing(1, 3, False, {0: Sample(1, 1), 1: Sample(2, 2), 2: Sample(4, 4)})
    peer = Timing(1, 3, False, {0: Sample(3, 3), 1: Sample(6, 6), 2: Sample(12, 12)})
    assert paired_ratio(peer, own) == 3
    assert paired_ratio(Timing(1, 0, False), own) is None
    summary = own.summary()
    assert summary["median_us"] == 2e6
    assert summary["rounds"] == 3
    assert CpuClock().sample(lambda: None, 3).seconds >= 0


def test_regimes_cover_every_pattern_and_shrink_keeps_the_classes() -> None:
    patterns = {operator.workloads.PATTERN for operator in measured()}
    for table in REGIMES.values():
        assert table.keys() == patterns
        for pattern, regimes in table.items():
            assert len({regime.name for regime in regimes}) == len(regimes)
            assert sum(regime.all_variants for regime in regimes) == 1
            for regime in regimes:
                assert regime.layout in LAYOUTS
                assert regime.reason
                small = shrink(pattern, regime.shape, ORACLE_LIMIT)
                assert math.prod(small) <= ORACLE_LIMIT
                if pattern != "elementwise":
                    assert small[1] == regime.shape[1]


def test_selection() -> None:
    name = measured()[0].python_name
    chosen = select(Settings(only=name, dtypes=(BFLOAT16,)))
    assert {case.operator.python_name for case in chosen} == {name}
    assert {case.dtype for case in chosen} == {BFLOAT16}
    assert {case.regime.name for case in select(Settings(only="scaling 2^10"))} == {"scaling 2^10"}
    assert 0 < len(select(Settings(quick=True))) < len(select(Settings())) / 4
    assert not select(Settings(only="no such case"))
    with pytest.raises(SystemExit, match="'no such case' matches no case of speed, calls"):
        run(Settings(only="no such case"))
    with pytest.raises(SystemExit, match="no case of calls;"):
        choose(Settings(only="scaling 2^10", sections=("calls",)))


def test_the_list_names_the_cases_of_all_sections(capsys: Any) -> None:
    assert command.main(["--list"]) == 0
    sections, titles = zip(
        *(line.split(": ", 1) for line in capsys.readouterr().out.splitlines()), strict=True
    )
    assert tuple(dict.fromkeys(sections)) == SECTIONS
    for operator in measured():
        for section in SECTIONS:
            own = [t for s, t in zip(sections, titles, strict=True) if s == section]
            assert any(operator.python_name in title for title in own)
    assert command.main(["--list", "--section", "calls", "--only", "in place float"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert listed
    assert all(line.startswith("calls: ") and "in place" in line for line in listed)
    with pytest.raises(SystemExit, match="matches no case"):
        command.main(["--list", "--only", "no such case"])


def test_other_load_disturbs_only_beyond_the_spare_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    load = machine.OtherLoad()
    assert not load.disturbs(4)  # unknown
    load.cores = 1.0
    assert load.disturbs(4)
    assert not load.disturbs(3)


def test_reports_render(results: dict[str, Any], tmp_path: Path, capsys: Any) -> None:
    noisy = [row | {"disturbed": row["dtype"] == "FLOAT"} for row in results["rows"]]
    assert "Calls that change" not in markdown([results])
    spec = {"operator": "x", "shape": [2], "contender": "numpy"}
    given = results | {
        "rows": noisy,
        "first_calls": [
            spec
            | {
                "cache": "cold",
                "import_s": 0.1,
                "first_ms": 5.0,
                "again_ms": 0.01,
                "disturbed": True,
            },
            spec | {"cache": "warm", "note": "it | failed"},
        ],
        "memory": [spec | {"extra_bytes": 1 << 20}, spec | {"note": "it failed"}],
    }
    text = markdown([given])
    assert results["machine"]["cpu"] in text
    assert results["date"] in text
    assert "`a test`" in text
    assert all(f"### {operator.python_name}" in text for operator in measured())
    assert "5 ms !" in text
    assert r"it \| failed" in text
    assert "FLOAT !" in text
    assert disturbed(given).startswith(f"{len(measured())} of {2 * len(measured())} cases")
    assert len(console_tables(given)) == len(measured())
    source, target = tmp_path / "results.json", tmp_path / "benchmarks.md"
    source.write_text(json.dumps(given))
    assert command.main(["--report", str(source), "--markdown", str(target)]) == 0
    assert target.read_text() == text
    assert measured()[0].python_name in capsys.readouterr().out


def test_fresh_processes_report_first_calls_and_memory() -> None:
    spec = {
        "operator": measured()[0].python_name,
        "variant": tiny_case("rows").variant,
        "dtype": "FLOAT", "device": "cpu", "shape": [3, 5],
    }  # fmt: skip
    cold, warm = first_calls(spec, "numpy")
    assert (cold["cache"], warm["cache"]) == ("cold", "warm")
    assert cold["first_ms"] > 0, cold
    assert cold["import_s"] > 0
    found = peak_memory(spec | {"warm_shape": [2, 4]}, "numpy out=")
    assert found["extra_bytes"] >= 0, found
    assert "unknown engine" in peak_memory(spec | {"warm_shape": [2, 4]}, "none such")["note"]


def test_unknown_dtypes_are_refused_with_the_known_ones(capsys: Any) -> None:
    with pytest.raises(SystemExit):
        command.main(["--dtype", "int8"])
    assert "FLOAT16" in capsys.readouterr().err


def test_no_operator_is_named_in_the_package() -> None:
    assert benchmarks.__file__ is not None
    text = "".join(
        path.read_text().lower() for path in Path(benchmarks.__file__).parent.glob("*.py")
    )
    for operator in measured():
        assert operator.python_name not in text
        assert operator.name.lower() not in text
        assert operator.workloads.__name__.rpartition(".")[2] not in text


def test_torch_is_optional() -> None:
    assert load_torch() is None or hasattr(load_torch(), "Tensor")


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
    """What the signature has beside tensors: floats, and integers that are no truth values."""
    defaults = operator.plain_defaults
    tensors = {p.python_name for p in operator.tensors}
    return [
        name
        for name, value in defaults.items()
        if name not in tensors and type(value) in (int, float)
    ]


def changing(name: str) -> CallRegime:
    return next(each for each in CHANGES if each.name == name)


@pytest.fixture(scope="module")
def calls() -> dict[str, Any]:
    settings = replace(SETTINGS, rounds=1, sections=("calls",), dtypes=(FLOAT,))
    return run(settings)


def test_calls_that_change_are_checked_and_timed(calls: dict[str, Any]) -> None:
    assert json.loads(json.dumps(calls, allow_nan=False)) == calls
    rows = calls["calls"]
    assert not calls["rows"]
    assert not find_wrong(calls)
    for operator in measured():
        own = [row for row in rows if row["operator"] == operator.python_name]
        regimes = {regime.name for regime in CHANGES}
        if not numbers_of(operator):
            regimes -= {"new numbers"}
        if len(operator.input_places) == 1:  # any shape is as good
            regimes -= {"refusal"}
        if hasattr(operator.workloads, "WHOLE"):  # no input has a loss's shape
            regimes -= {"in place"}
        assert {row["regime"] for row in own} == regimes
        for regime in (each for each in CHANGES if each.name in {row["regime"] for row in own}):
            here = [row for row in own if row["regime"] == regime.name and row["ours"]]
            assert all(row["status"] == "ok" for row in here), here
            arrays = {f"numpy, arrays{way}" for way in regime.ways}
            assert {row["contender"] for row in here if "arrays" in row["contender"]} == arrays
            assert all(row.keys() >= TIME_FIELDS for row in here)
            assert all(row["of_same"] for row in here)


def test_torch_makes_the_same_calls_where_it_can(calls: dict[str, Any]) -> None:
    pytest.importorskip("torch", reason="PyTorch's contenders need PyTorch")
    for row in calls["calls"]:
        if row["regime"] == "two-phase":
            assert row["ours"]
            assert not row["ratios"]
        elif row["ours"] and row["contender"].endswith(", tensors"):
            assert "torch" in row["ratios"], row
    peers = [row for row in calls["calls"] if not row["ours"]]
    assert {row["contender"] for row in peers} == {"torch", "torch out="}
    assert {row["status"] for row in peers} == {"ok"}, [row["note"] for row in peers]


def test_without_torch_calls_are_made_on_arrays_alone() -> None:
    [case] = [
        case for case in select_calls((FLOAT,), "new sizes") if case.operator is measured()[0]
    ]
    rows = run_calls(case, "cpu", ["numpy"], None, CpuClock(), 1, 2, 1)
    assert [row["contender"] for row in rows] == ["numpy, arrays", "numpy, arrays out="]
    relate(rows)  # without `same` there is nothing to compare with
    assert all(row["of_same"] is None and row["rounds"] == 1 for row in rows)


@pytest.mark.parametrize("operator", measured(), ids=lambda operator: operator.python_name)
def test_what_is_new_was_not_seen_before(operator: Operator) -> None:
    def all_problems(name: str) -> list[Any]:
        turns = [Turn(operator, FLOAT, "cpu", 20, own, 3) for own in range(3)]
        return [problem for turn in turns for problem in changing(name).sequence(turn)]

    sizes = [problem.shape for problem in all_problems("new sizes")]
    assert len(set(sizes)) == len(sizes) == 60
    assert min(map(math.prod, sizes)) == 16
    layouts = [
        tuple(value.strides for value in problem.arguments.values() if hasattr(value, "strides"))
        for problem in all_problems("new layout")
    ]
    assert len(set(layouts)) == len(layouts) == 60
    for name in numbers_of(operator):
        values = {
            problem.arguments.get(name, operator.plain_defaults[name])
            for problem in all_problems("new numbers")
        }
        assert len(values) in (1, 60)  # one that needs more than itself stays
    kinds = all_problems("kinds in turn")[:8]
    told = {(each.variant, each.dtype, each.layout) for each in kinds}
    assert len(told) == 8
    assert {each.dtype for each in kinds} == set(FLOATS)
    if not hasattr(operator.workloads, "WHOLE"):  # no input has a loss's shape
        same, other = all_problems("in place")[:2]
        assert any(same.out is value for value in same.arguments.values())
        assert not np.shares_memory(same.out, other.out)
    assert (
        len({id(problem) for problem in changing("same").sequence(Turn(operator, FLOAT, "cpu", 5))})
        == 1
    )


def test_wrong_sequences_are_refused(
    monkeypatch: pytest.MonkeyPatch, calls: dict[str, Any]
) -> None:
    """One that is right at first and wrong later, and one that accepts what it must refuse."""
    made: list[Any] = []

    def late(problem: Any, *_: Any) -> Any:
        made.append(problem)
        right = openaclnn.find_operator(problem.operator.name).oracle(**problem.arguments)
        wrong = right * 2 if len(made) % 20 == CHECKED else right
        return lambda: wrong.astype(problem.dtype.numpy)

    monkeypatch.setattr("benchmarks.sequences._own_call", late)
    regime = replace(changing("same"), ways=("",))
    [case] = [each for each in select_calls((FLOAT,), " same ") if each.operator is measured()[0]]
    [row] = run_calls(replace(case, regime=regime), "cpu", ["numpy"], None, CpuClock(), 2, 2, 1)
    assert row["status"] == "WRONG"
    assert "oracle" in row["note"]
    assert "median_us" not in row
    monkeypatch.setattr("benchmarks.sequences._own_call", lambda *_: lambda: None)
    refusal = replace(case, regime=changing("refusal"))
    [lax] = run_calls(refusal, "cpu", ["numpy"], None, CpuClock(), 1, 1, 1)
    assert (lax["status"], lax["note"]) == ("WRONG", "RuntimeError: a wrong shape was not refused")
    assert find_wrong(calls | {"calls": [row, lax]}) == [row, lax]


def test_calls_that_change_have_tables(calls: dict[str, Any]) -> None:
    text = markdown([calls])
    assert "### Calls that change" in text
    lines = [line for line in text.splitlines() if "| two-phase |" in line]
    assert len(lines) == len(measured())
    assert all("|  |" in line for line in lines)  # PyTorch has no such call: empty, not zero
    assert len(console_tables(calls)) == len(measured())
    timed = calls["calls"][0]
    spoiled = timed | {"status": "unavailable", "note": "it | failed"}
    assert "unavailable at" in markdown([calls | {"calls": [spoiled, *calls["calls"][1:]]}])


def test_the_engine_that_calls_get_by_themselves_is_not_asked_for() -> None:
    """A block around a call keeps it from the short road."""
    problem = build(first_of("elementwise"), tiny_case().variant, FLOAT, (16,))
    assert problem is not None
    names = [name for name, objection in engine_states("cpu").items() if not objection]
    asked = {each.name: each.asked for each in build_contenders(problem, names) if each.ours}
    assert [asked[name] for name in names] == [False, *[True] * (len(names) - 1)]
    turn = Turn(problem.operator, FLOAT, "cpu", CHECKED)
    found = [each for _, each in sequences(changing("same"), turn, names, None)]
    assert [each.asked for each in found] == [each.engine != names[0] for each in found]
