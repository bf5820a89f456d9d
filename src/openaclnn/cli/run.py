"""`openaclnn run`: an operator on files."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any, BinaryIO

import click
import numpy as np

from openaclnn.cli.operators import (
    Choices,
    PerOperator,
    operator_command,
    option_of,
    product_names,
    word_of,
)
from openaclnn.cli.say import command_options, keep_apart, progress, say, say_json
from openaclnn.core.call import product_of
from openaclnn.core.declare import Operator, OutputSpec
from openaclnn.core.interface import REQUIRED
from openaclnn.core.products import find_product
from openaclnn.core.writing import replacing
from openaclnn.engines.dispatch import ENGINES, use_engine
from openaclnn.testing.calls import run_in_chunks
from openaclnn.testing.extras import need, value_of
from openaclnn.testing.files import SUFFIXES, FileError, create, read_array, split_name, write_into
from openaclnn.testing.goldens import planned

_CHUNK = 1 << 24


def _make(operator: Operator) -> click.Command:
    options: list[click.Parameter] = []
    place = click.Path(dir_okay=False, path_type=Path)
    for parameter in operator.parameters:
        if not parameter.is_tensor:
            kind = Choices(parameter) if parameter.choices else None
            options.append(option_of(operator, parameter, "VALUE", kind))
        elif parameter.is_read:
            options.append(option_of(operator, parameter, "FILE"))
        elif operator.result_type is not None:
            options.append(option_of(operator, parameter, "FILE", place))
    if operator.result_type is None:
        options.append(click.Option(["--out"], required=True, type=place, help="The file to write."))  # fmt: skip
    options += [
        click.Option(["--force"], is_flag=True, help="Write over a file that is there."),
        click.Option(["--product"], shell_complete=product_names, help="Check against this product."),
        click.Option(["--engine"], type=click.Choice(list(ENGINES)), help="Compute with this engine."),
        click.Option(["--chunk"], type=click.IntRange(1), default=_CHUNK, show_default=True, help="Elements computed together, where the operator allows pieces."),
    ]  # fmt: skip
    required = [p for p in operator.tensors if p.default is REQUIRED and p.is_read]
    written = operator.outputs[:1] if operator.result_type is not None else ()
    words = [word_of(operator, p) for p in (*required, *written)] + ["--out"] * (not written)
    example = " ".join(f"{word} {word[2:].replace('-', '_')}.npy" for word in words)

    @command_options
    def run_operator(force: bool, product: str | None, engine: str | None, chunk: int, as_json: bool, **options: Any) -> int:  # fmt: skip
        if product is not None:
            find_product(product)  # an unknown one is misuse, not a refused call
        files = _files(operator, options)
        keep_apart(_read_files(operator, options), files.values())
        arguments = _arguments(operator, options)
        with nullcontext() if engine is None else use_engine(engine):
            return _run(operator, arguments, files, force, product, chunk, as_json)

    return operator_command(
        operator, run_operator, options,
        f"{operator.summary}\n\n\b\n{operator.formula}\n\n\b\nExample:\n  openaclnn run {operator.python_name} {example}",
    )  # fmt: skip


def _arguments(operator: Operator, options: dict[str, Any]) -> dict[str, Any]:
    """The plain call's arguments from options; a tensor may be a number."""
    arguments: dict[str, Any] = {}
    for parameter in operator.parameters:
        if parameter.is_tensor and not parameter.is_read:
            continue
        text = options.get(f"given_{parameter.name}")
        if text is None:
            if parameter.default is REQUIRED:
                raise click.UsageError(f"{word_of(operator, parameter)} is missing: {parameter.text}")  # fmt: skip
        elif parameter.is_tensor:
            number = value_of(text)
            isnumber = isinstance(number, (int, float)) and not isinstance(number, bool)
            arguments[parameter.python_name] = number if isnumber else np.asarray(read_array(text))
        else:
            arguments[parameter.python_name] = value_of(text)
    return arguments


