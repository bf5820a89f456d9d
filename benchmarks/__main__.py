"""`python -m benchmarks` is `openaclnn bench`."""

from __future__ import annotations

import sys

from openaclnn.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", *sys.argv[1:]]))
