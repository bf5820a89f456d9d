"""What the tests of the C side share: one build per machine, and a way to compile and run programs."""

from __future__ import annotations

import functools
import shutil
import subprocess
from pathlib import Path

import pytest

from conftest import CACHE
from openaclnn.capi.build import Installation, installation

ROOT = Path(__file__).resolve().parents[1]
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
STANDARDS = {".c": ["cc", "-std=c11"], ".cpp": ["c++", "-std=c++17"]}


@functools.cache
def installed() -> Installation:
    """The libraries for these sources; built in some seconds where they are not there yet."""
    pytest.importorskip("cffi")
    if not all(shutil.which(name) for name in ("cc", "c++")):
        pytest.skip("no C and C++ compilers")
    return installation(CACHE)


def compile_program(source: Path, target: Path, *extra: str) -> Path:
    """Compile a C or C++ program without a warning."""
    installation = installed()
    command = [
        *STANDARDS[source.suffix],
        *STRICT,
        str(source),
        *installation.cflags,
        *installation.libs,
    ]
    done = subprocess.run(
        [*command, "-pthread", *extra, "-o", str(target)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return target


def run_program(program: Path, *arguments: str, kept: bool = True, **environment: str) -> str:
    """Run it away from the sources with nothing in its environment but where compiled code is kept, if it is; its output."""
    if kept:  # a kernel that another program has compiled
        environment = {"OPENACLNN_CACHE_DIR": str(CACHE)} | environment
    done = subprocess.run(
        [str(program), *arguments], capture_output=True, text=True, timeout=300,
        cwd="/", env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout
