"""`openaclnn check`: what a call would be told, without data."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from openaclnn.cli.operators import (
    PerOperator,
    operator_command,
    option_of,
    product_names,
    word_of,
)
from openaclnn.cli.say import coloured, command_options, say, say_json, say_text, table
from openaclnn.core.declare import Operator
from openaclnn.core.interface import REQUIRED, Kind, Parameter
from openaclnn.core.products import PRODUCTS, current_product, find_product
from openaclnn.core.tensor import Scalar, Tensor
from openaclnn.operators import find_operator
from openaclnn.testing.build import LACKS, answer_of
from openaclnn.testing.cases.case import parameter_named
from openaclnn.testing.extras import dtype_named, need, tensor_fields, value_of
from openaclnn.testing.files import FileError, read_whole

_LARGEST = 1 << 20  # bytes of a file with a call
_METAVARS = {Kind.SCALAR: "[DTYPE:]VALUE"}


def _make(operator: Operator) -> click.Command:
    options: list[click.Parameter] = [
        option_of(operator, p, _METAVARS.get(p.kind, "DTYPE:SHAPE" if p.is_tensor else "VALUE"))
        for p in operator.parameters
    ]
    options += [
        click.Option(["--file"], type=click.Path(dir_okay=False, path_type=Path), help="The call in a JSON or YAML file; what the line says wins over it."),
        click.Option(["--product"], show_default="the one in force", shell_complete=product_names, help="The product to check against."),
        click.Option(["--products"], type=click.Choice(["all"]), help="A row for every product."),
    ]  # fmt: skip
    required = [p for p in operator.tensors if p.default is REQUIRED and p.is_read]
    example = " ".join(f"{word_of(operator, p)} float16:2x3" for p in required)

    @command_options
    def check_operator(file: Path | None, product: str | None, products: str | None, as_json: bool, **options: Any) -> int:  # fmt: skip
        held = {} if file is None else _read(file, operator)
        values = _described(operator, held.get("arguments", {}), options)
        chosen = product or str(held.get("product", current_product().tag))
        profiles = PRODUCTS if products == "all" else (find_product(chosen),)
        answers = [answer_of(operator, values, profile).as_dict() for profile in profiles]
        _show(answers, as_json, products == "all")
        return 0 if all(answer["status"] == 0 for answer in answers) else 1

    return operator_command(
        operator, check_operator, options,
        f"Check a call of {operator.name}.\n\nTensors are DTYPE:SHAPE, DTYPE:SHAPE:STRIDES or null, as float16:2x3:1,2; an output that is not given is "
        f"what the operator makes. An aclScalar is a number, or DTYPE:VALUE, as int8:2.\n\n\b\nExample:\n  openaclnn check {operator.python_name} {example} --products all",
    )  # fmt: skip


def _described(operator: Operator, held: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Values by C name, from the file and then from the line."""
    values: dict[str, Any] = {}
    for name, value in held.items():
        parameter = parameter_named(operator, name)
        if parameter is None:
            raise FileError(f"{operator.name} has no parameter {name!r}")
        values[parameter.name] = _value(parameter, name, value, value)
    for parameter in operator.parameters:
        text = options.get(f"given_{parameter.name}")
        if text is not None:
            word = word_of(operator, parameter)
            values[parameter.name] = _value(parameter, word, text, value_of(text))
    return values


def _value(parameter: Parameter, name: str, written: Any, plain: Any) -> Any:
    """What an argument that was written so stands for; `plain` if it is no tensor and says no dtype."""
    if parameter.is_tensor:
        return _tensor(name, written)
    return _scalar(name, written, plain) if parameter.kind is Kind.SCALAR else plain


def _read(file: Path, operator: Operator) -> dict[str, Any]:
    """A call of this operator in a file."""
    data = read_whole(file, _LARGEST)
    read = json.loads
    if file.suffix.lower() in (".yaml", ".yml"):
        read = need("yaml", f"{file}: PyYAML reads it").safe_load
    try:
        held = read(data.decode())
    except Exception as error:  # PyYAML has its own kinds
        raise FileError(f"{file}: {_fault_of(error)}") from None
    if not isinstance(held, dict) or not isinstance(held.get("arguments", {}), dict):
        raise FileError(f"{file}: a call is expected, as {{'product': ..., 'arguments': {{...}}}}")
    _know(held, ("operator", "product", "arguments"))
    if find_operator(str(held.get("operator", operator.name))) is not operator:
        raise FileError(f"{file}: a call of {held['operator']}, not of {operator.name}")
    return held


