"""`openaclnn golden`: inputs and golden files for tests on a device; `openaclnn cases`: case lists, run without an NPU."""

from __future__ import annotations

import csv
import fnmatch
import json
import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from openaclnn.cli.operators import operator_names, product_names
from openaclnn.cli.say import command_options, counted, keep_apart, progress, say, say_json, table
from openaclnn.core.declare import Operator
from openaclnn.core.version import __version__
from openaclnn.core.writing import replacing_text, write_text
from openaclnn.operators import find_operator, registry
from openaclnn.testing.build import level_cases
from openaclnn.testing.calls import WAYS
from openaclnn.testing.cases import read_cases
from openaclnn.testing.cases.case import parameter_named
from openaclnn.testing.drawing import AMOUNTS, SPECIALS, Distribution, Recipe
from openaclnn.testing.extras import shape_of, value_of
from openaclnn.testing.figures import LEVELS, STANDARDS
from openaclnn.testing.manifest import FORMATS, MANIFEST, read_manifest, remake, write_cases
from openaclnn.testing.run import COLUMNS, VERDICTS, CaseResult, Item, run_cases


@click.command(short_help="Write inputs and golden values of an operator.")
@click.argument("operator", required=False, shell_complete=operator_names)
@click.option("-o", "--out", "folder", required=True, type=click.Path(file_okay=False, path_type=Path), help="The folder to write into.")  # fmt: skip
@click.option("--from", "manifest", type=click.Path(dir_okay=False, path_type=Path), help="Make this manifest's files again, and compare hashes.")  # fmt: skip
@click.option("--shape", default="", help="Of the main tensor, as 32x128; the others follow from it.")  # fmt: skip
@click.option("--dtype", default="float32", show_default=True, help="Of the floating tensors: float32, fp16, bf16.")  # fmt: skip
@click.option("--count", type=click.IntRange(1), help="How many cases.  [default: 1, or the level's amount]")  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="The same seed draws the same bytes.")  # fmt: skip
@click.option("--variant", help="One of the operator's usual sets of options.")
@click.option("--range", "ranges", multiple=True, metavar="[NAME=]LOW,HIGH", help="Draw uniformly, all floating tensors or one.")  # fmt: skip
@click.option("--normal", "normals", multiple=True, metavar="[NAME=]MEAN,STD", help="Draw normally, all floating tensors or one.")  # fmt: skip
@click.option("--special", type=click.Choice(("all", *SPECIALS)), multiple=True, help="Strew special values in.")  # fmt: skip
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="An argument of the call, as reduction=sum.")  # fmt: skip
@click.option("--level", type=click.Choice(LEVELS), help="Draw the commercial standard's kinds and amounts.")  # fmt: skip
@click.option("--format", "formats", type=click.Choice(FORMATS), multiple=True, default=("npy",), show_default=True, help="Of the files; may be repeated.")  # fmt: skip
@click.option("--force", is_flag=True, help="Write over files that are there.")
@command_options
@click.pass_context
def golden(
    context: click.Context, operator: str | None, folder: Path, manifest: Path | None, shape: str, dtype: str, count: int | None,
    seed: int, variant: str | None, ranges: tuple[str, ...], normals: tuple[str, ...],
    special: tuple[str, ...], settings: tuple[str, ...], level: str | None, formats: tuple[str, ...],
    force: bool, as_json: bool,
) -> int:  # fmt: skip
    """Write inputs and golden values of an operator: a folder a case, float64 and target-dtype goldens, a manifest.

    \b
    Example:
      openaclnn golden elu_backward --shape 32x128 --dtype float16 --special nan --format bin -o goldens
      openaclnn golden elu_backward --level L0 --seed 7 -o goldens
      openaclnn golden --from goldens/manifest.json -o again
    """
    if manifest is not None:
        _alone(context)
        return _again(manifest, folder, force, as_json)
    if operator is None:
        raise click.UsageError("an operator is expected, or --from with a manifest")
    declared = find_operator(operator)
    recipe = Recipe(
        declared.name, seed, count or AMOUNTS.get(level or "", 1), shape_of(shape) if shape else (), dtype, variant,
        _distributions(declared, ranges, normals), SPECIALS if "all" in special else special,
        _settings(declared, settings), level or "",
    )  # fmt: skip
    if not shape and not level:
        raise click.UsageError("a shape is expected, as --shape 32x128, or a --level")
    with progress("writing", recipe.count) as done:
        written = write_cases(recipe, folder, formats, force, done)
    if as_json:
        say_json(written)
    else:
        files = sum(len(case["files"]) for case in written["cases"])
        made_of = f"{counted(recipe.count, 'case')}, {counted(files, 'file')}"
        say(f"{made_of}; {folder / MANIFEST} has their hashes")
    return 0


