"""Processors and processor time of this process and all it has started, and of the whole machine, under Linux."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")

_GONE = (FileNotFoundError, ProcessLookupError)
"""A process or thread has ended while we looked at it."""


def bind(processors: int) -> None:
    """Let this process and all it has started, and will start, run on so many processors only."""
    allowed = set(range(processors))
    for process in _own(_stats()):
        with suppress(*_GONE):
            for thread in Path(f"/proc/{process}/task").iterdir():
                with suppress(*_GONE):
                    os.sched_setaffinity(int(thread.name), allowed)


def own_seconds() -> float:
    """Processor time of this process and its descendants, those that have ended included."""
    stats = _stats()
    return sum(int(ticks) for process in _own(stats) for ticks in stats[process][11:15]) / _TICKS


def machine_seconds() -> float:
    """Processor time of all processes of the machine."""
    fields = [int(ticks) for ticks in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    user, nice, system, _, _, interrupts, soft_interrupts, *_ = fields
    return (user + nice + system + interrupts + soft_interrupts) / _TICKS


def _stats() -> dict[int, list[str]]:
    """Fields of each process's ``/proc/PID/stat``, from the third on: its state, its parent, ..."""
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