def _fault_of(error: Any) -> str:
    """What is wrong with a file and in which line, which PyYAML tells apart."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return str(error).partition("\n")[0]
    return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"


def _know(held: dict[str, Any], names: Sequence[str]) -> None:
    """What a file says beyond these would be passed over."""
    for name in held.keys() - set(names):
        raise FileError(f"unknown word {name!r}; known: {', '.join(names)}")


def _tensor(name: str, written: Any) -> Tensor | None:
    """What DTYPE:SHAPE, DTYPE:SHAPE:STRIDES or an object of a file describes; FileError says what is wrong with it."""
    if written is None or str(written).lower() in ("null", "none"):
        return None
    held = written
    if not isinstance(written, dict):
        held = dict(zip(("dtype", "shape", "strides"), str(written).split(":", 2), strict=False))
    try:
        if "shape" not in held or "dtype" not in held:
            raise ValueError(f"expected DTYPE:SHAPE, as float16:2x3, got {str(written)[:60]!r}")
        _know(held, ("dtype", "shape", "strides", "offset", "format"))
        return Tensor(**tensor_fields(held), base=4096)
    except (TypeError, ValueError) as error:
        raise FileError(f"{name}: {error}") from None


def _scalar(name: str, written: Any, plain: Any) -> Any:
    """What DTYPE:VALUE or an object of a file describes, or the plain value."""
    held = written
    if isinstance(written, str) and ":" in written:
        held = dict(zip(("dtype", "value"), written.split(":", 1), strict=True))
    if not isinstance(held, dict):
        return plain
    try:
        if "value" not in held or "dtype" not in held:
            raise ValueError(f"expected DTYPE:VALUE, as int8:2, got {str(written)[:60]!r}")
        _know(held, ("dtype", "value"))
        dtype, value = dtype_named(str(held["dtype"])[:200]), held["value"]
    except ValueError as error:
        raise FileError(f"{name}: {error}") from None
    try:
        value = value_of(value) if isinstance(value, str) else value
        with np.errstate(over="raise"):
            scalar = Scalar(value, dtype)
        if dtype.kind == "integer" and scalar.value != value:
            raise ValueError
    except (TypeError, ValueError, ArithmeticError):
        wanted = f"expected a number that an aclScalar of {dtype} holds"
        raise FileError(f"{name}: {wanted}, got {str(held['value'])[:60]!r}") from None
    return scalar


def _show(answers: list[dict[str, Any]], as_json: bool, many: bool) -> None:
    if as_json:
        say_json(answers if many else answers[0])
    elif many:
        columns = ("status", "name", "rule", "parameter", "expected", "got", "fix")
        products: dict[tuple[str, ...], list[str]] = {}  # by what they are told
        for each in answers:
            numbered = {"rule": f"{each['row']}: {each['rule']}"} if each.get("rule") else {}
            others = str(each.get("fix", "")).partition(LACKS)[2]
            # Else what is expected says it.
            numbered["fix"] = f"another product: {others}" if others else ""
            told = tuple([str((each | numbered).get(name, "")) for name in columns])
            same = tuple(cell.replace(f" (product {each['product']})", "") for cell in told)
            products.setdefault(same, []).append(each["product"])
        rows = [(", ".join(tags), *told) for told, tags in products.items()]
        say(table(("products", *columns), rows))
    else:
        [answer] = answers
        line = f"{answer['operator']} (product {answer['product']}): status {answer['status']} {answer['name']}"  # fmt: skip
        say(coloured(line, "green" if answer["status"] == 0 else "yellow"))
        if answer["status"] == 0:
            outputs = answer.get("outputs") or {"output": answer["output"]}
            width = max(map(len, outputs))
            for name, output in outputs.items():
                about = f"{output['dtype']}, shape {output['shape']}" if output else "not computed"
                say(f"  {name:<{width}}   {about}")
        else:
            rule = f"{answer['row']}: {answer['rule']}" if answer["rule"] else "the C type"
            say_text(f"  rule     {rule}\n  expected {answer['parameter']}: {answer['expected']}")
            say_text(f"  got      {answer['got']}\n  fix      {answer['fix']}")


@click.group(cls=PerOperator, make=_make, short_help="Say what a call would be told.")
def check() -> None:
    """Say what a call would be told: the status, the rule that decided, expected and got, and what would fix it.

    The status of the command is 0 for a sound call, 1 for a refused one.

    \b
    Example:
      openaclnn check elu_backward --grad-output float16:2x3 --self-or-result float32:2x3
      openaclnn check elu_backward --file call.yaml --products all

    \b
    A call in a file, in YAML or the same in JSON; `product` and `operator` may stand beside `arguments`:
      arguments:
        grad_output: float16:2x3
        self_or_result: {dtype: float16, shape: [2, 3], strides: [1, 2]}
        alpha: {dtype: int8, value: 2}
    """
