"""A machine that runs at two speeds: what is timed in the same rounds, what is timed again, what is kept. Clocks are made up."""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from openaclnn import cli
from openaclnn.bench import calls
from openaclnn.bench.calls import call_cases
from openaclnn.bench.reports import disturbances, report_page, sheet, terminal_tables
from openaclnn.bench.runner import Settings, run
from openaclnn.bench.timing import (
    AGAIN,
    BESIDE,
    TOLERATED,
    YARDSTICK,
    Bench,
    Case,
    Contender,
    Sample,
    Steady,
    Timing,
)
from openaclnn.cli import bench as command
from openaclnn.cli.bench import tabulated
from openaclnn.core.dtypes import FLOAT

QUICK, SLOW = 30.0, 45.0  # yardsticks


@dataclass
class Machine:
    """Runs cases as it is told: of each the attempts in turn, as (yardstick, disturbed); then the last one again. A run takes a second. From the attempt in `wrong` on a case is wrong."""

    told: dict[str, list[tuple[float, bool]]]
    wrong: dict[str, int] = field(default_factory=dict)
    now: float = 0.0
    log: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)

    def run(self, case: str) -> list[dict[str, Any]]:
        self.now += 1.0
        self.log.append(case)
        attempt = self.log.count(case) - 1
        steps, noisy = self.told[case][min(attempt, len(self.told[case]) - 1)]
        # Each attempt's contender is quicker than that of the one before: nobody may look at that.
        status = "ok" if attempt < self.wrong.get(case, 99) else "WRONG"
        row = {"case": case, "attempt": attempt, "status": status, "median_us": 1.0 / (1 + attempt)}
        return [row | {"yardstick_us": steps, "disturbed": noisy, "n": n} for n in range(2)]

    def follow(self, items: Sequence[Any], label: str) -> Iterator[Any]:
        self.labels.append(f"{label}: {len(items)}")
        yield from items

    def rows(self, seconds: float | None = None) -> list[dict[str, Any]]:
        steady = Steady(self.follow, seconds, lambda: self.now)
        rows = steady.rows(list(self.told), self.run, "cases")
        steady.mark(rows)
        return rows


def kept(rows: Sequence[dict[str, Any]]) -> dict[str, tuple[int, int, bool]]:
    """Of each case the attempt that is told, how many there were, and whether it is marked as slow."""
    return {row["case"]: (row["attempt"], row["attempts"], row["slow"]) for row in rows}


def test_what_met_a_slow_machine_is_timed_again_later() -> None:
    machine = Machine(
        {
            "slow": [(SLOW, False), (QUICK, False)],
            "good": [(QUICK, False)],
            "tolerated": [(QUICK * TOLERATED * 0.999, False)],
            "disturbed": [(QUICK, True), (QUICK, True), (QUICK, False)],
        }
    )
    rows = machine.rows()
    first = ["slow", "good", "tolerated", "disturbed"]
    assert machine.log == [*first, "slow", "disturbed", "disturbed"]
    assert machine.labels == ["cases: 4", "cases, again: 2", "cases, again: 1"]
    assert [row["case"] for row in rows[::2]] == list(machine.told)  # in their order, all rows
    assert [row["n"] for row in rows] == [0, 1] * 4
    assert kept(rows) == {
        "slow": (1, 2, False), "good": (0, 1, False), "tolerated": (0, 1, False), "disturbed": (2, 3, False),
    }  # fmt: skip


def test_the_attempt_is_chosen_by_the_yardstick_and_the_mark_alone() -> None:
    """Not by the times of contenders, which here are the shorter the later."""
    machine = Machine(
        {
            "good": [(QUICK, False)],
            "slower and slower": [(SLOW + n, False) for n in range(AGAIN + 1)],
            "slow or disturbed": [(SLOW + 2, False), (QUICK, True), (SLOW, False), (SLOW + 1, False)],
            "disturbed": [(SLOW, True), (SLOW - 1, True), (SLOW, True)],
        }
    )  # fmt: skip
    assert kept(machine.rows(math.inf)) == {
        "good": (0, 1, False),
        "slower and slower": (0, 1 + AGAIN, True),
        "slow or disturbed": (2, 1 + AGAIN, True),
        "disturbed": (1, 1 + AGAIN, True),
    }


