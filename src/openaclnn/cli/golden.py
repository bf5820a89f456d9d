"""`openaclnn golden`: inputs and golden files for tests on a device."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from openaclnn.cli.operators import operator_names
from openaclnn.cli.say import command_options, counted, keep_apart, progress, say, say_json
from openaclnn.core.declare import Operator
from openaclnn.operators import find_operator
from openaclnn.testing.cases.case import parameter_named
from openaclnn.testing.data.drawing import AMOUNTS, SPECIALS, Distribution, Recipe
from openaclnn.testing.data.manifest import FORMATS, MANIFEST, read_manifest, remake, write_cases
from openaclnn.testing.extras import shape_of, value_of
from openaclnn.testing.judging.figures import LEVELS

__all__ = ["golden"]


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
    found = find_operator(operator)
    recipe = Recipe(
        found.name, seed, count or AMOUNTS.get(level or "", 1), shape_of(shape) if shape else (), dtype, variant,
        _distributions(found, ranges, normals), SPECIALS if "all" in special else special,
        _settings(found, settings), level or "",
    )  # fmt: skip
    if not shape and not level:
        raise click.UsageError("a shape is expected, as --shape 32x128, or a --level")
    with progress("writing", recipe.count) as done:
        made = write_cases(recipe, folder, formats, force, done)
    if as_json:
        say_json(made)
    else:
        files = sum(len(case["files"]) for case in made["cases"])
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
    found: dict[str, Distribution] = {}
    for normal, texts in ((False, ranges), (True, normals)):
        for text in texts:
            name, _, pair = text.rpartition("=")
            try:
                one, other = (float(each) for each in pair.split(","))
                if not math.isfinite(one) or not math.isfinite(other):
                    raise ValueError
            except ValueError:
                raise click.UsageError(f"expected two numbers, as -2,2, got {pair!r}") from None
            made = Distribution(mean=one, deviation=other) if normal else Distribution(one, other)
            found[_python_name(operator, name) if name else ""] = made
    if "" in found and len(found) > 1:
        raise click.UsageError("a distribution of all tensors, or some by name, not both")
    return found


def _python_name(operator: Operator, name: str) -> str:
    parameter = parameter_named(operator, name)
    if parameter is not None:
        return parameter.python_name
    known = ", ".join(p.python_name for p in operator.parameters)
    raise click.UsageError(f"{operator.name} has no parameter {name!r}; it has {known}")


def _settings(operator: Operator, texts: tuple[str, ...]) -> dict[str, Any]:
    """Arguments written as NAME=VALUE."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.UsageError(f"expected NAME=VALUE, got {text!r}")
        found[_python_name(operator, name)] = value_of(value)
    return found
