"""Processor time of this process with its descendants and of the machine, and the processors they may use; on Linux."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

GONE = (FileNotFoundError, ProcessLookupError)
"""Errors when a process or thread ends while it is being read."""

TICKS = os.sysconf("SC_CLK_TCK")
"""Parts of a second in which Linux counts."""

KNOWN = sys.platform == "linux"
"""Whether this machine says all that."""


@dataclass(frozen=True)
class ProcessorClock:
    """The time, and the processor time of this process with its descendants and of the machine so far, in seconds."""

    time: float
    own: float
    machine: float

    @classmethod
    def now(cls) -> ProcessorClock:
        """Look at all three clocks; where processor time is not known, it stands."""
        return cls(monotonic(), *((tree_seconds(os.getpid()), machine_seconds()) if KNOWN else (0.0, 0.0)))

    def others_since(self, before: ProcessorClock) -> float:
        """Return how many cores other processes have taken on average since ``before``."""
        passed = self.time - before.time
        taken = (self.machine - before.machine) - (self.own - before.own)
        return max(taken / passed, 0.0) if passed > 0 else 0.0


def stat_of(process: int) -> list[str]:
    """Return the fields of ``/proc/PID/stat`` from the third on: the state, the parent, ..."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()


def all_stats() -> dict[int, list[str]]:
    """Return the fields of all processes of the machine that this user sees."""
    stats = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(*GONE):
            stats[int(folder.name)] = stat_of(int(folder.name))
    return stats


def tree_in(stats: dict[int, list[str]], root: int, without: Collection[int] = ()) -> set[int]:
    """Return the process ``root`` and its descendants, except for those ``without``, and theirs."""
    tree = {root} & stats.keys()
    while more := {process for process, fields in stats.items() if int(fields[1]) in tree} - tree - set(without):
        tree |= more
    return tree


def tree_seconds(root: int, without: Collection[int] = ()) -> float:
    """Return the processor time so far of ``root`` and its descendants, in seconds, including ended ones.

    The processes in ``without`` and their descendants are left out.
    """
    stats = all_stats()
    # utime, stime, and cutime and cstime, which are the times of children that have ended
    return sum(int(ticks) for process in tree_in(stats, root, without) for ticks in stats[process][11:15]) / TICKS


def machine_seconds() -> float:
    """Return the processor time of all processes of the machine in seconds."""
    fields = [int(ticks) for ticks in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    user, nice, system, _, _, interrupts, soft_interrupts, *_ = fields
    return (user + nice + system + interrupts + soft_interrupts) / TICKS


def bind(processors: Collection[int]) -> None:
    """Restrict this process and its present and future descendants to some processors."""
    for process in tree_in(all_stats(), os.getpid()):
        with suppress(*GONE):
            for thread in Path(f"/proc/{process}/task").iterdir():
                with suppress(*GONE):
                    os.sched_setaffinity(int(thread.name), processors)
