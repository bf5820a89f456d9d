"""The demo: every operator's first sample, its document's example, through both interfaces, beside the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.console import Console
from rich.panel import Panel
from rich.table import Table

import openaclnn
from openaclnn import acl, aclnn
from openaclnn.cli.say import say_json
from openaclnn.core.declare import Operator, Sample
from openaclnn.core.interface import Kind

__all__ = ["run_demo"]


def two_phase(operator: Operator, arguments: dict[str, Any], out: np.ndarray[Any, Any]) -> int:
    """The same call through the C-named interface, as the document's program makes it."""
    values = []
    for parameter in operator.parameters:
        value = arguments.get(parameter.python_name, parameter.default)
        if parameter.kind is Kind.OUTPUT:
            value = out
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


def _show(console: Console, operator: Operator, sample: Sample) -> float:
    arguments = sample.arrays()
    table = Table(box=None, show_header=False, padding=(0, 1))
    for name, value in arguments.items():
        if isinstance(value, np.ndarray):
            table.add_row(name, f"{value.dtype} {value.shape}", _row(value))
        else:
            table.add_row(name, "", str(value))
    result = getattr(openaclnn, operator.python_name)(**arguments)
    again = np.full_like(result, np.nan)
    status = two_phase(operator, arguments, again)
    exact = operator.oracle(**arguments)
    error = float(np.abs(result - exact).max())
    table.add_section()
    table.add_row(
        "[bold]plain call[/]", f"{result.dtype} {result.shape}", f"[bold]{_row(result)}[/]"
    )
    table.add_row("two-phase call", f"status {status}", _row(again))
    table.add_row("oracle", "float64", _row(exact))
    table.add_row("largest error", "", f"{error:.2g}")
    console.print(Panel(table, title=operator.name, title_align="left", subtitle=operator.summary))
    if status or not np.array_equal(again, result, equal_nan=True):
        raise SystemExit(f"{operator.name}: the two interfaces disagree (status {status})")
    return error


def _show_a_mistake(console: Console) -> None:
    operator = openaclnn.registry()[0]
    arguments = operator.samples[0].arrays()
    name = next(n for n, v in arguments.items() if isinstance(v, np.ndarray) and v.ndim == 2)
    wrong = {**arguments, name: arguments[name].astype(np.float64)}
    try:
        getattr(openaclnn, operator.python_name)(**wrong)
    except openaclnn.AclnnError as error:
        console.print(Panel(str(error), title="and a mistake is told exactly", title_align="left"))


def run_demo(as_json: bool = False) -> int:
    """Show every operator's first sample; returns 0 when both interfaces agree with the oracle."""
    console = Console(highlight=False, quiet=as_json)
    errors = {each.name: _show(console, each, each.samples[0]) for each in openaclnn.registry()}
    if as_json:
        say_json([{"operator": name, "largest_error": error} for name, error in errors.items()])
        return 0
    worst = max(errors.values())
    _show_a_mistake(console)
    console.print(
        f"{len(openaclnn.registry())} operators, both interfaces agree; largest error against float64: {worst:.2g}"
    )
    return 0
