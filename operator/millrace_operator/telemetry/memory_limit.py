"""The memory that this process's container may use, as the kernel limits it."""

from __future__ import annotations

from pathlib import Path

LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Files with the limit in a container: of cgroup v2, and of v1."""

_NO_LIMIT = 1 << 60
"""Least number that means no limit in v1, where it is the largest multiple of a page."""


def memory_limit(files: tuple[Path, ...] = LIMITS) -> int | None:
    """Return the limit in bytes; None without one, or outside of Linux' control groups."""
    for file in files:
        try:
            limit = file.read_text(encoding="ascii").strip()
        except OSError:
            continue
        return int(limit) if limit.isdecimal() and int(limit) < _NO_LIMIT else None
    return None
