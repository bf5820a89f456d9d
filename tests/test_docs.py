"""The documentation is true: its examples run, its tables are those of the declarations, its links lead somewhere."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from tools.speed import PICTURE, ROWS, calls_table, enter, picture, speed_table, tables_of
from tools.tables import README, SPEED, SUPPORT, written

import openaclnn
from openaclnn.bench.regimes import REGIMES
from openaclnn.bench.runner import Settings, choose
from openaclnn.cli import main
from openaclnn.cli.bench import bench
from openaclnn.core.products import PRODUCTS

PROJECT = Path(__file__).parent.parent
PAGES = sorted([*PROJECT.glob("*.md"), *PROJECT.glob("docs/**/*.md")])


@pytest.mark.parametrize(
    "page",
    [p for p in PAGES if p.parent.name != "zh"],
    ids=lambda p: str(p.relative_to(PROJECT)),
)
def test_examples_run(page: Path, tmp_path: Path) -> None:
    """The Chinese pages have the same (test_sessions.py)."""
    with contextlib.chdir(tmp_path), np.printoptions(precision=8):
        result = doctest.testfile(
            str(page), module_relative=False,
            optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS,
        )  # fmt: skip
    assert result.failed == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(PROJECT)))
def test_every_block_of_code_is_of_a_kind_that_is_run(page: Path) -> None:
    """`pycon` here; `console`, `bash` and `python` by test_sessions.py, which looks at `sh`, too."""
    kinds = set(re.findall(r"^ *```([^`\n]+)$", page.read_text(), re.M))
    assert kinds <= {"pycon", "console", "bash", "python", "text", "sh"}


def test_the_readme_is_short() -> None:
    assert len(README.read_text()) <= 7000


def test_tables_are_those_of_the_declarations_and_of_the_file_of_cases() -> None:
    for path, page in written().items():
        assert path.read_text() == page, "run: make format"
    table = openaclnn.support_table()
    said = [line.strip("| ").split(" | ") for line in SUPPORT.read_text().splitlines()]
    cells = {name: line[1:] for line in said if len(line) == len(PRODUCTS) for name in line[0].split(", ")}  # fmt: skip
    assert all(cells[name.removeprefix("aclnn")] == [*row] for name, _, *row in table.rows)
    readme = README.read_text()
    assert f"{len(openaclnn.registry())} of some 460 " in readme
    rows = readme.partition("| family | operators |\n|---|---|\n")[2].partition("\n\n")[0]
    names = re.findall(r"\w+", re.sub(r"^\| \w+ ", "", rows, flags=re.M))
    declared = {operator.name.removeprefix("aclnn") for operator in openaclnn.registry()}
    assert {*names} <= declared
    for name in declared - {*names}:  # a gradient or an in-place form of what is named
        assert re.sub("^Inplace|(Target)?Backward(V2)?$|Grad$", "", name) in names


def test_what_the_readme_says_of_speed_is_what_the_table_says() -> None:
    readme = README.read_text()
    heading, _, *lines = re.findall(r"^\| .*$", SPEED.read_text().partition("## Large problems")[2], re.M)[: 2 + len(ROWS)]  # fmt: skip
    columns = list(zip(*(line.split(" | ")[2:] for line in lines), strict=True))
    titles = heading.split(" | ")[2:]
    assert len(columns) == len(titles) == 3
    for title, cells in zip(titles, columns, strict=True):
        numbers = [text for cell in cells for text in re.findall(r"[\d.]+", cell)]
        said = f"{min(numbers, key=float)} to {max(numbers, key=float)} "
        line = next(each for each in readme.splitlines() if said in each)
        assert ("H200" in line) == ("H200" in title)


@pytest.mark.parametrize("name", ["benchmarks-large", "benchmarks-calls", "benchmarks-elementwise"])
def test_commands_of_the_benchmarks_can_be_pasted(name: str) -> None:
    page = (PROJECT / "docs" / f"{name}.md").read_text()
    sections = [re.findall(r"^- command: `(.*)`$", part, re.M) for part in page.split("\n## ")]
    assert all(sections[1:])
    for line in (command for commands in sections for command in commands):
        words = shlex.split(line)
        assert words[:2] == ["openaclnn", "bench"]
        bench.make_context("bench", words[2:])


def test_the_picture_is_that_of_the_file_of_cases() -> None:
    """To the smoothing of edges, which differs between releases of matplotlib; other results differ by twice as much and more."""
    image = pytest.importorskip("matplotlib.image")
    drawn = image.imread(io.BytesIO(picture()))
    shown = image.imread(PICTURE)
    assert drawn.shape == shown.shape
    assert np.abs(drawn - shown).mean() < 0.003


@pytest.mark.parametrize(
    "page", [p for p in PAGES if "<!-- table: " in p.read_text()], ids=lambda p: str(p.relative_to(PROJECT))
)  # fmt: skip
def test_tables_that_the_site_makes_have_lines(page: Path) -> None:
    for name in re.findall(r"^<!-- table: (.*) -->$", page.read_text(), re.M):
        rows = [line.count("|") for line in tables_of(name).splitlines() if line.startswith("|")]
        assert len(rows) > 10
        assert set(rows) == {rows[0]} or name.startswith(("large", "shapes", "steps"))


def test_new_runs_are_entered_where_they_belong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In place of what was measured before, beside what was not."""
    for name in ("BY_SHAPE", "STEPS", "LARGE"):
        monkeypatch.setattr(f"tools.speed.{name}", tmp_path / f"{name}.csv")
    new, about = tmp_path / "new.csv", "machine,operator,variant,regime,threads,dtype,contender"
    for path, regime, contender in (
        ("BY_SHAPE", "shape 4x3", "cpu out="), ("STEPS", "shape 4x3", "openaclnn.torch"), ("LARGE", "bandwidth", "cpu"),
    ):  # fmt: skip
        for ratio in ("1", "2"):
            new.write_text(
                f"{about},x torch\nM,softmax,rows,{regime},1,FLOAT,{contender},{ratio}\n"
            )
            assert enter(new) == tmp_path / f"{path}.csv"
        new.write_text(f"{about},x liger\nM,softmax,rows,{regime},1,FLOAT16,{contender},3\n")
        enter(new)
        kept = [
            line.split(",")[-4:] for line in (tmp_path / f"{path}.csv").read_text().splitlines()
        ]
        assert kept == [
            ["dtype", "contender", "x torch", "x liger"], ["FLOAT", contender, "2", ""], ["FLOAT16", contender, "", "3"],
        ]  # fmt: skip