def _alone(context: click.Context) -> None:
    """A manifest says all that is drawn: other words would be passed over."""
    for parameter in context.command.params:
        typed = context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE
        if typed and parameter.name not in ("folder", "manifest", "force", "as_json"):
            word = parameter.opts[0] if isinstance(parameter, click.Option) else "OPERATOR"
            raise click.UsageError(f"--from has all that is drawn: {word} does not go with it")


def _again(manifest: Path, folder: Path, force: bool, as_json: bool) -> int:
    keep_apart([manifest], [folder / MANIFEST])
    with progress("writing", len(read_manifest(manifest)["cases"])) as done:
        different = remake(manifest, folder, force, done)
    if as_json:
        say_json({"different": different})
    elif different:
        files = counted(len(different), "file")
        say(f"{files} with other bytes than the manifest says: {different[0]}, ...")
    else:
        say(f"the same bytes as {manifest} says")
    return 1 if different else 0


def _distributions(
    operator: Operator, ranges: tuple[str, ...], normals: tuple[str, ...]
) -> dict[str, Distribution]:
    distributions: dict[str, Distribution] = {}
    for normal, texts in ((False, ranges), (True, normals)):
        for text in texts:
            name, _, pair = text.rpartition("=")
            try:
                one, other = (float(each) for each in pair.split(","))
                if not math.isfinite(one) or not math.isfinite(other):
                    raise ValueError
            except ValueError:
                raise click.UsageError(f"expected two numbers, as -2,2, got {pair!r}") from None
            distribution = (
                Distribution(mean=one, deviation=other) if normal else Distribution(one, other)
            )
            distributions[_python_name(operator, name) if name else ""] = distribution
    if "" in distributions and len(distributions) > 1:
        raise click.UsageError("a distribution of all tensors, or some by name, not both")
    return distributions


def _python_name(operator: Operator, name: str) -> str:
    parameter = parameter_named(operator, name)
    if parameter is not None:
        return parameter.python_name
    known = ", ".join(p.python_name for p in operator.parameters)
    raise click.UsageError(f"{operator.name} has no parameter {name!r}; it has {known}")


def _settings(operator: Operator, texts: tuple[str, ...]) -> dict[str, Any]:
    """Arguments written as NAME=VALUE."""
    settings = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.UsageError(f"expected NAME=VALUE, got {text!r}")
        settings[_python_name(operator, name)] = value_of(value)
    return settings


# Case lists.


_LISTED = "cases.json"  # below --golden
_FEW = 60  # cases, which are all shown


