"""`python -m faults`: every fault at every point of every scene.

python -m faults                                   the complete sweep
python -m faults --scene life --fault interrupt    a part of it
python -m faults --most 50                         at most so many points of each
"""

from __future__ import annotations

import argparse
import os
import sys

from faults.inject import FAULTS, available, run_driver, sweep

SCENES = ("fast", "slow", "out", "phases", "life", "large", "cache")
ON_DISK = ("disk", "full disk", "kill")
"""Where there is nothing but a cache to damage."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="faults")
    parser.add_argument("--scene", choices=SCENES, action="append")
    parser.add_argument("--fault", choices=FAULTS, action="append")
    parser.add_argument("--most", type=int, default=0)
    parser.add_argument("--start", type=int, default=0)
    given = parser.parse_args()
    if not available():
        print("faults: the C library and the interpreter are not those that faults.c knows")
        return 2
    if "FAULTS_LIBRARY" not in os.environ:
        return run_driver(sys.argv[1:], 24 * 3600, capture=False)[0]
    bad = 0
    for scene in given.scene or SCENES:
        kept = scene == "cache"
        for fault in given.fault or [name for name in FAULTS if kept or name not in ON_DISK]:
            if kept and "allocation" in fault:
                continue  # LLVM ends the process where it has no memory
            counts, faults = sweep(scene, fault, given.most, given.start)
            told = ", ".join(f"{name}: {count}" for name, count in counts.items())
            print(f"{scene} / {fault}: {told}", flush=True)
            for text in faults:
                print(text, flush=True)
            bad += len(faults)
    print(f"faults: {bad} findings", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
