"""Processor time of single processes, of this process with its descendants, and of the whole machine, on Linux."""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")

_GONE = (FileNotFoundError, ProcessLookupError)
"""Errors when a process or thread ends while it is being read."""


def seconds_of(process: int) -> float:
    """Return the processor time of all threads of a process so far, in seconds, without its children."""
    return sum(int(ticks) for ticks in _stat(process)[11:13]) / _TICKS


def own_seconds(without: Collection[int] = ()) -> float:
    """Return the processor time so far of this process and its descendants, in seconds, including ended ones.

    The processes in ``without`` and their descendants are left out.
    """
    return tree_seconds(os.getpid(), without)


def tree_seconds(root: int, without: Collection[int] = ()) -> float:
    """Return the same as ``own_seconds`` for the process ``root``."""
    stats = _stats()
    # utime, stime, and cutime and cstime, which are the times of children that have ended
    return sum(int(ticks) for process in _tree(stats, root, without) for ticks in stats[process][11:15]) / _TICKS


def tree(root: int) -> set[int]:
    """Return the process ``root`` and its descendants."""
    return _tree(_stats(), root)


def machine_seconds() -> float:
    """Return the processor time of all processes of the machine in seconds."""
    fields = [int(ticks) for ticks in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    user, nice, system, _, _, interrupts, soft_interrupts, *_ = fields
    return (user + nice + system + interrupts + soft_interrupts) / _TICKS


def bind(processors: int) -> None:
    """Restrict this process and its present and future descendants to the first ``processors`` processors."""
    allowed = set(range(processors))
    for process in tree(os.getpid()):
        with suppress(*_GONE):
            for thread in Path(f"/proc/{process}/task").iterdir():
                with suppress(*_GONE):
                    os.sched_setaffinity(int(thread.name), allowed)


def _stat(process: int) -> list[str]:
    """Return the fields of ``/proc/PID/stat`` from the third on: the state, the parent, ..."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()


def _stats() -> dict[int, list[str]]:
    stats = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(*_GONE):
            stats[int(folder.name)] = _stat(int(folder.name))
    return stats


def _tree(stats: dict[int, list[str]], root: int, without: Collection[int] = ()) -> set[int]:
    tree = {root} & stats.keys()
    while more := {process for process, fields in stats.items() if int(fields[1]) in tree} - tree - set(without):
        tree |= more
    return tree
