"""The sanitizer: each C program under tests/sanitizer has a fault, which is found, and a sound twin, where nothing is.

A file NAME.c has `void faulty(void)` and `void sound(void)`; its first line is `/* RULE[, RULE...]: why */`. All files are compiled into one
program, which runs all the faulty ones in one process and all the sound ones in another; a finding belongs to the program by whose
function it was called (or its object created).
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

from openaclnn.sanitizer.findings import RULES
from test_capi_tools import CACHE, ROOT, STRICT, installed

FOLDER = ROOT / "tests" / "sanitizer"
FIRST = ("call_before_init",)  # nothing may have been initialised before
NAMES = sorted(
    (path.stem for path in FOLDER.glob("*.c")), key=lambda name: (name not in FIRST, name)
)


def expected(name: str) -> list[str]:
    """What the first line of a program says."""
    first = (FOLDER / f"{name}.c").read_text().partition("\n")[0]
    rules = re.match(r"/\* ([a-z, -]+):", first)
    assert rules, first
    return sorted(rule.strip() for rule in rules[1].split(","))


def main_source() -> str:
    """All programs in one, which runs those that it is told the names of."""
    parts = [
        f'#define faulty faulty_{n}\n#define sound sound_{n}\n#include "{n}.c"\n#undef faulty\n#undef sound\n'
        for n in NAMES
    ]
    table = "".join(f'    {{"{n}", faulty_{n}, sound_{n}}},\n' for n in NAMES)
    return "".join(parts) + (
        "#include <string.h>\n"
        "static const struct { const char *name; void (*faulty)(void), (*sound)(void); } programs[] = {\n"
        f"{table}}};\n"
        "int main(int count, char **words)\n{\n"
        "    for (int i = 2; i < count; i++)\n"
        "        for (size_t j = 0; j < sizeof programs / sizeof *programs; j++)\n"
        "            if (strcmp(words[i], programs[j].name) == 0)\n"
        '                (strcmp(words[1], "faulty") == 0 ? programs[j].faulty : programs[j].sound)();\n'
        "    return 0;\n}\n"
    )


def compiled(folder: Path) -> Path:
    (folder / "main.c").write_text(main_source())
    found = installed()
    done = subprocess.run(
        ["cc", "-std=c11", "-g", "-O0", *STRICT, f"-I{FOLDER}", str(folder / "main.c"), *found.cflags, *found.libs, "-pthread",
         "-o", str(folder / "program")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / "program"


def run(program: Path, which: str, *names: str) -> list[dict[str, Any]]:
    report = program.parent / f"{which}.json"
    done = subprocess.run(
        [str(program), which, *names], capture_output=True, text=True, timeout=120, check=False,
        env={"OPENACLNN_CACHE_DIR": str(CACHE), "OPENACLNN_SANITIZE": f"json:{report},product=a2"},
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    findings: list[dict[str, Any]] = json.loads(report.read_text())["findings"]
    return findings


def whose(finding: dict[str, Any]) -> str:
    """The program that a finding is about."""
    sites = [*(event["site"] for event in finding["history"]), finding["site"]]
    for frame in (frame for site in sites for frame in site):
        if frame["function"].startswith("faulty_"):
            return str(frame["function"].removeprefix("faulty_"))
    return "?"


def test_faults_are_found_and_nothing_else(tmp_path: Path) -> None:
    program = compiled(tmp_path)
    rules: dict[str, list[str]] = {name: [] for name in NAMES}
    for finding in run(program, "faulty", *NAMES):
        rules.setdefault(whose(finding), []).append(finding["rule"])
    assert {name: sorted(each) for name, each in rules.items()} == {
        name: expected(name) for name in NAMES
    }
    assert run(program, "sound", *NAMES) == []


def test_every_rule_has_a_program() -> None:
    shown = {rule for name in NAMES for rule in expected(name)}
    assert shown == RULES.keys() - {"sanitizer-failure"}
