"""A program under the sanitizer: `sanitize` runs it, and says at the end what was found."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import click

from openaclnn.cli.say import command_options, counted, say, say_json
from openaclnn.sanitizer.findings import RULES, Settings


@click.command(
    short_help="Run a program and tell its faults.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option("--suppress", multiple=True, metavar="RULE", help="A rule that may be broken; can be repeated.")  # fmt: skip
@click.option("--product", default="", help="Also tell what this product would refuse or compute otherwise.")  # fmt: skip
@click.option("--exitcode", type=click.IntRange(1, 255), default=1, show_default=True, help="The exit status where something was found.")  # fmt: skip
@click.option("--rules", is_flag=True, help="List the rules and run nothing.")
@command_options
@click.argument("program", nargs=-1, type=click.UNPROCESSED)
def sanitize(
    program: tuple[str, ...], suppress: tuple[str, ...], product: str, exitcode: int, rules: bool, as_json: bool
) -> int:  # fmt: skip
    """Run a program, or a Python script, and tell where it uses the interface wrongly: lost objects, memory, order, values.

    Findings are printed on stderr as they come, their number at the end. The exit status is the program's own if nothing was found.

    \b
    Example:
      openaclnn sanitize ./program --its-own-option
      openaclnn sanitize --suppress leak script.py
    """
    if rules:
        if as_json:
            say_json(RULES)
        else:
            say("\n".join(f"{name}\n  {sentence}" for name, sentence in RULES.items()))
        return 0
    if not program:
        raise click.UsageError("expected a program to run")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "findings.json"
        words = [f"json:{report}", *(f"suppress={rule}" for rule in suppress)]
        words += [] if as_json else ["1"]
        words += [f"product={product}"] if product else []
        Settings.parse(",".join(words))  # a name that is misspelt is told before anything runs
        status = _run(program, ",".join(words))
        if not report.exists():
            raise click.ClickException(
                f"{program[0]} has not used openaclnn (exit status {status})"
            )
        findings = json.loads(report.read_text(encoding="utf-8"))["findings"]
    if as_json:
        say_json({"status": status, "findings": findings})
    else:
        say(_summary(findings, status))
    return exitcode if findings else status


def _run(program: tuple[str, ...], asked: str) -> int:
    script = program[0].endswith(".py")
    command = [sys.executable, *program] if script else list(program)
    done = subprocess.run(command, env={**os.environ, "OPENACLNN_SANITIZE": asked}, check=False)
    # As a shell says it: a signal that ended the program, above 128.
    return done.returncode if done.returncode >= 0 else 128 - done.returncode


def _summary(findings: list[dict[str, Any]], status: int) -> str:
    ended = (
        f"; the program was ended by {signal.Signals(status - 128).name}" if status > 128 else ""
    )
    lines = [f"{counted(len(findings), 'finding')}{ended}"]
    counts = Counter(finding["rule"] for finding in findings)
    lines += [f"  {counts[rule]} {rule}: {text}" for rule, text in RULES.items() if rule in counts]
    return "\n".join(lines)
