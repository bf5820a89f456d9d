"""The `openaclnn` command: subcommands are imported when they are asked for, errors become one sentence and an exit status.

`operators.py`, `check.py`, `run.py`, `compare.py`, `cases.py`, `bench.py`, `demo.py`, `sanitize.py` and `doctor.py` have the subcommands (`COMMANDS`), `say.py`
prints.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from openaclnn.cli.say import HelpContext, open_streams, say
from openaclnn.core.status import AclnnError
from openaclnn.core.version import __version__
from openaclnn.core.writing import remove_unfinished

__all__ = ["main"]

COMMANDS = {
    "list": "operators", "describe": "operators", "support": "operators", "check": "check", "run": "run", "compare": "compare",
    "golden": "cases", "cases": "cases", "bench": "bench", "explorer": "demo", "example": "demo", "doctor": "doctor",
    "cache": "doctor", "demo": "demo", "sanitize": "sanitize", "warmup": "doctor", "completion": "operators",
}  # fmt: skip
"""The subcommands, each with the module below `openaclnn.cli` that has it under its name."""

_MISUSE = (OSError, ValueError, ImportError, KeyError)


@contextmanager
def _clean_end() -> Iterator[None]:
    """A signal that ends the process by default still does so, once what is half written is gone."""

    def end(number: int, frame: object) -> None:
        remove_unfinished()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    caught = []
    if threading.current_thread() is threading.main_thread():
        known = (getattr(signal, name, None) for name in ("SIGTERM", "SIGHUP"))
        caught = [n for n in known if n is not None and signal.getsignal(n) is signal.SIG_DFL]
    for number in caught:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in caught:
            signal.signal(number, signal.SIG_DFL)


class _Commands(click.Group):
    """Subcommands that cost nothing until they are asked for."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"openaclnn.cli.{COMMANDS[name]}")
        commands = (each for each in vars(module).values() if isinstance(each, click.Command))
        command = next(command for command in commands if command.name == name)
        command.context_class = HelpContext
        return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="openaclnn")
def app() -> None:
    """The Ascend aclnn operator interface on any machine."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; returns the exit status: 0 done or passed, 1 a failing verdict or a refused call, 2 misuse or a
    file that cannot be read or written."""
    open_streams()
    with _clean_end():
        return _run(arguments)


def _run(arguments: Sequence[str] | None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    show = "--traceback" in words
    try:
        answer = app.main(words, prog_name="openaclnn", standalone_mode=False)
        return answer if isinstance(answer, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        say(error.format_message(), error=True)
        return 2
    except click.ClickException as error:
        return _told(error.format_message(), 2)
    except (click.Abort, KeyboardInterrupt):
        remove_unfinished()
        return 130
    except AclnnError as error:
        if show:
            raise
        return _told(f"{error} (rule {error.rule})" if error.rule else str(error), 1)
    except _MISUSE as error:
        if show:
            raise
        return _told(_sentence(error), 2)
    except Exception as error:  # a fault of ours, or a machine at its end
        if show:
            raise
        return _told(f"{type(error).__name__}: {_sentence(error)} (--traceback shows where)", 1)


def _sentence(error: Any) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, KeyError) and error.args:
        return str(error.args[0])
    return str(error).partition("\n")[0] or type(error).__name__


def _told(sentence: str, status: int) -> int:
    say(f"openaclnn: {sentence}", error=True)
    return status
