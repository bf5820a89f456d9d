"""`openaclnn compare`: verdicts on files."""

from __future__ import annotations

import csv
import io
from collections import Counter
from pathlib import Path

import click

from openaclnn.cli.operators import file_names
from openaclnn.cli.say import command_options, progress, say, say_json, table
from openaclnn.core.text import cell_of
from openaclnn.testing.files.arrays import read_together
from openaclnn.testing.files.sources import SUFFIXES, FileError, split_name
from openaclnn.testing.judging.compare import Comparison, judge
from openaclnn.testing.judging.limits import LEVELS, STANDARDS
from openaclnn.testing.judging.rules import Rules

__all__ = ["compare"]

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

_SHARE = click.FloatRange(0, 1)
_POSITIVE = click.FloatRange(0)


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
@click.option(
    "--positions",
    type=click.IntRange(0),
    default=10,
    show_default=True,
    help="How many bad elements to show.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, a line a pair.")
@click.option(
    "--picture",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Draw errors, ULP and bad elements into this file.",
)
@command_options
def compare(
    actual: str, golden: str, third: str | None, standard: str, level: str | None, dtype: str | None,
    rtol: float | None, atol: float | None, ptol: float | None, limit: float | None, positions: int,
    as_csv: bool, picture: Path | None, as_json: bool,
) -> int:  # fmt: skip
    """Judge outputs by golden values: two files, or two folders whose files have the same names.

    Files are .npy, .npz (FILE:KEY), raw .bin (FILE:DTYPE:2x3), .safetensors (FILE:KEY) and .pt. THIRD is another
    party's output, for cross_check. The status is 0 if all pass, 1 if one fails.

    \b
    Example:
      openaclnn compare out.npy golden.npy --standard mixed --picture verdict.png
      openaclnn compare dump/ golden/ --standard stat_rel_err --csv
    """
    rules = Rules(standard, rtol, atol, ptol, limit, level or "L1")
    for name, own in _BELONGS.items():
        if click.get_current_context().params[name] is not None and standard not in own:
            word = name.upper() if name == "third" else f"--{name}"
            raise click.UsageError(
                f"{word} belongs to --standard {' or '.join(own)}, not {standard}"
            )
    if as_csv and as_json:
        raise click.UsageError("--csv and --json are two forms of one answer")
    if standard == "cross_check" and third is None:
        raise click.UsageError("cross_check needs the output of a third party: ACTUAL GOLDEN THIRD")
    if Path(actual).is_dir():
        found = _folders(Path(actual), Path(golden), third, rules, dtype, positions)
        if picture is not None:
            raise click.UsageError("a picture shows one pair of files, not folders")
        _show_many(found, as_json, as_csv)
        return 0 if all(found.values()) else 1
    one = _pair(actual, golden, third, rules, dtype, positions, picture)
    if as_json:
        say_json({"actual": actual, "golden": golden} | one.as_dict())
    elif as_csv:
        say(_csv({actual: one}))
    else:
        _show(one)
    return 0 if one else 1


def _pair(
    actual: str, golden: str, third: str | None, rules: Rules, dtype: str | None, kept: int,
    picture: Path | None = None,
) -> Comparison:  # fmt: skip
    arrays = read_together([split_name(n) for n in (actual, golden, third) if n], dtype)
    found = judge(arrays[0], arrays[1], arrays[2] if third else None, rules, dtype, kept)
    if picture is not None:
        from openaclnn.testing.judging.picture import draw_picture

        draw_picture(picture, found, arrays[0], arrays[1], rules)
    return found


def _folders(
    actual: Path, golden: Path, third: str | None, rules: Rules, dtype: str | None, kept: int
) -> dict[str, Comparison]:
    """Files that have the same name below all folders, whatever their kind; one that cannot be judged fails."""
    folders = [actual, golden, *([Path(third)] if third else [])]
    files = [_files(folder) for folder in folders]
    if not files[0].keys() & files[1].keys():
        raise FileError(f"{actual} and {golden} have no files of the same names")
    found = {}
    names = sorted(files[0].keys() | files[1].keys())
    with progress("comparing", len(names)) as done:
        for name in names:
            try:
                held = [each.get(name, []) for each in files]
                ours, theirs, *others = _of_one_kind(held, folders)
                other = others[0] if others else None
                found[name] = _pair(ours, theirs, other, rules, dtype, kept)
            except (ValueError, ImportError) as error:
                found[name] = Comparison(rules.standard, "", (), False, (str(error),))
            done(1)
    return found


def _files(folder: Path) -> dict[str, list[Path]]:
    """By name, without the ends that say their kind."""
    if not folder.is_dir():
        raise FileError(f"{folder} is not a folder")
    found: dict[str, list[Path]] = {}
    for path in folder.rglob("*"):
        if path.suffix.lower() in SUFFIXES:
            found.setdefault(str(path.relative_to(folder).with_suffix("")), []).append(path)
    return found


def _of_one_kind(held: list[list[Path]], folders: list[Path]) -> list[str]:
    """Of files of one name, those of the kind that most folders have; the first kinds say their shapes."""
    for paths, folder in zip(held, folders, strict=True):
        if not paths:
            raise FileError(f"{folder} has no such file")
    kinds = Counter(path.suffix.lower() for paths in held for path in paths)

    def rank(path: Path) -> tuple[int, int]:
        return -kinds[path.suffix.lower()], SUFFIXES.index(path.suffix.lower())

    return [str(min(paths, key=rank)) for paths in held]


def _show(found: Comparison) -> None:
    say(str(found))
    if found.figures is None:
        return
    figures = [(_NAMES.get(name, name), f"{value:.6g}") for name, value in found.figures.items()]
    figures += [("elements", f"{found.count:,}"), ("bad elements", f"{found.bad:,}")]
    say(table(("figure", "value"), figures))
    ulps = [(label, f"{count:,}") for label, count in found.ulp_histogram]
    say(table(("ULP", "elements"), ulps))


def _show_many(found: dict[str, Comparison], as_json: bool, as_csv: bool) -> None:
    if as_json:
        say_json([{"name": name} | each.as_dict() for name, each in found.items()])
    elif as_csv:
        say(_csv(found))
    else:
        rows = []
        for name, each in found.items():
            figures = each.figures or {}
            shown = [f"{figures[n]:.3g}" if n in figures else "" for n in ("max_absolute_error", "MERE", "MARE", "matched")]  # fmt: skip
            verdict = "passed" if each else "failed"
            rows.append((name, verdict, each.dtype, *shown, "; ".join(each.reasons)))
        header = ("file", "verdict", "dtype", "max error", "MERE", "MARE", "matched", "why")
        say(table(header, rows))
        passed = sum(map(bool, found.values()))
        say(f"{passed} of {len(found)} passed")


def _csv(found: dict[str, Comparison]) -> str:
    figures = next((list(each.figures) for each in found.values() if each.figures), [])
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(["name", "verdict", "standard", "dtype", "shape", "elements", "bad", *figures, "why"])  # fmt: skip
    for name, each in found.items():
        values = [repr((each.figures or {}).get(figure, "")) for figure in figures]
        verdict = "passed" if each else "failed"
        cells = [name, verdict, each.standard, each.dtype, each.shape, each.count, each.bad, *values, "; ".join(each.reasons)]  # fmt: skip
        lines.writerow(map(cell_of, cells))
    return text.getvalue().rstrip("\n")
