"""Processor time of this process and its descendants: the JVM and the Python workers."""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_FIELDS = slice(11, 15)
"""Positions of utime, stime, cutime and cstime after the name in /proc/PID/stat.

The latter two are the times of children that have ended.
"""


def processor_seconds(without: Collection[int] = ()) -> float:
    """Return the seconds of processor time so far, leaving out processes in ``without`` and their descendants."""
    parents, used = {}, {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            parents[int(entry.name)] = int(fields[1])
            used[int(entry.name)] = sum(int(ticks) for ticks in fields[_FIELDS])
    children: dict[int, list[int]] = {}
    for process, parent in parents.items():
        children.setdefault(parent, []).append(process)
    total, waiting = 0, [os.getpid()]
    while waiting:
        process = waiting.pop()
        if process not in without:
            total += used.get(process, 0)
            waiting.extend(children.get(process, ()))
    return total / _TICKS