@click.command(short_help="Run TTK tables and ATK lists, and judge the results.")
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--level", type=click.Choice(LEVELS), help="Also the commercial standard's cases, of all operators or --operator.")  # fmt: skip
@click.option("--count", type=click.IntRange(1), help="So many cases of the level an operator.")
@click.option("--sheet", help="Of an .xlsx file; the first one if not given.")
@click.option("--name", "names", multiple=True, metavar="PATTERN", help="Cases whose names match, as 'fp16_*'.")  # fmt: skip
@click.option("--operator", "operators", multiple=True, shell_complete=operator_names, help="Cases of this operator.")  # fmt: skip
@click.option("--id", "identities", multiple=True, help="Cases with this id (of ATK) or number (of TTK, from 0).")  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="The same seed draws the same data.")  # fmt: skip
@click.option("--through", type=click.Choice(WAYS), default=WAYS[0], show_default=True, help="How calls are made: both phases, the plain call, compiled C.")  # fmt: skip
@click.option("--compare", type=click.Choice([s for s in STANDARDS if s != "cross_check"]), help="The precision standard.  [default: the list's: close with a case's tolerances, stat_rel_err for single_bm, else mixed]")  # fmt: skip
@click.option("--product", show_default="the one in force", shell_complete=product_names, help="Check against this product, skip cases for others.")  # fmt: skip
@click.option("--golden", type=click.Path(file_okay=False, path_type=Path), help="Write every case's inputs and golden values below this folder.")  # fmt: skip
@click.option("--csv", "results", type=click.Path(dir_okay=False, path_type=Path), help="Write the results into this file.")  # fmt: skip
@click.option("-j", "--jobs", type=click.IntRange(1, 256), default=1, show_default=True, help="Processes.")  # fmt: skip
@click.option("--memory", type=click.FloatRange(0, min_open=True), metavar="GB", help="Memory for the data of cases, of all processes together; larger cases are skipped.  [default: half of what there is]")  # fmt: skip
@click.option("--all", "show_all", is_flag=True, help="Show every case, however many.")
@command_options
def cases(
    files: tuple[Path, ...], level: str | None, count: int | None, sheet: str | None, names: tuple[str, ...],
    operators: tuple[str, ...], identities: tuple[str, ...], seed: int, through: str, compare: str | None,
    product: str | None, golden: Path | None, results: Path | None, jobs: int, memory: float | None, show_all: bool, as_json: bool,
) -> int:  # fmt: skip
    """Run case lists as they are, TTK tables (.csv, .tsv, .xlsx) and ATK lists (.json), and judge them by the oracle.

    Cases that need what is not here, or cannot be read, are skipped and counted by reason. The status is 0 if all that
    were run pass, 1 if a case fails or is refused, 3 if none was run.

    \b
    Example:
      openaclnn cases elu_cases.csv loss_cases.json --csv results.csv
      openaclnn cases cases.xlsx --name 'fp16_*' --through c --compare stat_rel_err
      openaclnn cases --level L1 --operator elu_backward -j 4
    """
    if not files and level is None:
        raise click.UsageError("a case list is expected, or --level")
    if count is not None and level is None:
        raise click.UsageError("--count belongs to --level")
    if sheet is not None and not any(path.suffix.lower() == ".xlsx" for path in files):
        raise click.UsageError("--sheet belongs to .xlsx files")
    held = None if golden is None else golden / _LISTED
    keep_apart(files, [path for path in (results, held) if path is not None])
    wanted = [find_operator(name).name for name in operators]
    listed = [case for path in files for case in read_cases(path, sheet)]
    chosen: list[Item] = [case for case in listed if _chosen(case, names, wanted, identities)]
    if level is not None:
        for operator in wanted or [each.name for each in registry()]:
            drawn = level_cases(operator, level, seed=seed, count=count)
            chosen += [case for case in drawn if _chosen(case, names, wanted, identities)]
    if not chosen and (names or wanted or identities):
        raise click.UsageError("no case is chosen by --name, --operator and --id")
    outcomes = run_cases(
        chosen, seed=seed, through=through, compare=compare, product=product, golden=golden, jobs=jobs,
        memory=None if memory is None else max(int(memory * 1e9), 1),
    )  # fmt: skip
    summary = _Summary(keep_all=show_all or as_json or len(chosen) <= _FEW)
    with progress("running", len(chosen)) as done:
        for result in _written(outcomes, results):
            summary.add(result)
            done(1)
    if golden is not None:
        _write_manifest(golden, files, seed)
    summary.show(as_json)
    return summary.status


def _chosen(
    case: Any, names: tuple[str, ...], operators: list[str], identities: tuple[str, ...]
) -> bool:
    if names and not any(fnmatch.fnmatchcase(case.name, pattern) for pattern in names):
        return False
    if operators and case.operator_name not in operators:
        return False
    return not identities or (case.identity or str(case.number)) in identities


