"""The guide of CONTRIBUTING.md is true: what it lists, laid into a copy of the project, makes new operators: an elementwise one, and one of
rows along an axis.

Nothing but what the guide lists is laid: a step that it forgets fails here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openaclnn.core.trust import cache_folder
from test_capi_tools import CACHE, STANDARDS, STRICT

PROJECT = Path(__file__).parent.parent
GIVEN = PROJECT / "tests" / "new_operator"
GUIDE = (PROJECT / "CONTRIBUTING.md").read_text(encoding="utf-8")
FILES = re.findall(r"^\d\. \*\*`((?:src|tests)/\S+\.py)`\*\*", GUIDE, re.M)
PARTS = ("src", "tests", "benchmarks", "tools", "docs", "examples")


def lay(project: Path, files: list[str]) -> None:
    """A copy of the project with some files more and the guide's line; what Python compiled of the others is theirs, too."""
    for part in PARTS:
        # But not what another process is about to rename.
        shutil.copytree(PROJECT / part, project / part, ignore=shutil.ignore_patterns("*.pyc.*"))
    for path in PROJECT.iterdir():
        if path.suffix in (".md", ".toml") or path.name == "Makefile":
            shutil.copy(path, project)
    for name in files:
        shutil.copy(GIVEN / name, project / name)
    for place, line in re.findall(r"^\d\. \*\*One line\*\* in `(\S+)`.*: `(\w+,)`$", GUIDE, re.M):
        head, *names = re.split(r"\n(?=    \w+,\n)", (project / place).read_text())
        last, _, tail = names[-1].partition("\n")
        ordered = "\n".join(sorted([*names[:-1], last, f"    {line}"]))
        (project / place).write_text(f"{head}\n{ordered}\n{tail}")


class Copy:
    """A project in a folder of its own, and a way to run Python there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache = folder / CACHE.name
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(folder / "src"),
            "OPENACLNN_CACHE_DIR": str(self.cache),
            "TMPDIR": str(folder),
        }

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *command], cwd=self.folder, env=self.environment | environment,
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    def python(self, *command: str, **environment: str) -> str:
        """What a command prints; it must succeed."""
        done = self.run(*command, **environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """The project with a new operator, after the generating half of `make format`."""
    folder = tmp_path_factory.mktemp("new")
    lay(folder, FILES)
    copied = Copy(folder)
    # Kernels are known by their code: those that the project has compiled so far serve the copy, too.
    known = cache_folder()
    copied.cache.mkdir(mode=0o700)
    for path in known.glob("*.o") if known is not None else ():
        try:
            os.link(path, copied.cache / path.name)  # they may be many
        except OSError:  # on another file system
            shutil.copy2(path, copied.cache)
    recipe = re.search(r"^format:.*\n((?:\t.*\n)+)", (folder / "Makefile").read_text(), re.M)
    assert recipe is not None
    tools = re.findall(r"python -m (tools\.\w+)", recipe[1])
    assert tools
    for tool in tools:
        copied.python("-m", tool)
    return copied


def test_the_guide_lists_four_files_each_and_they_are_all_there_is() -> None:
    sources = {str(path.relative_to(GIVEN)) for path in GIVEN.rglob("*.py")}
    assert set(FILES) == sources
    assert len(FILES) == 8
    assert not any((PROJECT / name).exists() for name in FILES)


def test_nothing_but_the_listed_and_the_generated_differs(copy: Copy) -> None:
    def texts(root: Path) -> dict[str, bytes]:
        paths = [root / "README.md", *(p for part in PARTS for p in (root / part).rglob("*"))]
        return {
            str(path.relative_to(root)): path.read_bytes()
            for path in paths
            if path.is_file() and "__pycache__" not in path.parts
        }

    before, after = texts(PROJECT), texts(copy.folder)
    generated = {
        "README.md",
        "docs/products.md",
        "src/openaclnn/__init__.pyi",
        "src/openaclnn/aclnn.pyi",
    }
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == {*FILES, "src/openaclnn/operators/__init__.py", *generated}


CALLS = """
import numpy as np, openaclnn
from openaclnn import acl, aclnn

x = np.float32([-2, 0.5, 1, 7])
gradient = np.float32([2, -1, 4, 8])

def try_numbers():  # of one kind, whose first call is remembered
    for high, known in ((1.0, [0, -1, 0, 0]), (6.0, [0, -1, 4, 0]), (8.0, [0, -1, 4, 8]), (0.5, [0] * 4)):
        assert (openaclnn.band_backward(gradient, x, max=high) == known).all()

try_numbers()
for engine in ("cpu", "numpy"):
    with openaclnn.use_engine(engine):
        found = openaclnn.explain(openaclnn.band_backward, gradient, x)
        assert found.ok and found.engine == engine, found
        assert "kernel band_backward" in str(found)
        try_numbers()
