"""`openaclnn compare`: verdicts on files."""

from __future__ import annotations

import csv
import functools
import io
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import click

from openaclnn.cli.operators import file_names
from openaclnn.cli.say import command_options, keep_apart, progress, say, say_json, say_text, table
from openaclnn.core.dtypes import DType, dtype_of_numpy
from openaclnn.core.writing import HIDDEN, cell_of
from openaclnn.testing.figures import LEVELS, STANDARDS, Rules
from openaclnn.testing.files import (
    RAW,
    SUFFIXES,
    FileError,
    Source,
    raw_type,
    read_together,
    split_name,
)
from openaclnn.testing.manifest import Expected, described, expected_of
from openaclnn.testing.verdicts import Comparison, judge

_NAMES = {
    "cosine_similarity": "cosine similarity",
    "max_absolute_error": "maximum absolute error",
    "accumulated_relative_error": "accumulated relative error",
    "relative_euclidean_distance": "relative Euclidean distance",
    "mean_absolute_error": "mean absolute error",
    "root_mean_square_error": "root mean square error",
    "max_relative_error": "maximum relative error",
    "mean_relative_error": "mean relative error",
    "matched": "matched share",
    "max_ulp": "maximum ULP",
}


_BELONGS = {
    "rtol": ("mixed", "close"), "atol": ("mixed", "close"), "ptol": ("mixed", "close"), "limit": ("mixed",),
    "level": ("cross_check",), "third": ("cross_check",),
}  # fmt: skip
"""By parameter: the standards whose verdict it has a part in."""

_Files = tuple[list[Source], DType | None]
"""An output's file and its golden values', then a third party's; the dtype that the output should have, if that is known."""

_STATUSES = {"passed": 0, "failed": 1, "unreadable": 2}
"""By verdict: the command's status is the largest."""

_SHARE = click.FloatRange(0, 1)
_POSITIVE = click.FloatRange(0)


class _MissingError(FileError):
    """An output that a folder does not have: as wrong as one with wrong values."""


@click.command(short_help="Judge outputs by golden values.")
@click.argument("actual", shell_complete=file_names)
@click.argument("golden", shell_complete=file_names)
@click.argument("third", required=False, shell_complete=file_names)
@click.option("--standard", type=click.Choice(STANDARDS), default=STANDARDS[0], show_default=True, help="The precision standard.")  # fmt: skip
@click.option("--level", type=click.Choice(LEVELS), show_default="L1", help="Of cross_check.")
@click.option("--dtype", help="The output's dtype, where the file has another or, a raw one, none.")
@click.option("--rtol", type=_POSITIVE, help="In place of the standard's.")
@click.option("--atol", type=_POSITIVE, help="In place of the standard's.")
@click.option("--ptol", type=_SHARE, help="The share of elements that may be off.")
@click.option("--limit", type=_POSITIVE, help="The largest absolute error that mixed allows.")
@click.option("--positions", type=click.IntRange(0), default=10, show_default=True, help="How many bad elements to show.")  # fmt: skip
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, a line a pair.")
@click.option("--picture", type=click.Path(dir_okay=False, path_type=Path), help="Draw errors, ULP and bad elements into this file.")  # fmt: skip
@command_options
def compare(
    actual: str, golden: str, third: str | None, standard: str, level: str | None, dtype: str | None,
    rtol: float | None, atol: float | None, ptol: float | None, limit: float | None, positions: int,
    as_csv: bool, picture: Path | None, as_json: bool,
) -> int:  # fmt: skip
    """Judge outputs by golden values: two files, or two folders whose files have the same names.

    Files are .npy, .npz (FILE:KEY), raw .bin (FILE:DTYPE:2x3), .safetensors (FILE:KEY) and .pt. THIRD is another
    party's output, for cross_check. Of a folder that openaclnn golden wrote, its manifest says which outputs are
    expected, of which dtype and shape: a device's files are named golden, out, or as the output is (gradInput).

    The status is 0 if all pass, 1 if one fails or is missing, 2 if one cannot be read, whatever the others are.

    \b
    Example:
      openaclnn compare out.npy golden.npy --standard mixed --picture verdict.png
      openaclnn compare dump/ golden/ --standard stat_rel_err --csv
    """
    rules = Rules(standard, rtol, atol, ptol, limit, level or "L1")
    for name, standards in _BELONGS.items():
        if click.get_current_context().params[name] is not None and standard not in standards:
            word = name.upper() if name == "third" else f"--{name}"
            belongs = f"{word} belongs to --standard {' or '.join(standards)}"
            raise click.UsageError(f"{belongs}, not {standard}")
    if as_csv and as_json:
        raise click.UsageError("--csv and --json are two forms of one answer")
    if standard == "cross_check" and third is None:
        raise click.UsageError("cross_check needs the output of a third party: ACTUAL GOLDEN THIRD")
    if Path(actual).is_dir():
        if picture is not None:
            raise click.UsageError("a picture shows one pair of files, not folders")
        rows = _folders(Path(actual), Path(golden), third, rules, dtype, positions)
        _show_many(rows, as_json, as_csv)
        return max(_STATUSES[row.verdict] for row in rows)
    sources = [split_name(name) for name in (actual, golden, third) if name]
    if picture is not None:
        keep_apart([source.path for source in sources], [picture])
    one = _pair(_as_said(sources), rules, dtype, positions, picture=picture)
    if as_json:
        say_json({"actual": actual, "golden": golden} | one.as_dict())
    elif as_csv:
        say(_csv([_Row.of(actual, one)]))
    else:
        _show(one)
    return 0 if one else 1


