"""The version, where the packaging reads it and everything above may; and when this process loaded it."""

import time

__version__ = "0.1.0"

LOADED = time.time()