out = np.zeros(4, np.float32)
status, size, executor = aclnn.aclnnBandBackwardGetWorkspaceSize(gradient, x, -3.0, 1.0, out)
assert (status, size) == (0, 0)
assert aclnn.aclnnBandBackward(None, size, executor, None) == 0
assert acl.aclrtSynchronizeStream(None) == 0
assert (out == [2, -1, 0, 0]).all()
assert aclnn.aclnnBandBackwardGetWorkspaceSize(gradient, x[:3], -3.0, 1.0, out)[0] == 161002
print(aclnn.aclGetRecentErrMsg())

rows = np.float32([[0, 2], [4, 2], [0, 2]])
for scale, axis, known in (
    (0.0, 0, [[1 / 3] * 2] * 3), (64.0, 0, [[0, 1 / 3], [1, 1 / 3], [0, 1 / 3]]), (64.0, -1, [[0, 1], [1, 0], [0, 1]]), (0.0, 1, [[0.5] * 2] * 3),
):
    assert np.allclose(openaclnn.scaled_softmax(rows, scale=scale, dim=axis), known)
    found = openaclnn.explain(openaclnn.scaled_softmax, rows, scale=scale, dim=axis)
    assert "classes along axis" in str(found) and "kernel scaled_softmax" in str(found)
out = np.zeros((3, 2), np.float32)
status, size, executor = aclnn.aclnnScaledSoftmaxGetWorkspaceSize(rows, 64.0, 1, out)
assert (status, size) == (0, 0)
assert aclnn.aclnnScaledSoftmax(None, size, executor, None) == acl.aclrtSynchronizeStream(None) == 0
assert (out == [[0, 1], [1, 0], [0, 1]]).all()
assert aclnn.aclnnScaledSoftmaxGetWorkspaceSize(rows, 64.0, 2, out)[0] == 161002
print(aclnn.aclGetRecentErrMsg())
"""


def test_python_calls(copy: Copy) -> None:
    told = copy.python("-c", CALLS)
    assert "aclnnBandBackward: self: expected shape (4,), the shape of gradOutput" in told
    assert "aclnnScaledSoftmax: dim: expected an axis of self, -2 to 1, got 2" in told


def test_stubs_and_table_name_it(copy: Copy) -> None:
    package = copy.folder / "src" / "openaclnn"
    table = (copy.folder / "README.md").read_text().partition("| family | operators |")[2]
    for plain, name in (
        ("band_backward", "aclnnBandBackward"),
        ("scaled_softmax", "aclnnScaledSoftmax"),
    ):
        assert f"def {plain}(" in (package / "__init__.pyi").read_text()
        assert f"def {name}GetWorkspaceSize(" in (package / "aclnn.pyi").read_text()
        assert re.search(rf"\b{name.removeprefix('aclnn')}\b", table)
        listed = (copy.folder / "docs" / "products.md").read_text()
        assert re.search(rf"^\|(.*,)? {name.removeprefix('aclnn')}[ ,]", listed, re.M)


PROGRAM = r"""
#include "aclnnop/aclnn_band_backward.h"
#include "aclnnop/aclnn_scaled_softmax.h"
#include "support.h"

