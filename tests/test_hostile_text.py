"""Text and files from anywhere: terminals and spreadsheets do not obey them, and no file is read without bound."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest

from openaclnn.cli import main
from openaclnn.cli.say import say, table
from openaclnn.core.writing import cell_of, neutral
from openaclnn.testing.files import FileError, read_whole

EVIL = "\x1b]0;owned\x07\x9b31m\u202egnp\r\x7f"
SHOWN = r"\u001b]0;owned\u0007\u009b31m\u202egnp\u000d\u007f"


def is_clean(text: str) -> bool:
    return neutral(text) == text


def listed(folder: Path, *names: str) -> Path:
    """An ATK list of cases with these names, none of which can be run."""
    path = folder / "cases.json"
    cases = [{"name": n, "aclnn_name": "aclnnEluBackward", "inputs": [n]} for n in names]
    path.write_text(json.dumps(cases))
    return path


def test_control_characters_are_shown_and_not_obeyed() -> None:
    assert neutral(EVIL) == SHOWN
    assert json.loads(f'"{neutral(EVIL)}"') == EVIL
    plain = "tab\tline\nä 中文 \N{GRINNING FACE} e\u0301"
    assert neutral(plain) == plain


@pytest.mark.parametrize("options", [[], ["--json"], ["--all"]])
def test_names_of_cases_do_not_reach_the_terminal_as_they_are(
    tmp_path: Path, capsys: Any, options: list[str]
) -> None:
    assert main(["cases", str(listed(tmp_path, EVIL)), *options]) == 3
    told = capsys.readouterr()
    assert is_clean(told.out)
    assert is_clean(told.err)
    if "--json" in options:
        assert EVIL in [each["name"] for each in json.loads(told.out)["cases"]]
    else:
        assert SHOWN in told.out


def test_a_terminal_gets_our_colours_alone(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    say(table((EVIL,), [("passed",), ("\x1b[31mred\x1b[2J",)]))
    told = capsys.readouterr().out
    assert "\x1b[32m" in told  # of the word passed
    assert is_clean(re.sub(r"\x1b\[[0-9;]*m", "", told))
    assert "\x1b[31m" not in told
    assert r"\u001b[31mred\u001b[2J" in told


def test_names_in_refusals_do_not_either(tmp_path: Path, capsys: Any) -> None:
    assert main(["check", "elu_backward", "--file", str(tmp_path / EVIL)]) == 2
    path = tmp_path / "call.json"
    path.write_text(json.dumps({"arguments": {EVIL: "float16:2x3"}}))
    assert main(["check", "elu_backward", "--file", str(path)]) == 2
    assert main(["cases", str(tmp_path / f"{EVIL}.csv")]) == 2
    told = capsys.readouterr()
    assert told.err.count("\n") == 3
    assert is_clean(told.out + told.err)


def test_cells_are_no_formulas(tmp_path: Path, capsys: Any) -> None:
    names = ["=1+1", "+cmd", "-cmd", "@SUM(A1)", "\tx", "\rx", "plain", "-1.5"]
    results = tmp_path / "results.csv"
    assert main(["cases", str(listed(tmp_path, *names)), "--csv", str(results)]) == 3
    with results.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == ["'" + n for n in names[:6]] + names[6:]
    assert not [c for row in rows for c in row.values() if c[:1] in ("=", "@", "\t", "\r")]
    for number in ("-1", "-1.5e-7", "-inf", "+3"):
        assert cell_of(number) == number
    assert cell_of("-x") == "'-x"
    assert cell_of(-2.5) == "-2.5"


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="there is no such device")
def test_devices_are_not_read(tmp_path: Path, capsys: Any) -> None:
    link = tmp_path / "zero"
    for suffix in (".json", ".csv", ".xlsx", ".yaml"):
        link.with_suffix(suffix).symlink_to("/dev/zero")
    for words in (
        ["check", "elu_backward", "--file", "/dev/zero"],
        ["check", "elu_backward", "--file", str(link.with_suffix(".yaml"))],
        ["golden", "--from", str(link.with_suffix(".json")), "--out", str(tmp_path / "out")],
        ["bench", "--from", str(link.with_suffix(".json"))],
        *(["cases", str(link.with_suffix(suffix))] for suffix in (".json", ".csv", ".xlsx")),
    ):
        assert main(words) == 2, words
        told = capsys.readouterr().err
        assert told.startswith("openaclnn: ")
        assert told.count("\n") == 1
        assert told.endswith(": a device, where a file is expected\n"), told


def test_what_is_too_large_is_not_read(tmp_path: Path, capsys: Any) -> None:
    large = tmp_path / "large.json"
    with large.open("wb") as file:
        file.truncate(1 << 40)  # without a byte on the disk
    assert main(["check", "elu_backward", "--file", str(large)]) == 2
    assert "large.json: more than 1,048,576 bytes, which are not read" in capsys.readouterr().err
    assert main(["cases", str(large)]) == 2
    assert "large.json: more than 268,435,456 bytes" in capsys.readouterr().err


def test_pipes_are_read_up_to_the_bound(tmp_path: Path) -> None:
    for count, whole in ((100, True), (1000, False)):
        pipe = tmp_path / f"pipe{count}"
        os.mkfifo(pipe)
        writer = threading.Thread(target=pipe.write_bytes, args=(bytes(count),))
        writer.start()
        if whole:
            assert read_whole(pipe, 500) == bytes(count)
        else:
            with pytest.raises(FileError, match="more than 500 bytes"):
                read_whole(pipe, 500)
        writer.join()
    command = [sys.executable, "-m", "openaclnn", "check", "elu_backward", "--file", "/dev/stdin"]
    text = json.dumps({"arguments": {"grad_output": "float16:2x3", "self_or_result": "float16:2x3"}})  # fmt: skip
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_workbook_that_unpacks_to_too_much_is_not_read(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("openpyxl")
    monkeypatch.setattr("openaclnn.testing.cases.ttk._LARGEST_UNPACKED", 1 << 24)
    path = tmp_path / "bomb.xlsx"
    name = "xl/sharedStrings.xml"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as book, book.open(name, "w") as part:
        for _ in range(17):
            part.write(bytes(1 << 20))
    assert main(["cases", str(path)]) == 2
    assert "bytes unpacked; at most" in capsys.readouterr().err
