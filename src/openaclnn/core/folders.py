"""Where compiled things are kept between processes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["cache_folder", "why_unwritable"]


def cache_folder() -> Path:
    """`OPENACLNN_CACHE_DIR`, else openaclnn in the user's cache folder; it need not exist yet."""
    asked = os.environ.get("OPENACLNN_CACHE_DIR")
    if asked:
        return Path(asked).absolute()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.path.expanduser(base)).absolute() / "openaclnn"


def why_unwritable(folder: Path) -> str | None:
    """Why nothing can be kept in a folder, or None; it need not exist yet."""
    place = folder
    while not os.path.lexists(place):
        place = place.parent
    if place.is_dir() and os.access(place, os.W_OK | os.X_OK):
        return None
    return f"{place} cannot be written; set OPENACLNN_CACHE_DIR"
