"""`openaclnn example`: a program that calls an operator."""

from __future__ import annotations

from pathlib import Path

import click

from openaclnn.cli.operators import operator_argument
from openaclnn.cli.say import command_options, say, say_json
from openaclnn.core.declare import Operator
from openaclnn.core.writing import write_text
from openaclnn.testing.files.sources import FileError
from openaclnn.testing.programs.examples import LANGUAGES, example_of

__all__ = ["example"]


@click.command(short_help="Write a program that calls an operator.")
@operator_argument
@click.option("--lang", type=click.Choice(list(LANGUAGES)), default="c++", show_default=True)
@click.option("-o", "--out", type=click.Path(dir_okay=False, path_type=Path), help="The file to write; otherwise it is printed.")  # fmt: skip
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@command_options
def example(operator: Operator, lang: str, out: Path | None, force: bool, as_json: bool) -> None:
    """Write a program that calls an operator, ready to be compiled or run.

    \b
    Example:
      openaclnn example aclnnEluBackward --lang c++ -o elu_backward.cpp
      c++ elu_backward.cpp $(openaclnn-config --cflags --libs) -o elu_backward && ./elu_backward
    """
    text = example_of(operator, lang)
    if out is not None:
        if out.exists() and not force:
            raise FileError(f"{out} is there already; --force writes over it")
        write_text(out, text)
    if as_json:
        name = operator.python_name + LANGUAGES[lang] if lang != "cmake" else "CMakeLists.txt"
        say_json({"operator": operator.name, "language": lang, "name": name, "text": text})
    elif out is None:
        say(text.rstrip("\n"))
    else:
        say(str(out))