def _written(results: Iterable[CaseResult], path: Path | None) -> Iterator[CaseResult]:
    if path is None:
        yield from results
        return
    with replacing_text(path) as file:
        lines = csv.writer(file)
        lines.writerow(COLUMNS)
        for result in results:
            lines.writerow(result.row())
            yield result


@dataclass
class _Summary:
    """Results as they come: those to show, and one example of each cause with how many there are."""

    keep_all: bool
    kept: list[CaseResult] = field(default_factory=list)
    causes: dict[tuple[str, str, str], CaseResult] = field(default_factory=dict)
    repeated: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    rules: Counter[str] = field(default_factory=Counter)
    started: float = field(default_factory=time.perf_counter)

    def add(self, result: CaseResult) -> None:
        self.counts[result.verdict] += 1
        if result.reason:
            self.reasons[result.reason] += 1
        if result.judged_by:
            name, tolerances, _ = result.judged_by.partition(" rtol=")
            self.rules[f"{name} with the cases' tolerances" if tolerances else name] += 1
        if result.why:
            cause = result.verdict, result.operator, result.cause
            self.causes.setdefault(cause, result)
            self.repeated[cause] += 1
        if self.keep_all:
            self.kept.append(result)

    @property
    def status(self) -> int:
        if self.counts["failed"] or self.counts["refused"]:
            return 1
        return 0 if self.counts["passed"] else 3

    def show(self, as_json: bool) -> None:
        if as_json:
            say_json({
                "counts": dict(self.counts), "skipped": dict(self.reasons), "judged_by": dict(self.rules),
                "cases": [result.as_dict() for result in self.kept],
            })  # fmt: skip
            return
        if self.kept:
            header = ("case", "verdict", "operator", "dtype", "max error", "max ULP", "matched", "judged by")  # fmt: skip
            say(table(header, [_row(each) for each in self.kept]))
        if self.causes:
            rank = {cause: (VERDICTS.index(cause[0]), -n) for cause, n in self.repeated.items()}
            order = sorted(self.causes, key=rank.__getitem__)
            rows = [_cause_row(self.repeated[cause], self.causes[cause]) for cause in order]
            say(table(("how many", "verdict", "operator", "why", "for example"), rows))
        if self.reasons["another operator"]:
            say(f"`openaclnn list` names the {len(registry())} operators that are here.")
        if self.rules:
            say(f"Judged by: {_counts(self.rules)}")
        say(self.line())

    def line(self) -> str:
        told = [f"{self.counts[verdict]} {verdict}" for verdict in VERDICTS if self.counts[verdict]]
        if self.reasons:
            told[-1] += f" ({_counts(self.reasons)})"
        seconds = time.perf_counter() - self.started
        total = counted(sum(self.counts.values()), "case")
        return f"{total}: {', '.join(told) or 'none'}; {seconds:.1f} s"


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.most_common())


def _row(result: CaseResult) -> tuple[str, ...]:
    figures, comparison = result.figures, result.comparison
    names = ("max_absolute_error", "max_ulp", "matched")
    shown = [f"{figures[name]:.3g}" if name in figures else "" for name in names]
    dtype = "" if comparison is None else comparison.dtype
    return result.label, result.verdict, result.operator, dtype, *shown, result.judged_by


def _cause_row(count: int, example: CaseResult) -> tuple[str, ...]:
    why = f"{example.why} (rule {example.rule})" if example.rule else example.why
    return (
        counted(count, "case"),
        example.verdict,
        example.operator,
        why,
        f"{example.label} ({example.place})",
    )


def _write_manifest(folder: Path, files: tuple[Path, ...], seed: int) -> None:
    """Which lists and which seed the folder comes from."""
    folder.mkdir(parents=True, exist_ok=True)
    held = {
        "openaclnn": __version__, "lists": [path.name for path in files], "seed": seed,
        "cases": sorted(path.name for path in folder.iterdir() if path.is_dir()),
    }  # fmt: skip
    write_text(folder / _LISTED, json.dumps(held, indent=1) + "\n")