def test_every_row_of_speed_says_the_filter_that_makes_it() -> None:
    """On either device, and nothing beside its dtypes."""
    page = SPEED.read_text().partition("## Large problems")[2].partition("\n## ")[0]
    rows = [re.findall("`([a-z].*?)`", line) for line in page.splitlines() if line.startswith("| ")]
    filters = [text for row in rows for text in row if "_backward" in text or "_grad " in text]
    assert filters == [only for _, only in ROWS]
    for text in filters:
        for device in REGIMES:
            chosen = choose(Settings(device=device, only=(text,), sections=("speed",)))["speed"]
            assert len({(case.name, case.variant, case.regime) for case in chosen}) == 1


def test_the_table_of_small_calls_has_a_line_an_operator() -> None:
    page = """machine,operator,calls,dtype,engine,arrays,arrays out=,tensors,tensors out=,torch,torch out=
"A(R) Processor, 4 cores, beside PyTorch",one,same,FLOAT !,cpu,1 us,2 us,3 us,,4 us,5 us
"A(R) Processor, 4 cores, beside PyTorch",one,new sizes,FLOAT,cpu,9 us,9 us,9 us,,9 us,9 us
G,one,same,FLOAT ! ~,triton,,,6 us,,7 us,
G,one,same,FLOAT16,triton,,,9 us,,9 us,
G,two,same,FLOAT,triton,,,8 us,,,
"""
    assert calls_table(page).splitlines()[:1] + calls_table(page).splitlines()[2:] == [
        "| small calls, FLOAT | A, 4 cores: NumPy arrays | A, 4 cores: PyTorch's tensors |"
        " A, 4 cores: PyTorch itself | G: PyTorch's tensors | G: PyTorch itself |",
        "| one | 1 us / 2 us ! | 3 us ! | 4 us / 5 us ! | 6 us ! ~ | 7 us ! ~ |",
        "| two | - | - | - | 8 us | - |",
    ]


