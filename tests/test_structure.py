"""The rules of the structure: layers, names in their place, light imports, generated files fresh."""

from __future__ import annotations

import ast
import functools
import importlib
import re
from pathlib import Path

import pytest
from tools.stubs import stubs

import openaclnn
from conftest import OPERATORS, run_python
from import_graph import arrows, circle, package_of, read_graph, upward
from openaclnn import acl, aclnn
from openaclnn.operators import FAMILIES

ROOT = Path(openaclnn.__file__).parent
PROJECT = Path(__file__).parent.parent

# A package imports from lower layers alone; packages of one layer know nothing of each other.
LAYERS = (
    ("openaclnn.__main__",),
    ("openaclnn.cli", "openaclnn.pyacl"),
    ("openaclnn.bench", "openaclnn.explorer", "openaclnn.sanitizer"),
    ("openaclnn.testing",),
    ("openaclnn.capi", "openaclnn.torch"),
    ("openaclnn", "openaclnn.acl", "openaclnn.aclnn"),
    ("openaclnn.calls",),
    ("openaclnn.repeat",),
    ("openaclnn.runtime", "openaclnn.operators"),
    ("openaclnn.engines",),
    ("openaclnn.core",),
)
ENGINE_LAYERS = (
    ("openaclnn.engines.dispatch",),
    ("openaclnn.engines.cpu", "openaclnn.engines.gpu", "openaclnn.engines.numpy"),
    ("openaclnn.engines.arrays", "openaclnn.engines.formulas", "openaclnn.engines.steps"),
    ("openaclnn.engines.machine", "openaclnn.engines.threads"),
    ("openaclnn.engines.openmp",),
)
CPU_LAYERS = (
    ("openaclnn.engines.cpu.classes", "openaclnn.engines.cpu.tuned"),
    ("openaclnn.engines.cpu.formulas",),
    ("openaclnn.engines.cpu.layouts",),
    ("openaclnn.engines.cpu.arithmetic", "openaclnn.engines.cpu.launching"),
    ("openaclnn.engines.cpu.registry",),
)
CLASSES_LAYERS = (
    ("openaclnn.engines.cpu.classes.multilabel", "openaclnn.engines.cpu.classes.nll_gradient"),
    ("openaclnn.engines.cpu.classes.losses",),
    ("openaclnn.engines.cpu.classes.row_formulas",),
    ("openaclnn.engines.cpu.classes.row_copies", "openaclnn.engines.cpu.classes.row_passes"),
    ("openaclnn.engines.cpu.classes.launches",),
    ("openaclnn.engines.cpu.classes.totals",),
    ("openaclnn.engines.cpu.classes.parameters",),
)
GPU_LAYERS = (
    ("openaclnn.engines.gpu.registry",),
    ("openaclnn.engines.gpu.launchers",),
    ("openaclnn.engines.gpu.kernels", "openaclnn.engines.gpu.launching"),
    ("openaclnn.engines.gpu.formulas",),
)
REPEAT_LAYERS = (
    ("openaclnn.repeat.phases",),
    ("openaclnn.repeat.cache",),
    ("openaclnn.repeat.specialize",),
    ("openaclnn.repeat.code", "openaclnn.repeat.readers"),
    ("openaclnn.repeat.native_slots",),
    ("openaclnn.repeat.slots",),
)
TESTING_LAYERS = (
    ("openaclnn.testing.programs", "openaclnn.testing.run"),
    ("openaclnn.testing.calls",),
    ("openaclnn.testing.build",),
    ("openaclnn.testing.cases", "openaclnn.testing.manifest"),
    ("openaclnn.testing.drawing",),
    ("openaclnn.testing.goldens",),
    ("openaclnn.testing.files", "openaclnn.testing.verdicts"),
    ("openaclnn.testing.figures",),
    ("openaclnn.testing.extras",),
)
BENCH_LAYERS = (
    ("openaclnn.bench.reports", "openaclnn.bench.runner"),
    ("openaclnn.bench.calls", "openaclnn.bench.training"),
    ("openaclnn.bench.contenders", "openaclnn.bench.processes"),
    ("openaclnn.bench.problems", "openaclnn.bench.regimes", "openaclnn.bench.timing"),
)  # fmt: skip
graph = functools.cache(lambda: read_graph(ROOT))

