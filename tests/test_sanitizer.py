"""The sanitizer: each C program under tests/sanitizer has a fault, which is found, and a sound twin, where nothing is.

A file NAME.c has `void program(bool faulty)`, which is sound otherwise; its first line is `/* RULE[, RULE...]: why */`. All files are compiled
into one program, which runs all of them faulty in one process and all of them sound in another; a finding belongs to the program by whose
function it was called (or its object created).
"""

from __future__ import annotations

import gc
import json
import os
import re
import subprocess
import sys
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import openaclnn
from conftest import run_python
from openaclnn import acl, aclnn, pyacl
from openaclnn.cli import main
from openaclnn.core.dtypes import FLOATS
from openaclnn.core.interop import as_tensor
from openaclnn.core.products import current_product
from openaclnn.sanitizer import Finding, Settings, events, sanitize
from openaclnn.sanitizer.findings import RULES
from openaclnn.sanitizer.values import all_finite, finite_in_place
from openaclnn.testing.build import call_of
from openaclnn.testing.calls import run_through
from test_capi_tools import CACHE, ROOT, STRICT, installed

FOLDER = ROOT / "tests" / "sanitizer"
# Nothing may have been initialised before the first one, and the last one finalises at the program's end.
FIRST, LAST = "call_before_init", "leak_at_exit"
NAMES = sorted(
    (path.stem for path in FOLDER.glob("*.c")), key=lambda name: (name != FIRST, name == LAST, name)
)


def expected(name: str) -> list[str]:
    """What the first line of a program says."""
    first = (FOLDER / f"{name}.c").read_text().partition("\n")[0]
    rules = re.match(r"/\* ([a-z, -]+):", first)
    assert rules, first
    return sorted(rule.strip() for rule in rules[1].split(","))


def main_source() -> str:
    """All programs in one, which runs those that it is told the names of."""
    parts = [f'#define program program_{n}\n#include "{n}.c"\n#undef program\n' for n in NAMES]
    table = "".join(f'    {{"{n}", program_{n}}},\n' for n in NAMES)
    return "".join(parts) + (
        "#include <string.h>\n"
        "static const struct { const char *name; void (*run)(bool); } programs[] = {\n"
        f"{table}}};\n"
        "int main(int count, char **words)\n{\n"
        "    for (int i = 2; i < count; i++)\n"
        "        for (size_t j = 0; j < sizeof programs / sizeof *programs; j++)\n"
        "            if (strcmp(words[i], programs[j].name) == 0)\n"
        '                programs[j].run(strcmp(words[1], "faulty") == 0);\n'
        "    return 0;\n}\n"
    )


