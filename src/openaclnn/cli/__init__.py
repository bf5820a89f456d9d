"""The `openaclnn` command: one entry, subcommands that iterate the registry."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; returns the exit status: 0 done or passed, 1 a failing verdict or a refused call, 2 misuse or a
    file that cannot be read or written."""
    from openaclnn.cli.entry import run

    return run(arguments)
