"""Where Millrace keeps what it can make again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path | None:
    """Millrace's folder in the user's cache, which need not exist; None for a user without a home."""
    named = os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(named or Path.home() / ".cache") / "millrace"
    except RuntimeError:
        return None