def test_a_wrong_result_is_told_whatever_the_machine_did() -> None:
    told = {"good": [(QUICK, False)], "at once": [(SLOW, True), (QUICK, False)]}
    told["later"] = [(SLOW, False), (SLOW, True), (QUICK, False)]
    machine = Machine(told, wrong={"at once": 0, "later": 1})
    rows = machine.rows()
    assert kept(rows) == {"good": (0, 1, False), "at once": (0, 1, True), "later": (1, 2, True)}
    assert [row["status"] for row in rows[::2]] == ["ok", "WRONG", "WRONG"]


def test_a_quicker_yardstick_later_makes_what_came_before_slow() -> None:
    machine = Machine(
        {"first": [(SLOW, False), (QUICK, False)], "second": [(SLOW, True), (QUICK, False)]}
    )
    assert kept(machine.rows(10.0)) == {"first": (1, 2, False), "second": (1, 2, False)}
    assert machine.log == ["first", "second", "second", "first"]


def test_sections_share_the_quickest_yardstick_and_are_marked_at_the_end() -> None:
    machine = Machine({"calls": [(SLOW, False)], "overrides": [(QUICK, False)]})
    steady = Steady(machine.follow, clock=lambda: machine.now)
    first = steady.rows(["calls"], machine.run, "x")
    rows = first + steady.rows(["overrides"], machine.run, "y") + steady.rows([], machine.run, "z")
    steady.mark(rows)
    assert kept(rows) == {"calls": (0, 1, True), "overrides": (0, 1, False)}


@pytest.mark.parametrize(
    ("seconds", "again"), [(None, 10), (3.0, 3), (0.0, 0), (1000.0, 9 * AGAIN)]
)
def test_timing_again_takes_no_longer_than_is_allowed(seconds: float | None, again: int) -> None:
    """Without a number as long as the section took."""
    told = {"good": [(QUICK, False)]} | {f"slow {n}": [(SLOW, False)] for n in range(9)}
    machine = Machine(told)
    rows = machine.rows(seconds)
    assert len(machine.log) == len(told) + again
    assert sum(row["attempts"] for row in rows[::2]) == len(machine.log)


def text_of(results: dict[str, Any]) -> str:
    """All tables, as Markdown."""
    return "\n".join(table.markdown() for table in terminal_tables(results))


@functools.cache
def case_of_each_regime() -> dict[str, Case]:
    return {case.regime: case for case in reversed(call_cases((FLOAT,)))}


def rows_of(regime: str, clock: Any, rounds: int) -> list[dict[str, Any]]:
    """Two calls a sample, on arrays alone."""
    case, bench = (
        case_of_each_regime()[regime],
        Bench("cpu", ["numpy"], None, clock, rounds, named=True),
    )
    rows: list[dict[str, Any]] = case.runner(case, bench, per_turn=2)  # type: ignore[call-arg]
    return rows


class Counting:
    """A clock that makes the calls, and has seen which samples there were."""

    warm_seconds = 0.0

    def __init__(self) -> None:
        self.samples: list[int] = []

    def sample(
        self, call: Callable[[], Any], inner: int, before: Callable[[], Any] = lambda: None
    ) -> Sample:
        before()
        for _ in range(inner):
            call()
        self.samples.append(inner)
        return Sample(2.0, 3.0)


@pytest.mark.parametrize(
    ("regime", "ours", "usual"),
    [
        ("same", 2, None), ("new sizes", 2, 2), ("in place", 2, 2), ("refusal", 2, 2), ("two-phase", 2, 2),
        ("kinds in a row", 16, None), ("kinds in turn", 16, 16), ("first of a kind", 1, 16),
    ],
)  # fmt: skip
def test_every_round_has_what_it_is_compared_with_and_a_yardstick(
    regime: str, ours: int, usual: int | None
) -> None:
    """Contenders, as many of ours that do what they are compared with, and the yardstick, four calls."""
    clock = Counting()
    rows = rows_of(regime, clock, 3)
    expected = [ours] * len(rows) + ([] if usual is None else [usual] * len(rows)) + [4]
    assert len(clock.samples) == 3 * len(expected)
    for start in range(0, len(clock.samples), len(expected)):
        assert sorted(clock.samples[start : start + len(expected)]) == sorted(expected)
    assert all(row["status"] == "ok" and row["of_same"] == 1.0 for row in rows)
    assert all(row["yardstick_us"] == 3e6 for row in rows)  # the host's
    assert not any(BESIDE in row["contender"] or row["contender"] == YARDSTICK for row in rows)