every_table = pytest.mark.parametrize(
    ("package", "layers"),
    [
        ("openaclnn", LAYERS),
        ("openaclnn.engines", ENGINE_LAYERS),
        ("openaclnn.engines.cpu", CPU_LAYERS),
        ("openaclnn.engines.cpu.classes", CLASSES_LAYERS),
        ("openaclnn.engines.gpu", GPU_LAYERS),
        ("openaclnn.repeat", REPEAT_LAYERS),
        ("openaclnn.testing", TESTING_LAYERS),
        ("openaclnn.bench", BENCH_LAYERS),
    ],
    ids=["house", "engines", "cpu", "classes", "gpu", "repeat", "testing", "bench"],
)


@every_table
def test_every_module_is_in_a_package(package: str, layers: tuple[tuple[str, ...], ...]) -> None:
    names = [package for layer in layers for package in layer]
    inside = [module for module in graph() if module.startswith(f"{package}.")]
    assert [module for module in inside if package_of(module, names) is None] == []


@every_table
def test_namesimport_from_lower_layers_alone(
    package: str, layers: tuple[tuple[str, ...], ...]
) -> None:
    assert upward(graph(), layers) == []


def packages() -> list[Path]:
    """Those whose files are not named after operators and their formulas."""
    named = {"", "operators", "operators/workloads", "engines/formulas"}
    folders = {path.parent for path in ROOT.rglob("__init__.py")}
    return sorted(folders - {ROOT / name for name in named})


@pytest.mark.parametrize("folder", packages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_package_names_its_files(folder: Path) -> None:
    """In its docstring, which is where a reader begins."""
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    files = {path.name for path in folder.glob("*.py")} - {"__init__.py"}
    assert sorted(set(re.findall(r"\b(\w+\.py)\b", text)) & files) == sorted(files)


def test_no_modules_import_each_other_in_a_ring() -> None:
    assert circle(graph()) == []


def test_wrong_imports_are_seen(tmp_path: Path) -> None:
    """Wherever they stand: at the top, in a function, for type checkers, relative, through a package."""
    house = {
        "__init__.py": "from house.top import main\n",
        "top.py": "from house.low import base\ndef main():\n    from house import middle\n",
        "middle/__init__.py": "from .inner import thing\n",
        "middle/inner.py": "if TYPE_CHECKING:\n    from ..low.base import fact\n",
        "low/__init__.py": "",
        "low/base.py": "import os, numpy\n",
    }
    for name, text in house.items():
        (tmp_path / "house" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "house" / name).write_text(text)
    graph = read_graph(tmp_path / "house")
    assert graph == {
        "house": {"house.top"},
        "house.top": {"house.low.base", "house.middle"},
        "house.middle": {"house.middle.inner"},
        "house.middle.inner": {"house.low.base"},
        "house.low": set(),
        "house.low.base": set(),
    }
    layers = (("house",), ("house.top",), ("house.middle",), ("house.low",))
    assert circle(graph) == []
    assert upward(graph, layers) == []
    assert len(arrows(graph, layers)) == 4
    graph["house.low.base"] = {"house.middle"}
    assert set(circle(graph)) == {"house.low.base", "house.middle", "house.middle.inner"}
    assert upward(graph, layers) == [("house.low", "house.middle")]
    assert upward(graph, (*layers[:2], ("house.middle", "house.low"))) == [
        ("house.low", "house.middle"), ("house.middle", "house.low"),
    ]  # fmt: skip
    graph["house.attic"] = set()
    assert package_of("house.attic", [package for layer in layers for package in layer]) is None


@functools.cache
def code_words() -> dict[str, str]:
    """The words of our Python outside the places where an operator may be named, each with where it stands first; not those of
    docstrings, where an example may name one.
    """
    allowed = {ROOT / "operators", ROOT / "engines", ROOT / "torch"}
    words: dict[str, str] = {}
    for path in ROOT.rglob("*.py"):
        if any(folder in path.parents for folder in allowed):
            continue
        text = path.read_text()
        prose = {
            number
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" in node.value
            for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
        }
        for number, line in enumerate(text.splitlines(), 1):
            if number not in prose:
                for word in re.findall(r"\w+", line):
                    words.setdefault(word, f"{path}:{number}")
    return words


WORDS = ("glu", "shrink", "threshold")
"""Python names of operators that are words of other subjects, too."""


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda op: op.python_name)
def test_an_operator_is_named_in_operators_and_kernels_only(
    operator: openaclnn.core.declare.Operator,
) -> None:
    names = [operator.name]
    if operator.python_name not in WORDS:
        names.append(operator.python_name)
    named = [place for word, place in code_words().items() if word.startswith(tuple(names))]
    assert named == []


