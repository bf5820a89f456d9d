"""`openaclnn-config`: what to tell a compiler, a linker, CMake or pkg-config.

`g++ program.cpp $(openaclnn-config --cflags --libs) -o program` is the usual use.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Callable, Sequence

from openaclnn.capi.build import BuildError, Installation, installation
from openaclnn.core.version import __version__

_ANSWERS: dict[str, tuple[str, Callable[[Installation], str]]] = {
    "--prefix": ("the folder for ASCEND_HOME_PATH", lambda it: str(it.root)),
    "--includedir": ("the folder of the headers", lambda it: str(it.include)),
    "--libdir": ("the folder of the libraries", lambda it: str(it.lib)),
    "--cflags": ("arguments for the compiler", lambda it: shlex.join(it.cflags)),
    "--libs": ("arguments for the linker, the run path included", lambda it: shlex.join(it.libs)),
    "--cmakedir": (
        "the folder for openaclnn_DIR or CMAKE_PREFIX_PATH",
        lambda it: str(it.lib / "cmake" / "openaclnn"),
    ),
    "--pkgconfigdir": ("the folder for PKG_CONFIG_PATH", lambda it: str(it.lib / "pkgconfig")),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what was asked for, in the order of the request, on one line; build first if need be."""
    parser = argparse.ArgumentParser(
        prog="openaclnn-config",
        description="Tell a C or C++ build where openaclnn is. The libraries are built on first use.",
        allow_abbrev=False,
    )
    for option, (text, _) in _ANSWERS.items():
        parser.add_argument(
            option, dest="wanted", action="append_const", const=option, default=[], help=text
        )
    parser.add_argument("--version", action="store_true", help="the version of openaclnn")
    options = parser.parse_args(arguments)
    if options.version:
        print(__version__)
        if not options.wanted:
            return 0
    if not options.wanted:
        parser.print_usage(sys.stderr)
        return 2
    try:
        built = installation()
        return _print(" ".join(_ANSWERS[option][1](built) for option in options.wanted))
    except BuildError as error:
        print(f"openaclnn-config: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _print(answer: str) -> int:
    """The status: a build must not go on with half an answer."""
    try:
        print(answer, flush=True)
    except OSError as error:
        print(f"openaclnn-config: nobody gets the answer: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes at its end
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
