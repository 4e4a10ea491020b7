"""Processors and processor time of this process and its descendants, and of the whole machine, on Linux."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")

_GONE = (FileNotFoundError, ProcessLookupError)
"""Errors when a process or thread ends while it is being read."""


def bind(processors: int) -> None:
    """Restrict this process and its present and future descendants to the first ``processors`` processors."""
    allowed = set(range(processors))
    for process in _own(_stats()):
        with suppress(*_GONE):
            for thread in Path(f"/proc/{process}/task").iterdir():
                with suppress(*_GONE):
                    os.sched_setaffinity(int(thread.name), allowed)


def own_seconds() -> float:
    """Return the processor time of this process and its descendants in seconds, including ended ones."""
    stats = _stats()
    return sum(int(ticks) for process in _own(stats) for ticks in stats[process][11:15]) / _TICKS


def machine_seconds() -> float:
    """Return the processor time of all processes of the machine in seconds."""
    fields = [int(ticks) for ticks in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    user, nice, system, _, _, interrupts, soft_interrupts, *_ = fields
    return (user + nice + system + interrupts + soft_interrupts) / _TICKS


def _stats() -> dict[int, list[str]]:
    """Return the fields of each ``/proc/PID/stat`` from the third on: the state, the parent, ..."""
    stats = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(*_GONE):
                stats[int(folder.name)] = (folder / "stat").read_text().rpartition(")")[2].split()
    return stats


def _own(stats: dict[int, list[str]]) -> set[int]:
    own = {os.getpid()} & stats.keys()
    while more := {process for process, fields in stats.items() if int(fields[1]) in own} - own:
        own |= more
    return own