int main(void)
{
    const int64_t shape[1] = {4};
    const float gradient[4] = {2, -1, 4, 8}, inputs[4] = {-2, 0.5f, 1, 7};
    float low = -3, high = 1;
    uint64_t size = 0;
    aclOpExecutor *executor = NULL;
    aclrtStream stream = start();
    aclTensor *gradOutput = tensor(gradient, sizeof gradient, ACL_FLOAT, shape, 1);
    aclTensor *self = tensor(inputs, sizeof inputs, ACL_FLOAT, shape, 1);
    aclTensor *out = tensor(inputs, sizeof inputs, ACL_FLOAT, shape, 1);
    aclScalar *min = aclCreateScalar(&low, ACL_FLOAT), *max = aclCreateScalar(&high, ACL_FLOAT);
    CHECK(aclnnBandBackwardGetWorkspaceSize(gradOutput, self, min, max, out, &size, &executor));
    CHECK(aclnnBandBackward(workspace_of(size), size, executor, stream));
    CHECK(aclrtSynchronizeStream(stream));
    print_floats("gradient", out, 4);
    release(gradOutput);
    release(self);
    release(out);
    aclDestroyScalar(min);
    aclDestroyScalar(max);
    finish(stream);
    return 0;
}
"""


def test_compiled_c_calls_it(copy: Copy) -> None:
    """Compiled C in a process of the copy's: a program of its own would find the installed package first."""
    pytest.importorskip("cffi")
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    ask = "import sys; from openaclnn.capi.config import main; sys.exit(main(sys.argv[1:]))"
    flags = copy.python("-c", ask, "--cflags", "--libs").split()
    source, library = copy.folder / "new.c", copy.folder / "new.so"
    source.write_text(PROGRAM)
    support = f"-I{copy.folder / 'examples' / 'c'}"
    command = [*STANDARDS[".c"], *STRICT, "-shared", "-fPIC", str(source), support, *flags]
    done = subprocess.run([*command, "-o", library], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    call = f"import ctypes; raise SystemExit(ctypes.CDLL({str(library)!r}).main())"
    assert copy.python("-c", call) == "gradient: 2 -1 0 0\n"


BENCHMARKS = """
import openaclnn
from tools import accuracy
from openaclnn.cli import main
from openaclnn.core.dtypes import FLOATS

operator = openaclnn.find_operator("band_backward")
for dtype in FLOATS:
    row = accuracy.measure(operator, "unit", dtype)
    assert float(row[0]) <= (2.5 if dtype is FLOATS[0] else 0.51), row
    row = accuracy.measure(openaclnn.find_operator("scaled_softmax"), "columns", dtype)
    assert float(row[0]) <= (4 if dtype is FLOATS[0] else 0.52), row
only = ["--quick", "--only", "band_backward unit call", "--rounds", "1"]
raise SystemExit(main(["bench", *only]))
"""


def test_accuracy_and_speed_are_measured(copy: Copy) -> None:
    told = copy.python("-c", BENCHMARKS)
    for way in ("cpu", "cpu out=", "numpy"):
        assert re.search(rf" {way} +\d+ +[\d.]+ [mu]s", told), told


SAME_FOR_ALL = {"test_explorer_page.py", "test_fast_path.py", "test_properties.py"}


def suites() -> dict[str, tuple[str, list[str]]]:
    """Whole: tests that look at all operators at once. Of the others that have to do with them, what is the new operator's; but for
    those of what is the same for all. Headers are compiled here, the new ones by `test_compiled_c_calls_it`."""
    of_each = (
        "exactly_its_prototypes or is_named_in_operators or compiles_alone or programs_rely_on or plain_signatures or describe_has_everything"
        " or of_the_documents"
    )
    whole = f"(test_structure.py or test_introspection.py or test_headers.py) and not ({of_each})"
    tests = [
        path
        for path in sorted((PROJECT / "tests").glob("test_*.py"))
        if path.name not in {Path(__file__).name, *SAME_FOR_ALL}
    ]
    lists = re.compile(r'(?s)(?=.*"(operator|kernel)").*(OPERATORS|APART|SIZED|registry\(\))')
    files = [f"tests/{path.name}" for path in tests if lists.match(path.read_text())]
    return {
        "the operators": ("", ["-k", f"band or scaled_softmax or {whole}", *files]),
        "their Triton kernels": (
            "interpret",
            [
                "-k",
                "band or scaled_softmax",
                "tests/test_gpu_kernels.py",
                "tests/test_gpu_sized.py",
                "tests/test_gpu_row_operators.py",
            ],
        ),
    }


@pytest.fixture(scope="module")
def processes(copy: Copy) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """Both suites at once."""
    started = {
        name: subprocess.Popen(
            [sys.executable, "-m", "pytest", "-x", *arguments], cwd=copy.folder, text=True,
            env=copy.environment | {"OPENACLNN_GPU_TESTS": mode},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        for name, (mode, arguments) in suites().items()
    }  # fmt: skip
    yield started
    for process in started.values():
        if process.poll() is None:
            process.kill()


@pytest.mark.parametrize("suite", suites())
def test_what_iterates_the_operators_passes(suite: str, processes: dict[str, Any]) -> None:
    if "Triton" in suite:
        pytest.importorskip("triton", reason="Triton has wheels for Linux alone")
    output, _ = processes[suite].communicate(timeout=600)
    assert processes[suite].returncode == 0, output  # no test at all gives 5


def test_a_missing_formula_is_told(tmp_path: Path) -> None:
    lay(tmp_path, [name for name in FILES if "formulas" not in name])
    done = Copy(tmp_path).run("-c", "import openaclnn; openaclnn.registry()")
    assert done.returncode == 1
    told = done.stderr.splitlines()[-1]
    assert told == "ModuleNotFoundError: No module named 'openaclnn.engines.formulas.band'"


def test_a_missing_table_of_mistakes_is_told(tmp_path: Path) -> None:
    lay(tmp_path, FILES)
    path = tmp_path / "tests/workloads/band_backward.py"
    path.write_text(path.read_text().partition("\n\ndef sound()")[0])
    done = Copy(tmp_path).run("-m", "pytest", "-x", "-k", "band_backward", "tests/test_checks.py")
    assert done.returncode == 1
    place = "tests/workloads/band_backward.py wants sound(), MISTAKES"
    assert f"aclnnBandBackward has no table of mistakes: {place}" in done.stdout