class _Row(NamedTuple):
    """What came of a pair of files."""

    name: str
    verdict: str  # passed, failed, or unreadable
    comparison: Comparison

    @classmethod
    def of(cls, name: str, comparison: Comparison) -> _Row:
        return cls(name, "passed" if comparison else "failed", comparison)

    @property
    def why(self) -> str:
        return "; ".join((*self.comparison.notes, *self.comparison.reasons))


def _as_said(sources: list[Source]) -> list[Source]:
    """Raw files of golden values have the dtype and shape that their manifest says, and so have outputs beside them."""
    golden = described(sources[1])
    if golden is sources[1]:
        return sources
    output = described(Source(golden.path.with_name(golden.path.name.replace("_float64", ""))))
    return [
        golden if number == 1 else replace(source, dtype=output.dtype, shape=output.shape)
        if source.dtype is None and source.path.suffix.lower() in RAW else source
        for number, source in enumerate(sources)
    ]  # fmt: skip


def _pair(
    sources: list[Source], rules: Rules, dtype: str | None, kept: int, expected: DType | None = None,
    picture: Path | None = None,
) -> Comparison:  # fmt: skip
    """The verdict on files; an output of another dtype than is expected is judged as what it should be."""
    output, golden, *others = read_together(sources, dtype)
    third = others[0] if others else None
    actual = dtype_of_numpy(output.dtype)
    unexpected = dtype is None and expected is not None and actual is not expected
    comparison = judge(output, golden, third, rules, expected if unexpected else dtype, kept)
    if unexpected:
        note = f"the output is {actual}, the manifest says {expected}: judged as {expected}"
        comparison = replace(comparison, notes=(note,))
    if picture is not None:
        from openaclnn.testing.verdicts import draw_picture

        draw_picture(picture, comparison, output, golden, rules)
    return comparison


def _folders(
    actual: Path, golden: Path, third: str | None, rules: Rules, dtype: str | None, kept: int
) -> list[_Row]:
    """Outputs that the golden folder's manifest names; without one, files that have the same name below all folders."""
    others = [actual, *([Path(third)] if third else [])]
    files = {folder: _files(folder) for folder in (*others, golden)}
    expected = expected_of(golden)
    if expected is not None:
        pairs: dict[str, Callable[[], _Files]] = {
            each.name: functools.partial(_outputs_of, each, files, others, dtype)
            for each in expected
        }
    else:
        if not files[actual].keys() & files[golden].keys():
            raise FileError(f"{actual} and {golden} have no files of the same names")
        names = sorted(files[actual].keys() | files[golden].keys())
        order = [actual, golden, *others[1:]]
        pairs = {name: functools.partial(_of_one_kind, name, files, order) for name in names}
    rows = []
    with progress("comparing", len(pairs)) as done:
        for name, sources in pairs.items():
            rows.append(_row(name, sources, rules, dtype, kept))
            done(1)
    return rows


def _row(
    name: str, files: Callable[[], _Files], rules: Rules, dtype: str | None, kept: int
) -> _Row:
    """The verdict on one pair, whatever is wrong with its files."""
    try:
        sources, expected = files()
        return _Row.of(name, _pair(sources, rules, dtype, kept, expected))
    except _MissingError as error:
        verdict, told = "failed", str(error)
    except (ValueError, ImportError, OSError, MemoryError) as error:
        verdict, told = "unreadable", str(error) or "not enough memory"
    return _Row(name, verdict, Comparison(rules.standard, "", (), False, (told,)))


