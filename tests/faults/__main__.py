"""`python -m faults`: every fault at every point of every scene; and what else tries how reliable the package is.

python -m faults                                   the complete sweep
python -m faults --scene life --fault interrupt    a part of it
python -m faults --most 50                         at most so many points of each
python -m faults fuzz --calls 1000000 --seed 1     files and programs that coverage guides
python -m faults bits                              the same bits for any threads and vectors, on any repeat
python -m faults soak --seconds 3600               small calls from many threads for an hour: nothing grows
python -m faults references                        calls of each kind, refused ones too, lose and keep no reference
"""

from __future__ import annotations

import importlib
import sys

COMMANDS = {name: f"faults.{name}" for name in ("inject", "fuzz", "bits", "soak", "references")}


def main() -> int:
    name, *rest = sys.argv[1:] or ["inject"]
    if name not in COMMANDS:
        name, rest = "inject", sys.argv[1:]
    code: int = importlib.import_module(COMMANDS[name]).main(rest)
    return code


if __name__ == "__main__":
    sys.exit(main())