def test_calls_are_compared_with_others_of_the_same_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's speed changes from round to round, and the ratio does not."""

    def changing(contenders: Sequence[Contender], *_: Any) -> dict[str, Timing]:
        def samples(seconds: float) -> dict[int, Sample]:
            return {n: Sample(seconds * speed, 0.0) for n, speed in enumerate((1.0, 9.0, 4.0))}

        return {
            each.name: Timing(1, 3, 0, samples(2.0 if each.name.endswith(BESIDE) else 3.0))
            for each in contenders
        }

    monkeypatch.setattr("openaclnn.bench.timing.interleave", changing)
    for regime, expected in (("kinds in turn", 1.5), ("new layout", 1.5), ("same", 1.0)):
        rows = rows_of(regime, Counting(), 3)
        assert [row["of_same"] for row in rows] == [expected] * len(rows), regime


def test_without_the_calls_that_it_is_compared_with_a_case_is_still_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are wrong here, and are not timed."""
    right = calls.find_fault

    def same_is_wrong(*arguments: Any) -> str:
        return "it is wrong" * (arguments[0].name == "same") or right(*arguments)

    monkeypatch.setattr(calls, "find_fault", same_is_wrong)
    rows = rows_of("new sizes", Counting(), 1)
    assert all(row["status"] == "ok" and row["of_same"] is None for row in rows)


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    only = tuple(case_of_each_regime()[regime].title for regime in ("same", "new sizes"))
    return run(
        Settings(
            rounds=1, sections=("calls",), dtypes=(FLOAT,), engines=("numpy",), only=only, use_torch=False,
            again_seconds=0,
        )
    )  # fmt: skip


def test_cases_that_stayed_slow_are_marked(results: dict[str, Any]) -> None:
    assert all(row["attempts"] == 1 and row["yardstick_us"] > 0 for row in results["rows"])
    assert any(row["slow"] is False for row in results["rows"])  # the quickest of the run
    quiet = {"disturbed": False, "slow": False}
    still = results | {"rows": [row | quiet for row in results["rows"]]}
    assert disturbances(still) == []
    assert ", FLOAT |" in text_of(still)
    slow = [row | {"slow": row["regime"] == "same"} for row in still["rows"]]
    noted = results | {"rows": slow}
    assert disturbances(noted) == ["1 of 2 cases (~) were timed while the machine was slow"]
    text = text_of(noted)
    assert f"<strong>{disturbances(noted)[0]}</strong>" in report_page([noted], [{}])
    assert re.search(r", same, .*FLOAT ~ \|", text)
    assert "new sizes" in text
    both = results | {"rows": [row | {"disturbed": True} for row in slow]}
    assert re.search(r", same, .*FLOAT ! ~ \|", text_of(both))
    assert len(disturbances(both)) == 2
    assert all(tabulated(table) for table in terminal_tables(both))


def test_results_of_before_there_was_a_yardstick_are_read(
    results: dict[str, Any], tmp_path: Path, capsys: Any
) -> None:
    new = {"yardstick_us", "slow", "attempts"}
    rows = [{key: row[key] for key in row if key not in new} for row in results["rows"]]
    assert all(
        row.keys() | new == now.keys() for row, now in zip(rows, results["rows"], strict=True)
    )
    source, page = tmp_path / "old.json", tmp_path / "page.html"
    old = results | {"rows": [row | {"disturbed": False} for row in rows]}
    source.write_text(json.dumps(old))
    table = tmp_path / "cases.csv"
    options = ["--from", str(source), "--html", str(page), "--csv", str(table)]
    assert cli.main(["bench", *options]) == 0
    assert re.search(r", same, .*FLOAT \|", text_of(old))
    assert not capsys.readouterr().err
    assert "slow" in sheet([results]).splitlines()[0]
    apart = results | {"rows": [{"operator": "elu"}], "calls": rows}  # before all were one list
    source.write_text(json.dumps(apart))
    assert cli.main(["bench", "--from", str(source)]) == 2
    assert "no results of this command" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "expected"),
    [([], None), (["--quick"], 0), (["--quick", "--again", "5"], 5), (["--again", "0"], 0)],
)
def test_how_long_cases_may_be_timed_again_is_an_option(
    options: list[str],
    expected: float | None,
    monkeypatch: pytest.MonkeyPatch,
    results: dict[str, Any],
) -> None:
    asked: list[Settings] = []
    monkeypatch.setattr(command, "run", lambda settings, _: asked.append(settings) or results)
    assert cli.main(["bench", *options]) == 0
    assert [each.again_seconds for each in asked] == [expected]
    for wrong in ("-1", "nan"):
        assert cli.main(["bench", "--again", wrong]) == 2