def _read_files(operator: Operator, options: dict[str, Any]) -> list[Path]:
    """The files to read, but for the one that an operator in place may replace."""
    read = [p for p in operator.parameters if p.is_tensor and p.is_read and not p.in_place]
    texts = [options[f"given_{p.name}"] for p in read if options.get(f"given_{p.name}") is not None]
    return [split_name(text).path for text in texts if isinstance(value_of(text), str)]


def _files(operator: Operator, options: dict[str, Any]) -> dict[str, Path]:
    """The files to write by the outputs' C names; of several outputs, those that are wanted."""
    if operator.result_type is None:
        return {operator.output.name: options["out"]}
    named = {p.name: options.get(f"given_{p.name}") for p in operator.outputs}
    files = {name: path for name, path in named.items() if path is not None}
    if not files:
        words = ", ".join(word_of(operator, parameter) for parameter in operator.outputs)
        raise click.UsageError(f"a file to write is expected: {words}")
    return files


def _run(
    operator: Operator, arguments: dict[str, Any], files: dict[str, Path], force: bool, product: str | None,
    chunk: int, as_json: bool,
) -> int:  # fmt: skip
    for out in files.values():
        if out.exists() and not force:
            raise FileError(f"{out} is there already; --force writes over it")
        if out.suffix.lower() not in SUFFIXES:
            raise FileError(f"{out}: a file named {', '.join(SUFFIXES)} is expected")
        if not out.parent.is_dir():
            raise FileError(f"{out}: there is no folder {out.parent}")
        if out.suffix.lower() in (".pt", ".pth"):
            need("torch", f"{out}: PyTorch writes it")
    specs = planned(operator, arguments, product_of(operator, product)).computed
    for name in files.keys() - specs.keys():
        word = word_of(operator, operator[name])
        raise click.UsageError(f"{word}: this call does not compute it")
    # None has its name until all are whole: nobody finds half a file, and what works in place may read its output.
    with ExitStack() as stack:
        parts = {name: stack.enter_context(replacing(out)) for name, out in files.items()}
        pieces = _compute(operator, arguments, specs, parts, files, product, chunk)
    _show(operator, files, specs, pieces, as_json)
    return 0


def _compute(
    operator: Operator, arguments: dict[str, Any], specs: dict[str, OutputSpec], parts: dict[str, BinaryIO],
    files: dict[str, Path], product: str | None, chunk: int,
) -> bool:  # fmt: skip
    """Fill the files, in place those that can be mapped; whether it went in pieces."""
    places, left = {}, {}
    for name, (shape, dtype) in specs.items():
        mapped = create(parts[name], files[name], shape, dtype.numpy) if name in parts else None
        places[name] = np.empty(shape, dtype.numpy) if mapped is None else np.asarray(mapped)
        if mapped is None and name in parts:
            left[name] = places[name]
    with progress("computing", sum(place.size for place in places.values())) as done:
        outputs = [places.get(parameter.name) for parameter in operator.outputs]
        pieces = run_in_chunks(operator, arguments, outputs, chunk, product, done)
    for name, result in left.items():
        write_into(parts[name], files[name], result)
    return pieces


def _show(
    operator: Operator,
    files: dict[str, Path],
    specs: dict[str, OutputSpec],
    pieces: bool,
    as_json: bool,
) -> None:
    told = {
        name: {"out": str(out), "dtype": specs[name][1].name, "shape": specs[name][0]}
        for name, out in files.items()
    }
    if as_json:
        one = told[operator.output.name] if operator.result_type is None else {"outputs": told}
        say_json(one | {"in_pieces": pieces})
        return
    for each in told.values():
        say(f"{each['out']}: {each['dtype']}, shape {each['shape']}")


@click.group(cls=PerOperator, make=_make, short_help="Run an operator on files.")
def run() -> None:
    """Run an operator on files: .npy, .npz (FILE:KEY), raw .bin (FILE:DTYPE:2x3), .safetensors (FILE:KEY), .pt.

    \b
    Example:
      openaclnn run elu_backward --grad-output g.npy --self-or-result x.npy --alpha 1.5 --out out.npy
      openaclnn run elu_backward --help
    """
