"""`python -m attack`: rounds of the attack, each in processes of their own, so that a crash is told with its seed and step.

python -m attack --seconds 600 --seed 1        rounds until the time is over
python -m attack --round 1234 --steps 500      one round, in this process: what a report names
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

from attack.program import build_program, run_program

STEPS = 400


def one_round(seed: int, steps: int) -> int:
    """The steps of one seed; the last lines say how far it came."""
    import numpy as np
    import torch

    from attack.calls import Attack, beside
    from attack.scarce import Scarce

    faulthandler.enable()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    with tempfile.TemporaryDirectory() as folder:
        attack, step = Attack(seed, scarce=Scarce(Path(folder))), -1
    try:
        for step in range(steps):
            os.pwrite(PLACE, f"step {step:9d}\n".encode(), 0) if PLACE >= 0 else None
            attack.step()
        os.pwrite(PLACE, b"in threads    \n", 0) if PLACE >= 0 else None
        attack.counts += beside(seed, 4, max(1, steps // 8))
    except BaseException:
        traceback.print_exc()
        print(f"seed {seed}, step {step}", flush=True)
        return 1
    print("counts", *(f"{name}={count}" for name, count in sorted(attack.counts.items())), sep="\t")
    return 0


PLACE = int(os.environ.get("ATTACK_PLACE", "-1"))  # where a round notes its steps


def run_round(seed: int, steps: int, timeout: float) -> tuple[str, Counter[str]]:
    """One round in a process of its own: what went wrong, or "", and what was counted."""
    note = os.memfd_create("attack")
    command = [sys.executable, "-m", "attack", "--round", str(seed), "--steps", str(steps)]
    folders = [str(Path(__file__).resolve().parents[1]), *sys.path]
    environment = {
        **os.environ,
        "ATTACK_PLACE": str(note),
        "PYTHONPATH": os.pathsep.join(filter(None, folders)),
    }
    try:
        done = subprocess.run(
            command, env=environment, pass_fds=(note,), capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip
        code, said = done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired as error:
        code, said = -1, f"no end after {timeout:.0f} s\n{(error.stdout or b'')!r}"
    reached = os.pread(note, 64, 0).decode().strip()
    os.close(note)
    if code:
        return f"seed {seed}, {reached}, of {steps} steps: ended with {code}\n{said}", Counter()
    line = next(line for line in said.splitlines() if line.startswith("counts"))
    pairs = (word.split("=") for word in line.split("\t")[1:])
    return "", Counter({name: int(count) for name, count in pairs})


def main() -> int:
    parser = argparse.ArgumentParser(prog="attack")
    parser.add_argument(
        "--seconds", type=float, default=float(os.environ.get("ATTACK_SECONDS", "300"))
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=int(os.environ.get("ATTACK_SEED", "0")) or time.time_ns() % 10**9,
    )
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--round", type=int)
    options = parser.parse_args()
    if options.round is not None:
        return one_round(options.round, options.steps)
    end, seed, total, faults = time.monotonic() + options.seconds, options.seed, Counter[str](), 0
    print(f"attack: seed {seed}, {options.seconds:.0f} s", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        program = build_program(Path(folder))
        while time.monotonic() < end:
            for fault, counts in (
                run_round(seed, options.steps, 600), run_program(program, seed, options.steps, 600),
            ):  # fmt: skip
                total += counts
                if fault:
                    faults += 1
                    print(fault, flush=True)
            seed += 1
    print(f"attack: {seed - options.seed} rounds, {faults} faults;", dict(total), flush=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
