"""The demo: every operator's first sample, its document's example, through both interfaces, beside the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

import openaclnn
from openaclnn import acl, aclnn
from openaclnn.cli.say import rendered, say, say_json
from openaclnn.core.call import bind_plain
from openaclnn.core.declare import Made, Operator, Sample
from openaclnn.core.interface import Kind
from openaclnn.core.products import current_product

__all__ = ["run_demo"]


def two_phase(
    operator: Operator, arguments: dict[str, Any], outputs: list[np.ndarray[Any, Any]]
) -> int:
    """The same call through the C-named interface, as the document's program makes it."""
    values, places = [], iter(outputs)
    for parameter in operator.parameters:
        value = arguments.get(parameter.python_name, parameter.default)
        if parameter.kind is Kind.OUTPUT and not parameter.in_place:
            value = next(places)
        elif parameter.kind is Kind.INT64 and parameter.choices:
            value = parameter.choices.index(value)
        values.append(value)
    first = getattr(aclnn, f"{operator.name}GetWorkspaceSize")
    status, workspace_size, executor = first(*values)
    status = status or getattr(aclnn, operator.name)(None, workspace_size, executor, None)
    return int(status or acl.aclrtSynchronizeStream(None))


def _row(values: Any) -> str:
    flat = np.asarray(values, np.float64).reshape(-1)
    text = "  ".join(f"{value:.6g}" for value in flat[:10])
    return text + ("  ..." if flat.size > 10 else "")


def _show(operator: Operator, sample: Sample, quiet: bool) -> float:
    arguments = sample.arrays()
    table = Table(box=None, show_header=False, padding=(0, 1))
    for name, value in arguments.items():
        if isinstance(value, np.ndarray):
            table.add_row(name, f"{value.dtype} {value.shape}", _row(value))
        else:
            table.add_row(name, "", str(value))
    exact = _each(operator, operator.oracle(**arguments))
    results = _each(operator, getattr(openaclnn, operator.python_name)(**sample.arrays()))
    again = [np.full(shape, np.nan, dtype.numpy) for shape, dtype in _made(operator, arguments)]
    if operator.output.in_place:
        again = [arguments[operator.output.python_name]]
    status = two_phase(operator, arguments, again)
    errors = []
    for (name, result), second in zip(results.items(), again, strict=False):
        errors.append(float(np.abs(result - exact[name]).max()))
        table.add_section()
        table.add_row(
            f"[bold]plain call{name}[/]",
            f"{result.dtype} {result.shape}",
            f"[bold]{_row(result)}[/]",
        )
        table.add_row("two-phase call", f"status {status}", _row(second))
        table.add_row("oracle", "float64", _row(exact[name]))
        table.add_row("largest error", "", f"{errors[-1]:.2g}")
    if not quiet:
        _tell(Group(f"[dim]{operator.summary}[/]", table), operator.name)
    for result, second in zip(results.values(), again, strict=False):
        if status or not np.array_equal(second, result, equal_nan=True):
            raise SystemExit(f"{operator.name}: the two interfaces disagree (status {status})")
    return max(errors)


def _made(operator: Operator, arguments: dict[str, Any]) -> tuple[Made, ...]:
    """Shapes and dtypes of all outputs, those that are not computed too."""
    call = bind_plain(operator, operator.plain_defaults | arguments, current_product())
    return operator.results(call)


def _each(operator: Operator, results: Any) -> dict[str, Any]:
    """Results by what the demo calls them: one has no name; what is not computed is left out."""
    if operator.result_type is None:
        return {"": results}
    return {f", {name}": own for name, own in results._asdict().items() if own is not None}


def _tell(drawn: Any, title: str) -> None:
    say(rendered(Panel(drawn, title=title, title_align="left"), 100))


def _show_a_mistake() -> None:
    operator = openaclnn.registry()[0]
    arguments = operator.samples[0].arrays()
    name = next(n for n, v in arguments.items() if isinstance(v, np.ndarray) and v.ndim == 2)
    wrong = {**arguments, name: arguments[name].astype(np.float64)}
    try:
        getattr(openaclnn, operator.python_name)(**wrong)
    except openaclnn.AclnnError as error:
        _tell(Text(str(error)), "and a mistake is told exactly")


def run_demo(as_json: bool = False) -> int:
    """Show every operator's first sample; returns 0 when both interfaces agree with the oracle."""
    errors = {each.name: _show(each, each.samples[0], as_json) for each in openaclnn.registry()}
    if as_json:
        say_json([{"operator": name, "largest_error": error} for name, error in errors.items()])
        return 0
    _show_a_mistake()
    agree = f"{len(errors)} operators, both interfaces agree"
    say(f"{agree}; largest error against float64: {max(errors.values()):.2g}")
    return 0
