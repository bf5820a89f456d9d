"""Where compiled things are kept between processes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from openaclnn.core.trust import why_untrusted

__all__ = ["CODE_MARK", "NO_FOLDER", "cache_folder", "why_ignored", "why_unwritable"]

NO_FOLDER = "no home folder is known; set OPENACLNN_CACHE_DIR"

CODE_MARK = b"openaclnn compiled code\n"
"""What a file with machine code begins with; the code's digest and the code follow."""


def cache_folder() -> Path | None:
    """`OPENACLNN_CACHE_DIR`, else openaclnn in the user's cache folder; it need not exist yet. None where there is no such folder."""
    asked = os.environ.get("OPENACLNN_CACHE_DIR")
    if asked:
        return Path(asked).absolute()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA", ""), "AppData/Local"
    elif sys.platform == "darwin":
        base = "", "Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME", ""), ".cache"
    named, below = base
    if os.path.isabs(named):  # what is relative is to be ignored, says the XDG specification
        return Path(named, "openaclnn")
    home = _home()
    return None if home is None else home / below / "openaclnn"


def _home() -> Path | None:
    home = os.path.expanduser("~")
    return Path(home) if os.path.isabs(home) and os.environ.get("HOME") != "" else None


def why_ignored(folder: Path | None) -> str | None:
    """Why nothing of a cache folder is used, or None."""
    return NO_FOLDER if folder is None else why_untrusted(folder)


def why_unwritable(folder: Path | None) -> str | None:
    """Why nothing can be kept in a folder, or None; it need not exist yet."""
    if folder is None:
        return NO_FOLDER
    place = folder
    while not os.path.lexists(place):
        place = place.parent
    if place.is_dir() and os.access(place, os.W_OK | os.X_OK):
        return why_untrusted(folder)
    return f"{place} cannot be written; set OPENACLNN_CACHE_DIR"