def _outputs_of(
    each: Expected, files: Mapping[Path, dict[str, list[Path]]], others: list[Path], dtype: str | None
) -> _Files:  # fmt: skip
    """A device's output and its golden values, and the other party's output."""
    outputs = []
    for folder in others:
        names = [str(Path(each.folder, stem)) for stem in each.stems]
        held = next((files[folder][name] for name in names if name in files[folder]), None)
        if held is None:
            listed = " or ".join(dict.fromkeys(each.stems))
            raise _MissingError(f"{folder / each.folder} has no file named {listed}")
        path = min(held, key=lambda path: SUFFIXES.index(path.suffix.lower()))
        raw = path.suffix.lower() in RAW
        said = each.output.dtype if dtype is None else raw_type(dtype)
        outputs.append(replace(each.output, path=path, dtype=said) if raw else Source(path))
    golden = each.golden if each.golden.path.suffix.lower() in RAW else Source(each.golden.path)
    return [outputs[0], golden, *outputs[1:]], each.output.dtype


def _files(folder: Path) -> dict[str, list[Path]]:
    """By name, without the ends that say their kind."""
    if not folder.is_dir():
        raise FileError(f"{folder} is not a folder")
    files: dict[str, list[Path]] = {}
    for path in folder.rglob("*"):
        relative = path.relative_to(folder)
        hidden = any(part.startswith(HIDDEN) for part in relative.parts)
        if path.suffix.lower() in SUFFIXES and not hidden:
            files.setdefault(str(relative.with_suffix("")), []).append(path)
    return files


def _of_one_kind(
    name: str, files: Mapping[Path, dict[str, list[Path]]], folders: list[Path]
) -> _Files:
    """Of files of one name, those of the kind that most folders have; the first kinds say their shapes."""
    held = [files[folder].get(name, []) for folder in folders]
    for paths, folder in zip(held, folders, strict=True):
        if not paths:
            raise _MissingError(f"{folder} has no such file")
    kinds = Counter(path.suffix.lower() for paths in held for path in paths)

    def rank(path: Path) -> tuple[int, int]:
        return -kinds[path.suffix.lower()], SUFFIXES.index(path.suffix.lower())

    return [Source(min(paths, key=rank)) for paths in held], None


def _show(comparison: Comparison) -> None:
    say_text(str(comparison))
    if comparison.figures is None:
        return
    figures = [
        (_NAMES.get(name, name), f"{value:.6g}") for name, value in comparison.figures.items()
    ]
    figures += [("elements", f"{comparison.count:,}"), ("bad elements", f"{comparison.bad:,}")]
    say(table(("figure", "value"), figures))
    ulps = [(label, f"{count:,}") for label, count in comparison.ulp_histogram]
    say(table(("ULP", "elements"), ulps))


def _show_many(judged: list[_Row], as_json: bool, as_csv: bool) -> None:
    if as_json:
        say_json(
            [
                {"name": row.name, "verdict": row.verdict} | row.comparison.as_dict()
                for row in judged
            ]
        )
    elif as_csv:
        say(_csv(judged))
    else:
        rows = []
        for row in judged:
            figures = row.comparison.figures or {}
            shown = [f"{figures[n]:.3g}" if n in figures else "" for n in ("max_absolute_error", "MERE", "MARE", "matched")]  # fmt: skip
            rows.append((row.name, row.verdict, row.comparison.dtype, *shown, row.why))
        header = ("file", "verdict", "dtype", "max error", "MERE", "MARE", "matched", "why")
        say(table(header, rows))
        counts = Counter(row.verdict for row in judged)
        unread = f", {counts['unreadable']} unreadable" if counts["unreadable"] else ""
        say(f"{counts['passed']} of {len(judged)} passed{unread}")


def _csv(rows: list[_Row]) -> str:
    figures = next((list(row.comparison.figures) for row in rows if row.comparison.figures), [])
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(["name", "verdict", "standard", "dtype", "golden_dtype", "shape", "elements", "bad", *figures, "why"])  # fmt: skip
    for row in rows:
        comparison = row.comparison
        values = [repr((comparison.figures or {}).get(figure, "")) for figure in figures]
        cells = [row.name, row.verdict, comparison.standard, comparison.dtype, comparison.golden_dtype, comparison.shape, comparison.count, comparison.bad, *values, row.why]  # fmt: skip
        lines.writerow(map(cell_of, cells))
    return text.getvalue().rstrip("\n")
