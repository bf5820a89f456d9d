"""`openaclnn run`: an operator on files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np

from openaclnn.cli.per_operator import PerOperator, option_of, read_value
from openaclnn.cli.say import command_options, progress, say, say_json
from openaclnn.core.declare import Operator
from openaclnn.core.interface import REQUIRED, Kind
from openaclnn.engines.dispatch import ENGINES, use_engine
from openaclnn.testing.chunks import run_in_chunks
from openaclnn.testing.files import create, read_array, write_array
from openaclnn.testing.goldens import result_of
from openaclnn.testing.sources import SUFFIXES, FileError

__all__ = ["run"]

_CHUNK = 1 << 24


def _make(operator: Operator) -> click.Command:
    tensors = [p for p in operator.parameters if p.kind is Kind.TENSOR]
    options: list[click.Parameter] = []
    for parameter in operator.parameters:
        if parameter.kind is not Kind.OUTPUT:
            metavar = "FILE" if parameter.is_tensor else "VALUE"
            options.append(option_of(parameter, metavar, parameter.choices))
    options += [
        click.Option(["--out"], required=True, type=click.Path(dir_okay=False, path_type=Path), help="The file to write."),
        click.Option(["--force"], is_flag=True, help="Write over a file that is there."),
        click.Option(["--product"], help="Check against this product."),
        click.Option(["--engine"], type=click.Choice(list(ENGINES)), help="Compute with this engine."),
        click.Option(["--chunk"], type=click.IntRange(1), default=_CHUNK, show_default=True, help="Elements computed together, where the operator allows pieces."),
    ]  # fmt: skip
    required = [p for p in tensors if p.default is REQUIRED]
    example = " ".join(f"--{p.python_name.replace('_', '-')} {p.python_name}.npy" for p in required)

    @command_options
    def run_operator(out: Path, force: bool, product: str | None, engine: str | None, chunk: int, as_json: bool, **given: Any) -> int:  # fmt: skip
        arguments = _arguments(operator, given)
        if engine is None:
            return _run(operator, arguments, out, force, product, chunk, as_json)
        with use_engine(engine):
            return _run(operator, arguments, out, force, product, chunk, as_json)

    return click.Command(
        operator.python_name, callback=run_operator,
        params=[*options, *getattr(run_operator, "__click_params__", [])],
        help=f"{operator.summary}\n\n\b\n{operator.formula}\n\n\b\nExample:\n  openaclnn run {operator.python_name} {example} --out out.npy",
    )  # fmt: skip


def _arguments(operator: Operator, given: dict[str, Any]) -> dict[str, Any]:
    """The plain call's arguments from options; a tensor may be a number."""
    found: dict[str, Any] = {}
    for parameter in operator.parameters:
        text = given.get(f"given_{parameter.python_name}")
        if text is None:
            if parameter.default is REQUIRED and parameter.kind is not Kind.OUTPUT:
                raise click.UsageError(f"--{parameter.python_name.replace('_', '-')} is missing: {parameter.text}")  # fmt: skip
        elif parameter.is_tensor:
            number = read_value(text)
            isnumber = isinstance(number, (int, float)) and not isinstance(number, bool)
            found[parameter.python_name] = number if isnumber else np.asarray(read_array(text))
        else:
            found[parameter.python_name] = read_value(text)
    return found


def _run(
    operator: Operator, arguments: dict[str, Any], out: Path, force: bool, product: str | None,
    chunk: int, as_json: bool,
) -> int:  # fmt: skip
    if out.exists() and not force:
        raise FileError(f"{out} is there already; --force writes over it")
    if out.suffix.lower() not in SUFFIXES:
        raise FileError(f"{out}: a file named {', '.join(SUFFIXES)} is expected")
    shape, dtype = result_of(operator, arguments)
    # Under another name until it is whole: nobody finds half a file, and an input may be the output.
    part = out.with_name(f".{out.stem}.part{out.suffix}")
    try:
        mapped = create(part, shape, dtype.numpy)
        result = np.empty(shape, dtype.numpy) if mapped is None else np.asarray(mapped)
        with progress("computing", result.size) as done:
            pieces = run_in_chunks(operator, arguments, result, chunk, product, done)
        if mapped is None:
            write_array(part, result)
        del mapped
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)
    if as_json:
        say_json({"out": str(out), "dtype": dtype.name, "shape": shape, "in_pieces": pieces})
    else:
        say(f"{out}: {dtype.name}, shape {shape}")
    return 0


@click.group(cls=PerOperator, make=_make)
def run() -> None:
    """Run an operator on files: .npy, .npz (FILE:KEY), raw .bin (FILE:DTYPE:2x3), .safetensors (FILE:KEY), .pt.

    \b
    Example:
      openaclnn run elu_backward --grad-output g.npy --self-or-result x.npy --alpha 1.5 --out out.npy
      openaclnn run elu_backward --help
    """
