"""`openaclnn explorer`: the page."""

from __future__ import annotations

import sys
import threading
import webbrowser

import click

from openaclnn.cli.say import command_options, say, say_json

__all__ = ["explorer"]


@click.command(short_help="Serve a page to try calls and compare files.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port; without it, one that is free.")  # fmt: skip
@click.option("--host", type=click.Choice(["127.0.0.1", "::1"]), default="127.0.0.1", show_default=True, help="The address of this machine; there is no other.")  # fmt: skip
@click.option("--open/--no-open", "show", default=None, help="Open a browser; by default on a terminal.")  # fmt: skip
@command_options
def explorer(port: int, host: str, show: bool | None, as_json: bool) -> None:
    """Serve a page on this machine: describe a call, see its status, the rule that decided, its code and its values.

    It stops on Ctrl-C.

    \b
    Example:
      openaclnn explorer --port 8000 --no-open
    """
    from openaclnn.explorer.server import Explorer

    try:
        made = Explorer(host, port)
    except OSError as error:
        raise click.UsageError(
            f"port {port} of {host}: {error.strerror}; without --port one that is free is taken"
        ) from None
    with made as server:
        if as_json:
            say_json({"address": server.address})
        else:
            say(f"The explorer is at {server.address} (Ctrl-C stops it)")
        sys.stdout.flush()
        if sys.stdout.isatty() if show is None else show:
            # Some browsers return when they are closed.
            threading.Thread(target=webbrowser.open, args=(server.address,), daemon=True).start()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            if not as_json:
                say("stopped")