def compiled(folder: Path) -> Path:
    (folder / "main.c").write_text(main_source())
    installation = installed()
    done = subprocess.run(
        ["cc", "-std=c11", "-g", "-O0", *STRICT, f"-I{FOLDER}", str(folder / "main.c"), *installation.cflags, *installation.libs, "-pthread",
         "-o", str(folder / "program")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / "program"


def run(program: Path, which: str, environment: Mapping[str, str]) -> list[dict[str, Any]]:
    report = program.parent / f"{which}.json"
    done = subprocess.run(
        [str(program), which, *NAMES], capture_output=True, text=True, timeout=120, check=False,
        env={"OPENACLNN_CACHE_DIR": str(CACHE), **environment, "OPENACLNN_SANITIZE": f"json:{report},product=a2"},
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    findings: list[dict[str, Any]] = json.loads(report.read_text())["findings"]
    return findings


def whose(finding: dict[str, Any]) -> str:
    """The program that a finding is about."""
    sites = [*(event["site"] for event in finding["history"]), finding["site"]]
    for frame in (frame for site in sites for frame in site):
        if frame["function"].startswith("program_"):
            return str(frame["function"].removeprefix("program_"))
    return "?"


def check_programs(folder: Path, environment: Mapping[str, str]) -> None:
    """All programs, in an environment that may name a device; `tests/gpu_sanitizer.py` names a GPU."""
    program = compiled(folder)
    rules: dict[str, list[str]] = {name: [] for name in NAMES}
    for finding in run(program, "faulty", environment):
        rules.setdefault(whose(finding), []).append(finding["rule"])
    assert {name: sorted(each) for name, each in rules.items()} == {
        name: expected(name) for name in NAMES
    }
    assert run(program, "sound", environment) == []


def test_faults_are_found_and_nothing_else(tmp_path: Path) -> None:
    check_programs(tmp_path, {})


def rules_of(findings: list[Finding]) -> list[str]:
    return [finding.rule for finding in findings]


@pytest.fixture
def runtime() -> Iterator[None]:
    assert acl.aclInit(None) == 0
    assert acl.aclrtSetDevice(0) == 0
    yield
    acl.aclFinalize()
    acl.aclGetRecentErrMsg()


def test_places_end_with_the_program() -> None:
    """Whatever the C library's functions that called it are told to be called: on AArch64, without debug symbols, one beside them."""
    program = [events.Frame("elu(void*, float)", "faults.cpp", 26), events.Frame("main", "faults.cpp", 43)]  # fmt: skip
    sorting = [program[0], events.Frame("qsort", "/lib/libc.so.6+0x40", 0), program[1]]
    library = [events.Frame(name, "/lib/libc.so.6+0x27743", 0) for name in ("__libc_init_first", "__libc_start_main")]  # fmt: skip
    start = events.Frame("_start", "/tmp/program+0x8", 0)
    for frames in (program, sorting, []):
        for behind in ([*library, start], library[::-1], library[:1], [start], []):
            assert events._of_program([*frames, *behind]) == frames


@pytest.mark.usefixtures("runtime")
def test_a_part_of_a_python_program_is_watched() -> None:
    """Functions are exchanged inside alone; objects of before and after are nobody's leak, and nothing is kept alive."""
    original = acl.aclrtMalloc, aclnn.aclnnEluBackward
    x = np.ones(4, np.float32)
    number = acl.aclCreateScalar(1.0, acl.ACL_FLOAT)
    arguments = (x, number, number, number, False, x, np.zeros_like(x))
    with sanitize(suppressions=["executor-never-run"]) as findings:
        for _ in range(2):  # the same fault at the same place is told once
            assert acl.aclrtMalloc is not original[0]
            acl.aclCreateFloatArray([1.0])
            scalar = acl.aclCreateScalar(2.0, acl.ACL_FLOAT)
            status, size, executor = aclnn.aclnnEluBackwardGetWorkspaceSize(*arguments)
            assert (status, size) == (0, 512)
            assert aclnn.aclnnEluBackward(None, 0, executor, None) == 0
            assert aclnn.aclnnEluBackward(bytearray(size), size, executor, None) == 561103
            aclnn.aclnnEluBackwardGetWorkspaceSize(*arguments)
            with sanitize() as inner:
                acl.aclDestroyScalar(scalar)
                acl.aclDestroyScalar(scalar)
            assert rules_of(inner) == ["double-destroy"]
    assert (acl.aclrtMalloc, aclnn.aclnnEluBackward) == original
    assert rules_of(findings) == [
        "workspace-too-small", "executor-reused", "double-destroy", "leak",
    ]  # fmt: skip
    reused = findings[1]
    assert reused.call is not None
    assert (reused.call.name, reused.argument) == ("aclnnEluBackward", "executor")
    assert [word for word, _ in reused.history] == [
        "created by aclnnEluBackwardGetWorkspaceSize", "run by aclnnEluBackward",
    ]  # fmt: skip
    frame = reused.call.site.frames[0]
    assert (frame.file, frame.function) == (__file__, "test_a_part_of_a_python_program_is_watched")
    alive = weakref.ref(x)
    del x, arguments, executor
    gc.collect()
    assert alive() is None


@pytest.mark.usefixtures("runtime")
def test_programs_of_pyacl_are_watched() -> None:
    with sanitize() as findings:
        stream, status = pyacl.rt.create_stream()
        assert status == 0
        assert pyacl.rt.destroy_stream(stream) == 0
        assert pyacl.rt.destroy_stream(stream) != 0
    assert rules_of(findings) == ["double-destroy"]


@pytest.mark.usefixtures("runtime")
def test_examples_of_all_operators_are_sound() -> None:
    with openaclnn.use_engine("numpy"), sanitize() as findings:
        for operator in openaclnn.registry():
            built = call_of(operator, operator.samples[0].arrays(), current_product())
            assert run_through("two-phase", built) == (0, "")
    assert findings == []


def test_one_row_of_an_ignored_target() -> None:
    """Of whose mean one product gives 0 and the others NaN."""
    operator = openaclnn.find_operator("nll_loss")
    values = {
        "self": np.zeros(3, np.float32),
        "target": np.array(1),
        "weight": np.ones(3, np.float32),
        "ignore_index": 1,
    }
    for product, reduction, wanted in (
        ("950", "mean", True),
        ("950", "sum", False),
        ("a2", "mean", False),
    ):
        built = call_of(operator, values | {"reduction": reduction}, current_product())
        with sanitize(product=product) as findings:
            assert run_through("two-phase", built)[0] == 0
        assert wanted == any("gives 0" in each.message for each in findings)


def test_values_are_looked_at_where_they_are() -> None:
    """By a kernel, as on a GPU, and as the host does it."""
    generator = np.random.default_rng(1)
    for dtype in FLOATS:
        for bad in (0.0, 3e38, np.nan, np.inf, -np.inf):
            with np.errstate(over="ignore"):
                x = generator.normal(size=(5, 4, 3)).astype(dtype.numpy)
                x[4, 1, 2] = bad
            for view in (x, x[..., 2], x[::2], x[::3], x[4, 1, 2]):
                expected = bool(np.isfinite(view.astype(np.float32)).all())
                tensor = as_tensor(view)
                assert (all_finite(tensor), finite_in_place(tensor)) == (expected, expected)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("0", None), ("1", Settings(text=True)), ("json:a.json", Settings(json="a.json")), ("exitcode=3", Settings(text=True, exitcode=3)),
        ("1,json:a,exitcode=9", Settings(text=True, json="a", exitcode=9)),
        ("1,suppress=leak,double-destroy,product=910b", Settings(text=True, suppress=frozenset({"leak", "double-destroy"}), product="910b")),
        ("1,workspace=0", Settings(text=True, workspace=0)),
        ("yes", "expected 1, json:FILE, .* got 'yes'"), ("1,suppress=leek", "suppress: expected any of .*, got 'leek'"),
        ("1,exitcode=x", "exitcode: expected a number, got 'x'"), ("json:/nowhere/a", "json: expected a file that can be written, got '/nowhere/a'"),
    ],
)  # fmt: skip
def test_settings(text: str, wanted: Any) -> None:
    if isinstance(wanted, str):
        with pytest.raises(ValueError, match=wanted):
            Settings.parse(text)
    else:
        assert Settings.parse(text) == wanted


PROGRAM = """
import sys
from openaclnn import acl
assert acl.aclInit(sys.argv[1]) == 0
acl.aclrtSetDevice(0)
acl.aclrtCreateStream()
acl.aclrtResetDevice(0)
acl.aclFinalize()
print("done")
"""


def test_a_configuration_file_and_the_command_switch_it_on(tmp_path: Path, capfd: Any) -> None:
    script, config = tmp_path / "script.py", tmp_path / "acl.json"
    script.write_text(PROGRAM)
    config.write_text(json.dumps({"openaclnn": {"sanitize": "1,exitcode=3"}}))
    done = subprocess.run(
        [sys.executable, str(script), str(config)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (3, "done\n")
    assert done.stderr == (
        "openaclnn sanitizer: leak: a stream is never destroyed; aclrtResetDevice took it away\n"
        f"    created by aclrtCreateStream at <module> ({script}:6)\n"
        f"    taken away by aclrtResetDevice at <module> ({script}:7)\n"
        "openaclnn sanitizer: 1 finding: 1 leak\n"
    )
    config.write_text("{}")
    assert main(["sanitize", str(script), str(config)]) == 1
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == (
        f"done\n1 finding\n  1 leak: {RULES['leak']}\n",
        done.stderr,
    )
    assert main(["sanitize", "--json", "--suppress", "leak", str(script), str(config)]) == 0
    assert capfd.readouterr().out.startswith("done\n{")
    config.write_text(json.dumps({"openaclnn": {"sanitize": "yes"}}))
    assert acl.aclInit(str(config)) == acl.ACL_ERROR_FILE_ATTR_INVALID


def test_a_process_that_is_not_watched_pays_nothing() -> None:
    """Its functions are those of a process without a sanitizer, which is not even there."""
    code = (
        "import sys, numpy, openaclnn\n"
        "from openaclnn import acl, aclnn\n"
        "acl.aclInit(None), openaclnn.elu(numpy.ones(4, 'f')), acl.aclFinalize()\n"
        "before = {**vars(acl), **vars(aclnn)}\n"
        "assert not [name for name in sys.modules if 'sanitizer' in name]\n"
        "from openaclnn.sanitizer import sanitize\n"
        "for _ in range(2):\n"
        "    after = {**vars(acl), **vars(aclnn)}\n"
        "    assert all(after[name] is before[name] for name in before)\n"
        "    with sanitize():\n"
        "        assert acl.aclrtMalloc is not before['aclrtMalloc']\n"
    )
    run_python(code)
    done = subprocess.run(
        [sys.executable, "-c", "import openaclnn"],
        env={**os.environ, "OPENACLNN_SANITIZE": "yes"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("ValueError: OPENACLNN_SANITIZE: expected 1, ")


def test_every_rule_has_a_program_and_a_row_on_the_page() -> None:
    shown = {rule for name in NAMES for rule in expected(name)}
    assert shown == RULES.keys() - {"sanitizer-failure"}
    page = (ROOT / "docs" / "sanitizer.md").read_text()
    assert [rule for rule, text in RULES.items() if f"\n| `{rule}` | {text} | " not in page] == []
