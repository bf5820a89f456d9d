"""The attack through C as a program: written, compiled with what sanitizers the compiler has, and run."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from pathlib import Path

from attack.table import table_source
from test_capi_tools import compile_program

__all__ = ["build_program", "run_program"]

SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
# The interpreter keeps what it has until the end, and the interface hands out memory of `new` to C.
OPTIONS = "detect_leaks=0:alloc_dealloc_mismatch=0"


def sanitizers(folder: Path) -> tuple[str, ...]:
    """The flags, where the compiler has them and programs built so run here."""
    probe = folder / "probe.c"
    probe.write_text("int main(void) { return 0; }\n")
    built = ["cc", str(probe), *SANITIZERS, "-o", str(folder / "probe")]
    for command in (built, [str(folder / "probe")]):
        if subprocess.run(command, capture_output=True, check=False).returncode:
            return ()
    return SANITIZERS


def build_program(folder: Path) -> Path:
    (folder / "attack_table.h").write_text(table_source())
    source = Path(__file__).with_name("attack.c")
    return compile_program(source, folder / "attack", f"-I{folder}", "-g", *sanitizers(folder))


def run_program(program: Path, seed: int, steps: int, timeout: float) -> tuple[str, Counter[str]]:
    """One round: what went wrong, or "", and what was counted."""
    environment = {**os.environ, "ASAN_OPTIONS": OPTIONS}
    environment.pop("PYTHONPATH", None)
    command = [str(program), str(seed), str(steps)]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return f"C: seed {seed}, {steps} steps: no end after {timeout:.0f} s", Counter()
    if done.returncode:
        said = done.stdout + done.stderr
        return f"C: seed {seed}, {steps} steps: ended with {done.returncode}\n{said}", Counter()
    pairs = (word.split("=") for word in done.stdout.split())
    return "", Counter({f"C {name}": int(count) for name, count in pairs})
