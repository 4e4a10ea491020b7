"""The cache on disk, for files that Millrace can recreate."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path | None:
    """Return Millrace's folder in the user's cache, or None for a user without a home. The folder may not exist."""
    named = os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(named or Path.home() / ".cache") / "millrace"
    except RuntimeError:
        return None