def test_the_table_of_speed_is_made_from_the_file_of_cases() -> None:
    """The last run of a case counts, the largest number of threads, and calls into `out=`."""
    row = {
        "operator": "elu_backward", "variant": "result", "regime": "bandwidth", "engine": "cpu", "ours": True,
        "contender": "cpu out=", "median_us": 1.0, "of_copy": 0.96,
    }  # fmt: skip
    rows = [
        row | {"threads": count, "dtype": dtype, "ratios": {"torch": 9.0, "torch out=": ratio * count}}
        for count in (1, 16)
        for dtype, ratio in (("FLOAT", 1.04), ("BFLOAT16", 2.0))
    ]  # fmt: skip
    theirs = [each | {"ours": False, "contender": "torch out=", "ratios": {}} for each in rows]
    on_gpu = [
        row | {"engine": "triton", "contender": "triton out=", "threads": None} for row in rows[:2]
    ]
    table = speed_table([
        {"machine": {"cpu": "C", "cores": 16}, "rows": rows + theirs}, {"machine": {"gpu": "G"}, "rows": on_gpu},
    ])  # fmt: skip
    line = next(line for line in table.splitlines() if "`elu_backward result bandwidth`" in line)
    assert line.endswith("| 16.6 / 32.0 | 0.96 / 0.96 | 1.0 / 2.0 |")
    assert "| C, 16 threads, times PyTorch (F32 / BF16) | G, of a copy (F32 / BF16) |" in table


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(PROJECT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


SETTING = re.compile(r"\b(?:OPENACLNN|ASCEND)_[A-Z_]*[A-Z]\b")


def settings_in_the_source() -> set[str]:
    """Names that our Python says and our C does not define; what C asks the environment for counts too."""
    package = Path(openaclnn.__file__).parent
    said = {name for path in package.rglob("*.py") for name in SETTING.findall(path.read_text())}
    code = "".join(path.read_text() for path in package.rglob("*.[ch]"))
    asked = set(re.findall(r"getenv\(\"(\w+)\"\)", code))
    return said - set(SETTING.findall(code)) | set(SETTING.findall(" ".join(asked)))


def test_every_setting_is_in_the_table_and_no_other() -> None:
    page = (PROJECT / "docs" / "settings.md").read_text()
    listed = re.findall(r"^\| `(\w+)` \|", page, re.M)
    assert len(set(listed)) == len(listed)
    assert set(listed) == settings_in_the_source()


def test_products_are_in_their_table() -> None:
    page = (PROJECT / "docs" / "products.md").read_text()
    for product in PRODUCTS:
        names = ", ".join(f"`{name}`" for name in product.names)
        assert f"| `{product.tag}` | {product.title} | {names}".rstrip() in page


def test_architecture_names_every_part() -> None:
    text = (PROJECT / "docs" / "architecture.md").read_text()
    package = Path(openaclnn.__file__).parent
    for path in package.iterdir():
        if path.name.startswith("__") or path.suffix in (".pyi", ".typed"):
            continue
        assert path.name in text, f"docs/architecture.md does not mention {path.name}"


@pytest.mark.parametrize("name", ["architecture", "calls"])
def test_files_named_on_the_pages_about_the_inside_exist(name: str) -> None:
    """By their place or by their name alone, in the package or beside it."""
    folders = [PROJECT / part for part in ("src", "tests", "tools")]
    there = [str(path) for folder in folders for path in folder.rglob("*.[cp]*")]
    text = (PROJECT / "docs" / f"{name}.md").read_text()
    named = set(re.findall(r"`([\w/]+\.(?:py|c))`", text))
    assert len(named) > 5
    lost = {each for each in named if not any(path.endswith(f"/{each}") for path in there)}
    assert lost == set()


def test_demo_and_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo"]) == 0
    shown = capsys.readouterr().out
    assert all(operator.name in shown for operator in openaclnn.registry())
    assert "both interfaces agree" in shown
    assert main(["support", "--markdown"]) == 0
    assert capsys.readouterr().out.strip() == openaclnn.support_table().markdown()
    for operator in openaclnn.registry():
        assert main(["describe", operator.python_name]) == 0
        assert operator.prototypes()[0] in capsys.readouterr().out