def test_every_module_that_is_no_family_is_imported_by_one_line() -> None:
    text = (ROOT / "operators" / "__init__.py").read_text()
    shared = {
        "__init__",
        "activations",
        "inner",
        "linear",
        "log_probs",
        "logits",
        "logit_steps",
        "losses",
        "rows",
        "rules",
        *FAMILIES,
    }
    modules = sorted({p.stem for p in (ROOT / "operators").glob("*.py")} - shared)
    assert modules == re.findall(r"^    (\w+),$", text, re.M)
    homes = dict.fromkeys(op.home.rpartition(".")[2] for op in OPERATORS)
    assert modules == [home for home in homes if home not in FAMILIES]


def test_families_are_listed_with_all_that_they_declare() -> None:
    for family, names in FAMILIES.items():
        declared = [op.name for op in OPERATORS if op.home.rpartition(".")[2] == family]
        assert declared == list(names)


def test_importing_loads_numpy_and_nothing_heavier() -> None:
    program = (
        "import sys, numpy; before = set(sys.modules)\n"
        "import openaclnn, openaclnn.aclnn, openaclnn.acl\n"
        "new = {m.partition('.')[0] for m in set(sys.modules) - before} - {'openaclnn'}\n"
        "print(*sorted(m for m in new if m not in sys.stdlib_module_names and m != 'numpy'))\n"
        "import threading; print(threading.active_count())\n"
    )
    done = run_python(program)
    assert done.stdout.split("\n")[:2] == ["", "1"]


@pytest.mark.parametrize("module", [openaclnn, aclnn, acl], ids=lambda m: m.__name__)
def test_all_is_what_is_public(module: object) -> None:
    declared = module.__all__
    assert len(set(declared)) == len(declared)
    assert all(hasattr(module, name) for name in declared)


def test_public_things_are_documented() -> None:
    for module in (openaclnn, aclnn, acl):
        for name in module.__all__:
            thing = getattr(module, name)
            if callable(thing):
                assert (thing.__doc__ or "").strip(), f"{module.__name__}.{name} has no docstring"


@pytest.mark.parametrize("name", sorted(stubs()))
def test_stubs_are_fresh(name: str) -> None:
    assert (ROOT / name).read_text() == stubs()[name], "run: python -m tools.stubs"


def test_stubs_declare_every_public_name() -> None:
    for module, name in ((openaclnn, "__init__.pyi"), (aclnn, "aclnn.pyi")):
        assert {*module.__all__} - {*re.findall(r"\w+", stubs()[name])} == set()


def test_every_module_imports_alone() -> None:
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        if parts[-1] == "__main__" or {"gpu", "cpu"} & set(parts):
            continue
        importlib.import_module(".".join(p for p in parts if p != "__init__"))


def test_kernels_know_nothing_of_operators_or_calls() -> None:
    above = {f"openaclnn.core.{name}" for name in ("interface", "call", "checks", "declare")}
    for module, others in graph().items():
        if module.startswith("openaclnn.engines"):
            assert not others & above, module


def test_machine_code_is_written_in_one_language() -> None:
    """llvmlite and its builder are the business of `engines/machine`: everybody else writes in its words."""
    machine = ROOT / "engines" / "machine"
    other = re.compile(r"\bbuilder\b|^\s*(?:from|import) llvmlite", re.M)
    for path in ROOT.rglob("*.py"):
        if machine not in path.parents:
            assert other.findall(path.read_text()) == [], path
